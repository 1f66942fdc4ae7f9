// Threads of two processes that send, receive, probe and cancel at random on two communicators:
// each message is received once, with its own bytes, and none overtakes another.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "msg/protocol/communicator.hpp"
#include "net/shm/network_fabric.hpp"
#include "prop/msg_seeds.hpp"
#include "together.hpp"
#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint32_t kThreads = 4, kTags = 3;  // two threads a process
constexpr int kSteps = 400;
constexpr std::size_t kBytesMax = 3000, kLast = 8;
using Mode = Communicator::Mode;

struct Head {
  std::uint32_t thread, index, tag, bytes;
};
struct Sent {
  std::vector<std::byte> bytes;
  Pending* pending = nullptr;
  int to = 0;
  std::uint32_t communicator = 0, tag = 0;
  bool is_cancelled = false;
};
struct Received {
  int from = kAnySource;
  std::int64_t tag = kAnyTag;
  std::uint32_t communicator = 0;
  std::vector<std::byte> into = std::vector<std::byte>(kBytesMax);
  Pending* pending = nullptr;
  bool has_message = false;
  Head message{};
};
/// Plain members: the thread sanitizer checks that the engine orders their uses.
struct Thread {
  std::vector<std::unique_ptr<Sent>> sent;
  std::vector<std::unique_ptr<Received>> received;
};

class Field {
 public:
  Field(Job::Options options, std::uint64_t seed, bool has_wildcards)
      : job_(std::move(options)), seed_(seed), has_wildcards_(has_wildcards) {
    job_.connect_all_lanes();
    Hints hints;
    if (job_.options.lanes_by_tag) hints.lanes_by_tag = Hints::LanesByTag::by_visibility;
    constexpr std::array members{0, 1};
    for (int rank = 0; rank < 2; ++rank)
      for (std::uint64_t number = 0; number < 2; ++number)
        communicators_[static_cast<std::size_t>(rank)][number] =
            *job_.at(rank).engine->open({number, number << 40}, members, rank, hints);
    job_.connect();
  }

  void run() {
    together(kThreads, [this](std::uint32_t thread) {
      loop::Random random(seed_ * 100 + thread);
      for (int step = 0; step < kSteps; ++step) act(thread, random);
    });
    settle();
    expect_no_pair_is_left();
    finish();
    expect_all_is_received();
    expect_no_overtaking();
  }

 private:
  static int rank_of(std::uint32_t thread) { return static_cast<int>(thread % 2); }
  Communicator& at(std::uint32_t thread, std::uint32_t communicator) {
    return *communicators_[thread % 2][communicator];
  }
  std::size_t a_length(loop::Random& random) const {
    const std::uint64_t kind = random.below(10);
    return sizeof(Head) + static_cast<std::size_t>(kind == 0   ? random.below(kBytesMax - 100)
                                                   : kind == 1 ? random.below(600)
                                                               : random.below(40));
  }
  void act(std::uint32_t thread, loop::Random& random) {
    const std::uint64_t what = random.below(20);
    const auto communicator = static_cast<std::uint32_t>(random.below(2));
    if (what < 8) return send(thread, communicator, random);
    if (what < 16) return receive(thread, communicator, random);
    if (what < 18) return probe(thread, communicator, random);
    Thread& mine = threads_[thread];
    if (what == 18 && !mine.sent.empty() && random.one_in(2)) {
      cancel(*mine.sent[mine.sent.size() - 1 - random.below(std::min(mine.sent.size(), kLast))]);
    } else if (what == 18 && !mine.received.empty()) {
      Received& one = *mine.received[random.below(mine.received.size())];
      if (one.pending != nullptr) (void)Communicator::cancel(*one.pending);
    }
    for (auto& one : mine.received) reap(*one);
    (void)at(thread, communicator).poll();
  }
  void send(std::uint32_t thread, std::uint32_t communicator, loop::Random& random) {
    Thread& mine = threads_[thread];
    Sent& sent = *mine.sent.emplace_back(std::make_unique<Sent>());
    sent.to = static_cast<int>(random.below(2));
    sent.tag = static_cast<std::uint32_t>(random.below(kTags));
    sent.communicator = communicator;
    const std::size_t bytes = a_length(random);
    const auto index = static_cast<std::uint32_t>(mine.sent.size() - 1);
    sent.bytes = random_bytes(bytes, std::uint64_t{thread} << 32 | index);
    const Head head{thread, index, sent.tag, static_cast<std::uint32_t>(bytes)};
    std::memcpy(sent.bytes.data(), &head, sizeof head);
    auto posted = at(thread, communicator)
                      .send(sent.to, sent.tag, {sent.bytes.data(), bytes},
                            random.one_in(4) ? Mode::synchronous : Mode::standard);
    ASSERT_TRUE(posted);
    sent.pending = *posted;
    if (sent.pending == nullptr) std::fill(sent.bytes.begin(), sent.bytes.end(), std::byte{});
  }
  /// No byte is read after it.
  static void cancel(Sent& sent) {
    if (sent.pending == nullptr || !Communicator::cancel(*sent.pending)) return;
    EXPECT_TRUE(is_done(*sent.pending));
    EXPECT_TRUE(outcome(*sent.pending).is_cancelled);
    release(*std::exchange(sent.pending, nullptr));
    sent.is_cancelled = true;
    std::fill(sent.bytes.begin(), sent.bytes.end(), std::byte{});
  }
  void choose(Received& one, std::uint32_t communicator, loop::Random& random) const {
    one.communicator = communicator;
    if (!has_wildcards_ || !random.one_in(4)) one.from = static_cast<int>(random.below(2));
    if (!has_wildcards_ || !random.one_in(4))
      one.tag = static_cast<std::int64_t>(random.below(kTags));
  }
  void receive(std::uint32_t thread, std::uint32_t communicator, loop::Random& random) {
    Received& one = *threads_[thread].received.emplace_back(std::make_unique<Received>());
    choose(one, communicator, random);
    auto posted =
        at(thread, communicator).receive(one.from, one.tag, {one.into.data(), one.into.size()});
    ASSERT_TRUE(posted);
    one.pending = *posted;
  }
  void probe(std::uint32_t thread, std::uint32_t communicator, loop::Random& random) {
    Received asked;
    choose(asked, communicator, random);
    Envelope seen{};
    if (random.one_in(2)) {
      (void)at(thread, communicator).look(asked.from, asked.tag, &seen);
      return;
    }
    take(thread, asked);
  }
  bool take(std::uint32_t thread, const Received& asked) {
    Envelope seen{};
    Taken* const taken = at(thread, asked.communicator).take(asked.from, asked.tag, &seen);
    if (taken == nullptr) return false;
    Received& one = *threads_[thread].received.emplace_back(std::make_unique<Received>(asked));
    auto posted = Communicator::receive(*taken, {one.into.data(), one.into.size()});
    EXPECT_TRUE(posted);
    one.pending = *posted;
    return true;
  }
  /// Notes the outcome of a receive that is done.
  static void reap(Received& one) {
    if (one.pending == nullptr || !is_done(*one.pending)) return;
    const Outcome end = outcome(*one.pending);
    release(*std::exchange(one.pending, nullptr));
    if (end.is_cancelled) return;
    ASSERT_TRUE(end.status.ok());
    ASSERT_GE(end.envelope.bytes, sizeof(Head));
    std::memcpy(&one.message, one.into.data(), sizeof one.message);
    one.has_message = true;
    auto wanted = random_bytes(one.message.bytes,
                               std::uint64_t{one.message.thread} << 32 | one.message.index);
    std::memcpy(wanted.data(), &one.message, sizeof one.message);
    ASSERT_EQ(end.envelope.bytes, one.message.bytes);
    ASSERT_EQ(end.envelope.tag, one.message.tag);
    ASSERT_EQ(end.envelope.source, rank_of(one.message.thread));
    ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), one.into.begin()));
  }
  template <class Visit>
  void for_each_received(Visit&& visit) {
    for (std::uint32_t thread = 0; thread < kThreads; ++thread)
      for (auto& one : threads_[thread].received) visit(thread, *one);
  }
  void settle() {
    for (int quiet = 0; quiet < 50;) {
      job_.step();
      const bool is_quiet = job_.at(0).engine->is_quiet() && job_.at(1).engine->is_quiet();
      quiet = is_quiet ? quiet + 1 : 0;
    }
    for_each_received([](std::uint32_t, Received& one) { reap(one); });
  }
  static bool fits(const Received& one, int source, std::uint32_t tag) {
    return (one.from == kAnySource || one.from == source) &&
           (one.tag == kAnyTag || one.tag == static_cast<std::int64_t>(tag));
  }
  /// All has arrived: a probe like a waiting receive shows nothing.
  void expect_no_pair_is_left() {
    for_each_received([this](std::uint32_t thread, Received& one) {
      Envelope seen{};
      if (one.pending != nullptr && !has_wildcards_) {
        EXPECT_FALSE(at(thread, one.communicator).look(one.from, one.tag, &seen));
      }
    });
  }
  /// The receives without a message are cancelled, the messages without one are taken.
  void finish() {
    for_each_received([](std::uint32_t, Received& one) {
      if (one.pending != nullptr) {
        EXPECT_TRUE(Communicator::cancel(*one.pending));
      }
    });
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      for (std::uint32_t communicator = 0; communicator < 2; ++communicator) {
        Received all;
        all.communicator = communicator;
        while (take(rank, all)) {
        }
      }
    settle();
    for (Thread& thread : threads_)
      for (auto& sent : thread.sent)
        if (sent->pending != nullptr) {
          EXPECT_TRUE(is_done(*sent->pending));
          EXPECT_TRUE(outcome(*sent->pending).status.ok());
          release(*sent->pending);
        }
    for (auto& of_rank : communicators_)
      for (Communicator* const one : of_rank) one->close();
    settle();
  }
  void expect_all_is_received() {
    std::array<std::vector<int>, kThreads> times;
    for (std::uint32_t t = 0; t < kThreads; ++t) times[t].resize(threads_[t].sent.size());
    for_each_received([&](std::uint32_t thread, Received& one) {
      if (!one.has_message) return;
      const Sent& sent = *threads_[one.message.thread].sent[one.message.index];
      EXPECT_EQ(sent.to, rank_of(thread));
      EXPECT_EQ(sent.communicator, one.communicator);
      EXPECT_EQ(sent.tag, one.message.tag);
      ++times[one.message.thread][one.message.index];
    });
    for (std::uint32_t t = 0; t < kThreads; ++t)
      for (std::size_t i = 0; i < times[t].size(); ++i)
        ASSERT_EQ(times[t][i], threads_[t].sent[i]->is_cancelled ? 0 : 1);
  }
  /// Of two receives of one thread, the earlier one r, and two messages of one thread, the earlier
  /// one m: if r fits m, it is not so that r has got the other one and m the other receive.
  void expect_no_overtaking() {
    for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
      const auto& all = threads_[thread].received;
      for (std::size_t r = 0; r < all.size(); ++r)
        for (std::size_t s = r + 1; s < all.size(); ++s) {
          const Received &earlier = *all[r], &later = *all[s];
          if (!earlier.has_message || !later.has_message ||
              earlier.communicator != later.communicator)
            continue;
          const Head &n = earlier.message, &m = later.message;
          ASSERT_FALSE(n.thread == m.thread && m.index < n.index &&
                       fits(earlier, rank_of(m.thread), m.tag))
              << "thread " << thread << ", receives " << r << " and " << s;
        }
    }
  }

  Job job_;
  const std::uint64_t seed_;
  const bool has_wildcards_;
  std::array<std::array<Communicator*, 2>, 2> communicators_{};
  std::array<Thread, kThreads> threads_;
};

Job::Options over_shm() {
  Job::Options options;
  options.decorate = [](std::unique_ptr<net::Fabric>, int) {
    std::string reason;
    return std::move(shm::open_network({}, &reason)).value();
  };
  return options;
}

TEST(CommunicatorRace, RandomMessagesOverASimulatedNetwork) {
  for_seeds(20, [](std::uint64_t seed) { Field({}, seed, seed % 3 != 0).run(); });
}
TEST(CommunicatorRace, RandomMessagesOnLanesByTag) {
  Job::Options options = over_shm();
  options.lanes.count_max = 4;
  options.lanes_by_tag = true;
  for_seeds(20, [&](std::uint64_t seed) { Field(options, seed, seed % 3 != 0).run(); });
}
TEST(CommunicatorRace, RandomMessagesOverSharedMemory) {
  for_seeds(20, [](std::uint64_t seed) { Field(over_shm(), seed, seed % 3 != 0).run(); });
}

}  // namespace
}  // namespace larklane::msg
