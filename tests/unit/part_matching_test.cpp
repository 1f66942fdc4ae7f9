#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "part/matching.hpp"

namespace larklane::part {
namespace {

struct Receive {};
using Posted = Matching<Receive, int>;
constexpr MatchKey kKey{{1, 2}, 3, 4, nullptr};

/// Takes what is posted. @return 1: a receive, 0: a tombstone
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
      std::vector<std::shared_ptr<Receive>> receives;
      std::vector<int> wanted;
      for (unsigned i = 0; i < kReceives; ++i) {
        receives.push_back(std::make_shared<Receive>());
        matching.post(kKey, receives.back());
        wanted.push_back((freed >> i & 1) == 0);
      }
      for (unsigned step = 0; step < kReceives; ++step) {
        const unsigned i = last_first ? kReceives - 1 - step : step;
        if ((freed >> i & 1) != 0) matching.bury(kKey, *receives[i]);
      }
      EXPECT_EQ(taken(matching), wanted) << freed;
    }
  }
}

TEST(Matching, AReceiveThatIsNotPostedLeavesNoTombstone) {
  Posted matching;
  const Receive unknown;
  matching.bury(kKey, unknown);
  EXPECT_FALSE(matching.take_posted(kKey).has_value());
  matching.post(kKey, std::make_shared<Receive>());
  EXPECT_EQ(taken(matching), std::vector<int>{1});
  matching.bury(kKey, unknown);
  EXPECT_FALSE(matching.take_posted(kKey).has_value());
}

TEST(Matching, ReceivesThatAreMadeAndFreedTakeNoMemory) {
  constexpr int kTimes = 1'000'000;
  Posted matching;
  const auto make_and_free = [&] {
    auto receive = std::make_shared<Receive>();
    matching.post(kKey, receive);
    matching.bury(kKey, *receive);
  };
  make_and_free();
  const auto before = mallinfo2().uordblks;
  for (int i = 1; i < kTimes; ++i) make_and_free();
  EXPECT_EQ(mallinfo2().uordblks, before);
  std::uint64_t tombstones = 0;
  while (matching.take_posted(kKey)) ++tombstones;
  EXPECT_EQ(tombstones, std::uint64_t{kTimes});
}

}  // namespace
}  // namespace larklane::part
