// Matching of partitioned sends and receives.

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "part/matching.hpp"

namespace larklane::part {
namespace {

struct Receive {};
using Posted = Matching<Receive, int>;
constexpr MatchKey kKey{{1, 2}, 3, 4, nullptr};
constexpr int kFreed = -1;

/// Its methods are not called.
const control::Peer& peer() {
  alignas(std::max_align_t) static std::byte place[1];
  return reinterpret_cast<const control::Peer&>(place);
}
const MatchKey kSends{{1, 2}, 3, 4, &peer()};

/// Takes the posted receive. @return 1: a receive, 0: a tombstone
std::vector<int> taken(Posted& matching) {
  std::vector<int> all;
  while (auto one = matching.take_posted(kKey)) all.push_back(*one != nullptr);
  return all;
}

// Every subset of five receives is freed, in either order: each send still gets its own.
TEST(Matching, AFreedReceiveKeepsItsPlace) {
  constexpr unsigned kReceives = 5;
  for (unsigned freed = 0; freed < 1U << kReceives; ++freed) {
    for (const bool last_first : {false, true}) {
      Posted matching;
      std::vector<std::uint64_t> places;
      std::vector<int> wanted;
      for (unsigned i = 0; i < kReceives; ++i) {
        places.push_back(matching.post(kKey, std::make_shared<Receive>()));
        wanted.push_back((freed >> i & 1) == 0);
      }
      for (unsigned step = 0; step < kReceives; ++step) {
        const unsigned i = last_first ? kReceives - 1 - step : step;
        if ((freed >> i & 1) != 0) matching.bury(kKey, places[i]);
      }
      EXPECT_EQ(taken(matching), wanted) << freed;
    }
  }
}

TEST(Matching, AReceiveThatIsNotPostedLeavesNoTombstone) {
  Posted matching;
  matching.bury(kKey, 1);
  EXPECT_FALSE(matching.take_posted(kKey).has_value());
  const std::uint64_t place = matching.post(kKey, std::make_shared<Receive>());
  EXPECT_EQ(taken(matching), std::vector<int>{1});
  matching.bury(kKey, place);
  EXPECT_FALSE(matching.take_posted(kKey).has_value());
}

TEST(Matching, ReceivesThatAreMadeAndFreedTakeNoMemory) {
  constexpr int kTimes = 1'000'000;
  Posted matching;
  const auto make_and_free = [&] {
    matching.bury(kKey, matching.post(kKey, std::make_shared<Receive>()));
  };
  make_and_free();
  const auto before = mallinfo2().uordblks;
  for (int i = 1; i < kTimes; ++i) make_and_free();
  EXPECT_EQ(mallinfo2().uordblks, before);
  std::uint64_t tombstones = 0;
  while (matching.take_posted(kKey)) ++tombstones;
  EXPECT_EQ(tombstones, std::uint64_t{kTimes});
}

// Every subset of five sends is freed, in either order: each receive still gets its own.
TEST(Matching, AFreedSendKeepsItsPlace) {
  constexpr int kSends5 = 5;
  for (unsigned freed = 0; freed < 1U << kSends5; ++freed) {
    for (const bool last_first : {false, true}) {
      Posted matching;
      std::vector<int> wanted;
      for (int i = 0; i < kSends5; ++i) {
        matching.keep(kSends, 100 + static_cast<std::uint64_t>(i), i);
        wanted.push_back((freed >> i & 1) == 0 ? i : kFreed);
      }
      for (int step = 0; step < kSends5; ++step) {
        const int i = last_first ? kSends5 - 1 - step : step;
        const std::uint64_t number = 100 + static_cast<std::uint64_t>(i);
        if ((freed >> i & 1) == 0) continue;
        ASSERT_NE(matching.incoming({&peer(), number}), nullptr);
        EXPECT_EQ(*matching.incoming({&peer(), number}), i);
        matching.bury_incoming({&peer(), number});
        EXPECT_EQ(matching.incoming({&peer(), number}), nullptr);
      }
      std::vector<int> all;
      while (const auto one = matching.take_incoming(kSends)) all.push_back(*one ? **one : kFreed);
      EXPECT_EQ(all, wanted) << freed;
      EXPECT_EQ(matching.incoming({&peer(), 100}), nullptr);
    }
  }
}

TEST(Matching, SendsThatAreMadeAndFreedTakeNoMemory) {
  constexpr std::uint64_t kTimes = 1'000'000;
  Posted matching;
  std::uint64_t number = 0;
  const auto make_and_free = [&] {
    matching.keep(kSends, ++number, 7);
    matching.bury_incoming({&peer(), number});
  };
  make_and_free();
  const auto before = mallinfo2().uordblks;
  while (number < kTimes) make_and_free();
  EXPECT_EQ(mallinfo2().uordblks, before);
  std::uint64_t tombstones = 0;
  while (matching.take_incoming(kSends)) ++tombstones;
  EXPECT_EQ(tombstones, kTimes);
}

// A search through all that wait would take minutes.
TEST(Matching, ManyThatWaitAreFreedInAnyOrder) {
  constexpr std::uint64_t kTimes = 200'000;
  for (const bool last_first : {false, true}) {
    Posted matching;
    std::vector<std::uint64_t> places;
    for (std::uint64_t i = 0; i < kTimes; ++i) {
      places.push_back(matching.post(kKey, std::make_shared<Receive>()));
      matching.keep(kSends, i, 7);
    }
    for (std::uint64_t step = 0; step < kTimes; ++step) {
      const std::uint64_t i = last_first ? kTimes - 1 - step : step;
      matching.bury(kKey, places[i]);
      matching.bury_incoming({&peer(), i});
    }
    EXPECT_EQ(*matching.take_incoming(kSends), nullptr);
    EXPECT_EQ(*matching.take_posted(kKey), nullptr);
  }
}

}  // namespace
}  // namespace larklane::part
