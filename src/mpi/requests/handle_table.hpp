#pragma once
// A hash table from the bits of an MPI handle to our object for it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace larklane::mpi {

/// Open addressing; readers take no lock and write nothing.
///
/// Thread safety: thread-safe. While one thread inserts or removes a handle, no other thread may
/// `find` it (MPI 11.6 forbids using a handle while it is made or freed). `find` of any other
/// handle is exact at any time. Invariants:
/// 1. A writer stores a slot's value before its key, and withdraws the key before it stores the
///    next value: a reader of a remaining handle's key reads that handle's value.
/// 2. At least three quarters of the slots are empty (neither taken nor removed), so every probe
///    ends. Tables only double: an MPI reuses its handles, so a table with room for all of them is
///    never replaced.
/// 3. A replaced table is kept until the end: a reader may still probe it, and finds there all
///    handles that it may use.
/// 4. The key of a removed slot has its home in the next slot. No probe of that key, or of any
/// other
///    key with that home, comes as far as the removed slot (2). So `find` of any bits, also of bits
///    that are no handle, meets no removed slot that has its key.
class HandleTable {
 public:
  constexpr HandleTable() noexcept : current_(&empty_) {}
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  /// The object of `handle`, or null. Never blocks.
  void* find(std::uint64_t handle) const noexcept {
    const Table& table =
        *current_.load(std::memory_order_acquire);  // acquire: pairs with grow_locked() release
    for (std::size_t i = home(handle, table.shift);; i = (i + 1) & table.mask) {
      const Slot& slot = table.slots[i];
      const std::uint64_t key =
          slot.key.load(std::memory_order_acquire);  // acquire: pairs with put() release
      if (key == kEmpty) return nullptr;
      if (key != handle) continue;
      // relaxed: the key's acquire makes the value visible (invariant 1), and it changes only when
      // the handle is removed
      void* const value = slot.value.load(std::memory_order_relaxed);
      if (value == nullptr) __builtin_unreachable();
      return value;
    }
  }

  /// True if one of handle_at(0) to handle_at(count - 1) is in the table. Never blocks.
  template <class HandleAt>
  bool contains_any(int count, HandleAt&& handle_at) const noexcept {
    // relaxed: the bounds only widen. The insertion of a handle widens them first, and precedes its
    // use by the program.
    const std::uint64_t lowest = lowest_.load(std::memory_order_relaxed);
    const std::uint64_t width = highest_.load(std::memory_order_relaxed) - lowest;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t handle = handle_at(i);
      if (handle - lowest <= width && find(handle) != nullptr) return true;
    }
    return false;
  }

  /// @param handle  not in the table; not 0
  /// @param value   not null
  void insert(std::uint64_t handle, void* value);
  /// Does nothing if `handle` is not in the table.
  void remove(std::uint64_t handle) noexcept;
  std::size_t size() const noexcept;
  /// Every value, in no order.
  std::vector<void*> values() const;

 private:
  static constexpr std::uint64_t kEmpty = 0;
  static constexpr std::size_t kSlotsMin = 64;

  struct Slot {
    std::atomic<std::uint64_t> key{kEmpty};
    std::atomic<void*> value{nullptr};
  };
  struct Table {
    Slot* slots;
    std::size_t mask;
    unsigned shift;
  };

  static constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15u, kInverse = 0xF1DE83E19937733Du;
  static_assert(kFactor * kInverse == 1);

  static std::size_t home(std::uint64_t handle, unsigned shift) noexcept {
    return static_cast<std::size_t>((handle * kFactor) >> shift);
  }
  /// The key of slot `i` after its handle is removed; never kEmpty.
  static std::uint64_t removed_key(const Table& table, std::size_t i) noexcept {
    const std::uint64_t next = (i + 1) & table.mask;
    return (next << table.shift | 1) * kInverse;
  }
  static bool is_taken(const Table& table, std::size_t i) noexcept {
    // relaxed: for writers, which hold the mutex
    const std::uint64_t key = table.slots[i].key.load(std::memory_order_relaxed);
    return key != kEmpty && key != removed_key(table, i);
  }
  static void put(Slot& slot, std::uint64_t handle, void* value) noexcept;
  void place_locked(const Table& table, std::uint64_t handle, void* value) noexcept;
  void grow_locked();

  Slot nothing_[2];
  Table empty_{nothing_, 1, 63};
  std::atomic<const Table*> current_;
  // The bounds of all handles ever inserted.
  std::atomic<std::uint64_t> lowest_{~std::uint64_t{0}}, highest_{~std::uint64_t{0}};
  mutable std::mutex mutex_;  // writers
  std::size_t size_ = 0;
  std::size_t used_ = 0;  // slots of the current table that are taken or removed
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<std::unique_ptr<Slot[]>> slots_;
};

/// A table that is never destroyed: MPI calls may come from exit handlers.
union LastingHandleTable {
  constexpr LastingHandleTable() noexcept : table() {}
  ~LastingHandleTable() {}
  HandleTable table;
};

}  // namespace larklane::mpi
