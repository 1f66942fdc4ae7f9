// network_real_test --folder DIR [--seeds N] [--first N] PROVIDER[:DEVICE]
//
// Channels over a real network, both processes' engines in one thread. The network decides the
// times of arrival, so LARKLANE_SEED=N repeats the programs and their order, not the run. Exit
// status: 0, 1 a world has failed, 2 wrong use, 77 there is no such network here.

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "net/fault/fault.hpp"
#include "net/registry.hpp"
#include "network_world.hpp"

namespace larklane::part {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kEarlyNs = 10 * kSecondNs, kEarlyTurns = 10'000;
/// A partition that is ready is asked for in one of some 7,000 steps where receivers are slow.
constexpr std::uint64_t kWorldNs = 30 * kSecondNs, kWorldSteps = 1'000'000;
constexpr unsigned kCallSeconds = 120;  ///< more than the steps between two alarms may take
constexpr std::uint64_t kStepsAnAlarm = 1024, kTurnsAYield = 64;

struct Arguments {
  std::string folder, provider;
  std::uint64_t seeds = 100, first = 1;
  Config config;
} arguments;

/// @param status  the exit status where there is none
std::unique_ptr<net::Fabric> open_network(int status) {
  std::string reason;
  auto fabric =
      net::open_fabric_named(arguments.config, arguments.provider, &reason, arguments.folder);
  if (fabric) return std::move(fabric).value();
  std::fprintf(stderr, "%s: %s\n", status == 77 ? "skipped" : "no network", reason.c_str());
  std::exit(status);
}

/// A real network, with additional disorder in some worlds. Thread safety: single-owner.
class RealMedium final : public Medium {
 public:
  RealMedium(std::uint64_t seed, loop::Random& random)
      : seed_(seed),
        is_long_(random.one_in(4)),
        is_disordered_(random.one_in(3)),
        are_receivers_slow_(random.one_in(3)),
        channels_(1 + random.below(3)) {
    on_news();
  }

  Sizes sizes() const override { return {is_long_ ? 20'000u : 40u, 256 * 1024, channels_}; }
  std::unique_ptr<net::Fabric> for_process() override {
    auto fabric = open_network(1);
    if (!is_disordered_) return fabric;
    return std::make_unique<fault::Fabric>(
        std::move(fabric),
        fault::Plan{
            .seed = seed_ * 2 + ++processes_,
            .faults = {{.call = fault::Call::post, .what = fault::What::retry, .one_in = 5}},
            .held_one_in = 4,
            .late_one_in = 4});
  }
  /// The network needs no other thread. To yield costs a time slice of each thread that wants the
  /// core, and some worlds take 500,000 steps.
  void turn(std::uint64_t) override {
    if (++turns_ % kTurnsAYield == 0) ::sched_yield();
  }
  void settle() override { turn(1); }
  bool is_quiet() override { return true; }
  Patience patience() const override { return {kEarlyTurns, kEarlyNs}; }
  bool are_receivers_slow() const override { return are_receivers_slow_; }
  void on_news() override { patience_.begin(now_ns()); }
  bool has_waited(std::uint64_t steps) override {
    if (steps % kStepsAnAlarm == 0) ::alarm(kCallSeconds);
    return patience_.is_over(now_ns());
  }

 private:
  const std::uint64_t seed_;
  const bool is_long_, is_disordered_, are_receivers_slow_;
  const std::uint64_t channels_;
  Patience patience_{kWorldSteps, kWorldNs};
  std::uint64_t processes_ = 0, turns_ = 0;
};

/// The text of the running world, for the signal handler that ends it.
char last_words[64];

void end_in_a_call(int) {
  (void)!::write(STDERR_FILENO, last_words, std::strlen(last_words));
  ::_exit(1);
}

/// As World, and how its bytes went.
class CountingWorld : private World {
 public:
  explicit CountingWorld(std::uint64_t seed)
      : World(seed,
              [seed](loop::Random& random) { return std::make_unique<RealMedium>(seed, random); }) {
  }
  void run(std::uint64_t* pushed, std::uint64_t* pulled) {
    World::run();
    const auto moved = [&](int side, MovedBy by) {
      // relaxed: statistics of this thread.
      return sides_[side]->counters.moved[static_cast<int>(by)].load(std::memory_order_relaxed);
    };
    *pushed += moved(0, MovedBy::sender);
    *pulled += moved(1, MovedBy::receiver);
  }
};

TEST(RealNetwork, EveryByteComesOnceAndEveryWaitEnds) {
  set_log_sink([](LogLevel, std::string_view message) { ADD_FAILURE() << message; });
  (void)::signal(SIGALRM, end_in_a_call);
  std::uint64_t pushed = 0, pulled = 0;
  for_seeds(arguments.first, arguments.seeds, [&](std::uint64_t seed) {
    std::snprintf(last_words, sizeof last_words, "no end of a call: LARKLANE_SEED=%llu\n",
                  static_cast<unsigned long long>(seed));
    CountingWorld(seed).run(&pushed, &pulled);
  });
  ::alarm(0);
  set_log_sink({});
  std::printf("partitions: %llu pushed, %llu pulled\n", static_cast<unsigned long long>(pushed),
              static_cast<unsigned long long>(pulled));
  if (arguments.seeds < 10 || std::getenv("LARKLANE_SEED") != nullptr) return;
  EXPECT_GT(pushed, 0u);
  EXPECT_GT(pulled, 0u);
}

bool parse(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      if (!std::exchange(arguments.provider, word).empty()) return false;
      continue;
    }
    if (++i == argc) return false;
    if (word == "--folder")
      arguments.folder = argv[i];
    else if (word == "--seeds")
      arguments.seeds = std::strtoull(argv[i], nullptr, 10);
    else if (word == "--first")
      arguments.first = std::strtoull(argv[i], nullptr, 10);
    else
      return false;
  }
  return !arguments.provider.empty() && arguments.seeds != 0;
}

bool load_options() {
  std::vector<Config::Problem> problems;
  auto config = Config::load(&problems);
  for (const Config::Problem& problem : problems)
    std::fprintf(stderr, "%s\n", problem.text.c_str());
  if (config) arguments.config = std::move(config).value();
  return config.has_value();
}

}  // namespace
}  // namespace larklane::part

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!larklane::part::parse(argc, argv) || !larklane::part::load_options()) {
    std::fprintf(stderr,
                 "usage: network_real_test --folder DIR [--seeds N] [--first N] "
                 "PROVIDER[:DEVICE]\n");
    return 2;
  }
  std::puts(larklane::part::open_network(77)->limits().provider.c_str());
  return RUN_ALL_TESTS();
}
