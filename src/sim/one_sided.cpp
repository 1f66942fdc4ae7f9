#include "sim/one_sided.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace larklane::sim {

OneSided::OneSided(loop::Simulation& simulation, const Scenario& scenario, Payload& payload,
                   loop::Link& out)
    : simulation_(simulation),
      scenario_(scenario),
      payload_(payload),
      block_(scenario),
      send_(block_.view, block_.shape),
      recv_(block_.view, block_.shape, scenario.partitions),
      link_(out) {
  block_.view.construct(block_.shape, 1);
  if (!scenario.policy.empty())
    learning_.emplace(scenario.partitions, scenario.partition_bytes,
                      planner_of(scenario.policy, {scenario.partitions, scenario.partition_bytes,
                                                   scenario.plans.front()}));
  if (scenario.deadline_ps) time_groups(*scenario.deadline_ps);
}

void OneSided::time_groups(std::uint64_t deadline_ps) {
  const part::Layout layout =
      std::move(part::Layout::make(scenario_.partitions, scenario_.plans.front())).value();
  const auto words = static_cast<std::uint32_t>(layout.words().size());
  timed_.emplace(Timed{{block_.view, words, deadline_ps}, {}, std::vector<Timed::Word>(words)});
  for (const part::Cell& cell : layout.cells()) timed_->word_of.push_back(cell.word);
  for (std::uint32_t w = 0; w < words; ++w)
    simulation_.spawn("the deadline of word " + std::to_string(w),
                      [this, w] { watch_deadline(w); });
}

void OneSided::watch_deadline(std::uint32_t index) {
  Timed::Word& word = timed_->words[index];
  for (std::uint64_t seen = 0;;) {
    while (word.round == seen) simulation_.sleep(word.begun, "a first mark");
    seen = word.round;
    const std::uint64_t deadline_ps = word.first_ps + *scenario_.deadline_ps;
    simulation_.spend(std::max(deadline_ps, simulation_.now_ps()) - simulation_.now_ps());
    send_.last_comer().expire(seen, index, [this](part::Run run) { post(run); });
  }
}

void OneSided::choose(std::span<const std::uint32_t> boundaries) {
  if (!send_.choose(boundaries).ok()) simulation_.fail("the plan is refused");
}

/// The groups of the rounds after `round`, if they change.
void OneSided::choose_next(std::uint64_t round) {
  if (!learning_) {
    if (round < scenario_.plans.size()) choose(scenario_.plans[round]);
    return;
  }
  const auto boundaries = learning_->start(simulation_.now_ps());
  if (!boundaries.empty()) choose(boundaries);
}

void OneSided::start(std::uint64_t round) {
  arrived_ = 0;
  transfers_ = 0;
  if (round == 1) choose(scenario_.plans.front());
  choose_next(round);
  if (timed_) timed_->marks.start(round);
  send_.start(round);
  Poster poster{*this};
  if (!recv_.open(round, poster).ok()) simulation_.fail("the plan makes no sense");
}

bool OneSided::ready(std::uint64_t round, std::uint32_t partition) {
  if (learning_) learning_->ready(partition, simulation_.now_ps());
  if (timed_) return ready_in_time(round, partition);
  Poster poster{*this};
  return send_.mark(round, {partition, 1}, poster).ok();
}

bool OneSided::ready_in_time(std::uint64_t round, std::uint32_t partition) {
  const std::uint64_t now_ps = simulation_.now_ps();
  Timed::Word& word = timed_->words[timed_->word_of[partition]];
  if (word.round != round) {
    word.round = round;
    word.first_ps = now_ps;
    simulation_.wake(word.begun);
  }
  return timed_->marks
      .mark(send_.last_comer(), round, {partition, 1}, now_ps, 0,
            [this](part::Run run) { post(run); })
      .ok();
}

void OneSided::post(part::Run run) {
  if (!payload_.are_ready(run)) simulation_.fail("posted before its Pready");
  const std::uint64_t began_ps = simulation_.now_ps();
  link_.post(run.count * scenario_.partition_bytes, 0, [this, run, began_ps] {
    payload_.move(run);
    if (learning_) learning_->moved(run, began_ps, simulation_.now_ps());
    arrived_ += run.count;
    completions_.push_back(run);
    announce(simulation_);
  });
  ++transfers_;
}

void OneSided::receive(std::uint64_t round) {
  if (scenario_.is_receiver_late)
    simulation_.wait("all partitions", [&] { return arrived_ == scenario_.partitions; });
  take_all(simulation_, round, completions_);
  if (learning_) learning_->end(simulation_.now_ps());
}

bool OneSided::take(std::uint64_t round) {
  if (completions_.empty()) return false;
  const part::Run run = completions_.front();
  completions_.pop_front();
  simulation_.spend(scenario_.network.recv_overhead_ps);
  part::publish_moved(block_.view, round, run);
  return true;
}

bool OneSided::is_over(std::uint64_t round) {
  Poster poster{*this};
  return recv_.complete(round, poster);
}

bool OneSided::arrived(std::uint64_t round, std::uint32_t partition) {
  Poster poster{*this};
  return recv_.arrived(round, partition, poster);
}

}  // namespace larklane::sim
