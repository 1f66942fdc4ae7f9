// Channels over a network that keeps no order, and reports when all is quiet. LARKLANE_SEED=N
// repeats one run.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "base/sanitized.hpp"
#include "net/immediate.hpp"
#include "net/loop/fabric.hpp"
#include "network_world.hpp"

namespace larklane::part {
namespace {

#ifdef LARKLANE_SANITIZED
constexpr std::uint64_t kSeeds = 200;
#else
constexpr std::uint64_t kSeeds = 4000;
#endif
constexpr std::uint64_t kStepsMost = 5'000'000;

/// Only the test's calls make progress. Thread safety: single-owner.
class LoopMedium final : public Medium {
 public:
  LoopMedium(std::uint64_t seed, loop::Random& random) : wire(options(seed, random)) {}
  ~LoopMedium() override {
    for (const loop::Violation& violation : wire.take_violations())
      ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
  }

  Sizes sizes() const override { return {is_cut_ ? 4u : 40u, ~std::uint64_t{0}}; }
  std::unique_ptr<net::Fabric> for_process() override { return wire.for_process(); }
  void turn(std::uint64_t most) override { (void)wire.turn(most); }
  void settle() override { (void)wire.settle(); }
  bool is_quiet() override { return wire.under_way_count() == 0; }
  Patience patience() const override { return {0, 0}; }
  bool has_waited(std::uint64_t steps) override { return steps == kStepsMost; }

 private:
  loop::Fabric::Options options(std::uint64_t seed, loop::Random& random) {
    loop::Fabric::Options o;
    o.seed = seed;
    o.turns_per_poll = 0;
    o.queue_depth = random.one_in(3) ? 2 : 64;
    o.limits.is_progress_manual = random.one_in(2);
    is_cut_ = random.one_in(3);
    if (is_cut_) o.limits.write_bytes_max = o.limits.read_bytes_max = 64;
    if (random.one_in(3)) o.limits.immediates_max = 0;
    if (random.one_in(3))
      o.limits.channel_partitions_max = net::paper::kPartitionsMax;
    else
      o.limits.is_connected_by_use = random.one_in(2);
    return o;
  }

  bool is_cut_ = false;  ///< transfers longer than 64 bytes

 public:
  loop::Fabric wire;
};

World::MakeMedium medium_of(std::uint64_t seed) {
  return [seed](loop::Random& random) { return std::make_unique<LoopMedium>(seed, random); };
}

/// Thread safety: single-owner.
class MortalWorld : private World {
 public:
  explicit MortalWorld(std::uint64_t seed)
      : World(seed, medium_of(seed)), wire_(static_cast<LoopMedium&>(*medium_).wire) {}

  /// One process ends at any time; the other one's programs get the error, or have the bytes that
  /// they need.
  void run_until_one_dies() {
    const std::uint64_t dead = random_.below(2), steps = random_.below(4000);
    for (std::uint64_t step = 0; step < steps && !testing::Test::HasFailure(); ++step) take_step();
    survive(dead);
  }

 private:
  void survive(std::uint64_t dead) {
    Side& side = *sides_[1 - dead];
    // Its control connection has been read to its end before its end is reported.
    while (!sides_[dead]->other.sent.empty()) deliver(dead);
    wire_.kill_process(static_cast<std::uint32_t>(dead + 1));
    side.other.is_dead = true;
    side.state->down.store(true, std::memory_order_release);
    side.network->on_peer_down(side.other);
    for (Pair& p : pairs_) {
      Request* const request = dead == 0 ? static_cast<Request*>(p.recv) : p.send;
      if (request == nullptr) continue;
      end_round(p, *request);
      ASSERT_TRUE(side.network->free(request).ok()) << "active after its peer has died";
    }
    for (int turn = 0; turn < 100; ++turn) {
      (void)wire_.settle();
      (void)side.network->lanes().progress_all();
    }
    side.network->settle();
    for (auto& one : sides_) one->network.reset();
    (void)wire_.take_violations();  // of the dead process
  }

  /// A round that is open when the peer dies is complete, and then its bytes are right, or fails.
  void end_round(Pair& p, Request& request) {
    Completion completion = request.active() ? request.poll() : Completion::complete;
    for (int poll = 0; poll < 10'000 && completion == Completion::pending; ++poll) {
      (void)wire_.turn(3);
      completion = request.poll();
    }
    ASSERT_NE(completion, Completion::pending) << "waits for a dead process" << text();
    if (!request.active()) return;
    if (completion == Completion::failed) {
      EXPECT_FALSE(request.error().ok());
      EXPECT_NE(request.error_text(), "");
    } else if (&request == p.recv) {
      for (std::uint64_t i = 0; i < p.bytes; ++i)
        ASSERT_EQ(p.to[i], p.byte_at(p.recv_round, i)) << "said to be complete";
    }
    request.finish();
  }

  loop::Fabric& wire_;
};

TEST(Patience, EndsAfterTurnsAndTimeWithoutNews) {
  Patience patience(3, 100);
  patience.begin(1000);
  EXPECT_FALSE(patience.is_over(1'000'000)) << "the thread has stood still: one turn is no wait";
  EXPECT_FALSE(patience.is_over(1'000'001));
  EXPECT_TRUE(patience.is_over(1'000'002));
  patience.begin(1'000'003);
  for (int turn = 0; turn < 10; ++turn) EXPECT_FALSE(patience.is_over(1'000'003 + 99));
  EXPECT_TRUE(patience.is_over(1'000'003 + 100));
}

TEST(NetworkProperty, EveryScheduleMovesEveryByteOnceAndEveryWaitEnds) {
  for_seeds(1, kSeeds, [](std::uint64_t seed) { World(seed, medium_of(seed)).run(); });
}

TEST(NetworkProperty, TheDeathOfEitherSideReachesTheOther) {
  for_seeds(1, kSeeds / 2, [](std::uint64_t seed) { MortalWorld(seed).run_until_one_dies(); });
}

}  // namespace
}  // namespace larklane::part
