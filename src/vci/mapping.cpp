#include "vci/mapping.hpp"

#include <algorithm>

namespace larklane::vci {

Result<Mapping> parse_mapping(std::string_view text) noexcept {
  if (text == "round_robin") return Mapping::round_robin;
  if (text == "thread") return Mapping::thread;
  if (text == "one") return Mapping::one;
  return Errc::kBadOption;
}

std::uint32_t lane_of(Mapping mapping, std::uint64_t channel, std::uint64_t thread,
                      std::uint32_t lanes) noexcept {
  switch (mapping) {
    case Mapping::round_robin:
      return static_cast<std::uint32_t>(channel % lanes);
    case Mapping::thread:
      return static_cast<std::uint32_t>(thread % lanes);
    case Mapping::one:
      break;
  }
  return 0;
}

std::uint32_t lane_count(std::uint32_t wanted, std::uint32_t cores) noexcept {
  constexpr std::uint32_t kByItself = 16;  // Zambre et al. measured no more
  return wanted != 0 ? wanted : std::clamp(cores, 1u, kByItself);
}

}  // namespace larklane::vci
