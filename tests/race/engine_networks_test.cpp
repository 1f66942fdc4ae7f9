// An engine with several networks: each peer by its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_pair.hpp"
#include "net/fault/fault.hpp"

namespace larklane::part {
namespace {

std::unique_ptr<loop::Fabric> network_named(const char* name) {
  loop::Fabric::Options options;
  options.limits.provider = name;
  return std::make_unique<loop::Fabric>(std::move(options));
}

Result<std::unique_ptr<Engine>> create(const control::Address& address, OtherHosts others) {
  auto listener = control::Listener::bind(address);
  EXPECT_TRUE(listener.has_value());
  std::vector<control::Listener> own;
  own.push_back(std::move(listener).value());
  return Engine::create(std::move(own), config_of(kDirect), nullptr, nullptr, std::move(others));
}

std::string provider_of(const Engine& engine, const control::Address& peer) {
  const auto peers = engine.summary().peers;
  const auto found = std::find_if(peers.begin(), peers.end(),
                                  [&](const auto& line) { return line.address == peer; });
  return found == peers.end() ? "none" : found->provider;
}

/// One process in the middle, one on its first network, one on its second, one in shared memory.
class Networks : public testing::Test {
 protected:
  static constexpr std::int32_t kPartitions = 4;
  static constexpr std::size_t kBytes = 64 << 10;

  struct Peer {
    control::Address address = fresh_address();
    std::unique_ptr<Engine> engine;
    std::vector<std::byte> from = std::vector<std::byte>(kBytes), to = from;
    SendRequest* send = nullptr;     ///< of the middle
    RecvRequest* receive = nullptr;  ///< of the peer
    RecvRequest* back = nullptr;     ///< of the middle
    SendRequest* answer = nullptr;   ///< of the peer
    std::vector<std::byte> answer_from = from, answer_to = from;
  };

  void SetUp() override {
    peers_[0].engine = make_engine(peers_[0].address, config_of(kNetwork), first_->for_process());
    peers_[1].engine = make_engine(peers_[1].address, config_of(kNetwork), second_->for_process());
    peers_[2].engine = make_engine(peers_[2].address, config_of(kDirect));
    OtherHosts others{};
    others.fabrics.push_back(first_->for_process());
    others.fabrics.push_back(second_->for_process());
    others.fabric_of = {{peers_[1].address, 1}, {peers_[2].address, OtherHosts::kSharedMemory}};
    others.is_for_this_host = true;
    middle_ = made_engine(create(address_, std::move(others)));
  }
  static std::unique_ptr<Engine> made_engine(Result<std::unique_ptr<Engine>> engine) {
    EXPECT_TRUE(engine.has_value());
    return std::move(engine).value();
  }
  void open(Peer& peer) {
    peer.send = made(middle_->send_init(args_to(peer.address, peer.from)));
    peer.receive = made(peer.engine->recv_init(args_to(address_, peer.to)));
    peer.answer = made(peer.engine->send_init(args_to(address_, peer.answer_from)));
    peer.back = made(middle_->recv_init(args_to(peer.address, peer.answer_to)));
  }
  static InitArgs args_to(const control::Address& peer, std::vector<std::byte>& buffer) {
    return args_of(peer, buffer.data(), kPartitions, kBytes / kPartitions);
  }
  static void round(Peer& peer, std::uint64_t number, std::uint64_t channel) {
    fill(peer.from, number, channel);
    fill(peer.answer_from, number, channel + 100);
    for (Request* const one :
         {static_cast<Request*>(peer.send), static_cast<Request*>(peer.back),
          static_cast<Request*>(peer.receive), static_cast<Request*>(peer.answer)})
      ASSERT_TRUE(one->start().ok());
    ASSERT_TRUE(peer.send->pready(0, kPartitions).ok());
    ASSERT_TRUE(peer.answer->pready(0, kPartitions).ok());
    for (Request* const one :
         {static_cast<Request*>(peer.receive), static_cast<Request*>(peer.back),
          static_cast<Request*>(peer.send), static_cast<Request*>(peer.answer)})
      ASSERT_EQ(complete(*one), Completion::complete) << one->error_text();
    EXPECT_TRUE(holds(peer.to, number, channel));
    EXPECT_TRUE(holds(peer.answer_to, number, channel + 100));
  }
  void close(Peer& peer) {
    EXPECT_TRUE(middle_->free(peer.send).ok());
    EXPECT_TRUE(middle_->free(peer.back).ok());
    EXPECT_TRUE(peer.engine->free(peer.receive).ok());
    EXPECT_TRUE(peer.engine->free(peer.answer).ok());
  }

  std::unique_ptr<loop::Fabric> first_ = network_named("first"), second_ = network_named("second");
  control::Address address_ = fresh_address();
  Peer peers_[3];
  std::unique_ptr<Engine> middle_;
};

TEST_F(Networks, EachPeerGoesByItsOwn) {
  for (Peer& peer : peers_) open(peer);
  for (std::uint64_t number = 0; number < 20; ++number)
    for (std::uint64_t channel = 0; channel < 3; ++channel) round(peers_[channel], number, channel);
  EXPECT_EQ(provider_of(*middle_, peers_[0].address), "first");
  EXPECT_EQ(provider_of(*middle_, peers_[1].address), "second");
  EXPECT_EQ(provider_of(*middle_, peers_[2].address), "self");
  EXPECT_EQ(middle_->summary().sends, 3u);
  for (Peer& peer : peers_) close(peer);
  const Summary all = middle_->summary();
  EXPECT_EQ(all.send_rounds, 60u);
  EXPECT_EQ(all.receive_rounds, 60u);
}

TEST_F(Networks, APeerThatEndsHarmsNoPeerOnAnotherNetwork) {
  for (Peer& peer : peers_) open(peer);
  for (std::uint64_t channel = 0; channel < 3; ++channel) round(peers_[channel], 0, channel);
  EXPECT_TRUE(peers_[1].engine->free(peers_[1].receive).ok());
  EXPECT_TRUE(peers_[1].engine->free(peers_[1].answer).ok());
  peers_[1].engine.reset();
  for (std::uint64_t number = 1; number < 20; ++number)
    for (const std::uint64_t channel : {0u, 2u}) round(peers_[channel], number, channel);
  for (Request* const left :
       {static_cast<Request*>(peers_[1].send), static_cast<Request*>(peers_[1].back)}) {
    if (left->start().ok()) {
      EXPECT_EQ(complete(*left), Completion::failed);
    }
    EXPECT_EQ(left->error().code(), Errc::kPeerDown) << left->error_text();
    EXPECT_TRUE(middle_->free(left).ok());
  }
  close(peers_[0]);
  close(peers_[2]);
}

TEST(EngineNetworks, ANetworkThatCannotBeMadeIsAnError) {
  const auto first = network_named("first"), second = network_named("second");
  OtherHosts others{};
  others.fabrics.push_back(first->for_process());
  others.fabrics.push_back(std::make_unique<fault::Fabric>(
      second->for_process(),
      fault::Plan{.faults = {{fault::Call::open_endpoint, fault::What::refuse, 1, 1, 0,
                              Errc::kNoMemory}}}));
  auto engine = create(fresh_address(), std::move(others));
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), Errc::kNoMemory);
}

}  // namespace
}  // namespace larklane::part
