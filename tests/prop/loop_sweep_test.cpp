// A sweep over a plane of simulated ranks against the wave that LogGP's terms make, to the
// picosecond.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/readiness.hpp"
#include "net/loop/random.hpp"
#include "sim/sweep.hpp"
#include "simulated_round.hpp"

namespace larklane::sim {
namespace {

using loop::Random;

constexpr std::uint64_t kNs = 1000;  // in picoseconds

/// Messages of one group; nothing but the network and computing costs anything.
Sweep sweep_of(std::uint32_t columns, std::uint32_t rows, std::uint32_t threads) {
  Sweep sweep;
  sweep.columns = columns;
  sweep.rows = rows;
  sweep.channel.partitions = sweep.channel.threads = threads;
  sweep.channel.processor = loop::kFreeCosts;
  sweep.channel.ready_ps = {std::vector<std::uint64_t>(threads, 0)};
  return sweep;
}

Sweep random_sweep(Random& random) {
  const auto side = [&] { return static_cast<std::uint32_t>(1 + random.below(5)); };
  const std::uint32_t columns = side(), rows = side();
  Sweep sweep = sweep_of(columns, rows, static_cast<std::uint32_t>(1 + random.below(9)));
  sweep.channel.partition_bytes = 1 + random.below(5000);
  sweep.channel.network = {.latency_ps = random.below(2000 * kNs),
                           .send_overhead_ps = random.below(400 * kNs),
                           .recv_overhead_ps = random.below(400 * kNs),
                           .gap_ps = random.below(400 * kNs),
                           .byte_ps = random.below(300)};
  sweep.channel.seed = random.next();
  // Longer than all that a rank has on its way.
  sweep.compute_ps = 100'000 * kNs + random.below(1000 * kNs);
  return sweep;
}

/// From a rank's last mark to the arrival of a whole message, the first or the second that it
/// sends.
std::uint64_t trip_ps(const Sweep& sweep, bool is_second) {
  const loop::NetworkCosts& network = sweep.channel.network;
  const std::uint64_t wire_ps =
      network.bytes_ps(sweep.channel.partitions * sweep.channel.partition_bytes);
  const std::uint64_t first_ps = network.send_overhead_ps + wire_ps;
  return (is_second ? first_ps + network.injection_ps() + wire_ps : first_ps) + network.latency_ps;
}

TEST(LoopSweep, TheWaveOfOneCornerInClosedForm) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    Sweep sweep = random_sweep(random);
    sweep.corners = 1;
    sweep.channel.network.recv_overhead_ps = 0;
    const std::uint64_t x = sweep.columns, y = sweep.rows;
    // Down the first column, where the way to the right goes first, then along the last row.
    const std::uint64_t down_ps = trip_ps(sweep, x > 1), right_ps = trip_ps(sweep, false);
    const Round round = round_of(sweep);
    EXPECT_EQ(round.exposed_ps, (y - 1) * down_ps + (x - 1) * right_ps)
        << x << " x " << y << ", seed " << seed;
    EXPECT_EQ(round.total_ps - round.exposed_ps, (x + y - 1) * sweep.compute_ps);
    EXPECT_EQ(round.transfers, 2 * x * y - x - y);
  }
}

/// The same with a receiver that takes one completion after the other, and with all corners: the
/// thread that posts joins when it has.
std::uint64_t wave_ps(const Sweep& sweep) {
  constexpr bool kRight[] = {true, false, false, true}, kDown[] = {true, true, false, false};
  const loop::NetworkCosts& network = sweep.channel.network;
  const std::uint32_t columns = sweep.columns, rows = sweep.rows;
  std::vector<std::uint64_t> computed(columns * rows), joined(columns * rows);
  for (std::uint32_t corner = 0; corner < sweep.corners; ++corner)
    for (std::uint32_t i = 0; i < columns; ++i)
      for (std::uint32_t j = 0; j < rows; ++j) {
        const auto at = [&](std::uint32_t a, std::uint32_t b) {
          return (kRight[corner] ? a : columns - 1 - a) * rows + (kDown[corner] ? b : rows - 1 - b);
        };
        std::vector<std::uint64_t> arrivals;
        if (i > 0) arrivals.push_back(computed[at(i - 1, j)] + trip_ps(sweep, false));
        if (j > 0) arrivals.push_back(computed[at(i, j - 1)] + trip_ps(sweep, i + 1 < columns));
        std::sort(arrivals.begin(), arrivals.end());
        std::uint64_t taken = 0;
        for (const std::uint64_t arrival : arrivals)
          taken = std::max(taken, arrival) + network.recv_overhead_ps;
        const std::uint64_t sends = (i + 1 < columns ? 1u : 0u) + (j + 1 < rows ? 1u : 0u);
        computed[at(i, j)] = std::max(joined[at(i, j)], taken) + sweep.compute_ps;
        joined[at(i, j)] = computed[at(i, j)] + sends * network.send_overhead_ps;
      }
  return *std::max_element(joined.begin(), joined.end());
}

TEST(LoopSweep, AllCornersToThePicosecond) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    Sweep sweep = random_sweep(random);
    sweep.corners = static_cast<std::uint32_t>(1 + random.below(4));
    // More than one sweep: those after the first are like it.
    sweep.channel.ready_ps.resize(1 + random.below(3), sweep.channel.ready_ps.front());
    EXPECT_EQ(round_of(sweep).total_ps, wave_ps(sweep))
        << sweep.columns << " x " << sweep.rows << ", " << sweep.corners << " corners, seed "
        << seed;
  }
}

TEST(LoopSweep, ComputingTime) {
  EXPECT_EQ(steps(sweep_of(1, 1, 1)), 4u);
  EXPECT_EQ(steps(sweep_of(8, 8, 1)), 39u);
  Sweep one = sweep_of(8, 8, 1);
  one.corners = 1;
  EXPECT_EQ(steps(one), 15u);
}

TEST(LoopSweep, ComputingTimeOfBlocks) {
  for (std::uint32_t partitions : {1u, 2u, 6u})
    for (std::uint32_t blocks : {1u, 3u}) {
      Sweep sweep = sweep_of(4, 3, partitions);
      sweep.channel.threads = 1;
      sweep.blocks = blocks;
      sweep.corners = 1;
      EXPECT_EQ(steps(sweep), blocks * partitions + 4 + 3 - 2);
      sweep.corners = 2;  // the last rank of the first corner's wave begins the second one's row
      EXPECT_EQ(steps(sweep), 2 * blocks * partitions + 2 * (4 - 1) + (3 - 1));
    }
}

/// One corner, a free network: partitions on their own keep the pipeline full, a group does not.
TEST(LoopSweep, BlocksAndPartitionsOfAThreadArePipelined) {
  for (std::uint32_t blocks : {1u, 4u}) {
    Sweep sweep = sweep_of(3, 2, 6);
    sweep.channel.threads = 2;  // three partitions each
    sweep.blocks = blocks;
    sweep.corners = 1;
    sweep.compute_ps = 1000 * kNs;
    sweep.channel.plans = {{0, 1, 2, 3, 4, 5}};
    const Round apart = round_of(sweep);
    EXPECT_EQ(apart.exposed_ps, 0u);
    EXPECT_EQ(apart.total_ps, (blocks * 3 + 3 + 2 - 2) * sweep.compute_ps);
    EXPECT_EQ(apart.transfers, blocks * 6 * 7);  // between 7 pairs of neighbours
    sweep.channel.plans = {{0}};
    EXPECT_EQ(round_of(sweep).total_ps, (blocks + 3 + 2 - 2) * 3 * sweep.compute_ps);
  }
}

/// A thread waits for its own partition alone.
TEST(LoopSweep, OnlyGroupsMakeThreadsWaitForALateOne) {
  Sweep sweep = sweep_of(3, 3, 4);
  sweep.corners = 1;
  sweep.compute_ps = 1000 * kNs;
  // By chance one of the two is late, in every rank.
  sweep.channel.ready_ps = {{0, 0, 0, 70 * kNs}, {70 * kNs, 0, 0, 0}};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    sweep.channel.seed = seed;
    sweep.channel.plans = {{0}};
    const std::uint64_t bulk_ps = round_of(sweep).exposed_ps;
    sweep.channel.plans = {{0, 1, 2, 3}};
    const std::uint64_t apart_ps = round_of(sweep).exposed_ps;
    EXPECT_EQ(bulk_ps, 5 * 70 * kNs);
    EXPECT_LE(apart_ps, bulk_ps);
    EXPECT_EQ(apart_ps % (70 * kNs), 0u);
  }
  sweep.channel.ready_ps = {{0, 0, 0, 70 * kNs}};
  EXPECT_EQ(round_of(sweep).exposed_ps, 5 * 70 * kNs);
}

/// In each of four corners one of two threads is late, by chance: the other one waits for it.
TEST(LoopSweep, ThreadsJoinBetweenCorners) {
  Sweep sweep = sweep_of(1, 1, 2);
  sweep.channel.ready_ps = {{0, 70 * kNs}, {70 * kNs, 0}};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    sweep.channel.seed = seed;
    EXPECT_EQ(round_of(sweep).exposed_ps, 4 * 70 * kNs);
  }
}

TEST(LoopSweep, TheBaselineByHand) {
  Sweep sweep = sweep_of(2, 1, 1);
  sweep.corners = 1;
  sweep.compute_ps = 5000 * kNs;
  sweep.channel.network = {.latency_ps = 1000 * kNs,
                           .send_overhead_ps = 100 * kNs,
                           .recv_overhead_ps = 50 * kNs,
                           .gap_ps = 0,
                           .byte_ps = 1 * kNs};
  sweep.channel.two_sided = TwoSidedCosts{.request_ps = 200 * kNs,
                                          .match_ps = 30 * kNs,
                                          .copy_byte_ps = 2 * kNs,
                                          .zero_copy_from_bytes = 100,
                                          .rendezvous_from_bytes = 1000};
  // As of one message (loop_network_test.cpp).
  sweep.channel.partition_bytes = 10;
  EXPECT_EQ(round_of(sweep).exposed_ps / kNs, 200u + 20 + 100 + 9 + 1000 + 50 + 30 + 20);
  sweep.channel.partition_bytes = 1000;
  EXPECT_EQ(round_of(sweep).exposed_ps / kNs,
            200u + 100 + 63 + 1000 + 50 + 30 + 100 + 63 + 1000 + 999 + 1000 + 50);
  // One lock: the second neighbour's send waits for the first one's.
  sweep.columns = sweep.rows = 2;
  sweep.channel.partition_bytes = 10;
  EXPECT_EQ(round_of(sweep).exposed_ps / kNs, 2 * 320u + 9 + 1000 + 100 + 320 + 9 + 1000 + 100);
}

TEST(LoopSweep, TheSameSeedGivesTheSameBytesAnotherOthers) {
  for (const bool two_sided : {false, true})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const auto noisy = [&](std::uint64_t its_seed) {
        Sweep sweep = sweep_of(3, 4, 8);
        sweep.compute_ps = 10'000 * kNs;
        sweep.channel.processor = {};
        sweep.channel.partition_bytes = 3000;
        sweep.channel.plans = {{0, 1, 5}};
        sweep.channel.network = {.latency_ps = 600'000,
                                 .send_overhead_ps = 75'000,
                                 .recv_overhead_ps = 75'000,
                                 .gap_ps = 0,
                                 .byte_ps = 87};
        if (two_sided)
          sweep.channel.two_sided =
              TwoSidedCosts{56'000, 68'000, 60, 1 << 10, its_seed % 2 == 0 ? 1u << 11 : 1u << 20};
        sweep.channel.seed = its_seed;
        sweep.channel.ready_ps =
            ready_ps(model::readiness(model::Pattern::exponential, 2000, 8, 6, its_seed));
        return text_of(sweep);
      };
      const std::string once = noisy(seed);
      const std::vector<std::byte> in_between(seed * 1000);
      EXPECT_EQ(once, noisy(seed)) << "seed " << seed;
      EXPECT_NE(once, noisy(seed + 1)) << "seed " << seed;
      EXPECT_EQ(std::count(once.begin(), once.end(), '\n'), 6);
    }
}

TEST(LoopSweep, AScenarioThatFitsNoPlaneIsRefused) {
  const auto refused = [](auto&& change) {
    Sweep sweep = sweep_of(2, 2, 4);
    change(sweep);
    const auto outcome = simulate(sweep);
    return !outcome && outcome.error() == Errc::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](Sweep&) {}));
  EXPECT_TRUE(refused([](Sweep& s) { s.columns = 0; }));
  EXPECT_TRUE(refused([](Sweep& s) { s.rows = 0; }));
  EXPECT_TRUE(refused([](Sweep& s) { s.corners = 0; }));
  EXPECT_TRUE(refused([](Sweep& s) { s.corners = 5; }));
  EXPECT_TRUE(refused([](Sweep& s) { s.channel.threads = 3; }));
  EXPECT_TRUE(refused([](Sweep& s) { s.blocks = 0; }));
  EXPECT_TRUE(refused([](Sweep& s) { s.channel.policy = "learned"; }));
  EXPECT_TRUE(refused([](Sweep& s) { s.channel.is_receiver_late = true; }));
  EXPECT_TRUE(refused([](Sweep& s) { s.channel.plans = {{1}}; }));
  EXPECT_TRUE(refused([](Sweep& s) { s.channel.network.queues = 0; }));
}

}  // namespace
}  // namespace larklane::sim
