#include "model/ploggp.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace larklane::model {
namespace {

std::vector<Part> by_readiness(std::span<const Part> parts) {
  std::vector<Part> sorted(parts.begin(), parts.end());
  std::ranges::stable_sort(sorted, {}, &Part::ready_ns);
  return sorted;
}

/// From the begin of the last part's injection to the end of all.
double end_ns(const Medium& medium, double last_begin_ns, std::uint64_t last_bytes,
              std::size_t count) {
  const LogGP& network = medium.network;
  const double received = network.message_ns(last_bytes) - network.send_overhead_ns;
  const double serial =
      medium.is_receiver_serial ? static_cast<double>(count - 1) * network.recv_overhead_ns : 0;
  return last_begin_ns + received + serial + static_cast<double>(count) * medium.per_part_ns;
}

}  // namespace

double completion_ns(const Medium& medium, std::span<const Part> parts) {
  return completion_on_queues_ns(medium, parts, 1);
}

double completion_on_queues_ns(const Medium& medium, std::span<const Part> parts,
                               std::uint32_t queues) {
  const std::vector<Part> sorted = by_readiness(parts);
  const LogGP& network = medium.network;
  std::vector<double> queue_free(queues, 0);
  double begin = 0, wire_free = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    double& free = queue_free[i % queues];
    begin = std::max({sorted[i].ready_ns + network.send_overhead_ns, free, wire_free});
    free = begin + network.period_ns(sorted[i].bytes);
    wire_free = begin + network.bytes_ns(sorted[i].bytes);
  }
  return end_ns(medium, begin, sorted.back().bytes, sorted.size());
}

double completion_by_copies_ns(const Copying& medium, std::span<const CopiedPart> parts) {
  std::map<std::uint32_t, std::vector<Part>> left;  // by thread, the first to copy last
  for (const CopiedPart& copied : parts) left[copied.thread].push_back(copied.part);
  for (auto& [thread, own] : left)
    std::ranges::sort(own, std::ranges::greater{},
                      [](const Part& part) { return std::pair(part.ready_ns, part.bytes); });
  std::map<std::uint32_t, double> thread_free;
  double medium_free = 0, last = 0;
  while (!left.empty()) {
    const auto begin_of = [&](const auto& thread) {
      return std::max(thread.second.back().ready_ns, thread_free[thread.first]);
    };
    const auto next = std::ranges::min_element(left, {}, begin_of);
    const double begin = begin_of(*next);
    const auto bytes = static_cast<double>(next->second.back().bytes);
    medium_free = std::max(begin + medium.per_copy_ns, medium_free) + medium.medium_byte_ns * bytes;
    const double alone = begin + medium.per_copy_ns + medium.per_byte_ns * bytes;
    thread_free[next->first] = std::max(alone, medium_free);
    last = std::max(last, thread_free[next->first]);
    next->second.pop_back();
    if (next->second.empty()) left.erase(next);
  }
  return last + medium.latency_ns;
}

namespace closed_form {
namespace {

/// All that does not depend on readiness.
double fixed_ns(const Medium& medium, std::uint32_t count, std::uint64_t bytes) {
  return end_ns(medium, medium.network.send_overhead_ns, bytes, count);
}

}  // namespace

double simultaneous_ns(const Medium& medium, std::uint32_t count, std::uint64_t bytes) {
  return fixed_ns(medium, count, bytes) + (count - 1) * medium.network.period_ns(bytes);
}

double many_before_one_ns(const Medium& medium, std::uint32_t count, std::uint64_t bytes,
                          double delay_ns) {
  return fixed_ns(medium, count, bytes) +
         std::max(delay_ns, (count - 1) * medium.network.period_ns(bytes));
}

double one_before_many_ns(const Medium& medium, std::uint32_t count, std::uint64_t bytes,
                          double delay_ns) {
  if (count == 1) return fixed_ns(medium, count, bytes);
  return two_groups_ns(medium, count, 1, bytes, delay_ns);
}

double uniform_ns(const Medium& medium, std::uint32_t count, std::uint64_t bytes,
                  double spacing_ns) {
  return fixed_ns(medium, count, bytes) +
         (count - 1) * std::max(spacing_ns, medium.network.period_ns(bytes));
}

double two_groups_ns(const Medium& medium, std::uint32_t count, std::uint32_t early,
                     std::uint64_t bytes, double delay_ns) {
  const double step = medium.network.period_ns(bytes);
  return fixed_ns(medium, count, bytes) + std::max(delay_ns, early * step) +
         (count - early - 1) * step;
}

}  // namespace closed_form

std::uint32_t best_power_of_two(std::uint32_t most,
                                const std::function<double(std::uint32_t)>& cost) {
  std::uint32_t best = 1;
  double least = cost(1);
  for (std::uint64_t count = 2; count <= most; count *= 2) {
    const double here = cost(static_cast<std::uint32_t>(count));
    if (!(here < least)) continue;  // nor NaN
    least = here;
    best = static_cast<std::uint32_t>(count);
  }
  return best;
}

std::uint32_t tabled_count(double gap_per_byte_ns, double per_part_ns, std::uint64_t bytes,
                           std::uint32_t most) {
  return best_power_of_two(most, [&](std::uint32_t count) {
    return gap_per_byte_ns * static_cast<double>(bytes) / count + per_part_ns * count;
  });
}

}  // namespace larklane::model
