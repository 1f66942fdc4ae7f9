#pragma once
// Groups as a network takes them. Pure functions.

#include <cstdint>
#include <vector>

#include "net/immediate.hpp"
#include "part/protocol/layout.hpp"

namespace larklane::part {

/// The same groups, each a number of whole cells, and none larger than a layout leaves whole,
/// unless it is one cell. @param wanted  first partition of each group @param most  partitions of
/// one
std::vector<std::uint32_t> cell_boundaries(std::uint32_t partitions,
                                           const std::vector<std::uint32_t>& wanted,
                                           std::uint32_t most = kGroupPartitionsMax);

}  // namespace larklane::part
