#include "sim/path.hpp"

#include "sim/one_sided.hpp"
#include "sim/two_sided.hpp"

namespace larklane::sim {

loop::NetworkCosts link_costs(const Scenario& scenario) {
  loop::NetworkCosts costs = scenario.network;
  if (scenario.two_sided) costs.queues = 1;
  return costs;
}

std::unique_ptr<Path> make_path(loop::Simulation& simulation, const Scenario& scenario,
                                Payload& payload, loop::Link& out, loop::Link* back) {
  if (!scenario.two_sided) return std::make_unique<OneSided>(simulation, scenario, payload, out);
  return std::make_unique<TwoSided>(simulation, scenario, payload, out, *back);
}

}  // namespace larklane::sim
