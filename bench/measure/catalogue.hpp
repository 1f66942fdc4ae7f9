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
  one_message,  ///< one thread, one partition: --threads and computing have no effect
  calls,        ///< partitions, without computing
  pattern,      ///< a grid of ranks
  steps,        ///< single rounds and calls, for `make bars`; not in `larklane bench all`
  messages,     ///< messages between threads
  lanes,        ///< messages of a library whose lanes have switches; not for an MPI
  application,  ///< an application that sends messages between threads
};
enum class Formula { plain, overhead, availability };  ///< see measure/metrics.hpp
enum class SizeIs { bytes, edge, block, tile };        ///< meaning of an application's --sizes

/// Lists are separated by commas. Fields are in the order of the rows.
struct Benchmark {
  const char* name;
  Kind kind;
  const char* ways;               ///< the default of --ways, the baseline first
  const char* further_ways = "";  ///< other ways that --ways accepts
  const char* noise = "none";
  const char* sizes = "64K:4M";
  std::uint32_t window = 0;      ///< messages in a window
  std::size_t axes = 0;          ///< axes of the grid
  std::uint64_t messages = 1;    ///< messages of one size that are adjacent in memory
  const char* quick_sizes = "";  ///< sizes of `larklane bench --quick`; empty: those of the kind
  const char* what;              ///< description in --help
  SizeIs size_is = SizeIs::bytes;
  const char* sizes_are = "";   ///< of an application: the object that --sizes measures
  const char* blocks_are = "";  ///< the objects that --blocks counts; empty: no --blocks
  std::uint32_t blocks = 0;
  // The headline figure: sample x scale, or a formula of it.
  const char* headline;
  const char* unit;
  const char* sample;
  double scale = 1;
  Formula formula = Formula::plain;
  bool is_share = false;  ///< a share of a whole: compared by difference, since a baseline may be 0
  // Only reports (python) read the following fields.
  const char* better = "lower";
  const char* axis = "log";
  const char* report_name = "";        ///< empty: headline
  const char* report_unit = "";        ///< empty: unit
  bool has_constant_baseline = false;  ///< one send always has the same value: it shows no noise
  const char* meaning = "";            ///< empty: reports show every sample
  const char* title = "";
  const char* source = "";          ///< the figure of the paper
  const char* threads_source = "";  ///< the same, over the number of threads
  const char* parts = "";           ///< samples with figures of their own
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

/// @return null if no benchmark has this name
constexpr const Benchmark* find_benchmark(std::string_view name) {
  for (const Benchmark& benchmark : kBenchmarks)
    if (benchmark.name == name) return &benchmark;
  return nullptr;
}

/// The error message for an unknown benchmark name.
inline std::string unknown_benchmark(const std::string& name) {
  std::string text = "no benchmark is called " + name + "; there are:";
  for (const Benchmark& benchmark : kBenchmarks) text += std::string(" ") + benchmark.name;
  return text;
}

/// Splits a list at its commas.
inline std::vector<std::string> listed(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(','));
    words.emplace_back(word);
    list.remove_prefix(std::min(word.size() + 1, list.size()));
  }
  return words;
}

/// All ways that --ways accepts.
inline std::vector<std::string> ways_of(const Benchmark& benchmark) {
  std::vector<std::string> ways = listed(benchmark.ways);
  for (std::string& way : listed(benchmark.further_ways)) ways.push_back(std::move(way));
  return ways;
}

}  // namespace larklane::bench
