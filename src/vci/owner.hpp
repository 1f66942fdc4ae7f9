#pragma once
// Ownership by one thread, which leaves when others ask: to enter, the owner needs no
// read-modify-write and no fence. A thread that asks makes up for both by a system call that runs a
// fence on every thread of the process. (docs/design/adr/0021)

#include <atomic>
#include <cstdint>
#include <memory>

#include "vci/membarrier.hpp"

namespace larklane::vci {

// Thread safety: thread-safe. The word below belongs to the object that holds this one: an atomic
// by which one thread at a time excludes all others but the owner.
// Invariants:
// 1. A thread that has entered, then has seen the word free, then is_current(), is inside alone. A
//    thread that has seen anything else leaves.
// 2. When wait_until_out() returns, the owner has seen the caller's word, or will see it before it
//    is inside again.
// 3. `current_` changes while the word is held, and the owner is out. An entry belongs to one
//    thread, for good: a thread that enters one that is no longer current excludes no other.
class Owner {
 public:
  Owner() noexcept = default;
  ~Owner();
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  // acquire, here and below: of an entry; pairs with set()'s release.
  bool is_there() const noexcept { return current_.load(std::memory_order_acquire) != nullptr; }
  bool is_caller() const noexcept { return own_entry() != nullptr; }
  bool is_other() const noexcept { return is_there() && !is_caller(); }

  class Entry;
  /// The caller's. Null: it is not the owner.
  Entry* own_entry() const noexcept {
    Entry* const entry = current_.load(std::memory_order_acquire);
    return entry != nullptr && entry->thread_ == this_thread_number() ? entry : nullptr;
  }
  /// After a look at the word that has acquired it.
  bool is_current(const Entry& entry) const noexcept {
    return current_.load(std::memory_order_relaxed) == &entry;  // relaxed: the word orders it
  }

  /// One thread's.
  class alignas(64) Entry {
   public:
    /// Then looks at the word.
    void enter() noexcept {
      is_inside_.store(true, std::memory_order_relaxed);
      leave_fence_to_others();  // wait_until_out()'s
    }
    /// release: of the owner's writes; pairs with wait_until_out()'s acquire.
    void leave() noexcept { is_inside_.store(false, std::memory_order_release); }
    /// By its thread.
    bool is_inside() const noexcept { return is_inside_.load(std::memory_order_relaxed); }

   private:
    friend class Owner;
    explicit Entry(std::uintptr_t thread) noexcept : thread_(thread) {}

    const std::uintptr_t thread_;
    std::atomic<bool> is_inside_{false};
    std::unique_ptr<Entry> next_;
  };

  /// @pre the caller holds the word
  void wait_until_out() const noexcept {
    if (is_there()) [[unlikely]]
      wait_until_out_slow();
  }

  /// The caller is. @pre it holds the word, and there is none. False: this kernel has no such call,
  /// or forbids it; or there is no memory.
  bool set() noexcept;
  /// @pre the caller holds the word, and the owner is out
  void clear() noexcept { current_.store(nullptr, std::memory_order_release); }

 private:
  void wait_until_out_slow() const noexcept;

  std::atomic<Entry*> current_{nullptr};
  std::unique_ptr<Entry> entries_;  // of all threads that have been owners; with the word held
};

}  // namespace larklane::vci
