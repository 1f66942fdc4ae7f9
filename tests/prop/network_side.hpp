#pragma once
// One process's channels over a network, without its helper and without sockets: the test says when
// a record arrives and when a lane is polled.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/loop/fabric.hpp"
#include "part/network/transport.hpp"
#include "scripted_peer.hpp"

namespace larklane::part {

/// One process.
struct Side {
  Side(std::unique_ptr<net::Fabric> fabric, vci::VciPool::Options lanes,
       const std::string& others_name, std::uint64_t silence_ns = 0)
      : other(others_name), state(std::make_shared<PeerState>()) {
    state->peer = &other;
    auto made = NetworkTransport::create(std::move(fabric), lanes, {counters}, silence_ns);
    EXPECT_TRUE(made.has_value());
    network = std::move(made).value();
  }
  /// With one lane.
  Side(std::unique_ptr<net::Fabric> fabric, const std::string& others_name)
      : Side(std::move(fabric), vci::VciPool::Options{}, others_name) {}
  /// The oldest record reaches the other process. @return there was one
  bool deliver_to(Side& to) {
    if (other.sent.empty()) return false;
    auto [kind, payload] = std::move(other.sent.front());
    other.sent.pop_front();
    to.network->on_record(to.state, {kind, payload, {}});
    return true;
  }
  std::uint32_t progress() { return network->lanes().progress_all(); }
  /// Of the first lane.
  vci::VciCounts counts() { return network->lanes().at(0).value()->counts(); }

  Counters counters;
  ScriptedPeer other;
  std::shared_ptr<PeerState> state;
  std::unique_ptr<NetworkTransport> network;
};

/// The value of a result that has to succeed.
template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.has_value()) << errc_name(result.error().code());
  return std::move(result).value();
}

/// Both rounds are over, and finished.
inline bool have_finished(Request& send, Request& receive) {
  for (Request* const request : {&send, &receive}) {
    if (request->poll() != Completion::complete) return false;
    request->finish();
  }
  return true;
}

inline InitArgs args_of(std::string peer, std::int32_t tag, std::vector<std::byte>& buffer,
                        std::int32_t partitions) {
  InitArgs a;
  a.context = {1, 2};
  a.tag = tag;
  a.peer = std::move(peer);
  a.buffer = buffer.data();
  a.partitions = partitions;
  a.count = buffer.size() / static_cast<std::uint64_t>(partitions);
  a.type = std::make_shared<const Typemap>(Typemap::contiguous(1));
  return a;
}

}  // namespace larklane::part
