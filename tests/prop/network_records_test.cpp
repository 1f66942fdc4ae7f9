// Malformed input: control records that are cut off, impossible, duplicate, of another version;
// invalid immediates, credits, notices and FINs. No side writes or reads outside of a request's
// buffer, no wait lasts for ever, and refusals are logged. LARKLANE_SEED=N repeats one run.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "net/fault/fault.hpp"
#include "net/loop/fabric.hpp"
#include "net/loop/random.hpp"
#include "network_side.hpp"

namespace larklane::part {
namespace {

using record::NetType;

constexpr std::size_t kMargin = 4096;
constexpr std::byte kCanary{0xEE}, kSentMargin{0xA5};
constexpr unsigned char kSentValues = 101;

struct World {
  /// @param garbled_one_in  immediates and words of both sides; 0: none
  explicit World(std::uint64_t seed = 1, std::uint32_t turns_per_poll = 0,
                 std::uint32_t garbled_one_in = 0)
      : random(seed),
        wire(options(seed, turns_per_poll)),
        sides{{process(seed, garbled_one_in), "receiver"},
              {process(seed + 1, garbled_one_in), "sender"}} {
    set_log_sink(
        [this](LogLevel, std::string_view message) { said += std::string(message) + "\n"; });
  }
  ~World() {
    for (int turn = 0; turn < 10; ++turn) {
      (void)wire.settle();
      for (Side& side : sides) side.progress();
    }
    for (Side& side : sides) side.network.reset();
    (void)wire.take_violations();  // of a side that got malformed records
    set_log_sink({});
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  static loop::Fabric::Options options(std::uint64_t seed, std::uint32_t turns_per_poll) {
    loop::Fabric::Options o;
    o.seed = seed;
    o.turns_per_poll = turns_per_poll;
    if (seed % 2 == 0) o.limits.channel_partitions_max = net::paper::kPartitionsMax;
    return o;
  }
  std::unique_ptr<net::Fabric> process(std::uint64_t seed, std::uint32_t garbled_one_in) {
    fault::Plan plan{.seed = seed};
    if (garbled_one_in != 0)
      plan.faults.push_back({fault::Call::post, fault::What::garble, 0, 1, garbled_one_in});
    auto fabric = std::make_unique<fault::Fabric>(wire.for_process(), std::move(plan));
    faults.push_back(fabric.get());
    return fabric;
  }
  std::uint64_t garbled_count() const {
    std::uint64_t count = 0;
    for (const fault::Fabric* const fabric : faults)
      count += fabric->hits_count(fault::What::garble);
    return count;
  }
  Result<SendRequest*> send_init(std::int32_t partitions, std::int32_t tag = 1) {
    return sides[0].network->send_init(args("receiver", partitions, tag, from), sides[0].state,
                                       {0});
  }
  Result<RecvRequest*> recv_init(std::int32_t partitions, std::int32_t tag = 1) {
    return sides[1].network->recv_init(args("sender", partitions, tag, to), sides[1].state);
  }
  InitArgs args(const char* peer, std::int32_t partitions, std::int32_t tag,
                std::vector<std::byte>& memory) {
    std::vector<std::byte> nothing;
    InitArgs a = args_of(peer, tag, nothing, partitions);
    a.buffer = memory.data() + kMargin;
    a.count = bytes / static_cast<std::uint64_t>(partitions);
    return a;
  }
  void settle() {
    for (int turn = 0; turn < 50; ++turn) {
      (void)wire.settle();
      for (Side& side : sides) side.progress();
      while (sides[0].deliver_to(sides[1]) || sides[1].deliver_to(sides[0])) {
      }
    }
  }
  /// A record as if the sender's process had sent it.
  template <class T>
  void tell_receiver(NetType type, const T& record, std::size_t cut = 0) {
    const auto whole = std::as_bytes(std::span(&record, 1));
    sides[1].network->on_record(
        sides[1].state, {static_cast<std::uint16_t>(type), whole.first(whole.size() - cut), {}});
  }
  /// Both processes get the notice that the other one is gone.
  void part() {
    for (Side& side : sides) {
      side.other.is_dead = side.other.has_been_ended = true;
      side.state->down.store(true, std::memory_order_release);
      side.network->on_peer_down(side.other);
    }
  }
  /// @return how its round ends
  Completion end_of(Request& request) {
    Completion completion = request.poll();
    for (int poll = 0; poll < 10'000 && completion == Completion::pending; ++poll) {
      (void)wire.turn(10);
      for (Side& side : sides) side.progress();
      completion = request.poll();
    }
    return completion;
  }
  void fill() {
    std::fill(from.begin(), from.end(), kSentMargin);
    for (std::uint64_t at = 0; at < bytes; ++at) from[kMargin + at] = sent_at(at);
  }
  static std::byte sent_at(std::uint64_t offset) {
    return static_cast<std::byte>(1 + offset % kSentValues);  // neither canary nor margin
  }
  static bool is_sent_somewhere(std::byte byte) {
    return byte != std::byte{0} && byte <= std::byte{kSentValues};
  }
  /// After fill(): the sent bytes are unchanged, and only they have arrived, each at its place.
  /// @param are_addresses_true  or a spoilt record may name another place in the same memory, whose
  /// bytes arrive then
  void expect_only_data(bool are_addresses_true) {
    for (std::size_t at = 0; at < from.size(); ++at) {
      const bool is_margin = at < kMargin || at >= kMargin + bytes;
      const std::byte sent = is_margin ? kSentMargin : sent_at(at - kMargin);
      ASSERT_EQ(from[at], sent) << at;
      const bool is_sent = to[at] == sent || (!are_addresses_true && is_sent_somewhere(to[at]));
      ASSERT_TRUE(to[at] == kCanary || (!is_margin && is_sent)) << at;
    }
  }

  std::uint64_t bytes = 960;
  std::string said;
  loop::Random random;
  loop::Fabric wire;
  std::vector<const fault::Fabric*> faults;  // while `sides` have them
  Side sides[2];
  std::vector<std::byte> from = std::vector<std::byte>(bytes + 2 * kMargin, kCanary);
  std::vector<std::byte> to = from;
};

record::NetInit init_of(const World& world, std::uint64_t channel, std::int32_t tag) {
  record::NetInit init{};
  init.channel = channel;
  init.context_high = 1;
  init.context_low = 2;
  init.tag = tag;
  init.partitions = 4;
  init.partition_bytes = world.bytes / 4;
  init.generation = 1;
  return init;
}

/// The receive has failed by name, and does not wait.
void expect_refused(World& world, RecvRequest& receive) {
  ASSERT_TRUE(receive.start().ok() || !receive.error().ok());
  if (receive.active()) {
    EXPECT_EQ(world.end_of(receive), Completion::failed);
    receive.finish();
  }
  EXPECT_NE(receive.error_text(), "");
  EXPECT_TRUE(world.sides[1].network->free(&receive).ok());
}

TEST(NetworkRecords, AnInitWithImpossibleCountsFailsTheReceiveThatItIsFor) {
  for (const bool is_early : {false, true}) {
    World world;
    RecvRequest* receive = is_early ? nullptr : must(world.recv_init(4));
    record::NetInit init = init_of(world, 1, 1);
    init.partitions = 0;
    world.tell_receiver(NetType::init, init);
    if (is_early) receive = must(world.recv_init(4));
    expect_refused(world, *receive);
  }
}

TEST(NetworkRecords, TwoThousandMillionEmptyPartitionsAreRefused) {
  World world;
  world.bytes = 0;
  EXPECT_FALSE(world.send_init(std::numeric_limits<std::int32_t>::max()).has_value());
  RecvRequest* const receive = must(world.recv_init(4));
  record::NetInit init = init_of(world, 1, 1);
  init.partitions = 0x7fffffff;
  world.tell_receiver(NetType::init, init);
  expect_refused(world, *receive);
}

TEST(NetworkRecords, AReceiveThatDoesNotWaitForAnInitTakesNone) {
  World world;
  const auto receive = [&] {
    return world.sides[1].network->make_receive(world.args("sender", 4, 1, world.to),
                                                world.sides[1].state, IfUnmatched::none);
  };
  auto none = receive();
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(*none, nullptr);
  SendRequest* const send = must(world.send_init(4));
  world.settle();
  RecvRequest* const made = must(receive());
  ASSERT_NE(made, nullptr);
  ASSERT_TRUE(send->start().ok() && made->start().ok() && send->pready(0, 4).ok());
  world.settle();
  EXPECT_EQ(world.end_of(*made), Completion::complete);
  made->finish();
  EXPECT_EQ(world.end_of(*send), Completion::complete);
  send->finish();
  EXPECT_TRUE(world.sides[1].network->free(made).ok());
  EXPECT_TRUE(world.sides[0].network->free(send).ok());
}

TEST(NetworkRecords, AChannelNumberComesOnce) {
  World world;
  RecvRequest* const first = must(world.recv_init(4, 1));
  RecvRequest* const second = must(world.recv_init(4, 2));
  SendRequest* const send = must(world.send_init(4, 1));
  world.settle();
  world.tell_receiver(NetType::init, init_of(world, 1, 2));
  EXPECT_NE(world.said.find("larklane"), std::string::npos) << world.said;
  ASSERT_TRUE(second->start().ok() || !second->error().ok());
  if (second->active()) {
    EXPECT_EQ(world.end_of(*second), Completion::failed);
    second->finish();
  }
  world.settle();
  world.part();
  for (Request* const one : {static_cast<Request*>(first), static_cast<Request*>(second)})
    EXPECT_TRUE(world.sides[1].network->free(one).ok());
  EXPECT_TRUE(world.sides[0].network->free(send).ok());
}

TEST(NetworkRecords, AnUnreadableRecordEndsTheLinkAndIsLogged) {
  World world;
  RecvRequest* const receive = must(world.recv_init(4));
  ASSERT_TRUE(receive->start().ok());
  world.tell_receiver(NetType::init, init_of(world, 1, 1), 8);
  EXPECT_NE(world.said.find("makes no sense"), std::string::npos) << world.said;
  EXPECT_NE(world.said.find("the same version"), std::string::npos) << world.said;
  EXPECT_EQ(world.end_of(*receive), Completion::failed);
  EXPECT_NE(receive->error_text(), "");
  receive->finish();
  EXPECT_TRUE(world.sides[1].network->free(receive).ok());
}

// As where posts are complete before the receiver's software has moved their bytes.
TEST(NetworkRecords, AFailedReceiveGivesItsBufferBackAfterTheLastArrival) {
  constexpr std::int32_t kPartitions = 4;
  World world(1, 10);
  SendRequest* const send = must(world.send_init(kPartitions));
  RecvRequest* const receive = must(world.recv_init(kPartitions));
  world.settle();
  ASSERT_TRUE(send->start().ok() && receive->start().ok());
  world.settle();
  std::fill_n(world.from.begin() + kMargin, world.bytes, std::byte{0x11});
  const auto before = world.to;
  for (std::int32_t p = 0; p < kPartitions; ++p) ASSERT_TRUE(send->pready(p).ok());
  world.tell_receiver(NetType::fail,
                      record::Fail{1, 1, static_cast<std::int32_t>(Errc::kTransfer), 0, 0, 0});
  EXPECT_EQ(world.to, before);
  EXPECT_EQ(receive->poll(), Completion::failed);
  const auto given_back = world.to;
  EXPECT_NE(given_back, before);
  world.settle();
  EXPECT_EQ(world.to, given_back);
  receive->finish();
  world.part();
  EXPECT_NE(world.end_of(*send), Completion::pending);
  send->finish();
  EXPECT_TRUE(world.sides[1].network->free(receive).ok());
  EXPECT_TRUE(world.sides[0].network->free(send).ok());
}

class Fuzz {
 public:
  /// @param are_records_spoilt  or, else, the data over the network
  Fuzz(std::uint64_t seed, bool are_records_spoilt)
      : are_records_spoilt_(are_records_spoilt),
        world_(seed, 0, are_records_spoilt ? 0 : 1 + static_cast<std::uint32_t>(seed % 16)) {}

  void run() {
    const auto s = static_cast<std::int32_t>(1u << world_.random.below(6));
    world_.fill();
    auto send = world_.send_init(s);
    auto receive = world_.recv_init(4);
    ASSERT_TRUE(send && receive);
    const bool is_early = world_.random.one_in(2);
    if (!is_early) exchange();
    for (std::uint64_t left = are_records_spoilt_ ? 1 : 1 + world_.random.below(4); left != 0;
         --left)
      if (!round(**send, **receive, s)) break;
    world_.part();
    end(**send, 0);
    end(**receive, 1);
    world_.expect_only_data(!are_records_spoilt_);
    if (are_records_spoilt_) return;
    // No side posted an operation that a network would punish, even after malformed records.
    for (const loop::Violation& violation : world_.wire.take_violations())
      ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
  }

  std::uint64_t rounds() const { return rounds_; }
  std::uint64_t garbled_count() const { return world_.garbled_count(); }

 private:
  /// @return another one may follow
  bool round(SendRequest& send, RecvRequest& receive, std::int32_t partitions) {
    const bool is_late = world_.random.one_in(2);
    const bool sends = send.start().ok();
    bool receives = !is_late && receive.start().ok();
    for (std::int32_t p = 0; sends && p < partitions; ++p) (void)send.pready(p);
    Completion sent = Completion::pending, received = Completion::pending;
    for (int turn = 0; turn < 20; ++turn) {
      if (is_late && turn == 10) receives = receive.start().ok();
      exchange();
      if (sends) sent = send.poll();
      if (receives) received = receive.poll();
    }
    if (sent != Completion::complete || received != Completion::complete) return false;
    send.finish();
    receive.finish();
    ++rounds_;
    return true;
  }
  void end(Request& request, std::size_t side) {
    if (request.active()) {
      const Completion completion = world_.end_of(request);
      ASSERT_NE(completion, Completion::pending) << "it waits for ever";
      if (completion == Completion::failed) {
        EXPECT_NE(request.error_text(), "");
      }
      request.finish();
    }
    EXPECT_TRUE(world_.sides[side].network->free(&request).ok());
  }
  void exchange() {
    for (std::size_t from : {0u, 1u}) {
      auto& sent = world_.sides[from].other.sent;
      if (are_records_spoilt_ && !sent.empty() && world_.random.one_in(3)) spoil(sent);
      (void)world_.sides[from].deliver_to(world_.sides[1 - from]);
      world_.sides[from].progress();
    }
    (void)world_.wire.turn(20);
  }
  template <class Sent>
  void spoil(Sent& sent) {
    loop::Random& random = world_.random;
    auto& [kind, payload] = sent.front();
    switch (random.below(5)) {
      case 0:
        payload.resize(random.below(payload.size() + 1));
        return;
      case 1:
        for (std::uint64_t n = 1 + random.below(4); n != 0 && !payload.empty(); --n)
          payload[random.below(payload.size())] = static_cast<std::byte>(random.below(256));
        return;
      case 2: {
        constexpr std::uint64_t kValues[] = {0, 1, 0x7fffffff, 0x80000000, 1ull << 62, ~0ull};
        if (payload.size() < 8) return;
        const std::size_t width = random.one_in(2) ? 4 : 8;
        const std::uint64_t value = kValues[random.below(std::size(kValues))];
        std::memcpy(payload.data() + random.below(payload.size() / width) * width, &value, width);
        return;
      }
      case 3:
        sent.push_front(sent.front());
        return;
      default:
        kind = static_cast<std::uint16_t>(16 + random.below(8));
        return;
    }
  }
  const bool are_records_spoilt_;
  std::uint64_t rounds_ = 0;
  World world_;
};

void fuzz(bool are_records_spoilt) {
  constexpr std::uint64_t kSeeds = 10'000;
  std::uint64_t rounds = 0, garbled = 0;
  const auto one = [&](std::uint64_t seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    Fuzz fuzz(seed, are_records_spoilt);
    fuzz.run();
    rounds += fuzz.rounds();
    garbled += fuzz.garbled_count();
  };
  if (const char* const given = std::getenv("LARKLANE_SEED"))
    return one(std::strtoull(given, nullptr, 10));
  for (std::uint64_t seed = 1; seed <= kSeeds && !testing::Test::HasFailure(); ++seed) one(seed);
  std::printf("%llu rounds complete, %llu posts hit\n", static_cast<unsigned long long>(rounds),
              static_cast<unsigned long long>(garbled));
  EXPECT_GT(rounds, 100u);
  EXPECT_EQ(garbled > 100, !are_records_spoilt) << garbled;
}

TEST(NetworkRecords, AnyRecordsLeaveNoBufferAndEveryWaitEnds) { fuzz(true); }
TEST(NetworkRecords, AnyImmediatesAndWordsLeaveNoBufferAndEveryWaitEnds) { fuzz(false); }

}  // namespace
}  // namespace larklane::part
