#pragma once
// A network between virtual threads: work requests are posted to the queues of a NIC, which injects
// them one after the other into a wire that all queues share. Times follow LogGP, as
// docs/design/model.md has it.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "net/loop/costs.hpp"
#include "net/loop/simulation.hpp"

namespace larklane::loop {

/// A lock whose holders each know for how long they hold it: first come, first served, each
/// hand-over the way of one line. No lock does better, so contention looks cheaper than it is.
/// Thread safety: single-owner; a lock among virtual threads.
class alignas(64) Lock {
 public:
  /// Wait for it, hold it for `ps`, release it.
  void hold(Simulation& simulation, std::uint64_t ps);

 private:
  std::uint64_t free_ps_ = 0;
};

/// One direction of a connection.
/// Thread safety: single-owner; thread-safe among virtual threads.
/// Invariants:
/// 1. Work requests arrive in the order in which the NIC got them.
/// 2. The wire carries one work request at a time.
class Link {
 public:
  using Arrive = std::function<void()>;

  /// Before `simulation` runs, which it must not outlive.
  Link(Simulation& simulation, const NetworkCosts& costs, std::string name);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// The calling virtual thread posts a work request: it holds the queue's lock for
  /// `preparation_ps` and o_s. @param arrive  runs when the last byte is there
  void post(std::uint64_t bytes, std::uint64_t preparation_ps, Arrive arrive);
  /// The NIC has a work request of its own: it costs no thread's time.
  void inject(std::uint64_t bytes, Arrive arrive) {
    inject(next_queue(), bytes, std::move(arrive));
  }

 private:
  struct Queue {
    Lock lock;
    std::uint64_t free_ps = 0;
  };
  struct Flight {
    std::uint64_t arrival_ps;
    Arrive arrive;
  };

  Queue& next_queue() noexcept { return queues_[posted_++ % queues_.size()]; }
  void inject(Queue& queue, std::uint64_t bytes, Arrive arrive);
  void deliver();

  Simulation& simulation_;
  const NetworkCosts costs_;
  std::vector<Queue> queues_;
  std::size_t posted_ = 0;
  std::uint64_t wire_free_ps_ = 0;
  std::deque<Flight> flights_;
  Simulation::Event departure_;
};

}  // namespace larklane::loop
