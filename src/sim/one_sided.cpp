#include "sim/one_sided.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace larklane::sim {
namespace {

using part::kLineBytes;

std::byte* zeroed_lines(std::size_t bytes) {
  auto* const base = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kLineBytes}));
  return std::fill_n(base, bytes, std::byte{}) - bytes;
}

}  // namespace

void OneSided::FreeLines::operator()(std::byte* base) const {
  ::operator delete (base, std::align_val_t{kLineBytes});
}

part::BlockShape OneSided::shape_of(const Scenario& scenario) {
  const auto most = part::LayoutSize::most(scenario.partitions, scenario.partitions);
  return {
      part::Mode::direct,      scenario.partitions, scenario.partitions, most.words, most.roots, 0,
      scenario.partition_bytes};
}

OneSided::OneSided(loop::Simulation& simulation, const Scenario& scenario, Payload& payload)
    : simulation_(simulation),
      scenario_(scenario),
      payload_(payload),
      shape_(shape_of(scenario)),
      memory_(zeroed_lines(part::BlockOffsets::of(shape_).end)),
      view_(memory_.get(), shape_),
      send_(view_, shape_),
      recv_(view_, shape_, scenario.partitions),
      link_(simulation, scenario.network, "the sender's network") {
  view_.construct(shape_, 1);
  if (scenario.is_learned) learning_.emplace(scenario.partitions, scenario.partition_bytes);
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
  send_.start(round);
  Poster poster{*this};
  if (!recv_.open(round, poster).ok()) simulation_.fail("the plan makes no sense");
}

bool OneSided::ready(std::uint64_t round, std::uint32_t partition) {
  if (learning_) learning_->ready(partition, simulation_.now_ps());
  Poster poster{*this};
  return send_.mark(round, {partition, 1}, poster).ok();
}

void OneSided::post(part::Run run) {
  if (!payload_.are_ready(run)) simulation_.fail("posted before its Pready");
  const std::uint64_t began_ps = simulation_.now_ps();
  link_.post(run.count * scenario_.partition_bytes, 0, [this, run, began_ps] {
    payload_.move(run);
    if (learning_) learning_->moved(run, began_ps, simulation_.now_ps());
    arrived_ += run.count;
    completions_.push_back(run);
  });
  ++transfers_;
}

void OneSided::receive(std::uint64_t round) {
  if (scenario_.is_receiver_late)
    simulation_.wait("all partitions", [&] { return arrived_ == scenario_.partitions; });
  Poster poster{*this};
  while (!recv_.complete(round, poster)) {
    simulation_.wait("a completion", [&] { return !completions_.empty(); });
    const part::Run run = completions_.front();
    completions_.pop_front();
    simulation_.spend(scenario_.network.recv_overhead_ps);
    part::publish_moved(view_, round, run);
  }
  if (learning_) learning_->end(simulation_.now_ps());
}

}  // namespace larklane::sim
