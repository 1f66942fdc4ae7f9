// Fits of LogGP parameters to measured times.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "model/loggp.hpp"

namespace larklane::model {
namespace {

/// As a real one is measured: 1 byte to 4 MiB, two sizes for each power of two.
std::vector<std::uint64_t> sizes() {
  std::vector<std::uint64_t> found{1};
  for (std::uint64_t bytes = 2; bytes <= 4 << 20; bytes *= 2) {
    found.push_back(bytes);
    if (bytes > 2) found.push_back(bytes + bytes / 2);
  }
  std::ranges::sort(found);
  return found;
}

/// Two protocols, the second one from index `change` of sizes() on.
struct Network {
  LogGP small, large;
  std::size_t change;
  const LogGP& at(std::size_t index) const { return index < change ? small : large; }
};

double between(std::mt19937_64& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

LogGP random_protocol(std::mt19937_64& random) {
  LogGP made{.latency_ns = between(random, 600, 4000),
             .send_overhead_ns = between(random, 100, 900),
             .recv_overhead_ns = between(random, 100, 900),
             .gap_ns = 0,
             .gap_per_byte_ns = std::exp(between(random, std::log(0.05), std::log(1.0)))};
  made.gap_ns = between(random, 1.3, 3) * std::max(made.send_overhead_ns, made.recv_overhead_ns);
  return made;
}

Network random_network(std::mt19937_64& random) {
  Network made{random_protocol(random), random_protocol(random), 0};
  // A rendezvous: later, but with less for each byte.
  made.large.latency_ns += made.small.latency_ns;
  made.large.send_overhead_ns += made.small.send_overhead_ns;
  made.large.gap_ns += made.small.gap_ns;
  made.large.gap_per_byte_ns = made.small.gap_per_byte_ns * between(random, 0.3, 0.7);
  made.change = 8 + random() % (sizes().size() - 16);
  return made;
}

/// Like a standard normal deviate, but skewed: a few are late.
double late(std::mt19937_64& random) {
  constexpr double kMedian = 0.6931;
  return std::exponential_distribution<double>()(random) - kMedian;
}

/// @param noise  standard deviation of each sample, as a share of it
std::vector<Trains> measured(const Network& network, double noise, std::size_t samples,
                             std::mt19937_64& random, bool is_skewed = false) {
  std::normal_distribution<double> normal;
  const auto around = [&](double value) {
    std::vector<double> found(samples);
    for (double& each : found)
      each = value * (1 + noise * (is_skewed ? late(random) : normal(random)));
    return found;
  };
  std::vector<Trains> all;
  const std::vector<std::uint64_t> bytes = sizes();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const LogGP& here = network.at(i);
    const double further = static_cast<double>(bytes[i] - 1);
    Trains made{
        bytes[i], {}, around(here.recv_overhead_ns + here.recv_overhead_per_byte_ns * further)};
    for (const int messages : {1, 2, 4, 8, 16})
      made.trains.push_back({messages, 0, around(here.round_trip_ns(messages, 0, bytes[i]))});
    const double delay =
        std::max(here.round_trip_ns(1, 0, bytes[i]), 1.1 * here.period_ns(bytes[i]));
    made.trains.push_back({16, delay, around(here.round_trip_ns(16, delay, bytes[i]))});
    all.push_back(std::move(made));
  }
  return all;
}

TEST(ModelLogGP, MatchesTheFormulasByHand) {
  const LogGP p{.latency_ns = 1000,
                .send_overhead_ns = 300,
                .recv_overhead_ns = 400,
                .gap_ns = 500,
                .gap_per_byte_ns = 0.1};
  EXPECT_DOUBLE_EQ(p.message_ns(101), 300 + 10 + 1000 + 400);
  EXPECT_DOUBLE_EQ(p.message_ns(1), 1700);
  EXPECT_DOUBLE_EQ(p.message_ns(0), 1700);
  EXPECT_DOUBLE_EQ(p.round_trip_ns(1, 0, 101), 3420);
  EXPECT_DOUBLE_EQ(p.round_trip_ns(4, 0, 101), 3420 + 3 * 510);
  EXPECT_DOUBLE_EQ(p.round_trip_ns(4, 2000, 101), 3420 + 3 * 2300);
  EXPECT_DOUBLE_EQ(p.round_trip_ns(4, 100, 101), 3420 + 3 * 510);
  LogGP slow_sender = p, slow_receiver = p;
  slow_sender.send_overhead_ns = 600;
  slow_receiver.recv_overhead_ns = 700;
  EXPECT_DOUBLE_EQ(slow_sender.period_ns(101), 610);
  EXPECT_DOUBLE_EQ(slow_receiver.period_ns(101), 710);
  EXPECT_DOUBLE_EQ(p.period_ns(0), 500);
}

TEST(ModelLogGP, ASideThatCopiesTakesItsTimeForEachByte) {
  const LogGP p{.latency_ns = 1000,
                .send_overhead_ns = 300,
                .recv_overhead_ns = 400,
                .gap_ns = 500,
                .gap_per_byte_ns = 0.1,
                .send_overhead_per_byte_ns = 0.2,
                .recv_overhead_per_byte_ns = 0.4};
  EXPECT_DOUBLE_EQ(p.message_ns(101), 1700 + 70);
  EXPECT_DOUBLE_EQ(p.period_ns(101), 510);
  EXPECT_DOUBLE_EQ(p.period_ns(10001), 400 + 4000);
  EXPECT_DOUBLE_EQ(p.round_trip_ns(2, 8000, 10001), 2 * (1700 + 7000) + 8000 + 300 + 2000);
}

TEST(ModelLogGP, MedianHasTheStandardErrorOfTheLiterature) {
  const Measured odd = median_of(3, {5, 1, 4, 2, 3});
  EXPECT_EQ(odd.x, 3);
  EXPECT_EQ(odd.y, 3);
  EXPECT_NEAR(odd.error, (5 - 1) / (2 * 2.5758), 1e-9);  // rank 3 - 2.88: the ends
  EXPECT_EQ(median_of(0, {4, 1, 2, 3, 9, 8}).y, 3.5);
  EXPECT_GT(median_of(0, {6, 6, 6, 6, 6}).error, 0);
}

void expect_within(const Estimate& estimate, double truth, const char* what) {
  EXPECT_NEAR(estimate.value / truth, 1, 0.02) << what;
}

TEST(ModelLogGP, FindsANoiselessNetworkAndItsChangeOfProtocol) {
  std::mt19937_64 random(1);
  const std::vector<std::uint64_t> bytes = sizes();
  for (int round = 0; round < 100; ++round) {
    const Network network = random_network(random);
    auto fit = fit_loggp(measured(network, 0, 9, random));
    ASSERT_TRUE(fit.has_value());
    ASSERT_EQ(fit->size(), 2u) << round;
    EXPECT_EQ((*fit)[0].last_bytes, bytes[network.change - 1]);
    EXPECT_EQ((*fit)[1].first_bytes, bytes[network.change]);
    for (const std::size_t i : {0u, 1u}) {
      const LogGP& truth = i == 0 ? network.small : network.large;
      const Segment& found = (*fit)[i];
      expect_within(found.latency_ns, truth.latency_ns, "L");
      expect_within(found.send_overhead_ns, truth.send_overhead_ns, "o_s");
      expect_within(found.recv_overhead_ns, truth.recv_overhead_ns, "o_r");
      expect_within(found.injection_ns, truth.gap_ns, "g");
      expect_within(found.injection_per_byte_ns, truth.gap_per_byte_ns, "G, by the gap");
      expect_within(found.gap_per_byte_ns, truth.gap_per_byte_ns, "G");
      EXPECT_TRUE(found.is_gap_known);
    }
  }
}

TEST(ModelLogGP, AGapThatAnOverheadHidesIsABound) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 200; ++round) {
    Network network = random_network(random);
    network.change = sizes().size();
    LogGP& truth = network.small;
    const double most = std::max(truth.send_overhead_ns, truth.recv_overhead_ns);
    for (const double noise : {0.0, 0.01}) {
      truth.gap_ns = most * (round % 2 == 0 ? 0.5 : 1.0);
      auto hidden = fit_loggp(measured(network, noise, 15, random));
      ASSERT_TRUE(hidden.has_value());
      EXPECT_FALSE(hidden->front().is_gap_known) << round;
      EXPECT_NEAR(hidden->front().injection_ns.value / most, 1, 0.1);
      truth.gap_ns = most * 1.2;
      auto known = fit_loggp(measured(network, noise, 15, random));
      ASSERT_TRUE(known.has_value());
      EXPECT_TRUE(known->front().is_gap_known) << round;
    }
  }
}

/// The fit of exact times, which has one segment.
Segment one_segment(const Network& network, std::mt19937_64& random) {
  auto fit = fit_loggp(measured(network, 0, 9, random));
  EXPECT_TRUE(fit.has_value() && fit->size() == 1);
  return fit && !fit->empty() ? fit->front() : Segment{};
}

TEST(ModelLogGP, CopiesOfASideAreNotTheNetworks) {
  std::mt19937_64 random(6);
  Network network = random_network(random);
  network.change = sizes().size();
  network.small.gap_per_byte_ns = 0.2;
  network.small.send_overhead_per_byte_ns = 0.05;
  network.small.recv_overhead_per_byte_ns = 0.1;
  const Segment fit = one_segment(network, random);
  const LogGP found = fit.parameters();
  EXPECT_NEAR(found.latency_ns / network.small.latency_ns, 1, 0.02);
  EXPECT_NEAR(found.send_overhead_ns / network.small.send_overhead_ns, 1, 0.02);
  EXPECT_NEAR(found.recv_overhead_ns / network.small.recv_overhead_ns, 1, 0.02);
  EXPECT_NEAR(found.gap_ns / network.small.gap_ns, 1, 0.02);
  EXPECT_NEAR(found.gap_per_byte_ns, 0.2, 0.004);
  EXPECT_NEAR(found.send_overhead_per_byte_ns, 0.05, 0.001);
  EXPECT_NEAR(found.recv_overhead_per_byte_ns, 0.1, 0.002);
  EXPECT_NEAR(found.message_ns(4 << 20) / network.small.message_ns(4 << 20), 1, 1e-3);
}

TEST(ModelLogGP, ANegativeTermIsTakenFromTheOthers) {
  Segment segment;
  segment.latency_ns.value = -30;
  segment.send_overhead_ns.value = 80;
  segment.recv_overhead_ns.value = 10;
  segment.injection_ns.value = -5;
  segment.gap_per_byte_ns.value = -0.1;
  segment.send_overhead_per_byte_ns.value = 0.3;
  const LogGP found = segment.parameters();
  EXPECT_DOUBLE_EQ(found.latency_ns, 0);
  EXPECT_DOUBLE_EQ(found.send_overhead_ns, 80 * 60.0 / 90);
  EXPECT_DOUBLE_EQ(found.recv_overhead_ns, 10 * 60.0 / 90);
  EXPECT_DOUBLE_EQ(found.gap_ns, 0);
  EXPECT_DOUBLE_EQ(found.message_ns(1001), 60 + 0.2 * 1000);
  segment.send_overhead_ns.value = 5;  // together below 0
  EXPECT_DOUBLE_EQ(segment.parameters().message_ns(1), 0);
  EXPECT_DOUBLE_EQ(Segment{}.parameters().message_ns(100), 0);
}

TEST(ModelLogGP, ASenderThatCopiesHidesTheWiresTimeForAByte) {
  std::mt19937_64 random(10);
  Network network = random_network(random);
  network.change = sizes().size();
  network.small.send_overhead_ns = 2 * network.small.recv_overhead_ns;
  network.small.gap_ns = 0;
  network.small.gap_per_byte_ns = 0.2;
  network.small.send_overhead_per_byte_ns = 0.5;
  const Segment fit = one_segment(network, random);
  EXPECT_NEAR(fit.gap_per_byte_ns.value, 0.2, 0.004);
  EXPECT_NEAR(fit.injection_per_byte_ns.value, 0.5, 0.01);
}

TEST(ModelLogGP, AnyCurveShowsAChange) {
  std::mt19937_64 random(8);
  for (double LogGP::*changed :
       {&LogGP::latency_ns, &LogGP::send_overhead_ns, &LogGP::recv_overhead_ns, &LogGP::gap_ns}) {
    Network network = random_network(random);
    network.small.gap_ns *= 3;  // delays no other message
    network.large = network.small;
    network.large.*changed *= 1.7;
    network.change = 20;
    auto fit = fit_loggp(measured(network, 0, 9, random));
    ASSERT_TRUE(fit.has_value());
    ASSERT_EQ(fit->size(), 2u);
    EXPECT_EQ(fit->back().first_bytes, sizes()[20]);
  }
}

/// L, o_s, o_r, g, G of either protocol: how often their intervals hold them, and changes found.
struct Coverage {
  std::array<int, 10> held{};
  int changes_found = 0;
};

Coverage covered(int networks, double noise, std::size_t samples, std::uint64_t seed,
                 bool is_skewed = false) {
  std::mt19937_64 random(seed);
  Coverage found;
  for (int round = 0; round < networks; ++round) {
    const Network network = random_network(random);
    auto fit = fit_loggp(measured(network, noise, samples, random, is_skewed));
    found.changes_found += fit->size() == 2 && fit->back().first_bytes == sizes()[network.change];
    std::size_t index = 0;
    for (const bool is_small : {true, false}) {
      const Segment& segment = is_small ? fit->front() : fit->back();
      const LogGP& truth = is_small ? network.small : network.large;
      const auto count = [&](const Estimate& estimate, double value) {
        found.held[index++] += estimate.low <= value && value <= estimate.high;
      };
      count(segment.latency_ns, truth.latency_ns);
      count(segment.send_overhead_ns, truth.send_overhead_ns);
      count(segment.recv_overhead_ns, truth.recv_overhead_ns);
      count(segment.injection_ns, truth.gap_ns);
      count(segment.gap_per_byte_ns, truth.gap_per_byte_ns);
    }
  }
  return found;
}

TEST(ModelLogGP, EachConfidenceIntervalHoldsTheTruthAsOftenAsStated) {
  for (const auto& [noise, samples] : {std::pair(0.02, 25), std::pair(0.005, 15)}) {
    const Coverage found = covered(200, noise, static_cast<std::size_t>(samples), 3);
    for (const int held : found.held) {
      EXPECT_GE(held, 180) << noise;
      EXPECT_LE(held, 198) << noise;
    }
    EXPECT_GE(found.changes_found, 196) << noise;
  }
}

TEST(ModelLogGP, LateSamplesAreLittleLessSure) {
  EXPECT_GE(std::ranges::min(covered(200, 0.02, 25, 5, true).held), 174);
}

TEST(ModelLogGP, FewSamplesAreLittleLessSure) {
  const Coverage found = covered(200, 0.02, kSamplesMin, 4);
  EXPECT_GE(std::ranges::min(found.held), 174);
  EXPECT_GE(found.changes_found, 190);
}

TEST(ModelLogGP, AGapIsFittedAlone) {
  std::mt19937_64 random(4);
  Network network = random_network(random);
  network.change = sizes().size();
  std::vector<Trains> singles_and_pairs = measured(network, 0, 9, random);
  for (Trains& size : singles_and_pairs) size.trains.resize(2);
  auto gap = fit_gap(singles_and_pairs);
  ASSERT_TRUE(gap.has_value());
  expect_within(gap->injection_ns, network.small.gap_ns, "g");
  expect_within(gap->injection_per_byte_ns, network.small.gap_per_byte_ns, "G");
}

TEST(ModelLogGP, RefusesInsufficientSamples) {
  std::mt19937_64 random(5);
  const std::vector<Trains> good = measured(random_network(random), 0, 9, random);
  const auto refuses = [](std::vector<Trains> bad) {
    EXPECT_EQ(fit_loggp(bad).error().code(), Errc::kInvalidArgument);
    EXPECT_EQ(fit_gap(bad).error().code(), Errc::kInvalidArgument);
  };
  refuses({});
  refuses({good.begin(), good.begin() + 4});
  auto bad = good;
  std::swap(bad[3], bad[4]);
  refuses(bad);
  bad = good;
  bad[2].trains.erase(bad[2].trains.begin());  // a single message
  refuses(bad);
  bad = good;
  bad[2].trains[1].samples_ns.resize(8);
  refuses(bad);
  bad = good;
  bad[0].bytes = 0;
  refuses(bad);
  bad = good;
  bad[3].bytes = bad[2].bytes;
  refuses(bad);
  for (const double time : {-1.0, std::nan(""), HUGE_VAL}) {
    bad = good;
    bad[2].trains[1].samples_ns[3] = time;
    refuses(bad);
    bad = good;
    bad[2].trains.back().delay_ns = time;
    refuses(bad);
  }
}

TEST(ModelLogGP, RefusesOverheadsThatNothingShows) {
  std::mt19937_64 random(9);
  const std::vector<Trains> good = measured(random_network(random), 0, 9, random);
  const auto refuses = [](const std::vector<Trains>& bad) {
    EXPECT_EQ(fit_loggp(bad).error().code(), Errc::kInvalidArgument);
    EXPECT_TRUE(fit_gap(bad).has_value());
  };
  auto bad = good;
  bad[2].trains.pop_back();  // with a delay
  refuses(bad);
  bad = good;
  bad[2].trains.back().delay_ns = 1;  // which hides nothing
  refuses(bad);
  bad = good;
  bad[2].receive_ns.clear();
  refuses(bad);
  bad = good;
  bad[2].receive_ns[0] = -1;
  refuses(bad);
}

}  // namespace
}  // namespace larklane::model
