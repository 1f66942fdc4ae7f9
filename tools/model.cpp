#include "model.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/config.hpp"
#include "fit.hpp"
#include "measure/json_text.hpp"
#include "model/groups.hpp"
#include "model/plan.hpp"
#include "model/readiness.hpp"
#include "model/tuning_file.hpp"
#include "run.hpp"
#include "size_text.hpp"

namespace larklane::tools {
namespace {

/// One size: microseconds after the last partition is ready, by number of transport partitions.
struct Row {
  std::uint64_t bytes;
  std::vector<double> exposed_us;
  std::uint32_t best;
};

std::vector<std::uint32_t> counts(std::uint32_t most) {
  std::vector<std::uint32_t> found;
  for (std::uint64_t count = 1; count <= most; count *= 2)
    found.push_back(static_cast<std::uint32_t>(count));
  return found;
}

/// @return the error in the options; empty: none
std::string refusal(const ModelRequest& request) {
  constexpr std::uint64_t kTimesMax = 1 << 21;  // a few seconds
  if (std::string why = request.size_error(); !why.empty()) return why;
  return request.has_chance() ? request.rounds_error(kTimesMax) : std::string();
}

void print_table(const ModelRequest& request, const std::vector<Row>& rows) {
  std::printf(
      "# PLogGP: microseconds from the last partition's readiness to the end, by number of "
      "transport partitions\n"
      "# L %g, o_s %g, o_r %g, g %g ns, %g GB/s, %g ns for each part%s\n"
      "# %u partitions, %s",
      request.latency_ns, request.send_overhead_ns, request.recv_overhead_ns, request.gap_ns,
      request.gigabytes_per_second, request.per_part_ns,
      request.is_receiver_serial ? ", serial receiver" : "", request.partitions,
      request.pattern_text().c_str());
  if (request.has_chance())
    std::printf(", mean of %u rounds, seed %llu", request.rounds,
                static_cast<unsigned long long>(request.seed));
  std::printf("\n%10s", "size");
  for (const std::uint32_t count : counts(request.partitions)) std::printf(" %11u", count);
  std::printf(" %6s\n", "best");
  for (const Row& row : rows) {
    std::printf("%10s", size_text(row.bytes).c_str());
    for (const double us : row.exposed_us) std::printf(" %11.2f", us);
    std::printf(" %6u\n", row.best);
  }
}

void print_json(const ModelRequest& request, const std::vector<Row>& rows) {
  nlohmann::ordered_json root{{"schema", 1},
                              {"what", "exposed_us by number of transport partitions"},
                              {"latency_ns", request.latency_ns},
                              {"send_overhead_ns", request.send_overhead_ns},
                              {"recv_overhead_ns", request.recv_overhead_ns},
                              {"gap_ns", request.gap_ns},
                              {"gigabytes_per_second", request.gigabytes_per_second},
                              {"per_part_ns", request.per_part_ns},
                              {"is_receiver_serial", request.is_receiver_serial},
                              {"partitions", request.partitions},
                              {"pattern", request.pattern},
                              {"spread_us", request.spread_us},
                              {"rounds", request.rounds},
                              {"seed", request.seed},
                              {"counts", counts(request.partitions)}};
  for (const Row& row : rows)
    root["rows"].push_back(
        {{"bytes", row.bytes}, {"exposed_us", row.exposed_us}, {"best", row.best}});
  std::fputs(bench::json_text(root).c_str(), stdout);
}

/// Sizes down, numbers of partitions across. @param groups  of (partitions, bytes of one)
void print_groups(const ModelRequest& request, const std::string& title, const auto& groups) {
  std::printf("# groups by %s; below: partitions\n%10s", title.c_str(), "size");
  for (const std::uint32_t partitions : counts(request.partitions)) std::printf(" %6u", partitions);
  for (const std::uint64_t bytes : request.sizes()) {
    std::printf("\n%10s", size_text(bytes).c_str());
    for (const std::uint32_t partitions : counts(request.partitions))
      std::printf(" %6u", groups(partitions, bytes / partitions));
  }
  std::printf("\n");
}

/// Plans that the policies with a tuning make of that of this host. @return the exit status
int print_tuned(const ModelRequest& request) {
  namespace tuned = larklane::model;
  std::vector<Config::Problem> problems;
  auto config = Config::load(&problems);
  if (!config) {
    std::fprintf(stderr, "larklane model: %s\n", problems.front().text.c_str());
    return kRefused;
  }
  const auto file = tuned::find_tuning(config->tuning, tuned::kShmFabric, tuned::this_host());
  if (!file.problem.empty())
    std::fprintf(stderr, "larklane model: warning: %s\n", file.problem.c_str());
  const tuned::Tuning* const tuning = file.tuning ? &*file.tuning : nullptr;
  std::printf("# tuning: %s\n", tuning == nullptr ? "none, so by the rule" : file.path.c_str());
  char ploggp[64];
  std::snprintf(ploggp, sizeof ploggp, "ploggp, %g us late", request.spread_us);
  print_groups(request, ploggp, [&](std::uint32_t partitions, std::uint64_t bytes) {
    return tuned::modelled_groups(tuning, partitions, bytes, request.spread_us * 1e3);
  });
  print_groups(request, "table", [&](std::uint32_t partitions, std::uint64_t bytes) {
    return tuned::tabled_groups(tuning, partitions, bytes);
  });
  return 0;
}

}  // namespace

int model(const ModelRequest& request) {
  if (!request.fit.empty()) return fit(request.fit);
  if (request.tuned) return print_tuned(request);
  namespace ploggp = larklane::model;
  const auto pattern = ploggp::pattern_named(request.pattern);
  if (!pattern) {
    std::fprintf(stderr, "larklane model: no pattern '%s'\n", request.pattern.c_str());
    return kRefused;
  }
  if (const std::string why = refusal(request); !why.empty()) {
    std::fprintf(stderr, "larklane model: %s\n", why.c_str());
    return kRefused;
  }
  const ploggp::Medium medium{.network = {.latency_ns = request.latency_ns,
                                          .send_overhead_ns = request.send_overhead_ns,
                                          .recv_overhead_ns = request.recv_overhead_ns,
                                          .gap_ns = request.gap_ns,
                                          .gap_per_byte_ns = 1 / request.gigabytes_per_second},
                              .per_part_ns = request.per_part_ns,
                              .is_receiver_serial = request.is_receiver_serial};
  const auto rounds = ploggp::readiness(
      *pattern, request.spread_us * 1e3, request.partitions,
      request.has_chance() ? request.rounds : larklane::model::kPatternPeriod, request.seed);
  std::vector<Row> rows;
  for (const std::uint64_t bytes : request.sizes()) {
    Row row{bytes, {}, 1};
    const ploggp::Workload workload{medium, bytes / request.partitions, rounds};
    row.best = ploggp::best_power_of_two(request.partitions, [&](std::uint32_t count) {
      row.exposed_us.push_back(
          ploggp::exposed_ns(workload, ploggp::equal_groups(request.partitions, count)) / 1e3);
      return row.exposed_us.back();
    });
    rows.push_back(std::move(row));
  }
  request.json ? print_json(request, rows) : print_table(request, rows);
  return 0;
}

}  // namespace larklane::tools
