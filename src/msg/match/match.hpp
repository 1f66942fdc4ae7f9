#pragma once
// Matching engines: pair receives with messages by source rank and tag.
// (docs/design/protocols/matching.md)

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/spin_lock.hpp"
#include "base/status.hpp"
#include "msg/match/match_offer.hpp"
#include "vci/bias.hpp"

namespace larklane::msg {

/// Fields that a match compares. Bit 0 leaves the tag out, bit 1 the rank.
enum class MatchPolicy : std::uint8_t { rank_tag, rank, tag, none };
inline constexpr std::size_t kMatchPolicyCount = 4;

/// Link in the queue of one key. Belongs to the engine.
struct MatchLink {
  MatchLink* next = nullptr;  ///< a ring: the last link leads to the first; null: in no queue
  MatchLink* prev = nullptr;
  /// Chain of keys without a slot in their bucket; only in a queue's first link.
  MatchLink* next_key = nullptr;
  std::uint64_t word = 0;  ///< kind, policy and key: match.cpp
};

/// A posted receive, in its poster's memory. The poster keeps it, with rank, tag and policy
/// unchanged, until the engine returns it by a match, cancel() or a take function. Thread safety:
/// single-owner.
struct MatchReceive : MatchLink {
  std::uint32_t rank = 0;  ///< of the source, below MatchingEngine::kRankCount
  std::uint32_t tag = 0;
  MatchPolicy policy = MatchPolicy::rank_tag;
  std::uint64_t sequence = 0;  ///< set by an ordered engine: posting order
};

/// The matching fields of a message. Thread safety: immutable.
struct MatchKey {
  std::uint32_t rank;  ///< range: as in MatchReceive
  std::uint32_t tag;
  MatchPolicy policy;  ///< an ordered engine ignores it: it compares rank and tag
};

/// An arrived message, or its announcement, in its owner's memory until a receive matches it.
/// Thread safety: single-owner.
struct MatchMessage {
  std::uint32_t rank = 0;  ///< range: as in MatchKey
  std::uint32_t tag = 0;
  MatchPolicy policy = MatchPolicy::rank_tag;
  std::array<MatchLink, kMatchPolicyCount> links{};  ///< the engine's, one for each policy
  std::uint64_t arrival = 0;                         ///< for `lazy`: ascending for each rank
  std::uint64_t bytes = 0;                           ///< for look(): its length
  MatchOffer offer;                                  ///< not of an exact engine

  MatchMessage* next_withdrawn = nullptr;  ///< the engine's

  MatchKey key() const noexcept { return {rank, tag, policy}; }
  void set(const MatchKey& key) noexcept {
    rank = key.rank;
    tag = key.tag;
    policy = key.policy;
  }
};

/// Counts of an engine's events, by reason. Thread safety: immutable.
struct MatchCounts {
  std::uint64_t posted;         ///< receives that found no message
  std::uint64_t unexpected;     ///< messages that found no receive
  std::uint64_t matched;        ///< pairs: the later of the two found the other at once
  std::uint64_t waiting;        ///< receives and messages, at present
  std::uint64_t cancelled;      ///< receives, by cancel()
  std::uint64_t orphaned;       ///< receives, by take_receive_of(); entries, by take_all()
  std::uint64_t longest_chain;  ///< most keys in one bucket at a time
};

// Thread safety: thread-safe.
// Invariants:
// 1. If a receive and a message match and are inserted concurrently, exactly one of the two calls
//    returns the other. A call waits for locks only, allocates nothing, and can't fail.
// 2. `exact`: they match if policy and key are the same. Of equal keys, the first receive gets the
//    first message, in the order in which inserts took the bucket's lock. So the inserts of one
//    thread do not overtake each other. Different keys have no order.
// 3. `ordered`, MPI's rules: the receive's policy selects the fields to compare; a message has
//    both. A message gets the first posted of the receives that fit. A receive gets the first
//    arrived of the messages that fit. Both orders are those in which inserts took the engine's
//    lock. In match.cpp, insert_receive_ordered() numbers the receives, and match_ordered()
//    compares the numbers (`sequence`).
// 4. `lazy`: as `exact` until the first call with a wildcard, then as `ordered`. The caller inserts
//    the messages of a rank in the order of their arrival numbers. That first call holds all locks:
//    it moves the receives, which are older than its own, and the messages by their numbers.
// 5. All entries that wait with one key are of one kind: a receive and a message would have
//    matched.
// 6. A waiting entry is in one queue; a message of an ordered engine is in four, one for each
//    policy.
// 7. A message with an offer matches, or look() shows it, only after take() of its offer, with the
//    lock held. A withdrawn one leaves the engine where it is met; receives keep their places.
// 8. `table_` changes with all locks held. A thread that holds a bucket's lock and finds its table
//    and the mode unchanged may use the bucket.
class MatchingEngine final {
 public:
  enum class Kind : std::uint8_t {
    exact,    ///< a lock for each bucket: threads with different keys do not contend
    ordered,  ///< wildcards; one lock for the engine
    lazy,     ///< exact until the first wildcard, then ordered; messages name rank and tag. Grows
  };
  struct Options {
    Kind kind = Kind::exact;
    /// A power of two. Each bucket is a line of memory with room for two keys. The default takes 64
    /// KiB: enough lines for some hundreds of threads to have their own.
    std::uint32_t bucket_count = 1024;
  };
  static constexpr std::uint32_t kRankCount = 1u << 29;
  static constexpr std::uint32_t kBucketCountMax = 1u << 20;
  static constexpr std::size_t kLineBytes = 64;

  /// @errors kInvalidArgument: bucket_count; kNoMemory
  static Result<std::unique_ptr<MatchingEngine>> create(Options options);
  ~MatchingEngine();  ///< entries that still wait stay their owners'
  MatchingEngine(const MatchingEngine&) = delete;
  MatchingEngine& operator=(const MatchingEngine&) = delete;

  /// @param receive  in no engine @return the message that it matches; null: it waits
  MatchMessage* insert_receive(MatchReceive& receive) noexcept;
  /// @param message  in no engine @return the receive that it matches; null: it waits
  MatchReceive* insert_message(MatchMessage& message) noexcept {
    return match(message.key(), &message);
  }
  /// As insert_message(), but an unmatched message does not wait.
  MatchReceive* match_now(const MatchKey& key) noexcept { return match(key, nullptr); }
  /// The same of a message with an offer. withdrawn(): a receive fits, but keeps its place.
  MatchReceive* match_now(const MatchKey& key, const MatchOffer& offer) noexcept {
    return match_by_mode(key, word_of_key(key), nullptr, &offer);
  }
  /// The answer of insert_message() and match_now() for a withdrawn message.
  static MatchReceive* withdrawn() noexcept {
    return reinterpret_cast<MatchReceive*>(std::uintptr_t{1});
  }
  /// Has a call met withdrawn messages, which are still to be dropped? relaxed: a hint, true for
  /// the thread that has met them until for_each_withdrawn().
  bool has_withdrawn() const noexcept {
    return withdrawn_.load(std::memory_order_relaxed) != nullptr;
  }
  /// visit(MatchMessage&) of each such message: it is the caller's.
  template <class Visit>
  void for_each_withdrawn(Visit&& visit) noexcept {
    // acquire: of the messages; pairs with note_withdrawn()'s release.
    MatchMessage* next = withdrawn_.exchange(nullptr, std::memory_order_acquire);
    while (next != nullptr) {
      MatchMessage& message = *next;
      next = message.next_withdrawn;
      visit(message);
    }
  }
  /// A waiting message. Thread safety: immutable.
  struct Seen {
    std::uint32_t rank, tag;
    std::uint64_t bytes;
  };
  /// The message that a receive with this key would get; nothing: none waits.
  std::optional<Seen> look(const MatchKey& receive) noexcept;
  /// Takes that message; null: none waits.
  MatchMessage* take(const MatchKey& receive) noexcept;
  /// @param receive  in no other engine. Its memory stays valid during the call, with rank, tag and
  ///   policy as at its insertion, even if a message has matched it since.
  /// @return true: it was still waiting, and is the caller's again
  bool cancel(MatchReceive& receive) noexcept;

  /// Position of a search through all buckets. Thread safety: single-owner.
  struct Sweep {
    std::uint32_t bucket = 0;
    std::uintptr_t table = 0;  ///< of a lazy engine: it may change between two calls
  };
  /// Takes out the next waiting receive that only messages of `rank` could match; null: there is
  /// none left. Messages of that rank that have arrived stay. The caller marks the rank as dead
  /// before the first call. If each poster checks that mark after its insert_receive(), no receive
  /// is missed: see docs/design/protocols/matching.md.
  MatchReceive* take_receive_of(std::uint32_t rank, Sweep& sweep) noexcept;

  /// Takes out the next waiting receive, or message, of any key; null: there is none left.
  MatchReceive* take_receive(Sweep& sweep) noexcept;
  MatchMessage* take_message(Sweep& sweep) noexcept;

  /// Takes out all entries, and calls on_receive(MatchReceive&) in the order in which messages
  /// would match them, then on_message(MatchMessage&) in order of arrival. Each owns its entry.
  template <class OnReceive, class OnMessage>
  void take_all(OnReceive&& on_receive, OnMessage&& on_message) noexcept {
    const Lists all = take_lists();
    for (MatchLink* link = all.receives; link != nullptr;) {
      MatchLink& one = *link;
      link = one.next;
      one.next = nullptr;
      on_receive(static_cast<MatchReceive&>(one));
    }
    for (MatchLink* link = all.messages; link != nullptr;) {
      MatchLink& one = *link;
      link = one.next;
      one.next = nullptr;
      on_message(message_with(one));
    }
  }
  /// Posted receives with that policy. @pre no other call runs
  std::uint32_t waiting_with(MatchPolicy policy) noexcept;

  /// Takes each lock once. May or may not count concurrent calls.
  MatchCounts counts() noexcept;

 private:
  struct Found {
    MatchLink** place;   ///< leads to the first of the queue; null: there is no queue
    std::uint32_t keys;  ///< other keys that the search compared
  };
  struct Bucket;
  struct BucketsDeleter {
    void operator()(Bucket* buckets) const noexcept;
  };
  using Buckets = std::unique_ptr<Bucket[], BucketsDeleter>;
  /// The buckets' address, and, in the bits that their alignment leaves, the shift of a hash.
  using Table = std::uintptr_t;
  static constexpr Table kShiftMask = kLineBytes - 1;
  /// A bucket with more keys makes a lazy engine grow by this factor, if keys outnumber buckets.
  static constexpr std::uint32_t kCrowdedChain = 4, kGrowth = 4;
  /// Buckets that a lazy engine has outgrown. Threads may still wait for their locks.
  struct Outgrown {
    Buckets buckets;
    std::unique_ptr<Outgrown> older;
  };

  MatchingEngine(Kind kind, std::uint32_t bucket_bits, Buckets buckets) noexcept;

  static Buckets make_buckets(std::uint32_t count) noexcept;
  static Table table_of(Bucket* buckets, std::uint32_t bucket_bits) noexcept;
  static Bucket* buckets_of(Table table) noexcept {
    return reinterpret_cast<Bucket*>(table & ~kShiftMask);
  }
  static std::uint32_t bucket_count_of(Table table) noexcept {
    return std::uint32_t{1} << (63 - (table & kShiftMask));
  }
  static Bucket& bucket_of(Table table, std::uint64_t word) noexcept;
  /// acquire: of the buckets; pairs with grow_slow()'s release.
  Table table() const noexcept { return table_.load(std::memory_order_acquire); }
  /// With the ordered lock held, or of an exact engine.
  Bucket& bucket_of(std::uint64_t word) const noexcept { return bucket_of(table(), word); }
  bool is_ordered() const noexcept { return is_ordered_.load(std::memory_order_acquire); }
  /// With the lock of a bucket of `table`: may the caller use it?
  bool is_current(Table table) const noexcept {
    // relaxed: both change with that lock held
    return table_.load(std::memory_order_relaxed) == table &&
           !is_ordered_.load(std::memory_order_relaxed);
  }

  /// Queues `link`. @param found  result of the bucket's find(word)
  void push_locked(Bucket& bucket, Found found, MatchLink& link, std::uint64_t word) noexcept;
  void note_chain(std::uint32_t keys) noexcept;
  void note_chain_slow(std::uint32_t keys) noexcept;
  void take_locked(Bucket& bucket, MatchLink** place, MatchReceive& receive) noexcept;
  void take_message_locked(Bucket& bucket, MatchLink** place) noexcept;
  /// Calls exact(Bucket&) with that lock, or ordered() with the ordered lock.
  template <class Exact, class Ordered>
  auto with_lock_of(std::uint64_t word, Exact&& exact, Ordered&& ordered) noexcept;
  template <class Exact, class Ordered>
  auto with_mode_of(std::uint64_t word, Exact&& exact, Ordered&& ordered) noexcept;
  template <class Change>
  void with_all_locks(Change&& change) noexcept;
  bool needs_order(MatchPolicy policy) const noexcept {
    return policy != MatchPolicy::rank_tag && kind_ == Kind::lazy && !is_ordered();
  }
  void become_ordered_slow() noexcept;
  void become_ordered_locked() noexcept;
  static MatchLink* take_queue(Bucket& bucket) noexcept;
  /// Chains of links, through `next`.
  struct Lists {
    MatchLink *receives, *messages;
  };
  Lists take_lists() noexcept;
  Lists take_lists_locked() noexcept;
  static MatchMessage& message_with(MatchLink& link) noexcept;
  void grow_slow() noexcept;
  void grow_if_crowded() noexcept {
    if (is_crowded_.load(std::memory_order_relaxed)) [[unlikely]]  // relaxed: a hint
      grow_slow();
  }

  MatchMessage* insert_receive_exact(Bucket& bucket, MatchReceive& receive,
                                     std::uint64_t word) noexcept;
  MatchMessage* insert_receive_ordered(MatchReceive& receive, std::uint64_t word) noexcept;
  /// @param waits  queued if unmatched; null: no message waits
  MatchReceive* match(const MatchKey& key, MatchMessage* waits) noexcept;
  MatchMessage* insert_receive_by_mode(MatchReceive& receive) noexcept;
  static std::uint64_t word_of_key(const MatchKey& key) noexcept;
  /// @param offer  of the message; null: none
  MatchReceive* match_by_mode(const MatchKey& key, std::uint64_t word, MatchMessage* waits,
                              const MatchOffer* offer) noexcept;
  MatchReceive* match_exact(Bucket& bucket, std::uint64_t word, MatchMessage* waits,
                            const MatchOffer* offer) noexcept;
  MatchReceive* match_ordered(const MatchKey& key, MatchMessage* waits,
                              const MatchOffer* offer) noexcept;
  /// The first message of the key that is not withdrawn, taken; those before it have left.
  MatchLink** find_offered(Bucket& bucket, std::uint64_t word) noexcept;
  void note_withdrawn(MatchMessage& message) noexcept;
  void take_ordered(MatchMessage& message) noexcept;
  void wait_ordered(MatchMessage& message) noexcept;
  /// Calls visit(Bucket&, MatchLink**) of the first queue that is(word), from the sweep's bucket
  /// on; null: there is none.
  template <class Is, class Visit>
  auto sweep_for(Sweep& sweep, Is is, Visit&& visit) noexcept;
  template <class Is>
  MatchReceive* take_receive_if(Sweep& sweep, Is is) noexcept;

  // A thread that is the engine's only user takes no lock.
  alignas(kLineBytes) vci::Bias bias_;

  // Read by all threads.
  alignas(kLineBytes) const Kind kind_;
  std::atomic<bool> is_ordered_;         // changes once, with all locks held
  std::atomic<bool> is_crowded_{false};  // a lazy engine should grow
  // Keys in one bucket at most, and from how many on that is noted. Seldom written
  std::atomic<std::uint32_t> longest_chain_{0}, noted_chain_{0};
  std::atomic<std::uint32_t> crowded_chain_;  // keys of a bucket from which on it is crowded
  std::atomic<Table> table_;

  // The ordered lock, and the members that it guards.
  alignas(kLineBytes) SpinLock lock_;
  std::uint64_t sequence_ = 0;                             // of the next receive that waits
  std::array<std::uint32_t, kMatchPolicyCount> posted_{};  // waiting receives, by policy
  Buckets buckets_;
  std::unique_ptr<Outgrown> outgrown_;

  std::atomic<MatchMessage*> withdrawn_{nullptr};
  alignas(kLineBytes) std::atomic<std::uint64_t> cancelled_{0};
  std::atomic<std::uint64_t> orphaned_{0};
};

}  // namespace larklane::msg
