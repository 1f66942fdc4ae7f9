#pragma once
// Partitioned communication by writes into the receiver's memory, a group of partitions each: the
// engine's code for direct mode, where a mover posts a work request.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "net/loop/atomic.hpp"
#include "net/loop/network.hpp"
#include "part/policy/deadline.hpp"
#include "part/protocol/side.hpp"
#include "sim/block_memory.hpp"
#include "sim/learning.hpp"
#include "sim/path.hpp"
#include "sim/payload.hpp"
#include "sim/scenario.hpp"

namespace larklane::sim {

/// Thread safety: as Path.
class OneSided final : public Path {
 public:
  OneSided(loop::Simulation& simulation, const Scenario& scenario, Payload& payload,
           loop::Link& out);

  void start(std::uint64_t round) override;
  bool ready(std::uint64_t round, std::uint32_t partition) override;
  void receive(std::uint64_t round) override;
  bool take(std::uint64_t round) override;
  bool is_over(std::uint64_t round) override;
  bool arrived(std::uint64_t round, std::uint32_t partition) override;
  std::uint32_t transfers() const override { return transfers_; }

 private:
  /// Posts the runs that the engine hands over.
  struct Poster {
    OneSided& path;
    void move(part::Run run) { path.post(run); }
    // Slots, which direct mode has none of.
    void fill(std::byte*, std::uint64_t, std::uint64_t) {}
    void empty(const std::byte*, std::uint64_t, std::uint64_t) {}
  };

  void choose(std::span<const std::uint32_t> boundaries);
  void choose_next(std::uint64_t round);
  void post(part::Run run);
  void time_groups(std::uint64_t deadline_ps);
  void watch_deadline(std::uint32_t word);
  bool ready_in_time(std::uint64_t round, std::uint32_t partition);

  loop::Simulation& simulation_;
  const Scenario& scenario_;
  Payload& payload_;
  const BlockMemory block_;
  part::SendSide<loop::Platform> send_;
  part::RecvSide<loop::Platform> recv_;
  loop::Link& link_;
  std::optional<Learning> learning_;
  struct Timed {
    struct Word {
      std::uint64_t round = 0, first_ps = 0;  ///< of its last first mark
      loop::Simulation::Event begun;
    };
    part::TimedMarks<loop::Platform> marks;
    std::vector<std::uint32_t> word_of;  ///< by partition
    std::vector<Word> words;
  };
  std::optional<Timed> timed_;
  std::deque<part::Run> completions_;
  std::uint32_t arrived_ = 0;  // partitions
  std::uint32_t transfers_ = 0;
};

}  // namespace larklane::sim
