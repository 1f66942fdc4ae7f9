#include "msg/match/match.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

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
  std::uint32_t key_count() const noexcept {
    std::uint32_t keys = 0;
    for (const Slot& slot : slots) keys += slot.first != nullptr;
    for (const MatchLink* at = chain; at != nullptr; at = at->next_key) ++keys;
    return keys;
  }
  /// Takes out the queue of any key; null: none is left.
  MatchLink* take_queue() noexcept {
    MatchLink** const place = find_if([](std::uint64_t) { return true; }).place;
    if (place == nullptr) return nullptr;
    MatchLink* const first = *place;
    *place = std::exchange(first->next_key, nullptr);
    return first;
  }
  /// @param first  of a queue; no queue here has its key
  void put_queue(MatchLink& first) noexcept {
    for (Slot& slot : slots)
      if (slot.first == nullptr) {
        slot = {first.word, &first};
        return;
      }
    first.next_key = chain;
    chain = &first;
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
    put_queue(link);
  }
};

// --- tables ------------------------------------------------------------------------------------

void MatchingEngine::BucketsDeleter::operator()(Bucket* buckets) const noexcept {
  delete[] buckets;
}

MatchingEngine::Buckets MatchingEngine::make_buckets(std::uint32_t count) noexcept {
  return Buckets(new (std::nothrow) Bucket[count]);
}

MatchingEngine::Table MatchingEngine::table_of(Bucket* buckets,
                                               std::uint32_t bucket_bits) noexcept {
  return reinterpret_cast<Table>(buckets) | (63 - bucket_bits);
}

inline MatchingEngine::Bucket& MatchingEngine::bucket_of(Table table, std::uint64_t word) noexcept {
  // Two shifts: with one bucket, 64 bits
  return buckets_of(table)[hash_of(word) >> 1 >> (table & kShiftMask)];
}

MatchingEngine::MatchingEngine(Kind kind, std::uint32_t bucket_bits, Buckets buckets) noexcept
    : kind_(kind),
      is_ordered_(kind == Kind::ordered),
      crowded_chain_(kCrowdedChain),
      table_(table_of(buckets.get(), bucket_bits)),
      buckets_(std::move(buckets)) {
  static_assert(sizeof(Bucket) == kLineBytes);
}
MatchingEngine::~MatchingEngine() = default;

Result<std::unique_ptr<MatchingEngine>> MatchingEngine::create(Options options) {
  if (!std::has_single_bit(options.bucket_count) || options.bucket_count > kBucketCountMax)
    return Errc::kInvalidArgument;
  Buckets buckets = make_buckets(options.bucket_count);
  if (buckets == nullptr) return Errc::kNoMemory;
  std::unique_ptr<MatchingEngine> engine(new (std::nothrow) MatchingEngine(
      options.kind, static_cast<std::uint32_t>(std::countr_zero(options.bucket_count)),
      std::move(buckets)));
  if (engine == nullptr) return Errc::kNoMemory;
  return engine;
}

template <class Exact, class Ordered>
[[gnu::always_inline]] inline auto MatchingEngine::with_lock_of(std::uint64_t word, Exact&& exact,
                                                                Ordered&& ordered) noexcept {
  if (kind_ == Kind::exact) {
    Bucket& bucket = bucket_of(word);
    const vci::BiasedGuard guard(bias_, bucket.lock);
    return exact(bucket);
  }
  return with_mode_of(word, exact, ordered);
}

/// The same, of an engine that is not `exact`.
template <class Exact, class Ordered>
[[gnu::always_inline]] inline auto MatchingEngine::with_mode_of(std::uint64_t word, Exact&& exact,
                                                                Ordered&& ordered) noexcept {
  while (!is_ordered()) {
    const Table table = this->table();
    Bucket& bucket = bucket_of(table, word);
    const vci::BiasedGuard guard(bias_, bucket.lock);
    if (is_current(table)) [[likely]]
      return exact(bucket);
  }
  const vci::BiasedGuard guard(bias_, lock_);
  return ordered();
}

/// A thread that owns the bias must not wait for a lock: its holder may wait for the bias.
template <class Change>
void MatchingEngine::with_all_locks(Change&& change) noexcept LARKLANE_NOT_FOLLOWED {
  if (bias_.enter()) {
    change();
    return bias_.leave();
  }
  lock_.lock();
  const std::span buckets(buckets_.get(), bucket_count_of(table_.load(std::memory_order_relaxed)));
  for (Bucket& bucket : buckets) bucket.lock.lock();
  bias_.end();
  change();
  for (Bucket& bucket : buckets) bucket.lock.unlock();
  lock_.unlock();
}

// --- the change to ordered, and growth ----------------------------------------------------------

namespace {

/// The first `count` links of a list, sorted by arrival. Needs no memory.
MatchLink* sorted_by_arrival(MatchLink* list, std::size_t count) noexcept {
  if (count == 0) return nullptr;
  if (count == 1) {
    list->next = nullptr;
    return list;
  }
  MatchLink* middle = list;
  for (std::size_t i = 0; i < count / 2; ++i) middle = middle->next;
  MatchLink* first = sorted_by_arrival(list, count / 2);
  MatchLink* second = sorted_by_arrival(middle, count - count / 2);
  MatchLink* merged = nullptr;
  for (MatchLink** end = &merged; first != nullptr || second != nullptr; end = &(*end)->next) {
    const bool takes_second =
        first == nullptr ||
        (second != nullptr && message_of(*second).arrival < message_of(*first).arrival);
    MatchLink*& from = takes_second ? second : first;
    *end = std::exchange(from, from->next);
  }
  return merged;
}

}  // namespace

void MatchingEngine::become_ordered_slow() noexcept {
  with_all_locks([this] {
    // relaxed: written with all locks held
    if (!is_ordered_.load(std::memory_order_relaxed)) become_ordered_locked();
  });
}

void MatchingEngine::become_ordered_locked() noexcept {
  MatchLink *receives = nullptr, *messages = nullptr;
  MatchLink** receives_end = &receives;
  std::size_t message_count = 0;
  const Table table = table_.load(std::memory_order_relaxed);
  for (Bucket& bucket : std::span(buckets_.get(), bucket_count_of(table)))
    while (MatchLink* const first = bucket.take_queue()) {
      MatchLink* link = first;
      do {
        MatchLink* const next = link->next;
        if (is_message(link->word)) {
          link->next = messages;
          messages = link;
          ++message_count;
        } else {
          *receives_end = link;
          receives_end = &link->next;
        }
        link = next;
      } while (link != first);
    }
  *receives_end = nullptr;
  while (receives != nullptr) {
    MatchReceive& receive = receive_of(*std::exchange(receives, receives->next));
    Bucket& bucket = bucket_of(receive.word);
    push_locked(bucket, bucket.find(receive.word), receive, receive.word);
    receive.sequence = sequence_++;
    ++posted_[policy_of(receive.word)];
  }
  messages = sorted_by_arrival(messages, message_count);
  while (messages != nullptr) wait_ordered(message_of(*std::exchange(messages, messages->next)));
  is_ordered_.store(true, std::memory_order_release);  // pairs with is_ordered()
}

void MatchingEngine::grow_slow() noexcept {
  with_all_locks([this] {
    is_crowded_.store(false, std::memory_order_relaxed);  // a hint
    const Table table = table_.load(std::memory_order_relaxed);
    const std::uint32_t count = bucket_count_of(table);
    const std::span old(buckets_.get(), count);
    std::uint64_t keys = 0;
    for (const Bucket& bucket : old) keys += bucket.key_count();
    const std::uint32_t more = count * kGrowth;
    Buckets made = keys > count && more <= kBucketCountMax ? make_buckets(more) : nullptr;
    std::unique_ptr<Outgrown> outgrown(made == nullptr ? nullptr : new (std::nothrow) Outgrown);
    if (outgrown == nullptr) {  // the next attempt is later
      crowded_chain_.store(2 * crowded_chain_.load(std::memory_order_relaxed),
                           std::memory_order_relaxed);
      return;
    }
    const Table grown = table_of(made.get(), static_cast<std::uint32_t>(std::countr_zero(more)));
    for (std::uint32_t i = 0; i < count; ++i) {
      Bucket& counts = made[std::size_t{i} * kGrowth];
      counts.waiting = old[i].waiting;
      counts.posted = old[i].posted;
      counts.unexpected = old[i].unexpected;
      while (MatchLink* const first = old[i].take_queue())
        bucket_of(grown, first->word).put_queue(*first);
    }
    outgrown->buckets = std::exchange(buckets_, std::move(made));
    outgrown->older = std::exchange(outgrown_, nullptr);
    outgrown_ = std::move(outgrown);
    crowded_chain_.store(kCrowdedChain, std::memory_order_relaxed);
    table_.store(grown, std::memory_order_release);  // pairs with table()
  });
}

// --- inserts ------------------------------------------------------------------------------------

/// @param found  result of the bucket's find(word)
inline void MatchingEngine::push_locked(Bucket& bucket, Found found, MatchLink& link,
                                        std::uint64_t word) noexcept {
  link.word = word;
  bucket.push_back(found, link);
  if (found.place == nullptr) note_chain(found.keys + 1);
}

inline void MatchingEngine::note_chain(std::uint32_t keys) noexcept {
  // relaxed: statistics
  if (keys > noted_chain_.load(std::memory_order_relaxed)) [[unlikely]]
    note_chain_slow(keys);
}

// relaxed: statistics, and a hint
[[gnu::noinline]] void MatchingEngine::note_chain_slow(std::uint32_t keys) noexcept {
  if (kind_ == Kind::lazy && keys > crowded_chain_.load(std::memory_order_relaxed))
    is_crowded_.store(true, std::memory_order_relaxed);
  std::uint32_t longest = longest_chain_.load(std::memory_order_relaxed);
  while (keys > longest &&
         !longest_chain_.compare_exchange_weak(longest, keys, std::memory_order_relaxed,
                                               std::memory_order_relaxed)) {
  }
  // A lazy engine looks at each chain that may crowd it.
  noted_chain_.store(kind_ == Kind::lazy ? std::min(std::max(longest, keys), kCrowdedChain)
                                         : std::max(longest, keys),
                     std::memory_order_relaxed);
}

/// @param place  the queue's, in `bucket`
inline void MatchingEngine::take_locked(Bucket& bucket, MatchLink** place,
                                        MatchReceive& receive) noexcept {
  bucket.remove(place, receive);
  --bucket.waiting;
  // relaxed: changes with this lock held
  if (is_ordered_.load(std::memory_order_relaxed)) --posted_[policy_of(receive.word)];
}

[[gnu::always_inline]] inline MatchMessage* MatchingEngine::insert_receive_exact(
    Bucket& bucket, MatchReceive& receive, std::uint64_t word) noexcept {
  const Found found = bucket.find(word);
  if (found.place != nullptr && is_message((*found.place)->word)) {
    MatchMessage& message = message_of(**found.place);
    bucket.remove(found.place, **found.place);
    --bucket.waiting;
    return &message;
  }
  push_locked(bucket, found, receive, word);
  ++bucket.posted;
  ++bucket.waiting;
  return nullptr;
}

inline MatchMessage* MatchingEngine::insert_receive_ordered(MatchReceive& receive,
                                                            std::uint64_t word) noexcept {
  Bucket& bucket = bucket_of(word);
  const Found found = bucket.find(word);
  if (found.place != nullptr && is_message((*found.place)->word)) {
    MatchMessage& message = message_of(**found.place);
    take_ordered(message);
    return &message;
  }
  push_locked(bucket, found, receive, word);
  ++bucket.posted;
  ++bucket.waiting;
  receive.sequence = sequence_++;
  ++posted_[policy_of(word)];
  return nullptr;
}

MatchMessage* MatchingEngine::insert_receive(MatchReceive& receive) noexcept {
  if (kind_ != Kind::exact) return insert_receive_by_mode(receive);
  const std::uint64_t word = word_of(receive.policy, receive.rank, receive.tag);
  Bucket& bucket = bucket_of(word);
  const vci::BiasedGuard guard(bias_, bucket.lock);
  return insert_receive_exact(bucket, receive, word);
}

/// A call of its own: the other kinds' registers cost `exact` nothing.
[[gnu::noinline]] MatchMessage* MatchingEngine::insert_receive_by_mode(
    MatchReceive& receive) noexcept {
  const std::uint64_t word = word_of(receive.policy, receive.rank, receive.tag);
  if (needs_order(receive.policy)) [[unlikely]]
    become_ordered_slow();
  MatchMessage* const message = with_mode_of(
      word, [&](Bucket& bucket) { return insert_receive_exact(bucket, receive, word); },
      [&] { return insert_receive_ordered(receive, word); });
  grow_if_crowded();
  return message;
}

[[gnu::always_inline]] inline MatchReceive* MatchingEngine::match_exact(
    Bucket& bucket, std::uint64_t word, MatchMessage* waits) noexcept {
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

MatchReceive* MatchingEngine::match(const MatchKey& key, MatchMessage* waits) noexcept {
  const std::uint64_t word = word_of(key.policy, key.rank, key.tag);
  if (kind_ == Kind::exact) {
    Bucket& bucket = bucket_of(word);
    const vci::BiasedGuard guard(bias_, bucket.lock);
    return match_exact(bucket, word, waits);
  }
  return match_by_mode(key, word, waits);
}

[[gnu::noinline]] MatchReceive* MatchingEngine::match_by_mode(const MatchKey& key,
                                                              std::uint64_t word,
                                                              MatchMessage* waits) noexcept {
  MatchReceive* const receive = with_mode_of(
      word, [&](Bucket& bucket) { return match_exact(bucket, word, waits); },
      [&] { return match_ordered(key, waits); });
  if (waits != nullptr) grow_if_crowded();
  return receive;
}

/// With the ordered lock held.
MatchReceive* MatchingEngine::match_ordered(const MatchKey& key, MatchMessage* waits) noexcept {
  std::array<std::uint64_t, kMatchPolicyCount> words;
  for (std::size_t policy = 0; policy < kMatchPolicyCount; ++policy)
    words[policy] = word_of(static_cast<MatchPolicy>(policy), key.rank, key.tag);
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
  wait_ordered(*waits);
  Bucket& own = bucket_of(words[0]);
  ++own.unexpected;
  ++own.waiting;
  return nullptr;
}

/// Queues it under each key by which a receive may ask for it.
void MatchingEngine::wait_ordered(MatchMessage& message) noexcept {
  for (std::size_t policy = 0; policy < kMatchPolicyCount; ++policy) {
    const std::uint64_t word = word_of(static_cast<MatchPolicy>(policy), message.rank, message.tag);
    Bucket& bucket = bucket_of(word);
    push_locked(bucket, bucket.find(word), message.links[policy], word | kMessageBit);
  }
}

void MatchingEngine::take_ordered(MatchMessage& message) noexcept {
  for (MatchLink& link : message.links) {
    Bucket& bucket = bucket_of(link.word);
    bucket.remove(bucket.find(link.word).place, link);
  }
  --bucket_of(message.links[0].word).waiting;
}

// --- probes, cancel, sweeps ---------------------------------------------------------------------

std::optional<MatchingEngine::Seen> MatchingEngine::look(const MatchKey& receive) noexcept {
  const std::uint64_t word = word_of(receive.policy, receive.rank, receive.tag);
  if (needs_order(receive.policy)) [[unlikely]]
    become_ordered_slow();
  const auto look_in = [&](Bucket& bucket) -> std::optional<Seen> {
    MatchLink** const place = bucket.find(word).place;
    if (place == nullptr || !is_message((*place)->word)) return std::nullopt;
    const MatchMessage& message = message_of(**place);
    return Seen{message.rank, message.tag, message.bytes};
  };
  return with_lock_of(word, look_in, [&] { return look_in(bucket_of(word)); });
}

MatchMessage* MatchingEngine::take(const MatchKey& receive) noexcept {
  const std::uint64_t word = word_of(receive.policy, receive.rank, receive.tag);
  if (needs_order(receive.policy)) [[unlikely]]
    become_ordered_slow();
  const auto take_of = [&](Bucket& bucket) -> MatchMessage* {
    MatchLink** const place = bucket.find(word).place;
    if (place == nullptr || !is_message((*place)->word)) return nullptr;
    MatchMessage& message = message_of(**place);
    take_message_locked(bucket, place);
    return &message;
  };
  return with_lock_of(word, take_of, [&] { return take_of(bucket_of(word)); });
}

/// @param place  a queue of messages, in `bucket`: takes its first
void MatchingEngine::take_message_locked(Bucket& bucket, MatchLink** place) noexcept {
  // relaxed: changes with this lock held
  if (is_ordered_.load(std::memory_order_relaxed)) return take_ordered(message_of(**place));
  bucket.remove(place, **place);
  --bucket.waiting;
}

bool MatchingEngine::cancel(MatchReceive& receive) noexcept {
  const std::uint64_t word = word_of(receive.policy, receive.rank, receive.tag);
  const auto cancel_in = [&](Bucket& bucket) {
    if (receive.next == nullptr) return false;
    take_locked(bucket, bucket.find(word).place, receive);
    return true;
  };
  if (!with_lock_of(word, cancel_in, [&] { return cancel_in(bucket_of(word)); })) return false;
  cancelled_.fetch_add(1, std::memory_order_relaxed);  // relaxed: statistics
  return true;
}

/// @param is  predicate on a queue's word
template <class Is, class Visit>
auto MatchingEngine::sweep_for(Sweep& sweep, Is is, Visit&& visit) noexcept {
  while (true) {
    const Table table = this->table();
    if (std::exchange(sweep.table, table) != table) sweep.bucket = 0;
    if (sweep.bucket >= bucket_count_of(table))
      return decltype(visit(*buckets_of(table), nullptr))();
    Bucket& bucket = buckets_of(table)[sweep.bucket];
    const bool is_ordered = this->is_ordered();
    const vci::BiasedGuard guard(bias_, is_ordered ? lock_ : bucket.lock);
    // A table or mode that has changed since: another round. relaxed: as in is_current()
    if (table_.load(std::memory_order_relaxed) != table ||
        is_ordered_.load(std::memory_order_relaxed) != is_ordered)
      continue;
    const Found found = bucket.find_if(is);
    if (found.place != nullptr) return visit(bucket, found.place);
    ++sweep.bucket;
  }
}

template <class Is>
MatchReceive* MatchingEngine::take_receive_if(Sweep& sweep, Is is) noexcept {
  return sweep_for(sweep, is, [this](Bucket& bucket, MatchLink** place) -> MatchReceive* {
    MatchReceive& receive = receive_of(**place);
    take_locked(bucket, place, receive);
    orphaned_.fetch_add(1, std::memory_order_relaxed);  // relaxed: statistics
    return &receive;
  });
}

MatchReceive* MatchingEngine::take_receive_of(std::uint32_t rank, Sweep& sweep) noexcept {
  return take_receive_if(sweep, [rank](std::uint64_t word) { return is_receive_of(word, rank); });
}

MatchReceive* MatchingEngine::take_receive(Sweep& sweep) noexcept {
  return take_receive_if(sweep, [](std::uint64_t word) { return !is_message(word); });
}

MatchMessage* MatchingEngine::take_message(Sweep& sweep) noexcept {
  return sweep_for(sweep, is_message, [this](Bucket& bucket, MatchLink** place) -> MatchMessage* {
    MatchMessage& message = message_of(**place);
    take_message_locked(bucket, place);
    return &message;
  });
}

MatchCounts MatchingEngine::counts() noexcept {
  MatchCounts counts{};
  with_all_locks([&] {
    // relaxed: statistics
    counts.cancelled = cancelled_.load(std::memory_order_relaxed);
    counts.orphaned = orphaned_.load(std::memory_order_relaxed);
    counts.longest_chain = longest_chain_.load(std::memory_order_relaxed);
    std::uint32_t waiting =
        0;  // of one bucket it may have wrapped: entries of others have moved in
    for (const Bucket& bucket :
         std::span(buckets_.get(), bucket_count_of(table_.load(std::memory_order_relaxed)))) {
      counts.posted += bucket.posted;
      counts.unexpected += bucket.unexpected;
      waiting += bucket.waiting;
    }
    counts.waiting = waiting;
  });
  counts.matched =
      counts.posted + counts.unexpected - counts.waiting - counts.cancelled - counts.orphaned;
  return counts;
}

}  // namespace larklane::msg
