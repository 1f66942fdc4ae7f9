// Policy `learned`: the groups of `min_bytes` at first, then those that a Learner has found.

#include <utility>

#include "part/policy/learned/learner.hpp"
#include "part/policy/registry.hpp"

namespace larklane::part {
namespace {

/// Thread safety: as Planner.
class LearnedPlanner final : public Planner {
 public:
  explicit LearnedPlanner(PlannedChannel channel)
      : cells_(channel.partitions),
        base_(std::move(channel.base)),
        learner_(channel.partitions, channel.partition_bytes, cells_.firsts(base_), channel.seed) {}

  Turn on_start(std::uint64_t starts) override {
    const Learner::Turn turn = learner_.turn(starts);
    return {turn.is_sampled, turn.has_changed, learner_.next_turn()};
  }
  std::vector<std::uint32_t> groups() const override {
    return learner_.is_at_base() ? base_ : cells_.boundaries(learner_.firsts());
  }
  std::function<void()> on_round_done(SeenRound round) override {
    auto study = learner_.see(std::move(round));
    if (!study) return {};
    return [study] {
      if (study.use_count() > 1) study->run();  // else the channel has been freed
    };
  }

 private:
  const PlanCells cells_;
  const std::vector<std::uint32_t> base_;
  Learner learner_;
};

class Learned final : public Policy {
 public:
  explicit Learned(PolicyPointer base) : base_(std::move(base)) {}
  std::vector<std::uint32_t> groups(std::uint32_t partitions,
                                    std::uint64_t partition_bytes) const override {
    return base_->groups(partitions, partition_bytes);
  }
  PolicyNeeds needs() const noexcept override {
    return {.has_planner = true, .is_on_demand = true};
  }
  std::unique_ptr<Planner> planner(PlannedChannel channel) const override {
    return std::make_unique<LearnedPlanner>(std::move(channel));
  }

 private:
  const PolicyPointer base_;
};

}  // namespace

PolicyPointer make_learned(std::optional<std::uint64_t>, const PolicyInputs& inputs) {
  return std::make_shared<Learned>(make_min_bytes(std::nullopt, inputs));
}

}  // namespace larklane::part
