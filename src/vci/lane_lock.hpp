#pragma once
// A lane's lock: a word that whoever uses the lane takes and gives back; or, if one thread has the
// lane for itself, that thread's entry, and the word for others who ask. (docs/adr/0014, 0021)

#include <sched.h>

#include <utility>

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
    if (owner_.is_there()) [[unlikely]]
      return try_lock_as_owner();
    return try_lock_word();
  }

  /// For what happens seldom: whoever holds the lock gives it back soon.
  void lock() noexcept LARKLANE_ACQUIRE() LARKLANE_NOT_FOLLOWED {
    while (!(owner_.is_caller() ? try_lock_as_owner() : try_lock_word())) ::sched_yield();
  }
  /// The same, not by entering, even if the caller is the owner.
  void lock_word() noexcept LARKLANE_ACQUIRE() LARKLANE_NOT_FOLLOWED {
    while (!try_lock_word()) ::sched_yield();
  }

  /// True: the caller holds the lock. False: the holder will find `work`, which may be complete and
  /// gone already.
  bool lock_or_queue(Work& work) noexcept LARKLANE_TRY_ACQUIRE(true) LARKLANE_NOT_FOLLOWED {
    if (Owner::Entry* const entry = owner_.own_entry()) [[unlikely]] {
      if (entry->is_inside()) {
        work.next = std::exchange(youngest_, &work);
        return false;
      }
      if (try_enter(*entry)) return true;
    }
    if (!word_.lock_or_queue(work)) return false;
    owner_.wait_until_out();
    return true;
  }

  /// Null: the lock has been given back. Otherwise it is still held, and the caller has what had
  /// queued, the oldest first.
  Work* try_unlock() noexcept LARKLANE_NOT_FOLLOWED {
    Owner::Entry* const entry = owner_.own_entry();
    if (entry == nullptr || !entry->is_inside()) [[likely]]
      return word_.try_unlock();
    if (youngest_ != nullptr) return LaneWord::oldest_first(std::exchange(youngest_, nullptr));
    entry->leave();
    return nullptr;
  }

  /// From now on the calling thread is the owner. @pre it holds the lock, which has none. False:
  /// the kernel can't make it.
  bool own() noexcept { return owner_.set(); }
  /// @pre lock_word()
  void disown() noexcept { owner_.clear(); }
  bool is_anothers() const noexcept { return owner_.is_other(); }

  /// For the compiler, where the lock is held by a way that it can't follow.
  void assert_held() const noexcept LARKLANE_ASSERT_HELD(this) {}

 private:
  bool try_lock_word() noexcept {
    if (!word_.try_lock()) return false;
    owner_.wait_until_out();  // there may be one since this thread has looked
    return true;
  }
  bool try_lock_as_owner() noexcept;
  bool try_enter(Owner::Entry& entry) noexcept;

  LaneWord word_;
  Owner owner_;
  Work* youngest_ = nullptr;  // of those that the owner has posted since it has entered
};

inline bool LaneLock::try_lock_as_owner() noexcept {
  Owner::Entry* const entry = owner_.own_entry();
  return entry != nullptr && !entry->is_inside() && try_enter(*entry);
}

inline bool LaneLock::try_enter(Owner::Entry& entry) noexcept {
  entry.enter();
  if (word_.is_free() && owner_.is_current(entry)) [[likely]]
    return true;
  entry.leave();
  return false;
}

}  // namespace larklane::vci
