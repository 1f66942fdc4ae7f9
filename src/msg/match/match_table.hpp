#pragma once
// The hash table of a matching engine: keys as words, buckets, and their locks.
// Thread safety: as MatchingEngine says.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "msg/match/match.hpp"

namespace larklane::msg {

// A word: kind (1 bit), policy (2), rank (29), tag (32); 0 where the policy does not compare.
inline constexpr std::uint64_t kMessageBit = std::uint64_t{1} << 63;
inline constexpr int kPolicyShift = 61, kRankShift = 32;
inline constexpr std::uint32_t kRankMask = MatchingEngine::kRankCount - 1;

inline constexpr std::uint64_t word_of(MatchPolicy policy, std::uint32_t rank, std::uint32_t tag) {
  // The masks keep an invalid policy or rank from setting the message bit.
  const std::uint64_t bits = static_cast<std::uint64_t>(policy) & 3;
  const std::uint64_t compared_rank = (bits & 2) != 0 ? 0 : rank & kRankMask;
  const std::uint64_t compared_tag = (bits & 1) != 0 ? 0 : tag;
  return bits << kPolicyShift | compared_rank << kRankShift | compared_tag;
}
inline constexpr bool is_message(std::uint64_t word) { return (word & kMessageBit) != 0; }
inline constexpr std::size_t policy_of(std::uint64_t word) {
  return static_cast<std::size_t>(word >> kPolicyShift & 3);
}
inline constexpr bool is_same_key(std::uint64_t a, std::uint64_t b) {
  return ((a ^ b) & ~kMessageBit) == 0;
}
/// A receive that only messages of `rank` match.
inline constexpr bool is_receive_of(std::uint64_t word, std::uint32_t rank) {
  return !is_message(word) && (policy_of(word) & 2) == 0 &&
         (word >> kRankShift & kRankMask) == (rank & kRankMask);
}

/// The bucket is the upper bits of this sum of 64 bits. The factors are the golden ratio and the
/// root of two: they spread neighbouring tags and neighbouring ranks evenly. These have different
/// buckets as long as there are enough (Knuth, The Art of Computer Programming 3, section 6.4).
inline constexpr std::uint64_t hash_of(std::uint64_t word) {
  return (word & 0xffff'ffffu) * 0x9e37'79b9'7f4a'7c15u +
         ((word & ~kMessageBit) >> kRankShift) * 0x6a09'e667'f3bc'c909u;
}

inline MatchReceive& receive_of(MatchLink& link) { return static_cast<MatchReceive&>(link); }
inline MatchMessage& message_of(MatchLink& link) {
  static_assert(std::is_standard_layout_v<MatchMessage>);
  MatchLink* const first = &link - policy_of(link.word);
  return *reinterpret_cast<MatchMessage*>(reinterpret_cast<std::byte*>(first) -
                                          offsetof(MatchMessage, links));
}

// One line of the hash table: the queues of the keys that hash to it.
// Thread safety: the caller holds lock_of() this bucket.
// Invariants:
// 1. Each key with a waiting receive or message has one queue, a ring. `first` of a slot leads to
//    the ring; if no slot was free, the chain does. In the first link of a slot's ring, next_key is
//    null.
// 2. `waiting` is the number of entries that `posted` and `unexpected` have counted and that are
//    still in a queue.
struct alignas(MatchingEngine::kLineBytes) MatchingEngine::Bucket {
  struct Slot {
    std::uint64_t word = 0;
    MatchLink* first = nullptr;
  };

  SpinLock lock;  // if exact
  std::uint32_t waiting = 0;
  std::uint64_t posted = 0, unexpected = 0;
  std::array<Slot, 2> slots{};
  MatchLink* chain = nullptr;

  /// The queue of the first key that is(word).
  template <class Is>
  Found find_if(Is&& is) noexcept {
    std::uint32_t keys = 0;
    for (Slot& slot : slots)
      if (slot.first != nullptr) {
        if (is(slot.word)) return {&slot.first, keys};
        ++keys;
      }
    for (MatchLink** at = &chain; *at != nullptr; at = &(*at)->next_key, ++keys)
      if (is((*at)->word)) return {at, keys};
    return {nullptr, keys};
  }
  /// @param first  of a queue; no queue here has its key
  void put_queue(MatchLink& first) noexcept {
    for (Slot& slot : slots)
      if (slot.first == nullptr) {
        slot = {first.word, &first};
        return;
      }
    first.next_key = std::exchange(chain, &first);
  }

  /// The queue of a key, of receives or of messages.
  Found find(std::uint64_t word) noexcept {
    return find_if([word](std::uint64_t other) { return is_same_key(word, other); });
  }

  /// @param found  result of find(link.word)
  void push_back(Found found, MatchLink& link) noexcept {
    if (found.place == nullptr) {
      link.next = link.prev = &link;
      link.next_key = nullptr;
      return put_queue(link);
    }
    MatchLink& first = **found.place;
    link.next = &first;
    link.prev = first.prev;
    first.prev->next = &link;
    first.prev = &link;
  }

  /// @param place  result of find(link.word): `link` is in that queue
  void remove(MatchLink** place, MatchLink& link) noexcept {
    if (place == nullptr) __builtin_unreachable();
    if (link.next == &link) {
      *place = link.next_key;
    } else {
      if (*place == &link) {
        link.next->next_key = link.next_key;
        *place = link.next;
      }
      link.prev->next = link.next;
      link.next->prev = link.prev;
    }
    link.next = nullptr;
  }
};

inline MatchingEngine::Bucket& MatchingEngine::bucket_of(Table table, std::uint64_t word) noexcept {
  // Two shifts: with one bucket, 64 bits
  return buckets_of(table)[hash_of(word) >> 1 >> (table & kShiftMask)];
}

/// A thread that owns the bias must not wait for a lock: its holder may wait for the bias.
template <class Change>
void MatchingEngine::with_all_locks(Change&& change) noexcept LARKLANE_NOT_FOLLOWED {
  if (bias_.enter()) {
    change();
    return bias_.leave();
  }
  lock_.lock();
  bias_.end();  // before the buckets are read: the owner may replace them without a lock
  const std::span buckets(buckets_.get(), bucket_count_of(table_.load(std::memory_order_relaxed)));
  for (Bucket& bucket : buckets) bucket.lock.lock();
  change();
  for (Bucket& bucket : buckets) bucket.lock.unlock();
  lock_.unlock();
}

}  // namespace larklane::msg
