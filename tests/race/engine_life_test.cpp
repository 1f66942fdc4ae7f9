// Two engines in one process: how pairs match, and that freed requests leave nothing behind.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "engine_pair.hpp"
#include "together.hpp"

namespace larklane::part {
namespace {

class EngineLife : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, EngineLife, testing::ValuesIn(kWays), way_name);

TEST_P(EngineLife, EqualTagsMatchInTheOrderOfTheInits) {
  EnginePair pair(GetParam());
  constexpr std::size_t kChannels = 50;
  struct Channel {
    std::vector<std::byte> from = std::vector<std::byte>(64), to = std::vector<std::byte>(64);
    SendRequest* send = nullptr;
    RecvRequest* recv = nullptr;
  };
  std::vector<Channel> channels(kChannels);
  std::thread sender([&] {
    for (std::size_t c = 0; c < kChannels; ++c) {
      fill(channels[c].from, 1, c);
      channels[c].send =
          made(pair.sender->send_init(args_of(pair.recv_address, channels[c].from.data(), 4, 16)));
      ASSERT_TRUE(channels[c].send->start().ok());
      ASSERT_TRUE(channels[c].send->pready(0, 4).ok());
    }
    for (Channel& channel : channels) ASSERT_EQ(complete(*channel.send), Completion::complete);
  });
  std::thread receiver([&] {
    for (Channel& channel : channels) {
      channel.recv =
          made(pair.receiver->recv_init(args_of(pair.send_address, channel.to.data(), 4, 16)));
      ASSERT_TRUE(channel.recv->start().ok());
    }
    for (Channel& channel : channels) ASSERT_EQ(complete(*channel.recv), Completion::complete);
  });
  sender.join();
  receiver.join();
  for (std::size_t c = 0; c < kChannels; ++c) {
    EXPECT_TRUE(holds(channels[c].to, 1, c)) << c;
    EXPECT_TRUE(pair.sender->free(channels[c].send).ok());
    EXPECT_TRUE(pair.receiver->free(channels[c].recv).ok());
  }
}

TEST_P(EngineLife, AHalfThatIsFreedUnmatchedKeepsItsPlace) {
  EnginePair pair(GetParam());
  for (int turn = 0; turn < 12; ++turn) {
    const bool sender_frees = turn % 2 == 0;
    const bool other_half_waits = turn / 2 % 2 == 0;
    std::vector<std::byte> lost(64), from(64), to(64), never(64);
    fill(lost, 9);
    fill(from, 1);
    auto send_init = [&](void* b) {
      return made(pair.sender->send_init(args_of(pair.recv_address, b, 4, 16)));
    };
    auto recv_init = [&](void* b) {
      return made(pair.receiver->recv_init(args_of(pair.send_address, b, 4, 16)));
    };
    SendRequest* first_send = nullptr;
    RecvRequest* first_recv = nullptr;
    if (sender_frees) {
      if (other_half_waits) first_recv = recv_init(never.data());
      ASSERT_TRUE(pair.sender->free(send_init(lost.data())).ok());
      if (!other_half_waits) first_recv = recv_init(never.data());
    } else {
      if (other_half_waits) first_send = send_init(lost.data());
      ASSERT_TRUE(pair.receiver->free(recv_init(never.data())).ok());
      if (!other_half_waits) first_send = send_init(lost.data());
    }
    SendRequest* send = send_init(from.data());
    RecvRequest* recv = recv_init(to.data());
    exchange(*send, *recv, turn % 3 == 0);
    EXPECT_TRUE(holds(to, 1)) << turn;
    if (first_send != nullptr) {
      EXPECT_TRUE(pair.sender->free(first_send).ok());
    }
    if (first_recv != nullptr) {
      EXPECT_TRUE(pair.receiver->free(first_recv).ok());
    }
    EXPECT_TRUE(pair.sender->free(send).ok());
    EXPECT_TRUE(pair.receiver->free(recv).ok());
  }
}

TEST_P(EngineLife, AStartedReceiveFailsWhenItsSendIsFreed) {
  EnginePair pair(GetParam());
  std::vector<std::byte> from(64), to(64);
  RecvRequest* recv = made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), 4, 16)));
  ASSERT_TRUE(recv->start().ok());
  EXPECT_EQ(pair.receiver->free(recv).code(), Errc::kAlreadyActive);
  ASSERT_TRUE(
      pair.sender
          ->free(made(pair.sender->send_init(args_of(pair.recv_address, from.data(), 4, 16))))
          .ok());
  EXPECT_EQ(complete(*recv), Completion::failed);
  EXPECT_EQ(recv->error().code(), Errc::kPeerFreed);
  EXPECT_NE(recv->error_text(), "");
  EXPECT_TRUE(pair.receiver->free(recv).ok());
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// The kernel closes the sockets of a process one by one: while it ends, its listener still takes
// connections.
TEST_P(EngineLife, AReceiveMatchesASendOfAnEndedProcessThoughItsSocketTakesConnections) {
  if (GetParam().is_network) GTEST_SKIP() << "over a network nothing is complete before the match";
  constexpr std::uint64_t kBytes = 64;
  const Config config = config_of(kSlots);
  const control::Address gone = fresh_address(), here = fresh_address();
  auto receiver = make_engine(here, config);
  auto listener = control::Listener::bind(gone);
  ASSERT_TRUE(listener.has_value());
  const UniqueFd ending(::dup(listener->fd.get()));
  std::vector<control::Listener> own;
  own.push_back(std::move(listener).value());
  auto sender = Engine::create(std::move(own), config, nullptr, nullptr);
  ASSERT_TRUE(sender.has_value());
  std::vector<std::byte> from(kBytes), to(kBytes), other(kBytes);
  fill(from, 1);
  SendRequest* send = made((*sender)->send_init(args_of(here, from.data(), 4, kBytes / 4, 5)));
  ASSERT_TRUE(send->start().ok());
  ASSERT_TRUE(send->pready(0, 4).ok());
  ASSERT_EQ(complete(*send), Completion::complete);
  RecvRequest* witness = made(receiver->recv_init(args_of(gone, other.data(), 4, kBytes / 4, 6)));
  ASSERT_TRUE(witness->start().ok());
  (*sender).reset();
  EXPECT_EQ(complete(*witness), Completion::failed);  // its end has been noticed
  RecvRequest* recv = made(receiver->recv_init(args_of(gone, to.data(), 4, kBytes / 4, 5)));
  ASSERT_TRUE(recv->start().ok());
  EXPECT_EQ(complete(*recv), Completion::complete);
  EXPECT_TRUE(holds(to, 1));
}

// Two threads search the ended process at once, and both see its INIT.
TEST_P(EngineLife, TheLastInitOfAnEndedProcessGoesToOneOfTwoReceives) {
  if (GetParam().is_network) GTEST_SKIP() << "over a network nothing is complete before the match";
  constexpr std::size_t kTags = kSanitized ? 100 : 400;
  const Config config = config_of(kSlots);
  const control::Address gone = fresh_address(), here = fresh_address();
  auto receiver = make_engine(here, config);
  auto listener = control::Listener::bind(gone);
  ASSERT_TRUE(listener.has_value());
  const UniqueFd ending(::dup(listener->fd.get()));
  std::vector<control::Listener> own;
  own.push_back(std::move(listener).value());
  auto sender = Engine::create(std::move(own), config, nullptr, nullptr);
  ASSERT_TRUE(sender.has_value());
  std::vector<std::byte> from(64), to[2] = {from, from}, other(64);
  for (std::size_t tag = 0; tag < kTags; ++tag) {
    SendRequest* send =
        made((*sender)->send_init(args_of(here, from.data(), 4, 16, static_cast<int>(tag))));
    ASSERT_TRUE(send->start().ok());
    ASSERT_TRUE(send->pready(0, 4).ok());
    ASSERT_EQ(complete(*send), Completion::complete);
  }
  RecvRequest* witness =
      made(receiver->recv_init(args_of(gone, other.data(), 4, 16, static_cast<int>(kTags))));
  ASSERT_TRUE(witness->start().ok());
  (*sender).reset();
  EXPECT_EQ(complete(*witness), Completion::failed);  // its end has been noticed
  std::atomic<int> arrived[kTags]{};
  std::vector<RecvRequest*> receives[2];
  together(2, [&](int thread) {
    for (std::size_t tag = 0; tag < kTags; ++tag) {
      arrived[tag].fetch_add(1, std::memory_order_acq_rel);  // pairs with the other thread's load
      while (arrived[tag].load(std::memory_order_acquire) != 2) std::this_thread::yield();
      receives[thread].push_back(made(
          receiver->recv_init(args_of(gone, to[thread].data(), 4, 16, static_cast<int>(tag)))));
    }
  });
  for (std::size_t tag = 0; tag < kTags; ++tag) {
    RecvRequest* const pair[2] = {receives[0].at(tag), receives[1].at(tag)};
    ASSERT_TRUE(pair[0] != nullptr && pair[1] != nullptr) << tag;
    ASSERT_TRUE(pair[0]->start().ok() && pair[1]->start().ok());
    while (pair[0]->poll() == Completion::pending && pair[1]->poll() == Completion::pending)
      ::sched_yield();
    const bool is_first = pair[0]->poll() != Completion::pending;
    EXPECT_EQ(pair[is_first ? 0 : 1]->poll(), Completion::complete) << tag;
    EXPECT_EQ(pair[is_first ? 1 : 0]->poll(), Completion::pending) << tag;
  }
}

// The other pairs of a process that has ended fail; none is left to the MPI, which waits for ever.
TEST_P(EngineLife, AnEndedProcessStaysReachableAndFails) {
  EnginePair pair(GetParam());
  std::vector<std::byte> from(64), to(64);
  const auto recv_init = [&](int tag) {
    return pair.receiver->recv_init(args_of(pair.send_address, to.data(), 4, 16, tag));
  };
  SendRequest* send = made(pair.sender->send_init(args_of(pair.recv_address, from.data(), 4, 16)));
  RecvRequest* recv = made(recv_init(0));
  exchange(*send, *recv, true);
  pair.sender.reset();
  ASSERT_TRUE(recv->start().ok());
  EXPECT_EQ(complete(*recv), Completion::failed);
  EXPECT_TRUE(pair.receiver->reachable(pair.send_address).ok());
  EXPECT_EQ(recv_init(1).error().code(), Errc::kPeerDown);
  EXPECT_EQ(pair.receiver->send_init(args_of(pair.send_address, from.data(), 4, 16)).error().code(),
            Errc::kPeerDown);
  EXPECT_EQ(pair.receiver->reachable("larklane-engine-nobody").code(), Errc::kUnreachable);
}

// Messages of a process count, even if it ended before this one's helper had served it.
TEST_P(EngineLife, RecordsOfAProcessThatEndedEarlierAreServed) {
  if (GetParam().is_network) GTEST_SKIP() << "over a network nothing is complete before the match";
  for (int turn = 0; turn < (kSanitized ? 20 : 200); ++turn) {
    const Config config = config_of(kSlots);
    const control::Address gone = fresh_address(), here = fresh_address();
    auto receiver = make_engine(here, config);
    std::vector<std::byte> from(64), to(64);
    {
      auto sender = make_engine(gone, config);
      fill(from, 1);
      SendRequest* send = made(sender->send_init(args_of(here, from.data(), 4, 16)));
      ASSERT_TRUE(send->start().ok());
      ASSERT_TRUE(send->pready(0, 4).ok());
    }
    auto recv = receiver->recv_init(args_of(gone, to.data(), 4, 16));
    ASSERT_TRUE(recv.has_value()) << errc_name(recv.error().code()) << ", turn " << turn;
    ASSERT_TRUE((*recv)->start().ok());
    EXPECT_EQ(complete(**recv), Completion::complete) << turn;
    EXPECT_TRUE(holds(to, 1)) << turn;
  }
}

TEST_P(EngineLife, ThousandsOfChannelsInBoundedMemory) {
  EnginePair pair(GetParam());
  constexpr int kTurns = kSanitized ? 1'000 : 10'000;
  std::vector<std::byte> from(4096), to(4096);
  std::uint64_t after_warm_up = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const bool rounds = turn % 2 == 0;
    SendRequest* send =
        made(pair.sender->send_init(args_of(pair.recv_address, from.data(), 4, 1024, turn)));
    RecvRequest* recv =
        made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), 2, 2048, turn)));
    if (rounds) {
      fill(from, static_cast<std::uint64_t>(turn));
      exchange(*send, *recv, turn % 4 == 0);
      ASSERT_TRUE(holds(to, static_cast<std::uint64_t>(turn)));
    }
    ASSERT_TRUE(pair.sender->free(send).ok());
    ASSERT_TRUE(pair.receiver->free(recv).ok());
    if (turn == kTurns / 10) after_warm_up = resident_bytes();
  }
  if (!kSanitized) {
    EXPECT_LT(resident_bytes(), after_warm_up + (std::uint64_t{16} << 20));
  }
}

// The sender's memory is the receiver's to give back, which has no receive for it.
TEST_P(EngineLife, FreedSendsWithoutAReceiveTakeNoMemory) {
  EnginePair pair(GetParam());
  constexpr int kTurns = kSanitized ? 1'000 : 100'000;
  std::vector<std::byte> from(4096), to(4096);
  const auto send_init = [&](int tag) {
    return made(pair.sender->send_init(args_of(pair.recv_address, from.data(), 4, 1024, tag)));
  };
  const auto recv_init = [&](int tag) {
    return made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), 4, 1024, tag)));
  };
  const auto exchange_one = [&](int tag) {
    fill(from, static_cast<std::uint64_t>(tag));
    SendRequest* send = send_init(tag);
    RecvRequest* recv = recv_init(tag);
    exchange(*send, *recv, true);
    EXPECT_TRUE(holds(to, static_cast<std::uint64_t>(tag)));
    EXPECT_TRUE(pair.sender->free(send).ok());
    EXPECT_TRUE(pair.receiver->free(recv).ok());
  };
  std::uint64_t after_warm_up = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    ASSERT_TRUE(pair.sender->free(send_init(1)).ok());
    if (turn % 500 == 0) exchange_one(2);  // the receiver has served all earlier records
    if (turn == kTurns / 2) after_warm_up = resident_bytes();
  }
  if (!kSanitized) {  // answers that are on their way are more at one time than at another
    EXPECT_LT(resident_bytes(), after_warm_up + (std::uint64_t{64} << 20));
  }
  for (int turn = 0; turn < kTurns; ++turn)  // each meets a freed one
    ASSERT_TRUE(pair.receiver->free(recv_init(1)).ok());
  exchange_one(1);
}

}  // namespace
}  // namespace larklane::part
