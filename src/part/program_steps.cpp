#include "part/program_steps.hpp"

#include <algorithm>
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

/// No thread of the program can take a step that is in hand: its round is not complete, so that the
/// buffer stays the library's.
void ProgramSteps::prompt_program() {
  std::int64_t ns = 0;
  {
    const std::scoped_lock lock(mutex_);
    ns = patience_ns_;
  }
  const timespec patience{ns / 1'000'000'000, ns % 1'000'000'000};
  ::nanosleep(&patience, nullptr);
  std::vector<Step> steps;
  {
    const std::scoped_lock lock(mutex_);
    is_prompted_ = !steps_.empty();
    if (!is_prompted_) return;
    steps.swap(steps_);
    count_.store(0, std::memory_order_relaxed);  // relaxed: a hint
    // relaxed: under the mutex, which has_steps_in_hand()'s caller has taken since.
    in_hand_.store(true, std::memory_order_relaxed);
  }
  bool has_opened = false;
  pid_t deaf = 0;  // it made requests, and took no signal
  for (const Step& step : steps) {
    const auto owner = step.owner.lock();
    if (owner && owner->thread() == deaf) continue;
    const std::array<pid_t, 2> threads{owner ? owner->thread() : 0, thread_};
    const Status status = owner ? owner->open_pages(step.move, threads) : Status{};
    has_opened |= status.ok();
    if (status.ok()) continue;
    deaf = threads[0];
    log_warn_once(
        "program-steps",
        "a buffer has pages that only a signal handler of the program opens, and the "
        "thread that made its request takes no signal (%s): its bytes move once one calls "
        "MPI; remedy: shm_attach=off",
        std::string(errc_name(status.code())).c_str());
  }
  if (has_opened) return plane_->post([this, steps] { carry_out_by_helper(steps); });
  {
    const std::scoped_lock lock(mutex_);
    steps_.insert(steps_.end(), steps.begin(), steps.end());
    count_.store(steps_.size(), std::memory_order_relaxed);  // relaxed: a hint
    give_back_locked();
  }
  plane_->post_spare([this] { prompt_program(); });
}

/// Steps come back through add() if their pages have been closed again.
void ProgramSteps::carry_out_by_helper(const std::vector<Step>& steps) {
  for (const Step& step : steps)
    if (const auto owner = step.owner.lock()) owner->on_move(step.move);
  {
    const std::scoped_lock lock(mutex_);
    give_back_locked();
    is_prompted_ = !steps_.empty();
    if (!is_prompted_) return;
  }
  plane_->post_spare([this] { prompt_program(); });
}

/// Longer pauses while steps remain: each attempt interrupts the program.
void ProgramSteps::give_back_locked() {
  patience_ns_ = steps_.empty() ? kPatienceNs : std::min(2 * patience_ns_, kPatienceMostNs);
  // release: pairs with has_steps_in_hand()'s acquire: the steps have been carried out.
  in_hand_.store(false, std::memory_order_release);
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
