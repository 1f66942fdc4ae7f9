// Messages between two native processes: `larklane launch -n 2 messages ...`, see one_pair.hpp.

#include <sched.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "larklane/context.hpp"
#include "larklane/message.hpp"
#include "one_pair.hpp"

namespace {

using larklane::Completion;
using larklane::CompletionObject;
using larklane::CompletionQueue;
using larklane::Context;
using larklane::Counter;
using larklane::Post;
using larklane::PostOptions;
using larklane::RemoteCompletion;
using larklane::Vci;

constexpr std::uint32_t kNumber = 4;  // tag

template <class T>
T got(larklane::Result<T> result, const char* what) {
  if (!result) {
    std::fprintf(stderr, "messages: %s: %s\n", what, larklane::errc_name(result.error().code()));
    std::exit(3);
  }
  return std::move(result).value();
}

class Messenger {
 public:
  static constexpr bool kKeepsOrder = true;
  /// @param lane  null: the messenger creates its own
  Messenger(Context& context, const one_pair::Options& options, std::uint32_t thread, Vci* lane)
      : rank_(context.rank()),
        first_tag_(thread * one_pair::kTags),
        counts_(options.completion == "counter"),
        yields_(options.threads != 1),
        own_(lane != nullptr ? std::nullopt
                             : std::optional(got(context.create_vci(), "create_vci"))),
        vci_(lane != nullptr ? *lane : *own_),
        told_(got(CompletionQueue::create(context.completions()), "queue")),
        heard_(got(CompletionQueue::create(context.completions()), "queue")),
        counter_(got(Counter::create(context.completions()), "counter")) {
    options_.completion = counts_ ? static_cast<CompletionObject*>(&counter_) : &told_;
    // The peer's active messages name this number of `heard_`.
    const RemoteCompletion mine = got(heard_.register_remote(), "register_remote");
    std::uint32_t pending = receive(kNumber, &there_, sizeof there_);
    pending += send(kNumber, &mine, sizeof mine, false);
    for (; pending != 0; --pending) (void)wait_one();
  }

  int rank() const { return rank_; }
  bool send(std::uint32_t tag, const void* buffer, std::uint64_t bytes, bool do_more_follow) {
    options_.more_follow = do_more_follow;
    return posted("post_send", [&] {
      return larklane::post_send(vci_, 1 - rank_, first_tag_ + tag, buffer, bytes, options_);
    });
  }
  bool am(const void* buffer, std::uint64_t bytes, bool do_more_follow) {
    options_.more_follow = do_more_follow;
    return posted("post_am", [&] {
      return larklane::post_am(vci_, 1 - rank_, there_, 0, buffer, bytes, options_);
    });
  }
  bool receive(std::uint32_t tag, void* buffer, std::uint64_t bytes) {
    Completion done;
    return posted("post_recv", [&] {
      return larklane::post_recv(vci_, 1 - rank_, first_tag_ + tag, buffer, bytes, options_, &done);
    });
  }
  bool wait_one() {
    if (!counts_) return wait(told_).status.ok();
    ++waited_;
    while (counter_.completed() < waited_) turn();
    return counter_.failed() == 0;
  }
  template <class Take>
  void hear(Take&& take) {
    const Completion completion = wait(heard_);
    take(completion.buffer, completion.bytes);
    larklane::free_buffer(completion.buffer);
  }

 private:
  template <class Attempt>
  bool posted(const char* what, Attempt&& attempt) {
    while (true) {
      const Post post = got(attempt(), what);
      if (post != Post::retry) return post == Post::posted;
      turn();
    }
  }
  Completion wait(CompletionQueue& queue) {
    while (true) {
      if (auto completion = queue.pop()) return *completion;
      turn();
    }
  }
  void turn() {
    if (vci_.progress() == 0 && yields_) ::sched_yield();
  }

  const int rank_;
  const std::uint32_t first_tag_;
  const bool counts_, yields_;
  std::optional<Vci> own_;
  Vci& vci_;
  CompletionQueue told_, heard_;
  Counter counter_;
  std::uint64_t waited_ = 0;
  PostOptions options_;
  RemoteCompletion there_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  one_pair::Options options;
  if (const int status = one_pair::parse(argc, argv, &options); status != 0)
    return status < 0 ? 0 : status;
  // As many lanes as threads, even with fewer cores.
  if (options.threads > 1)
    ::setenv("LARKLANE_VCI_COUNT_MAX", std::to_string(options.threads).c_str(), 0);
  std::string problem;
  auto context = Context::create(&problem);
  if (!context) {
    std::fprintf(stderr, "messages: %s\n", problem.c_str());
    return 3;
  }
  if ((*context)->size() != 2) {
    std::fprintf(stderr, "messages: 2 processes are needed, not %d\n", (*context)->size());
    return 2;
  }
  std::uint64_t wrong = 0;
  {
    std::optional<Vci> shared;
    if (options.lanes == "shared") shared = got((*context)->create_vci(), "create_vci");
    const auto make = [&](std::uint32_t thread) {
      return std::make_unique<Messenger>(**context, options, thread, shared ? &*shared : nullptr);
    };
    wrong = one_pair::measure(make, options);
  }
  if (!(*context)->fence(&problem).ok()) std::fprintf(stderr, "messages: %s\n", problem.c_str());
  return wrong == 0 ? 0 : 1;
}
