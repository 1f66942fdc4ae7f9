// Threads that send, receive, probe and cancel on lanes by tag.

#include <gtest/gtest.h>

#include "prop/lanes_world.hpp"

namespace larklane::msg {
namespace {

TEST(MsgLanesRace, SendersAndReceiversShareLanes) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    LanesWorld({.seed = seed,
                .sources = 1 + static_cast<std::uint32_t>(seed % 2),
                .senders = 2,
                .receivers = 2,
                .messages = 500,
                .has_clock = seed != 4})
        .run();
  }
}

}  // namespace
}  // namespace larklane::msg
