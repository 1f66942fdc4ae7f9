#pragma once
// Direct mode: which send partitions travel together, decided anew for each round if need be. The
// sender's Start of a round chooses the groups of the next one, before any Pready: the receiver
// can't start that round before a mark of this one, so it finds them whole. Model:
// tests/protocol/plans.pml.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "part/protocol/block.hpp"
#include "part/protocol/layout.hpp"

namespace larklane::part {

/// One side's knowledge of the groups of the last two rounds. Thread safety: hold() and may_wait()
/// thread-safe, of() for a round that has been started and is not over; the others belong to the
/// thread that calls Start.
template <class P>
class Plans {
 public:
  Plans(const BlockView<P>& block, const BlockShape& shape) noexcept
      : block_(block), shape_(shape) {}

  const Layout& of(std::uint64_t round) const noexcept { return *places_[round & 1].layout; }
  /// For who may come before the round, or when it is over. Null: its groups are not known yet, or
  /// others have taken their place.
  std::shared_ptr<const Layout> hold(std::uint64_t round) const {
    // acquire: pairs with write() and read(). Before the lock: what is younger has another
    // `first_round`.
    const bool is_known = round <= last_rounds_[round & 1].load(std::memory_order_acquire);
    const std::scoped_lock lock(mutex_);
    const Place& place = places_[round & 1];
    return is_known && round >= place.first_round ? place.layout : nullptr;
  }

  /// Could a partition of the round wait for others now? Not if the round is over, or unknown.
  bool may_wait(std::uint64_t round) const {
    // acquire: as in hold(). relaxed: put() has stored it before; if the place is a later round's,
    // this one is over, and either answer will do.
    return round <= last_rounds_[round & 1].load(std::memory_order_acquire) &&
           has_groups_[round & 1].load(std::memory_order_relaxed) != 0;
  }

  /// Sender: the groups of all rounds that are written from now on; the first choice, before
  /// anybody knows the block, also those of round 1. @errors kInvalidArgument
  Status choose(std::span<const std::uint32_t> boundaries) {
    auto layout = checked(boundaries);
    if (!layout) return layout.error();
    boundaries_.assign(boundaries.begin(), boundaries.end());
    chosen_ = std::make_shared<const Layout>(std::move(layout).value());
    if (++number_ == 1) write(1);
    return {};
  }

  /// Sender, in the Start of the round before: the groups of `round` are those that were chosen
  /// last.
  void write(std::uint64_t round) {
    if (places_[round & 1].number != number_) {
      block_.plan(round) = {number_, static_cast<std::uint32_t>(boundaries_.size())};
      std::copy(boundaries_.begin(), boundaries_.end(), block_.boundaries(round));
      put({number_, round, chosen_});
    }
    make_known(round);
  }

  /// Receiver: learn the groups of `round`, in its Start or before its match. @errors kProtocol
  Status read(std::uint64_t round) {
    const PlanHead head = block_.plan(round);  // copied: the sender's process can write there
    if (head.number == 0 || head.group_count > shape_.groups_max) return Errc::kProtocol;
    if (head.number != places_[round & 1].number) {
      const std::vector<std::uint32_t> boundaries(block_.boundaries(round),
                                                  block_.boundaries(round) + head.group_count);
      auto layout = checked(boundaries);
      if (!layout) return Errc::kProtocol;
      put({head.number, round, std::make_shared<const Layout>(std::move(layout).value())});
    }
    make_known(round);
    return {};
  }

 private:
  struct Place {
    std::uint64_t number = 0;  ///< of the plan; 0: none yet
    std::uint64_t first_round = 0;
    std::shared_ptr<const Layout> layout;
  };
  void make_known(std::uint64_t round) {
    // release: its place; pairs with the acquire of hold() and may_wait().
    last_rounds_[round & 1].store(round, std::memory_order_release);
  }
  void put(Place place) {
    // relaxed: make_known() publishes it.
    has_groups_[place.first_round & 1].store(place.layout->has_groups() ? 1 : 0,
                                             std::memory_order_relaxed);
    const std::scoped_lock lock(mutex_);  // atomics are none of its business: their doubles yield
    places_[place.first_round & 1] = std::move(place);
  }
  Result<Layout> checked(std::span<const std::uint32_t> boundaries) const {
    auto layout = Layout::make(shape_.partitions, boundaries);
    if (layout &&
        (boundaries.size() > shape_.groups_max || layout->words().size() > shape_.words_max ||
         layout->roots().size() > shape_.roots_max))
      return Errc::kInvalidArgument;
    return layout;
  }

  const BlockView<P>& block_;
  const BlockShape shape_;
  // By round parity.
  typename P::template Atomic<std::uint64_t> last_rounds_[2]{}, has_groups_[2]{};
  Place places_[2];
  mutable std::mutex mutex_;  // their change against hold()
  // Sender.
  std::uint64_t number_ = 0;
  std::vector<std::uint32_t> boundaries_;
  std::shared_ptr<const Layout> chosen_;
};

}  // namespace larklane::part
