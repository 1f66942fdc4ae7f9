#pragma once
// Matching engines: which receive gets which message, by source rank and tag.
// (docs/design/protocols/matching.md)

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/spin_lock.hpp"
#include "base/status.hpp"
#include "vci/bias.hpp"

namespace larklane::msg {

/// What is compared. The bits: 1 without the tag, 2 without the rank.
enum class MatchPolicy : std::uint8_t { rank_tag, rank, tag, none };
inline constexpr std::size_t kMatchPolicyCount = 4;

/// A place in the queue of one key. The engine's.
struct MatchLink {
  MatchLink* next = nullptr;  ///< a ring: the last one's is the first; null: in no queue
  MatchLink* prev = nullptr;
  MatchLink* next_key = nullptr;  ///< of the first of a queue that has no slot in its bucket
  std::uint64_t word = 0;         ///< kind, policy and key: match.cpp
};

/// A receive that is posted. Its poster's memory, which must stay, with rank, tag and policy as
/// they are, until the engine gives it back: by a match, cancel() or take_receive_of(). Thread
/// safety: single-owner.
struct MatchReceive : MatchLink {
  std::uint32_t rank = 0;  ///< of the source, below MatchingEngine::kRankCount
  std::uint32_t tag = 0;
  MatchPolicy policy = MatchPolicy::rank_tag;
  std::uint64_t sequence = 0;  ///< the engine's, if ordered: its place among all receives
};

/// What a message says. Thread safety: immutable.
struct MatchKey {
  std::uint32_t rank;  ///< as of a receive
  std::uint32_t tag;
  MatchPolicy policy;  ///< an ordered engine looks at rank and tag
};

/// A message that has come, or its announcement. Its owner's memory until a receive gets it.
/// Thread safety: single-owner.
struct MatchMessage {
  std::uint32_t rank = 0;  ///< as its key's
  std::uint32_t tag = 0;
  MatchPolicy policy = MatchPolicy::rank_tag;
  std::array<MatchLink, kMatchPolicyCount> links{};  ///< the engine's, by policy of the receives

  MatchKey key() const noexcept { return {rank, tag, policy}; }
  void set(const MatchKey& key) noexcept {
    rank = key.rank;
    tag = key.tag;
    policy = key.policy;
  }
};

/// What an engine has done, by reason. Thread safety: immutable.
struct MatchCounts {
  std::uint64_t posted;         ///< receives that had to wait
  std::uint64_t unexpected;     ///< messages that had to wait
  std::uint64_t matched;        ///< pairs; the one that came second found the other at once
  std::uint64_t waiting;        ///< now: receives and messages
  std::uint64_t cancelled;      ///< receives, by cancel()
  std::uint64_t orphaned;       ///< receives, by take_receive_of()
  std::uint64_t longest_chain;  ///< most keys that have been in one bucket at a time
};

// Thread safety: thread-safe.
// Invariants:
// 1. Of a receive and a message that match and come at the same time exactly one call returns the
//    other. No call waits for more than a lock, none allocates, none fails.
// 2. `exact`: they match if policy and key are the same. Of equal keys the first receive gets the
//    first message, in the order in which their bucket's lock was taken: so the inserts of one
//    thread do not overtake each other. Different keys: no order.
// 3. `ordered`, MPI's rules: a receive says by its policy what it compares, a message has both. A
//    message gets the receive that was posted first of those that fit, a receive the message that
//    came first of those that fit, in the order in which the engine's lock was taken.
// 4. All that waits with one key is of one kind: a receive and a message would have matched.
// 5. What waits is in one queue: a message of an ordered engine in four, one for each policy.
class MatchingEngine final {
 public:
  enum class Kind : std::uint8_t {
    exact,    ///< a lock for each bucket: threads with different keys do not meet
    ordered,  ///< with wildcards, one lock
  };
  struct Options {
    Kind kind = Kind::exact;
    /// A power of two; each is a line of memory with room for two keys. By default 64 KiB: some
    /// hundreds of threads have lines of their own.
    std::uint32_t bucket_count = 1024;
  };
  static constexpr std::uint32_t kRankCount = 1u << 29;
  static constexpr std::uint32_t kBucketCountMax = 1u << 20;
  static constexpr std::size_t kLineBytes = 64;

  /// @errors kInvalidArgument: bucket_count; kNoMemory
  static Result<std::unique_ptr<MatchingEngine>> create(Options options);
  ~MatchingEngine();  ///< what still waits is its owners'
  MatchingEngine(const MatchingEngine&) = delete;
  MatchingEngine& operator=(const MatchingEngine&) = delete;

  /// @param receive  in no engine @return the message that it gets; null: it waits
  MatchMessage* insert_receive(MatchReceive& receive) noexcept;
  /// @param message  in no engine @return the receive that gets it; null: it waits
  MatchReceive* insert_message(MatchMessage& message) noexcept {
    return match(message.key(), &message);
  }
  /// As insert_message(), of one that does not wait.
  MatchReceive* match_now(const MatchKey& key) noexcept { return match(key, nullptr); }
  /// @param receive  in no other engine; its memory stays meanwhile, with rank, tag and policy as
  ///   they were when it was inserted, also where it has a message by now
  /// @return it was still waiting and is the caller's again
  bool cancel(MatchReceive& receive) noexcept;

  /// How far the search for receives of a dead rank has come. Thread safety: single-owner.
  struct Sweep {
    std::uint32_t bucket = 0;
  };
  /// The next waiting receive that only messages of `rank` could match, taken out; null: there is
  /// none left. Messages of that rank that have come stay. Who says that the rank is dead before
  /// the first call, and looks for that after each insert_receive(), misses none: see
  /// docs/design/protocols/matching.md.
  MatchReceive* take_receive_of(std::uint32_t rank, Sweep& sweep) noexcept;

  /// The next that waits, taken out, whatever it is; null: there is none left.
  MatchReceive* take_receive(Sweep& sweep) noexcept;
  MatchMessage* take_message(Sweep& sweep) noexcept;

  /// Takes each lock once; threads that are at it meanwhile may or may not be seen.
  MatchCounts counts() noexcept;

 private:
  struct Found {
    MatchLink** place;   ///< points to the first of the queue; null: there is none
    std::uint32_t keys;  ///< others that were looked at
  };
  struct Bucket;

  MatchingEngine(Kind kind, std::uint32_t bucket_bits, std::unique_ptr<Bucket[]> buckets) noexcept;

  Bucket& bucket_of(std::uint64_t word) const noexcept;
  SpinLock& lock_of(Bucket& bucket) noexcept;
  /// `link` waits; `found` is what the bucket has said of `word`.
  void push_locked(Bucket& bucket, Found found, MatchLink& link, std::uint64_t word) noexcept;
  void note_chain(std::uint32_t keys) noexcept;
  void take_locked(Bucket& bucket, MatchLink** place, MatchReceive& receive) noexcept;
  /// @param waits  null: it does not
  MatchReceive* match(const MatchKey& key, MatchMessage* waits) noexcept;
  template <class Is>
  MatchReceive* take_receive_if(Sweep& sweep, Is is) noexcept;
  MatchReceive* match_ordered(const MatchKey& key, MatchMessage* waits) noexcept;
  void take_ordered(MatchMessage& message) noexcept;

  // While one thread alone uses the engine it takes no lock.
  alignas(kLineBytes) vci::Bias bias_;

  // Read by all.
  alignas(kLineBytes) const Kind kind_;
  const std::uint32_t bucket_bits_;
  std::atomic<std::uint32_t> longest_chain_{0};  // seldom written
  const std::unique_ptr<Bucket[]> buckets_;

  // If ordered: the lock, and what only its holder touches.
  alignas(kLineBytes) SpinLock lock_;
  std::uint64_t sequence_ = 0;                             // of the next receive that waits
  std::array<std::uint32_t, kMatchPolicyCount> posted_{};  // waiting receives, by policy

  alignas(kLineBytes) std::atomic<std::uint64_t> cancelled_{0};
  std::atomic<std::uint64_t> orphaned_{0};
};

}  // namespace larklane::msg
