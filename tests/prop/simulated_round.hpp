#pragma once
// The last round of a simulation that must succeed.

#include <gtest/gtest.h>

#include "sim/scenario.hpp"
#include "sim/sweep.hpp"

namespace larklane::sim {

inline std::size_t rounds_in(const Scenario& scenario) { return scenario.ready_ps.size(); }
inline std::size_t rounds_in(const Sweep& sweep) { return rounds_in(sweep.channel); }

template <class Simulated>
Round round_of(const Simulated& simulated) {
  auto outcome = simulate(simulated);
  EXPECT_TRUE(outcome) << "refused";
  if (!outcome) return {};
  EXPECT_EQ(outcome->failure, "");
  EXPECT_EQ(outcome->rounds.size(), rounds_in(simulated));
  return outcome->rounds.empty() ? Round{} : outcome->rounds.back();
}

}  // namespace larklane::sim
