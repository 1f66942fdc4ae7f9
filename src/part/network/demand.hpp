#pragma once
// A demand: a receiver rings the sender of a partition that Parrived has missed while nothing has
// arrived for some time. From then on the sender holds nothing of the round back
// (docs/design/adr/0018). Model: tests/protocol/push_or_pull.pml, rules 11 to 15.
//
// At most one demand is in flight: the next one waits until the sender has answered the last. So
// the sender reserves one receive. The answer states a round: in it and in all before it the sender
// holds nothing back, demanded or not.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "part/network/words.hpp"
#include "part/policy/policy.hpp"
#include "vci/work.hpp"

namespace larklane::part {

class NetRecv;
class NetSend;

/// The needs of a channel's policy, as a network meets them. Thread safety: immutable.
struct GroupRules {
  bool has_planner = false;           ///< groups change between rounds
  bool is_on_demand = false;          ///< the receiver may break groups up
  std::uint64_t deadline_ns = 0;      ///< 0: none
  std::uint64_t demand_after_ns = 0;  ///< time without arrivals before the receiver demands

  /// @param demand_after_ns  option `demand_after_ns`
  static GroupRules of(const PolicyNeeds& needs, std::uint64_t demand_after_ns) noexcept {
    return {needs.has_planner, needs.is_on_demand, needs.deadline_ns,
            std::max(demand_after_ns, needs.deadline_ns)};
  }
  bool take_demands() const noexcept { return is_on_demand || deadline_ns != 0; }
};

/// Does `round` call for a demand? Words carry the low half of a round.
/// @param last  the last demanded round, less than `round`; not 0
/// @param heard  the sender's answer: no round up to it calls for a demand
constexpr bool is_called_for(std::uint64_t round, std::uint64_t last,
                             std::uint32_t heard) noexcept {
  const auto ahead = static_cast<std::int32_t>(heard - static_cast<std::uint32_t>(last));
  return ahead >= 0 && last + static_cast<std::uint64_t>(ahead) < round;
}

/// Time since the last arrival, as calls of Parrived observe it. Thread safety: thread-safe.
class Silence {
 public:
  /// Start.
  void begin() noexcept { since_.store(0, std::memory_order_relaxed); }  // relaxed: as below
  /// A Parrived has missed its partition. @param moved  partitions moved so far @param now  not 0
  /// @return the silence has lasted for `after_ns`
  bool lasts(std::uint64_t moved, std::uint64_t now, std::uint64_t after_ns) noexcept {
    // relaxed throughout: it decides only when a demand is sent.
    const bool has_more = moved_.exchange(moved, std::memory_order_relaxed) != moved;
    const std::uint64_t since = since_.load(std::memory_order_relaxed);
    if (since == 0 || has_more) {
      since_.store(now, std::memory_order_relaxed);
      return false;
    }
    return now > since && now - since >= after_ns;
  }

 private:
  std::atomic<std::uint64_t> since_{0};  ///< 0: no Parrived has missed in this round
  std::atomic<std::uint64_t> moved_{0};
};

/// Detects a receiver that demands round after round. The sender then holds nothing back, without
/// demands, until it tries groups again. Thread safety: single-owner.
class AskingHabit {
 public:
  static constexpr std::uint32_t kRoundsBefore = 3;  ///< consecutive rounds with demands
  static constexpr std::uint32_t kRoundsFirst = 64, kRoundsMost = 4096;  ///< without groups

  /// In every Start. @param has_demanded  the receiver demanded in the round before this one
  /// @return hold nothing back in the rounds after this one
  bool see(bool has_demanded) noexcept {
    if (left_ != 0) return --left_ != 0;
    demanded_ = has_demanded ? demanded_ + 1 : 0;
    if (demanded_ < kRoundsBefore) return false;
    demanded_ = 0;
    left_ = next_;
    next_ = std::min(2 * next_, kRoundsMost);
    return true;
  }
  /// Rounds after this one in which the sender holds nothing back.
  std::uint32_t rounds_left() const noexcept { return left_; }

 private:
  std::uint32_t demanded_ = 0;  // consecutive rounds with demands, up to the last one
  std::uint32_t left_ = 0;
  std::uint32_t next_ = kRoundsFirst;
};

/// The receiver's demands. Thread safety: fields that are not atomic belong to the thread that made
/// it busy.
struct DemandWork : vci::Work {
  NetRecv* channel = nullptr;
  std::atomic<bool> is_busy{false};
  std::atomic<std::uint64_t> round{0};  ///< of the last one; relaxed
  std::atomic<std::uint32_t> count{0};  ///< relaxed
  Silence silence{};
};

/// The sender's answers to demands. Thread safety: as DemandWork.
struct HeardWork : vci::Work {
  NetSend* channel = nullptr;
  std::atomic<bool> is_busy{false};
  std::uint64_t round = 0;
};

/// Senders by demand slot. Immediates of demands have slots of their own, apart from those of runs.
/// Thread safety: the lane's lock for find() and set(), the network's mutex for take() and
/// give_back().
class DemandSlots {
 public:
  /// @errors kNoMemory: all are taken
  Result<std::uint16_t> take() {
    if (!free_.empty()) {
      const std::uint16_t slot = free_.back();
      free_.pop_back();
      return slot;
    }
    if (taken_ == kSlots) return Errc::kNoMemory;
    return static_cast<std::uint16_t>(taken_++);
  }
  /// No demand with this slot is in flight any more.
  void give_back(std::uint16_t slot) { free_.push_back(slot); }
  void set(std::uint16_t slot, NetSend* channel) {
    if (slot >= channels_.size()) channels_.resize(slot + std::size_t{1});
    channels_[slot] = channel;
  }
  /// Null: its channel is gone.
  NetSend* find(std::uint16_t slot) const {
    return slot < channels_.size() ? channels_[slot] : nullptr;
  }

 private:
  static constexpr std::uint32_t kSlots = 1u << 16;  ///< bits of an immediate
  std::uint32_t taken_ = 0;
  std::vector<std::uint16_t> free_;
  std::vector<NetSend*> channels_;
};

}  // namespace larklane::part
