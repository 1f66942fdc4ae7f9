// The metrics on simulated rounds of the engine's own code, against closed forms. All steps are
// free but the copying of bytes, so that the forms are exact.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "measure/metrics.hpp"
#include "net/loop/atomic.hpp"
#include "net/loop/simulation.hpp"
#include "part/protocol/side.hpp"

namespace larklane::part {
namespace {

using loop::Platform;
using loop::Simulation;

constexpr std::uint64_t kBytePs = 100;
constexpr std::uint64_t kPartitionBytes = 1000;
constexpr double kCopyNs = 1e-3 * kBytePs * kPartitionBytes;  // one partition, once

struct Scenario {
  Mode mode;
  std::vector<double> computed_ns;  ///< by partition: one thread each
};

/// The sender's buffer, the receiver's, and the simulation's charge for copies between them.
struct Mover {
  Simulation& simulation;
  std::byte *from, *to;
  Mode mode;
  SendSide<Platform>* send;
  std::uint64_t round;
  void move(Run run) {
    simulation.copy(to + run.first * kPartitionBytes, from + run.first * kPartitionBytes,
                    run.count * kPartitionBytes);
    publish_moved(send->block(), round, run);
  }
  void fill(std::byte* slot, std::uint64_t offset, std::uint64_t length) {
    simulation.copy(slot, from + offset, length);
  }
  void empty(const std::byte* slot, std::uint64_t offset, std::uint64_t length) {
    simulation.copy(to + offset, slot, length);
  }
};

/// One round: each partition has a thread that computes and marks it; the receiver has started
/// before and polls.
bench::RoundTrace run(const Scenario& scenario) {
  const auto partitions = static_cast<std::uint32_t>(scenario.computed_ns.size());
  Simulation simulation({.costs = {.load_ps = 0,
                                   .modify_ps = 0,
                                   .line_transfer_ps = 0,
                                   .copy_setup_ps = 0,
                                   .copy_byte_ps = kBytePs,
                                   .poll_ps = 0}});
  std::vector<std::uint32_t> boundaries(partitions);  // each partition for itself
  std::iota(boundaries.begin(), boundaries.end(), 0);
  const LayoutSize most = LayoutSize::most(partitions, partitions);
  const BlockShape shape{scenario.mode, partitions, partitions,     most.words,
                         most.roots,    0,          kPartitionBytes};
  const std::size_t block_bytes = BlockOffsets::of(shape).end;
  const auto free_block = [](std::byte* base) {
    ::operator delete (base, std::align_val_t{kLineBytes});
  };
  const std::unique_ptr<std::byte, decltype(free_block)> memory(
      static_cast<std::byte*>(::operator new (block_bytes, std::align_val_t{kLineBytes})),
      free_block);
  std::fill_n(memory.get(), block_bytes, std::byte{});
  const BlockView<Platform> view(memory.get(), shape);
  view.construct(shape, 1);
  SendSide<Platform> send(view, shape);
  if (scenario.mode == Mode::direct) {
    EXPECT_TRUE(send.choose(boundaries).ok());
  }
  RecvSide<Platform> receive(view, shape, partitions);
  std::vector<std::byte> from(partitions * kPartitionBytes, std::byte{1}), to(from.size());
  Mover mover{simulation, from.data(), to.data(), scenario.mode, &send, 1};

  std::vector<double> ready(partitions), arrived(partitions);
  send.start(1);
  EXPECT_TRUE(receive.open(1, mover).ok());
  const auto now_ns = [&] { return static_cast<double>(simulation.now_ps()) * 1e-3; };
  for (std::uint32_t p = 0; p < partitions; ++p) {
    simulation.spawn("thread " + std::to_string(p), [&, p] {
      simulation.spend(static_cast<std::uint64_t>(scenario.computed_ns[p] * 1e3));
      ready[p] = now_ns();
      EXPECT_TRUE(send.mark(1, {p, 1}, mover).ok());
    });
    simulation.spawn("reader " + std::to_string(p), [&, p] {
      simulation.wait("partition", [&] { return receive.arrived(1, p, mover); });
      arrived[p] = now_ns();
    });
  }
  EXPECT_EQ(simulation.run(), "");
  EXPECT_EQ(to, from);
  bench::RoundTrace trace;
  trace.transfers = bench::transfers_of(ready, arrived, from.size());
  trace.arrivals_ns = arrived;
  trace.joined_ns = *std::max_element(scenario.computed_ns.begin(), scenario.computed_ns.end());
  return trace;
}

/// Partition p is computed after `first` + p * `step`, the last one `late` later.
std::vector<double> staggered(std::uint32_t partitions, double first, double step, double late) {
  std::vector<double> times;
  for (std::uint32_t p = 0; p < partitions; ++p) times.push_back(first + p * step);
  times.back() += late;
  return times;
}

class LoopMetrics : public testing::TestWithParam<Mode> {
 protected:
  /// Of one partition: into the slot and out of it, or from buffer to buffer.
  double transfer_ns() const { return GetParam() == Mode::slots ? 2 * kCopyNs : kCopyNs; }
};

TEST_P(LoopMetrics, OfADelayedThread) {
  for (const std::uint32_t partitions : {2u, 3u, 8u, 33u}) {
    const double late = 1e6;
    const bench::RoundTrace trace =
        run({GetParam(), staggered(partitions, 1e5, 4 * kCopyNs, late)});
    const double spread = late + (partitions - 1) * 4 * kCopyNs;
    EXPECT_NEAR(bench::exposed_ns(trace), transfer_ns(), 1e-3);
    EXPECT_NEAR(bench::total_ns(trace), spread + transfer_ns(), 1e-3);
    EXPECT_NEAR(bench::extra_compute_ns(trace), spread, 1e-3);
    EXPECT_NEAR(bench::after_join_ns(trace), transfer_ns(), 1e-3);
    EXPECT_NEAR(bench::before_join_ns(trace), (partitions - 1) * transfer_ns(), 1e-3);
    EXPECT_NEAR(bench::early_bird_share(trace), (partitions - 1.0) / partitions, 1e-9);
    EXPECT_NEAR(bench::early_bytes_share(trace), (partitions - 1.0) / partitions, 1e-9);
    EXPECT_NEAR(bench::perceived_bandwidth(trace),
                partitions * kPartitionBytes / (transfer_ns() * 1e-9), 1);
  }
}

TEST_P(LoopMetrics, OneThreadAfterAnotherIsTheNoiseThatTheReceiverGains) {
  const double noise = 4e5;
  std::vector<double> times(8, 1e7);
  times[3] += noise;
  // The other seven finish together; the first to arrive among them has been copied first.
  const bench::RoundTrace trace = run({GetParam(), times});
  EXPECT_NEAR(bench::extra_compute_ns(trace), noise, 7 * transfer_ns());
  EXPECT_GE(bench::extra_compute_ns(trace), noise - 7 * transfer_ns());
}

TEST_P(LoopMetrics, OfOnePartition) {
  const bench::RoundTrace trace = run({GetParam(), {1e5}});
  EXPECT_EQ(bench::extra_compute_ns(trace), 0);
  EXPECT_EQ(bench::early_bird_share(trace), 0);
  EXPECT_NEAR(bench::exposed_ns(trace), transfer_ns(), 1e-3);
}

std::string mode_name(const testing::TestParamInfo<Mode>& mode) {
  return mode.param == Mode::slots ? "Slots" : "Direct";
}
INSTANTIATE_TEST_SUITE_P(Modes, LoopMetrics, testing::Values(Mode::slots, Mode::direct), mode_name);

}  // namespace
}  // namespace larklane::part
