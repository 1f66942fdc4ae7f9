#pragma once
// Two endpoints of one fake device, connected.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../net_heard.hpp"
#include "device.hpp"
#include "net/verbs/device.hpp"
#include "net/verbs/endpoint.hpp"
#include "net/verbs/fabric.hpp"
#include "net/verbs/link.hpp"

namespace larklane::verbs {

/// The value of a result that has to succeed.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(errc_name(result.error().code()));
  return std::move(*result);
}

using net::Heard;
using net::Note;

/// Opened by start(), so that a test can change the device before.
class Pair : public testing::Test {
 public:
  void start() {
    std::string reason;
    auto opened = Fabric::open(wanted, &reason);
    ASSERT_TRUE(opened) << reason;
    fabric = std::move(*opened);
    for (std::size_t side = 0; side < 2; ++side) {
      auto endpoint = fabric->open_endpoint(heard[side]);
      ASSERT_TRUE(endpoint);
      endpoints[side] = std::move(*endpoint);
    }
    connect();
    auto registered = fabric->register_memory(target.data(), target.size());
    ASSERT_TRUE(registered);
    target_memory = std::move(*registered);
    registered = fabric->register_memory(source.data(), source.size());
    ASSERT_TRUE(registered);
    source_memory = std::move(*registered);
  }
  void connect() {
    for (std::size_t side = 0; side < 2; ++side) {
      auto link = endpoints[side]->open_link();
      ASSERT_TRUE(link);
      links[side] = std::move(*link);
    }
    for (std::size_t side = 0; side < 2; ++side) {
      ASSERT_TRUE(links[side]->connect(links[1 - side]->offer()).ok());
    }
  }

  net::Transfer transfer(std::uint64_t bytes) {
    return {source.data(), source_memory.get(), target_memory->remote(), bytes};
  }
  Result<net::Post> write(net::Operation& operation) {
    return links[0]->write(transfer(16), operation);
  }
  const Counters& counters(std::size_t side = 0) {
    return static_cast<Endpoint&>(*endpoints[side]).counters();
  }
  /// All that can happen does.
  void settle(std::size_t side = 0) {
    for (int turn = 0; turn < 100; ++turn) {
      const std::uint32_t moved = device.run();
      auto served = endpoints[side]->poll(64);
      if (!served || (moved == 0 && *served == 0)) return;
    }
    FAIL() << "no end";
  }
  FakeQueuePair& queue(std::size_t side, bool reads = false) {
    // In the order in which they were made: two of the probe are gone, then writes, reads, writes,
    // reads.
    auto at = device.pairs.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(2 * side + (reads ? 1 : 0)));
    return *at->second;
  }

  FakeDevice device;
  net::FabricOptions wanted;
  std::unique_ptr<net::Fabric> fabric;
  std::array<Heard, 2> heard;
  std::array<std::unique_ptr<net::Endpoint>, 2> endpoints;
  std::array<std::byte, 256> source{};
  std::array<std::byte, 256> target{};
  std::unique_ptr<net::Memory> target_memory;
  std::unique_ptr<net::Memory> source_memory;
  std::array<std::unique_ptr<net::Link>, 2> links;
};

}  // namespace larklane::verbs
