// Messages on lanes by tag against an oracle of vector clocks, over seeds.

#include <gtest/gtest.h>

#include "lanes_world.hpp"
#include "msg_seeds.hpp"

namespace larklane::msg {
namespace {

TEST(MsgLanes, NoMatchOvertakesAMessageThatHappenedBefore) {
  for_seeds(16, [](std::uint64_t seed) {
    LanesWorld({.seed = seed,
                .sources = 1 + static_cast<std::uint32_t>(seed % 2),
                .senders = 1 + static_cast<std::uint32_t>(seed % 4),
                .receivers = 1 + static_cast<std::uint32_t>(seed % 3),
                .messages = 1500,
                .has_clock = seed % 8 != 0})
        .run();
  });
}

TEST(MsgLanes, OneThreadCountsAndASecondOneIsAbove) {
  LaneStamps<> stamps(true);
  const std::uint64_t first = stamps.next();
  const std::uint64_t second = stamps.next();
  EXPECT_LT(first, second);
  EXPECT_LT(second, LaneStamps<>::kShared);
  std::uint64_t other = 0;
  std::thread([&] { other = stamps.next(); }).join();
  EXPECT_LT(second, other);
  EXPECT_LT(other, stamps.next());
}

}  // namespace
}  // namespace larklane::msg
