#pragma once
// A connection's table of the peer's regions that this process has mapped: a put there is a store,
// a get a load. (docs/design/protocols/messages.md, "Mapped regions")

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/copy_small.hpp"
#include "net/provider.hpp"

namespace larklane::msg {

// Thread safety: find() is thread-safe; add() runs with the lane's lock held.
// Invariants:
// 1. A key names one memory, once. So a reader that finds the same key before and after the other
//    words has read words of that key.
// 2. A mapping lives as long as the link that made it, which outlives the connection's last post.
class MappedRegions final {
 public:
  struct Found {
    bool is_known;     ///< the key is in the table
    std::byte* place;  ///< null: withdrawn, or outside of it
  };

  /// [memory.address, memory.address + bytes) here.
  Found find(net::RemoteMemory memory, std::uint64_t bytes) const noexcept {
    const Entry& entry = entries_[index_of(memory.key)];
    // acquire, all but the last: pair with add()'s releases, so that the last load is not earlier.
    if (entry.key.load(std::memory_order_acquire) != memory.key) [[unlikely]]
      return {false, nullptr};
    std::byte* const start = entry.start.load(std::memory_order_acquire);
    const std::uint64_t offset = memory.address - entry.address.load(std::memory_order_acquire);
    const std::uint64_t length = entry.bytes.load(std::memory_order_acquire);
    const auto* const registered = entry.registered.load(std::memory_order_acquire);
    const std::uint64_t generation = entry.generation.load(std::memory_order_acquire);
    // relaxed: see above
    if (entry.key.load(std::memory_order_relaxed) != memory.key) [[unlikely]]
      return {false, nullptr};
    // acquire: pairs with the owner's withdrawal, which may follow in the next moment.
    const bool is_good = offset <= length && bytes <= length - offset &&
                         registered->load(std::memory_order_acquire) == generation;
    return {true, is_good ? start + offset : nullptr};
  }
  /// Replaces another region's entry. @pre mapping.start is not null
  void add(std::uint64_t key, const net::Mapping& mapping) noexcept {
    Entry& entry = entries_[index_of(key)];
    // relaxed: each release below carries it.
    entry.key.store(kNoKey, std::memory_order_relaxed);
    // release, all: pair with find()'s acquires.
    entry.start.store(mapping.start, std::memory_order_release);
    entry.address.store(mapping.address, std::memory_order_release);
    entry.bytes.store(mapping.bytes, std::memory_order_release);
    entry.registered.store(mapping.registered, std::memory_order_release);
    entry.generation.store(mapping.generation, std::memory_order_release);
    entry.key.store(key, std::memory_order_release);
  }

 private:
  static constexpr std::size_t kEntries = 4;
  static constexpr std::uint64_t kNoKey = 0;  // of no provider with Link::map()
  /// Keys that follow each other differ in their low bits.
  static std::size_t index_of(std::uint64_t key) noexcept { return key % kEntries; }

  struct alignas(64) Entry {
    std::atomic<std::uint64_t> key{kNoKey};
    std::atomic<std::byte*> start{nullptr};
    std::atomic<std::uint64_t> address{0}, bytes{0};
    std::atomic<const std::atomic<std::uint64_t>*> registered{nullptr};
    std::atomic<std::uint64_t> generation{0};
  };
  std::array<Entry, kEntries> entries_;
};

namespace mapped {

inline bool is_word(const std::byte* place, std::uint64_t bytes) noexcept {
  return bytes == sizeof(std::uint64_t) &&
         reinterpret_cast<std::uintptr_t>(place) % sizeof(std::uint64_t) == 0;
}

/// Into mapped memory. A word travels as a whole, and after the caller's earlier stores.
inline void store(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept {
  if (!is_word(to, bytes)) return copy_small(to, from, bytes);
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  // release: pairs with load()'s acquire, and with the owner's own.
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to)).store(word, std::memory_order_release);
}

/// Out of mapped memory. A word travels as a whole, and before the caller's later loads.
inline void load(std::byte* to, std::byte* from, std::uint64_t bytes) noexcept {
  if (!is_word(from, bytes)) return copy_small(to, from, bytes);
  // acquire: pairs with store()'s release, and with the owner's own.
  const std::uint64_t word =
      std::atomic_ref(*reinterpret_cast<std::uint64_t*>(from)).load(std::memory_order_acquire);
  std::memcpy(to, &word, sizeof word);
}

}  // namespace mapped
}  // namespace larklane::msg
