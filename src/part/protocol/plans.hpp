#pragma once
// Direct mode: the groups of send partitions that travel together, chosen for each round.
//
// The sender's Start of a round writes the groups of the next round, before any Pready. The
// receiver can't start that round before a mark of this one, so it reads complete groups. Model:
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

/// One side's copy of the groups of the last two rounds. Thread safety: hold() and may_wait() are
/// thread-safe. of() is thread-safe for a round that has started and is not over. The other
/// functions belong to the thread that calls Start.
template <class P>
class Plans {
 public:
  Plans(const BlockView<P>& block, const BlockShape& shape) noexcept
      : block_(block), shape_(shape) {}

  const Layout& of(std::uint64_t round) const noexcept { return *places_[round & 1].layout; }
  /// The groups of `round`, for threads that may call before the round or after its end. Null: this
  /// side has not learned them yet, or another round's groups have replaced them.
  std::shared_ptr<const Layout> hold(std::uint64_t round) const {
    // acquire: pairs with make_known()'s release, after write() and read(). Loaded before the lock:
    // younger groups have another `first_round`.
    const bool is_known = round <= last_rounds_[round & 1].load(std::memory_order_acquire);
    const std::scoped_lock lock(mutex_);
    const Place& place = places_[round & 1];
    return is_known && round >= place.first_round ? place.layout : nullptr;
  }

  /// Could a partition of the round still wait for others? False if the round is over or unknown.
  bool may_wait(std::uint64_t round) const {
    // acquire: as in hold(). relaxed: put() has stored it before. If the place holds a later round,
    // this one is over and either answer is correct.
    return round <= last_rounds_[round & 1].load(std::memory_order_acquire) &&
           has_groups_[round & 1].load(std::memory_order_relaxed) != 0;
  }

  /// Sender: sets the groups of all rounds that are written from now on. The first choice precedes
  /// the block's publication and also sets those of round 1. @errors kInvalidArgument
  Status choose(std::span<const std::uint32_t> boundaries) {
    auto layout = checked(boundaries);
    if (!layout) return layout.error();
    boundaries_.assign(boundaries.begin(), boundaries.end());
    chosen_ = std::make_shared<const Layout>(std::move(layout).value());
    if (++number_ == 1) write(1);
    return {};
  }

  /// Sender, in the Start of the round before: `round` gets the groups that were chosen last.
  void write(std::uint64_t round) {
    if (places_[round & 1].number != number_) {
      block_.plan(round) = {number_, static_cast<std::uint32_t>(boundaries_.size())};
      std::copy(boundaries_.begin(), boundaries_.end(), block_.boundaries(round));
      put({number_, round, chosen_});
    }
    make_known(round);
  }

  /// Receiver: learns the groups of `round`, in its Start or before its match. @errors kProtocol
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
    std::uint64_t number = 0;  ///< the plan's; 0: none yet
    std::uint64_t first_round = 0;
    std::shared_ptr<const Layout> layout;
  };
  void make_known(std::uint64_t round) {
    // release: publishes the place; pairs with the acquire of hold() and may_wait().
    last_rounds_[round & 1].store(round, std::memory_order_release);
  }
  void put(Place place) {
    // relaxed: make_known() publishes it.
    has_groups_[place.first_round & 1].store(place.layout->has_groups() ? 1 : 0,
                                             std::memory_order_relaxed);
    const std::scoped_lock lock(mutex_);  // holds no atomics: their test doubles yield
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
  mutable std::mutex mutex_;  // protects places_ against hold()
  // Sender.
  std::uint64_t number_ = 0;
  std::vector<std::uint32_t> boundaries_;
  std::shared_ptr<const Layout> chosen_;
};

}  // namespace larklane::part
