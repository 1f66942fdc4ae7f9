// Refusals of a network, between two engines: every wait ends, on both sides.

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "engine_pair.hpp"
#include "net/fault/fault.hpp"

namespace larklane::part {
namespace {

/// Two engines; `is_sender`'s network has the faults of `plan`.
class Refusing {
 public:
  Refusing(const Way& way, bool is_sender, fault::Plan plan) : network_(loop::Fabric::Options{}) {
    set_log_level(LogLevel::error);  // the test provokes the warnings
    auto broken = std::make_unique<fault::Fabric>(network_.for_process(), std::move(plan));
    std::unique_ptr<net::Fabric> whole = network_.for_process();
    sender =
        make_engine(send_address, config_of(way), is_sender ? std::move(broken) : std::move(whole));
    receiver =
        make_engine(recv_address, config_of(way), is_sender ? std::move(whole) : std::move(broken));
  }
  ~Refusing() {
    sender.reset();
    receiver.reset();
    set_log_level(LogLevel::warn);
    (void)network_.take_violations();  // a network that dies leaves operations posted
  }

 private:
  loop::Fabric network_;

 public:
  control::Address send_address = fresh_address(), recv_address = fresh_address();
  std::unique_ptr<Engine> sender, receiver;
};

/// A round of a pair on it: each half that could be made fails, or could not be made.
void expect_both_to_fail(const Way& way, bool is_sender, fault::Fault fault) {
  Refusing pair(way, is_sender, {.faults = {fault}});
  std::vector<std::byte> from(4096), to(4096);
  auto recv = pair.receiver->recv_init(args_of(pair.send_address, to.data(), 4, 1024));
  auto send = pair.sender->send_init(args_of(pair.recv_address, from.data(), 4, 1024));
  const auto fails = [](Engine& engine, auto& made, auto&& begin) {
    if (!made) return;
    const Status started = (*made)->start();
    if (started.ok()) {
      begin();
      EXPECT_EQ(complete(**made), Completion::failed);
    }
    EXPECT_FALSE((*made)->error().ok());
    EXPECT_NE((*made)->error_text(), "");
    EXPECT_TRUE(engine.free(*made).ok());
  };
  fails(*pair.receiver, recv, [] {});
  fails(*pair.sender, send, [&] { EXPECT_TRUE((*send)->pready(0, 4).ok()); });
}

class NetworkFault : public testing::TestWithParam<Way> {};

std::string lanes_name(const testing::TestParamInfo<Way>& way) { return way.param.name; }
INSTANTIATE_TEST_SUITE_P(Lanes, NetworkFault, testing::Values(kNetwork, kTwoLanes, kFourLanes),
                         lanes_name);

TEST_P(NetworkFault, ALinkThatIsRefusedFailsBothSides) {
  for (const bool is_sender : {false, true}) {
    SCOPED_TRACE(is_sender ? "at the sender" : "at the receiver");
    expect_both_to_fail(GetParam(), is_sender, {fault::Call::connect, fault::What::refuse, 1});
    expect_both_to_fail(GetParam(), is_sender,
                        {fault::Call::open_link, fault::What::refuse, 1, 1000});
  }
}

TEST_P(NetworkFault, AReceiveFailsWhenItsDeviceIsLost) {
  Refusing pair(GetParam(), false, {.faults = {{fault::Call::poll, fault::What::refuse, 3}}});
  std::vector<std::byte> to(4096);
  RecvRequest* recv =
      made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), 4, 1024)));
  ASSERT_TRUE(recv->start().ok());
  EXPECT_EQ(complete(*recv), Completion::failed);
  EXPECT_EQ(recv->error().code(), Errc::kUnreachable);
  EXPECT_TRUE(pair.receiver->free(recv).ok());
}

/// A round of 4 KiB. @return how both halves ended
std::pair<Completion, Completion> exchange(Refusing& pair, std::int32_t tag) {
  std::vector<std::byte> from(4096), to(4096);
  RecvRequest* recv =
      made(pair.receiver->recv_init(args_of(pair.send_address, to.data(), 4, 1024, tag)));
  SendRequest* send =
      made(pair.sender->send_init(args_of(pair.recv_address, from.data(), 4, 1024, tag)));
  fill(from, 1);
  EXPECT_TRUE(recv->start().ok() && send->start().ok() && send->pready(0, 4).ok());
  const std::pair ends{complete(*send), complete(*recv)};
  EXPECT_TRUE(ends.second == Completion::failed || holds(to, 1));
  EXPECT_TRUE(pair.sender->free(send).ok() && pair.receiver->free(recv).ok());
  return ends;
}

constexpr std::pair kBothComplete{Completion::complete, Completion::complete};

// A process does without the further lanes that it can't have.
TEST_P(NetworkFault, WithoutFurtherLanesAllGoesThroughTheFirst) {
  for (const bool is_sender : {false, true}) {
    Refusing pair(GetParam(), is_sender,
                  {.faults = {{fault::Call::open_endpoint, fault::What::refuse, 2, 1000}}});
    for (std::int32_t tag = 0; tag < 3; ++tag) EXPECT_EQ(exchange(pair, tag), kBothComplete);
  }
}

}  // namespace
}  // namespace larklane::part
