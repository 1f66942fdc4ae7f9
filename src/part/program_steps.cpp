#include "part/program_steps.hpp"

namespace larklane::part {

void ProgramSteps::add(StepOwner& owner, const record::Move& step) {
  const std::scoped_lock lock(mutex_);
  steps_.push_back({owner.weak_from_this(), step});
  count_.store(steps_.size(), std::memory_order_relaxed);  // relaxed: a hint
}

std::optional<ProgramSteps::Step> ProgramSteps::take() {
  const std::scoped_lock lock(mutex_);
  if (steps_.empty()) return std::nullopt;
  Step step = std::move(steps_.back());
  steps_.pop_back();
  count_.store(steps_.size(), std::memory_order_relaxed);  // relaxed: a hint
  return step;
}

void ProgramSteps::carry_out() {
  while (const auto step = take())
    if (const auto owner = step->owner.lock()) owner->carry_out_step(step->move);
}

}  // namespace larklane::part
