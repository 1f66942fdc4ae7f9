// Transport over shared memory: receives that no INIT matches yet.

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "part/shared/transport.hpp"
#include "prop/scripted_peer.hpp"

namespace larklane::part {
namespace {

struct Side {
  Side() : state(std::make_shared<PeerState>()) {
    state->peer = &other;
    state->transport = &transport;
    transport.on_new_peer(*state);
  }
  Result<RecvRequest*> receive(IfUnmatched if_unmatched) {
    const InitArgs args{{1, 2}, 0, 3, "sender", buffer.data(), 4, 16, type, ""};
    return transport.make_receive(args, state, if_unmatched);
  }
  std::uint64_t channels() const { return counters.receives.load(std::memory_order_relaxed); }

  const Config config{};
  Counters counters;
  ProgramSteps steps;
  SharedTransport transport{config, nullptr, {counters}, steps};
  ScriptedPeer other{"sender"};
  std::shared_ptr<PeerState> state;
  std::vector<std::byte> buffer = std::vector<std::byte>(64);
  std::shared_ptr<const Typemap> type = std::make_shared<const Typemap>(Typemap::contiguous(1));
};

TEST(Transport, AReceiveThatDoesNotWaitForAnInitIsNotMade) {
  Side side;
  auto made = side.receive(IfUnmatched::none);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(*made, nullptr);
  EXPECT_EQ(side.channels(), 0u);
}

TEST(Transport, ThePeersEndLeavesAnUnmatchedReceiveUnmade) {
  Side side;
  side.state->down.store(true, std::memory_order_release);  // pairs with peer_is_down()
  auto sought = side.receive(IfUnmatched::none);
  ASSERT_TRUE(sought.has_value());
  EXPECT_EQ(*sought, nullptr);
  EXPECT_EQ(side.receive(IfUnmatched::wait).error().code(), Errc::kPeerDown);
}

TEST(Transport, AReceiveThatWaitsFailsOnceThePeerIsDown) {
  Side side;
  auto made = side.receive(IfUnmatched::wait);
  ASSERT_TRUE(made.has_value());
  ASSERT_TRUE((*made)->start().ok());
  EXPECT_EQ((*made)->poll(), Completion::pending);
  side.state->down.store(true, std::memory_order_release);  // pairs with peer_is_down()
  side.transport.on_down(*side.state);
  EXPECT_EQ((*made)->poll(), Completion::failed);
  EXPECT_EQ((*made)->error().code(), Errc::kPeerDown);
  (*made)->finish();
  EXPECT_TRUE(side.transport.free(*made).ok());
  EXPECT_EQ(side.transport.free(*made).code(), Errc::kInvalidArgument);
}

}  // namespace
}  // namespace larklane::part
