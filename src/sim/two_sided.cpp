#include "sim/two_sided.hpp"

namespace larklane::sim {
namespace {

/// An announcement, or a request to read: a header and nothing else.
constexpr std::uint64_t kControlBytes = 64;

}  // namespace

TwoSided::TwoSided(loop::Simulation& simulation, const Scenario& scenario, Payload& payload,
                   loop::Link& out, loop::Link& back)
    : simulation_(simulation),
      scenario_(scenario),
      costs_(*scenario.two_sided),
      payload_(payload),
      forward_(out),
      backward_(back),
      is_there_(scenario.partitions) {}

void TwoSided::start(std::uint64_t) {
  arrived_ = 0;
  completed_ = 0;
  is_there_.assign(is_there_.size(), false);
}

bool TwoSided::ready(std::uint64_t, std::uint32_t partition) {
  if (!payload_.are_ready({partition, 1})) simulation_.fail("sent before it was ready");
  const std::uint64_t bytes = scenario_.partition_bytes;
  const bool is_eager = bytes < costs_.rendezvous_from_bytes;
  const bool is_copied = is_eager && bytes < costs_.zero_copy_from_bytes;
  const auto kind = is_eager ? Completion::Kind::eager : Completion::Kind::announced;
  forward_.post(is_eager ? bytes : kControlBytes,
                costs_.request_ps + (is_copied ? bytes * costs_.copy_byte_ps : 0),
                [this, kind, partition] {
                  ++arrived_;
                  push({kind, partition});
                });
  return true;
}

void TwoSided::receive(std::uint64_t round) {
  if (scenario_.is_receiver_late)
    simulation_.wait("all messages", [&] { return arrived_ == scenario_.partitions; });
  take_all(simulation_, round, completions_);
}

void TwoSided::push(Completion completion) {
  completions_.push_back(completion);
  announce(simulation_);
}

bool TwoSided::take(std::uint64_t) {
  if (completions_.empty()) return false;
  const Completion next = completions_.front();
  completions_.pop_front();
  complete(next);
  return true;
}

void TwoSided::end(std::uint32_t partition) {
  ++completed_;
  is_there_[partition] = true;
}

void TwoSided::complete(const Completion& completion) {
  simulation_.spend(scenario_.network.recv_overhead_ps);
  switch (completion.kind) {
    case Completion::Kind::eager:
      simulation_.spend(costs_.match_ps + scenario_.partition_bytes * costs_.copy_byte_ps);
      payload_.move({completion.partition, 1});
      return end(completion.partition);
    case Completion::Kind::announced:
      simulation_.spend(costs_.match_ps);
      return read(completion.partition);
    case Completion::Kind::read:
      return end(completion.partition);
  }
}

/// The sender's NIC answers by itself.
void TwoSided::read(std::uint32_t partition) {
  backward_.post(kControlBytes, 0, [this, partition] {
    forward_.inject(scenario_.partition_bytes, [this, partition] {
      payload_.move({partition, 1});
      push({Completion::Kind::read, partition});
    });
  });
}

}  // namespace larklane::sim
