#pragma once
// Outcomes of simulations that must succeed.

#include <gtest/gtest.h>

#include <sstream>
#include <string>

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

/// The whole outcome.
template <class Simulated>
std::string text_of(const Simulated& simulated) {
  auto outcome = simulate(simulated);
  std::ostringstream text;
  for (const Round& round : outcome->rounds)
    text << round.total_ps << ' ' << round.exposed_ps << ' ' << round.transfers << '\n';
  return text.str() + outcome->failure;
}

}  // namespace larklane::sim
