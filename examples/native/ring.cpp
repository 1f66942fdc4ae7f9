/* ring: every process sends a message to the next one and receives one from the previous one.
 *
 * Shows a send, a receive, and synchronizers that are waited for and reused. Checks itself: each
 * round has other data. Exit status 1 if a byte was wrong. ring.c is the same in C.
 *
 *     larklane launch -n 4 ./ring --rounds 100 --bytes 65536
 */
#include <algorithm>
#include <vector>

#include "native.hpp"

using larklane::PostOptions;
using larklane::Synchronizer;

int main(int argc, char** argv) {
  long rounds = 100, bytes = 65536;
  native::read_options(argc, argv, "ring: messages around a ring of processes",
                       {{"--rounds", &rounds, 1, 1'000'000, "rounds"},
                        {"--bytes", &bytes, 1, 1 << 30, "length of a message"}});
  const auto context = native::join_job();
  larklane::Vci vci = native::must(context->create_vci(), "create_vci");
  const int rank = context->rank(), size = context->size();
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;

  // Both are always signalled, also if an operation is done at once: one wait serves all cases.
  auto sent = native::must(Synchronizer::create(context->completions(), 1), "synchronizer");
  auto received = native::must(Synchronizer::create(context->completions(), 1), "synchronizer");
  PostOptions send, receive;
  send.completion = &sent;
  receive.completion = &received;
  send.signals_always = receive.signals_always = true;

  const auto length = static_cast<std::size_t>(bytes);
  std::vector<unsigned char> outgoing(length), incoming(length);
  long wrong = 0;
  for (long round = 0; round < rounds; ++round) {
    const auto tag = static_cast<std::uint32_t>(round);
    std::fill(outgoing.begin(), outgoing.end(), static_cast<unsigned char>(rank + round));
    native::until_posted(vci, [&] {
      return post_recv(vci, previous, tag, incoming.data(), incoming.size(), receive);
    });
    native::until_posted(
        vci, [&] { return post_send(vci, next, tag, outgoing.data(), outgoing.size(), send); });
    native::progress_until(vci, [&] { return sent.test() && received.test(); });
    native::must(sent.completions().front().status, "send");
    native::must(received.completions().front().status, "receive");
    native::must(sent.reset(), "reset");
    native::must(received.reset(), "reset");
    const auto wanted = static_cast<unsigned char>(previous + round);
    wrong += static_cast<long>(length) - std::count(incoming.begin(), incoming.end(), wanted);
  }
  native::meet(*context);  // a receiver may still fetch from this process
  if (rank == 0)
    std::printf("ring: %d processes, %ld rounds of %ld bytes, %ld bytes wrong\n", size, rounds,
                bytes, wrong);
  return wrong == 0 ? 0 : 1;
}
