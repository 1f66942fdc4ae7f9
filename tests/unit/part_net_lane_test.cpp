// The helper's sleep on a network's queue, beside a thread that waits and polls it.

#include <poll.h>
#include <sys/eventfd.h>

#include <chrono>

#include "control_fixture.hpp"
#include "part/network/links.hpp"
#include "vci_fake.hpp"

namespace larklane::part {
namespace {

class NetLaneTest : public control::ControlTest {
 protected:
  /// A lane on whose queue the helper sleeps. @param can_tell  data need not end that sleep
  void begin(bool can_tell) {
    auto made = vci::Vci::create(fabric_, lane_);
    ASSERT_TRUE(made);
    vci_ = std::move(made).value();
    fabric_.lanes.front()->fd = event_.get();
    fabric_.lanes.front()->can_tell_needed = can_tell;
    lane_.begin(*vci_, nullptr);
    ASSERT_TRUE(plane_->watch(lane_).ok());
    lane_.turn_on();
    fall_asleep();
  }
  void TearDown() override {
    lane_.turn_off();
    plane_->unwatch(lane_);
    control::ControlTest::TearDown();
  }
  /// As far as a test can observe: all rings have been served.
  void fall_asleep() const {
    const auto end = std::chrono::steady_clock::now() + control::kPatience;
    do {
      ::poll(nullptr, 0, 50);
    } while (!lane_.is_slept_on() && std::chrono::steady_clock::now() < end);
    ASSERT_TRUE(lane_.is_slept_on());
  }
  void wait_a_turn() {
    (void)vci_->progress();
    lane_.on_empty_turn();
  }
  bool wakes_beside_who_waits() {
    const std::uint64_t before = wakeups();
    const auto end = std::chrono::steady_clock::now() + control::kPatience;
    while (wakeups() == before && std::chrono::steady_clock::now() < end) wait_a_turn();
    return wakeups() != before;
  }
  std::uint64_t wakeups() const { return plane_->counters().helper_wakeups; }

  control::Inbox in_;
  const UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  vci::FakeFabric fabric_;
  std::unique_ptr<vci::Vci> vci_;
  NetLane lane_;
  std::unique_ptr<control::Plane> plane_ = make_plane(fresh_place(control::Net::local), in_);
};

TEST_F(NetLaneTest, AWaitingThreadTakesItOverWhereAllEndsTheSleep) {
  begin(false);
  EXPECT_TRUE(wakes_beside_who_waits());
}

TEST_F(NetLaneTest, AWaitingThreadLeavesTheHelperAsleepWhereDataDoNotWake) {
  begin(true);
  const std::uint64_t before = wakeups();
  for (int turn = 0; turn < 1000; ++turn) wait_a_turn();
  ::poll(nullptr, 0, 50);
  EXPECT_TRUE(lane_.is_slept_on());
  EXPECT_EQ(wakeups(), before);
}

TEST_F(NetLaneTest, ButNotWhereAllIsWanted) {
  begin(true);
  lane_.want_all();
  fall_asleep();
  EXPECT_TRUE(wakes_beside_who_waits());
  lane_.want_needed();
}

}  // namespace
}  // namespace larklane::part
