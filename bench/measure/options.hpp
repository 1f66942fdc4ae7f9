#pragma once
// What a benchmark is asked to do. Units stand in the names.

#include <cstdint>
#include <string>
#include <vector>

namespace larklane::bench {

enum class Order { ascending, descending, strided, random };
enum class Scaling {
  strong,  ///< sizes are of whole messages, --compute is of all threads together as given
  weak,    ///< sizes are of one thread's share
};

/// When a thread computes what it gives away.
enum class ComputeSplit {
  thread,     ///< all of it before the first
  partition,  ///< each just before it is given
};

/// One of several points that differ in more than their size.
struct PointShape {
  std::uint64_t bytes;
  std::uint32_t partitions, iterations, warmup;
};

struct Options {
  std::string benchmark;
  std::string variant = "native";    ///< what `larklane bench` has put under it, for the record
  std::vector<std::string> ways;     ///< alternatives, the first one is the baseline
  std::vector<std::uint64_t> sizes;  ///< bytes
  std::uint32_t threads = 4;         ///< that compute and send
  std::uint32_t partitions_per_thread = 1;
  std::uint32_t recv_partitions = 0;  ///< 0: as many as the sender has
  std::uint32_t iterations = 100;
  std::uint32_t warmup = 10;
  double compute_ns = 1e7;
  ComputeSplit compute_split = ComputeSplit::thread;
  std::string noise = "single";
  double noise_percent = 4;
  std::uint64_t seed = 1;
  bool cold = false;
  Scaling scaling = Scaling::strong;
  Order order = Order::ascending;
  std::uint32_t neighbours = 1;  ///< that rank 0 sends to
  double budget_s = 0;           ///< 0: none
  double limit_s = 30;           ///< of one round, then it counts as hung
  std::uint32_t traces = 3;
  // Of steps.
  double late_ns =
      0;  ///< that a thread takes longer than the others, or before the first partition
  double hold_ns = 3e5;            ///< between the first partition and the others
  bool is_bound = false;           ///< two threads, each on a core, the receiver on the second's
  bool is_live = false;            ///< a partitioned channel is there while other calls are timed
  std::string count;               ///< packets, doorbells: what a round gives a device to do
  std::vector<PointShape> points;  ///< instead of sizes
  // Of messages between threads.
  std::string operation = "send";  ///< put, am
  std::uint32_t window = 64;       ///< messages of a thread before an answer
  std::uint32_t lanes = 1;         ///< that all threads share
  std::string completion = "queue", progress = "workers";  ///< of Larklane's; empty: posts alone
  bool more_follow = false;               ///< each post of a window but the last says so
  std::vector<std::string> of_exchanges;  ///< that were given, but mean nothing to posts alone
  std::string layout = "own";             ///< of lanes: on lines of their own, or packed
  std::uint32_t blocks = 0;               ///< of applications: 0 where there are none
  bool yields = false;   ///< to others while it waits: there are more threads than cores
  bool is_bare = false;  ///< no rounds but those that are asked for
  std::string json, csv;
  bool quiet = false;

  std::uint32_t send_partitions() const noexcept { return threads * partitions_per_thread; }
  std::uint32_t receive_partitions() const noexcept {
    return recv_partitions == 0 ? send_partitions() : recv_partitions;
  }
  std::uint64_t bytes_of(std::uint64_t size) const noexcept {
    return scaling == Scaling::weak ? size * threads : size;
  }
  /// Those of point `index`, if points are given.
  Options at(std::size_t index) const {
    Options o = *this;
    if (index >= points.size()) return o;
    o.partitions_per_thread = points[index].partitions / threads;
    o.iterations = points[index].iterations;
    o.warmup = points[index].warmup;
    return o;
  }
  /// Of way `everywhere`, processes are measured instead of threads.
  bool is_everywhere() const;
  std::uint32_t threads_of_process() const { return is_everywhere() ? 1 : threads; }
};

/// Every rank parses the same words.
/// @return  -1: go on with *options; otherwise the exit status, after `print`ing what is to be
/// printed: 0 after --help, 2 after an error
int parse_options(int argc, char** argv, bool print, Options* options);

}  // namespace larklane::bench
