#pragma once
// Networks inside one process, and the names that their tests use.

#include <cstdint>

#include "net/loop/fabric.hpp"
#include "net_pair.hpp"

namespace larklane::loop {

using net::bytes_of;
using net::expect_posted;
using net::Pair;
using net::Post;
using net::Sent;

inline Fabric::Options seeded(std::uint64_t seed) {
  Fabric::Options options;
  options.seed = seed;
  return options;
}

/// Nothing moves but by turn() and settle().
inline Fabric::Options turned(std::uint64_t seed = Fabric::Options().seed) {
  Fabric::Options options = seeded(seed);
  options.turns_per_poll = 0;
  return options;
}

}  // namespace larklane::loop
