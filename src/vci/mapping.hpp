#pragma once
// Which lane a channel gets, and when a thread looks at others than its own. Pure functions.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.hpp"

namespace larklane::vci {

enum class Mapping : std::uint8_t {
  spread,        ///< each channel a lane that has the fewest
  thread,        ///< channels that one thread makes have one lane; threads take them in turn
  communicator,  ///< channels on one communicator have one lane
  one,           ///< all channels have one lane
};

/// @param text  a name as above @errors kBadOption
Result<Mapping> parse_mapping(std::string_view text) noexcept;

/// The first of those that have the fewest channels, looked at from `from` on, and round.
/// @param channels  by lane; not empty @param from  less than their number
std::uint32_t least_used(std::span<const std::uint32_t> channels, std::uint32_t from) noexcept;

/// How many lanes there may be. @param wanted  option vci_count_max  @param cores  of this process
std::uint32_t lane_count(Mapping mapping, std::uint32_t wanted, std::uint32_t cores) noexcept;

/// Counts when a waiting thread has to poll all lanes: its operation may depend on a lane that no
/// other thread polls (Zambre et al., figure 9). A turn that found something counts, too, for a
/// sixteenth: it served others, and a lane that is always busy must not keep its waiters from the
/// rest. Thread safety: single-owner.
class MissedTurns {
 public:
  /// After each turn on one's own lane. @param most  turns that found nothing, >= 1
  /// @return are all lanes due?
  bool add(bool found, std::uint32_t most) noexcept {
    if (found)
      ++sixteenths_;
    else
      sixteenths_ += 16;
    if (sixteenths_ < 16 * std::uint64_t{most}) return false;
    sixteenths_ = 0;
    return true;
  }

 private:
  std::uint64_t sixteenths_ = 0;
};

/// The same where only these threads make progress. No thread serves a lane that none of them has
/// taken, or that its threads neglect. Such a *stray* lane gets as many turns as a thread's own
/// lane while they find something. So its senders don't starve behind a lane that is always busy.
/// Otherwise it gets half as many each time, so that it costs next to nothing. Thread safety:
/// single-owner.
class SharedTurns {
 public:
  /// After each turn on one's own lane. @return is it time to look at strays, or at all lanes?
  bool add(bool found) noexcept { return (left_ -= found ? 1 : kOfMiss) <= 0; }
  /// @pre add() said so @param most  as MissedTurns::add()'s
  bool are_all_due(std::uint32_t most) noexcept {
    all_left_ -= pause_ - left_;
    if (all_left_ > 0) return false;
    all_left_ = kOfMiss * std::int64_t{most};
    return true;
  }
  /// After that look. @param has_found  on strays
  void pause(bool has_strays, bool has_found, std::uint32_t most) noexcept {
    const std::int64_t longest = kOfMiss * std::int64_t{most};
    pause_ = has_found ? 1 : has_strays ? std::min(2 * pause_, longest) : longest;
    left_ = pause_;
  }

 private:
  static constexpr std::int64_t kOfMiss = 16;

  std::int64_t left_ = 0, pause_ = 0;  // till the next look; from the last one
  std::int64_t all_left_ = 0;
};

}  // namespace larklane::vci
