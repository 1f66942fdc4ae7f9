// Simulated rounds of one message (scenario.hpp): its threads, marks and waits.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "model/plan.hpp"
#include "net/loop/simulation.hpp"
#include "part/policy/deadline.hpp"
#include "sim/copying.hpp"
#include "sim/learning.hpp"
#include "sim/path.hpp"
#include "sim/payload.hpp"
#include "sim/scenario.hpp"

namespace larklane::sim {
namespace {

/// Between both sides' Start and a round's begin.
constexpr std::uint64_t kPausePs = 1'000'000;

/// The rounds of one scenario.
class Rounds {
 public:
  explicit Rounds(const Scenario& scenario)
      : scenario_(scenario),
        simulation_(
            {.seed = scenario.seed,
             .deadline_ps = std::numeric_limits<std::uint64_t>::max(),
             .costs = scenario.copying ? Copying::processor(scenario) : scenario.processor}),
        payload_(scenario.partitions, scenario.partition_bytes),
        out_(simulation_, link_costs(scenario), "the sender's network") {
    if (scenario.two_sided)
      back_.emplace(simulation_, link_costs(scenario), "the receiver's network");
    if (scenario.copying)
      path_ = std::make_unique<Copying>(simulation_, scenario, payload_);
    else
      path_ = make_path(simulation_, scenario, payload_, out_, back_ ? &*back_ : nullptr);
    for (std::uint32_t t = 0; t < scenario.threads; ++t)
      simulation_.spawn("thread " + std::to_string(t), [this, t] { compute(t); });
    simulation_.spawn("the receiver", [this] { receive(); });
  }

  Outcome run() {
    outcome_.failure = simulation_.run();
    return std::move(outcome_);
  }

 private:
  void compute(std::uint32_t thread) {
    const std::uint64_t partitions = scenario_.partitions;
    const auto first = static_cast<std::uint32_t>(thread * partitions / scenario_.threads);
    const auto end = static_cast<std::uint32_t>((thread + 1) * partitions / scenario_.threads);
    for (std::uint64_t round = 1; round <= scenario_.ready_ps.size(); ++round) {
      // The first one may have begun already.
      if (round_ < round) simulation_.sleep(begin_, "the round's begin");
      for (std::uint32_t p = first; p < end; ++p) {
        const std::uint64_t ready_ps = begin_ps_ + scenario_.ready_ps[round - 1][p];
        const std::uint64_t now_ps = simulation_.now_ps();
        if (now_ps < ready_ps) simulation_.spend(ready_ps - now_ps);
        payload_.fill(round, p);
        if (!path_->ready(round, p)) simulation_.fail("Pready failed");
      }
      ++finished_;
      simulation_.effect();
    }
  }

  void receive() {
    for (std::uint64_t round = 1; round <= scenario_.ready_ps.size(); ++round) {
      payload_.clear();
      path_->start(round);
      round_ = round;
      begin_ps_ = simulation_.now_ps() + kPausePs;
      simulation_.wake(begin_);
      simulation_.spend(kPausePs);
      path_->receive(round);
      note(round);
      simulation_.wait("the threads", [&] { return finished_ == round * scenario_.threads; });
    }
  }

  void note(std::uint64_t round) {
    if (!payload_.has_arrived(round)) simulation_.fail("a byte is not what was sent");
    const std::uint64_t total_ps = simulation_.now_ps() - begin_ps_;
    const std::uint64_t last_ps = std::ranges::max(scenario_.ready_ps[round - 1]);
    outcome_.rounds.push_back({total_ps, total_ps - last_ps, path_->transfers()});
  }

  const Scenario& scenario_;
  loop::Simulation simulation_;
  Payload payload_;
  loop::Link out_;
  std::optional<loop::Link> back_;
  std::unique_ptr<Path> path_;
  loop::Simulation::Event begin_;
  std::uint64_t round_ = 0, begin_ps_ = 0;
  std::uint64_t finished_ = 0;  // threads, of all rounds
  Outcome outcome_;
};

}  // namespace

bool is_possible(const Scenario& scenario) {
  const auto fits = [&](const auto& times) { return times.size() == scenario.partitions; };
  const auto makes_groups = [&](const auto& boundaries) {
    return part::Layout::make(scenario.partitions, boundaries).has_value();
  };
  const auto can_be_timed = [&] {
    return scenario.plans.size() == 1 && scenario.policy.empty() &&
           part::Layout::make(scenario.partitions, scenario.plans.front())->roots().empty();
  };
  const auto& copying = scenario.copying;
  if (copying && (copying->calls.empty() || scenario.threads > copying->cores ||
                  !scenario.policy.empty() || scenario.two_sided || scenario.deadline_ps))
    return false;
  return scenario.partitions != 0 && scenario.threads != 0 &&
         scenario.threads <= scenario.partitions && scenario.network.queues != 0 &&
         std::ranges::all_of(scenario.ready_ps, fits) && !scenario.plans.empty() &&
         std::ranges::all_of(scenario.plans, makes_groups) &&
         (!scenario.deadline_ps || can_be_timed()) &&
         (scenario.policy.empty() || planner_of(scenario.policy, {1, 1, {0}}) != nullptr);
}

Result<Outcome> simulate(const Scenario& scenario) {
  if (!is_possible(scenario)) return Status(Errc::kInvalidArgument);
  return Rounds(scenario).run();
}

std::vector<std::uint32_t> timed_groups(std::uint32_t partitions) {
  return model::equal_groups(partitions, static_cast<std::uint32_t>(part::words_of(partitions)));
}

std::vector<std::vector<std::uint64_t>> ready_ps(const std::vector<std::vector<double>>& ready_ns) {
  std::vector<std::vector<std::uint64_t>> rounds;
  for (const std::vector<double>& times : ready_ns) {
    rounds.emplace_back();
    for (const double ns : times)
      rounds.back().push_back(static_cast<std::uint64_t>(std::llround(ns * 1e3)));
  }
  return rounds;
}

}  // namespace larklane::sim
