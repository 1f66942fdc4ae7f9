#pragma once
// Probes of silent links, which detect a dead host.
//
// A receiver that waits for pushes posts nothing, so no operation of it can fail. So the keeper of
// a lane periodically looks at its links. It posts a write of no bytes on a link that has been
// silent while a round was open.

#include <atomic>
#include <cstdint>

#include "base/status.hpp"
#include "vci/vci.hpp"

namespace larklane::part {

/// A link's silence, and its probe: at most one is in flight.
/// Thread safety: the holder of the network's mutex, except for the completion.
class LinkProbe final : public vci::Work {
 public:
  enum class State : std::uint8_t { idle, under_way, failed };
  /// Consecutive looks without progress that make a probe due.
  static constexpr std::uint32_t kSilentLooks = 2;

  LinkProbe() noexcept {
    kind = Kind::probe;
    complete = &LinkProbe::ended;
  }

  /// A look begins ...
  void begin_look() noexcept {
    is_open_ = false;
    moved_ = 0;
  }
  /// ... which sees each channel of the link. @param moved  partitions, of all its rounds ...
  void see(bool is_round_open, std::uint64_t moved) noexcept {
    is_open_ |= is_round_open;
    moved_ += moved;
  }
  /// ... and ends. @return a probe is due
  bool end_look() noexcept;

  void post(vci::Vci& vci, net::Link& to);
  /// acquire: pairs with ended()'s release, which publishes failure().
  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  Status failure() const noexcept { return failure_; }

 private:
  static void ended(net::Operation& operation, Status status);

  bool is_open_ = false, was_open_ = false;
  std::uint64_t moved_ = 0, last_moved_ = 0;
  std::uint32_t silent_looks_ = 0;
  Status failure_;  // written before `failed`
  std::atomic<State> state_{State::idle};
};

}  // namespace larklane::part
