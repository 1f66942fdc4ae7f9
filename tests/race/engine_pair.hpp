#pragma once
// Two connected engines, and the steps of tests with a pair of requests.

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/sanitized.hpp"
#include "control/plane/plane.hpp"
#include "net/loop/fabric.hpp"
#include "part/engine.hpp"

namespace larklane::part {

#ifdef LARKLANE_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Long, because sanitized programs on busy machines are slow: nothing here waits in vain.
inline constexpr std::chrono::seconds kPatience{240};

/// How bytes travel.
struct Way {
  const char* name;
  const char* slot_bytes_max;
  bool is_network = false;
  const char* lanes = "1";
};
inline constexpr Way kSlots{"slots", "8M"};
inline constexpr Way kDirect{"direct", "0"};
/// A network that keeps no order, between the two engines.
inline constexpr Way kNetwork{"network", "0", true};
inline constexpr Way kTwoLanes{"network_2_lanes", "0", true, "2"};
inline constexpr Way kFourLanes{"network_4_lanes", "0", true, "4"};
inline constexpr Way kWays[] = {kSlots, kDirect, kNetwork, kTwoLanes, kFourLanes};
inline std::string way_name(const testing::TestParamInfo<Way>& way) { return way.param.name; }

inline Config config_of(const Way& way, std::string_view policy = "none",
                        std::string_view min_bytes = "16K") {
  Config config;
  std::string problem;
  EXPECT_TRUE(config.set("shm_slot_bytes_max", way.slot_bytes_max, &problem).ok()) << problem;
  EXPECT_TRUE(config.set("vci_count_max", way.lanes, &problem).ok()) << problem;
  EXPECT_TRUE(config.set("shm_piece_bytes", "64K", &problem).ok()) << problem;
  EXPECT_TRUE(config.set("policy", policy, &problem).ok()) << problem;
  EXPECT_TRUE(config.set("min_bytes", min_bytes, &problem).ok()) << problem;
  return config;
}

inline control::Address fresh_address() {
  static int count = 0;
  return "larklane-engine-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

inline std::unique_ptr<Engine> make_engine(const control::Address& address, Config config,
                                           std::unique_ptr<net::Fabric> fabric = nullptr) {
  auto listener = control::Listener::bind(address);
  EXPECT_TRUE(listener.has_value());
  std::vector<control::Listener> own;
  own.push_back(std::move(listener).value());
  auto engine = Engine::create(std::move(own), std::move(config), nullptr, std::move(fabric));
  EXPECT_TRUE(engine.has_value());
  return std::move(engine).value();
}

/// Thread safety: as its engines.
struct EnginePair {
  explicit EnginePair(const Way& way, std::string_view policy = "none",
                      std::string_view min_bytes = "16K")
      : network(way.is_network ? std::make_unique<loop::Fabric>(loop::Fabric::Options{}) : nullptr),
        send_address(fresh_address()),
        recv_address(fresh_address()),
        sender(make_engine(send_address, config_of(way, policy, min_bytes), fabric())),
        receiver(make_engine(recv_address, config_of(way, policy, min_bytes), fabric())) {}
  void expect_freed(SendRequest* send, RecvRequest* recv) const {
    EXPECT_TRUE(sender->free(send).ok());
    EXPECT_TRUE(receiver->free(recv).ok());
  }
  std::unique_ptr<net::Fabric> fabric() const { return network ? network->for_process() : nullptr; }

  std::unique_ptr<loop::Fabric> network;  ///< null: shared memory
  control::Address send_address, recv_address;
  std::unique_ptr<Engine> sender, receiver;
};

inline std::shared_ptr<const Typemap> bytes_type(std::uint64_t bytes = 1) {
  return std::make_shared<const Typemap>(Typemap::contiguous(bytes));
}

inline InitArgs args_of(control::Address peer, void* buffer, std::int32_t partitions,
                        std::uint64_t count, std::int32_t tag = 0,
                        std::shared_ptr<const Typemap> type = bytes_type()) {
  return {{1, 2}, 0, tag, std::move(peer), buffer, partitions, count, std::move(type), ""};
}

template <class Pointer>
Pointer made(Result<Pointer> result) {
  EXPECT_TRUE(result.has_value()) << errc_name(result.error().code());
  return result.has_value() ? result.value() : nullptr;
}

/// Poll until the round is over, and finish it.
inline Completion complete(Request& request) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  Completion completion = request.poll();
  while (completion == Completion::pending && std::chrono::steady_clock::now() < deadline) {
    ::sched_yield();
    completion = request.poll();
  }
  EXPECT_NE(completion, Completion::pending) << "no completion";
  if (completion != Completion::pending) request.finish();
  return completion;
}
inline void expect_complete(Request& send, Request& recv) {
  EXPECT_EQ(complete(recv), Completion::complete);
  EXPECT_EQ(complete(send), Completion::complete);
}

inline std::byte byte_of(std::uint64_t round, std::uint64_t index, std::uint64_t channel = 0) {
  return std::byte(1 + (index * 7 + round * 41 + channel * 19) % 251);
}
inline void fill(std::vector<std::byte>& buffer, std::uint64_t round, std::uint64_t channel = 0) {
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = byte_of(round, i, channel);
}
inline bool holds(const std::vector<std::byte>& buffer, std::uint64_t round,
                  std::uint64_t channel = 0) {
  for (std::size_t i = 0; i < buffer.size(); ++i)
    if (buffer[i] != byte_of(round, i, channel)) return false;
  return true;
}

/// One round of a pair in one thread.
inline void exchange(SendRequest& send, RecvRequest& recv, bool send_first) {
  if (send_first) {
    ASSERT_TRUE(send.start().ok());
  }
  ASSERT_TRUE(recv.start().ok());
  if (!send_first) {
    ASSERT_TRUE(send.start().ok());
  }
  EXPECT_EQ(send.poll(), Completion::pending);
  ASSERT_TRUE(send.pready(0, send.partitions()).ok());
  ASSERT_EQ(complete(recv), Completion::complete);
  ASSERT_EQ(complete(send), Completion::complete);
}

}  // namespace larklane::part
