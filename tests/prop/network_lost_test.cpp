// A link that is lost: the keys of its channels' buffers go with it, before the requests are freed.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "net/loop/fabric.hpp"
#include "net/registry.hpp"
#include "network_side.hpp"

namespace larklane::part {
namespace {

class Deaf final : public net::Receiver {
  void on_immediate(std::uint32_t) override {}
};

struct LoopWorld {
  static loop::Fabric::Options options() {
    loop::Fabric::Options o;
    o.turns_per_poll = 0;
    return o;
  }
  void settle() {
    for (int turn = 0; turn < 20; ++turn) {
      (void)wire.settle();
      for (Side& side : sides) side.progress();
      (void)sides[0].deliver_to(sides[1]);
      (void)sides[1].deliver_to(sides[0]);
    }
  }
  loop::Fabric wire{options()};
  Side sides[2] = {{wire.for_process(), "receiver"}, {wire.for_process(), "sender"}};
};

/// The keys of the buffers that pass in records.
std::vector<net::RemoteMemory> keys_in(const Side& side) {
  std::vector<net::RemoteMemory> keys;
  for (const auto& [kind, payload] : side.other.sent) {
    if (record::NetInit init;
        kind == static_cast<std::uint16_t>(record::NetType::init) && record::read(payload, init))
      keys.push_back(init.data);
    if (record::NetAccept accept; kind == static_cast<std::uint16_t>(record::NetType::accept) &&
                                  record::read(payload, accept))
      keys.push_back(accept.data);
  }
  return keys;
}

/// The status of a read of `there`, over a link of its own.
Status read_from(net::Fabric& from, net::Fabric& to, net::RemoteMemory there) {
  Deaf deaf;
  auto here = must(from.open_endpoint(deaf)), other = must(to.open_endpoint(deaf));
  auto link = must(here->open_link()), back = must(other->open_link());
  EXPECT_TRUE(link->connect(back->offer()).ok() && back->connect(link->offer()).ok());
  struct Note : net::Operation {
    bool is_over = false;
    Status status;
  } note;
  note.complete = [](net::Operation& operation, Status status) {
    static_cast<Note&>(operation).is_over = true;
    static_cast<Note&>(operation).status = status;
  };
  const auto turn = [&] { EXPECT_TRUE(here->poll(16).has_value() && other->poll(16).has_value()); };
  std::uint64_t word = 0;
  // A read; its answer shows whether the key exists.
  auto memory = must(from.register_memory(&word, sizeof word));
  const net::Transfer transfer{reinterpret_cast<std::byte*>(&word), memory.get(), there,
                               sizeof word};
  Result<net::Post> posted = net::Post::retry;
  for (int i = 0; i < 1'000'000 && posted && *posted == net::Post::retry; ++i) {
    turn();
    posted = link->read(transfer, note);
  }
  if (!posted) return posted.error();
  for (int i = 0; i < 1'000'000 && !note.is_over; ++i) turn();
  EXPECT_TRUE(note.is_over);
  return note.status;
}

void break_connections() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int number = std::stoi(entry.path().filename());
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    if (::getpeername(number, reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
        name.ss_family == AF_INET)
      ::shutdown(number, SHUT_RDWR);
  }
}

class NetworkLostOverTcp : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Link, NetworkLostOverTcp, testing::Bool(), [](const auto& is_told) {
  return is_told.param ? "AsThePeerSays" : "AsItsConnectionEnds";
});

void tell_of_loss(Side& side) {
  const record::NetReady ready{static_cast<std::int32_t>(Errc::kUnreachable), 0, 0, 0};
  side.network->on_record(side.state, {static_cast<std::uint16_t>(record::NetType::ready),
                                       std::as_bytes(std::span(&ready, 1)),
                                       {}});
}

/// Two channels over tcp, and the keys of their buffers as the records state them.
struct LostWorld {
  static constexpr std::int32_t kPartitions = 2;

  LostWorld(std::unique_ptr<net::Fabric> mine, std::unique_ptr<net::Fabric> others)
      : fabrics{mine.get(), others.get()},
        sides{{std::move(mine), "receiver"}, {std::move(others), "sender"}} {}
  void settle() {
    for (int turn = 0; turn < 100; ++turn) {
      for (int s = 0; s < 2; ++s) {
        for (const net::RemoteMemory& key : keys_in(sides[s]))
          if (std::ranges::find(keys[s], key.key, &net::RemoteMemory::key) == keys[s].end())
            keys[s].push_back(key);
        (void)sides[s].deliver_to(sides[1 - s]);
      }
      for (Side& side : sides) side.progress();
    }
  }
  void init(int n) {
    sends[n] = must(sides[0].network->send_init(args_of("receiver", n, from[n], kPartitions),
                                                sides[0].state, {0, 1}));
    receives[n] =
        must(sides[1].network->recv_init(args_of("sender", n, to[n], kPartitions), sides[1].state));
  }
  /// @return the outcome of a round
  Completion end(int n) {
    for (int turn = 0; turn < 1000 && (sends[n]->poll() == Completion::pending ||
                                       receives[n]->poll() == Completion::pending);
         ++turn)
      settle();
    const Completion sent = sends[n]->poll(), received = receives[n]->poll();
    EXPECT_EQ(sent, received) << sends[n]->error_text() << receives[n]->error_text();
    sends[n]->finish();
    receives[n]->finish();
    return sent;
  }
  void expect_keys(bool are_good) {
    for (int s = 0; s < 2; ++s) {
      EXPECT_EQ(keys[s].size(), 2U);
      for (const net::RemoteMemory& key : keys[s])
        EXPECT_EQ(read_from(*fabrics[1 - s], *fabrics[s], key).ok(), are_good) << "side " << s;
    }
  }

  net::Fabric* const fabrics[2];
  Side sides[2];
  std::vector<net::RemoteMemory> keys[2];  // of each side's buffers
  std::vector<std::byte> from[2] = {std::vector<std::byte>(128), std::vector<std::byte>(128)};
  std::vector<std::byte> to[2] = {std::vector<std::byte>(128), std::vector<std::byte>(128)};
  SendRequest* sends[2] = {};
  RecvRequest* receives[2] = {};
};

/// Null: there is no such network.
std::unique_ptr<LostWorld> world_over_tcp(std::string* reason) {
  auto mine = net::open_fabric("ofi", {"tcp@lo"}, reason, LARKLANE_MODULES);
  auto others = net::open_fabric("ofi", {"tcp@lo"}, reason, LARKLANE_MODULES);
  if (!mine || !others) return nullptr;
  set_log_sink([](LogLevel, std::string_view message) {
    EXPECT_NE(message.find("no link"), std::string_view::npos) << message;
  });
  return std::make_unique<LostWorld>(std::move(mine).value(), std::move(others).value());
}

/// Of an idle channel, and of one with a round open.
TEST_P(NetworkLostOverTcp, KeysAreGoneBeforeRequestsAreFreed) {
  std::string reason;
  const auto opened = world_over_tcp(&reason);
  if (opened == nullptr) GTEST_SKIP() << reason;
  LostWorld& world = *opened;
  for (int n = 0; n < 2; ++n) {
    world.init(n);
    ASSERT_TRUE(world.sends[n]->start().ok() && world.receives[n]->start().ok());
    ASSERT_TRUE(world.sends[n]->pready(0, LostWorld::kPartitions).ok());
    ASSERT_EQ(world.end(n), Completion::complete);
  }
  ASSERT_TRUE(world.sends[1]->start().ok() && world.receives[1]->start().ok());
  world.settle();
  world.expect_keys(true);
  if (GetParam())
    for (Side& side : world.sides) tell_of_loss(side);
  else
    break_connections();
  world.settle();
  (void)world.sends[1]->pready(0, LostWorld::kPartitions);
  EXPECT_EQ(world.end(1), Completion::failed);
  world.settle();
  world.expect_keys(false);
  for (int n = 0; n < 2; ++n)
    EXPECT_TRUE(world.sides[0].network->free(world.sends[n]).ok() &&
                world.sides[1].network->free(world.receives[n]).ok());
  world.settle();
  for (Side& side : world.sides) side.network.reset();
  set_log_sink({});
}

/// The link of a receive is lost before the sender's INIT names it.
TEST(NetworkLost, AReceiveMatchedOverALostLinkGivesItsKeyBack) {
  std::string reason;
  const auto opened = world_over_tcp(&reason);
  if (opened == nullptr) GTEST_SKIP() << reason;
  LostWorld& world = *opened;
  world.receives[0] = must(world.sides[1].network->recv_init(args_of("sender", 0, world.to[0], 2),
                                                             world.sides[1].state));
  world.settle();  // the link is ready
  world.sends[0] = must(world.sides[0].network->send_init(args_of("receiver", 0, world.from[0], 2),
                                                          world.sides[0].state, {0, 1}));
  tell_of_loss(world.sides[1]);
  world.settle();
  ASSERT_EQ(world.keys[1].size(), 1u) << "the receive has been matched";
  EXPECT_FALSE(read_from(*world.fabrics[0], *world.fabrics[1], world.keys[1][0]).ok());
  EXPECT_TRUE(world.sides[0].network->free(world.sends[0]).ok() &&
              world.sides[1].network->free(world.receives[0]).ok());
  world.settle();
  for (Side& side : world.sides) side.network.reset();
  set_log_sink({});
}

/// Where a peer may still use a link that is lost on this side, a channel's memory stays until the
/// peer has confirmed that nothing of it moves.
TEST(NetworkLost, ALostLinkGivesMemoryBackOnceThePeerIsQuiet) {
  set_log_sink([](LogLevel, std::string_view message) {
    EXPECT_NE(message.find("no link"), std::string_view::npos) << message;
  });
  LoopWorld world;
  std::vector<std::byte> from(512), to(512);
  SendRequest* const send = must(world.sides[0].network->send_init(args_of("receiver", 1, from, 8),
                                                                   world.sides[0].state, {0, 4}));
  RecvRequest* const receive =
      must(world.sides[1].network->recv_init(args_of("sender", 1, to, 8), world.sides[1].state));
  world.settle();
  ASSERT_TRUE(send->start().ok() && receive->start().ok());
  ASSERT_TRUE(send->pready(0, 4).ok());
  EXPECT_EQ(world.wire.registrations_count(), 4u) << "the words of both sides, and the buffers";
  tell_of_loss(world.sides[1]);
  tell_of_loss(world.sides[0]);
  for (int turn = 0; turn < 100 && (send->poll() == Completion::pending ||
                                    receive->poll() == Completion::pending);
       ++turn)
    world.settle();
  EXPECT_EQ(send->poll(), Completion::failed);
  EXPECT_EQ(receive->poll(), Completion::failed);
  world.settle();
  EXPECT_EQ(world.wire.registrations_count(), 2u);
  send->finish();
  receive->finish();
  EXPECT_TRUE(world.sides[0].network->free(send).ok());
  EXPECT_TRUE(world.sides[1].network->free(receive).ok());
  world.settle();
  for (Side& side : world.sides) side.network.reset();
  EXPECT_TRUE(world.wire.take_violations().empty());
  set_log_sink({});
}

}  // namespace
}  // namespace larklane::part
