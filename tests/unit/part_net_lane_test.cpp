// The helper's sleep on a network's queue, beside a thread that waits and polls it.

#include <poll.h>
#include <sys/eventfd.h>

#include <chrono>

#include "control_fixture.hpp"
#include "part/net_links.hpp"
#include "vci_fake.hpp"

namespace larklane::part {
namespace {

class NetLaneTest : public control::ControlTest {
 protected:
  /// A lane on whose queue the helper sleeps.
  void begin(bool does_data_wake) {
    auto made = vci::Vci::create(fabric_, lane_);
    ASSERT_TRUE(made);
    vci_ = std::move(made).value();
    fabric_.lanes.front()->fd = event_.get();
    lane_.begin(*vci_, nullptr, does_data_wake);
    ASSERT_TRUE(plane_->watch(lane_).ok());
    lane_.turn_on();
  }
  void TearDown() override {
    lane_.turn_off();
    plane_->unwatch(lane_);
    control::ControlTest::TearDown();
  }
  bool falls_asleep() const {
    const auto end = std::chrono::steady_clock::now() + control::kPatience;
    while (!lane_.is_slept_on() && std::chrono::steady_clock::now() < end) ::poll(nullptr, 0, 1);
    return lane_.is_slept_on();
  }
  void wait_in_a_loop() {
    for (int turn = 0; turn < 1000; ++turn) {
      (void)vci_->progress();
      lane_.on_empty_turn();
    }
  }
  std::uint64_t wakeups() const { return plane_->counters().helper_wakeups; }

  control::Inbox in_;
  const UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  vci::FakeFabric fabric_;
  std::unique_ptr<vci::Vci> vci_;
  NetLane lane_;
  std::unique_ptr<control::Plane> plane_ = make_plane(fresh_place(control::Net::local), in_);
};

TEST_F(NetLaneTest, WhoWaitsTakesItOverWhereDataWouldWakeTheHelper) {
  begin(true);
  ASSERT_TRUE(falls_asleep());
  wait_in_a_loop();
  EXPECT_FALSE(lane_.is_slept_on());
}

TEST_F(NetLaneTest, WhoWaitsLeavesAHelperAsleepThatDataDoNotWake) {
  begin(false);
  ASSERT_TRUE(falls_asleep());
  const std::uint64_t before = wakeups();
  wait_in_a_loop();
  EXPECT_TRUE(lane_.is_slept_on());
  EXPECT_EQ(wakeups(), before);
}

TEST_F(NetLaneTest, ButNotWhereAllIsWanted) {
  begin(false);
  lane_.want_all();
  ASSERT_TRUE(falls_asleep());
  ::poll(nullptr, 0, 50);  // the ring has been heard
  ASSERT_TRUE(falls_asleep());
  EXPECT_EQ(fabric_.lanes.front()->armed_for, net::Wake::all);
  wait_in_a_loop();
  EXPECT_FALSE(lane_.is_slept_on());
  lane_.want_needed();
}

}  // namespace
}  // namespace larklane::part
