#pragma once
// Handed-over steps that wait for a thread of the program.

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "control/plane/plane.hpp"
#include "part/records.hpp"

namespace larklane::part {

/// The kernel's id of the calling thread, with a system call in its first call only.
inline pid_t this_thread() noexcept {
  thread_local constinit pid_t id = 0;
  if (id == 0) id = ::gettid();
  return id;
}

/// A channel of this process, as the owner of steps that wait for the program.
class StepOwner : public std::enable_shared_from_this<StepOwner> {
 public:
  virtual ~StepOwner() = default;
  /// On a thread of the program.
  virtual void carry_out_step(const record::Move& step) = 0;
  /// On a thread of the library, which can do it where the step's pages are open.
  virtual void on_move(const record::Move& step) = 0;
  /// Has one of `threads` open this side's pages of the step.
  virtual Status open_pages(const record::Move& step, std::span<const pid_t> threads) = 0;
  /// The one that made the request.
  pid_t thread() const noexcept { return thread_; }

 private:
  const pid_t thread_ = this_thread();
};

/// Handed-over steps of one process that wait for a thread of the program. The helper can't access
/// their memory: a SIGSEGV handler of the program may open it, and the helper blocks all signals.
/// Any thread that waits or tests carries out all steps, even for other requests: its own request
/// may need them first. If none does within kPatienceNs, a signal makes one open the pages, and the
/// helper carries out the steps (ADR 0031).
/// Thread safety: thread-safe, but for serve_by().
class ProgramSteps {
 public:
  /// @param plane  its threads prompt the program. Before the first step; it ends before this
  void serve_by(control::Plane& plane) noexcept {
    plane_ = &plane;
    thread_ = this_thread();
  }
  void add(StepOwner& owner, const record::Move& step);
  void carry_out();
  bool empty() const noexcept {
    // relaxed: a hint; a waiting thread polls again.
    return count_.load(std::memory_order_relaxed) == 0;
  }
  /// After carry_out(): a thread of the library has taken steps, and has not carried them out yet.
  bool has_steps_in_hand() const noexcept {
    return in_hand_.load(std::memory_order_acquire);  // acquire: pairs with give_back_locked()
  }

 private:
  struct Step {
    std::weak_ptr<StepOwner> owner;
    record::Move move;
  };
  static constexpr std::int64_t kPatienceNs = 20'000'000, kPatienceMostNs = 1'000'000'000;
  std::optional<Step> take();
  void prompt_program();
  void carry_out_by_helper(const std::vector<Step>& steps);
  void give_back_locked();

  control::Plane* plane_ = nullptr;
  pid_t thread_ = 0;  ///< that made the engine: it uses MPI
  std::mutex mutex_;
  // guarded by mutex_
  std::vector<Step> steps_;
  bool is_prompted_ = false;  ///< a thread will look at the steps
  std::int64_t patience_ns_ = kPatienceNs;

  std::atomic<std::size_t> count_{0};
  std::atomic<bool> in_hand_{false};
};

}  // namespace larklane::part
