// Rank 0 sends each of the others a message and is at the fence before they are connected; the
// others come there when they have heard.
//
// Exit status: 0; 3 a call has failed, as standard error says.

#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "larklane/context.hpp"
#include "larklane/message.hpp"

namespace {

using larklane::CompletionQueue;
using larklane::Context;
using larklane::PostOptions;
using larklane::Vci;

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "scatterer: %s\n", text.c_str());
  std::_Exit(3);
}
template <class T>
T got(larklane::Result<T> result, const char* what) {
  if (!result) fail(std::string(what) + ": " + larklane::errc_name(result.error().code()));
  return std::move(result).value();
}

}  // namespace

int main() {
  std::string problem;
  auto made = Context::create(&problem);
  if (!made) fail(problem);
  Context& context = **made;
  Vci vci = got(context.create_vci(), "create_vci");
  CompletionQueue heard = got(CompletionQueue::create(context.completions()), "queue");
  const auto number = got(heard.register_remote(), "register_remote");
  if (context.rank() == 0) {
    PostOptions options;
    options.queues = true;
    for (int rank = 1; rank < context.size(); ++rank)
      got(larklane::post_am(vci, rank, number, 0, nullptr, 0, options), "post_am");
  } else {
    while (!heard.pop())
      if (vci.progress() == 0) ::sched_yield();
  }
  if (!context.fence(&problem).ok()) fail(problem);
  if (context.rank() == 0) std::printf("scatterer: all have heard\n");
  return 0;
}
