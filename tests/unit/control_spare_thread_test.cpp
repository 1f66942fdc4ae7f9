// SpareThread: its works run beside all other threads, in order, and its end waits for the work
// that has begun.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <semaphore>
#include <vector>

#include "control/helper/spare_thread.hpp"

namespace larklane::control {
namespace {

TEST(SpareThread, RunsInOrderOnAThreadThatIsNice) {
  std::vector<int> order;
  pid_t thread = 0;
  int nice = 0;
  std::promise<void> done;
  SpareThread spare;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(spare.post([&, i] { order.push_back(i); }).ok());
  ASSERT_TRUE(spare
                  .post([&] {
                    thread = ::gettid();
                    nice = ::getpriority(PRIO_PROCESS, static_cast<id_t>(thread));
                    done.set_value();
                  })
                  .ok());
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_NE(thread, ::gettid());
  EXPECT_EQ(nice, std::min(::getpriority(PRIO_PROCESS, 0) + 10, 19));
}

/// Each work posts the next one, so a work that has not begun always exists.
TEST(SpareThread, ItsEndWaitsForTheBegunWorkAndDropsTheRest) {
  std::binary_semaphore has_begun{0};
  int begun = 0, ended = 0;
  std::function<void()> work;
  {
    SpareThread spare;
    work = [&] {
      if (begun++ == 0) has_begun.release();
      EXPECT_TRUE(spare.post(work).ok());
      ++ended;
    };
    ASSERT_TRUE(spare.post(work).ok());
    has_begun.acquire();
  }
  EXPECT_GT(begun, 0);
  EXPECT_EQ(ended, begun);
}

TEST(SpareThread, AForkedChildHasNothingToWaitFor) {
  auto spare = std::make_unique<SpareThread>();
  std::promise<void> done;
  ASSERT_TRUE(spare->post([&] { done.set_value(); }).ok());
  done.get_future().wait();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    spare.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace larklane::control
