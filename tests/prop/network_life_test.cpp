// Channels come and go for days: their resources while they exist, and that nothing is left when
// both sides have freed them. Heap, registrations, descriptors, slots.

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "base/sanitized.hpp"
#include "net/loop/fabric.hpp"
#include "net/registry.hpp"
#include "network_side.hpp"
#include "part/policy/registry.hpp"
#include "scripted_plane.hpp"

namespace {
std::atomic<std::int64_t> heap_bytes{0};  // relaxed: statistics
}

#ifndef LARKLANE_SANITIZED  // sanitizers count leaks by themselves
namespace {
void* counted(void* memory) {
  if (memory == nullptr) std::abort();
  heap_bytes.fetch_add(static_cast<std::int64_t>(::malloc_usable_size(memory)),
                       std::memory_order_relaxed);
  return memory;
}
void release(void* memory) noexcept {
  if (memory != nullptr)
    heap_bytes.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(memory)),
                         std::memory_order_relaxed);
  std::free(memory);
}
}  // namespace
void* operator new(std::size_t bytes) { return counted(std::malloc(bytes)); }
void* operator new[](std::size_t bytes) { return counted(std::malloc(bytes)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(std::malloc(bytes));
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(std::malloc(bytes));
}
void* operator new(std::size_t bytes, std::align_val_t to) {
  const auto align = static_cast<std::size_t>(to);
  return counted(std::aligned_alloc(align, (bytes + align - 1) / align * align));
}
void* operator new[](std::size_t bytes, std::align_val_t to) { return operator new(bytes, to); }
void* operator new[](std::size_t bytes, std::align_val_t to, const std::nothrow_t&) noexcept {
  return operator new(bytes, to);
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
#endif

namespace larklane::part {
namespace {

std::int64_t heap() { return heap_bytes.load(std::memory_order_relaxed); }
std::size_t descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

constexpr std::uint32_t kImmediatesMax = 1u << 20;

struct World {
  explicit World(bool has_channel_links = false) : wire(options(has_channel_links)) {}
  static loop::Fabric::Options options(bool has_channel_links = false) {
    loop::Fabric::Options o;
    o.turns_per_poll = 0;
    o.limits.immediates_max = kImmediatesMax;
    if (has_channel_links) o.limits.channel_partitions_max = 65535;
    return o;
  }
  void settle() {
    for (int idle = 0; idle < 2;) {
      bool moved = wire.settle() != 0;
      for (Side& side : sides) moved |= side.progress() != 0;
      moved |= sides[0].deliver_to(sides[1]);
      moved |= deliver_back();
      idle = moved ? 0 : idle + 1;
    }
  }
  bool deliver_back() {
    auto& sent = sides[1].other.sent;
    if (record::NetAccept accept;
        !sent.empty() &&
        sent.front().first == static_cast<std::uint16_t>(record::NetType::accept) &&
        record::read(sent.front().second, accept))
      slot_most = std::max(slot_most, accept.slot);
    return sides[1].deliver_to(sides[0]);
  }
  void end() {
    for (Side& side : sides) side.network.reset();
    for (const loop::Violation& violation : wire.take_violations())
      ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
  }

  loop::Fabric wire;
  Side sides[2] = {{wire.for_process(), "receiver"}, {wire.for_process(), "sender"}};
  std::uint32_t slot_most = 0;
};

/// Both inits, perhaps a round, both frees, in either order.
template <class Settle>
void cycle(Side (&sides)[2], int number, std::vector<std::byte>& from, std::vector<std::byte>& to,
           Settle&& settle) {
  constexpr std::int32_t kPartitions = 8;
  RecvRequest* receive = nullptr;
  const auto init_receive = [&] {
    receive =
        must(sides[1].network->recv_init(args_of("sender", 1, to, kPartitions), sides[1].state));
  };
  if (number % 2 == 0) init_receive();
  SendRequest* const send =
      must(sides[0].network->send_init(args_of("receiver", 1, from, kPartitions), sides[0].state,
                                       {0, 4}, {.has_planner = true, .is_on_demand = true}));
  if (number % 2 != 0) {
    if (number % 4 == 1) settle();
    init_receive();
  }
  if (number % 10 < 3) {
    if (number % 3 != 0) settle();
    std::fill(from.begin(), from.end(), static_cast<std::byte>(number));
    ASSERT_TRUE(send->start().ok() && receive->start().ok());
    for (int asked = 0; asked < number % 8; ++asked) {  // from the third time on it demands
      bool arrived = false;
      ASSERT_TRUE(receive->parrived(asked, &arrived).ok());
      if (number % 3 == 0) settle();
    }
    ASSERT_TRUE(send->pready(0, kPartitions).ok());
    for (int turn = 0; turn < 100'000 && (send->poll() == Completion::pending ||
                                          receive->poll() == Completion::pending);
         ++turn)
      settle();
    ASSERT_TRUE(have_finished(*send, *receive));
    ASSERT_EQ(from, to);
  }
  const auto free_send = [&] { ASSERT_TRUE(sides[0].network->free(send).ok()); };
  if (number % 7 < 3) free_send();
  if (number % 5 == 0) settle();
  ASSERT_TRUE(sides[1].network->free(receive).ok());
  if (number % 7 >= 3) free_send();
  settle();
}

/// @param has_channel_links  each channel has a link of its own
class NetworkLifeCycles : public testing::TestWithParam<bool> {};

TEST_P(NetworkLifeCycles, TenThousandLeaveNothing) {
  std::vector<std::byte> from(512), to(512);
  const std::size_t descriptors_before = descriptors();
  World world(GetParam());
  std::int64_t heap_early = 0;
  std::size_t descriptors_early = 0;
  const auto settle = [&] { world.settle(); };
  for (int number = 0; number < 10'000 && !testing::Test::HasFatalFailure(); ++number) {
    if (number == 1000) {
      EXPECT_EQ(world.wire.registrations_count(), 2u) << "the words of both sides";
      heap_early = heap();
      descriptors_early = descriptors();
    }
    cycle(world.sides, number, from, to, settle);
  }
  EXPECT_LE(heap(), heap_early + 4096) << "in 9,000 cycles";
  EXPECT_EQ(world.wire.registrations_count(), 2u);
  EXPECT_EQ(descriptors(), descriptors_early);
  EXPECT_LE(world.slot_most, 2u) << "slots are used again";
  for (Side& side : world.sides)
    EXPECT_TRUE(side.network->lanes().at(0).value()->reserve_immediates(kImmediatesMax).ok())
        << "receives are still reserved";
  world.end();
  EXPECT_EQ(world.wire.registrations_count(), 0u);
  EXPECT_EQ(descriptors(), descriptors_before);
}
INSTANTIATE_TEST_SUITE_P(Links, NetworkLifeCycles, testing::Bool());

/// The memory of a channel of `partitions` on its two sides.
struct ChannelBytes {
  std::int64_t sender, receiver;
};
ChannelBytes bytes_of_a_channel(std::int32_t partitions, GroupRules rules) {
  ScriptedPlane plane;
  const PlanSource plans{must(make_policy("learned", {.min_bytes = 16 << 10})), &plane};
  constexpr std::int32_t kChannels = 1000;
  World world;
  std::vector<std::byte> from(static_cast<std::size_t>(partitions)), to(from.size());
  std::vector<SendRequest*> sends;
  std::vector<RecvRequest*> receives;
  const auto own = [&](std::int32_t tag) {
    sends.push_back(must(world.sides[0].network->send_init(
        args_of("receiver", tag, from, partitions), world.sides[0].state, {0}, rules, plans)));
    world.settle();
  };
  const auto others = [&](std::int32_t tag) {
    receives.push_back(must(world.sides[1].network->recv_init(
        args_of("sender", tag, to, partitions), world.sides[1].state)));
    world.settle();
  };
  sends.reserve(kChannels + 1);
  receives.reserve(kChannels + 1);
  own(0);
  others(0);
  std::int64_t sender = 0, receiver = 0;
  for (std::int32_t tag = 1; tag <= kChannels; ++tag) {
    const std::int64_t before = heap();
    own(tag);
    const std::int64_t between = heap();
    others(tag);
    sender += between - before;
    receiver += heap() - between;
  }
  for (std::size_t n = 0; n < sends.size(); ++n)
    EXPECT_TRUE(world.sides[0].network->free(sends[n]).ok() &&
                world.sides[1].network->free(receives[n]).ok());
  world.settle();
  world.end();
  return {sender / kChannels, receiver / kChannels};
}

// docs/design/memory_model.md states these.
TEST(NetworkLife, MemoryOfAChannelIsBounded) {
#ifdef LARKLANE_SANITIZED
  GTEST_SKIP() << "the sanitizers have a heap of their own";
#endif
  for (const std::int32_t partitions : {1, 8, 32, 256}) {
    const ChannelBytes bytes = bytes_of_a_channel(partitions, {});
    std::printf("a channel of %d partitions: sender %lld B, receiver %lld B\n", partitions,
                static_cast<long long>(bytes.sender), static_cast<long long>(bytes.receiver));
    EXPECT_LE(bytes.sender, 4096 + 320 * partitions);
    EXPECT_LE(bytes.receiver, 4096 + 512 * partitions);
    const ChannelBytes learned =
        bytes_of_a_channel(partitions, {.has_planner = true, .is_on_demand = true});
    std::printf("learned: sender %lld B, receiver %lld B\n", static_cast<long long>(learned.sender),
                static_cast<long long>(learned.receiver));
    EXPECT_LE(learned.sender, 8192 + 640 * partitions);
    EXPECT_LE(learned.receiver, 5120 + 520 * partitions);
  }
}

class Deaf final : public net::Receiver {
  void on_immediate(std::uint32_t) override {}
};

TEST(NetworkLife, SixtyFourLanes) {
  const std::size_t descriptors_before = descriptors();
  loop::Fabric wire(World::options());
  Deaf deaf;
  const std::int64_t before = heap();
  {
    std::vector<std::unique_ptr<vci::Vci>> lanes;
    for (int n = 0; n < 64; ++n) {
      auto lane = vci::Vci::create(wire, deaf);
      ASSERT_TRUE(lane.has_value());
      lanes.push_back(std::move(lane).value());
      (void)lanes.back()->progress();
    }
    EXPECT_LE((heap() - before) / 64, 16 * 1024) << "of a lane";
  }
  EXPECT_LE(heap(), before + 4096);
  EXPECT_EQ(descriptors(), descriptors_before);
}

/// A network of this machine's.
struct Real {
  const char* provider;
  net::FabricOptions options;
  int cycles;
  bool keeps_some;  ///< heap and descriptors of earlier use
};

/// The kernel's count of a device's queue pairs, registrations and the like.
std::string rdma_objects(const Real& real) {
  if (std::string(real.provider) != "verbs") return "none";
  std::string text;
  FILE* const out = ::popen("rdma resource show 2>/dev/null", "r");
  if (out == nullptr) return text;
  for (int c = std::fgetc(out); c != EOF; c = std::fgetc(out)) text += static_cast<char>(c);
  ::pclose(out);
  return text;
}

class NetworkLifeOver : public testing::TestWithParam<Real> {
 protected:
  /// @return none: there is no such device here, and the test is skipped
  std::unique_ptr<net::Fabric> open() {
    auto fabric =
        net::open_fabric(GetParam().provider, GetParam().options, &reason, LARKLANE_MODULES);
    return fabric ? std::move(fabric).value() : nullptr;
  }
  static void settle(Side (&sides)[2]) {
    while (sides[0].deliver_to(sides[1]) || sides[1].deliver_to(sides[0])) {
    }
    for (int turn = 0; turn < 3; ++turn)
      for (Side& side : sides) side.progress();
  }
  /// All is over: late arrivals reach no request.
  static void end(Side (&sides)[2]) {
    for (int turn = 0; turn < 1000; ++turn) settle(sides);
    for (Side& side : sides) side.network->settle();
  }

  std::string reason;
};

TEST_P(NetworkLifeOver, CyclesLeaveNothing) {
  const std::string objects_before = rdma_objects(GetParam());
  const std::size_t descriptors_before = descriptors();
  auto mine = open(), others = open();
  if (!mine || !others) GTEST_SKIP() << reason;
  {
    Side sides[2] = {{std::move(mine), "receiver"}, {std::move(others), "sender"}};
    std::vector<std::byte> from(512), to(512);
    std::size_t descriptors_early = 0;
    [[maybe_unused]] std::size_t heap_early = 0;
    std::string objects_early;
    const int early = GetParam().cycles / 5;
    for (int number = 0; number < GetParam().cycles && !HasFatalFailure(); ++number) {
      if (number == early) {
        objects_early = rdma_objects(GetParam());
        descriptors_early = descriptors();
        heap_early = ::mallinfo2().uordblks;
      }
      cycle(sides, number, from, to, [&] { settle(sides); });
    }
    end(sides);
    EXPECT_EQ(descriptors(), descriptors_early);
    EXPECT_NE(objects_early, "") << "`rdma resource show` says nothing";
    EXPECT_EQ(rdma_objects(GetParam()), objects_early);
#ifndef LARKLANE_SANITIZED
    EXPECT_LE(::mallinfo2().uordblks, heap_early + 64 * 1024);
#endif
    for (Side& side : sides) side.network.reset();
  }
  if (GetParam().keeps_some) return;
  EXPECT_EQ(descriptors(), descriptors_before);
  EXPECT_EQ(rdma_objects(GetParam()), objects_before);
}

TEST_P(NetworkLifeOver, SixtyFourLanesCarryAChannelEach) {
  constexpr std::int32_t kLanes = 64, kPartitions = 2;
  auto mine = open(), others = open();
  if (!mine || !others) GTEST_SKIP() << reason;
  const vci::VciPool::Options lanes{kLanes, vci::Mapping::spread, 1'000'000};
  Side sides[2] = {{std::move(mine), lanes, "receiver"}, {std::move(others), lanes, "sender"}};
  std::vector<std::vector<std::byte>> from(kLanes, std::vector<std::byte>(128)), to = from;
  std::vector<SendRequest*> sends;
  std::vector<RecvRequest*> receives;
  for (std::int32_t n = 0; n < kLanes; ++n) {
    const auto place = static_cast<std::size_t>(n);
    sends.push_back(must(sides[0].network->send_init(
        args_of("receiver", n, from[place], kPartitions), sides[0].state, {0, 1})));
    receives.push_back(must(
        sides[1].network->recv_init(args_of("sender", n, to[place], kPartitions), sides[1].state)));
    settle(sides);
  }
  for (const Side& side : sides) {
    int lanes_made = 0;
    side.network->lanes().for_each([&](vci::Vci&) { ++lanes_made; });
    EXPECT_EQ(lanes_made, kLanes);
  }
  for (std::int32_t round = 1; round <= 2; ++round) {
    for (std::size_t n = 0; n < sends.size(); ++n) {
      std::fill(from[n].begin(), from[n].end(), static_cast<std::byte>(n + 64 * round));
      ASSERT_TRUE(sends[n]->start().ok() && receives[n]->start().ok());
      ASSERT_TRUE(sends[n]->pready(0, kPartitions).ok());
    }
    for (std::size_t n = 0; n < sends.size(); ++n) {
      for (int turn = 0; turn < 100'000 && (sends[n]->poll() == Completion::pending ||
                                            receives[n]->poll() == Completion::pending);
           ++turn)
        settle(sides);
      ASSERT_EQ(sends[n]->poll(), Completion::complete) << sends[n]->error_text();
      ASSERT_EQ(receives[n]->poll(), Completion::complete) << receives[n]->error_text();
      sends[n]->finish();
      receives[n]->finish();
      ASSERT_EQ(from[n], to[n]);
    }
  }
  for (std::size_t n = 0; n < sends.size(); ++n)
    ASSERT_TRUE(sides[0].network->free(sends[n]).ok() && sides[1].network->free(receives[n]).ok());
  end(sides);
  for (Side& side : sides) side.network.reset();
}

INSTANTIATE_TEST_SUITE_P(Tcp, NetworkLifeOver,
                         testing::Values(Real{"ofi", {"tcp@lo"}, 10'000, true}));
INSTANTIATE_TEST_SUITE_P(Verbs, NetworkLifeOver, testing::Values(Real{"verbs", {}, 10'000, false}));

}  // namespace
}  // namespace larklane::part
