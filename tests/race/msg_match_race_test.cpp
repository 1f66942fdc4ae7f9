// Threads that insert receives and messages into one matching engine.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "msg/match/match.hpp"
#include "net/loop/random.hpp"
#include "together.hpp"

namespace larklane::msg {
namespace {

using Kind = MatchingEngine::Kind;
using Policy = MatchPolicy;

constexpr std::uint32_t kThreads = 4, kEach = 300, kRanks = 3, kTags = 3;

struct Message : MatchMessage {
  std::uint32_t thread = 0, index = 0;  ///< the inserting thread, and its count of earlier inserts
  std::uint32_t times = 0;              ///< that it was got
};
struct Receive : MatchReceive {
  std::uint32_t thread = 0, index = 0;
  std::uint32_t times = 0;  ///< that it got one, was cancelled or handed back
  Message* got = nullptr;
};

bool fits(const Receive& receive, const Message& message) {
  const auto bits = static_cast<unsigned>(receive.policy);
  return ((bits & 2) != 0 || receive.rank == message.rank) &&
         ((bits & 1) != 0 || receive.tag == message.tag);
}

/// All threads' receives and messages, and one engine. Plain members: the thread sanitizer checks
/// that only the thread that got an entry touches it.
struct Field {
  Field(Kind kind, std::uint32_t bucket_count)
      : engine(std::move(
            MatchingEngine::create({.kind = kind, .bucket_count = bucket_count}).value())),
        receives(kThreads * kEach),
        messages(kThreads * kEach) {}

  Receive& receive(std::uint32_t thread, std::uint32_t index) {
    return named(receives[thread * kEach + index], thread, index);
  }
  Message& message(std::uint32_t thread, std::uint32_t index) {
    return named(messages[thread * kEach + index], thread, index);
  }
  template <class Node>
  static Node& named(Node& node, std::uint32_t thread, std::uint32_t index) {
    node.thread = thread;
    node.index = index;
    return node;
  }
  static void pair(Receive& receive, Message& message) {
    receive.got = &message;
    ++receive.times;
    ++message.times;
  }
  /// @return it waits
  bool insert(Receive& receive) {
    MatchMessage* const got = engine->insert_receive(receive);
    if (got != nullptr) pair(receive, static_cast<Message&>(*got));
    return got == nullptr;
  }
  void insert(Message& message) {
    message.arrival = arrivals.fetch_add(1, std::memory_order_relaxed);  // a number
    MatchReceive* const got = engine->insert_message(message);
    if (got != nullptr) pair(static_cast<Receive&>(*got), message);
  }

  std::unique_ptr<MatchingEngine> engine;
  std::atomic<std::uint64_t> arrivals{0};
  std::vector<Receive> receives;
  std::vector<Message> messages;
};

template <class Node>
void choose_key(Node& node, loop::Random& random) {
  node.rank = static_cast<std::uint32_t>(random.below(kRanks));
  node.tag = static_cast<std::uint32_t>(random.below(kTags));
}

/// Of two receives of one thread, the earlier one r, and two messages of one thread, the earlier
/// one m: if r fits m, it is not so that r has got the other one and m the other receive.
void expect_no_overtaking(Field& field) {
  for (std::uint32_t thread = 0; thread < kThreads; ++thread)
    for (std::uint32_t r = 0; r < kEach; ++r)
      for (std::uint32_t s = r + 1; s < kEach; ++s) {
        const Receive& earlier = field.receives[thread * kEach + r];
        const Receive& later = field.receives[thread * kEach + s];
        if (earlier.got == nullptr || later.got == nullptr) continue;
        const Message &n = *earlier.got, &m = *later.got;
        const bool is_overtaken = m.thread == n.thread && m.index < n.index && fits(earlier, m);
        ASSERT_FALSE(is_overtaken) << "thread " << thread << ", receives " << r << " and " << s;
      }
}

/// As many receives as messages of each key.
void exact_keys(Kind kind, std::uint32_t bucket_count, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Field field(kind, bucket_count);
  together(kThreads, [&](std::uint32_t t) {
    loop::Random mine(seed * 100 + t), others(seed * 100 + (t + 1) % kThreads);
    for (std::uint32_t i = 0; i < kEach; ++i) {
      Receive& receive = field.receive(t, i);
      Message& message = field.message(t, i);
      choose_key(receive, mine);
      choose_key(message, others);
      if (i % 2 == t % 2) {
        field.insert(receive);
        field.insert(message);
      } else {
        field.insert(message);
        field.insert(receive);
      }
    }
  });
  for (const Receive& receive : field.receives) {
    ASSERT_EQ(receive.times, 1u);
    ASSERT_TRUE(fits(receive, *receive.got));
  }
  for (const Message& message : field.messages) ASSERT_EQ(message.times, 1u);
  expect_no_overtaking(field);
  const MatchCounts counts = field.engine->counts();
  EXPECT_EQ(counts.matched, kThreads * kEach);
  EXPECT_EQ(counts.waiting, 0u);
  EXPECT_EQ(counts.posted + counts.unexpected, kThreads * kEach);
}

TEST(MatchRace, EachIsMatchedOnceAndInOrder) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed)
    for (const Kind kind : {Kind::exact, Kind::ordered, Kind::lazy}) {
      exact_keys(kind, 1, seed);
      exact_keys(kind, 64, seed);
    }
}

/// No waiting entry fits another waiting one.
void expect_no_pair_is_left(Field& field) {
  for (const Receive& receive : field.receives) {
    ASSERT_LE(receive.times, 1u);
    for (const Message& message : field.messages)
      ASSERT_FALSE(receive.times == 0 && message.times == 0 && fits(receive, message));
  }
  for (const Message& message : field.messages) ASSERT_LE(message.times, 1u);
}

// Receives with wildcards, some of them cancelled; one thread counts. A lazy engine becomes
// ordered, and grows, somewhere on the way.
void wildcards(Kind kind, std::uint64_t wild_from) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Field field(kind, 4);
    std::array<std::uint32_t, kThreads> cancelled{};
    together(kThreads, [&](std::uint32_t t) {
      loop::Random random(seed * 100 + t);
      for (std::uint32_t i = 0; i < kEach; ++i) {
        Message& message = field.message(t, i);
        Receive& receive = field.receive(t, i);
        choose_key(message, random);
        choose_key(receive, random);
        if (i >= wild_from) receive.policy = static_cast<Policy>(random.below(4));
        (void)field.insert(receive);
        field.insert(message);
        Receive& earlier = field.receives[t * kEach + random.below(i + 1)];
        if (random.one_in(4) && field.engine->cancel(earlier)) {
          ++earlier.times;
          ++cancelled[t];
        }
        if (i % 64 == 0) (void)field.engine->counts();
      }
    });
    expect_no_pair_is_left(field);
    expect_no_overtaking(field);
    EXPECT_EQ(field.engine->counts().cancelled,
              cancelled[0] + cancelled[1] + cancelled[2] + cancelled[3]);
  }
}
TEST(MatchRace, WildcardsAndCancelledReceives) {
  wildcards(Kind::ordered, 0);
  for (const std::uint32_t from : {0u, 50u, 250u}) wildcards(Kind::lazy, from);
}

// Keys without end: the engine grows while all threads insert, and no entry is lost.
TEST(MatchRace, ALazyEngineGrowsUnderInserts) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Field field(Kind::lazy, 1);
    together(kThreads, [&](std::uint32_t t) {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        Message& message = field.message(t, i);
        message.rank = (t + 1) % kThreads;
        message.tag = i;
        field.insert(message);
        Receive& receive = field.receive(t, i);
        receive.rank = t;
        receive.tag = i;
        (void)field.insert(receive);
        if (t == 0 && i == kEach / 2 && seed % 2 == 0)
          (void)field.engine->look({0, 0, Policy::tag});
      }
    });
    for (const Receive& receive : field.receives) {
      ASSERT_EQ(receive.times, 1u);
      ASSERT_TRUE(fits(receive, *receive.got));
    }
    EXPECT_EQ(field.engine->counts().waiting, 0u);
  }
}

// The first thread inserts without a lock, and grows the engine, until a second one takes all
// locks.
TEST(MatchRace, AnOwnerGrowsWhileAnotherTakesAllLocks) {
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    Field field(Kind::lazy, 1);
    std::atomic<std::uint32_t> inserted{0};
    together(2u, [&](std::uint32_t t) {
      if (t == 1)  // relaxed: no data goes with it
        while (inserted.load(std::memory_order_relaxed) < seed % 64 + 1) std::this_thread::yield();
      for (std::uint32_t i = 0; i < 100; ++i) {
        if (t == 1 && i == 0) (void)field.engine->counts();
        Message& message = field.message(t, i);
        message.rank = t;
        message.tag = i;
        field.insert(message);
        if (t == 0) inserted.store(i + 1, std::memory_order_relaxed);
      }
    });
    ASSERT_EQ(field.engine->counts().waiting, 200u);
  }
}

// A rank dies while receives are posted for it: the poster checks after it has inserted. None waits
// for ever, each is given back once.
void dead_rank(Kind kind, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Field field(kind, 4);
  std::atomic<bool> is_dead{false};
  together(kThreads, [&](std::uint32_t t) {
    loop::Random random(seed * 100 + t);
    for (std::uint32_t i = 0; i < kEach; ++i) {
      if (t == 0 && i == kEach / 2) {
        is_dead.store(true, std::memory_order_release);  // pairs with the acquires below
        MatchingEngine::Sweep sweep;
        while (MatchReceive* const orphan = field.engine->take_receive_of(0, sweep))
          ++static_cast<Receive*>(orphan)->times;
      }
      Receive& receive = field.receive(t, i);
      choose_key(receive, random);
      if (field.insert(receive) && receive.rank == 0 && is_dead.load(std::memory_order_acquire) &&
          field.engine->cancel(receive))
        ++receive.times;
      if (!random.one_in(3)) continue;
      Message& message = field.message(t, i);
      choose_key(message, random);
      field.insert(message);
    }
  });
  for (const Receive& receive : field.receives) {
    ASSERT_LE(receive.times, 1u);
    if (receive.rank == 0) {
      ASSERT_EQ(receive.times, 1u);
    }
  }
}

TEST(MatchRace, NoReceiveWaitsForADeadRank) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    dead_rank(Kind::exact, seed);
    dead_rank(Kind::ordered, seed);
    dead_rank(Kind::lazy, seed);
  }
}

}  // namespace
}  // namespace larklane::msg
