#pragma once
// How a message of partitions gets from one side to the other. Its functions run on virtual
// threads.

#include <cstdint>
#include <memory>

#include "net/loop/network.hpp"
#include "sim/payload.hpp"
#include "sim/scenario.hpp"

namespace larklane::sim {

/// Thread safety: single-owner; ready() and arrived() are thread-safe among virtual threads.
class Path {
 public:
  Path() = default;
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;
  virtual ~Path() = default;

  /// Start, on both sides.
  virtual void start(std::uint64_t round) = 0;
  /// The sender's thread says that a partition is ready. @return false: the engine refused it
  virtual bool ready(std::uint64_t round, std::uint32_t partition) = 0;
  /// The receiver's thread waits until everything is there.
  virtual void receive(std::uint64_t round) = 0;

  // Instead of receive(), for a receiver that has other messages to look after.

  /// Each completion wakes its taker. @param taker  outlives the simulation
  void announce_to(loop::Simulation::Event& taker) noexcept { taker_ = &taker; }
  /// One completion. @return false: there is none, and no time has passed
  virtual bool take(std::uint64_t round) = 0;
  /// Has everything been taken?
  virtual bool is_over(std::uint64_t round) = 0;
  /// Is that partition there?
  virtual bool arrived(std::uint64_t round, std::uint32_t partition) = 0;

  /// How many transfers of partitions the round had.
  virtual std::uint32_t transfers() const = 0;

 protected:
  void announce(loop::Simulation& simulation) {
    if (taker_ != nullptr) simulation.wake(*taker_);
  }
  /// The receiver's thread takes the round's completions as they come.
  template <class Queue>
  void take_all(loop::Simulation& simulation, std::uint64_t round, const Queue& completions) {
    while (!is_over(round)) {
      simulation.wait("a completion", [&] { return !completions.empty(); });
      take(round);
    }
  }

 private:
  loop::Simulation::Event* taker_ = nullptr;
};

/// The costs of the queues that take a scenario's messages. The baseline has one queue: its lock is
/// the library's.
loop::NetworkCosts link_costs(const Scenario& scenario);

/// All that it is given outlives it.
/// @param out   of the sender, with link_costs()
/// @param back  of the receiver, on which the baseline asks to read; null: it never does
std::unique_ptr<Path> make_path(loop::Simulation& simulation, const Scenario& scenario,
                                Payload& payload, loop::Link& out, loop::Link* back);

}  // namespace larklane::sim
