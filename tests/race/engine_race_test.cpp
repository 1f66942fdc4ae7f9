// Two engines in one process: the possible orders of events between two ranks.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "engine_pair.hpp"

namespace larklane::part {
namespace {

class EngineRace : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, EngineRace, testing::ValuesIn(kWays), way_name);

TEST_P(EngineRace, InitAndStartInEveryOrder) {
  EnginePair pair(GetParam());
  for (unsigned order = 0; order < 16; ++order) {
    const bool send_init_first = (order & 1) != 0, start_at_once = (order & 2) != 0;
    const bool send_first = (order & 4) != 0, ready_at_once = (order & 8) != 0;
    std::vector<std::byte> from(480), to(480);
    SendRequest* send = nullptr;
    RecvRequest* recv = nullptr;
    auto init_send = [&] {
      send = made(pair.sender->send_init(args_of(pair.recv_address, from.data(), 8, 60)));
      fill(from, 1);
      if (start_at_once) {
        ASSERT_TRUE(send->start().ok());
      }
      if (start_at_once && ready_at_once) {
        ASSERT_TRUE(send->pready(0, 8).ok());
      }
    };
    auto init_recv = [&] {
      recv = made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), 6, 80)));
      if (start_at_once) {
        ASSERT_TRUE(recv->start().ok());
      }
    };
    if (send_init_first) init_send();
    init_recv();
    if (!send_init_first) init_send();
    if (start_at_once) {
      if (!ready_at_once) {
        ASSERT_TRUE(send->pready(0, 8).ok());
      }
      ASSERT_EQ(complete(*recv), Completion::complete) << order;
      ASSERT_EQ(complete(*send), Completion::complete) << order;
    } else {
      exchange(*send, *recv, send_first);
    }
    EXPECT_TRUE(holds(to, 1)) << order;
    for (std::uint64_t round = 2; round < 5; ++round) {
      fill(from, round);
      exchange(*send, *recv, send_first);
      EXPECT_TRUE(holds(to, round)) << order;
    }
    pair.expect_freed(send, recv);
  }
}

TEST_P(EngineRace, StridedOnEitherSide) {
  EnginePair pair(GetParam());
  // Two pieces of 3 and 5 bytes in elements of 16, the second one first, before the element.
  const auto strided = std::make_shared<const Typemap>(std::vector<TypeBlock>{{7, 5}, {-4, 3}}, 16);
  const auto dense = bytes_type(8);
  constexpr std::uint64_t kElements = 60, kLead = 16;
  auto address = [&](std::uint64_t packed) {
    const std::uint64_t within = packed % 8;
    return kLead + packed / 8 * 16 + (within < 5 ? 7 + within : within - 9);
  };
  for (const bool send_strided : {false, true}) {
    for (const bool recv_strided : {false, true}) {
      std::vector<std::byte> from(kElements * 16 + 2 * kLead), to(from.size());
      auto at = [&](bool is_strided, std::uint64_t packed) {
        return is_strided ? address(packed) : kLead + packed;
      };
      SendRequest* send = made(pair.sender->send_init(args_of(
          pair.recv_address, from.data() + kLead, 12, 5, 3, send_strided ? strided : dense)));
      RecvRequest* recv = made(pair.receiver->recv_init(
          args_of(pair.send_address, to.data() + kLead, 10, 6, 3, recv_strided ? strided : dense)));
      for (std::uint64_t round = 1; round < 5; ++round) {
        std::fill(to.begin(), to.end(), std::byte{0});
        std::vector<std::byte> expected(to.size());
        for (std::uint64_t i = 0; i < kElements * 8; ++i) {
          from[at(send_strided, i)] = byte_of(round, i);
          expected[at(recv_strided, i)] = byte_of(round, i);
        }
        exchange(*send, *recv, round % 2 == 0);
        EXPECT_TRUE(to == expected) << send_strided << recv_strided << round;
      }
      pair.expect_freed(send, recv);
    }
  }
}

TEST_P(EngineRace, SelfChannels) {
  const control::Address address = fresh_address();
  auto engine = make_engine(address, config_of(GetParam()));
  std::vector<std::byte> from(4096), to(4096);
  SendRequest* send = made(engine->send_init(args_of(address, from.data(), 16, 256)));
  RecvRequest* recv = made(engine->recv_init(args_of(address, to.data(), 4, 1024)));
  for (std::uint64_t round = 1; round < 6; ++round) {
    fill(from, round);
    exchange(*send, *recv, round % 2 == 0);
    EXPECT_TRUE(holds(to, round));
  }
  EXPECT_TRUE(engine->free(send).ok());
  EXPECT_TRUE(engine->free(recv).ok());
}

/// A request of a pair whose sizes differ: Start, Parrived or completion fails. A send may have
/// completed before it gets the error.
void expect_size_mismatch(Request& request) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (request.active() || request.start().ok()) {
    if (request.kind() == Kind::send) {
      (void)static_cast<SendRequest&>(request).pready(0, request.partitions());
    }
    const Completion completion = complete(request);
    if (completion == Completion::failed) break;
    ASSERT_EQ(request.kind(), Kind::send);
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_EQ(request.error().code(), Errc::kSizeMismatch);
  EXPECT_NE(request.error_text().find("256 bytes"), std::string::npos) << request.error_text();
  EXPECT_NE(request.error_text().find("128 bytes"), std::string::npos) << request.error_text();
}

TEST_P(EngineRace, SizesThatDifferFailBothByName) {
  EnginePair pair(GetParam());
  for (unsigned turn = 0; turn < 200; ++turn) {
    std::vector<std::byte> from(256, std::byte{7}), to(256);
    SendRequest* send = nullptr;
    auto init_send = [&] {
      send = made(pair.sender->send_init(args_of(pair.recv_address, from.data(), 4, 64)));
      // It may have the error already.
      if (!send->start().ok() || turn % 4 == 0) return;
      ASSERT_TRUE(send->pready(0, turn % 4 == 1 ? 3 : 4).ok());
    };
    if (turn % 3 == 0) init_send();
    // The receive buffer is the first 128 bytes only.
    RecvRequest* recv =
        made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), 2, 64)));
    if (turn % 5 != 0) (void)recv->start();
    if (turn % 3 != 0) init_send();
    expect_size_mismatch(*recv);
    expect_size_mismatch(*send);
    EXPECT_EQ(to, std::vector<std::byte>(256)) << "written in turn " << turn;
    ASSERT_TRUE(pair.sender->free(send).ok());
    ASSERT_TRUE(pair.receiver->free(recv).ok());
    if (testing::Test::HasFailure()) return;
  }
}

TEST_P(EngineRace, CountsOfZero) {
  EnginePair pair(GetParam());
  SendRequest* send = made(pair.sender->send_init(args_of(pair.recv_address, nullptr, 5, 0)));
  RecvRequest* recv = made(pair.receiver->recv_init(args_of(pair.send_address, nullptr, 3, 0)));
  for (int round = 0; round < 4; ++round) {
    ASSERT_TRUE(recv->start().ok());
    ASSERT_TRUE(send->start().ok());
    ASSERT_TRUE(send->pready(0, 4).ok());
    bool arrived = true;
    ASSERT_TRUE(recv->parrived(2, &arrived).ok());
    EXPECT_FALSE(arrived) << "under it is the partition that is not ready";
    EXPECT_EQ(recv->poll(), Completion::pending);
    ASSERT_TRUE(send->pready(4, 1).ok());
    expect_complete(*send, *recv);
  }
  pair.expect_freed(send, recv);
}

TEST_P(EngineRace, TheSummaryCountsArrivalsBeforeTheLastMarkAsEarly) {
  EnginePair pair(GetParam());
  std::vector<std::byte> from(4 * 100), to(4 * 100);
  SendRequest* send = made(pair.sender->send_init(args_of(pair.recv_address, from.data(), 4, 100)));
  RecvRequest* recv = made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), 4, 100)));
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(recv->start().ok());
    ASSERT_TRUE(send->start().ok());
    ASSERT_TRUE(send->pready(0, 3).ok());
    for (std::int32_t p = 0; p < 3; ++p) {
      bool arrived = false;
      while (!arrived) {
        ASSERT_TRUE(recv->parrived(p, &arrived).ok());
        ::sched_yield();
      }
    }
    ASSERT_TRUE(send->pready(3, 1).ok());
    expect_complete(*send, *recv);
  }
  EXPECT_TRUE(pair.sender->free(send).ok());
  const Summary sent = pair.sender->summary();
  const Summary received = pair.receiver->summary();
  EXPECT_TRUE(pair.receiver->free(recv).ok());
  EXPECT_EQ(sent.early_bytes + received.early_bytes, 3u * 300);
  EXPECT_EQ(sent.bytes_moved + received.bytes_moved, 3u * 400);
  EXPECT_EQ(sent.bytes_sent, 3u * 400);
  EXPECT_EQ(received.bytes_received, 3u * 400);
  EXPECT_EQ(sent.send_rounds, 3u);
  EXPECT_EQ(received.receive_rounds, 3u);
}

TEST_P(EngineRace, DoubleMarksAreReportedAndHarmNoOther) {
  EnginePair pair(GetParam());
  std::vector<std::byte> from(40 * 8), to(40 * 8);
  SendRequest* send = made(pair.sender->send_init(args_of(pair.recv_address, from.data(), 40, 8)));
  RecvRequest* recv = made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), 40, 8)));
  EXPECT_EQ(send->pready(0, 1).code(), Errc::kNotActive);
  for (std::uint64_t round = 1; round < 4; ++round) {
    fill(from, round);
    ASSERT_TRUE(recv->start().ok());
    ASSERT_TRUE(send->start().ok());
    EXPECT_EQ(send->start().code(), Errc::kAlreadyActive);
    EXPECT_EQ(send->pready(40, 1).code(), Errc::kInvalidArgument);
    EXPECT_EQ(send->pready(-1, 1).code(), Errc::kInvalidArgument);
    EXPECT_TRUE(send->pready(3, 0).ok());
    ASSERT_TRUE(send->pready(7, 1).ok());
    EXPECT_EQ(send->pready(7, 1).code(), Errc::kAlreadyReady);
    ASSERT_TRUE(send->pready(0, 7).ok());
    ASSERT_TRUE(send->pready(8, 32).ok());
    ASSERT_EQ(complete(*recv), Completion::complete);
    ASSERT_EQ(complete(*send), Completion::complete);
    EXPECT_TRUE(holds(to, round));
  }
  pair.expect_freed(send, recv);
}

struct Shape {
  std::int32_t send_partitions, recv_partitions;
  std::uint64_t bytes;
  const char* policy;
  const char* min_bytes = "16K";
};

/// Threads meet here. Yields.
class Gate {
 public:
  explicit Gate(std::uint64_t threads) : threads_(threads) {}
  void pass() {
    // acq_rel: everything before is seen by all after; acquire: pairs with it.
    const std::uint64_t generation = entered_.fetch_add(1, std::memory_order_acq_rel) / threads_;
    while (entered_.load(std::memory_order_acquire) / threads_ == generation) ::sched_yield();
  }

 private:
  const std::uint64_t threads_;
  std::atomic<std::uint64_t> entered_{0};
};

void four_threads_a_side(const Way& way, const Shape& shape) {
  constexpr std::int32_t kThreads = 4;
  const bool learns = shape.policy == std::string_view("learned");
  const std::uint64_t rounds = (kSanitized ? 10 : 50) * (learns ? 4 : 1);
  EnginePair pair(way, shape.policy, shape.min_bytes);
  std::vector<std::byte> from(shape.bytes), to(shape.bytes);
  const auto send_count = shape.bytes / static_cast<std::uint64_t>(shape.send_partitions);
  const auto recv_count = shape.bytes / static_cast<std::uint64_t>(shape.recv_partitions);
  SendRequest* send = made(pair.sender->send_init(
      args_of(pair.recv_address, from.data(), shape.send_partitions, send_count)));
  RecvRequest* recv = made(pair.receiver->recv_init(
      args_of(pair.send_address, to.data(), shape.recv_partitions, recv_count)));
  std::atomic<bool> wrong{false};
  Gate send_gate(kThreads), recv_gate(kThreads);
  auto bytes_right = [&](std::uint64_t round, std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = first; i < first + count; ++i)
      if (to[i] != byte_of(round, i)) return false;
    return true;
  };
  auto send_thread = [&](std::int32_t me) {
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      if (me == 0) {
        ASSERT_TRUE(send->start().ok());
      }
      send_gate.pass();
      for (std::int32_t p = me; p < shape.send_partitions; p += kThreads) {
        const std::uint64_t first = static_cast<std::uint64_t>(p) * send_count;
        for (std::uint64_t i = first; i < first + send_count; ++i) from[i] = byte_of(round, i);
        ASSERT_TRUE(send->pready(p, 1).ok());
      }
      // Completion races with the other threads' last Pready.
      if (me == 0) {
        ASSERT_EQ(complete(*send), Completion::complete);
      }
      send_gate.pass();
    }
  };
  auto recv_thread = [&](std::int32_t me) {
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      if (me == 0) {
        ASSERT_TRUE(recv->start().ok());
      }
      recv_gate.pass();
      for (std::int32_t p = me; p < shape.recv_partitions; p += kThreads - 1) {
        bool arrived = false;
        while (!arrived) {
          ASSERT_TRUE(recv->parrived(p, &arrived).ok());
          if (!arrived) ::sched_yield();
        }
        // relaxed: read after the threads have been joined.
        if (!bytes_right(round, static_cast<std::uint64_t>(p) * recv_count, recv_count))
          wrong.store(true, std::memory_order_relaxed);
      }
      recv_gate.pass();
      if (me == 0) {
        ASSERT_EQ(complete(*recv), Completion::complete);
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::int32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back(send_thread, t);
    threads.emplace_back(recv_thread, t);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(wrong.load(std::memory_order_relaxed));
  pair.expect_freed(send, recv);
}

TEST_P(EngineRace, FourThreadsASide) {
  for (const Shape& shape : {Shape{64, 16, 64 * 48, "none"}, Shape{48, 96, 96 * 8, "static:5"},
                             Shape{300, 7, 2100, "single"}})
    four_threads_a_side(GetParam(), shape);
}

TEST_P(EngineRace, LargeRunsAreCopiedByManyThreads) {
  four_threads_a_side(GetParam(), Shape{8, 4, 1u << 20, "static:2"});
}

TEST_P(EngineRace, AskedForBeforeTheMatchWithADeadline) {
  for (int turn = 0; turn < (kSanitized ? 20 : 100); ++turn) {
    EnginePair pair(GetParam(), "timer:1us");
    std::vector<std::byte> from(4 * 1000), to(4 * 1000);
    RecvRequest* recv =
        made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), 4, 1000)));
    ASSERT_TRUE(recv->start().ok());
    std::thread asking([&] {
      for (bool arrived = false; !arrived; ::sched_yield())
        ASSERT_TRUE(recv->parrived(1, &arrived).ok());
    });
    SendRequest* send =
        made(pair.sender->send_init(args_of(pair.recv_address, from.data(), 4, 1000)));
    ASSERT_TRUE(send->start().ok());
    ASSERT_TRUE(send->pready(0, 2).ok());
    asking.join();
    ASSERT_TRUE(send->pready(2, 2).ok());
    expect_complete(*send, *recv);
    pair.expect_freed(send, recv);
  }
}

TEST_P(EngineRace, DeadlinesInTheMiddleOfMarks) {
  for (const char* policy : {"timer:1us", "timer:30us"}) {
    four_threads_a_side(GetParam(), Shape{32, 8, 32 * 800, policy});
    four_threads_a_side(GetParam(), Shape{70, 7, 70 * 4000, policy});
  }
}

TEST_P(EngineRace, GroupsThatAreLearnedChangeBetweenRounds) {
  std::mutex mutex;
  std::string said;  // guarded by mutex
  set_log_level(LogLevel::info);
  set_log_sink([&](LogLevel, std::string_view message) {
    const std::scoped_lock lock(mutex);
    said.append(message).append("\n");
  });
  four_threads_a_side(GetParam(), Shape{48, 96, 96 * 800, "learned", "448"});
  four_threads_a_side(GetParam(), Shape{300, 7, 2100 * 64, "learned", "448"});
  four_threads_a_side(GetParam(), Shape{300, 7, 2100 * 64, "learned", "1M"});
  four_threads_a_side(GetParam(), Shape{1, 1, 4096, "learned"});
  set_log_sink({});
  set_log_level(LogLevel::warn);
  // The first trials; slots have no groups.
  std::vector<std::string> changes{" 32 groups after round 3", " 64 groups after round 3",
                                   " 2 groups after round 3"};
  if (!GetParam().is_network)  // there a receiver that has asked in each round ends the trials
    for (const char* count : {" 48", " 300", " 1"})
      changes.push_back(std::string(count) + " groups after round 4");
  for (const std::string& change : changes)
    EXPECT_EQ(said.find(change) != std::string::npos, GetParam().slot_bytes_max[0] == '0') << said;
}

void asked_one_by_one(const Way& way, const char* min_bytes) {
  constexpr std::int32_t kPartitions = 70;
  EnginePair pair(way, "learned", min_bytes);
  std::vector<std::byte> from(kPartitions * 100), to(kPartitions * 100);
  SendRequest* send =
      made(pair.sender->send_init(args_of(pair.recv_address, from.data(), kPartitions, 100)));
  RecvRequest* recv =
      made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), kPartitions, 100)));
  const auto ask = [recv](std::int32_t partition) {
    bool arrived = false;
    EXPECT_TRUE(recv->parrived(partition, &arrived).ok());
    if (!arrived) ::sched_yield();
    return arrived;
  };
  std::atomic<bool> ended{false};
  std::thread straggler([&] {
    while (!ended.load(std::memory_order_relaxed)) ask(33);  // relaxed: it ends some time
  });
  for (std::uint64_t round = 1; round <= (kSanitized ? 10 : 60); ++round) {
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = byte_of(round, i);
    ASSERT_TRUE(recv->start().ok());
    ASSERT_TRUE(send->start().ok());
    for (std::int32_t p = kPartitions - 1; p >= 0; --p) {
      ASSERT_TRUE(send->pready(p, 1).ok());
      while (!ask(p)) {
      }
    }
    ASSERT_EQ(complete(*send), Completion::complete);
    ASSERT_EQ(complete(*recv), Completion::complete);
    EXPECT_EQ(from, to) << round;
  }
  ended.store(true, std::memory_order_relaxed);
  straggler.join();
  pair.expect_freed(send, recv);
}

TEST_P(EngineRace, EachIsAskedForBeforeTheNextIsReady) {
  // Groups of a few; all in one, of several words.
  for (const char* min_bytes : {"448", "1M"}) asked_one_by_one(GetParam(), min_bytes);
}

}  // namespace
}  // namespace larklane::part
