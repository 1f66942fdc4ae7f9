// Threads on the lanes of two engines, over a network that is a thread: everything arrives once, in
// order, under any interleaving.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/shm/network_fabric.hpp"
#include "prop/msg_seeds.hpp"
#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

/// Bytes that follow from the thread and the number of a message.
std::vector<std::byte> bytes_of(std::uint64_t thread, std::uint64_t number, std::size_t bytes) {
  return random_bytes(bytes, thread << 32 | number);
}
std::size_t length_of(std::uint64_t number, std::uint64_t eager) {
  return number % 7 == 0 ? eager + number % 50 : number % 90;
}

/// @param asks  long messages are written by their sender, at the receiver's request
Job::Options roomy(bool asks = false) {
  Job::Options options;
  if (asks) {
    options.network.limits.is_progress_manual = true;
    options.network.limits.immediates_max = 0;
  }
  options.lane = {{16, 8}, 2000, 200};
  return options;
}

/// In one buffer, in three, or, if it fits, in a packet.
Result<Post> post_somehow(Vci& vci, int rank, std::uint64_t thread, std::uint64_t number,
                          const std::vector<std::byte>& from, const PostOptions& options) {
  const auto tag = static_cast<std::uint32_t>(thread);
  const std::uint64_t way = (thread + number) % 3, half = from.size() / 2;
  if (way == 0 && from.size() <= vci.packet_bytes_max()) {
    larklane::Packet packet = take_packet(vci);
    if (!packet) return Post::retry;
    std::ranges::copy(from, static_cast<std::byte*>(packet.start()));
    return post_send(vci, rank, tag, packet, from.size(), options);
  }
  if (way == 2) return post_send(vci, rank, tag, from.data(), from.size(), options);
  const Buffer parts[] = {
      {from.data(), half}, {nullptr, 0}, {from.data() + half, from.size() - half}};
  return post_send(vci, rank, tag, parts, options);
}

/// Both processes' threads send to the other's thread of the same number and receive from it, all
/// on one lane a process.
void send_and_receive(Job::Options how) {
  constexpr std::uint64_t kThreads = 3, kMessages = 2000;
  Job job(std::move(how));
  job.connect_all();
  const std::uint64_t eager = job.at(0).engine->eager_bytes_max();
  std::atomic<int> left{2 * kThreads};
  const auto run = [&](int rank, std::uint64_t thread) {
    Vci& vci = *job.at(rank).vci;
    auto told = std::move(CompletionQueue::create(job.at(rank).domain).value());
    PostOptions options;
    options.completion = &told;
    options.queues = thread == 1;
    std::uint64_t sent = 0, over = 0, under_way = 0, received = 0;
    std::vector<std::byte> from, into;
    bool is_receiving = false, is_sending = false;
    while (sent < kMessages || over < under_way || received < kMessages) {
      if (sent < kMessages && !is_sending) {
        from = bytes_of(thread, sent, length_of(sent, eager));
        options.user_context = &from;
        auto answer = post_somehow(vci, 1 - rank, thread, sent, from, options);
        ASSERT_TRUE(answer);
        if (*answer != Post::retry) ++sent;
        is_sending = *answer == Post::posted;
        under_way += is_sending;
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

TEST(EngineRace, ThreadsOfOneLaneSendAndReceiveAndNothingIsStranded) { send_and_receive(roomy()); }
TEST(EngineRace, TheSameWhereLongMessagesAreAskedFor) { send_and_receive(roomy(true)); }

/// A message meets a receive that another thread posts at the same moment.
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

Job::Options over_shm(Job::Options options) {
  options.decorate = [](std::unique_ptr<net::Fabric>, int) {
    std::string reason;
    return std::move(shm::open_network({}, &reason).value());
  };
  return options;
}

/// Puts and gets of two threads over one lane to more regions than its table holds, while their
/// owner makes and frees others: each word lands in its own region, and a freed region's name is
/// refused.
TEST(EngineRace, ThreadsPutToMappedRegionsWhileOthersComeAndGo) {
  constexpr std::uint64_t kRegions = 6, kThreads = 2, kRounds = 300;
  Job job(over_shm(roomy()));
  job.connect_all();
  const auto allocate = [&](std::uint64_t bytes) {
    return Region(*job.at(1).engine->allocate_region(bytes).value());
  };
  std::vector<Region> regions;
  for (std::uint64_t i = 0; i < kRegions; ++i) regions.push_back(allocate(kThreads * 8));
  RemoteRegion passing;                           // written before `made`
  std::atomic<std::uint64_t> made{0}, used[2]{};  // rounds: twice each, for a live one and a gone
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      auto told = std::move(CompletionQueue::create(job.at(0).domain).value());
      PostOptions posting;
      posting.completion = &told;
      /// The end of a post: of one that another thread's work on the lane has kept from a store,
      /// too.
      const auto end_of = [&](Result<Post> answer) {
        if (!answer || *answer == Post::done) return answer.error();
        while (true) {
          if (auto completion = told.pop()) return completion->status;
          (void)job.at(0).vci->progress();
        }
      };
      for (std::uint64_t round = 1; round <= 2 * kRounds; ++round) {
        for (std::uint64_t i = 0; i < kRegions; ++i) {
          const std::uint64_t word = round << 32 | i << 8 | thread;
          std::uint64_t got = 0;
          EXPECT_TRUE(
              end_of(post_put(*job.at(0).vci, regions[i].remote(), thread * 8, &word, 8, posting))
                  .ok());
          EXPECT_TRUE(
              end_of(post_get(*job.at(0).vci, regions[i].remote(), thread * 8, &got, 8, posting))
                  .ok());
          EXPECT_EQ(got, word);
        }
        // acquire, here and below: pairs with the other side's release
        while (made.load(std::memory_order_acquire) < round) std::this_thread::yield();
        const bool is_gone = round % 2 == 0;
        const Status status =
            end_of(post_put(*job.at(0).vci, passing, thread * 8, &round, 8, posting));
        EXPECT_EQ(status.ok(), !is_gone);
        used[thread].store(round, std::memory_order_release);
      }
    });
  for (std::uint64_t round = 1; round <= 2 * kRounds; round += 2) {
    const auto share = [&](std::uint64_t number) {
      made.store(number, std::memory_order_release);
      for (auto& each : used)
        while (each.load(std::memory_order_acquire) < number) std::this_thread::yield();
    };
    {
      Region region = allocate(kThreads * 8);
      passing = region.remote();
      share(round);
      const auto* const words = static_cast<const std::uint64_t*>(region.start());
      EXPECT_TRUE(words[0] == round && words[1] == round);
    }
    share(round + 1);
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint64_t i = 0; i < kRegions; ++i)
    for (std::uint64_t thread = 0; thread < kThreads; ++thread)
      EXPECT_EQ(static_cast<const std::uint64_t*>(regions[i].start())[thread],
                2 * kRounds << 32 | i << 8 | thread);
}

/// Over two lanes to the same doubles, across a page's end: none is lost. Over shared memory, where
/// lanes don't meet. Sums that are not kept apart are seldom wrong: ThreadSanitizer sees it.
TEST(EngineRace, LanesAddToTheSameDoubles) {
  constexpr std::size_t kDoubles = 48;
  constexpr std::uint64_t kRounds = 10'000;
  Job::Options options = roomy();
  options.lanes.count_max = 2;
  options.decorate = [](std::unique_ptr<net::Fabric>, int) {
    std::string reason;
    auto fabric = shm::open_network({}, &reason);
    EXPECT_TRUE(fabric) << reason;
    return std::move(fabric).value();
  };
  Job job(options);
  std::array<Vci, 2> senders{std::move(*job.at(0).vci),
                             Vci(*job.at(0).engine->take_lane().value())};
  std::array<Vci, 2> owners{std::move(*job.at(1).vci), Vci(*job.at(1).engine->take_lane().value())};
  for (const int rank : {0, 1})
    for (Vci& vci : rank == 0 ? senders : owners)
      (void)job.at(rank).engine->connection(vci.inside(), 1 - rank);
  job.connect();
  struct alignas(4096) {
    double before[509] = {}, sums[kDoubles] = {};
  } memory;
  const Region region = job.at(1).add_region(&memory.sums, sizeof memory.sums);
  const RemoteRegion remote = region.remote();
  std::atomic<int> left{2};
  std::vector<std::thread> threads;
  for (std::size_t lane = 0; lane < 2; ++lane) {
    threads.emplace_back([&, lane] {
      auto told = std::move(Counter::create(job.at(0).domain).value());
      PostOptions telling;
      telling.completion = &told;
      std::array<double, kDoubles> values;
      std::iota(values.begin(), values.end(), 1.0);
      for (std::uint64_t round = 0; round < kRounds;) {
        auto answer = post_accumulate(senders[lane], remote, 0, values.data(), kDoubles, telling);
        ASSERT_TRUE(answer);
        round += *answer == Post::posted;
        (void)senders[lane].progress();
      }
      while (told.completed() != kRounds) {
        (void)senders[lane].progress();
        std::this_thread::yield();
      }
      left.fetch_sub(1, std::memory_order_relaxed);  // relaxed: joined before it is read
    });
    threads.emplace_back([&, lane] {
      while (left.load(std::memory_order_relaxed) != 0) {
        (void)owners[lane].progress();
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kDoubles; ++i)
    EXPECT_EQ(memory.sums[i], static_cast<double>(2 * kRounds * (i + 1))) << i;
}

/// The link to one peer fails while a thread posts to it and another posts to another peer.
TEST(EngineRace, AFailureTouchesNothingOfOthers) {
  for (const std::uint64_t seed : seeds(1, 300)) {
    if (testing::Test::HasFailure()) return;
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    Job::Options options = roomy();
    options.size = 3;
    options.network.seed = seed;
    Job job(options);
    job.connect_all();
    alignas(8) std::uint64_t words[2] = {};
    const Region doomed = job.at(1).add_region(&words[0], 8),
                 safe = job.at(2).add_region(&words[1], 8);
    auto told = std::move(Counter::create(job.at(0).domain).value());
    std::atomic<std::uint64_t> all_posted{0};
    std::atomic<bool> is_over{false};
    const auto post = [&](const Region& region) {
      PostOptions telling;
      telling.completion = &told;
      const RemoteRegion remote = region.remote();
      std::uint64_t done = 0;
      while (true) {
        auto answer = post_fetch_add(*job.at(0).vci, remote, 0, 1, nullptr, telling);
        if (!answer) break;
        if (*answer == Post::posted) ++done;
        if (is_over.load(std::memory_order_relaxed) && remote.rank == 2) break;
      }
      all_posted.fetch_add(done, std::memory_order_relaxed);  // relaxed: joined before it is read
      return done;
    };
    std::uint64_t safely = 0;
    std::thread to_doomed([&] { (void)post(doomed); });
    std::thread to_safe([&] { safely = post(safe); });
    loop::Random random(seed);
    for (std::uint64_t steps = random.below(50); steps != 0; --steps) job.step();
    job.at(0).links[2]->end(Errc::kPeerDown);  // the first two are to itself
    to_doomed.join();
    is_over.store(true, std::memory_order_relaxed);  // relaxed: a hint
    to_safe.join();
    job.settle();
    EXPECT_EQ(told.completed(), all_posted.load(std::memory_order_relaxed));
    EXPECT_EQ(words[1], safely);
  }
}

}  // namespace
}  // namespace larklane::msg
