#pragma once
// The baseline: partitioned communication as a persistent send and receive for each partition, over
// a library with one lock. Small ones are eager: copied on the way or, above a size, only by the
// receiver; large ones go by rendezvous: the sender announces, the receiver reads.

#include <cstdint>
#include <deque>
#include <vector>

#include "net/loop/network.hpp"
#include "sim/path.hpp"
#include "sim/payload.hpp"
#include "sim/scenario.hpp"

namespace larklane::sim {

/// Thread safety: as Path.
class TwoSided final : public Path {
 public:
  TwoSided(loop::Simulation& simulation, const Scenario& scenario, Payload& payload,
           loop::Link& out, loop::Link& back);

  void start(std::uint64_t round) override;
  bool ready(std::uint64_t round, std::uint32_t partition) override;
  void receive(std::uint64_t round) override;
  bool take(std::uint64_t round) override;
  bool is_over(std::uint64_t) override { return completed_ == scenario_.partitions; }
  bool arrived(std::uint64_t, std::uint32_t partition) override { return is_there_[partition]; }
  std::uint32_t transfers() const override { return scenario_.partitions; }

 private:
  struct Completion {
    enum class Kind : std::uint8_t { eager, announced, read } kind;
    std::uint32_t partition;
  };

  void push(Completion completion);
  void complete(const Completion& completion);
  void end(std::uint32_t partition);
  void read(std::uint32_t partition);

  loop::Simulation& simulation_;
  const Scenario& scenario_;
  const TwoSidedCosts costs_;
  Payload& payload_;
  loop::Link &forward_, &backward_;
  std::deque<Completion> completions_;
  std::uint32_t arrived_ = 0;    // messages: whole, or their announcement
  std::uint32_t completed_ = 0;  // receives
  std::vector<bool> is_there_;   // by partition
};

}  // namespace larklane::sim
