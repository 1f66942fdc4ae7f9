#include "part/network/cells.hpp"

#include <algorithm>

namespace larklane::part {

std::vector<std::uint32_t> cell_boundaries(std::uint32_t partitions,
                                           const std::vector<std::uint32_t>& wanted,
                                           std::uint32_t most) {
  const net::Cells cells(partitions);
  const std::uint32_t cell_partitions = (partitions + cells.count() - 1) / cells.count();
  const std::uint32_t cells_most = std::max(most / cell_partitions, 1u);
  std::vector<std::uint32_t> firsts;
  for (std::size_t g = 0; g < wanted.size(); ++g) {
    const std::uint32_t end = g + 1 < wanted.size() ? cells.cell_of(wanted[g + 1]) : cells.count();
    for (std::uint32_t cell = cells.cell_of(wanted[g]); cell < end; cell += cells_most)
      firsts.push_back(cells.begin(cell));
  }
  return firsts;
}

}  // namespace larklane::part
