// Damaged records of delays and detours: refused with the file's name, or replayed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "measure/recording.hpp"
#include "msg_seeds.hpp"
#include "mutations.hpp"

namespace larklane::bench {
namespace {

constexpr std::uint64_t kMutations = 1000;
constexpr std::size_t kProblemBytesMax = 600;

void expect_refused_or_replayed(const std::string& text) {
  std::string error;
  const Recording found = parse_recording(text, "a file", &error);
  if (!error.empty()) {
    EXPECT_TRUE(error.starts_with("a file: ")) << error;
    EXPECT_LE(error.size(), kProblemBytesMax);
    EXPECT_TRUE(std::ranges::all_of(error, [](char c) { return c >= ' ' && c <= '~'; })) << error;
    return;
  }
  EXPECT_NE(found.delays.empty(), found.detours.cores.empty());
  for (const auto& round : found.delays)
    for (const double delay : round) EXPECT_TRUE(std::isfinite(delay) && delay >= 0);
  for (std::size_t core = 0; core < found.detours.cores.size(); ++core)
    for (const double compute_ns : {0.0, 1.0, 1e4, 3 * found.detours.span_ns})
      EXPECT_GE(found.detours.disturbed_ns(compute_ns, core, found.detours.span_ns / 3), 0);
}

TEST(Traces, DamagedDelaysAreRefusedWithTheFileOrReplayed) {
  msg::for_seeds(kMutations, [](std::uint64_t seed) {
    expect_refused_or_replayed(
        mutated("{\"delays_ns\": [[0, 1.5, 2000], [0, 30, 1e6], [7, 0, 0]]}\n", seed));
  });
}

TEST(Traces, DamagedDetoursAreRefusedWithTheFileOrReplayed) {
  msg::for_seeds(kMutations, [](std::uint64_t seed) {
    expect_refused_or_replayed(
        mutated("{\"recorded\": \"2026-11-29\", \"cores\": [0, 1], \"threshold_ns\": 1000, "
                "\"span_ns\": 100000,\n\"detours_ns\": [[[10, 2000], [5000, 1200]], [[90000, "
                "1000]]]}\n",
                seed));
  });
}

TEST(Traces, ALongWordOfADamagedFileIsNotRepeated) {
  expect_refused_or_replayed("{\"delays_ns\": [[\"" + std::string(100'000, 'x'));
  expect_refused_or_replayed("{\"delays_ns\": \xc2\x9b\x1b[2J");
  expect_refused_or_replayed(std::string(1'000'000, '['));
}

}  // namespace
}  // namespace larklane::bench
