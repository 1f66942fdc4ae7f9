#pragma once
// The rows of bench/benchmarks.def.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace larklane::bench {

enum class Kind {
  partitions,   ///< rank 0's threads compute and send to its neighbours
  one_message,  ///< one thread and one partition: --threads and computing mean nothing
  calls,        ///< partitions, but no computing
  pattern,      ///< a grid of ranks
  steps,        ///< of single rounds and calls, for `make bars`; not of `larklane bench all`
  messages,     ///< between threads
  lanes,        ///< messages of a library whose lanes have switches; not of an MPI
  application,  ///< of messages between threads
};
enum class Formula { plain, overhead, availability };  ///< measure/metrics.hpp
enum class SizeIs { bytes, edge, block, tile };        ///< of applications

/// Lists are separated by commas. Fields are in the order of the rows.
struct Benchmark {
  const char* name;
  Kind kind;
  const char* ways;               ///< by default, the baseline first
  const char* further_ways = "";  ///< that --ways may name, too
  const char* noise = "none";
  const char* sizes = "64K:4M";
  std::uint32_t window = 0;      ///< of messages
  std::size_t axes = 0;          ///< of the grid
  std::uint64_t messages = 1;    ///< of a size that lie side by side in memory
  const char* quick_sizes = "";  ///< of `larklane bench --quick`; none: those of the kind
  const char* what;              ///< in --help
  SizeIs size_is = SizeIs::bytes;
  const char* sizes_are = "";   ///< of an application: what --sizes are of
  const char* blocks_are = "";  ///< ... and what --blocks counts; empty: it has none
  std::uint32_t blocks = 0;
  // The figure that it is about: sample x scale, or a formula of it.
  const char* headline;
  const char* unit;
  const char* sample;
  double scale = 1;
  Formula formula = Formula::plain;
  bool is_share = false;  ///< of a whole: compared by difference, since a baseline may be 0
  // Read by reports (python) alone.
  const char* better = "lower";
  const char* axis = "log";
  const char* report_name = "";        ///< empty: headline
  const char* report_unit = "";        ///< empty: unit
  bool has_constant_baseline = false;  ///< one send has the same value always: it tells no noise
  const char* meaning = "";            ///< empty: reports show every sample
  const char* title = "";
  const char* source = "";          ///< the figure of a paper
  const char* threads_source = "";  ///< the same, over threads
  const char* parts = "";           ///< samples that have figures of their own
  const char* parts_source = "";

  constexpr bool is_of_lanes() const { return kind >= Kind::messages; }
  constexpr bool is_of_messages() const { return is_of_lanes() && kind != Kind::application; }
  constexpr bool has_partitions() const { return !is_of_lanes() && kind != Kind::one_message; }
  constexpr bool computes() const { return kind == Kind::partitions || kind == Kind::pattern; }
  constexpr bool is_pattern() const { return kind == Kind::pattern; }
};

inline constexpr Benchmark kBenchmarks[] = {
#define LARKLANE_BENCHMARK(function, ...) {__VA_ARGS__},
#include "benchmarks.def"
#undef LARKLANE_BENCHMARK
};

/// @return null if there is none
constexpr const Benchmark* find_benchmark(std::string_view name) {
  for (const Benchmark& benchmark : kBenchmarks)
    if (benchmark.name == name) return &benchmark;
  return nullptr;
}

/// What is said of a name that is none.
inline std::string unknown_benchmark(const std::string& name) {
  std::string text = "no benchmark is called " + name + "; there are:";
  for (const Benchmark& benchmark : kBenchmarks) text += std::string(" ") + benchmark.name;
  return text;
}

/// The words of a list.
inline std::vector<std::string> listed(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(','));
    words.emplace_back(word);
    list.remove_prefix(std::min(word.size() + 1, list.size()));
  }
  return words;
}

/// All that --ways may name.
inline std::vector<std::string> ways_of(const Benchmark& benchmark) {
  std::vector<std::string> ways = listed(benchmark.ways);
  for (std::string& way : listed(benchmark.further_ways)) ways.push_back(std::move(way));
  return ways;
}

}  // namespace larklane::bench
