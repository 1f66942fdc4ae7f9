#include "msg/match/match.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <type_traits>

namespace larklane::msg {
namespace {

// A word: kind (1 bit), policy (2), rank (29), tag (32); 0 where the policy does not compare.
constexpr std::uint64_t kMessageBit = std::uint64_t{1} << 63;
constexpr int kPolicyShift = 61, kRankShift = 32;
constexpr std::uint32_t kRankMask = MatchingEngine::kRankCount - 1;

constexpr std::uint64_t word_of(MatchPolicy policy, std::uint32_t rank, std::uint32_t tag) {
  // The masks keep an invalid policy or rank from setting the message bit.
  const std::uint64_t bits = static_cast<std::uint64_t>(policy) & 3;
  const std::uint64_t compared_rank = (bits & 2) != 0 ? 0 : rank & kRankMask;
  const std::uint64_t compared_tag = (bits & 1) != 0 ? 0 : tag;
  return bits << kPolicyShift | compared_rank << kRankShift | compared_tag;
}
constexpr bool is_message(std::uint64_t word) { return (word & kMessageBit) != 0; }
constexpr std::size_t policy_of(std::uint64_t word) {
  return static_cast<std::size_t>(word >> kPolicyShift & 3);
}
constexpr bool is_same_key(std::uint64_t a, std::uint64_t b) {
  return ((a ^ b) & ~kMessageBit) == 0;
}
/// A receive that only messages of `rank` match.
constexpr bool is_receive_of(std::uint64_t word, std::uint32_t rank) {
  return !is_message(word) && (policy_of(word) & 2) == 0 &&
         (word >> kRankShift & kRankMask) == (rank & kRankMask);
}

/// The bucket is the upper bits of this sum of 64 bits. The factors are the golden ratio and the
/// root of two: they spread neighbouring tags and neighbouring ranks evenly. These have different
/// buckets as long as there are enough (Knuth, The Art of Computer Programming 3, section 6.4).
constexpr std::uint64_t hash_of(std::uint64_t word) {
  return (word & 0xffff'ffffu) * 0x9e37'79b9'7f4a'7c15u +
         ((word & ~kMessageBit) >> kRankShift) * 0x6a09'e667'f3bc'c909u;
}

MatchReceive& receive_of(MatchLink& link) { return static_cast<MatchReceive&>(link); }
MatchMessage& message_of(MatchLink& link) {
  static_assert(std::is_standard_layout_v<MatchMessage>);
  MatchLink* const first = &link - policy_of(link.word);
  return *reinterpret_cast<MatchMessage*>(reinterpret_cast<std::byte*>(first) -
                                          offsetof(MatchMessage, links));
}

}  // namespace

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
  /// The queue of a key, of receives or of messages.
  Found find(std::uint64_t word) noexcept {
    return find_if([word](std::uint64_t other) { return is_same_key(word, other); });
  }

  /// @param found  result of find(link.word)
  void push_back(Found found, MatchLink& link) noexcept {
    if (found.place == nullptr) return push_key(link);
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

 private:
  void push_key(MatchLink& link) noexcept {
    link.next = link.prev = &link;
    link.next_key = nullptr;
    for (Slot& slot : slots)
      if (slot.first == nullptr) {
        slot = {link.word, &link};
        return;
      }
    link.next_key = chain;
    chain = &link;
  }
};

MatchingEngine::MatchingEngine(Kind kind, std::uint32_t bucket_bits,
                               std::unique_ptr<Bucket[]> buckets) noexcept
    : kind_(kind), bucket_bits_(bucket_bits), buckets_(std::move(buckets)) {
  static_assert(sizeof(Bucket) == kLineBytes);
}
MatchingEngine::~MatchingEngine() = default;

Result<std::unique_ptr<MatchingEngine>> MatchingEngine::create(Options options) {
  if (!std::has_single_bit(options.bucket_count) || options.bucket_count > kBucketCountMax)
    return Errc::kInvalidArgument;
  std::unique_ptr<Bucket[]> buckets(new (std::nothrow) Bucket[options.bucket_count]);
  if (buckets == nullptr) return Errc::kNoMemory;
  std::unique_ptr<MatchingEngine> engine(new (std::nothrow) MatchingEngine(
      options.kind, static_cast<std::uint32_t>(std::countr_zero(options.bucket_count)),
      std::move(buckets)));
  if (engine == nullptr) return Errc::kNoMemory;
  return engine;
}

inline MatchingEngine::Bucket& MatchingEngine::bucket_of(std::uint64_t word) const noexcept {
  return buckets_[hash_of(word) >> 1 >> (63 - bucket_bits_)];  // two: with one bucket, 64 bits
}
inline SpinLock& MatchingEngine::lock_of(Bucket& bucket) noexcept {
  return kind_ == Kind::exact ? bucket.lock : lock_;
}

/// @param found  result of the bucket's find(word)
inline void MatchingEngine::push_locked(Bucket& bucket, Found found, MatchLink& link,
                                        std::uint64_t word) noexcept {
  link.word = word;
  bucket.push_back(found, link);
  if (found.place == nullptr) note_chain(found.keys + 1);
}

// relaxed: statistics
inline void MatchingEngine::note_chain(std::uint32_t keys) noexcept {
  std::uint32_t longest = longest_chain_.load(std::memory_order_relaxed);
  while (keys > longest &&
         !longest_chain_.compare_exchange_weak(longest, keys, std::memory_order_relaxed,
                                               std::memory_order_relaxed)) {
  }
}

/// @param place  the queue's, in `bucket`
inline void MatchingEngine::take_locked(Bucket& bucket, MatchLink** place,
                                        MatchReceive& receive) noexcept {
  bucket.remove(place, receive);
  --bucket.waiting;
  if (kind_ == Kind::ordered) --posted_[policy_of(receive.word)];
}

MatchMessage* MatchingEngine::insert_receive(MatchReceive& receive) noexcept {
  const std::uint64_t word = word_of(receive.policy, receive.rank, receive.tag);
  Bucket& bucket = bucket_of(word);
  const vci::BiasedGuard guard(bias_, lock_of(bucket));
  const Found found = bucket.find(word);
  if (found.place != nullptr && is_message((*found.place)->word)) {
    MatchMessage& message = message_of(**found.place);
    if (kind_ == Kind::exact) {
      bucket.remove(found.place, **found.place);
      --bucket.waiting;
    } else {
      take_ordered(message);
    }
    return &message;
  }
  push_locked(bucket, found, receive, word);
  ++bucket.posted;
  ++bucket.waiting;
  if (kind_ == Kind::ordered) {
    receive.sequence = sequence_++;
    ++posted_[policy_of(word)];
  }
  return nullptr;
}

MatchReceive* MatchingEngine::match(const MatchKey& key, MatchMessage* waits) noexcept {
  if (kind_ == Kind::ordered) return match_ordered(key, waits);
  const std::uint64_t word = word_of(key.policy, key.rank, key.tag);
  Bucket& bucket = bucket_of(word);
  const vci::BiasedGuard guard(bias_, bucket.lock);
  const Found found = bucket.find(word);
  if (found.place != nullptr && !is_message((*found.place)->word)) {
    MatchReceive& receive = receive_of(**found.place);
    take_locked(bucket, found.place, receive);
    return &receive;
  }
  if (waits == nullptr) return nullptr;
  push_locked(bucket, found, waits->links[policy_of(word)], word | kMessageBit);
  ++bucket.unexpected;
  ++bucket.waiting;
  return nullptr;
}

MatchReceive* MatchingEngine::match_ordered(const MatchKey& key, MatchMessage* waits) noexcept {
  std::array<std::uint64_t, kMatchPolicyCount> words;
  for (std::size_t policy = 0; policy < kMatchPolicyCount; ++policy)
    words[policy] = word_of(static_cast<MatchPolicy>(policy), key.rank, key.tag);
  const vci::BiasedGuard guard(bias_, lock_);
  MatchLink** first = nullptr;  // the queue with the receive that was posted first
  for (std::size_t policy = 0; policy < kMatchPolicyCount; ++policy) {
    if (posted_[policy] == 0) continue;
    MatchLink** const place = bucket_of(words[policy]).find(words[policy]).place;
    if (place != nullptr && !is_message((*place)->word) &&
        (first == nullptr || receive_of(**place).sequence < receive_of(**first).sequence))
      first = place;
  }
  if (first != nullptr) {
    MatchReceive& receive = receive_of(**first);
    take_locked(bucket_of(receive.word), first, receive);
    return &receive;
  }
  if (waits == nullptr) return nullptr;
  for (std::size_t policy = 0; policy < kMatchPolicyCount; ++policy) {
    Bucket& bucket = bucket_of(words[policy]);
    push_locked(bucket, bucket.find(words[policy]), waits->links[policy],
                words[policy] | kMessageBit);
  }
  Bucket& own = bucket_of(words[0]);
  ++own.unexpected;
  ++own.waiting;
  return nullptr;
}

void MatchingEngine::take_ordered(MatchMessage& message) noexcept {
  for (MatchLink& link : message.links) {
    Bucket& bucket = bucket_of(link.word);
    bucket.remove(bucket.find(link.word).place, link);
  }
  --bucket_of(message.links[0].word).waiting;
}

bool MatchingEngine::cancel(MatchReceive& receive) noexcept {
  const std::uint64_t word = word_of(receive.policy, receive.rank, receive.tag);
  Bucket& bucket = bucket_of(word);
  {
    const vci::BiasedGuard guard(bias_, lock_of(bucket));
    if (receive.next == nullptr) return false;
    take_locked(bucket, bucket.find(word).place, receive);
  }
  cancelled_.fetch_add(1, std::memory_order_relaxed);  // relaxed: statistics
  return true;
}

/// @param is  predicate on a queue's word
template <class Is>
MatchReceive* MatchingEngine::take_receive_if(Sweep& sweep, Is is) noexcept {
  for (; sweep.bucket >> bucket_bits_ == 0; ++sweep.bucket) {
    Bucket& bucket = buckets_[sweep.bucket];
    const vci::BiasedGuard guard(bias_, lock_of(bucket));
    const Found found = bucket.find_if(is);
    if (found.place == nullptr) continue;
    MatchReceive& receive = receive_of(**found.place);
    take_locked(bucket, found.place, receive);
    orphaned_.fetch_add(1, std::memory_order_relaxed);  // relaxed: statistics
    return &receive;
  }
  return nullptr;
}

MatchReceive* MatchingEngine::take_receive_of(std::uint32_t rank, Sweep& sweep) noexcept {
  return take_receive_if(sweep, [rank](std::uint64_t word) { return is_receive_of(word, rank); });
}

MatchReceive* MatchingEngine::take_receive(Sweep& sweep) noexcept {
  return take_receive_if(sweep, [](std::uint64_t word) { return !is_message(word); });
}

MatchMessage* MatchingEngine::take_message(Sweep& sweep) noexcept {
  for (; sweep.bucket >> bucket_bits_ == 0; ++sweep.bucket) {
    Bucket& bucket = buckets_[sweep.bucket];
    const vci::BiasedGuard guard(bias_, lock_of(bucket));
    const Found found = bucket.find_if(is_message);
    if (found.place == nullptr) continue;
    MatchMessage& message = message_of(**found.place);
    if (kind_ == Kind::ordered) {
      take_ordered(message);
    } else {
      bucket.remove(found.place, **found.place);
      --bucket.waiting;
    }
    return &message;
  }
  return nullptr;
}

MatchCounts MatchingEngine::counts() noexcept {
  MatchCounts counts{};
  // relaxed: statistics. Read before the buckets, so that `matched` is never negative.
  counts.cancelled = cancelled_.load(std::memory_order_relaxed);
  counts.orphaned = orphaned_.load(std::memory_order_relaxed);
  counts.longest_chain = longest_chain_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i >> bucket_bits_ == 0; ++i) {
    Bucket& bucket = buckets_[i];
    const vci::BiasedGuard guard(bias_, lock_of(bucket));
    counts.posted += bucket.posted;
    counts.unexpected += bucket.unexpected;
    counts.waiting += bucket.waiting;
  }
  counts.matched =
      counts.posted + counts.unexpected - counts.waiting - counts.cancelled - counts.orphaned;
  return counts;
}

}  // namespace larklane::msg
