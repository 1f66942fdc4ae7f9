// A short message to a process without a connection to us, while neither makes progress: it is
// accepted all the same, and comes when they do.
//
//   idle FLAG    a file that is not there yet; it appears once the message is accepted
//
// Exit status: of program.hpp.

#include <unistd.h>

#include <array>
#include <fstream>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

void send(Vci& vci, const char* flag) {
  std::array<std::uint64_t, 4> words{};
  fill(words, 1);
  const auto is_accepted = [&] {
    return got(post_send(vci, 1, 0, words.data(), sizeof words), "post_send") != Post::retry;
  };
  wait_until("a place for the message", is_accepted, [] { ::sched_yield(); });
  if (!std::ofstream(flag)) fail(3, flag);
}

void receive(Context& context, Vci& vci, const char* flag) {
  wait_until(
      "the flag", [&] { return ::access(flag, F_OK) == 0; }, [] { ::sched_yield(); });
  auto over = got(Synchronizer::create(context.completions(), 1), "synchronizer");
  PostOptions options;
  options.completion = &over;
  options.signals_always = true;
  std::array<std::uint64_t, 4> words{};
  (void)got(post_recv(vci, 0, 0, words.data(), sizeof words, options), "post_recv");
  wait_for(vci, "the message", [&] { return over.test(); });
  if (!is_filled(words, 1)) fail(1, "its payload");
  std::puts("idle: it has come");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) fail(3, "idle FLAG");
  auto context = begin();
  {
    Vci vci = got(context->create_vci(), "create_vci");
    if (context->rank() == 0)
      send(vci, argv[1]);
    else
      receive(*context, vci, argv[1]);
    meet(*context);
  }
  return 0;
}
