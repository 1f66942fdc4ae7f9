#include "part/shared/program_steps.hpp"

#include <array>
#include <ctime>
#include <string>
#include <utility>

#include "base/log.hpp"

namespace larklane::part {

void ProgramSteps::add(StepOwner& owner, const record::Move& step) {
  {
    const std::scoped_lock lock(mutex_);
    steps_.push_back({owner.weak_from_this(), step});
    count_.store(steps_.size(), std::memory_order_relaxed);  // relaxed: a hint
    if (std::exchange(is_prompted_, true)) return;
  }
  plane_->post_spare([this] { prompt_program(); });
}

void ProgramSteps::prompt_program() {
  const timespec patience{0, kPatienceNs};
  ::nanosleep(&patience, nullptr);
  std::vector<Step> waiting;
  {
    const std::scoped_lock lock(mutex_);
    is_prompted_ = !steps_.empty();
    if (!is_prompted_) return;
    waiting = steps_;
  }
  bool has_opened = false;
  for (const Step& step : waiting) {
    const auto owner = step.owner.lock();
    const std::array<pid_t, 2> threads{owner ? owner->thread() : 0, thread_};
    const Status status = owner ? owner->open_pages(step.move, threads) : Status{};
    has_opened |= status.ok();
    if (!status.ok())
      log_warn_once("program-steps",
                    "a buffer has pages that only a signal handler of the program opens, and "
                    "the thread that made its request takes no signal (%s): its bytes move once "
                    "one calls MPI; remedy: "
                    "shm_attach=off",
                    std::string(errc_name(status.code())).c_str());
  }
  if (has_opened)
    plane_->post([this] { carry_out_by_helper(); });
  else
    plane_->post_spare([this] { prompt_program(); });
}

/// Steps come back through add() if their pages have been closed again.
void ProgramSteps::carry_out_by_helper() {
  std::vector<Step> steps;
  {
    const std::scoped_lock lock(mutex_);
    steps.swap(steps_);
    count_.store(0, std::memory_order_relaxed);  // relaxed: a hint
    is_prompted_ = false;
  }
  for (const Step& step : steps)
    if (const auto owner = step.owner.lock()) owner->on_move(step.move);
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
