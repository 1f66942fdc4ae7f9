// Threads on the lanes of two engines, over a network that a thread is: everything arrives once, in
// order, whatever they do to each other.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

/// Of one thread's messages: whose, which, and what follows from that.
std::vector<std::byte> bytes_of(std::uint64_t thread, std::uint64_t number, std::size_t bytes) {
  return random_bytes(bytes, thread << 32 | number);
}
std::size_t length_of(std::uint64_t number, std::uint64_t eager) {
  return number % 7 == 0 ? eager + number % 50 : number % 90;
}

Job::Options roomy() {
  Job::Options options;
  options.lane = {{16, 8}, 2000, 200};
  return options;
}

/// Both processes' threads send to the other's thread of the same number and receive from it, all
/// on one lane a process.
TEST(EngineRace, ThreadsOfOneLaneSendAndReceiveAndNothingIsStranded) {
  constexpr std::uint64_t kThreads = 3, kMessages = 2000;
  Job job(roomy());
  job.connect_all();
  const std::uint64_t eager = job.at(0).engine->eager_bytes_max();
  std::atomic<int> left{2 * kThreads};
  const auto run = [&](int rank, std::uint64_t thread) {
    Vci& vci = *job.at(rank).vci;
    auto told = std::move(CompletionQueue::create(job.at(rank).domain).value());
    PostOptions options;
    options.completion = &told;
    std::uint64_t sent = 0, over = 0, posted = 0, received = 0;
    std::vector<std::byte> from, into;
    bool is_receiving = false, is_sending = false;
    while (sent < kMessages || over < posted || received < kMessages) {
      if (sent < kMessages && !is_sending) {
        from = bytes_of(thread, sent, length_of(sent, eager));
        options.user_context = &from;
        auto answer = post_send(vci, 1 - rank, static_cast<std::uint32_t>(thread), from.data(),
                                from.size(), options);
        ASSERT_TRUE(answer);
        if (*answer != Post::retry) ++sent;
        is_sending = *answer == Post::posted;
        posted += is_sending;
      }
      if (received < kMessages && !is_receiving) {
        into.assign(eager + 60, std::byte{});
        options.user_context = &into;
        auto answer = post_recv(vci, 1 - rank, static_cast<std::uint32_t>(thread), into.data(),
                                into.size(), options);
        ASSERT_TRUE(answer);
        is_receiving = *answer == Post::posted;
      }
      (void)vci.progress();
      while (auto completion = told.pop()) {
        ASSERT_TRUE(completion->status.ok());
        if (completion->user_context == &from) {
          is_sending = false;
          ++over;
          continue;
        }
        const auto wanted = bytes_of(thread, received, length_of(received, eager));
        ASSERT_EQ(completion->bytes, wanted.size());
        ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), into.begin()));
        ++received;
        is_receiving = false;
      }
      std::this_thread::yield();
    }
    // relaxed: the threads are joined before it matters
    left.fetch_sub(1, std::memory_order_relaxed);
    while (left.load(std::memory_order_relaxed) != 0) {  // the others may need our progress
      (void)vci.progress();
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (const int rank : {0, 1})
    for (std::uint64_t thread = 0; thread < kThreads; ++thread)
      threads.emplace_back(run, rank, thread);
  for (std::thread& thread : threads) thread.join();
}

/// What arrives meets a receive that another thread posts at the same moment.
TEST(EngineRace, AMessageAndItsReceiveMeetOnTheWay) {
  constexpr std::uint64_t kMessages = 20000;
  Job job(roomy());
  job.connect_all();
  const std::uint64_t bytes = job.at(0).engine->eager_bytes_max();
  std::atomic<std::uint64_t> begun{0}, over{0};
  std::thread network([&] {
    for (std::uint64_t sent = 0; sent < kMessages; ++sent) {
      const auto from = bytes_of(0, sent, bytes);
      // acquire, here and below: pairs with the other thread's release
      while (begun.load(std::memory_order_acquire) <= sent) std::this_thread::yield();
      const auto progress = [&] {
        (void)job.at(0).vci->progress();
        (void)job.at(1).vci->progress();
      };
      // Its credit may still be on its way.
      while (*post_send(*job.at(0).vci, 1, 0, from.data(), bytes) == Post::retry) progress();
      while (over.load(std::memory_order_acquire) <= sent) progress();
    }
  });
  auto told = std::move(CompletionQueue::create(job.at(1).domain).value());
  PostOptions options;
  options.completion = &told;
  loop::Random random(7);
  std::vector<std::byte> into(bytes);
  for (std::uint64_t received = 0; received < kMessages; ++received) {
    begun.store(received + 1, std::memory_order_release);
    for (std::uint64_t spins = random.below(12000); spins != 0; --spins)
      (void)over.load(std::memory_order_relaxed);  // relaxed: to pass time
    Completion done;
    auto answer = post_recv(*job.at(1).vci, 0, 0, into.data(), bytes, options, &done);
    ASSERT_TRUE(answer);
    while (*answer == Post::posted && !told.pop()) std::this_thread::yield();
    EXPECT_EQ(into, bytes_of(0, received, bytes)) << received;
    over.store(received + 1, std::memory_order_release);
  }
  network.join();
}

}  // namespace
}  // namespace larklane::msg
