#include "work.hpp"

#include <algorithm>
#include <numeric>

#include "clock.hpp"
#include "measure/random.hpp"

namespace larklane::bench {
namespace {

constexpr std::size_t kScratchBytes = 256 << 10;

}  // namespace

std::vector<double> scratch_memory() { return std::vector<double>(kScratchBytes / sizeof(double)); }

void compute_until(double end_ns, std::vector<double>& scratch) {
  std::size_t at = 0;
  while (now_ns() < end_ns) {
    for (int i = 0; i < 64; ++i, at = (at + 8) % scratch.size()) scratch[at] += 1;
  }
}

std::vector<std::uint32_t> order_of(const Options& o, std::uint32_t thread, std::uint64_t round) {
  std::vector<std::uint32_t> order(o.partitions_per_thread);
  std::iota(order.begin(), order.end(), thread * o.partitions_per_thread);
  if (o.order == Order::descending) std::ranges::reverse(order);
  if (o.order == Order::strided)
    std::ranges::stable_partition(order, [](std::uint32_t p) { return p % 2 == 0; });
  if (o.order == Order::random) {
    Random random(o.seed + 1, thread, round);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  }
  return order;
}

}  // namespace larklane::bench
