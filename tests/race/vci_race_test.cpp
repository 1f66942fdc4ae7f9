// Many threads on one lane; its provider takes no lock of its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "together.hpp"
#include "unit/vci_fake.hpp"

namespace larklane::vci {
namespace {

constexpr int kThreads = 4, kEach = 400;

struct Works {
  Works(FakeSide& side, Work::Kind kind, std::uint64_t bytes) : all(kThreads * kEach) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i].make(*side.link, kind, i, bytes);
  }
  CountedWork& of(int thread, int i) { return all[static_cast<std::size_t>(thread * kEach + i)]; }
  std::vector<CountedWork> all;
};

// All threads end with their last post, and no thread polls: all posts are at the provider, each
// thread's in order.
TEST(VciRace, NothingIsStrandedWhenThePostersAreGone) {
  for (int turn = 0; turn < 50; ++turn) {
    FakeSide side;
    Works works(side, Work::Kind::write, 8);
    together(kThreads, [&](int t) {
      for (int i = 0; i < kEach; ++i) side.vci->post(works.of(t, i));
    });
    ASSERT_EQ(side.lane().posted.size(), works.all.size());
    std::vector<std::uint64_t> next(kThreads, 0);
    for (const FakeLane::Posted& one : side.lane().posted) {
      const std::uint64_t thread = one.offset / kEach;
      ASSERT_EQ(one.offset, thread * kEach + next[thread]++);
    }
    EXPECT_EQ(side.lane().polls, 0u);
  }
}

// A work that is done at once is complete, also where its own completion has posted it again.
TEST(VciRace, WorkDoneAtOnceIsCompleteWhenThePostersAreGone) {
  FakeSide side;
  side.lane().answer = net::Post::done;
  Works works(side, Work::Kind::small, 8);
  for (CountedWork& work : works.all)
    work.then = [&] {
      if (work.times == 1) side.vci->post(work);
    };
  together(kThreads, [&](int t) {
    for (int i = 0; i < kEach; ++i) side.vci->post(works.of(t, i));
  });
  for (CountedWork& work : works.all) EXPECT_EQ(work.times, 2);
}

// Posts against turns: refusals, and works that are cut. Then turns until all is complete.
TEST(VciRace, PostsAndTurnsMeetAndEachWorkCompletesOnce) {
  FakeSide side;
  FakeLane& lane = side.lane();
  std::uint64_t chance = 1;  // the provider's, under the lane's lock
  std::size_t finished = 0;
  lane.during_post = [&] {
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    lane.answers.clear();
    lane.answers.emplace_back(chance >> 62 == 0 ? net::Post::retry : net::Post::posted);
  };
  lane.during_poll = [&] {
    while (finished < lane.posted.size()) lane.finish(finished++);
  };
  Works works(side, Work::Kind::write_immediate, 350);
  together(kThreads, [&](int t) {
    for (int i = 0; i < kEach; ++i) {
      side.vci->post(works.of(t, i));
      if (i % 3 == t % 3) (void)side.vci->progress();
    }
  });
  const auto is_over = [&] {
    return std::all_of(works.all.begin(), works.all.end(),
                       [](const CountedWork& work) { return work.times != 0; });
  };
  for (int turn = 0; turn < 100'000 && !is_over(); ++turn) (void)side.vci->progress();
  for (const CountedWork& work : works.all) {
    ASSERT_EQ(work.times, 1);
    EXPECT_TRUE(work.status.ok());
  }
  EXPECT_EQ(lane.posted.size(), works.all.size() * 4);
  EXPECT_FALSE(lane.was_entered_while_polling);
}

// The helper's calls wait for the lock; works that queue meanwhile go out when they give it back.
TEST(VciRace, SetUpBetweenPostsStrandsNothing) {
  FakeSide side;
  Works works(side, Work::Kind::small, 8);
  together(kThreads, [&](int t) {
    for (int i = 0; i < kEach; ++i) {
      if (t == 0) {
        (void)side.vci->arm(net::Wake::all);
        EXPECT_TRUE(side.vci->reserve_immediates(1).ok());
      }
      side.vci->post(works.of(t, i));
    }
  });
  EXPECT_EQ(side.lane().posted.size(), works.all.size());
  EXPECT_EQ(side.lane().reserved, static_cast<std::uint32_t>(kEach));
}

/// No atomic: the thread sanitizer reports two threads inside, too.
struct Inside {
  bool is_somebody = false;
  /// Gives others the core while it is there, now and then.
  void once() {
    EXPECT_FALSE(std::exchange(is_somebody, true));
    if (++times % 16 == 0) std::this_thread::yield();
    EXPECT_TRUE(std::exchange(is_somebody, false));
  }
  int times = 0;
};

// The owner takes no read-modify-write and no fence; other threads that ask for the lane do. The
// counters are no atomics.
TEST(VciRace, OwnerAndAskersExcludeEachOther) {
  FakeSide side;
  constexpr std::uint64_t kOfOthers = 2000;
  std::uint64_t counted = 0, of_owner = 0;
  std::atomic<int> asking{kThreads - 1};
  Inside inside;
  side.lane().during_poll = [&] {
    inside.once();
    ++counted;
  };
  together(kThreads, [&](int t) {
    if (t != 0) {
      for (std::uint64_t i = 0; i < kOfOthers; ++i) {
        side.vci->exclusively([&] {
          inside.once();
          ++counted;
        });
        (void)side.vci->progress();
      }
      asking.fetch_sub(1, std::memory_order_acq_rel);  // pairs with the load below
      return;
    }
    EXPECT_TRUE(side.vci->own());
    while (asking.load(std::memory_order_acquire) != 0) (void)side.vci->progress();
    // All asking threads have left: nothing keeps the owner out any more.
    const std::uint64_t before = side.vci->counts().polls;
    (void)side.vci->progress();
    of_owner = side.vci->counts().polls - before;
  });
  // Turns of others before the lane had an owner are counted as polls, too.
  EXPECT_EQ(counted, side.vci->counts().polls + (kThreads - 1) * kOfOthers);
  EXPECT_EQ(of_owner, 1u);
  side.vci->disown();
}

// One thread after the other has it, and makes turns all the time: also when another one takes it
// away.
TEST(VciRace, OwnersComeAndGoWhileTheyMakeTurns) {
  FakeSide side;
  Inside inside;
  side.lane().during_poll = [&] { inside.once(); };
  constexpr int kRounds = 2000, kOver = kThreads;
  std::atomic<int> wanted{0};  // as its owner; 0: no thread
  together(kThreads, [&](int t) {
    if (t != 0) {
      for (int now = 0; now != kOver;) {
        for (int turn = 0; turn < 20; ++turn) (void)side.vci->progress();
        std::this_thread::yield();
        now = wanted.load(std::memory_order_acquire);  // pairs with the stores
        if (now != t) continue;
        EXPECT_TRUE(side.vci->own());
        wanted.store(0, std::memory_order_release);
      }
      return;
    }
    for (int round = 0; round < kRounds; ++round) {
      wanted.store(1 + round % (kThreads - 1), std::memory_order_release);
      while (wanted.load(std::memory_order_acquire) != 0) std::this_thread::yield();
      side.vci->exclusively([&] { inside.once(); });
      side.vci->disown();
      side.vci->exclusively([&] { inside.once(); });
    }
    wanted.store(kOver, std::memory_order_release);
  });
}

// Posts of an owner and of others, some of them its own callbacks.
TEST(VciRace, NothingIsStrandedOnALaneThatHasAnOwner) {
  for (int turn = 0; turn < 20; ++turn) {
    FakeSide side;
    side.lane().answer = net::Post::done;
    Inside inside;
    side.lane().during_post = [&] { inside.once(); };
    Works works(side, Work::Kind::small, 8);
    for (CountedWork& work : works.all)
      work.then = [&] {
        if (work.times == 1) side.vci->post(work);
      };
    side.lane().during_poll = [&] { inside.once(); };
    std::atomic<bool> has_owner{false};
    std::atomic<int> posting{kThreads - 1};
    together(kThreads, [&](int t) {
      if (t == 0) {
        EXPECT_TRUE(side.vci->own());
        has_owner.store(true, std::memory_order_release);  // pairs with the loads of the others
      }
      while (!has_owner.load(std::memory_order_acquire)) std::this_thread::yield();
      for (int i = 0; i < kEach; ++i) {
        side.vci->post(works.of(t, i));
        if (i % 8 == 0) std::this_thread::yield();
      }
      if (t != 0) posting.fetch_sub(1, std::memory_order_acq_rel);  // pairs with the load below
      while (t == 0 && posting.load(std::memory_order_acquire) != 0) (void)side.vci->progress();
    });
    side.vci->disown();
    for (CountedWork& work : works.all) ASSERT_EQ(work.times, 2);
  }
}

}  // namespace
}  // namespace larklane::vci
