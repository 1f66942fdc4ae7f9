// Completion objects between threads: lanes that signal, threads that pop, and objects that come
// and go under the numbers by which peers name them.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "together.hpp"
#include "unit/msg_lane.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint64_t kLanes = 3, kPoppers = 3, kEach = 20'000;

/// By signaller and number: how often it was popped, and the value that its operation has written.
struct Log {
  std::array<std::vector<std::uint64_t>, kLanes> payload;
  std::array<std::vector<std::atomic<int>>, kLanes> times;
  Log() {
    for (std::uint64_t lane = 0; lane < kLanes; ++lane) {
      payload[lane].resize(kEach);
      times[lane] = std::vector<std::atomic<int>>(kEach);
    }
  }
  Completion write(std::uint64_t lane, std::uint64_t number) {
    payload[lane][number] = lane * kEach + number;
    return {
        .rank = static_cast<std::int32_t>(lane), .tag = number, .buffer = &payload[lane][number]};
  }
  /// @return is it right?
  bool read(const Completion& completion) {
    const auto lane = static_cast<std::uint64_t>(completion.rank);
    if (lane >= kLanes || completion.tag >= kEach) return false;
    // relaxed: the threads' end orders the counts
    times[lane][completion.tag].fetch_add(1, std::memory_order_relaxed);
    return *static_cast<std::uint64_t*>(completion.buffer) == lane * kEach + completion.tag;
  }
  void expect_once() const {
    for (const auto& of_lane : times)
      for (std::uint64_t number = 0; number < kEach; ++number)
        ASSERT_EQ(of_lane[number].load(std::memory_order_relaxed), 1) << number;
  }
};

/// Pops until nothing comes and `is_over`. @return  was everything right, and each lane in order?
bool pop_all(CompletionQueue& queue, Log& log, const std::atomic<std::uint64_t>& lanes_left) {
  std::array<std::int64_t, kLanes> last;
  last.fill(-1);
  bool is_right = true;
  for (;;) {
    // acquire: pairs with the release of each lane's end
    const bool is_over = lanes_left.load(std::memory_order_acquire) == 0;
    const std::optional<Completion> completion = queue.pop();
    if (!completion && is_over) return is_right;
    if (!completion) {
      std::this_thread::yield();
      continue;
    }
    is_right = is_right && log.read(*completion);
    std::int64_t& before = last[static_cast<std::size_t>(completion->rank)];
    is_right = is_right && before < static_cast<std::int64_t>(completion->tag);
    before = static_cast<std::int64_t>(completion->tag);
  }
}

// Few nodes, so that they go round; lanes that end while the queue still has nodes of theirs.
TEST(MsgRace, EveryCompletionIsPoppedOnceWithItsBytes) {
  const auto domain = std::make_unique<CompletionDomain>();
  CompletionQueue queue = CompletionQueue::create(*domain).value();
  Log log;
  std::atomic<std::uint64_t> lanes_left{kLanes};
  std::atomic<bool> is_right{true};
  together(kLanes + kPoppers, [&](std::uint64_t t) {
    if (t >= kLanes) {
      if (!pop_all(queue, log, lanes_left)) is_right.store(false, std::memory_order_relaxed);
      return;
    }
    {
      Lane lane(*domain, 100);
      for (std::uint64_t number = 0; number < kEach; ++number) {
        Node* node = lane.post(queue);
        for (; node == nullptr; node = lane.post(queue)) std::this_thread::yield();
        lane.signal(queue, *node, log.write(t, number));
      }
    }
    lanes_left.fetch_sub(1, std::memory_order_release);  // pairs with pop_all()'s acquire
  });
  (void)pop_all(queue, log, lanes_left);  // nodes that two poppers have hidden from each other at
                                          // the end
  EXPECT_TRUE(is_right.load(std::memory_order_relaxed));
  log.expect_once();
  EXPECT_TRUE(queue.free().ok());
}

// Nodes go back from other threads while their pool hands out others, and after it is gone.
TEST(MsgRace, NodesComeBackFromAnywhereWhileTheirPoolLives) {
  for (int turn = 0; turn < 20; ++turn) {
    std::array<std::atomic<Node*>, 16> hands{};
    together(std::uint64_t{3}, [&](std::uint64_t t) {
      if (t != 0) {
        for (int i = 0; i < 2000; ++i) {
          // acquire: pairs with the pool's thread's release
          Node* const node = hands[static_cast<std::size_t>(i) % hands.size()].exchange(
              nullptr, std::memory_order_acquire);
          if (node == nullptr) continue;
          ++node->completion.tag;
          node->home->give_back(*node);
        }
        return;
      }
      Pool<Node> pool = std::move(Pool<Node>::create(70)).value();
      for (int i = 0; i < 2000; ++i) {
        Node* const node = pool.get();
        if (node == nullptr) continue;
        ++node->completion.tag;
        // acq_rel: as above, and of the node that is put back
        Node* const old = hands[static_cast<std::size_t>(i) % hands.size()].exchange(
            node, std::memory_order_acq_rel);
        if (old != nullptr) pool.put(*old);
      }
    });
    for (std::atomic<Node*>& hand : hands)
      if (Node* const node = hand.load(std::memory_order_relaxed)) node->home->give_back(*node);
  }
}

// Signals of several lanes, rounds after rounds.
TEST(MsgRace, ASynchronizersRoundsDoNotMix) {
  const auto domain = std::make_unique<CompletionDomain>();
  Synchronizer synchronizer = Synchronizer::create(*domain, kLanes).value();
  constexpr std::uint64_t kRounds = 1000;
  std::atomic<std::uint64_t> round{0};
  std::vector<std::array<std::uint64_t, kLanes>> written(kRounds);
  together(kLanes, [&](std::uint64_t t) {
    Lane lane(*domain);
    for (std::uint64_t r = 0; r < kRounds; ++r) {
      // relaxed: only the synchronizer is to order anything here
      while (round.load(std::memory_order_relaxed) != r) std::this_thread::yield();
      written[r][t] = r;
      EXPECT_TRUE(lane.operate(synchronizer, {.tag = r, .buffer = &written[r][t]}));
      if (t != 0) continue;
      while (!synchronizer.test()) std::this_thread::yield();
      for (const Completion& completion : synchronizer.completions()) {
        EXPECT_EQ(completion.tag, r);
        EXPECT_EQ(*static_cast<std::uint64_t*>(completion.buffer), r);
      }
      EXPECT_EQ(synchronizer.excess(), 0u);
      EXPECT_TRUE(synchronizer.reset().ok());
      round.store(r + 1, std::memory_order_relaxed);
    }
  });
}

// A thread that reads the count sees the writes of all counted operations, and which of them have
// failed.
TEST(MsgRace, ACountCoversItsOperations) {
  const auto domain = std::make_unique<CompletionDomain>();
  Counter counter = Counter::create(*domain).value();
  std::array<std::uint64_t, kLanes> written{};
  together(kLanes + 1, [&](std::uint64_t t) {
    if (t == kLanes) {
      while (counter.completed() != kLanes * 100) std::this_thread::yield();
      EXPECT_EQ(counter.failed(), kLanes * 50);
      for (const std::uint64_t each : written) EXPECT_EQ(each, 100u);
      return;
    }
    Lane lane(*domain);
    for (std::uint64_t i = 0; i < 100; ++i) {
      ++written[t];
      EXPECT_TRUE(lane.operate(counter, numbered(i, i % 2 == 0 ? Errc::kTransfer : Errc::kOk)));
    }
  });
}

/// The calls of a handler under one number.
struct Heard {
  std::atomic<std::uint64_t> calls{0};
  bool is_freed = false;  // plain: free() orders it after all calls
  static void call(const Completion&, void* state) {
    auto& self = *static_cast<Heard*>(state);
    EXPECT_FALSE(self.is_freed);
    self.calls.fetch_add(1, std::memory_order_relaxed);
  }
};

TEST(MsgRace, ASignalBesideAResetIsKeptOrInExcess) {
  const auto domain = std::make_unique<CompletionDomain>();
  Synchronizer synchronizer = Synchronizer::create(*domain, 1).value();
  std::atomic<std::uint64_t> lanes_left{kLanes};
  std::uint64_t kept = 0;
  together(kLanes + 1, [&](std::uint64_t t) {
    if (t < kLanes) {
      Lane lane(*domain);
      for (std::uint64_t i = 0; i < kEach; ++i) EXPECT_TRUE(lane.operate(synchronizer, {}));
      lanes_left.fetch_sub(1, std::memory_order_release);  // pairs with the load below
      return;
    }
    while (lanes_left.load(std::memory_order_acquire) != 0 || synchronizer.test())
      if (synchronizer.reset().ok())
        ++kept;
      else
        std::this_thread::yield();
  });
  EXPECT_EQ(kept + synchronizer.excess(), kLanes * kEach);
}

// One thread registers, frees and makes anew; peers' operations come under numbers that are right,
// or were. Each accepted operation reaches the object whose number it was, none reaches a freed
// one.
TEST(MsgRace, ANumberNeverReachesAFreedOrLaterObject) {
  constexpr std::uint64_t kGenerations = 400;
  const auto domain = std::make_unique<CompletionDomain>();
  std::vector<Heard> heard(kGenerations);
  std::vector<std::atomic<std::uint64_t>> accepted(kGenerations);
  std::atomic<RemoteCompletion> number{0};
  std::atomic<std::uint64_t> generation{0}, total{0};
  std::atomic<bool> is_over{false};
  together(kLanes + 1, [&](std::uint64_t t) {
    // relaxed, all: only free() and find() are to order anything here
    if (t == kLanes) {
      for (std::uint64_t g = 0; g < kGenerations; ++g) {
        Handler handler = Handler::create(*domain, Heard::call, &heard[g]).value();
        const std::uint64_t before = total.load(std::memory_order_relaxed);
        generation.store(g, std::memory_order_relaxed);
        number.store(handler.register_remote().value(), std::memory_order_relaxed);
        for (int i = 0; i < 50 && total.load(std::memory_order_relaxed) == before; ++i)
          std::this_thread::yield();
        if (g % 4 == 3) continue;  // destroyed: its finder signals nothing, harmlessly
        bool is_freed = false;
        for (int i = 0; i < 1'000'000 && !is_freed; ++i) {
          is_freed = handler.free().ok();
          if (!is_freed) std::this_thread::yield();  // a finder may wait for this core
        }
        if (!is_freed) {
          ADD_FAILURE() << "what was refused, or is over, holds up " << g;
          break;
        }
        heard[g].is_freed = true;
      }
      is_over.store(true, std::memory_order_relaxed);
      return;
    }
    Lane lane(*domain);
    while (!is_over.load(std::memory_order_relaxed)) {
      const RemoteCompletion named = number.load(std::memory_order_relaxed);
      Node* const node = lane.pool.get();
      Result<Object*> found = domain->find(*lane.ledger, named);
      if (!found) {
        lane.pool.put(*node);
        std::this_thread::yield();
        continue;
      }
      // Numbers of one place go up by one in its upper bits, from 1 on.
      accepted[(named >> 12) - 1].fetch_add(1, std::memory_order_relaxed);
      lane.signal(**found, *node, {});
      total.fetch_add(1, std::memory_order_relaxed);
    }
  });
  EXPECT_NE(total.load(std::memory_order_relaxed), 0u);
  for (std::uint64_t g = 0; g < kGenerations; ++g) {
    const std::uint64_t calls = heard[g].calls.load(std::memory_order_relaxed);
    const std::uint64_t found = accepted[g].load(std::memory_order_relaxed);
    if (g % 4 == 3)
      EXPECT_LE(calls, found) << g;
    else
      EXPECT_EQ(calls, found) << g;
  }
}

}  // namespace
}  // namespace larklane::msg
