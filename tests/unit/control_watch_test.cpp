// The descriptors that the helper sleeps on besides its sockets: no item is lost, and no wake-up is
// wasted.

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "control_fixture.hpp"

namespace larklane::control {
namespace {

/// A completion queue as verbs has it: its descriptor becomes readable once, for the first item
/// after it has been armed. Thread safety: thread-safe.
class Queue : public Watched {
 public:
  int fd() const noexcept override { return event_.get(); }
  bool before_sleep() override {
    const std::lock_guard lock(mutex_);
    ++armings_;
    is_armed_ = true;
    return items_ == 0;
  }
  void serve() override {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof count);
    take();
  }

  void add() {
    const std::lock_guard lock(mutex_);
    ++items_;
    if (!std::exchange(is_armed_, false)) return;
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(event_.get(), &one, sizeof one), ssize_t{sizeof one});
  }
  /// Any thread may poll; the notice stays in the descriptor.
  void take() {
    const std::lock_guard lock(mutex_);
    served_ += std::exchange(items_, 0);
    changed_.notify_all();
  }
  bool wait_for(std::uint64_t served) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return served_ >= served; });
  }
  std::uint64_t armings() {
    const std::lock_guard lock(mutex_);
    return armings_;
  }
  std::uint64_t served() {
    const std::lock_guard lock(mutex_);
    return served_;
  }

 private:
  const UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_armed_ = false;
  std::uint64_t items_ = 0;
  std::uint64_t served_ = 0;
  std::uint64_t armings_ = 0;
};

/// A queue that threads of the application poll, too, and that reports such polls. Thread safety:
/// thread-safe.
class PolledQueue : public Queue {
 public:
  bool is_served_by_others() override {
    // relaxed, here and below: numbers
    if (looks_polled_.load(std::memory_order_relaxed) != 0) {
      looks_polled_.fetch_sub(1, std::memory_order_relaxed);
      return true;
    }
    return std::exchange(seen_, polls_.load(std::memory_order_relaxed)) !=
           polls_.load(std::memory_order_relaxed);
  }
  void poll() {
    polls_.fetch_add(1, std::memory_order_relaxed);
    take();
  }
  /// The helper's next `looks` looks find that it has been polled. Returns after them.
  void look_polled(int looks) {
    looks_polled_.store(looks, std::memory_order_relaxed);
    take_over();
    while (looks_polled_.load(std::memory_order_relaxed) != 0) std::this_thread::yield();
  }

 private:
  std::uint64_t seen_ = 0;  // the helper's
  std::atomic<std::uint64_t> polls_{0};
  std::atomic<int> looks_polled_{0};
};

class WatchTest : public ControlTest {
 protected:
  /// Returns when the helper sleeps again, as far as a test can observe.
  static void settle() { ::poll(nullptr, 0, 50); }
  std::uint64_t wakeups() const { return plane_->counters().helper_wakeups; }

  Inbox in_;
  std::unique_ptr<Plane> plane_ = make_plane(fresh_place(Net::local), in_);
};

TEST_F(WatchTest, ServedWhileItIsOn) {
  Queue queue;
  ASSERT_TRUE(plane_->watch(queue).ok());
  queue.turn_on();
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    queue.add();
    ASSERT_TRUE(queue.wait_for(i));
  }
  queue.turn_off();
  plane_->unwatch(queue);
}

TEST_F(WatchTest, TheHelperSleepsWithoutDisabledQueues) {
  Queue queue;
  ASSERT_TRUE(plane_->watch(queue).ok());
  settle();
  const std::uint64_t before = wakeups();
  queue.add();
  settle();
  EXPECT_EQ(wakeups(), before);
  EXPECT_EQ(queue.served(), 0U);
  queue.turn_on();  // finds the items that came before
  ASSERT_TRUE(queue.wait_for(1));
  queue.turn_off();
  settle();
  // the first item afterwards may wake it, and no other
  const std::uint64_t after = wakeups();
  for (int i = 0; i < 20; ++i) {
    queue.add();
    settle();
    queue.take();
  }
  EXPECT_LE(wakeups(), after + 1);
  plane_->unwatch(queue);
}

TEST_F(WatchTest, TurningOnAndOffWakesNoHelperWhileItIsArmed) {
  Queue queue;
  ASSERT_TRUE(plane_->watch(queue).ok());
  queue.turn_on();
  queue.add();
  ASSERT_TRUE(queue.wait_for(1));
  settle();
  const std::uint64_t before = wakeups();
  for (int i = 0; i < 10'000; ++i) {
    queue.turn_off();
    queue.turn_on();
  }
  settle();
  EXPECT_EQ(wakeups(), before);
  queue.add();
  EXPECT_TRUE(queue.wait_for(2));
  plane_->unwatch(queue);
}

TEST_F(WatchTest, OnBeforeItIsWatched) {
  Queue queue;
  queue.turn_on();
  queue.add();
  ASSERT_TRUE(plane_->watch(queue).ok());
  EXPECT_TRUE(queue.wait_for(1));
  plane_->unwatch(queue);
}

TEST_F(WatchTest, UsesAreCounted) {
  Queue queue;
  ASSERT_TRUE(plane_->watch(queue).ok());
  queue.turn_on();
  queue.turn_on();
  queue.turn_off();
  for (std::uint64_t i = 1; i <= 3; ++i) {
    queue.add();
    ASSERT_TRUE(queue.wait_for(i));
    settle();
  }
  plane_->unwatch(queue);
}

TEST_F(WatchTest, NothingIsServedAfterUnwatch) {
  for (int i = 0; i < 300; ++i) {
    Queue queue;
    ASSERT_TRUE(plane_->watch(queue).ok());
    queue.turn_on();
    std::thread other([&] {
      for (int j = 0; j < 10; ++j) queue.add();
    });
    plane_->unwatch(queue);
    const std::uint64_t served = queue.served();
    const std::uint64_t armings = queue.armings();
    other.join();
    EXPECT_EQ(queue.served(), served);
    EXPECT_EQ(queue.armings(), armings);
  }  // and it is destroyed
}

/// Unwatches itself, and the other one, when it is served.
class Leaver : public Queue {
 public:
  Leaver(Plane& plane, Watched& other) : plane_(plane), other_(other) {}
  void serve() override {
    plane_.unwatch(*this);
    plane_.unwatch(other_);
    Queue::serve();
  }

 private:
  Plane& plane_;
  Watched& other_;
};

TEST_F(WatchTest, UnwatchFromWithin) {
  Queue other;
  Leaver leaver(*plane_, other);
  ASSERT_TRUE(plane_->watch(leaver).ok());
  ASSERT_TRUE(plane_->watch(other).ok());
  other.turn_on();
  leaver.turn_on();
  other.add();
  leaver.add();
  ASSERT_TRUE(leaver.wait_for(1));
  const std::uint64_t served = other.served();
  other.add();
  settle();
  EXPECT_EQ(other.served(), served);
}

TEST_F(WatchTest, NoDescriptor) {
  class Broken : public Queue {
    int fd() const noexcept override { return 1'000'000; }
  } broken;
  EXPECT_EQ(plane_->watch(broken), Status(Errc::kInvalidArgument, EBADF));
}

TEST_F(WatchTest, AQueueWithoutADescriptorIsPolled) {
  class File : public Queue {
   public:
    int fd() const noexcept override { return file_.get(); }

   private:
    const UniqueFd file_{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  } file;
  ASSERT_TRUE(plane_->watch(file).ok());
  file.turn_on();
  file.add();
  ASSERT_TRUE(file.wait_for(1));
  file.add();
  EXPECT_TRUE(file.wait_for(2));
  expect_warning({"can't be slept on", "polled"});
  plane_->unwatch(file);
}

TEST_F(WatchTest, RecordsAreServedBesidesABusyQueue) {
  class Busy : public Queue {
   public:
    bool before_sleep() override { return false; }
  } busy;
  Peer* const self = must_connect(*plane_, plane_->own_address());
  ASSERT_TRUE(plane_->watch(busy).ok());
  busy.turn_on();
  for (std::uint16_t i = 0; i < 100; ++i) ASSERT_TRUE(self->send(i, {}).ok());
  EXPECT_TRUE(in_.wait_for_records(100));
  plane_->unwatch(busy);
}

/// Wants to be called ten times, a millisecond apart, and then never.
class Timed : public Queue {
 public:
  std::uint64_t next_time_ns() const noexcept override { return next_ns_; }
  void on_time(std::uint64_t now_ns) override {
    EXPECT_GE(now_ns, next_ns_);
    next_ns_ = ++times_ < 10 ? now_ns + 1'000'000 : kNever;
    add();
    take();
  }

 private:
  std::uint64_t next_ns_ = 0, times_ = 0;  // the helper's
};

TEST_F(WatchTest, CalledWhenItIsTimeWhileItIsOn) {
  Timed timed;
  ASSERT_TRUE(plane_->watch(timed).ok());
  settle();
  EXPECT_EQ(timed.served(), 0U);
  timed.turn_on();
  EXPECT_TRUE(timed.wait_for(10));
  settle();
  EXPECT_EQ(timed.served(), 10U);
  timed.turn_off();
  plane_->unwatch(timed);
}

TEST_F(WatchTest, ADisabledQueueHasNoTime) {
  class Endless : public Queue {
    std::uint64_t next_time_ns() const noexcept override { return 1; }
    void on_time(std::uint64_t) override {
      add();
      take();
    }
  } endless;
  ASSERT_TRUE(plane_->watch(endless).ok());
  endless.turn_on();
  ASSERT_TRUE(endless.wait_for(3));
  endless.turn_off();
  settle();
  const std::uint64_t served = endless.served(), before = wakeups();
  settle();
  EXPECT_EQ(endless.served(), served);
  EXPECT_EQ(wakeups(), before);
  plane_->unwatch(endless);
}

/// Several threads open and close rounds again and again. A thread with an open round and an item
/// in the queue must not wait for ever. Sometimes the thread polls by itself, as a waiting one
/// does.
template <class Queue>
void expect_none_lost(Plane& plane, std::uint32_t rounds, void (*poll)(Queue&)) {
  constexpr int kThreads = 3;
  constexpr int kQueues = 2;
  Queue queues[kQueues];
  for (Queue& queue : queues) ASSERT_TRUE(plane.watch(queue).ok());
  std::atomic<bool> is_lost{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::uint32_t random = 12345U + static_cast<std::uint32_t>(t);
      // relaxed: a flag that ends the test
      for (std::uint32_t i = 0; i < rounds && !is_lost.load(std::memory_order_relaxed); ++i) {
        random = random * 1664525U + 1013904223U;
        Queue& queue = queues[(random >> 16) % kQueues];
        queue.turn_on();
        const std::uint64_t before = queue.served();
        queue.add();
        if ((random >> 20) % 4 == 0) poll(queue);
        if (!queue.wait_for(before + 1)) is_lost.store(true, std::memory_order_relaxed);
        queue.turn_off();
        if ((random >> 24) % 4 == 0) queue.add();  // comes when no thread waits
        if ((random >> 26) % 8 == 0) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(is_lost.load(std::memory_order_relaxed));  // relaxed: joined
  for (Queue& queue : queues) plane.unwatch(queue);
}

TEST_F(WatchTest, NoWakeUpIsLost) {
  expect_none_lost<Queue>(*plane_, 4000, [](Queue& queue) { queue.take(); });
}

TEST_F(WatchTest, NoWakeUpIsLostBesideThreadsThatPoll) {
  expect_none_lost<PolledQueue>(*plane_, 1000, [](PolledQueue& queue) {
    queue.poll();
    if (queue.is_slept_on()) queue.take_over();
  });
}

TEST_F(WatchTest, AThreadThatPollsInALoopTakesTheQueueOver) {
  PolledQueue queue;
  ASSERT_TRUE(plane_->watch(queue).ok());
  queue.turn_on();
  while (!queue.is_slept_on()) settle();
  const std::uint64_t before = wakeups();
  for (int turn = 0; turn < 1'000'000 && wakeups() == before; ++turn) {
    queue.poll();
    if (queue.is_slept_on()) queue.take_over();
    std::this_thread::yield();
  }
  EXPECT_NE(wakeups(), before);
  const std::uint64_t served = queue.served();
  queue.add();  // and no thread polls any more
  EXPECT_TRUE(queue.wait_for(served + 1));
  queue.turn_off();
  plane_->unwatch(queue);
}

/// However short their looks are, and however long they have looked before.
TEST_F(WatchTest, TheHelperIsBackBesideThreadsThatPollSeldom) {
  PolledQueue queue;
  ASSERT_TRUE(plane_->watch(queue).ok());
  queue.turn_on();
  while (!queue.is_slept_on()) settle();
  const std::uint64_t before = queue.armings();
  const auto is_back = [&] { return queue.armings() != before; };
  queue.look_polled(20);  // its rests are the longest then
  for (int bursts = 0; bursts < 1000 && !is_back(); ++bursts) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(5);
    while (std::chrono::steady_clock::now() < end) queue.poll();
    ::poll(nullptr, 0, 1);
  }
  EXPECT_TRUE(is_back());
  queue.turn_off();
  plane_->unwatch(queue);
}

TEST_F(WatchTest, AQueueThatOthersServeWakesTheHelperSeldom) {
  constexpr int kItems = 2000;
  PolledQueue queue;
  ASSERT_TRUE(plane_->watch(queue).ok());
  queue.turn_on();
  queue.poll();
  const std::uint64_t before = wakeups();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kItems; ++i) {
    queue.add();
    for (int turn = 0; turn < 100; ++turn) queue.poll();
    std::this_thread::yield();
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  // every 100 us at first, every 1.6 ms in the end
  EXPECT_LE(static_cast<double>(wakeups() - before), 4 * took.count() + 20);
  const std::uint64_t served = queue.served();
  queue.add();  // and no thread polls any more
  EXPECT_TRUE(queue.wait_for(served + 1));
  queue.turn_off();
  plane_->unwatch(queue);
}

}  // namespace
}  // namespace larklane::control
