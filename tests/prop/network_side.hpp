#pragma once
// One process's channels over a network, without its helper and without sockets: the test says when
// a record arrives and when a lane is polled.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/loop/fabric.hpp"
#include "part/network.hpp"

namespace larklane::part {

/// The other process as one process sees it: records keep their order, and come when they come.
class ScriptedPeer final : public control::Peer {
 public:
  explicit ScriptedPeer(std::string name) : name_(std::move(name)) {}
  const control::Address& address() const noexcept override { return name_; }
  pid_t pid() const noexcept override { return 0; }
  bool same_process() const noexcept override { return false; }
  bool is_remote() const noexcept override { return false; }
  bool is_down() const noexcept override { return is_dead; }
  std::string down_reason() override { return {}; }
  bool has_ended() override { return has_been_ended; }
  Status send(std::uint16_t kind, std::span<const std::byte> payload,
              std::span<const int>) override {
    sent.emplace_back(kind, std::vector(payload.begin(), payload.end()));
    return {};
  }
  std::deque<std::pair<std::uint16_t, std::vector<std::byte>>> sent;
  bool is_dead = false, has_been_ended = false;

 private:
  const control::Address name_;
};

/// One process.
struct Side {
  Side(std::unique_ptr<net::Fabric> fabric, vci::VciPool::Options lanes,
       const std::string& others_name)
      : other(others_name), state(std::make_shared<PeerState>()) {
    state->peer = &other;
    auto made = Network::create(std::move(fabric), lanes, counters);
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
  std::unique_ptr<Network> network;
};

/// What has to succeed.
template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.has_value()) << errc_name(result.error().code());
  return std::move(result).value();
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
