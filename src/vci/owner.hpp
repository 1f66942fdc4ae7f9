#pragma once
// A thread that has something for itself, and leaves it when others ask: entering it takes no
// read-modify-write and no fence. Who asks makes up for both, by a system call that runs a fence on
// every thread of the process. (membarrier(2), MEMBARRIER_CMD_PRIVATE_EXPEDITED; docs/adr/0021)

#include <atomic>
#include <cstdint>

namespace larklane::vci {

// Thread safety: thread-safe. enter() and leave() are the owner's; set() and clear() of one who has
// excluded all others by some word of his that is an atomic.
// Invariants:
// 1. After its load of that word the owner is inside, or it has seen that somebody else is.
// 2. When wait_until_out() returns, the owner has seen the caller's word, or will see it before it
//    is inside again.
class Owner {
 public:
  // relaxed, here and below: only the owner's own number makes a difference, and it writes that
  // itself; who excludes all others has acquired it with their word.
  bool is_there() const noexcept { return thread_.load(std::memory_order_relaxed) != kNobody; }
  bool is_caller() const noexcept {
    const std::uintptr_t thread = thread_.load(std::memory_order_relaxed);
    return thread != kNobody && thread == caller();
  }
  bool is_other() const noexcept { return is_there() && !is_caller(); }

  /// Then looks at the word of the others.
  void enter() noexcept {
    is_inside_.store(true, std::memory_order_relaxed);
    // The fence between this store and the look is the asker's: wait_until_out(). Here the compiler
    // keeps their order.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  /// release: of what it has done; pairs with wait_until_out()'s acquire.
  void leave() noexcept { is_inside_.store(false, std::memory_order_release); }
  bool has_entered() const noexcept { return is_caller() && is_inside(); }
  /// @pre the caller is the owner
  bool is_inside() const noexcept { return is_inside_.load(std::memory_order_relaxed); }

  /// By who has excluded all others but the owner.
  void wait_until_out() const noexcept {
    if (is_there()) [[unlikely]]
      wait_until_out_slow();
  }

  /// The caller is. False: this kernel has no such call, or forbids it.
  bool set() noexcept;
  void clear() noexcept { thread_.store(kNobody, std::memory_order_relaxed); }

 private:
  static constexpr std::uintptr_t kNobody = 0;
  static std::uintptr_t caller() noexcept {
    return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  }
  void wait_until_out_slow() const noexcept;

  std::atomic<std::uintptr_t> thread_{kNobody};
  std::atomic<bool> is_inside_{false};
};

}  // namespace larklane::vci
