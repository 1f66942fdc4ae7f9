#pragma once
// Groups rounded to whole cells, the units that a network transfers. Pure functions.

#include <cstdint>
#include <vector>

#include "net/immediate.hpp"
#include "part/protocol/layout.hpp"

namespace larklane::part {

/// The same groups, each of whole cells. None is larger than a layout leaves whole, except a single
/// cell. @param wanted  first partition of each group @param most  partitions of one group
std::vector<std::uint32_t> cell_boundaries(std::uint32_t partitions,
                                           const std::vector<std::uint32_t>& wanted,
                                           std::uint32_t most = kGroupPartitionsMax);

}  // namespace larklane::part
