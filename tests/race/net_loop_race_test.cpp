// The network inside one process between real threads: the thread sanitizer sees the order that a
// network guarantees, and only that.

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/sanitized.hpp"
#include "net/fault/fault.hpp"
#include "net/loop/fabric.hpp"
#include "net/loop/piece.hpp"
#include "net/unseen_lock.hpp"
#include "unit/net_pair.hpp"

namespace larklane::net {
namespace {

constexpr std::size_t kMessageBytes = 1024;
constexpr std::size_t kWordAt = 2048;
#ifdef LARKLANE_TSAN
constexpr std::uint32_t kRounds = 300;
#else
constexpr std::uint32_t kRounds = 2000;
#endif

/// A thread that is the network, for as long as it lives.
class Turner {
 public:
  explicit Turner(loop::Fabric& fabric)
      : thread_([this, &fabric] {
          // relaxed: nothing is handed over by it
          while (!is_over_.load(std::memory_order_relaxed))
            if (fabric.turn(16) == 0) std::this_thread::yield();
        }) {}
  ~Turner() {
    is_over_.store(true, std::memory_order_relaxed);  // relaxed: as above
    thread_.join();
  }

 private:
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

std::uint64_t look(Side& side) {
  // acquire: pairs with the network's release of a small write
  return loop::word_at(side.bytes.data() + kWordAt).load(std::memory_order_acquire);
}

void wait(Side& side, const std::function<bool()>& done) {
  while (!done())
    if (side.poll() == 0) std::this_thread::yield();
}

void post(Side& side, const std::function<Result<Post>()>& one) {
  for (;;) {
    Result<Post> answer = one();
    ASSERT_TRUE(answer);
    if (*answer != Post::retry) return;
    side.poll();
  }
}

/// Each side's rounds, in a thread of its own.
template <class Send, class Receive>
void rounds(Pair& pair, Send send, Receive receive) {
  std::thread sender([&] {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      std::memset(pair.a.bytes.data(), static_cast<int>(round), kMessageBytes);
      send(pair.a, round);
    }
  });
  std::thread receiver([&] {
    for (std::uint32_t round = 1; round <= kRounds; ++round) receive(pair.b, round);
  });
  sender.join();
  receiver.join();
}

/// Rounds of push: the receiver's credit is a word, the message comes with an immediate.
void push_rounds(Pair& pair) {
  const auto send = [&](Side& a, std::uint32_t round) {
    wait(a, [&] { return look(a) == round; });
    Sent sent;
    post(a,
         [&] { return a.link->write_immediate(a.to(pair.b, 0, 0, kMessageBytes), round, sent); });
    wait(a, [&] { return sent.is_over(); });
    ASSERT_TRUE(sent.status.ok());
  };
  const auto receive = [&](Side& b, std::uint32_t round) {
    std::memset(b.bytes.data(), 0, kMessageBytes);
    const std::uint64_t credit = round;
    Sent sent;
    Result<Post> answer = Post::retry;
    post(b, [&] {
      answer = b.link->write_small(std::as_bytes(std::span(&credit, 1)), pair.a.at(kWordAt), sent);
      return answer;
    });
    wait(b, [&] { return b.ear.heard.size() == round; });
    ASSERT_EQ(b.ear.heard.back(), round);
    for (std::size_t i = 0; i < kMessageBytes; ++i)
      ASSERT_EQ(b.bytes[i], static_cast<std::byte>(round));
    wait(b, [&] { return *answer == Post::done || sent.is_over(); });
  };
  rounds(pair, send, receive);
}

/// Rounds of pull: the sender's notice is a word, which the receiver reads from afar, too.
void pull_rounds(Pair& pair) {
  const auto send = [&](Side& a, std::uint32_t round) {
    // release: pairs with the network's acquire of a word that it reads
    loop::word_at(a.bytes.data() + kWordAt + 8).store(round, std::memory_order_release);
    wait(a, [&] { return look(a) == round; });  // FIN
  };
  const auto receive = [&](Side& b, std::uint32_t round) {
    std::uint64_t notice = 0;
    while (notice != round) {
      Sent asked;
      post(b, [&] { return b.link->read(b.to(pair.a, kWordAt, kWordAt + 8, 8), asked); });
      wait(b, [&] { return asked.is_over(); });
      std::memcpy(&notice, b.bytes.data() + kWordAt, sizeof notice);
    }
    Sent pulled, fin;
    post(b, [&] { return b.link->read(b.to(pair.a, 0, 0, kMessageBytes), pulled); });
    wait(b, [&] { return pulled.is_over(); });
    for (std::size_t i = 0; i < kMessageBytes; ++i)
      ASSERT_EQ(b.bytes[i], static_cast<std::byte>(round));
    Result<Post> answer = Post::retry;
    post(b, [&] {
      answer = b.link->write_small(std::as_bytes(std::span(&notice, 1)), pair.a.at(kWordAt), fin);
      return answer;
    });
    wait(b, [&] { return *answer == Post::done || fin.is_over(); });
  };
  rounds(pair, send, receive);
}

loop::Fabric::Options options_of(std::uint64_t seed) {
  loop::Fabric::Options options;
  options.seed = seed;
  options.done_percent = 30;
  options.limits.is_progress_manual = seed % 2 == 0;
  return options;
}

TEST(NetLoopRace, PollsOfBothSidesTurnTheWire) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    loop::Fabric fabric(options_of(seed));
    Pair push(fabric, fabric), pull(fabric, fabric);
    std::thread other([&] { push_rounds(push); });
    pull_rounds(pull);
    other.join();
  }
}

TEST(NetLoopRace, AThreadIsTheNetwork) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    loop::Fabric::Options options = options_of(seed);
    options.turns_per_poll = 0;
    loop::Fabric fabric(options);
    Pair push(fabric, fabric), pull(fabric, fabric);
    const Turner turner(fabric);
    std::thread other([&] { push_rounds(push); });
    pull_rounds(pull);
    other.join();
  }
}

TEST(NetLoopRace, WithDelaysAndRetriesOnTop) {
  loop::Fabric below(options_of(1));
  fault::Fabric fabric(
      below.for_process(),
      {.faults = {{.call = fault::Call::post, .what = fault::What::retry, .one_in = 4}},
       .held_one_in = 4,
       .late_one_in = 4});
  Pair push(fabric, fabric), pull(fabric, fabric);
  std::thread other([&] { push_rounds(push); });
  pull_rounds(pull);
  other.join();
}

/// A thread that finds nothing sleeps: no thread may be left asleep.
TEST(NetLoopRace, ASleepingThreadIsWoken) {
  for (const std::uint32_t turns_per_poll : {0u, 4u}) {
    loop::Fabric::Options options = options_of(3);
    options.turns_per_poll = turns_per_poll;
    loop::Fabric fabric(options);
    Pair pair(fabric, fabric);
    std::unique_ptr<Turner> turner;
    if (turns_per_poll == 0) turner = std::make_unique<Turner>(fabric);
    const auto play = [](Side& own, const Side& peer, bool begins) {
      for (std::uint32_t round = 1; round <= kRounds; ++round) {
        Sent sent;
        bool is_done = false;
        const auto serve = [&] {
          Result<Post> answer =
              own.link->write_small_immediate(bytes_of("token"), peer.at(0), round, sent);
          ASSERT_TRUE(answer);
          is_done = *answer == Post::done;
        };
        if (begins) serve();
        while (own.ear.heard.size() < round || (begins && !is_done && !sent.is_over())) {
          if (own.poll() > 0 || !own.endpoint->arm(net::Wake::needed)) continue;
          pollfd entry{own.endpoint->wait_fd(), POLLIN, 0};
          ASSERT_EQ(::poll(&entry, 1, 120'000), 1) << "asleep in round " << round;
        }
        if (!begins) serve();
        while (!begins && !is_done && !sent.is_over()) own.poll();
      }
    };
    std::thread first([&] { play(pair.a, pair.b, true); });
    play(pair.b, pair.a, false);
    first.join();
  }
}

#ifdef LARKLANE_TSAN
// Mistakes of a layer above have to be seen, although all of them meet in one lock.
class NetLoopRaceDeathTest : public testing::Test {
 protected:
  NetLoopRaceDeathTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    loop::Fabric::Options options;
    options.turns_per_poll = 0;
    fabric_ = std::make_unique<loop::Fabric>(options);
    pair_ = std::make_unique<Pair>(*fabric_, *fabric_);
  }
  /// A thread does `one` and then, with nothing that orders them but calls of the fabric, `other`.
  static void beside(const std::function<void()>& one, const std::function<void()>& other) {
    std::atomic<bool> is_over{false};
    std::thread first([&] {
      one();
      is_over.store(true, std::memory_order_relaxed);  // relaxed: on purpose
    });
    while (!is_over.load(std::memory_order_relaxed)) std::this_thread::yield();  // as above
    other();
    first.join();
  }
  std::unique_ptr<loop::Fabric> fabric_;
  std::unique_ptr<Pair> pair_;
  Sent sent_;
  int sum_ = 0;
};

constexpr int kRaceExit = 66;  ///< the sanitizer's

TEST_F(NetLoopRaceDeathTest, NoRaceIsSeenWhereThereIsNone) {
  EXPECT_EXIT(
      {
        (void)pair_->a.link->write(pair_->a.to(pair_->b, 0, 0, 64), sent_);
        beside([&] { fabric_->settle(); },
               [&] {
                 pair_->a.poll();
                 pair_->a.bytes[0] = std::byte{1};
                 pair_->b.bytes[100] = std::byte{1};
               });
        std::exit(sent_.is_over() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(NetLoopRaceDeathTest, BytesAreReadWithoutAnImmediate) {
  EXPECT_EXIT(
      {
        beside(
            [&] {
              (void)pair_->a.link->write(pair_->a.to(pair_->b, 0, 0, 64), sent_);
              fabric_->settle();
            },
            [&] {
              pair_->b.poll();
              sum_ += static_cast<int>(pair_->b.bytes[0]);
            });
        std::exit(sum_);
      },
      testing::ExitedWithCode(kRaceExit), "data race");
}

TEST_F(NetLoopRaceDeathTest, BytesAreWrittenAgainBeforeTheirCompletion) {
  EXPECT_EXIT(
      {
        (void)pair_->a.link->write(pair_->a.to(pair_->b, 0, 0, 64), sent_);
        beside([&] { fabric_->settle(); },
               [&] {
                 pair_->b.poll();
                 pair_->a.bytes[0] = std::byte{1};
               });
        std::exit(0);
      },
      testing::ExitedWithCode(kRaceExit), "data race");
}

TEST_F(NetLoopRaceDeathTest, AWordIsReadAsPlainBytes) {
  EXPECT_EXIT(
      {
        beside(
            [&] {
              (void)pair_->a.link->write_small(bytes_of("8 bytes."), pair_->b.at(0), sent_);
              fabric_->settle();
            },
            [&] { sum_ += static_cast<int>(pair_->b.bytes[0]); });
        std::exit(sum_);
      },
      testing::ExitedWithCode(kRaceExit), "data race");
}

TEST_F(NetLoopRaceDeathTest, TwoThreadsUseALaneWithoutALock) {
  EXPECT_EXIT(
      {
        beside([&] { pair_->a.poll(); }, [&] { pair_->a.poll(); });
        std::exit(0);
      },
      testing::ExitedWithCode(kRaceExit), "data race");
}
#endif

}  // namespace
}  // namespace larklane::net
