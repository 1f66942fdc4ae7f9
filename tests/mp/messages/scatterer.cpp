// Rank 0 sends each of the others a message and is at the fence before they are connected; the
// others come there when they have received it.
//
// Exit status: 0; 3 a call has failed, as standard error shows.

#include <cstdio>

#include "program.hpp"

namespace {

using larklane::CompletionQueue;
using larklane::Context;
using larklane::PostOptions;
using larklane::Vci;
using larklane::program::got;

}  // namespace

int main() {
  const auto made = larklane::program::begin();
  Context& context = *made;
  Vci vci = got(context.create_vci(), "create_vci");
  CompletionQueue heard = got(CompletionQueue::create(context.completions()), "queue");
  const auto number = got(heard.register_remote(), "register_remote");
  if (context.rank() == 0) {
    PostOptions options;
    options.queues = true;
    for (int rank = 1; rank < context.size(); ++rank)
      got(larklane::post_am(vci, rank, number, 0, nullptr, 0, options), "post_am");
  } else {
    larklane::program::wait_for(vci, "the message", [&] { return heard.pop().has_value(); });
  }
  larklane::program::meet(context);
  if (context.rank() == 0) std::printf("scatterer: all have heard\n");
  return 0;
}
