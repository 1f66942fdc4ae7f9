// Rank 1 sends a message and leaves; rank 0 goes on.
//
//   leaver orderly|sudden    sudden: its context is not destroyed
//
// Exit status: 0; 1 a post to rank 1 has not ended with an error in 10 s; 3 a call has failed, as
// standard error shows.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

void stay(Context& context) {
  Vci vci = got(context.create_vci(), "create_vci"),
      fresh = got(context.create_vci(), "create_vci");
  CompletionQueue told = got(CompletionQueue::create(context.completions()), "queue");
  PostOptions options;
  options.completion = &told;
  std::uint64_t first = 0, never = 0;
  got(post_recv(vci, 1, 1, &first, sizeof first, options), "post_recv");
  wait_for(vci, "the message", [&] { return told.pop().has_value(); });
  got(post_recv(vci, 1, 2, &never, sizeof never, options), "post_recv");
  wait_for(vci, "the end of a receive", [&] {
    const auto completion = told.pop();
    return completion && completion->status.code() == Errc::kPeerDown;
  });
  for (Vci* const lane : {&vci, &fresh})
    wait_for(*lane, lane == &vci ? "the end of a send" : "the end of a send over a new lane", [&] {
      return post_send(*lane, 1, 3, &first, sizeof first).error().code() == Errc::kPeerDown;
    });
  got(post_recv(fresh, 1, 2, &never, sizeof never, options), "post_recv");
  wait_for(fresh, "the end of a late receive", [&] { return told.pop().has_value(); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) fail(3, "leaver orderly|sudden");
  auto context = begin();
  if (context->rank() == 0) {
    stay(*context);
    context.reset();
    std::printf("leaver: all has ended\n");
    return 0;
  }
  {
    Vci vci = got(context->create_vci(), "create_vci");
    const std::uint64_t word = 7;
    wait_for(vci, "a post", [&] {
      return got(post_send(vci, 0, 1, &word, sizeof word), "post_send") == Post::done;
    });
    for (int turn = 0; turn < 1000; ++turn) (void)vci.progress();  // unsent messages are lost
  }
  if (std::strcmp(argv[1], "sudden") == 0) std::_Exit(0);
  return 0;
}
