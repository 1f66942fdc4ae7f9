// Packets over a network that keeps no order, delays and fails, against a list of the posts.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "msg/packet/packet_link.hpp"
#include "net/fault/fault.hpp"
#include "net/loop/fabric.hpp"
#include "net/loop/random.hpp"
#include "prop/msg_seeds.hpp"
#include "unit/msg_packet_pair.hpp"

namespace larklane::msg {
namespace {

/// One end, and the records that it has posted and received.
struct Talker {
  Talker(PacketSide& side, std::uint32_t cells, std::uint32_t first_cells)
      : end(side, cells, first_cells) {
    end.react = [this](const PacketHeader& header, std::span<const std::byte> payload) {
      ASSERT_LT(heard, peer->posted.size());
      ASSERT_EQ(header, peer->posted[heard]) << "record " << heard;
      expect_intact(header, payload);
      ++heard;
      if (heard % 3 == 0 && answers_left > 0) {
        --answers_left;
        (void)post(header[1] / 2);  // it may have no room: then there is no answer
      }
    };
  }
  /// In the packet or from elsewhere, as its length says.
  Result<net::Post> post(std::uint32_t bytes, bool more_follow = false) {
    const PacketHeader header = header_of(static_cast<std::uint32_t>(posted.size()), bytes, who);
    // Before: it may be heard at once.
    posted.push_back(header);
    Result<net::Post> answer = bytes % 2 == 0
                                   ? end.link->post(header, payload_of(header), more_follow)
                                   : post_assembled(header);
    if (!answer || *answer == net::Post::retry) posted.pop_back();
    return answer;
  }
  Result<net::Post> post_assembled(const PacketHeader& header) {
    Packet* const packet = end.side.lane->take_packet();
    if (packet == nullptr) return net::Post::retry;
    fill_payload(packet->payload().first(header[1]), header);
    auto answer = end.link->post(*packet, header, header[1]);
    if (!answer || *answer == net::Post::retry) end.side.lane->give_back(*packet);
    return answer;
  }

  PacketEnd end;
  Talker* peer = nullptr;
  std::uint32_t who = 0;
  std::deque<PacketHeader> posted;
  std::size_t heard = 0;
  std::uint32_t answers_left = 0;
};

/// The network that a seed chooses, and two lanes on it.
struct Field {
  Field(std::uint64_t seed, const fault::Plan* plan)
      : random(seed),
        wire(network(seed)),
        one(decorated(wire.for_process(), plan, seed)),
        two(decorated(wire.for_process(), plan, seed + 1)),
        a(*one, lane()),
        b(*two, lane()) {
    const auto pairs = 1 + random.below(3);
    for (std::uint64_t i = 0; i < pairs; ++i) {
      add(a);
      add(b);
      Talker &left = *talkers[2 * i], &right = *talkers[2 * i + 1];
      left.peer = &right;
      right.peer = &left;
      left.end.connect(right.end);
      right.end.connect(left.end);
    }
  }
  ~Field() {
    for (auto& talker : talkers) {
      EXPECT_TRUE(talker->end.link->is_quiet());
      talker->end.link.reset();
    }
    expect_no_violation();
  }
  void expect_no_violation() {
    for (const loop::Violation& violation : wire.take_violations())
      ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
  }
  loop::Fabric::Options network(std::uint64_t seed) {
    constexpr std::uint32_t kSmall[] = {8, 32, 64, 300}, kWrite[] = {64, 1000, 1u << 20};
    constexpr std::uint64_t kFirstLast[] = {0, 0, 256, UINT64_MAX};
    loop::Fabric::Options options;
    options.seed = seed;
    options.limits.small_bytes_max = kSmall[random.below(4)];
    options.limits.write_bytes_max = kWrite[random.below(3)];
    options.limits.immediates_max = 3 * 64;
    options.limits.is_progress_manual = random.one_in(4);
    options.limits.is_post_system_call = random.one_in(4);
    options.limits.has_wide_immediates = seed % 2 == 0;
    options.limits.first_word_last_bytes_max = kFirstLast[random.below(4)];
    options.limits.are_words_whole = !options.limits.is_progress_manual || random.one_in(2);
    options.queue_depth = static_cast<std::uint32_t>(1 + random.below(20));
    options.delayed_percent = random.one_in(3) ? 70 : 25;
    options.done_percent = random.one_in(3) ? 50 : 0;
    return options;
  }
  static std::unique_ptr<net::Fabric> decorated(std::unique_ptr<net::Fabric> fabric,
                                                const fault::Plan* plan, std::uint64_t seed) {
    if (plan == nullptr) return fabric;
    fault::Plan own = *plan;
    own.seed = seed;
    return std::make_unique<fault::Fabric>(std::move(fabric), own);
  }
  PacketLane::Options lane() {
    const auto packets = static_cast<std::uint32_t>(1 + random.below(12));
    packets_min = std::min(packets_min, packets);
    const auto longest = static_cast<std::uint32_t>(1 + random.below(8));
    record_cells = std::max(record_cells, longest);
    return {packets, longest};
  }
  std::uint32_t first_cells_of(std::uint32_t cells) const {
    const std::uint32_t first = std::bit_ceil(std::max(record_cells, 2u));
    const bool may = !wire.limits().has_wide_immediates && packets_min > 1;
    return may && RingShape{cells, record_cells, first}.is_legal() ? first : 0;
  }
  void add(PacketSide& side) {
    // From the smallest that both lanes' records fit in.
    const auto cells = std::uint32_t{8} << random.below(4);
    talkers.push_back(std::make_unique<Talker>(side, cells, first_cells_of(cells)));
    talkers.back()->who = static_cast<std::uint32_t>(talkers.size() - 1);  // 0: of short headers
    talkers.back()->answers_left = random.one_in(2) ? 20 : 0;
  }
  /// A post somewhere, or a turn of a lane.
  void step() {
    if (random.one_in(3)) {
      (void)(random.one_in(2) ? a : b).vci->progress();
      return;
    }
    Talker& talker = *talkers[random.below(talkers.size())];
    const auto most = talker.end.link->payload_bytes_max();
    // Sometimes the last of a burst announces that more follow, and none does.
    for (std::uint64_t left = random.one_in(3) ? random.below(6) : 0; left > 0; --left)
      (void)talker.post(static_cast<std::uint32_t>(random.below(most / 2 + 1)), true);
    auto bytes = random.one_in(4) ? most : random.below(most + 1);
    if (random.one_in(4)) bytes = std::min<std::uint64_t>(wire.limits().small_bytes_max, most);
    (void)talker.post(static_cast<std::uint32_t>(bytes), random.one_in(4));
  }
  void settle() {
    for (int i = 0; i < 60; ++i) {
      wire.settle();
      a.vci->drain();
      b.vci->drain();
    }
  }

  std::uint32_t packets_min = UINT32_MAX, record_cells = 0;
  loop::Random random;
  loop::Fabric wire;
  std::unique_ptr<net::Fabric> one, two;
  PacketSide a, b;
  std::vector<std::unique_ptr<Talker>> talkers;
};

constexpr int kSteps = 1000;

/// Of records: how many have travelled with others, how many without a head. Of rings: how many
/// have grown.
struct Ways {
  std::uint64_t coalesced = 0, headless = 0, grown = 0;
};

/// @param[in,out] ways  plus the counts of this run
void everything_arrives(std::uint64_t seed, const fault::Plan* plan, Ways& ways) {
  SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
  Field field(seed, plan);
  for (int i = 0; i < kSteps && !testing::Test::HasFailure(); ++i) field.step();
  field.settle();
  std::size_t posted = 0;
  for (const auto& talker : field.talkers) {
    ASSERT_EQ(talker->heard, talker->peer->posted.size());
    EXPECT_TRUE(talker->end.failures.empty());
    posted += talker->posted.size();
  }
  EXPECT_GT(posted, 15u);
  for (const auto& talker : field.talkers) ways.grown += talker->end.link->has_grown();
  for (const PacketSide* side : {&field.a, &field.b}) {
    ways.coalesced += side->lane->counts().coalesced;
    ways.headless += side->vci->counts().operations_of(vci::Work::Kind::small_wide);
  }
  EXPECT_EQ(field.a.lane->counts().delivered + field.b.lane->counts().delivered, posted);
  // All credit has come back: there is room for a record everywhere, and a packet.
  for (const auto& talker : field.talkers) {
    auto answer = talker->post(talker->end.link->payload_bytes_max());
    if (answer && *answer == net::Post::retry) {  // it makes the ring grow
      EXPECT_TRUE(talker->end.link->has_grown());
      field.settle();
      answer = talker->post(talker->end.link->payload_bytes_max());
    }
    ASSERT_TRUE(answer);
    ASSERT_EQ(*answer, net::Post::done);
    field.settle();
    ASSERT_EQ(talker->peer->heard, talker->posted.size());
  }
}

TEST(PacketLaws, EveryByteOnceAndInOrder) {
  Ways ways;
  for (const std::uint64_t seed : seeds(1, 60)) {
    everything_arrives(seed, nullptr, ways);
    if (HasFailure()) return;
  }
  EXPECT_GT(ways.coalesced, 300u);
  EXPECT_GT(ways.headless, 60u);
  EXPECT_GT(ways.grown, 10u);
}

// Posts that have to be made again, operations that are held back, completions and immediates that
// come late.
TEST(PacketLaws, TheSameUnderRetriesAndDelays) {
  fault::Plan plan;
  plan.faults = {{.call = fault::Call::post, .what = fault::What::retry, .one_in = 3}};
  plan.held_one_in = 4;
  plan.late_one_in = 4;
  Ways ways;
  for (const std::uint64_t seed : seeds(101, 140)) {
    everything_arrives(seed, &plan, ways);
    if (HasFailure()) return;
  }
  EXPECT_GT(ways.coalesced, 150u);
}

/// One thing fails, somewhere, sometime.
void what_arrives_is_a_prefix(std::uint64_t seed) {
  SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
  loop::Random random(seed);
  constexpr fault::What kWhat[] = {fault::What::refuse, fault::What::fail, fault::What::kill};
  constexpr fault::Moved kMoved[] = {fault::Moved::nothing, fault::Moved::half, fault::Moved::all};
  fault::Fault fault{.call = fault::Call::post, .what = kWhat[random.below(3)]};
  fault.nth = 1 + random.below(20);
  fault.moved = kMoved[random.below(3)];
  if (random.one_in(6)) fault = {.call = fault::Call::poll, .what = fault::What::refuse, .nth = 20};
  fault::Plan plan;
  plan.faults = {fault};
  if (random.one_in(2)) plan.late_one_in = 4;
  Field field(seed, &plan);
  for (int i = 0; i < kSteps && !testing::Test::HasFailure(); ++i) field.step();
  field.settle();
  std::size_t failed = 0;
  for (const auto& talker : field.talkers) {
    ASSERT_LE(talker->heard, talker->peer->posted.size());
    ASSERT_LE(talker->end.failures.size(), 1u);
    if (talker->end.failures.empty()) continue;
    ++failed;
    EXPECT_EQ(talker->end.link->failure(), talker->end.failures[0]);
    EXPECT_EQ(talker->post(0).error(), talker->end.failures[0]);
  }
  EXPECT_GT(failed, 0u);
  // The owners detect it by other ways, too, and end the rest. Where progress is manual a dead lane
  // would let its peer wait for ever: the processes end.
  field.wire.kill_process(1);
  field.wire.kill_process(2);
  for (const auto& talker : field.talkers) talker->end.link->end(Errc::kPeerDown);
  field.settle();
  for (const auto& talker : field.talkers) {
    ASSERT_EQ(talker->end.failures.size(), 1u);
    EXPECT_FALSE(talker->post(0));
  }
}

TEST(PacketLaws, AfterAFailureTheReceivedRecordsAreAPrefix) {
  for (const std::uint64_t seed : seeds(201, 280)) {
    what_arrives_is_a_prefix(seed);
    if (HasFailure()) return;
  }
}

TEST(PacketLaws, AProcessDies) {
  for (const std::uint64_t seed : seeds(301, 330)) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    Field field(seed, nullptr);
    const std::uint64_t death = field.random.below(kSteps);
    for (std::uint64_t i = 0; i < kSteps && !HasFailure(); ++i) {
      if (i == death) field.wire.kill_process(2);
      field.step();
    }
    field.settle();
    for (std::size_t i = 0; i < field.talkers.size(); i += 2) {
      Talker& talker = *field.talkers[i];
      ASSERT_LE(talker.heard, talker.peer->posted.size());
      // With a ring that is full, too: then the link is probed.
      for (std::uint32_t tries = 0; tries < PacketLink::kRefusalsOfAProbe; ++tries)
        (void)talker.post(0);
      field.settle();
      ASSERT_EQ(talker.end.failures, std::vector<Status>{Errc::kPeerDown});
      EXPECT_EQ(talker.post(0).error(), Status(Errc::kPeerDown));
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace larklane::msg
