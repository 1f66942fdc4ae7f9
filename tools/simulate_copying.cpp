#include "simulate_copying.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/input_file.hpp"
#include "measure/json_text.hpp"
#include "model/plan.hpp"
#include "model/readiness.hpp"
#include "run.hpp"
#include "sim/scenario.hpp"
#include "size_text.hpp"

namespace larklane::tools {
namespace {

constexpr std::uint64_t kMarksMax = 1 << 16;  // of a figure
/// All partitions of the first thread at the spread, the others at 0.
constexpr std::string_view kLateThread = "late-thread";

struct Figure {
  double exposed_us = 0;  ///< mean of the rounds
  double transfers = 0;
};

struct Row {
  std::uint64_t bytes = 0;
  std::vector<Figure> by_groups;
};

/// @return the error in the options; empty: none
std::string refusal(const SimulateRequest& request, const sim::CopyCosts& costs) {
  if (request.pattern != kLateThread && !model::pattern_named(request.pattern))
    return "no pattern '" + request.pattern + "'";
  if (request.learns) return "--learned: not with --costs";
  if (std::string why = request.size_error(); !why.empty()) return why;
  if (request.threads > request.partitions || request.threads > costs.cores)
    return "--threads: " + std::to_string(request.threads) + " are more than the " +
           std::to_string(request.partitions) + " partitions or the host's " +
           std::to_string(costs.cores) + " cores";
  return request.rounds_error(kMarksMax);
}

sim::Scenario scenario_of(const SimulateRequest& request, const sim::CopyCosts& costs) {
  sim::Scenario scenario;
  scenario.partitions = request.partitions;
  scenario.threads =
      request.threads != 0 ? request.threads : std::min(request.partitions, costs.cores);
  scenario.copying = costs;
  scenario.seed = request.seed;
  std::vector<std::vector<double>> ready_ns(request.rounds,
                                            std::vector<double>(request.partitions));
  if (const auto pattern = model::pattern_named(request.pattern))
    ready_ns = model::readiness(*pattern, request.spread_us * 1e3, request.partitions,
                                request.rounds, request.seed);
  else
    for (auto& round : ready_ns)
      std::fill_n(round.begin(), request.partitions / scenario.threads, request.spread_us * 1e3);
  scenario.ready_ps = sim::ready_ps(ready_ns);
  return scenario;
}

/// @return false after a message
bool add_figure(const sim::Scenario& scenario, Row* row) {
  auto outcome = sim::simulate(scenario);
  if (!outcome || !outcome->failure.empty()) {
    std::fprintf(stderr, "larklane simulate: %s\n",
                 outcome ? outcome->failure.c_str() : "refused by the engine");
    return false;
  }
  Figure figure;
  const auto count = static_cast<double>(outcome->rounds.size());
  for (const sim::Round& round : outcome->rounds) {
    figure.exposed_us += static_cast<double>(round.exposed_ps) * 1e-6 / count;
    figure.transfers += round.transfers / count;
  }
  row->by_groups.push_back(figure);
  return true;
}

double us(std::uint64_t ps) { return static_cast<double>(ps) * 1e-6; }

void print_costs(const sim::CopyCosts& costs) {
  std::printf(
      "# measured: Pready %.3f us, what it adds to a copy %.3f us, to the first one after 1 ms "
      "%.3f us, a line %.3f us, a turn of a "
      "wait "
      "%.3f us, a core that is left %.3f us; pieces of %s, %u cores\n",
      us(costs.pready_ps), us(costs.move_ps), us(costs.first_ps), us(costs.line_ps),
      us(costs.turn_ps), us(costs.switch_ps), size_text(costs.piece_bytes).c_str(), costs.cores);
  std::printf("# a call that copies, us, far from the receiver's core and on it:\n");
  std::printf("# %9s %9s %15s %15s %15s\n", "message", "bytes", "alone", "beside sender",
              "both sides");
  for (const sim::CallCost& call : costs.calls) {
    std::printf("# %9s %9s", size_text(call.message_bytes).c_str(), size_text(call.bytes).c_str());
    for (const sim::CallCost::Pair& pair : call.by_beside)
      std::printf(" %7.2f %7.2f", us(pair.far_ps), us(pair.near_ps));
    std::printf("\n");
  }
}

void print_table(const SimulateRequest& request, const sim::Scenario& scenario,
                 const std::vector<Row>& rows) {
  std::printf(
      "# Simulated: microseconds from the last partition's readiness to the end, by number "
      "of groups\n# over shared memory, costs of %s\n",
      request.costs_file.c_str());
  print_costs(*scenario.copying);
  std::printf("# %u partitions, %u threads, %s", scenario.partitions, scenario.threads,
              request.pattern_text().c_str());
  std::printf(", mean of %zu rounds\n%10s", scenario.ready_ps.size(), "size");
  for (const std::uint32_t count : request.group_counts()) std::printf(" %10u", count);
  std::printf("\n");
  for (const Row& row : rows) {
    std::printf("%10s", size_text(row.bytes).c_str());
    for (const Figure& figure : row.by_groups) std::printf(" %10.2f", figure.exposed_us);
    std::printf("\n");
  }
}

void print_json(const SimulateRequest& request, const sim::Scenario& scenario,
                const std::vector<Row>& rows) {
  nlohmann::ordered_json root{{"schema", 1},
                              {"what", "simulated rounds over shared memory, means"},
                              {"partitions", scenario.partitions},
                              {"threads", scenario.threads},
                              {"pattern", request.pattern},
                              {"spread_us", request.spread_us},
                              {"rounds", scenario.ready_ps.size()},
                              {"seed", request.seed},
                              {"counts", request.group_counts()}};
  for (const Row& row : rows) {
    nlohmann::ordered_json by_groups;
    for (const Figure& figure : row.by_groups)
      by_groups.push_back({{"exposed_us", figure.exposed_us}, {"transfers", figure.transfers}});
    root["rows"].push_back({{"bytes", row.bytes}, {"by_groups", by_groups}});
  }
  std::fputs(bench::json_text(root).c_str(), stdout);
}

}  // namespace

int simulate_copying(const SimulateRequest& request) {
  std::string text, problem;
  const int error = read_input_file(request.costs_file, kTextFileBytesMax, &text);
  std::istringstream lines(text);
  const sim::CopyCosts costs = sim::read_copy_costs(lines, &problem);
  if (error != 0) problem = "can't be read: " + input_file_problem(error, kTextFileBytesMax);
  if (!problem.empty()) {
    std::fprintf(
        stderr,
        "larklane simulate: %s: %s; scripts/measure/simulated.py --costs FILE measures anew\n",
        request.costs_file.c_str(), problem.c_str());
    return kRefused;
  }
  if (const std::string why = refusal(request, costs); !why.empty()) {
    std::fprintf(stderr, "larklane simulate: %s\n", why.c_str());
    return kRefused;
  }
  sim::Scenario scenario = scenario_of(request, costs);
  std::vector<Row> rows;
  for (const std::uint64_t bytes : request.sizes()) {
    scenario.partition_bytes = bytes / scenario.partitions;
    rows.push_back({bytes, {}});
    for (const std::uint32_t count : request.group_counts()) {
      scenario.plans = {model::equal_groups(scenario.partitions, count)};
      if (!add_figure(scenario, &rows.back())) return 1;
    }
  }
  request.json ? print_json(request, scenario, rows) : print_table(request, scenario, rows);
  return 0;
}

}  // namespace larklane::tools
