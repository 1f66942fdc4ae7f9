#pragma once
// One channel on the simulation: the engine's own SendSide and RecvSide between virtual threads,
// with a judge that knows every byte at every moment.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "part/protocol/block.hpp"

namespace larklane::part::prop {

struct Case {
  std::uint32_t send_partitions;
  std::uint32_t recv_partitions;
  Mode mode;
  std::vector<std::vector<std::uint32_t>>
      plans;                 ///< direct: boundaries of groups, one of these a round
  std::uint64_t unit_bytes;  ///< total = unit_bytes * lcm(partitions)
  std::uint64_t rounds = 3;
  std::string text() const;
};

/// All rounds of `c`. The seed decides everything else: threads, order and size of the marks, which
/// threads are held back, expire, stall or start first, and the plan of each round. @return  empty,
/// or the failure
std::string run_case(const Case& c, std::uint64_t seed);

}  // namespace larklane::part::prop
