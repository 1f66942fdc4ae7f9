// The network inside one process: the transfers that it makes, and their missing order.

#include <gtest/gtest.h>
#include <poll.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "net/loop/simulation.hpp"
#include "net_loop_options.hpp"

namespace larklane::loop {
namespace {

/// A pair on a network of its own.
struct Net {
  explicit Net(Fabric::Options options) : fabric(std::move(options)), pair(fabric, fabric) {}
  Fabric fabric;
  Pair pair;
  net::Side& a = pair.a;
  net::Side& b = pair.b;
};

TEST(NetLoop, EveryKindOfOperationMovesItsBytes) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    Fabric::Options options = seeded(seed);
    options.limits.is_progress_manual = seed % 2 == 0;
    Net net(options);
    net.a.fill("write.IMMEDIATE");
    net.b.fill("read", 100);
    Sent sent[5];
    expect_posted(net.a.link->write(net.a.to(net.b, 0, 1, 6), sent[0]));
    expect_posted(net.a.link->write_immediate(net.a.to(net.b, 6, 20, 9), 7, sent[1]));
    expect_posted(net.a.link->write_small(bytes_of("little"), net.b.at(40), sent[2]));
    expect_posted(
        net.a.link->write_small_immediate(bytes_of("8 bytes."), net.b.at(64), 8, sent[3]));
    expect_posted(net.a.link->read(net.a.to(net.b, 200, 100, 4), sent[4]));
    ASSERT_TRUE(net.pair.poll_until([&] {
      for (const Sent& one : sent)
        if (!one.is_over()) return false;
      return net.b.ear.heard.size() == 2;
    }));
    for (const Sent& one : sent) EXPECT_TRUE(one.status.ok());
    EXPECT_EQ(net.b.text(1, 6), "write.");
    EXPECT_EQ(net.b.text(20, 9), "IMMEDIATE");
    EXPECT_EQ(net.b.text(40, 6), "little");
    EXPECT_EQ(net.b.text(64, 8), "8 bytes.");
    EXPECT_EQ(net.a.text(200, 4), "read");
    EXPECT_EQ(std::set(net.b.ear.heard.begin(), net.b.ear.heard.end()), (std::set{7u, 8u}));
    EXPECT_EQ(net.fabric.under_way_count(), 0u);
  }
}

TEST(NetLoop, NoBytesAreLegal) {
  Net net(seeded(1));
  Sent write, small;
  const net::Transfer nothing{nullptr, nullptr, {0, 0}, 0};
  expect_posted(net.a.link->write_immediate(nothing, 3, write));
  expect_posted(net.a.link->write_small_immediate({}, {0, 0}, 4, small));
  EXPECT_TRUE(net.pair.poll_until([&] { return write.is_over() && small.is_over(); }));
  EXPECT_TRUE(net.pair.poll_until([&] { return net.b.ear.heard.size() == 2; }));
  auto empty = net.fabric.register_memory(nullptr, 0);
  EXPECT_TRUE(empty);
}

TEST(NetLoop, ASmallWriteIsCopiedWhenItIsPosted) {
  Net net(turned(1));
  Sent sent;
  std::string text = "before";
  expect_posted(net.a.link->write_small(bytes_of(text), net.b.at(0), sent));
  text = "after!";
  net.fabric.settle();
  net.a.poll();
  EXPECT_EQ(net.b.text(0, 6), "before");
}

TEST(NetLoop, NothingHappensWithoutATurn) {
  Net net(turned(1));
  Sent sent;
  expect_posted(net.a.link->write_small_immediate(bytes_of("x"), net.b.at(0), 1, sent));
  EXPECT_EQ(net.a.poll() + net.b.poll(), 0u);
  EXPECT_EQ(net.b.text(0, 1), std::string(1, '\0'));
  EXPECT_EQ(net.fabric.settle(), 3u);  // its piece, its immediate, its completion
  EXPECT_EQ(sent.times, 0u);
  EXPECT_EQ(net.a.poll(), 1u);
  EXPECT_EQ(net.b.poll(), 1u);
  EXPECT_EQ(net.fabric.turn(100), 0u);
}

TEST(NetLoop, OperationsHaveNoOrder) {
  std::set<std::string> words, heard;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Net net(turned(seed));
    Sent sent[3];
    // To the same place: its final contents are those of the last write.
    expect_posted(net.a.link->write_small_immediate(bytes_of("1"), net.b.at(0), 1, sent[0]));
    expect_posted(net.a.link->write_small_immediate(bytes_of("2"), net.b.at(0), 2, sent[1]));
    expect_posted(net.a.link->write_small_immediate(bytes_of("3"), net.b.at(0), 3, sent[2]));
    net.fabric.settle();
    net.a.poll();
    net.b.poll();
    words.emplace(net.b.text(0, 1));
    std::string order;
    for (const std::uint32_t immediate : net.b.ear.heard) order += std::to_string(immediate);
    heard.insert(order);
  }
  EXPECT_EQ(words.size(), 3u);
  EXPECT_EQ(heard.size(), 6u);
}

TEST(NetLoop, ACompletionComesBeforeOrAfterTheImmediate) {
  bool completes_first = false, is_heard_first = false;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Net net(turned(seed));
    Sent sent;
    net.a.fill("abcdefgh");
    expect_posted(net.a.link->write_immediate(net.a.to(net.b, 0, 0, 8), 1, sent));
    while (!sent.is_over() && net.b.ear.heard.empty()) {
      net.fabric.turn(1);
      net.a.poll();
      net.b.poll();
    }
    EXPECT_EQ(net.b.text(0, 8), "abcdefgh");  // both report that the bytes are there
    completes_first |= net.b.ear.heard.empty();
    is_heard_first |= !sent.is_over();
    net.fabric.settle();
    net.a.poll();
    net.b.poll();
  }
  EXPECT_TRUE(completes_first && is_heard_first);
}

TEST(NetLoop, PiecesArriveInAnyOrder) {
  bool begins = false, ends = false;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Net net(turned(seed));
    Sent sent;
    net.a.fill(std::string(256, 'x'));
    expect_posted(net.a.link->write(net.a.to(net.b, 0, 0, 256), sent));
    while (net.fabric.turn(1) == 0) continue;
    begins |= net.b.text(0, 1) == "x" && net.b.text(255, 1) != "x";
    ends |= net.b.text(0, 1) != "x" && net.b.text(255, 1) == "x";
    net.fabric.settle();
    net.a.poll();
    EXPECT_EQ(net.b.text(0, 256), std::string(256, 'x'));
  }
  EXPECT_TRUE(begins && ends);
}

TEST(NetLoop, AWordArrivesAsAWhole) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Net net(turned(seed));
    Sent sent;
    expect_posted(net.a.link->write_small(bytes_of("87654321"), net.b.at(8), sent));
    while (net.fabric.turn(1) == 0) EXPECT_EQ(net.b.text(8, 8), std::string(8, '\0'));
    EXPECT_EQ(net.b.text(8, 8), "87654321");
    net.fabric.settle();
    net.a.poll();
  }
}

TEST(NetLoop, WithManualProgressTheOwnerHasToPoll) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Fabric::Options options = seeded(seed);
    options.limits.is_progress_manual = true;
    Net net(options);
    Sent write, read;
    net.a.fill("to b");
    net.b.fill("from b", 100);
    expect_posted(net.a.link->write_immediate(net.a.to(net.b, 0, 0, 4), 1, write));
    expect_posted(net.a.link->read(net.a.to(net.b, 50, 100, 6), read));
    for (std::uint32_t i = 0; i < 1000; ++i) net.a.poll();
    net.fabric.settle();
    EXPECT_EQ(write.times + read.times, 0u);
    EXPECT_EQ(net.b.text(0, 4), std::string(4, '\0'));
    EXPECT_EQ(net.a.text(50, 6), std::string(6, '\0'));
    for (std::uint32_t i = 0; i < 1000; ++i) net.b.poll();
    EXPECT_EQ(net.b.text(0, 4), "to b");
    EXPECT_EQ(net.b.ear.heard.size(), 1u);
    EXPECT_EQ(write.times + read.times, 0u);
    EXPECT_TRUE(net.pair.poll_until([&] { return write.is_over() && read.is_over(); }));
    EXPECT_EQ(net.a.text(50, 6), "from b");
  }
}

TEST(NetLoop, AFullQueueWantsTheOperationAgain) {
  Fabric::Options options = turned(1);
  options.queue_depth = 2;
  Net net(options);
  Sent sent[3];
  expect_posted(net.a.link->write_small(bytes_of("1"), net.b.at(1), sent[0]));
  expect_posted(net.a.link->write_small(bytes_of("2"), net.b.at(2), sent[1]));
  Result<Post> answer = net.a.link->write_small(bytes_of("3"), net.b.at(3), sent[2]);
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, Post::retry);
  net.fabric.settle();
  answer = net.a.link->write_small(bytes_of("3"), net.b.at(3), sent[2]);
  EXPECT_EQ(*answer, Post::retry);  // room is where a poll has been
  EXPECT_EQ(net.a.poll(1), 1u);
  expect_posted(net.a.link->write_small(bytes_of("3"), net.b.at(3), sent[2]));
  net.fabric.settle();
  net.a.poll();
  EXPECT_EQ(net.b.text(1, 3), "123");
  EXPECT_EQ(sent[2].times, 1u);
}

TEST(NetLoop, ASmallWriteMayBeCompleteAtOnce) {
  Fabric::Options options = turned(1);
  options.done_percent = 100;
  Net net(options);
  Sent sent;
  Result<Post> answer =
      net.a.link->write_small_immediate(bytes_of("at once!"), net.b.at(0), 5, sent);
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, Post::done);
  EXPECT_EQ(net.b.text(0, 8), "at once!");
  EXPECT_EQ(net.b.poll(), 0u);
  net.fabric.settle();
  EXPECT_EQ(net.b.poll() + net.a.poll(), 1u);
  EXPECT_EQ(net.b.ear.heard, std::vector{5u});
  EXPECT_EQ(sent.times, 0u);
}

TEST(NetLoop, ACallbackMayPost) {
  Net net(seeded(1));
  Sent first, second;
  first.then = [&](Sent&) {
    expect_posted(net.a.link->write_small_immediate(bytes_of("2"), net.b.at(0), 2, second));
  };
  net.b.ear.react = [&](std::uint32_t immediate) { EXPECT_EQ(immediate, 2u); };
  expect_posted(net.a.link->write_small(bytes_of("1"), net.b.at(0), first));
  EXPECT_TRUE(net.pair.poll_until([&] { return second.is_over() && !net.b.ear.heard.empty(); }));
}

TEST(NetLoop, APollServesNoMoreThanItWasAsked) {
  Net net(turned(1));
  std::vector<Sent> sent(10);
  for (Sent& one : sent) expect_posted(net.a.link->write_small(bytes_of("x"), net.b.at(0), one));
  net.fabric.settle();
  EXPECT_EQ(net.a.poll(3), 3u);
  EXPECT_EQ(net.a.poll(100), 7u);
}

TEST(NetLoop, ImmediatesAreReservedUpToALimit) {
  Fabric::Options options = turned(1);
  options.limits.immediates_max = 100;
  Net net(options);  // reserves 64
  EXPECT_EQ(net.b.endpoint->reserve_immediates(37), Status(Errc::kNoMemory));
  EXPECT_TRUE(net.b.endpoint->reserve_immediates(36).ok());
  net.b.endpoint->release_immediates(1);
  EXPECT_TRUE(net.b.endpoint->reserve_immediates(1).ok());
}

TEST(NetLoop, TheSameSeedGivesTheSameRun) {
  const auto run = [](std::uint64_t seed) {
    Net net(seeded(seed));
    std::string story;
    std::vector<Sent> sent(20);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      sent[i].then = [&story, i](Sent&) { story += "c" + std::to_string(i); };
      const auto immediate = static_cast<std::uint32_t>(i);
      expect_posted(net.a.link->write_immediate(net.a.to(net.b, 0, 0, 100), immediate, sent[i]));
    }
    net.b.ear.react = [&](std::uint32_t immediate) { story += "i" + std::to_string(immediate); };
    while (net.fabric.under_way_count() > 0) {
      story += "a" + std::to_string(net.a.poll()) + "b" + std::to_string(net.b.poll());
    }
    return story;
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(run(seed), run(seed));
  EXPECT_NE(run(1), run(2));
}

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

TEST(NetLoop, TheDescriptorFiresWhenAPollWouldFindSomething) {
  Net net(turned(1));
  const int fd = net.b.endpoint->wait_fd();
  EXPECT_TRUE(net.b.endpoint->arm(net::Wake::all));
  EXPECT_FALSE(is_readable(fd));
  Sent sent;
  expect_posted(net.a.link->write_small_immediate(bytes_of("x"), net.b.at(0), 1, sent));
  EXPECT_FALSE(is_readable(fd));
  EXPECT_FALSE(is_readable(net.a.endpoint->wait_fd()));
  net.fabric.settle();
  EXPECT_TRUE(is_readable(fd));
  EXPECT_FALSE(net.b.endpoint->arm(net::Wake::all));  // there is still something
  net.b.poll();
  EXPECT_TRUE(net.b.endpoint->arm(net::Wake::all));
  EXPECT_FALSE(is_readable(fd));
  EXPECT_FALSE(net.a.endpoint->arm(net::Wake::all));
  net.a.poll();
  EXPECT_TRUE(net.a.endpoint->arm(net::Wake::all));
}

TEST(NetLoop, ASleepForNeededCompletionsEndsForTheseAlone) {
  Net net(turned(1));
  const auto wakes = [&](bool operation_wakes, const auto& post) {
    for (net::Side* side : {&net.a, &net.b}) {
      while (!side->endpoint->arm(net::Wake::needed)) side->poll();
    }
    Sent sent;
    sent.wakes = operation_wakes;
    expect_posted(post(sent));
    net.fabric.settle();
    const std::pair woken(is_readable(net.a.endpoint->wait_fd()),
                          is_readable(net.b.endpoint->wait_fd()));
    while (!sent.is_over()) net.a.poll();
    return woken;
  };
  const auto small = [&](Sent& sent) {
    return net.a.link->write_small_immediate(bytes_of("x"), net.b.at(0), 1, sent);
  };
  const auto large = [&](Sent& sent) {
    return net.a.link->write_immediate(net.a.to(net.b, 0, 0, 100), 1, sent);
  };
  EXPECT_EQ(wakes(false, large), std::pair(false, false));
  EXPECT_EQ(wakes(true, large), std::pair(true, false));
  EXPECT_EQ(wakes(false, small), std::pair(false, true));
}

TEST(NetLoop, TheDescriptorFiresWhenAPollWouldTurnTheWire) {
  for (const bool is_manual : {false, true}) {
    Fabric::Options options = seeded(1);
    options.limits.is_progress_manual = is_manual;
    Net net(options);
    EXPECT_TRUE(net.a.endpoint->arm(net::Wake::all));
    EXPECT_TRUE(net.b.endpoint->arm(net::Wake::all));
    Sent sent;
    expect_posted(net.a.link->write_small_immediate(bytes_of("x"), net.b.at(0), 1, sent));
    EXPECT_TRUE(is_readable(net.b.endpoint->wait_fd()));
    EXPECT_FALSE(net.a.endpoint->arm(net::Wake::all));
    // A thread that sleeps only when it may, and polls only after a ring, gets everything.
    while (!sent.is_over() || net.b.ear.heard.empty()) {
      bool has_polled = false;
      for (net::Side* side : {&net.a, &net.b}) {
        if (side->endpoint->arm(net::Wake::all) && !is_readable(side->endpoint->wait_fd()))
          continue;
        side->poll();
        has_polled = true;
      }
      ASSERT_TRUE(has_polled) << "all sleep";
    }
  }
}

/// Runs `body` for every schedule that there is.
std::uint32_t for_all_schedules(const std::function<void(const Fabric::Options&)>& body) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> path;  // the chosen number, and the number
                                                              // of choices
  std::uint32_t runs = 0;
  do {
    std::size_t depth = 0;
    Fabric::Options options = turned(0);
    options.delayed_percent = 0;
    options.pieces_max = 1;
    options.choose = [&](std::uint64_t bound) {
      if (depth == path.size()) path.emplace_back(0, bound);
      return path[depth++].first;
    };
    body(options);
    ++runs;
    while (!path.empty() && path.back().first + 1 == path.back().second) path.pop_back();
    if (!path.empty()) ++path.back().first;
  } while (!path.empty());
  return runs;
}

TEST(NetLoop, SchedulesCanBeEnumerated) {
  std::set<std::string> ends;
  const std::uint32_t runs = for_all_schedules([&](const Fabric::Options& options) {
    Net net(options);
    Sent sent[2];
    expect_posted(net.a.link->write_small(bytes_of("1"), net.b.at(0), sent[0]));
    expect_posted(net.b.link->write_small(bytes_of("2"), net.a.at(0), sent[1]));
    net.fabric.settle();
    net.a.poll();
    net.b.poll();
    EXPECT_TRUE(sent[0].is_over() && sent[1].is_over());
    ends.insert(std::string(net.a.text(0, 1)) + std::string(net.b.text(0, 1)));
  });
  EXPECT_EQ(runs, 6u);  // piece before completion, twice: 4! / 2 / 2
  EXPECT_EQ(ends, std::set<std::string>{"21"});
}

TEST(NetLoop, VirtualThreadsMayUseIt) {
  const auto run = [](std::uint64_t seed) {
    Net net(turned(seed));
    Simulation simulation({.seed = seed, .explore = true});
    Sent ping, pong;
    simulation.spawn("a", [&] {
      expect_posted(net.a.link->write_small_immediate(bytes_of("ping"), net.b.at(0), 1, ping));
      simulation.effect();
      simulation.wait("pong", [&] { return net.a.poll() > 0 && !net.a.ear.heard.empty(); });
    });
    simulation.spawn("b", [&] {
      simulation.wait("ping", [&] { return net.b.poll() > 0 && !net.b.ear.heard.empty(); });
      expect_posted(net.b.link->write_small_immediate(bytes_of("pong"), net.a.at(0), 2, pong));
      simulation.effect();
      simulation.wait("completion", [&] {
        net.b.poll();
        return pong.is_over();
      });
    });
    simulation.spawn("network", [&] {
      while (net.a.ear.heard.empty() || !pong.is_over() || !ping.is_over()) {
        simulation.spend(100);
        if (net.fabric.turn(1) > 0) simulation.effect();
        if (net.a.ear.heard.size() == 1) net.a.poll();
      }
    });
    EXPECT_EQ(simulation.run(), "") << "LARKLANE_SEED=" << seed;
    EXPECT_EQ(net.a.text(0, 4), "pong");
  };
  for (std::uint64_t seed = 1; seed <= 50; ++seed) run(seed);
}

}  // namespace
}  // namespace larklane::loop
