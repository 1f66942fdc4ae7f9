#include "simulate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "measure/json_text.hpp"
#include "model/plan.hpp"
#include "model/readiness.hpp"
#include "model/tuning.hpp"
#include "run.hpp"
#include "sim/regime.hpp"
#include "sim/scenario.hpp"
#include "sim/sweep.hpp"
#include "simulate_copying.hpp"
#include "size_text.hpp"

namespace larklane::tools {
namespace {

/// The simulated setup, but for sizes and groups.
struct Setup {
  sim::Scenario scenario;
  std::optional<sim::Sweep> sweep;  ///< of many such messages
  sim::TwoSidedCosts two_sided;
  std::size_t first_counted =
      0;  ///< round; before it policies learn from earlier rounds. 0: nothing is learned
  std::string title;
};

/// Over the rounds.
struct Means {
  double exposed_us = 0;
  double total_us = 0;
  double transfers = 0;
  double gigabytes_per_second = 0;  ///< perceived: the message over the exposed time
};

struct Row {
  std::uint64_t bytes = 0;
  std::vector<Means> one_sided;            ///< by number of groups
  std::optional<Means> learned, learning;  ///< in the rounds that count, and before
  /// The entry of a tuning table, and its result.
  struct Best {
    std::uint32_t groups = 0, queues = 0;
    Means means;
  };
  std::optional<Best> searched;
  std::vector<Means> timed;  ///< by deadline
  Means two_sided;
};

std::uint32_t threads_of(const SimulateRequest& request) {
  return request.threads == 0 ? request.partitions : request.threads;
}

std::uint64_t whole_ps(double ns) { return static_cast<std::uint64_t>(std::llround(ns * 1e3)); }

std::uint32_t rounds_of(const SimulateRequest& request) {
  return request.has_chance() || request.adapts() ? request.rounds
                                                  : larklane::model::kPatternPeriod;
}

/// @return nothing if the text is no plane such as 8x8
std::optional<sim::Sweep> sweep_of(const SimulateRequest& request) {
  constexpr std::uint32_t kSideMax = 16;
  sim::Sweep sweep;
  char rest = 0;
  if (std::sscanf(request.sweep.c_str(), "%2ux%2u%c", &sweep.columns, &sweep.rows, &rest) != 2 ||
      sweep.columns - 1 >= kSideMax || sweep.rows - 1 >= kSideMax)
    return std::nullopt;
  sweep.channel.partitions = request.partitions;
  sweep.channel.threads = threads_of(request);
  sweep.blocks = request.blocks;
  sweep.compute_ps = whole_ps(request.compute_us * 1e3);
  return sweep;
}

/// @return the impossible part of a sweep; empty if it can be
std::string sweep_refusal(const SimulateRequest& request) {
  constexpr std::uint64_t kMarksMax = 1 << 18;  // half a minute for each number of groups
  const auto sweep = sweep_of(request);
  if (!sweep) return "--sweep: '" + request.sweep + "' is no plane of up to 16x16 ranks; say 8x8";
  if (request.partitions % threads_of(request) != 0)
    return "--threads: in a sweep each thread has as many partitions; say a divisor of " +
           std::to_string(request.partitions);
  if (request.learns || request.is_receiver_late)
    return "--sweep goes with neither --learned nor --late-receiver";
  if (request.show == "bandwidth") return "--show: a sweep has no bandwidth; try speedup";
  if (request.searches) return "--sweep does not go with --search";
  const std::uint64_t marks = std::uint64_t{sweep->columns} * sweep->rows * sweep->corners *
                              sweep->blocks * request.partitions;
  if (marks * model::kPatternPeriod > kMarksMax)
    return "--partitions: at most " + std::to_string(kMarksMax * request.partitions / marks / 2) +
           " on so many ranks";
  if (marks * rounds_of(request) > kMarksMax)
    return "--rounds: at most " + std::to_string(kMarksMax / marks) + " of such sweeps";
  return {};
}

/// @return the impossible part; empty if it can be
std::string refusal(const SimulateRequest& request) {
  constexpr std::uint64_t kMarksMax = 1 << 16;  // of a figure: a table takes half a minute
  if (!sim::regime_named(request.regime)) return "no regime '" + request.regime + "'";
  if (!model::pattern_named(request.pattern))
    return "no pattern '" + request.pattern + "' without --costs";
  if (std::string why = request.size_error(); !why.empty()) return why;
  if (request.threads > request.partitions)
    return "--threads: " + std::to_string(request.threads) + " are more than the " +
           std::to_string(request.partitions) + " partitions";
  if (request.adapts() && request.rounds < 2)
    return "--rounds: --learned and --deadline-us take 2 or more";
  if (request.has_chance() || request.adapts())
    if (std::string why = request.rounds_error(kMarksMax); !why.empty()) return why;
  return request.sweep.empty() ? std::string() : sweep_refusal(request);
}

loop::NetworkCosts network_of(const SimulateRequest& request, loop::NetworkCosts network) {
  const auto take = [](std::uint64_t& to, const std::optional<double>& ns) {
    if (ns) to = whole_ps(*ns);
  };
  take(network.latency_ps, request.latency_ns);
  take(network.send_overhead_ps, request.send_overhead_ns);
  take(network.recv_overhead_ps, request.recv_overhead_ns);
  take(network.gap_ps, request.gap_ns);
  if (request.gigabytes_per_second) network.byte_ps = whole_ps(1 / *request.gigabytes_per_second);
  if (request.queues) network.queues = *request.queues;
  return network;
}

Setup setup_of(const SimulateRequest& request) {
  const sim::Regime& regime = *sim::regime_named(request.regime);
  Setup setup{.scenario = {},
              .sweep = sweep_of(request),
              .two_sided = regime.two_sided,
              .first_counted = request.adapts() ? request.rounds / 2 : 0,
              .title = std::string(regime.title)};
  if (request.request_ns) setup.two_sided.request_ps = whole_ps(*request.request_ns);
  sim::Scenario& scenario = setup.scenario;
  scenario.partitions = request.partitions;
  scenario.threads = threads_of(request);
  scenario.network = network_of(request, regime.network);
  scenario.processor = request.is_processor_free ? loop::kFreeCosts : regime.processor;
  scenario.is_receiver_late = request.is_receiver_late;
  scenario.seed = request.seed;
  scenario.ready_ps = sim::ready_ps(model::readiness(*model::pattern_named(request.pattern),
                                                     request.spread_us * 1e3, request.partitions,
                                                     rounds_of(request), request.seed));
  return setup;
}

Means means_of(std::span<const sim::Round> rounds, std::uint64_t bytes) {
  Means means;
  const auto count = static_cast<double>(rounds.size());
  for (const sim::Round& round : rounds) {
    means.exposed_us += static_cast<double>(round.exposed_ps) * 1e-6 / count;
    means.total_us += static_cast<double>(round.total_ps) * 1e-6 / count;
    means.transfers += round.transfers / count;
  }
  means.gigabytes_per_second = static_cast<double>(bytes) / means.exposed_us * 1e-3;
  return means;
}

Result<sim::Outcome> simulated(const Setup& setup, const sim::Scenario& scenario) {
  if (!setup.sweep) return sim::simulate(scenario);
  sim::Sweep sweep = *setup.sweep;
  sweep.channel = scenario;
  return sim::simulate(sweep);
}

/// Simulates all that one size takes. Thread safety: single-owner.
class RowMaker {
 public:
  RowMaker(const SimulateRequest& request, const Setup& setup, std::uint64_t bytes)
      : request_(request), setup_(setup), scenario_(setup.scenario) {
    scenario_.partition_bytes = bytes / scenario_.partitions;
    row_.bytes = bytes;
  }

  /// @return nothing, after a message
  std::optional<Row> row() {
    for (const std::uint32_t count : request_.group_counts()) {
      scenario_.plans = {model::equal_groups(scenario_.partitions, count)};
      row_.one_sided.push_back(counted());
    }
    add_searched();
    add_learned();
    add_timed();
    scenario_.two_sided = setup_.two_sided;
    row_.two_sided = counted();
    return has_failed_ ? std::nullopt : std::optional(std::move(row_));
  }

 private:
  /// Of equal results the fewest groups, then the fewest queue pairs.
  void add_searched() {
    if (!request_.searches) return;
    const std::uint32_t queues_before = scenario_.network.queues;
    for (const std::uint32_t groups : request_.group_counts())
      for (std::uint32_t queues = 1; queues <= std::min(groups, model::Tuning::kQueuesMax);
           queues *= 2) {
        scenario_.plans = {model::equal_groups(scenario_.partitions, groups)};
        scenario_.network.queues = queues;
        const Means made = counted();
        if (!row_.searched || made.exposed_us < row_.searched->means.exposed_us)
          row_.searched = {groups, queues, made};
      }
    scenario_.network.queues = queues_before;
  }
  void add_learned() {
    if (!request_.learns) return;
    scenario_.policy = "learned";
    scenario_.plans = {{0}};
    const std::vector<sim::Round> rounds = rounds_of();
    row_.learned = means(std::span(rounds).subspan(first()));
    row_.learning = means(std::span(rounds).first(first()));
    scenario_.policy.clear();
  }
  void add_timed() {
    scenario_.plans = {sim::timed_groups(scenario_.partitions)};
    for (const double us : request_.deadlines_us) {
      scenario_.deadline_ps = whole_ps(us * 1e3);
      row_.timed.push_back(counted());
    }
    scenario_.deadline_ps.reset();
  }
  Means means(std::span<const sim::Round> rounds) const { return means_of(rounds, row_.bytes); }
  Means counted() {
    const std::vector<sim::Round> rounds = rounds_of();
    return means(std::span(rounds).subspan(first()));
  }
  std::size_t first() const { return has_failed_ ? 0 : setup_.first_counted; }

  std::vector<sim::Round> rounds_of() {
    if (has_failed_) return {};
    auto outcome = simulated(setup_, scenario_);
    if (outcome && outcome->failure.empty()) return std::move(outcome->rounds);
    std::fprintf(stderr, "larklane simulate: %s\n",
                 outcome ? outcome->failure.c_str() : "refused by the engine");
    has_failed_ = true;
    return {};
  }

  const SimulateRequest& request_;
  const Setup& setup_;
  sim::Scenario scenario_;
  Row row_;
  bool has_failed_ = false;
};

/// The table's figure of a result.
double shown(const std::string& what, const Means& result, const Row& row) {
  if (what == "total") return result.total_us;
  if (what == "transfers") return result.transfers;
  if (what == "bandwidth") return result.gigabytes_per_second;
  if (what == "speedup") return row.two_sided.exposed_us / result.exposed_us;
  return result.exposed_us;
}

const char* meaning_of(const std::string& what, bool is_sweep) {
  if (is_sweep && what == "exposed") return "microseconds of a sweep, without its computing";
  if (what == "total") return "microseconds from the round's begin to the end";
  if (what == "transfers") return "transfers of a round";
  if (what == "bandwidth") return "perceived bandwidth in GB/s: the message over the exposed time";
  if (what == "speedup") return "exposed time of the two-sided baseline over that of the groups";
  return "microseconds from the last partition's readiness to the end";
}

void print_parameters(const SimulateRequest& request, const Setup& setup) {
  const loop::NetworkCosts& network = setup.scenario.network;
  std::printf("# %s: %s. Nothing is fitted to a result.\n", request.regime.c_str(),
              setup.title.c_str());
  for (const sim::Parameter& each : sim::regime_named(request.regime)->parameters)
    std::printf("#   %-26.*s %-13.*s %.*s\n", static_cast<int>(each.name.size()), each.name.data(),
                static_cast<int>(each.value.size()), each.value.data(),
                static_cast<int>(each.source.size()), each.source.data());
  std::printf(
      "# used: L %g, o_s %g, o_r %g, g %g ns, G %llu ps (%g GB/s), %u queue%s%s%s\n",
      static_cast<double>(network.latency_ps) * 1e-3,
      static_cast<double>(network.send_overhead_ps) * 1e-3,
      static_cast<double>(network.recv_overhead_ps) * 1e-3,
      static_cast<double>(network.gap_ps) * 1e-3, static_cast<unsigned long long>(network.byte_ps),
      1e3 / static_cast<double>(network.byte_ps), network.queues, network.queues == 1 ? "" : "s",
      request.is_processor_free ? ", processor's steps free" : "",
      request.is_receiver_late ? ", late receiver" : "");
}

void print_table(const SimulateRequest& request, const Setup& setup, const std::vector<Row>& rows) {
  std::printf("# Simulated: %s, by number of groups (1: bulk, %u: none)\n",
              meaning_of(request.show, setup.sweep.has_value()), request.partitions);
  print_parameters(request, setup);
  std::printf("# %u partitions, %u threads%s, %s", request.partitions, threads_of(request),
              threads_of(request) > 2 ? " (more than 2: extrapolated)" : "",
              request.pattern_text().c_str());
  if (request.has_chance() || request.adapts())
    std::printf(", mean of %s%u rounds", request.adapts() ? "the second half of " : "",
                request.rounds);
  if (setup.sweep)
    std::printf("\n# a sweep from %u corners over %u x %u ranks that compute for %g us",
                setup.sweep->corners, setup.sweep->columns, setup.sweep->rows, request.compute_us);
  if (setup.sweep && setup.sweep->blocks > 1)
    std::printf(" for each partition of %u blocks", setup.sweep->blocks);
  std::printf(", seed %llu\n%10s", static_cast<unsigned long long>(request.seed), "size");
  for (const std::uint32_t count : request.group_counts()) std::printf(" %10u", count);
  if (request.searches) std::printf(" %10s %8s", "table", "by");
  if (request.learns) std::printf(" %10s", "learned");
  for (const double us : request.deadlines_us) std::printf(" %7g us", us);
  std::printf(" %10s\n", "two-sided");
  for (const Row& row : rows) {
    std::printf("%10s", size_text(row.bytes).c_str());
    for (const Means& result : row.one_sided)
      std::printf(" %10.2f", shown(request.show, result, row));
    if (row.searched)
      std::printf(
          " %10.2f %8s", shown(request.show, row.searched->means, row),
          (std::to_string(row.searched->groups) + "x" + std::to_string(row.searched->queues))
              .c_str());
    if (row.learned) std::printf(" %10.2f", shown(request.show, *row.learned, row));
    for (const Means& result : row.timed) std::printf(" %10.2f", shown(request.show, result, row));
    std::printf(" %10.2f\n", shown(request.show, row.two_sided, row));
  }
}

nlohmann::ordered_json json_of(const Means& result) {
  return {{"exposed_us", result.exposed_us},
          {"total_us", result.total_us},
          {"transfers", result.transfers},
          {"perceived_gigabytes_per_second", result.gigabytes_per_second}};
}

void print_json(const SimulateRequest& request, const Setup& setup, const std::vector<Row>& rows) {
  const sim::Scenario& scenario = setup.scenario;
  nlohmann::ordered_json root{{"schema", 1},
                              {"what", "simulated rounds, means"},
                              {"regime", request.regime},
                              {"latency_ps", scenario.network.latency_ps},
                              {"send_overhead_ps", scenario.network.send_overhead_ps},
                              {"recv_overhead_ps", scenario.network.recv_overhead_ps},
                              {"gap_ps", scenario.network.gap_ps},
                              {"byte_ps", scenario.network.byte_ps},
                              {"queues", scenario.network.queues},
                              {"two_sided_request_ps", setup.two_sided.request_ps},
                              {"is_processor_free", request.is_processor_free},
                              {"is_receiver_late", request.is_receiver_late},
                              {"partitions", scenario.partitions},
                              {"threads", scenario.threads},
                              {"is_extrapolated", scenario.threads > 2},
                              {"pattern", request.pattern},
                              {"spread_us", request.spread_us},
                              {"rounds", scenario.ready_ps.size() - setup.first_counted},
                              {"seed", request.seed},
                              {"counts", request.group_counts()}};
  if (request.adapts()) root["first_counted"] = setup.first_counted;
  if (!request.deadlines_us.empty()) root["deadlines_us"] = request.deadlines_us;
  if (setup.sweep)
    root["sweep"] = {{"columns", setup.sweep->columns},  {"rows", setup.sweep->rows},
                     {"corners", setup.sweep->corners},  {"blocks", setup.sweep->blocks},
                     {"compute_us", request.compute_us}, {"steps", sim::steps(*setup.sweep)}};
  for (const sim::Parameter& each : sim::regime_named(request.regime)->parameters)
    root["parameters"].push_back(
        {{"name", each.name}, {"value", each.value}, {"source", each.source}});
  for (const Row& row : rows) {
    nlohmann::ordered_json one_sided;
    for (const Means& result : row.one_sided) one_sided.push_back(json_of(result));
    root["rows"].push_back(
        {{"bytes", row.bytes}, {"one_sided", one_sided}, {"two_sided", json_of(row.two_sided)}});
    if (row.searched) {
      auto& searched = root["rows"].back()["searched"] = json_of(row.searched->means);
      searched["groups"] = row.searched->groups;
      searched["queues"] = row.searched->queues;
    }
    if (row.learned) {
      root["rows"].back()["learned"] = json_of(*row.learned);
      root["rows"].back()["learning"] = json_of(*row.learning);
    }
    for (const Means& result : row.timed) root["rows"].back()["timed"].push_back(json_of(result));
  }
  std::fputs(bench::json_text(root).c_str(), stdout);
}

}  // namespace

int simulate(const SimulateRequest& request) {
  if (!request.costs_file.empty()) return simulate_copying(request);
  if (const std::string why = refusal(request); !why.empty()) {
    std::fprintf(stderr, "larklane simulate: %s\n", why.c_str());
    return kRefused;
  }
  const Setup setup = setup_of(request);
  std::vector<Row> rows;
  for (const std::uint64_t bytes : request.sizes()) {
    auto row = RowMaker(request, setup, bytes).row();
    if (!row) return 1;
    rows.push_back(std::move(*row));
  }
  request.json ? print_json(request, setup, rows) : print_table(request, setup, rows);
  return 0;
}

}  // namespace larklane::tools
