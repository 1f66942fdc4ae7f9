// The log: lines, levels, warnings that come once; and the clock.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace larklane {
namespace {

class LogTest : public testing::Test {
 protected:
  void TearDown() override {
    set_log_sink({});
    set_log_level(LogLevel::warn);
    set_log_rank(-1);
  }
  void capture() {
    set_log_sink([this](LogLevel level, std::string_view message) {
      messages_.emplace_back(level, message);
    });
  }
  std::vector<std::pair<LogLevel, std::string>> messages_;
};

TEST_F(LogTest, OneLineToStandardError) {
  testing::internal::CaptureStderr();
  log_warn("queue pair %#x state %d", 0x12, 3);
  set_log_rank(3);
  errno = ENOENT;
  log_error("open: %s", std::strerror(errno));
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "larklane: warn: queue pair 0x12 state 3\n"
            "larklane: error: rank 3: open: No such file or directory\n");
}

TEST_F(LogTest, LevelsAboveTheThresholdAreDropped) {
  capture();
  for (const char* name : {"error", "warn", "info"}) {
    messages_.clear();
    set_log_level(log_level_named(name));
    log_error("0");
    log_warn("1");
    log_info("2");
    ASSERT_EQ(messages_.size(), static_cast<std::size_t>(log_level_named(name)) + 1) << name;
    EXPECT_EQ(messages_.back().first, log_level_named(name));
    EXPECT_EQ(messages_.back().second, std::to_string(messages_.size() - 1));
  }
  EXPECT_EQ(log_level_named("loud"), LogLevel::warn);
}

TEST_F(LogTest, LongMessagesAreCutAndStillEndTheLine) {
  testing::internal::CaptureStderr();
  log_warn("%s", std::string(5000, 'x').c_str());
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(line, "larklane: warn: " + std::string(1000, 'x') + "\n");
}

TEST_F(LogTest, WarnOncePerKeyFromAnyThread) {
  capture();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 100; ++j) log_warn_once("base_log_test a", "a");
    });
  }
  for (std::thread& thread : threads) thread.join();
  log_warn_once("base_log_test b", "b");
  log_warn_once("base_log_test b", "b again");
  ASSERT_EQ(messages_.size(), 2U);
  EXPECT_EQ(messages_[0].second, "a");
  EXPECT_EQ(messages_[1].second, "b");
}

TEST(Clock, GrowsInNanoseconds) {
  const std::uint64_t start_ns = now_ns();
  while (now_ns() == start_ns) {
  }
  timespec later{};
  clock_gettime(CLOCK_MONOTONIC, &later);
  const auto later_ns = static_cast<std::uint64_t>(later.tv_sec) * 1'000'000'000 +
                        static_cast<std::uint64_t>(later.tv_nsec);
  EXPECT_GT(later_ns, start_ns);
  EXPECT_LT(later_ns - start_ns, 10'000'000'000U);
}

}  // namespace
}  // namespace larklane
