#include "vci/owner.hpp"

#include <sched.h>

#include <new>
#include <utility>

namespace larklane::vci {
Owner::~Owner() {
  while (entries_ != nullptr) entries_ = std::move(entries_->next_);
}

bool Owner::set() noexcept {
  if (!can_fence_all()) return false;
  Entry* entry = entries_.get();
  while (entry != nullptr && entry->thread_ != this_thread_number()) entry = entry->next_.get();
  if (entry == nullptr) {
    std::unique_ptr<Entry> made(new (std::nothrow) Entry(this_thread_number()));
    if (made == nullptr) return false;
    made->next_ = std::move(entries_);
    entries_ = std::move(made);
    entry = entries_.get();
  }
  current_.store(entry, std::memory_order_release);
  return true;
}

[[gnu::cold]] void Owner::wait_until_out_slow() const noexcept {
  const Entry* const entry = current_.load(std::memory_order_relaxed);  // the word is held
  if (entry == own_entry()) return;
  fence_all();
  // acquire: pairs with leave()'s release.
  while (entry->is_inside_.load(std::memory_order_acquire)) ::sched_yield();
}

}  // namespace larklane::vci
