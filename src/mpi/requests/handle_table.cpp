#include "mpi/requests/handle_table.hpp"

#include <algorithm>
#include <bit>

namespace larklane::mpi {

void HandleTable::put(Slot& slot, std::uint64_t handle, void* value) noexcept {
  // relaxed: the key's release covers it
  slot.value.store(value, std::memory_order_relaxed);
  slot.key.store(handle,
                 std::memory_order_release);  // release: pairs with find() acquire of the key
}

void HandleTable::place_locked(const Table& table, std::uint64_t handle, void* value) noexcept {
  std::size_t i = home(handle, table.shift);
  while (is_taken(table, i)) i = (i + 1) & table.mask;
  // relaxed: only writers change keys, and they hold the mutex
  if (table.slots[i].key.load(std::memory_order_relaxed) == kEmpty) ++used_;
  put(table.slots[i], handle, value);
}

void HandleTable::grow_locked() {
  const Table& old =
      *current_.load(std::memory_order_relaxed);  // relaxed: the mutex orders writers
  const std::size_t count = std::max(kSlotsMin, (old.mask + 1) * 2);
  slots_.push_back(std::make_unique<Slot[]>(count));
  tables_.push_back(std::make_unique<Table>(
      Table{slots_.back().get(), count - 1, 64u - static_cast<unsigned>(std::countr_zero(count))}));
  used_ = 0;
  for (std::size_t i = 0; i <= old.mask; ++i) {
    const Slot& slot = old.slots[i];
    if (is_taken(old, i))
      place_locked(*tables_.back(), slot.key.load(std::memory_order_relaxed),
                   slot.value.load(std::memory_order_relaxed));  // relaxed: as above
  }
  current_.store(tables_.back().get(),
                 std::memory_order_release);  // release: pairs with find() acquire
}

void HandleTable::insert(std::uint64_t handle, void* value) {
  const std::scoped_lock lock(mutex_);
  // relaxed: the mutex orders writers; see contains_any()
  const bool is_first = lowest_.load(std::memory_order_relaxed) == ~std::uint64_t{0};
  if (is_first || handle > highest_.load(std::memory_order_relaxed))
    highest_.store(handle, std::memory_order_relaxed);
  lowest_.store(std::min(handle, lowest_.load(std::memory_order_relaxed)),
                std::memory_order_relaxed);
  if ((used_ + 1) * 4 > current_.load(std::memory_order_relaxed)->mask + 1) grow_locked();
  place_locked(*current_.load(std::memory_order_relaxed), handle, value);
  ++size_;
}

void HandleTable::remove(std::uint64_t handle) noexcept {
  const std::scoped_lock lock(mutex_);
  const Table& table =
      *current_.load(std::memory_order_relaxed);  // relaxed: the mutex orders writers
  std::size_t i = home(handle, table.shift);
  for (;; i = (i + 1) & table.mask) {
    const std::uint64_t key =
        table.slots[i].key.load(std::memory_order_relaxed);  // relaxed: as above
    if (key == kEmpty) return;
    if (key == handle) break;
  }
  --size_;
  table.slots[i].key.store(removed_key(table, i),
                           std::memory_order_relaxed);  // relaxed: the next put() releases it
  // A removed slot before an empty one becomes empty: no probe finds a handle behind it. A removed
  // slot before a taken one remains, and counts as used.
  while (table.slots[i].key.load(std::memory_order_relaxed) == removed_key(table, i) &&
         table.slots[(i + 1) & table.mask].key.load(std::memory_order_relaxed) == kEmpty) {
    table.slots[i].key.store(kEmpty, std::memory_order_relaxed);
    --used_;
    i = (i + table.mask) & table.mask;
  }
}

std::size_t HandleTable::size() const noexcept {
  const std::scoped_lock lock(mutex_);
  return size_;
}

std::vector<void*> HandleTable::values() const {
  const std::scoped_lock lock(mutex_);
  const Table& table =
      *current_.load(std::memory_order_relaxed);  // relaxed: the mutex orders writers
  std::vector<void*> found;
  for (std::size_t i = 0; i <= table.mask; ++i) {
    if (is_taken(table, i))
      found.push_back(table.slots[i].value.load(std::memory_order_relaxed));  // relaxed: as above
  }
  return found;
}

}  // namespace larklane::mpi
