#pragma once
// Partitioned communication over the memory of one host: the engine's code for direct mode and for
// shared copies, where a mover copies, in its own time. Waiting threads copy pieces that others
// have begun.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "net/loop/atomic.hpp"
#include "part/protocol/shared_copy.hpp"
#include "part/protocol/side.hpp"
#include "sim/block_memory.hpp"
#include "sim/path.hpp"
#include "sim/payload.hpp"
#include "sim/scenario.hpp"

namespace larklane::sim {

/// Thread safety: as Path.
class Copying final : public Path {
 public:
  Copying(loop::Simulation& simulation, const Scenario& scenario, Payload& payload);

  void start(std::uint64_t round) override;
  bool ready(std::uint64_t round, std::uint32_t partition) override;
  void receive(std::uint64_t round) override;
  bool take(std::uint64_t) override { return false; }  // movers publish
  bool is_over(std::uint64_t round) override;
  bool arrived(std::uint64_t round, std::uint32_t partition) override;
  std::uint32_t transfers() const override { return transfers_; }

  /// Costs of the processor's steps.
  static loop::Costs processor(const Scenario& scenario);

 private:
  struct Mover {
    bool is_receiver;
    bool is_near;  ///< on the receiver's core
  };
  static constexpr Mover kReceiver{.is_receiver = true, .is_near = true};
  /// Copies the runs that the engine hands over.
  struct Copier {
    Copying& path;
    Mover mover;
    std::uint64_t round;
    void move(part::Run run) { path.move(mover, round, run); }
    // Slots, which direct mode has none of.
    void fill(std::byte*, std::uint64_t, std::uint64_t) {}
    void empty(const std::byte*, std::uint64_t, std::uint64_t) {}
  };

  void choose(std::span<const std::uint32_t> boundaries);
  void move(Mover mover, std::uint64_t round, part::Run run);
  void work(Mover mover, std::uint64_t round);
  bool is_near(std::uint32_t thread) const { return thread + 1 == costs_.cores; }
  Beside beside(Mover mover) const;
  void copy(Mover mover, part::Piece piece);
  void published(std::uint64_t round, part::Run run);

  loop::Simulation& simulation_;
  const Scenario& scenario_;
  const CopyCosts& costs_;
  Payload& payload_;
  const BlockMemory block_;
  part::SendSide<loop::Platform> send_;
  part::RecvSide<loop::Platform> recv_;
  const part::SharedCopy<loop::Platform> shared_copy_;
  std::vector<std::uint32_t> thread_of_;                       // by partition
  bool is_core_free_ = false;                                  // the receiver's
  std::uint32_t copying_senders_ = 0, copying_receivers_ = 0;  // threads
  loop::Simulation::Event core_;                               // it is
  std::uint32_t transfers_ = 0;
};

}  // namespace larklane::sim
