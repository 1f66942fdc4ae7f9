#pragma once
// A communicator on lanes by tag: its receives and messages, in MPI's order by visibility.
// (docs/design/protocols/ordinary_messages.md, "Lanes by tag")

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.hpp"
#include "msg/match/lane_order.hpp"
#include "msg/match/lane_stamp.hpp"
#include "msg/match/match.hpp"
#include "msg/protocol/communicator.hpp"
#include "msg/protocol/engine.hpp"
#include "msg/protocol/operation.hpp"

namespace larklane::msg {

/// The message's bytes into the receive. @pre both are the caller's alone
void meet(Operation& receive, Operation& message) noexcept;

// Thread safety: thread-safe; the functions that say so run with a lane's lock held.
// Invariants:
// 1. The lock of a lane of LaneOrder is the engine's lane's. Each message of a tag comes on
//    lane_of(tag), or its link fails.
// 2. `wide_` is used with the wide lock held. It is empty in exact mode, as are the lanes' engines
//    in wide mode.
// 3. A lane that is made later has no entries in exact mode: its maker sees `is_wide`.
class ByTag {
 public:
  static constexpr std::uint32_t kFirstBuckets = 64;  // of each engine: 4 KiB

  /// @errors none but std::bad_alloc
  explicit ByTag(Communicator& owner);
  ~ByTag();
  ByTag(const ByTag&) = delete;
  ByTag& operator=(const ByTag&) = delete;

  /// The program has opened the communicator. @param members  sources of messages
  void open(std::uint32_t members) noexcept {
    sources_.store(members, std::memory_order_release);  // pairs with sources()
  }
  static std::uint32_t ways_of(const Engine& engine) noexcept;
  /// Tags in steps of a power of two take different ways: each `ways` of them, from a multiple of
  /// `ways` steps on. @param ways  a power of two
  static std::uint32_t way_of(std::uint32_t tag, std::uint32_t ways) noexcept {
    if (ways == 1) return 0;
    // The sum, without carry, of the tag's digits to base `ways`.
    for (int shift = std::countr_zero(ways); shift < 32; shift *= 2) tag ^= tag >> shift;
    return tag & (ways - 1);
  }
  static std::uint32_t first_lane_of(const ContextId& id, const Engine& engine) noexcept {
    return static_cast<std::uint32_t>(id.low >> 32) % engine.lane_count_max();
  }
  std::uint32_t lane_of(std::uint32_t tag) const noexcept {
    return (first_lane_ + way_of(tag, ways_count_)) % engine_.lane_count_max();
  }
  /// A hint.
  bool is_wide() const noexcept { return order_.is_wide(); }

  // The program's calls.
  /// @return the message that it matches; null: it waits @errors kNoMemory
  Result<MatchMessage*> post(MatchReceive& receive) noexcept;
  bool cancel(MatchReceive& receive) noexcept;
  std::optional<MatchingEngine::Seen> look(const MatchKey& receive) noexcept;
  MatchMessage* take(const MatchKey& receive) noexcept;

  // Arrivals, with the lock of the message's lane held.
  /// The lane's engine; null: memory ran out.
  MatchingEngine* engine_locked(std::uint32_t lane) noexcept;
  /// @param message  with key, bytes and stamp @errors kProtocol: there is no such source
  Result<bool> arrive_locked(MessageLane& lane, Operation& message) noexcept;

  /// After an arrival in wide mode, or note_lost(), without a lock. False: the caller comes again.
  bool turn() noexcept { return order_.turn(); }
  /// A member is lost: a turn() finishes the receives that only it could match.
  void note_lost() noexcept { order_.poke(); }
  /// The communicator is closed: frees the messages without a receive.
  void drop_messages() noexcept;
  MatchCounts counts() noexcept;

 private:
  friend class LaneOrder<ByTag, ByTag>;
  struct alignas(vci::kOwnLineBytes) Lane {
    std::atomic<MatchingEngine*> engine{nullptr};  // made with the lane's lock held
    std::uint64_t arrivals = 0;                    // guarded by the lane's lock
    /// Messages in the engine in exact mode; at least, since withdrawn ones leave it uncounted.
    /// Changes with the lane's lock held. release: pairs with shows_nothing().
    std::atomic<std::uint32_t> kept{0};
    void add_kept(int change) noexcept {
      kept.store(kept.load(std::memory_order_relaxed) + static_cast<std::uint32_t>(change),
                 std::memory_order_release);
    }
  };
  static constexpr std::uint32_t kNamedBeforeExact = 256;  // calls that name a tag

  // LaneOrder's Lanes.
  std::uint32_t count() const noexcept { return engine_.lane_count_max(); }
  std::uint32_t sources() const noexcept { return sources_.load(std::memory_order_acquire); }
  template <class Work>
  void with(std::uint32_t lane, Work&& work) noexcept {
    if (MessageLane* const made = engine_.made_lane(lane)) made->vci().exclusively(work);
  }
  template <class Work>
  void with_all(Work&& work) noexcept {
    with_all_from(0, work);
  }
  template <class Work>
  void with_all_from(std::uint32_t lane, Work& work) noexcept {
    if (lane == count()) return work();
    MessageLane* const made = engine_.made_lane(lane);
    if (made == nullptr) return with_all_from(lane + 1, work);
    made->vci().exclusively([&] { with_all_from(lane + 1, work); });
  }
  bool look(std::uint32_t lane) noexcept;
  bool look_alone(std::uint32_t lane) noexcept;
  bool shows_nothing(std::uint32_t lane) noexcept;

  // LaneOrder's Matcher.
  void wide(LaneEntry& entry) noexcept;
  void move_receives_wide(std::uint32_t lane) noexcept;
  LaneEntry* take_exact(std::uint32_t lane) noexcept;
  bool prepare_exact() noexcept;
  void move_exact() noexcept;
  void poked() noexcept;

  bool match(MatchingEngine& engine, Operation& message) noexcept;
  bool prepare_wide() noexcept;
  void after(bool is_whole) noexcept;
  /// The effect of a call on the messages in an engine.
  enum class Met : std::uint8_t { nothing, shown, taken };
  template <class Work>
  bool call(const MatchKey& key, bool looks, Work&& work) noexcept;
  /// Calls visit(MatchingEngine&) for each, those of the lanes first.
  template <class Visit>
  void for_each_engine(Visit&& visit) noexcept;

  Communicator& owner_;
  Engine& engine_;
  const std::uint32_t first_lane_, ways_count_;
  const std::unique_ptr<Lane[]> lanes_;
  std::atomic<std::uint32_t> sources_{0};
  std::atomic<bool> has_wide_{false};  // wide mode has its memory
  // With the wide lock held.
  std::unique_ptr<MatchingEngine> wide_;
  LaneEntryQueue moving_;
  std::uint32_t named_ = 0;  // calls that name a tag, since the last one that needed wide mode
  LaneOrder<ByTag, ByTag> order_{*this, *this};
};

}  // namespace larklane::msg
