// Faults on a network that has none of its own.

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "net/fault/fault.hpp"
#include "net/loop/fabric.hpp"
#include "net_pair.hpp"

namespace larklane::fault {
namespace {

using net::bytes_of;
using net::expect_posted;
using net::Post;
using net::Sent;

constexpr Status kBroken{Errc::kTransfer, 5};

/// Each poll lets things happen, one after the other, in the order in which they were posted.
loop::Fabric::Options orderly() {
  loop::Fabric::Options options;
  options.delayed_percent = 0;
  options.pieces_max = 1;
  options.choose = [](std::uint64_t) { return 0; };
  return options;
}

/// A pair whose end `a` has the faults.
struct Net {
  explicit Net(Plan plan, loop::Fabric::Options options = orderly())
      : below(std::move(options)),
        fabric(below.for_process(), std::move(plan)),
        pair(fabric, below) {}
  bool is_over(const Sent& sent) {
    return pair.poll_until([&] { return sent.is_over(); }, 10'000);
  }
  /// Polls until nothing is left below, and some more.
  void settle() {
    pair.poll_until([&] { return below.under_way_count() == 0; });
    for (std::uint32_t i = 0; i < 100; ++i) pair.poll_until([] { return false; }, 1);
  }
  loop::Fabric below;
  Fabric fabric;
  net::Pair pair;
  net::Side& a = pair.a;
  net::Side& b = pair.b;
};

struct Kind {
  Call call;
  const char* name;
};
constexpr Kind kKinds[] = {{Call::write, "write"},
                           {Call::write_immediate, "write_immediate"},
                           {Call::write_small, "write_small"},
                           {Call::write_small_immediate, "write_small_immediate"},
                           {Call::read, "read"}};

/// 16 bytes "0123456789abcdef", to offset 64 of the written side.
Result<Post> post(Net& net, Call call, Sent& sent) {
  const std::string_view text = "0123456789abcdef";
  net.a.fill(text);
  net.b.fill(text);
  switch (call) {
    case Call::write_immediate:
      return net.a.link->write_immediate(net.a.to(net.b, 0, 64, 16), 1, sent);
    case Call::write_small:
      return net.a.link->write_small(bytes_of(text), net.b.at(64), sent);
    case Call::write_small_immediate:
      return net.a.link->write_small_immediate(bytes_of(text), net.b.at(64), 1, sent);
    case Call::read:
      return net.a.link->read(net.a.to(net.b, 64, 0, 16), sent);
    default:
      return net.a.link->write(net.a.to(net.b, 0, 64, 16), sent);
  }
}

std::string moved(Net& net, Call call) {
  const std::string text(call == Call::read ? net.a.text(64, 16) : net.b.text(64, 16));
  const std::size_t first = std::min(text.find_first_not_of('\0'), text.size());
  return text.substr(first, text.find('\0', first) - first);
}

bool has_immediate(Call call) {
  return call == Call::write_immediate || call == Call::write_small_immediate;
}

TEST(NetFault, WithoutAPlanNothingGoesWrong) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Net net({});
    Sent sent;
    expect_posted(post(net, kind.call, sent));
    EXPECT_TRUE(net.is_over(sent));
    EXPECT_TRUE(sent.status.ok());
    net.settle();
    EXPECT_EQ(moved(net, kind.call), "0123456789abcdef");
    EXPECT_EQ(net.b.ear.heard.size(), has_immediate(kind.call) ? 1u : 0u);
  }
}

TEST(NetFault, EveryKindOfOperationFailsAtTheNth) {
  for (const Kind& kind : kKinds) {
    for (const Moved much : {Moved::nothing, Moved::half, Moved::all}) {
      SCOPED_TRACE(kind.name);
      Net net({.faults = {{.call = kind.call,
                           .what = What::fail,
                           .nth = 2,
                           .status = kBroken,
                           .moved = much}}});
      Sent first, other, second, third;
      expect_posted(post(net, kind.call, first));
      EXPECT_TRUE(net.is_over(first));
      // others are not counted
      expect_posted(post(net, kind.call == Call::read ? Call::write : Call::read, other));
      EXPECT_TRUE(net.is_over(other));
      net.settle();
      net.a.bytes.fill(std::byte{0});
      net.b.bytes.fill(std::byte{0});
      net.b.ear.heard.clear();
      expect_posted(post(net, kind.call, second));
      EXPECT_TRUE(net.is_over(second));
      EXPECT_EQ(second.status, kBroken);
      net.settle();
      EXPECT_EQ(second.times, 1u);
      const std::string_view all = "0123456789abcdef";
      EXPECT_EQ(moved(net, kind.call), all.substr(much == Moved::all    ? 0
                                                  : much == Moved::half ? 8
                                                                        : 16));
      EXPECT_EQ(net.b.ear.heard.size(), much == Moved::all && has_immediate(kind.call) ? 1u : 0u);
      expect_posted(post(net, kind.call, third));
      EXPECT_TRUE(net.is_over(third));
      EXPECT_TRUE(first.status.ok() && other.status.ok() && third.status.ok());
      EXPECT_EQ(net.fabric.hits_count(What::fail), 1u);
      net.settle();
    }
  }
}

TEST(NetFault, AWordIsNeverSeenInParts) {
  Net net({.faults = {{.call = Call::write_small,
                       .what = What::fail,
                       .nth = 1,
                       .status = kBroken,
                       .moved = Moved::half}}});
  Sent sent;
  expect_posted(net.a.link->write_small(bytes_of("8 bytes."), net.b.at(0), sent));
  EXPECT_TRUE(net.is_over(sent));
  net.settle();
  EXPECT_EQ(net.b.text(0, 8), std::string(8, '\0'));
}

TEST(NetFault, AGarbledWriteArrivesChanged) {
  constexpr std::uint64_t kWord = 0x0123456789abcdef;
  constexpr std::uint32_t kImmediate = 0x00070003;
  bool have_differed[2] = {};
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Net net({.seed = seed, .faults = {{Call::post, What::garble, 1}}});
    Sent sent;
    expect_posted(net.a.link->write_small_immediate(std::as_bytes(std::span(&kWord, 1)),
                                                    net.b.at(0), kImmediate, sent));
    ASSERT_TRUE(net.is_over(sent));
    net.settle();
    EXPECT_TRUE(sent.status.ok());
    ASSERT_EQ(net.b.ear.heard.size(), 1u);
    std::uint64_t word = 0;
    std::memcpy(&word, net.b.bytes.data(), sizeof(word));
    const bool is_word = word != kWord, is_immediate = net.b.ear.heard[0] != kImmediate;
    EXPECT_NE(is_word, is_immediate);
    have_differed[is_word ? 0 : 1] = true;
    EXPECT_EQ(net.fabric.hits_count(What::garble), 1u);
  }
  EXPECT_TRUE(have_differed[0] && have_differed[1]);
}

TEST(NetFault, FaultsComeByChanceAndTheSeedDecides) {
  const auto run = [](std::uint64_t seed) {
    Net net({.seed = seed, .faults = {{.call = Call::post, .what = What::fail, .one_in = 3}}});
    std::string story;
    for (std::uint32_t i = 0; i < 60; ++i) {
      Sent sent;
      expect_posted(post(net, kKinds[i % 5].call, sent));
      EXPECT_TRUE(net.is_over(sent));
      story += sent.status.ok() ? '.' : 'x';
    }
    net.settle();
    return story;
  };
  const std::string story = run(1);
  EXPECT_EQ(story, run(1));
  EXPECT_NE(story, run(2));
  EXPECT_NEAR(static_cast<double>(std::count(story.begin(), story.end(), 'x')), 20, 12);
}

TEST(NetFault, AStormOfRetriesEnds) {
  Net net({.faults = {{.call = Call::post, .what = What::retry, .nth = 2, .times = 100}}});
  Sent first, second;
  expect_posted(post(net, Call::write, first));
  std::uint32_t retries = 0;
  Result<Post> answer = Post::retry;
  while ((answer = post(net, Call::write, second)) && *answer == Post::retry) ++retries;
  EXPECT_EQ(retries, 100u);
  expect_posted(answer);
  EXPECT_TRUE(net.is_over(second) && net.is_over(first));
}

TEST(NetFault, AFullQueueBelowDoesNotUseTheFaultUp) {
  loop::Fabric::Options options = orderly();
  options.queue_depth = 1;
  Net net({.faults = {{.call = Call::write, .what = What::fail, .nth = 3, .moved = Moved::all}}},
          options);
  Sent sent[3];
  std::uint32_t retries = 0;
  for (Sent& one : sent) {
    Result<Post> answer = post(net, Call::write, one);
    for (; answer && *answer == Post::retry; answer = post(net, Call::write, one)) {
      ++retries;
      net.a.poll();
    }
    expect_posted(answer);
  }
  for (Sent& one : sent) EXPECT_TRUE(net.is_over(one));
  EXPECT_GT(retries, 0u);
  EXPECT_TRUE(sent[0].status.ok() && sent[1].status.ok());
  EXPECT_EQ(sent[2].status, Status(Errc::kTransfer));
}

TEST(NetFault, APostIsRefusedAndItsLinkIsOfNoUse) {
  Net net({.faults = {{.call = Call::read, .what = What::refuse, .nth = 1, .status = kBroken}}});
  Sent before, refused, after;
  expect_posted(post(net, Call::write, before));
  const Result<Post> answer = post(net, Call::read, refused);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error(), kBroken);
  expect_posted(post(net, Call::write, after));
  EXPECT_TRUE(net.is_over(before) && net.is_over(after));
  EXPECT_EQ(before.status, kBroken);
  EXPECT_EQ(after.status, kBroken);
  EXPECT_EQ(refused.times, 0u);
}

TEST(NetFault, ALinkThatDiesFailsAllItsPostedOperations) {
  for (const Moved much : {Moved::nothing, Moved::half, Moved::all}) {
    Net net({.faults = {{.call = Call::post,
                         .what = What::kill,
                         .nth = 4,
                         .status = Errc::kPeerDown,
                         .moved = much}},
             .held_one_in = 2});
    Sent sent[6];
    for (Sent& one : sent) expect_posted(post(net, Call::write, one));
    for (Sent& one : sent) {
      EXPECT_TRUE(net.is_over(one));
      EXPECT_EQ(one.status, Status(Errc::kPeerDown));
    }
    net.settle();
    for (Sent& one : sent) EXPECT_EQ(one.times, 1u);
    EXPECT_EQ(net.a.link->failure(), Status(Errc::kPeerDown));
    // The peer's own link lives.
    Sent back;
    expect_posted(net.b.link->write_small_immediate(bytes_of("x"), net.a.at(0), 1, back));
    EXPECT_TRUE(net.is_over(back));
    EXPECT_TRUE(back.status.ok());
    net.settle();
  }
}

TEST(NetFault, ALinkThatIsEndedIsDead) {
  Net net({.held_one_in = 2});
  EXPECT_TRUE(net.a.link->failure().ok());
  Sent sent[6], late;
  for (Sent& one : sent) expect_posted(post(net, Call::write, one));
  net.a.link->end(kBroken);
  net.a.link->end(Errc::kPeerDown);
  EXPECT_EQ(net.a.link->failure(), kBroken);
  expect_posted(post(net, Call::read, late));
  for (Sent* one : {&sent[0], &sent[1], &sent[2], &sent[3], &sent[4], &sent[5], &late}) {
    EXPECT_TRUE(net.is_over(*one));
    EXPECT_EQ(one->status, kBroken);
  }
  net.settle();
  EXPECT_TRUE(net.b.link->failure().ok());
}

TEST(NetFault, AnEndpointDiesAtItsNthPoll) {
  Net net({.faults = {{.call = Call::poll, .what = What::refuse, .nth = 3, .status = kBroken}},
           .held_one_in = 3,
           .late_one_in = 2});
  Sent sent[5];
  for (Sent& one : sent) expect_posted(post(net, Call::write_immediate, one));
  EXPECT_TRUE(net.a.endpoint->poll(0));
  EXPECT_TRUE(net.a.endpoint->poll(0));
  Result<std::uint32_t> served = 0u;
  std::uint32_t polls = 0;
  while ((served = net.a.endpoint->poll(1)) && ++polls < 1000)
    EXPECT_FALSE(net.a.endpoint->arm(net::Wake::all));
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error(), kBroken);
  for (Sent& one : sent) {
    EXPECT_EQ(one.times, 1u);
    EXPECT_EQ(one.status, kBroken);
  }
  EXPECT_FALSE(net.a.endpoint->poll(1));
  net.pair.b.poll();
}

TEST(NetFault, AnEndpointThatDiesBelowIsDead) {
  Net net({.held_one_in = 2, .late_one_in = 2});
  Sent sent[5];
  for (Sent& one : sent) expect_posted(post(net, Call::write, one));
  net.below.kill_endpoint(0);
  Result<std::uint32_t> served = 0u;
  for (std::uint32_t polls = 0; served && polls < 10'000; ++polls) served = net.a.endpoint->poll(1);
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error(), Status(Errc::kPeerDown));
  for (Sent& one : sent) EXPECT_EQ(one.times, 1u);
}

TEST(NetFault, CompletionsAndImmediatesComeLateAndInAnyOrder) {
  std::set<std::string> completions, immediates;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    loop::Fabric below(orderly());
    Fabric fabric(below.for_process(), {.seed = seed, .late_one_in = 2});
    net::Pair pair(fabric, fabric);
    Sent sent[3];
    std::string done, heard;
    for (std::uint32_t i = 0; i < 3; ++i) {
      sent[i].then = [&done, i](Sent&) { done += std::to_string(i); };
      expect_posted(pair.a.link->write_small_immediate(bytes_of("x"), pair.b.at(i), i, sent[i]));
    }
    pair.b.ear.react = [&](std::uint32_t immediate) { heard += std::to_string(immediate); };
    EXPECT_TRUE(pair.poll_until([&] { return done.size() == 3 && heard.size() == 3; }));
    completions.insert(done);
    immediates.insert(heard);
  }
  EXPECT_EQ(completions.size(), 6u);
  EXPECT_EQ(immediates.size(), 6u);
}

TEST(NetFault, PostsAreHeldBackSoThatANetworkWithOrderHasNone) {
  std::set<std::string> ends;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Net net({.seed = seed, .held_one_in = 2});
    Sent sent[2];
    expect_posted(net.a.link->write_small(bytes_of("1"), net.b.at(0), sent[0]));
    expect_posted(net.a.link->write_small(bytes_of("2"), net.b.at(0), sent[1]));
    EXPECT_TRUE(net.is_over(sent[0]) && net.is_over(sent[1]));
    ends.emplace(net.b.text(0, 1));
  }
  EXPECT_EQ(ends.size(), 2u);
}

TEST(NetFault, AHeldSmallWriteHasItsOwnCopy) {
  Net net({.held_one_in = 1});
  Sent sent;
  std::string text = "before";
  expect_posted(net.a.link->write_small(bytes_of(text), net.b.at(0), sent));
  text = "after!";
  EXPECT_FALSE(net.a.endpoint->arm(net::Wake::all));
  EXPECT_TRUE(net.is_over(sent));
  EXPECT_EQ(net.b.text(0, 6), "before");
}

TEST(NetFault, CallsOfTheFabricAndOfEndpointsAreRefused) {
  loop::Fabric below(orderly());
  Plan plan;
  for (const Call call :
       {Call::register_memory, Call::open_endpoint, Call::open_link, Call::connect, Call::reserve})
    plan.faults.push_back({.call = call, .what = What::refuse, .nth = 2, .status = kBroken});
  Fabric fabric(below.for_process(), plan);
  net::Side side, peer;
  side.open(fabric);
  peer.open(below);
  EXPECT_EQ(fabric.register_memory(nullptr, 0).error(), kBroken);
  EXPECT_EQ(fabric.open_endpoint(peer.ear).error(), kBroken);
  EXPECT_EQ(side.endpoint->open_link().error(), kBroken);
  EXPECT_TRUE(side.link->connect(peer.link->offer()).ok());
  EXPECT_EQ(side.link->connect(peer.link->offer()), kBroken);
  EXPECT_TRUE(side.endpoint->reserve_immediates(1).ok());
  EXPECT_EQ(side.endpoint->reserve_immediates(1), kBroken);
  EXPECT_EQ(fabric.hits_count(What::refuse), 5u);
  EXPECT_TRUE(fabric.register_memory(nullptr, 0));
}

TEST(NetFault, AFaultMayBeOfOneEndpointOnly) {
  loop::Fabric below(orderly());
  Fabric fabric(below.for_process(),
                {.faults = {{.call = Call::post, .what = What::fail, .nth = 1, .endpoint = 1}}});
  net::Pair pair(fabric, fabric);
  Sent of_a, of_b;
  expect_posted(pair.a.link->write_small(bytes_of("x"), pair.b.at(0), of_a));
  expect_posted(pair.b.link->write_small(bytes_of("x"), pair.a.at(0), of_b));
  EXPECT_TRUE(pair.poll_until([&] { return of_a.is_over() && of_b.is_over(); }));
  EXPECT_TRUE(of_a.status.ok());
  EXPECT_EQ(of_b.status, Status(Errc::kTransfer));
}

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

TEST(NetFault, TheDescriptorFiresNeverOrAlways) {
  for (const WaitFd kind : {WaitFd::never, WaitFd::always, WaitFd::good}) {
    loop::Fabric below(orderly());
    Fabric fabric(below.for_process(), {.wait_fd = kind});
    net::Pair pair(below, fabric);
    EXPECT_TRUE(pair.b.endpoint->arm(net::Wake::all));
    const int fd = pair.b.endpoint->wait_fd();
    EXPECT_EQ(is_readable(fd), kind == WaitFd::always);
    Sent sent;
    expect_posted(pair.a.link->write_small_immediate(bytes_of("x"), pair.b.at(0), 1, sent));
    EXPECT_EQ(is_readable(fd), kind != WaitFd::never);
    EXPECT_TRUE(pair.poll_until([&] { return sent.is_over() && !pair.b.ear.heard.empty(); }));
  }
}

using NetFaultDeathTest = testing::Test;

TEST_F(NetFaultDeathTest, ALinkDestroyedWithAPostedOperation) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Net net({.held_one_in = 1});
  Sent sent;
  expect_posted(net.a.link->write_small(bytes_of("x"), net.b.at(0), sent));
  EXPECT_DEATH(net.a.link.reset(), "link destroyed with 1 operations under way");
  EXPECT_TRUE(net.is_over(sent));
}

}  // namespace
}  // namespace larklane::fault
