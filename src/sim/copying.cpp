#include "sim/copying.hpp"

#include <algorithm>

namespace larklane::sim {
namespace {

/// Of a call: others may begin and end meanwhile.
constexpr std::uint64_t kSteps = 4;

}  // namespace

loop::Costs Copying::processor(const Scenario& scenario) {
  loop::Costs steps = scenario.processor;
  steps.line_transfer_ps = scenario.copying->line_ps;
  steps.poll_ps = scenario.copying->turn_ps / 2;
  return steps;
}

Copying::Copying(loop::Simulation& simulation, const Scenario& scenario, Payload& payload)
    : simulation_(simulation),
      scenario_(scenario),
      costs_(*scenario.copying),
      payload_(payload),
      block_(scenario),
      send_(block_.view, block_.shape),
      recv_(block_.view, block_.shape, scenario.partitions),
      shared_copy_(block_.view.header().shared_copies, scenario.partition_bytes,
                   costs_.piece_bytes),
      thread_of_(scenario.partitions) {
  block_.view.construct(block_.shape, 1);
  for (std::uint64_t t = 0; t < scenario.threads; ++t)
    std::fill(thread_of_.begin() +
                  static_cast<std::ptrdiff_t>(t * scenario.partitions / scenario.threads),
              thread_of_.end(), static_cast<std::uint32_t>(t));
}

void Copying::choose(std::span<const std::uint32_t> boundaries) {
  if (!send_.choose(boundaries).ok()) simulation_.fail("the plan is refused");
}

void Copying::start(std::uint64_t round) {
  transfers_ = 0;
  is_core_free_ = !is_near(scenario_.threads - 1);
  if (round == 1) choose(scenario_.plans.front());
  if (round < scenario_.plans.size()) choose(scenario_.plans[round]);
  send_.start(round);
  Copier copier{*this, kReceiver, round};
  if (!recv_.open(round, copier).ok()) simulation_.fail("the plan makes no sense");
}

bool Copying::ready(std::uint64_t round, std::uint32_t partition) {
  if (partition == 0 || thread_of_[partition] != thread_of_[partition - 1]) {
    const std::uint64_t computed_ps = scenario_.ready_ps[round - 1][partition];
    const double share = std::min(1.0, static_cast<double>(computed_ps) / CopyCosts::kPausePs);
    simulation_.spend(static_cast<std::uint64_t>(static_cast<double>(costs_.first_ps) * share));
  }
  simulation_.spend(costs_.pready_ps);
  const bool on_its_core = is_near(thread_of_[partition]);
  Copier copier{*this, {.is_receiver = false, .is_near = on_its_core}, round};
  const bool is_marked = send_.mark(round, {partition, 1}, copier).ok();
  const bool is_last =
      partition + 1 == scenario_.partitions || thread_of_[partition] != thread_of_[partition + 1];
  if (on_its_core && is_last) {
    is_core_free_ = true;
    simulation_.wake(core_);
  }
  return is_marked;
}

/// As SendChannel::move_now().
void Copying::move(Mover mover, std::uint64_t round, part::Run run) {
  simulation_.spend(costs_.move_ps);
  if (shared_copy_.offer(run)) return work(mover, round);
  copy(mover, {run.first * scenario_.partition_bytes, run.count * scenario_.partition_bytes});
  published(round, run);
}

void Copying::work(Mover mover, std::uint64_t round) {
  const Status status = shared_copy_.work(
      [&](part::Piece piece) {
        copy(mover, piece);
        return Status{};
      },
      [&](part::Run run) { published(round, run); },
      [](part::TakenPiece, part::Run, std::uint64_t) { return part::Passed::with_rest; });
  if (!status.ok()) simulation_.fail("a piece was not copied");
}

/// The side that copies beside the caller.
Beside Copying::beside(Mover mover) const {
  if ((mover.is_receiver ? copying_senders_ : copying_receivers_) != 0) return Beside::receiver;
  return copying_senders_ > 1 ? Beside::sender : Beside::nobody;
}

void Copying::copy(Mover mover, part::Piece piece) {
  std::uint32_t& copying = mover.is_receiver ? copying_receivers_ : copying_senders_;
  ++copying;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const std::uint64_t whole_ps =
        costs_.call_ps(block_.shape.partitions * block_.shape.partition_bytes, piece.length,
                       beside(mover), mover.is_near);
    simulation_.spend(whole_ps * (step + 1) / kSteps - whole_ps * step / kSteps);
  }
  --copying;
  if (!payload_.move_bytes(piece.offset, piece.length))
    simulation_.fail("copied before its Pready");
  simulation_.effect();
}

void Copying::published(std::uint64_t round, part::Run run) {
  ++transfers_;
  part::publish_moved(block_.view, round, run);
}

void Copying::receive(std::uint64_t round) {
  if (!is_core_free_) {
    simulation_.sleep(core_, "its core");
    simulation_.spend(costs_.switch_ps);
  }
  simulation_.wait("the round", [&] {
    if (is_over(round)) return true;
    if (shared_copy_.has_jobs()) work(kReceiver, round);
    return false;
  });
}

bool Copying::is_over(std::uint64_t round) {
  Copier copier{*this, kReceiver, round};
  return recv_.complete(round, copier);
}

bool Copying::arrived(std::uint64_t round, std::uint32_t partition) {
  Copier copier{*this, kReceiver, round};
  return recv_.arrived(round, partition, copier);
}

}  // namespace larklane::sim
