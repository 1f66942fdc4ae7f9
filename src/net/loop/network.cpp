#include "net/loop/network.hpp"

#include <algorithm>
#include <utility>

namespace larklane::loop {

void Lock::hold(Simulation& simulation, std::uint64_t ps) {
  simulation.charge_modify(this);  // the order of posts is decided here
  const std::uint64_t now = simulation.now_ps();
  const std::uint64_t begin = free_ps_ > now ? free_ps_ + simulation.costs().line_transfer_ps : now;
  free_ps_ = begin + ps;
  simulation.spend(free_ps_ - now);
}

Link::Link(Simulation& simulation, const NetworkCosts& costs, std::string name)
    : simulation_(simulation), costs_(costs), queues_(costs.queues) {
  simulation_.spawn(std::move(name), [this] { deliver(); });
}

void Link::post(std::uint64_t bytes, std::uint64_t preparation_ps, Arrive arrive) {
  Queue& queue = next_queue();
  queue.lock.hold(simulation_, preparation_ps + costs_.send_overhead_ps);
  inject(queue, bytes, std::move(arrive));
}

void Link::inject(Queue& queue, std::uint64_t bytes, Arrive arrive) {
  const std::uint64_t begin = std::max({simulation_.now_ps(), queue.free_ps, wire_free_ps_});
  wire_free_ps_ = begin + costs_.bytes_ps(bytes);
  queue.free_ps = wire_free_ps_ + costs_.injection_ps();
  flights_.push_back({wire_free_ps_ + costs_.latency_ps, std::move(arrive)});
  simulation_.wake(departure_);
}

void Link::deliver() {
  for (;;) {
    if (flights_.empty()) simulation_.sleep(departure_, "a work request");
    const Flight& next = flights_.front();  // a deque's elements stay where they are
    const std::uint64_t now = simulation_.now_ps();
    // When exploring, any time may be over already.
    simulation_.spend(std::max(next.arrival_ps, now) - now);
    next.arrive();
    flights_.pop_front();
    simulation_.effect();
  }
}

}  // namespace larklane::loop
