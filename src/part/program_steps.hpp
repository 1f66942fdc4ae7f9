#pragma once
// Handed-over steps that wait for a thread of the program.

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "part/records.hpp"

namespace larklane::part {

/// A channel of this process, as the owner of steps that wait for the program.
class StepOwner : public std::enable_shared_from_this<StepOwner> {
 public:
  virtual ~StepOwner() = default;
  /// On a thread of the program.
  virtual void carry_out_step(const record::Move& step) = 0;
};

/// Handed-over steps of one process that wait for a thread of the program. The helper can't access
/// their memory: a SIGSEGV handler of the program may open it, and the helper blocks all signals.
/// Any thread that waits or tests carries out all steps, even for other requests: its own request
/// may need them first.
/// Thread safety: thread-safe.
class ProgramSteps {
 public:
  void add(StepOwner& owner, const record::Move& step);
  void carry_out();
  bool empty() const noexcept {
    // relaxed: a hint; a waiting thread polls again.
    return count_.load(std::memory_order_relaxed) == 0;
  }

 private:
  struct Step {
    std::weak_ptr<StepOwner> owner;
    record::Move move;
  };
  std::optional<Step> take();

  std::mutex mutex_;
  std::vector<Step> steps_;  // guarded by mutex_
  std::atomic<std::size_t> count_{0};
};

}  // namespace larklane::part
