#pragma once
// A lane's lock: a word that each user of the lane takes and releases. If one thread owns the lane,
// that thread has an entry, and the word serves the other threads. (docs/design/adr/0014, 0021)

#include <sched.h>

#include <utility>

#include "base/reversed.hpp"
#include "base/thread_safety.hpp"
#include "vci/lane_word.hpp"
#include "vci/owner.hpp"
#include "vci/work.hpp"

namespace larklane::vci {

// Thread safety: thread-safe.
// Invariants:
// 1. If it has no owner, its holder has taken the word.
// 2. If it has one, that thread holds it by having entered, while the word was free; or, if others
//    had asked for it, by the word. Others hold it by the word, after the owner has come out.
// 3. A work that is queued is returned by exactly one try_unlock().
class LARKLANE_CAPABILITY("lane") LaneLock {
 public:
  LaneLock() noexcept = default;
  LaneLock(const LaneLock&) = delete;
  LaneLock& operator=(const LaneLock&) = delete;

  /// False also for all but its owner, if it has one.
  bool try_lock() noexcept LARKLANE_TRY_ACQUIRE(true) LARKLANE_NOT_FOLLOWED {
    if (word_.has_owner()) [[unlikely]]
      return try_enter();
    return word_.is_free() && word_.try_lock();
  }
  /// For rare operations: a holder releases the lock soon.
  void lock() noexcept LARKLANE_ACQUIRE() LARKLANE_NOT_FOLLOWED {
    while (!(owner_.is_caller() ? try_enter() : try_ask())) ::sched_yield();
  }
  /// The same, not by entering, even if the caller is the owner.
  void lock_word() noexcept LARKLANE_ACQUIRE() LARKLANE_NOT_FOLLOWED {
    while (!try_ask()) ::sched_yield();
  }
  /// True: the caller holds the lock. False: the holder will find `work`, which may be complete and
  /// gone already.
  bool lock_or_queue(Work& work) noexcept LARKLANE_TRY_ACQUIRE(true) LARKLANE_NOT_FOLLOWED {
    return word_.try_lock() || lock_or_queue_slow(work);
  }
  /// Null: the lock has been released. Otherwise it is still held, and the caller gets the queued
  /// works, the oldest first.
  Work* try_unlock() noexcept LARKLANE_NOT_FOLLOWED {
    return word_.try_unlock() ? nullptr : try_unlock_slow();
  }
  /// The same, without a read-modify-write where the caller has entered.
  Work* try_unlock_or_leave() noexcept LARKLANE_NOT_FOLLOWED {
    return word_.has_owner() ? try_unlock_slow() : try_unlock();
  }

  /// From now on the calling thread is the owner. @pre it holds the lock, which has none. False:
  /// the kernel can't make it.
  bool own() noexcept {
    if (!owner_.set()) return false;
    word_.set_owner();
    return true;
  }
  /// @pre lock_word()
  void disown() noexcept {
    owner_.clear();
    word_.clear_owner();
  }
  bool is_anothers() const noexcept { return owner_.is_other(); }

  /// For the compiler, where the lock is held by a way that it can't follow.
  void assert_held() const noexcept LARKLANE_ASSERT_HELD(this) {}

 private:
  using Taken = LaneWord::Taken;
  bool is_taken(Taken taken) const noexcept {
    if (taken == Taken::from_owner) owner_.wait_until_out();
    return taken != Taken::no;
  }
  bool try_ask() noexcept { return is_taken(word_.poll_lock()); }
  bool try_enter() noexcept;
  bool lock_or_queue_slow(Work& work) noexcept;
  Work* try_unlock_slow() noexcept;

  LaneWord word_;
  Owner owner_;
  Work* youngest_ = nullptr;  // of those that the owner has posted since it has entered
};

/// False also if it is inside: in a callback of its own.
inline bool LaneLock::try_enter() noexcept {
  Owner::Entry* const entry = owner_.own_entry();
  if (entry == nullptr || entry->is_inside()) return false;
  entry->enter();
  if (word_.is_free() && owner_.is_current(*entry)) [[likely]]
    return true;
  entry->leave();
  return false;
}

[[gnu::noinline]] inline bool LaneLock::lock_or_queue_slow(Work& work) noexcept {
  if (Owner::Entry* const entry = owner_.own_entry()) {
    if (entry->is_inside()) {
      work.next = std::exchange(youngest_, &work);
      return false;
    }
    if (try_enter()) return true;
  }
  return is_taken(word_.lock_or_queue(work));
}

[[gnu::noinline]] inline Work* LaneLock::try_unlock_slow() noexcept {
  Owner::Entry* const entry = owner_.own_entry();
  if (entry == nullptr || !entry->is_inside()) return word_.unlock_slow();
  if (youngest_ != nullptr) return reversed(std::exchange(youngest_, nullptr));
  entry->leave();
  return nullptr;
}

}  // namespace larklane::vci
