// The simulation: virtual time, cores, cache lines, waits, deadlocks.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/loop/atomic.hpp"
#include "net/loop/simulation.hpp"

namespace larklane::loop {
namespace {

using std::memory_order_relaxed;

using Counter = Atomic<std::uint64_t>;

/// On a cache line of its own.
struct alignas(64) Line {
  Counter value;
};

TEST(LoopSimulation, ThreadsRunInTheOrderOfVirtualTime) {
  Simulation simulation({});
  std::string order;
  simulation.spawn("slow", [&] {
    simulation.spend(2000);
    order += 's';
    simulation.spend(2000);
    order += 'S';
  });
  simulation.spawn("fast", [&] {
    simulation.spend(1000);
    order += 'f';
    simulation.spend(2000);
    order += 'F';
  });
  EXPECT_EQ(simulation.run(), "");
  EXPECT_EQ(order, "fsFS");
}

TEST(LoopSimulation, ThreadsOfOneCoreShareItsLines) {
  for (const bool shares : {true, false}) {
    Simulation simulation({});
    Line line;
    std::uint64_t second_ps = 0;
    simulation.spawn(
        "first", [&] { line.value.store(1, memory_order_relaxed); }, 3);
    simulation.spawn(
        "second",
        [&] {
          simulation.spend(1'000'000);
          (void)line.value.load(memory_order_relaxed);
          second_ps = simulation.now_ps() - 1'000'000;
        },
        shares ? 3 + 64 : 4);
    EXPECT_EQ(simulation.run(), "");
    const Costs costs;
    EXPECT_EQ(second_ps, shares ? costs.load_ps : costs.line_transfer_ps);
  }
}

TEST(LoopSimulation, ALostUpdateIsFoundAndTheSeedRepeatsIt) {
  auto lost = [](std::uint64_t seed) {
    Simulation simulation({.seed = seed, .explore = true});
    Line line;
    for (int t = 0; t < 2; ++t)
      simulation.spawn("adder", [&] {
        for (int i = 0; i < 10; ++i)
          line.value.store(line.value.load(memory_order_relaxed) + 1, memory_order_relaxed);
      });
    EXPECT_EQ(simulation.run(), "");
    return 20 - line.value.load(memory_order_relaxed);
  };
  bool different = false;
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    EXPECT_EQ(lost(seed), lost(seed)) << seed;
    different = different || lost(seed) != lost(seed + 1);
  }
  EXPECT_TRUE(different);
}

TEST(LoopSimulation, ReadModifyWritesAreAtomic) {
  for (std::uint64_t seed = 1; seed < 50; ++seed) {
    Simulation simulation({.seed = seed, .explore = true});
    Line line;
    for (int t = 0; t < 3; ++t)
      simulation.spawn("adder", [&] {
        for (int i = 0; i < 10; ++i) {
          line.value.fetch_add(1, memory_order_relaxed);
          std::uint64_t old = line.value.load(memory_order_relaxed);
          while (!line.value.compare_exchange_weak(old, old + 1, memory_order_relaxed,
                                                   memory_order_relaxed)) {
          }
        }
      });
    EXPECT_EQ(simulation.run(), "");
    EXPECT_EQ(line.value.load(memory_order_relaxed), 60u);
  }
}

TEST(LoopSimulation, LinesAreChargedToTheFetchingThread) {
  const Costs costs;
  Simulation simulation({});
  auto lines = std::make_unique<Line[]>(2);
  std::vector<std::uint64_t> times;
  simulation.spawn("first", [&] {
    auto timed = [&](auto&& operation) {
      const std::uint64_t start = simulation.now_ps();
      operation();
      times.push_back(simulation.now_ps() - start);
    };
    timed([&] { lines[0].value.fetch_add(1, memory_order_relaxed); });
    timed([&] { lines[0].value.fetch_add(1, memory_order_relaxed); });
    timed([&] { (void)lines[0].value.load(memory_order_relaxed); });
    simulation.spend(1'000'000);  // the second one reads
    timed([&] { (void)lines[0].value.load(memory_order_relaxed); });
    timed([&] { lines[0].value.store(7, memory_order_relaxed); });
    timed([&] { (void)lines[1].value.load(memory_order_relaxed); });
  });
  simulation.spawn("second", [&] {
    simulation.spend(500'000);
    (void)lines[0].value.load(memory_order_relaxed);
  });
  EXPECT_EQ(simulation.run(), "");
  EXPECT_EQ(times, (std::vector<std::uint64_t>{costs.line_transfer_ps, costs.modify_ps,
                                               costs.load_ps, costs.load_ps, costs.line_transfer_ps,
                                               costs.line_transfer_ps}));
}

TEST(LoopSimulation, ALineGoesToOneCoreAtATime) {
  const Costs costs;
  Simulation simulation({});
  auto lines = std::make_unique<Line[]>(4);
  std::vector<std::uint64_t> ends;
  for (std::size_t t = 0; t < 3; ++t)
    simulation.spawn("same line", [&] {
      lines[0].value.fetch_add(1, memory_order_relaxed);
      ends.push_back(simulation.now_ps());
    });
  for (std::size_t t = 1; t < 4; ++t)
    simulation.spawn("own line", [&, t] {
      lines[t].value.fetch_add(1, memory_order_relaxed);
      EXPECT_EQ(simulation.now_ps(), costs.line_transfer_ps);
    });
  EXPECT_EQ(simulation.run(), "");
  EXPECT_EQ(ends, (std::vector<std::uint64_t>{costs.line_transfer_ps, 2 * costs.line_transfer_ps,
                                              3 * costs.line_transfer_ps}));
}

TEST(LoopSimulation, AnEventWakesItsSleeperAndHoldsUpNoThread) {
  Simulation simulation({});
  Simulation::Event event;
  Simulation::Event never;
  std::vector<std::uint64_t> woken;
  for (const std::uint64_t busy : {std::uint64_t{0}, std::uint64_t{100}})
    simulation.spawn("sleeper", [&, busy] {
      simulation.spend(busy);
      simulation.sleep(event, "the event");
      woken.push_back(simulation.now_ps());
    });
  simulation.spawn("device", [&] { simulation.sleep(never, "work"); });
  simulation.spawn("waker", [&] {
    simulation.spend(5000);
    simulation.wake(event);
    simulation.wake(event);  // no thread sleeps any more
  });
  EXPECT_EQ(simulation.run(), "");
  EXPECT_EQ(woken, (std::vector<std::uint64_t>{5000, 5000}));
}

TEST(LoopSimulation, ACopyIsSeenHalfDone) {
  Simulation simulation({});
  std::vector<std::byte> from(30, std::byte{1});
  std::vector<std::byte> to(30, std::byte{0});
  bool half = false;
  simulation.spawn("copier", [&] { simulation.copy(to.data(), from.data(), to.size()); });
  simulation.spawn("watcher", [&] {
    while (to.back() == std::byte{0}) {
      half = half || to.front() == std::byte{1};
      simulation.spend(100);
    }
  });
  EXPECT_EQ(simulation.run(), "");
  EXPECT_TRUE(half);
  EXPECT_EQ(to, from);
}

TEST(LoopSimulation, AWaitEndsWhenItsConditionHolds) {
  Simulation simulation({});
  Line line;
  std::uint64_t woken_ps = 0;
  simulation.spawn("waiter", [&] {
    simulation.wait("the flag", [&] { return line.value.load(memory_order_relaxed) == 1; });
    woken_ps = simulation.now_ps();
  });
  simulation.spawn("setter", [&] {
    simulation.spend(1'000'000);
    line.value.store(1, memory_order_relaxed);
  });
  EXPECT_EQ(simulation.run(), "");
  EXPECT_GE(woken_ps, 1'000'000u);
  EXPECT_LE(woken_ps, 1'300'000u);
}

TEST(LoopSimulation, ADeadlockNamesThreadsAndEvents) {
  Simulation simulation({});
  Line a;
  Line b;
  simulation.spawn("left", [&] {
    simulation.wait("right", [&] { return b.value.load(memory_order_relaxed) == 1; });
    a.value.store(1, memory_order_relaxed);
  });
  simulation.spawn("right", [&] {
    simulation.wait("left", [&] { return a.value.load(memory_order_relaxed) == 1; });
    b.value.store(1, memory_order_relaxed);
  });
  simulation.spawn("third", [&] { simulation.spend(1000); });
  const std::string why = simulation.run();
  EXPECT_NE(why.find("deadlock"), std::string::npos) << why;
  EXPECT_NE(why.find(" ps: waits for right"), std::string::npos) << why;
  EXPECT_NE(why.find("third at 1000 ps: ended"), std::string::npos) << why;
}

TEST(LoopSimulation, ALivelockMeetsTheDeadline) {
  Simulation simulation({.deadline_ps = 1'000'000});
  simulation.spawn("spinner", [&] {
    for (;;) simulation.spend(10);
  });
  EXPECT_NE(simulation.run().find("deadline"), std::string::npos);
}

TEST(LoopSimulation, FailStopsTheRun) {
  Simulation simulation({});
  simulation.spawn("judge", [&] { simulation.fail("a wrong byte"); });
  simulation.spawn("other", [&] { simulation.spend(1'000'000); });
  const std::string why = simulation.run();
  EXPECT_EQ(why.find("a wrong byte\n"), 0u) << why;
}

}  // namespace
}  // namespace larklane::loop
