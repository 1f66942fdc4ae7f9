// Context ids of communicators.

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "mpi/world/context_id.hpp"

namespace larklane::mpi {
namespace {

ContextId child(const ContextId& parent, std::uint64_t ordinal) {
  return ContextHash(Origin::dup).add(parent).add(ordinal).id();
}

TEST(MpiContextId, IsTheSameOnEveryMachine) {
  // Fixed: processes of different builds must agree.
  const ContextId id = ContextHash(Origin::world).id();
  EXPECT_EQ(id, ContextHash(Origin::world).id());
  EXPECT_NE(id, ContextId{});
}

TEST(MpiContextId, DiffersByEverythingThatIsAdded) {
  const ContextId parent = ContextHash(Origin::world).id();
  std::set<ContextId> seen;
  for (std::uint64_t origin = 1; origin <= 22; ++origin) {
    for (std::uint64_t ordinal = 0; ordinal < 1000; ++ordinal) {
      const auto id = ContextHash(static_cast<Origin>(origin)).add(parent).add(ordinal).id();
      EXPECT_TRUE(seen.insert(id).second) << "origin " << origin << " ordinal " << ordinal;
    }
  }
}

TEST(MpiContextId, AChainOfDuplicatesNeverRepeats) {
  std::set<ContextId> seen;
  ContextId id = ContextHash(Origin::world).id();
  for (int depth = 0; depth < 10000; ++depth) {
    EXPECT_TRUE(seen.insert(id).second);
    id = child(id, static_cast<std::uint64_t>(depth % 2));
  }
}

TEST(MpiContextId, TheOrderOfAGroupCounts) {
  EXPECT_NE(group_id(std::array{0, 1, 2}), group_id(std::array{0, 2, 1}));
  EXPECT_NE(group_id(std::array{0, 1}), group_id(std::array{0, 1, 2}));
}

TEST(MpiContextId, BothSidesOfAnIntercommunicatorAgree) {
  const ContextId left = group_id(std::array{0, 1});
  const ContextId right = group_id(std::array{2, 3, 4});
  ContextHash here(Origin::intercomm), there(Origin::intercomm);
  add_unordered(here, left, right);
  add_unordered(there, right, left);
  EXPECT_EQ(here.id(), there.id());
}

TEST(MpiContextId, TextsDoNotRunIntoEachOther) {
  const auto hash = [](std::string_view a, std::string_view b) {
    return ContextHash(Origin::from_group).add(a).add(b).id();
  };
  EXPECT_NE(hash("ab", "c"), hash("a", "bc"));
  EXPECT_NE(hash("", "a"), hash("a", ""));
  EXPECT_NE(hash(std::string(8, 'x'), ""), hash(std::string(9, 'x'), ""));
}

TEST(MpiContextId, EveryInputBitReachesBothHalves) {
  for (int bit = 0; bit < 64; ++bit) {
    const auto a = ContextHash(Origin::split).add(std::uint64_t{0}).id();
    const auto b = ContextHash(Origin::split).add(std::uint64_t{1} << bit).id();
    const int high = std::popcount(a.high ^ b.high);
    const int low = std::popcount(a.low ^ b.low);
    EXPECT_GT(high, 12) << "bit " << bit;
    EXPECT_GT(low, 12) << "bit " << bit;
  }
}

}  // namespace
}  // namespace larklane::mpi
