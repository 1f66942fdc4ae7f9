#include "vci/mapping.hpp"

#include <algorithm>

namespace larklane::vci {

Result<Mapping> parse_mapping(std::string_view text) noexcept {
  if (text == "spread") return Mapping::spread;
  if (text == "thread") return Mapping::thread;
  if (text == "communicator") return Mapping::communicator;
  if (text == "one") return Mapping::one;
  return Errc::kBadOption;
}

std::uint32_t least_used(std::span<const std::uint32_t> channels, std::uint32_t from) noexcept {
  const auto count = static_cast<std::uint32_t>(channels.size());
  std::uint32_t best = from;
  for (std::uint32_t i = 1; i < count; ++i) {
    const std::uint32_t lane = (from + i) % count;
    if (channels[lane] < channels[best]) best = lane;
  }
  return best;
}

std::uint32_t lane_count(Mapping mapping, std::uint32_t wanted, std::uint32_t cores) noexcept {
  constexpr std::uint32_t kByItself = 16;  // Zambre et al. measured no more
  if (mapping == Mapping::one) return 1;
  return wanted != 0 ? wanted : std::clamp(cores, 1u, kByItself);
}

}  // namespace larklane::vci
