// Matching engines: each rule by itself.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "msg/match/match.hpp"

namespace larklane::msg {
namespace {

using Kind = MatchingEngine::Kind;
using Policy = MatchPolicy;

constexpr Kind kKinds[] = {Kind::exact, Kind::ordered, Kind::lazy};
constexpr Policy kPolicies[] = {Policy::rank_tag, Policy::rank, Policy::tag, Policy::none};

std::unique_ptr<MatchingEngine> make(Kind kind, std::uint32_t bucket_count = 16) {
  auto engine = MatchingEngine::create({.kind = kind, .bucket_count = bucket_count});
  EXPECT_TRUE(engine.has_value());
  return std::move(engine.value());
}

/// With addresses that stay.
template <class Node>
struct Nodes {
  Node& add(std::uint32_t rank, std::uint32_t tag, Policy policy = Policy::rank_tag) {
    Node& node = all.emplace_back();
    node.rank = rank;
    node.tag = tag;
    node.policy = policy;
    if constexpr (requires { node.arrival; }) node.arrival = all.size();
    return node;
  }
  std::deque<Node> all;
};
struct Both {
  Nodes<MatchReceive> receives;
  Nodes<MatchMessage> messages;
};

template <class Body>
void for_each_kind(std::uint32_t bucket_count, Body body) {
  for (const Kind kind : kKinds) {
    Both nodes;
    const auto engine = make(kind, bucket_count);
    body(*engine, nodes);
  }
}

TEST(Match, ABucketCountIsAPowerOfTwo) {
  for (const std::uint32_t wrong : {0u, 3u, 1000u, MatchingEngine::kBucketCountMax * 2})
    EXPECT_EQ(MatchingEngine::create({.bucket_count = wrong}).error().code(),
              Errc::kInvalidArgument);
  for (const std::uint32_t right : {1u, 2u, 1024u})
    EXPECT_TRUE(MatchingEngine::create({.bucket_count = right}).has_value());
}

TEST(Match, SizesArePinned) {
  EXPECT_EQ(sizeof(MatchReceive), 56u);
  EXPECT_EQ(sizeof(MatchMessage), 184u);
}

TEST(Match, AnEntryThatCantWaitMatchesNowOrNever) {
  for_each_kind(16, [](MatchingEngine& engine, Both& nodes) {
    MatchReceive& posted = nodes.receives.add(3, 5);
    EXPECT_EQ(engine.match_now({3, 5, MatchPolicy::rank_tag}), nullptr);
    EXPECT_EQ(engine.insert_receive(posted), nullptr);
    EXPECT_EQ(engine.match_now({3, 6, MatchPolicy::rank_tag}), nullptr);
    EXPECT_EQ(engine.match_now({3, 5, MatchPolicy::rank_tag}), &posted);
    EXPECT_EQ(engine.counts().waiting, 0u);
  });
}

TEST(Match, AllThatWaitsIsTakenOutOnce) {
  for_each_kind(2, [](MatchingEngine& engine, Both& nodes) {
    std::vector<MatchReceive*> receives;
    std::vector<MatchMessage*> messages;
    for (std::uint32_t i = 0; i < 9; ++i) {
      EXPECT_EQ(engine.insert_receive(nodes.receives.add(1, i / 2)), nullptr);
      EXPECT_EQ(engine.insert_message(nodes.messages.add(2, i / 2)), nullptr);
    }
    MatchingEngine::Sweep of_receives, of_messages;
    while (MatchReceive* const receive = engine.take_receive(of_receives))
      receives.push_back(receive);
    while (MatchMessage* const message = engine.take_message(of_messages))
      messages.push_back(message);
    for (auto& receive : nodes.receives.all) EXPECT_EQ(std::ranges::count(receives, &receive), 1);
    for (auto& message : nodes.messages.all) EXPECT_EQ(std::ranges::count(messages, &message), 1);
    EXPECT_EQ(engine.counts().waiting, 0u);
  });
}

TEST(Match, TheSecondToComeGetsTheFirst) {
  for_each_kind(16, [](MatchingEngine& engine, Both& nodes) {
    MatchReceive& posted = nodes.receives.add(3, 5);
    EXPECT_EQ(engine.insert_receive(posted), nullptr);
    EXPECT_EQ(engine.insert_message(nodes.messages.add(3, 5)), &posted);
    MatchMessage& unexpected = nodes.messages.add(3, 5);
    EXPECT_EQ(engine.insert_message(unexpected), nullptr);
    EXPECT_EQ(engine.insert_receive(nodes.receives.add(3, 5)), &unexpected);
    EXPECT_EQ(engine.counts().waiting, 0u);
  });
}

TEST(Match, AnotherRankOrTagDoesNotMatch) {
  for_each_kind(1, [](MatchingEngine& engine, Both& nodes) {
    EXPECT_EQ(engine.insert_receive(nodes.receives.add(1, 2)), nullptr);
    EXPECT_EQ(engine.insert_message(nodes.messages.add(2, 1)), nullptr);
    EXPECT_EQ(engine.insert_message(nodes.messages.add(1, 1)), nullptr);
    EXPECT_EQ(engine.insert_message(nodes.messages.add(2, 2)), nullptr);
    EXPECT_EQ(engine.counts().waiting, 4u);
  });
}

TEST(Match, NodesAreUsedAgain) {
  for_each_kind(16, [](MatchingEngine& engine, Both& nodes) {
    MatchReceive& receive = nodes.receives.add(0, 0);
    MatchMessage& message = nodes.messages.add(0, 0);
    for (std::uint32_t round = 0; round < 4; ++round) {
      receive.tag = message.tag = round;
      EXPECT_EQ(engine.insert_receive(receive), nullptr);
      EXPECT_EQ(engine.insert_message(message), &receive);
      EXPECT_EQ(engine.insert_message(message), nullptr);
      EXPECT_EQ(engine.insert_receive(receive), &message);
    }
  });
}

// A rank out of range as a message's source is wrong, but no message becomes a receive.
TEST(Match, ARankOutOfRangeIsNoOtherKind) {
  for_each_kind(1, [](MatchingEngine& engine, Both& nodes) {
    MatchReceive& large = nodes.receives.add(1u << 31, 0);
    EXPECT_EQ(engine.insert_receive(large), nullptr);
    EXPECT_EQ(engine.insert_receive(nodes.receives.add(1u << 31, 0)), nullptr);
    EXPECT_EQ(engine.insert_message(nodes.messages.add(1u << 31, 0)), &large);
  });
}

// --- exact -----------------------------------------------------------------------------------

TEST(MatchExact, SamePolicyAndSameValuesOfIt) {
  for (const Policy posted : kPolicies)
    for (const Policy sent : kPolicies)
      for (std::uint32_t rank = 0; rank < 2; ++rank)
        for (std::uint32_t tag = 0; tag < 2; ++tag) {
          Both nodes;
          const auto engine = make(Kind::exact, 1);
          MatchReceive& receive = nodes.receives.add(0, 0, posted);
          EXPECT_EQ(engine->insert_receive(receive), nullptr);
          const bool has_rank = posted == Policy::rank_tag || posted == Policy::rank;
          const bool has_tag = posted == Policy::rank_tag || posted == Policy::tag;
          const bool fits = posted == sent && (!has_rank || rank == 0) && (!has_tag || tag == 0);
          EXPECT_EQ(engine->insert_message(nodes.messages.add(rank, tag, sent)),
                    fits ? &receive : nullptr);
        }
}

TEST(MatchExact, EqualKeysAreFirstInFirstOut) {
  for (const Policy policy : kPolicies) {
    Both nodes;
    const auto engine = make(Kind::exact, 1);
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(engine->insert_receive(nodes.receives.add(1, 2, policy)), nullptr);
    for (MatchReceive& receive : nodes.receives.all)
      EXPECT_EQ(engine->insert_message(nodes.messages.add(1, 2, policy)), &receive);
    nodes.messages.all.clear();
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(engine->insert_message(nodes.messages.add(1, 2, policy)), nullptr);
    for (MatchMessage& message : nodes.messages.all)
      EXPECT_EQ(engine->insert_receive(nodes.receives.add(1, 2, policy)), &message);
  }
}

// One bucket: slots and chain, which is taken apart from its end, its middle, its beginning.
TEST(MatchExact, ManyKeysInOneBucket) {
  constexpr std::uint32_t kKeys = 7;
  for (std::uint32_t step = 1; step < kKeys; ++step) {
    Both nodes;
    const auto engine = make(Kind::exact, 1);
    for (int round = 0; round < 2; ++round)
      for (std::uint32_t tag = 0; tag < kKeys; ++tag)
        EXPECT_EQ(engine->insert_receive(nodes.receives.add(0, tag)), nullptr);
    for (std::uint32_t i = 0; i < 2 * kKeys; ++i) {
      const std::uint32_t tag = i * step % kKeys;  // kKeys is prime
      EXPECT_EQ(engine->insert_message(nodes.messages.add(0, tag)),
                &nodes.receives.all[i < kKeys ? tag : kKeys + tag]);
    }
    EXPECT_EQ(engine->counts().longest_chain, kKeys);
  }
}

// Threads with neighbouring tags, or with one tag and neighbouring ranks, do not meet.
TEST(MatchExact, NeighbouringKeysHaveBucketsOfTheirOwn) {
  const auto longest = [](std::uint32_t ranks, std::uint32_t tags, Policy policy) {
    Both nodes;
    const auto engine = make(Kind::exact, 1024);
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      for (std::uint32_t tag = 0; tag < tags; ++tag)
        EXPECT_EQ(engine->insert_receive(nodes.receives.add(rank, tag, policy)), nullptr);
    return engine->counts().longest_chain;
  };
  EXPECT_EQ(longest(1, 256, Policy::rank_tag), 1u);
  EXPECT_EQ(longest(256, 1, Policy::rank_tag), 1u);
  EXPECT_EQ(longest(1, 256, Policy::tag), 1u);
  EXPECT_EQ(longest(256, 1, Policy::rank), 1u);
  EXPECT_LE(longest(32, 32, Policy::rank_tag), 4u);
}

// --- ordered ---------------------------------------------------------------------------------

TEST(MatchOrdered, AMessageGetsTheFirstReceiveThatFits) {
  std::array<Policy, 4> order{Policy::rank_tag, Policy::rank, Policy::tag, Policy::none};
  do {
    Both nodes;
    const auto engine = make(Kind::ordered, 2);
    EXPECT_EQ(engine->insert_receive(nodes.receives.add(1, 3)), nullptr);
    EXPECT_EQ(engine->insert_receive(nodes.receives.add(2, 2)), nullptr);
    EXPECT_EQ(engine->insert_receive(nodes.receives.add(2, 9, Policy::rank)), nullptr);
    EXPECT_EQ(engine->insert_receive(nodes.receives.add(9, 3, Policy::tag)), nullptr);
    for (const Policy policy : order)
      EXPECT_EQ(engine->insert_receive(nodes.receives.add(1, 2, policy)), nullptr);
    for (std::size_t i = 0; i < order.size(); ++i)
      EXPECT_EQ(engine->insert_message(nodes.messages.add(1, 2)), &nodes.receives.all[4 + i]);
    EXPECT_EQ(engine->insert_message(nodes.messages.add(1, 2)), nullptr);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(MatchOrdered, AReceiveGetsTheFirstMessageThatFits) {
  const auto gets = [](Policy policy) {
    Both nodes;
    const auto engine = make(Kind::ordered, 2);
    for (const auto& [rank, tag] : {std::pair{0u, 0u}, {0u, 2u}, {1u, 0u}, {1u, 2u}, {1u, 2u}})
      EXPECT_EQ(engine->insert_message(nodes.messages.add(rank, tag)), nullptr);
    std::vector<std::ptrdiff_t> got;
    while (MatchMessage* const message = engine->insert_receive(nodes.receives.add(1, 2, policy)))
      got.push_back(std::find_if(nodes.messages.all.begin(), nodes.messages.all.end(),
                                 [&](MatchMessage& one) { return &one == message; }) -
                    nodes.messages.all.begin());
    return got;
  };
  using Order = std::vector<std::ptrdiff_t>;
  EXPECT_EQ(gets(Policy::rank_tag), (Order{3, 4}));
  EXPECT_EQ(gets(Policy::rank), (Order{2, 3, 4}));
  EXPECT_EQ(gets(Policy::tag), (Order{1, 3, 4}));
  EXPECT_EQ(gets(Policy::none), (Order{0, 1, 2, 3, 4}));
}

TEST(MatchOrdered, AMessageThatIsTakenIsGoneForAllReceives) {
  for (const Policy taken : kPolicies)
    for (const Policy later : kPolicies) {
      Both nodes;
      const auto engine = make(Kind::ordered, 2);
      MatchMessage& message = nodes.messages.add(1, 2);
      EXPECT_EQ(engine->insert_message(message), nullptr);
      EXPECT_EQ(engine->insert_receive(nodes.receives.add(1, 2, taken)), &message);
      EXPECT_EQ(engine->insert_receive(nodes.receives.add(1, 2, later)), nullptr);
    }
}

TEST(MatchOrdered, TheMessagesPolicyIsOfNoInterest) {
  for (const Policy posted : kPolicies)
    for (const Policy sent : kPolicies) {
      Both nodes;
      const auto engine = make(Kind::ordered);
      MatchReceive& receive = nodes.receives.add(1, 2, posted);
      EXPECT_EQ(engine->insert_receive(receive), nullptr);
      EXPECT_EQ(engine->insert_message(nodes.messages.add(1, 2, sent)), &receive);
    }
}

// --- cancel ----------------------------------------------------------------------------------

TEST(MatchLazy, TheFirstWildcardFindsMessagesInTheirOrderOfArrival) {
  for (const bool probes : {false, true}) {
    const auto engine = make(Kind::lazy, 1024);
    Both nodes;
    for (std::uint32_t i = 0; i < 500; ++i)
      EXPECT_EQ(engine->insert_message(nodes.messages.add(i % 3, i * 7 % 11)), nullptr);
    if (probes) {
      const auto seen = engine->look({0, 0, Policy::none});
      ASSERT_TRUE(seen);
      EXPECT_EQ(seen->rank, 0u);
      EXPECT_EQ(seen->tag, 0u);
    }
    for (MatchMessage& message : nodes.messages.all)
      ASSERT_EQ(engine->insert_receive(nodes.receives.add(0, 0, Policy::none)), &message);
    EXPECT_EQ(engine->counts().waiting, 0u);
  }
}

TEST(MatchLazy, ReceivesOfBeforeAreOlderThanTheFirstWildcard) {
  const auto engine = make(Kind::lazy, 64);
  Both nodes;
  for (std::uint32_t i = 0; i < 200; ++i)
    EXPECT_EQ(engine->insert_receive(nodes.receives.add(i % 4, i % 50)), nullptr);
  MatchReceive& wildcard = nodes.receives.add(0, 0, Policy::none);
  EXPECT_EQ(engine->insert_receive(wildcard), nullptr);
  for (std::uint32_t i = 0; i < 200; ++i)
    ASSERT_EQ(engine->insert_message(nodes.messages.add(i % 4, i % 50)), &nodes.receives.all[i]);
  EXPECT_EQ(engine->insert_message(nodes.messages.add(0, 0)), &wildcard);
}

TEST(MatchLazy, GrowsWithItsKeysAndLosesNone) {
  constexpr std::uint32_t kKeys = 20'000;
  for (const bool is_ordered : {false, true}) {
    const auto engine = make(Kind::lazy, 64);
    Both nodes;
    if (is_ordered) {
      EXPECT_FALSE(engine->look({0, 0, Policy::none}));
    }
    for (std::uint32_t i = 0; i < kKeys; ++i)
      EXPECT_EQ(engine->insert_message(nodes.messages.add(i % 7, i)), nullptr);
    const MatchCounts counts = engine->counts();
    EXPECT_EQ(counts.waiting, kKeys);
    EXPECT_EQ(counts.unexpected, kKeys);
    EXPECT_LT(counts.longest_chain, 50u);
    for (std::uint32_t i = kKeys; i-- != 0;)
      ASSERT_EQ(engine->insert_receive(nodes.receives.add(i % 7, i)), &nodes.messages.all[i]);
    EXPECT_EQ(engine->counts().waiting, 0u);
    EXPECT_EQ(engine->counts().matched, kKeys);
  }
}

TEST(MatchProbe, LookShowsWhatTakeTakes) {
  for_each_kind(4, [](MatchingEngine& engine, Both& nodes) {
    EXPECT_FALSE(engine.look({1, 2, Policy::rank_tag}));
    EXPECT_EQ(engine.insert_receive(nodes.receives.add(9, 9)), nullptr);
    EXPECT_FALSE(engine.look({9, 9, Policy::rank_tag}));
    EXPECT_EQ(engine.take({9, 9, Policy::rank_tag}), nullptr);
    MatchMessage& first = nodes.messages.add(1, 2);
    MatchMessage& second = nodes.messages.add(1, 2);
    first.bytes = 70;
    EXPECT_EQ(engine.insert_message(first), nullptr);
    EXPECT_EQ(engine.insert_message(second), nullptr);
    const auto seen = engine.look({1, 2, Policy::rank_tag});
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->rank, 1u);
    EXPECT_EQ(seen->tag, 2u);
    EXPECT_EQ(seen->bytes, 70u);
    EXPECT_EQ(engine.take({1, 2, Policy::rank_tag}), &first);
    EXPECT_EQ(engine.insert_receive(nodes.receives.add(1, 2)), &second);
    EXPECT_FALSE(engine.look({1, 2, Policy::rank_tag}));
    EXPECT_EQ(engine.counts().waiting, 1u);
  });
}

TEST(MatchCancel, OnlyWaitingEntriesAndOnce) {
  for_each_kind(16, [](MatchingEngine& engine, Both& nodes) {
    MatchReceive& receive = nodes.receives.add(1, 2);
    EXPECT_FALSE(engine.cancel(receive)) << "was never posted";
    EXPECT_EQ(engine.insert_receive(receive), nullptr);
    EXPECT_TRUE(engine.cancel(receive));
    EXPECT_FALSE(engine.cancel(receive));
    MatchMessage& message = nodes.messages.add(1, 2);
    EXPECT_EQ(engine.insert_message(message), nullptr);
    EXPECT_EQ(engine.insert_receive(receive), &message);
    EXPECT_FALSE(engine.cancel(receive)) << "got a waiting message";
    EXPECT_EQ(engine.insert_receive(receive), nullptr);
    EXPECT_EQ(engine.insert_message(message), &receive);
    EXPECT_FALSE(engine.cancel(receive)) << "was got by a message";
    EXPECT_EQ(engine.counts().cancelled, 1u);
  });
}

// Any one of five is cancelled, in a slot (tag 0) or in the chain (tag 2): the others match, and
// the other keys stay.
TEST(MatchCancel, TheOthersStayInOrder) {
  for (const Kind kind : kKinds)
    for (const std::uint32_t tag : {0u, 2u, 3u})
      for (std::size_t cancelled = 0; cancelled < 5; ++cancelled) {
        Both nodes, others;
        const auto engine = make(kind, 1);
        for (std::uint32_t other = 0; other < 5; ++other)
          EXPECT_EQ(engine->insert_receive((other == tag ? nodes : others).receives.add(0, other)),
                    nullptr);
        for (int i = 0; i < 4; ++i)
          EXPECT_EQ(engine->insert_receive(nodes.receives.add(0, tag)), nullptr);
        EXPECT_TRUE(engine->cancel(nodes.receives.all[cancelled]));
        for (std::size_t i = 0; i < 5; ++i)
          if (i != cancelled) {
            EXPECT_EQ(engine->insert_message(nodes.messages.add(0, tag)), &nodes.receives.all[i]);
          }
        EXPECT_EQ(engine->insert_message(nodes.messages.add(0, tag)), nullptr);
        for (MatchReceive& other : others.receives.all)
          EXPECT_EQ(engine->insert_message(nodes.messages.add(0, other.tag)), &other);
      }
}

TEST(MatchCancel, ACancelledWildcardDoesNotHideTheNextReceive) {
  Both nodes;
  const auto engine = make(Kind::ordered);
  MatchReceive& any = nodes.receives.add(0, 0, Policy::none);
  MatchReceive& exact = nodes.receives.add(1, 2);
  EXPECT_EQ(engine->insert_receive(any), nullptr);
  EXPECT_EQ(engine->insert_receive(exact), nullptr);
  EXPECT_TRUE(engine->cancel(any));
  EXPECT_EQ(engine->insert_message(nodes.messages.add(1, 2)), &exact);
}

// --- a dead rank -----------------------------------------------------------------------------

TEST(MatchDead, ReceivesThatOnlyItCouldMatchAreHandedBack) {
  for (const Kind kind : kKinds)
    for (const std::uint32_t bucket_count : {1u, 64u}) {
      Both nodes;
      const auto engine = make(kind, bucket_count);
      std::vector<MatchReceive*> orphans, others;
      for (std::uint32_t tag = 0; tag < 3; ++tag)
        for (const std::uint32_t rank : {0u, 1u, 0u})
          for (const Policy policy : kPolicies) {
            MatchReceive& receive = nodes.receives.add(rank, tag, policy);
            EXPECT_EQ(engine->insert_receive(receive), nullptr);
            const bool has_rank = policy == Policy::rank_tag || policy == Policy::rank;
            (has_rank && rank == 0 ? orphans : others).push_back(&receive);
          }
      std::vector<MatchReceive*> taken;
      MatchingEngine::Sweep sweep;
      while (MatchReceive* const receive = engine->take_receive_of(0, sweep))
        taken.push_back(receive);
      EXPECT_EQ(engine->take_receive_of(0, sweep), nullptr);
      std::sort(taken.begin(), taken.end());
      std::sort(orphans.begin(), orphans.end());
      EXPECT_EQ(taken, orphans);
      EXPECT_EQ(engine->counts().orphaned, orphans.size());
      for (MatchReceive* const receive : orphans) EXPECT_FALSE(engine->cancel(*receive));
      for (MatchReceive* const receive : others) EXPECT_TRUE(engine->cancel(*receive));
    }
}

TEST(MatchDead, ItsMessagesStay) {
  for_each_kind(1, [](MatchingEngine& engine, Both& nodes) {
    MatchMessage& message = nodes.messages.add(1, 2);
    EXPECT_EQ(engine.insert_message(message), nullptr);
    MatchingEngine::Sweep sweep;
    EXPECT_EQ(engine.take_receive_of(1, sweep), nullptr);
    EXPECT_EQ(engine.insert_receive(nodes.receives.add(1, 2)), &message);
  });
}

// --- counts ----------------------------------------------------------------------------------

TEST(MatchCounts, ByReason) {
  for_each_kind(1, [](MatchingEngine& engine, Both& nodes) {
    for (std::uint32_t tag = 0; tag < 3; ++tag)
      EXPECT_EQ(engine.insert_receive(nodes.receives.add(0, tag)), nullptr);
    for (std::uint32_t tag = 2; tag < 4; ++tag)
      (void)engine.insert_message(nodes.messages.add(0, tag));
    EXPECT_TRUE(engine.cancel(nodes.receives.all[0]));
    MatchCounts counts = engine.counts();
    EXPECT_EQ(counts.posted, 3u);
    EXPECT_EQ(counts.unexpected, 1u);
    EXPECT_EQ(counts.matched, 1u);
    EXPECT_EQ(counts.waiting, 2u);
    EXPECT_EQ(counts.cancelled, 1u);
    EXPECT_EQ(counts.orphaned, 0u);
    MatchingEngine::Sweep sweep;
    EXPECT_EQ(engine.take_receive_of(0, sweep), &nodes.receives.all[1]);
    EXPECT_NE(engine.insert_receive(nodes.receives.add(0, 3)), nullptr);
    counts = engine.counts();
    EXPECT_EQ(counts.matched, 2u);
    EXPECT_EQ(counts.waiting, 0u);
    EXPECT_EQ(counts.orphaned, 1u);
  });
}

}  // namespace
}  // namespace larklane::msg
