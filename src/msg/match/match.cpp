#include "msg/match/match.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <span>
#include <utility>

#include "msg/match/match_table.hpp"

namespace larklane::msg {

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
  Found found = bucket.find(word);
  while (found.place != nullptr && is_message((*found.place)->word)) {
    MatchMessage& message = message_of(**found.place);
    bucket.remove(found.place, **found.place);
    --bucket.waiting;
    if (message.offer.take()) [[likely]]
      return &message;
    note_withdrawn(message);
    found = bucket.find(word);
  }
  push_locked(bucket, found, receive, word);
  ++bucket.posted;
  ++bucket.waiting;
  return nullptr;
}

inline MatchMessage* MatchingEngine::insert_receive_ordered(MatchReceive& receive,
                                                            std::uint64_t word) noexcept {
  Bucket& bucket = bucket_of(word);
  if (MatchLink** const place = find_offered(bucket, word)) {
    MatchMessage& message = message_of(**place);
    take_ordered(message);
    return &message;
  }
  const Found found = bucket.find(word);
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
  const bool is_exact = receive.policy == MatchPolicy::rank_tag;
  const std::uint64_t word = is_exact ? word_of(MatchPolicy::rank_tag, receive.rank, receive.tag)
                                      : word_of(receive.policy, receive.rank, receive.tag);
  if (needs_order(receive.policy)) [[unlikely]]
    become_ordered_slow();
  MatchMessage* const message = with_mode_of(
      word, [&](Bucket& bucket) { return insert_receive_exact(bucket, receive, word); },
      [&] { return insert_receive_ordered(receive, word); });
  grow_if_crowded();
  return message;
}

[[gnu::always_inline]] inline MatchReceive* MatchingEngine::match_exact(
    Bucket& bucket, std::uint64_t word, MatchMessage* waits, const MatchOffer* offer) noexcept {
  const Found found = bucket.find(word);
  if (found.place != nullptr && !is_message((*found.place)->word)) {
    if (offer != nullptr && !offer->take()) return withdrawn();
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
    return match_exact(bucket, word, waits, nullptr);
  }
  return match_by_mode(key, word, waits, waits == nullptr ? nullptr : &waits->offer);
}

[[gnu::noinline]] MatchReceive* MatchingEngine::match_by_mode(const MatchKey& key,
                                                              std::uint64_t word,
                                                              MatchMessage* waits,
                                                              const MatchOffer* offer) noexcept {
  MatchReceive* const receive = with_mode_of(
      word, [&](Bucket& bucket) { return match_exact(bucket, word, waits, offer); },
      [&] { return match_ordered(key, waits, offer); });
  if (waits != nullptr) grow_if_crowded();
  return receive;
}

/// With the ordered lock held.
MatchReceive* MatchingEngine::match_ordered(const MatchKey& key, MatchMessage* waits,
                                            const MatchOffer* offer) noexcept {
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
    if (offer != nullptr && !offer->take()) return withdrawn();
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

std::uint64_t MatchingEngine::word_of_key(const MatchKey& key) noexcept {
  return word_of(key.policy, key.rank, key.tag);
}

[[gnu::noinline]] void MatchingEngine::note_withdrawn(MatchMessage& message) noexcept {
  --bucket_of(message.links[0].word).unexpected;
  message.next_withdrawn = withdrawn_.load(std::memory_order_relaxed);
  // release: of the message; pairs with for_each_withdrawn()'s acquire.
  while (!withdrawn_.compare_exchange_weak(message.next_withdrawn, &message,
                                           std::memory_order_release, std::memory_order_relaxed)) {
  }
}

/// Null: there is none.
MatchLink** MatchingEngine::find_offered(Bucket& bucket, std::uint64_t word) noexcept {
  while (true) {
    MatchLink** const place = bucket.find(word).place;
    if (place == nullptr || !is_message((*place)->word)) return nullptr;
    MatchMessage& message = message_of(**place);
    if (message.offer.take()) [[likely]]
      return place;
    take_message_locked(bucket, place);
    note_withdrawn(message);
  }
}

// --- probes, cancel, sweeps ---------------------------------------------------------------------

std::optional<MatchingEngine::Seen> MatchingEngine::look(const MatchKey& receive) noexcept {
  const std::uint64_t word = word_of(receive.policy, receive.rank, receive.tag);
  if (needs_order(receive.policy)) [[unlikely]]
    become_ordered_slow();
  const auto look_in = [&](Bucket& bucket) -> std::optional<Seen> {
    MatchLink** const place = find_offered(bucket, word);
    if (place == nullptr) return std::nullopt;
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
    MatchLink** const place = find_offered(bucket, word);
    if (place == nullptr) return nullptr;
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
