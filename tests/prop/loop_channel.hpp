#pragma once
// One channel on the simulation: the engine's own SendSide and RecvSide between virtual threads,
// with a judge that knows what every byte has to be at every moment.

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

/// All rounds of `c`; the seed decides everything else: threads, order and size of the marks, who
/// is held back, who expires, who stalls, who starts first, which plan is whose round's.
/// @return  empty, or what went wrong
std::string run_case(const Case& c, std::uint64_t seed);

}  // namespace larklane::part::prop
