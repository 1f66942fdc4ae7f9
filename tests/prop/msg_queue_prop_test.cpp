// The queue of completions under seeded schedules of virtual threads, which stall for long at any
// step. LARKLANE_SEED=N repeats one run.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "msg/completion/node_queue.hpp"
#include "msg_seeds.hpp"
#include "net/loop/atomic.hpp"
#include "net/loop/simulation.hpp"

namespace larklane::msg {
namespace {

/// Pushers with few nodes, which they use again as soon as these were popped; poppers that pop
/// again only after a change. The tag is the pusher's number, the bytes its count of earlier
/// pushes.
class Flow {
 public:
  explicit Flow(std::uint64_t seed)
      : simulation_({.seed = seed, .explore = true}),
        pushers_(1 + simulation_.random().below(kThreadsMax)),
        poppers_(1 + simulation_.random().below(kThreadsMax)),
        each_(1 + simulation_.random().below(12)) {
    for (std::uint64_t p = 0; p < pushers_; ++p)
      for (std::uint64_t i = simulation_.random().below(kNodesMax) + 1; i-- != 0;)
        free_[p].push_back(&nodes_[p][i]);
  }

  std::string run() {
    for (std::uint64_t p = 0; p < pushers_; ++p)
      simulation_.spawn("pusher", [this, p] { push(p); });
    for (std::uint64_t p = 0; p < poppers_; ++p) simulation_.spawn("popper", [this] { pop(); });
    return simulation_.run();
  }

 private:
  static constexpr std::uint64_t kThreadsMax = 4, kNodesMax = 4;

  void push(std::uint64_t pusher) {
    std::vector<Node*>& free = free_[pusher];
    for (std::uint64_t number = 0; number < each_; ++number) {
      simulation_.wait("a node of ours", [&] { return !free.empty(); });
      Node& node = *free.back();
      free.pop_back();
      node.completion.tag = pusher;
      node.completion.bytes = number;
      queue_.push(node);
    }
  }

  void pop() {
    for (Node* node = next(); node != nullptr; node = next()) {
      const std::uint64_t pusher = node->completion.tag;
      if (node->completion.bytes != next_[pusher]++) simulation_.fail("not in the pusher's order");
      ++popped_;
      free_[pusher].push_back(node);
      simulation_.effect();
    }
  }
  /// Null: there will be none any more.
  Node* next() {
    Node* node = nullptr;
    simulation_.wait("completions", [&] {
      node = queue_.pop();
      return node != nullptr || popped_ == pushers_ * each_;
    });
    return node;
  }

  loop::Simulation simulation_;
  const std::uint64_t pushers_, poppers_, each_;
  NodeQueue<loop::Platform> queue_;
  std::array<std::array<Node, kNodesMax>, kThreadsMax> nodes_;
  std::array<std::vector<Node*>, kThreadsMax> free_;
  std::array<std::uint64_t, kThreadsMax> next_{};  // by pusher: the number that has to come
  std::uint64_t popped_ = 0;
};

TEST(MsgQueueProperty, EverySchedulePopsEachOnceInItsPushersOrder) {
  for_seeds(1000, [](std::uint64_t seed) { EXPECT_EQ(Flow(seed).run(), ""); });
}

}  // namespace
}  // namespace larklane::msg
