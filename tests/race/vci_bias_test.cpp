// Locks that their first user need not take.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "base/sanitized.hpp"
#include "vci/bias.hpp"

namespace larklane::vci {
namespace {

#ifdef LARKLANE_SANITIZED
constexpr int kRounds = 3000;
#else
constexpr int kRounds = 30'000;
#endif

/// Several things, each with a lock: the purpose of a bias. No atomics: the thread sanitizer
/// reports two threads at one thing, too.
struct Guarded {
  struct Thing {
    SpinLock lock;
    bool is_somebody_there = false;
    std::uint64_t count = 0;
  };
  Bias bias;
  Thing things[2];

  /// @param lingers  gives others the core while it is there, now and then
  void once(int which, bool lingers = false) {
    Thing& thing = things[which];
    const BiasedGuard guard(bias, thing.lock);
    ASSERT_FALSE(std::exchange(thing.is_somebody_there, true));
    if (++thing.count % 8 == 0 && lingers) std::this_thread::yield();
    ASSERT_TRUE(std::exchange(thing.is_somebody_there, false));
  }
};

TEST(VciBias, ItsFirstUserTakesNoLock) {
  Guarded guarded;
  guarded.once(0);
  const SpinGuard held(guarded.things[1].lock);
  guarded.once(1);  // or it would wait for ever
}

TEST(VciBias, NoThreadWaitsForAUserThatIsGone) {
  Guarded guarded;
  std::thread([&] { guarded.once(0); }).join();
  guarded.once(0);
  std::thread([&] { guarded.once(0); }).join();
  EXPECT_EQ(guarded.things[0].count, 3u);
}

// Again and again one thread is there first, and two others come while it goes in and out, one to
// each thing. The first of them ends the bias, and the other one waits for that, too.
TEST(VciBias, FirstUserAndLaterUsersExcludeEachOther) {
  constexpr int kOthers = 2, kTimes = 4;
  std::vector<Guarded> all(kRounds);
  std::atomic<int> round{-1}, left{0};
  std::vector<std::thread> others;
  for (int t = 0; t < kOthers; ++t)
    others.emplace_back([&, t] {
      for (int r = 0; r < kRounds; ++r) {
        // acquire: pairs with the store below.
        while (round.load(std::memory_order_acquire) < r) std::this_thread::yield();
        for (int wait = r * 7 % 97; wait != 0; --wait) (void)left.load(std::memory_order_relaxed);
        for (int i = 0; i < kTimes; ++i) all[static_cast<std::size_t>(r)].once(t, r % 2 != 0);
        left.fetch_add(1, std::memory_order_release);  // pairs with the load below
      }
    });
  for (int r = 0; r < kRounds; ++r) {
    Guarded& guarded = all[static_cast<std::size_t>(r)];
    std::uint64_t times = 0;
    do {
      for (int i = 0; i < 50; ++i, ++times)
        for (int t = 0; t < kOthers; ++t) guarded.once(t, r % 2 != 0);
      round.store(r, std::memory_order_release);
      if (times % 5000 == 0) std::this_thread::yield();  // there may be but one core
    } while (left.load(std::memory_order_acquire) < (r + 1) * kOthers);
    for (const Guarded::Thing& thing : guarded.things) ASSERT_EQ(thing.count, times + kTimes);
  }
  for (std::thread& thread : others) thread.join();
}

}  // namespace
}  // namespace larklane::vci
