#include "clock.hpp"

#include <vector>

#include "statistics.hpp"

namespace larklane::bench {

double timer_cost_ns() {
  std::vector<double> costs(1001);
  for (double& cost : costs) {
    const double began = now_ns();
    cost = now_ns() - began;
  }
  return quantile(costs, 0.5);
}

}  // namespace larklane::bench
