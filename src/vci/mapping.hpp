#pragma once
// Which lane a channel gets, and when a thread looks at others than its own. Pure functions.

#include <cstdint>
#include <string_view>

#include "base/status.hpp"

namespace larklane::vci {

enum class Mapping : std::uint8_t {
  round_robin,  ///< each channel the next lane
  thread,       ///< channels that one thread makes have one lane; threads take them in turn
  one,          ///< all channels have one lane
};

/// @param text  `round_robin`, `thread` or `one` @errors kBadOption
Result<Mapping> parse_mapping(std::string_view text) noexcept;

/// @param channel  how many were made before  @param thread  how many threads made one before
/// @param lanes    >= 1  @return less than `lanes`
std::uint32_t lane_of(Mapping mapping, std::uint64_t channel, std::uint64_t thread,
                      std::uint32_t lanes) noexcept;

/// How many lanes there may be. @param wanted  option vci_count_max  @param cores  of this process
std::uint32_t lane_count(std::uint32_t wanted, std::uint32_t cores) noexcept;

/// When a thread that waits has to look at all lanes: what it waits for may hang on one that nobody
/// else polls (Zambre et al., figure 9). A turn that found something counts, too, for a sixteenth:
/// it was for others, and a lane that is always busy must not keep its waiters from the rest.
/// Thread safety: single-owner.
class MissedTurns {
 public:
  /// After each turn on one's own lane. @param most  turns that found nothing, >= 1
  /// @return are all lanes due?
  bool add(bool found, std::uint32_t most) noexcept {
    sixteenths_ += found ? 1 : 16;
    if (sixteenths_ < 16 * std::uint64_t{most}) return false;
    sixteenths_ = 0;
    return true;
  }

 private:
  std::uint64_t sixteenths_ = 0;
};

}  // namespace larklane::vci
