// The queue of nodes: every interleaving of a pop that stops midway.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "msg/completion/node_queue.hpp"

namespace larklane::msg {
namespace {

/// Runs `intruder` once, before the atomic operation with that number: as if the scheduler had
/// stopped the thread there, and other threads had run.
struct Stop {
  int operations_before = -1;
  std::function<void()> intruder;
  void pass() {
    if (operations_before-- == 0) std::exchange(intruder, {})();
  }
};
Stop stop;  // NOLINT: of all atomics of a test

struct StoppingPlatform {
  template <class T>
  class Atomic {
   public:
    constexpr Atomic(T value) noexcept : value_(value) {}
    T load(std::memory_order order) const {
      stop.pass();
      return value_.load(order);
    }
    void store(T value, std::memory_order order) {
      stop.pass();
      value_.store(value, order);
    }
    T exchange(T value, std::memory_order order) {
      stop.pass();
      return value_.exchange(value, order);
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order success_order,
                               std::memory_order failure_order) {
      stop.pass();
      return value_.compare_exchange_weak(expected, desired, success_order, failure_order);
    }

   private:
    std::atomic<T> value_;
  };
};

using Queue = NodeQueue<RealPlatform>;
using StoppingQueue = NodeQueue<StoppingPlatform>;

TEST(MsgNodeQueue, TheOldestComesFirstEachOnce) {
  Queue queue;
  std::vector<Node> nodes(6);
  EXPECT_EQ(queue.pop(), nullptr);
  for (int i : {0, 1, 2}) queue.push(nodes[static_cast<std::size_t>(i)]);
  EXPECT_EQ(queue.pop(), &nodes[0]);
  for (int i : {3, 4, 5}) queue.push(nodes[static_cast<std::size_t>(i)]);
  for (std::size_t i = 1; i < nodes.size(); ++i) EXPECT_EQ(queue.pop(), &nodes[i]) << i;
  EXPECT_EQ(queue.pop(), nullptr);
}

TEST(MsgNodeQueue, ANodeMayBePushedAgainAsSoonAsItWasPopped) {
  Queue queue;
  std::vector<Node> nodes(2);
  queue.push(nodes[0]);
  queue.push(nodes[1]);
  for (std::size_t turn = 0; turn < 10; ++turn) {
    Node* const node = queue.pop();
    ASSERT_EQ(node, &nodes[turn % 2]);
    queue.push(*node);
  }
}

/// A pop that is stopped before its n-th operation while others push and pop, for each n. @return
/// the nodes that all have popped, the stopped one's first (unless null)
std::vector<Node*> popped_around_a_stop(int operations_before, std::vector<Node>& nodes,
                                        bool has_ready, bool& was_stopped) {
  StoppingQueue queue;
  stop = {};
  queue.push(nodes[0]);
  queue.push(nodes[1]);
  std::vector<Node*> popped;
  if (has_ready) {  // the last pop has left nodes[1]
    popped.push_back(queue.pop());
  }
  std::vector<Node*> by_others;
  was_stopped = false;
  stop = {operations_before, [&] {
            was_stopped = true;
            queue.push(nodes[2]);
            for (int i = 0; i < 4; ++i)
              if (Node* const node = queue.pop()) by_others.push_back(node);
            queue.push(nodes[3]);
          }};
  Node* const by_stopped = queue.pop();
  stop = {};
  popped.insert(popped.end(), by_others.begin(), by_others.end());
  if (by_stopped != nullptr) popped.push_back(by_stopped);
  while (Node* const node = queue.pop()) popped.push_back(node);
  return popped;
}

TEST(MsgNodeQueue, AStoppedPopHoldsUpNoThreadAndLosesNothing) {
  for (const bool has_ready : {false, true}) {
    bool was_stopped = true;
    int stops = 0;
    for (int before = 0; was_stopped; ++before) {
      SCOPED_TRACE("operation " + std::to_string(before) + (has_ready ? ", ready" : ""));
      std::vector<Node> nodes(4);
      const std::vector<Node*> popped = popped_around_a_stop(before, nodes, has_ready, was_stopped);
      if (!was_stopped) break;
      ++stops;
      std::vector<int> times(nodes.size(), 0);
      for (Node* const node : popped) ++times[static_cast<std::size_t>(node - nodes.data())];
      EXPECT_EQ(times, std::vector<int>(nodes.size(), 1));
    }
    EXPECT_EQ(stops, has_ready ? 4 : 5);  // so many operations has a pop
  }
}

TEST(MsgNodeQueue, APushThatIsStoppedHidesNothingOfOthers) {
  for (int before = 0; before < 2; ++before) {
    StoppingQueue queue;
    std::vector<Node> nodes(3);
    stop = {};
    queue.push(nodes[0]);
    Node* popped = nullptr;
    stop = {before, [&] {
              queue.push(nodes[1]);
              popped = queue.pop();
            }};
    queue.push(nodes[2]);
    stop = {};
    EXPECT_EQ(popped, &nodes[0]);
    EXPECT_EQ(queue.pop(), &nodes[1]);
    EXPECT_EQ(queue.pop(), &nodes[2]);
    EXPECT_EQ(queue.pop(), nullptr);
  }
}

}  // namespace
}  // namespace larklane::msg
