#pragma once
// Options of a benchmark. Their names contain the units.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace larklane::bench {

enum class Order { ascending, descending, strided, random };
enum class Scaling {
  strong,  ///< --sizes are whole messages, --compute is the time of all threads together
  weak,    ///< --sizes are one thread's share
};

/// When a thread computes the partitions that it marks ready.
enum class ComputeSplit {
  thread,     ///< all partitions before the first Pready
  partition,  ///< each partition just before its Pready
};

/// One of several points that differ in more than their size.
struct PointShape {
  std::uint64_t bytes;
  std::uint32_t partitions, iterations, warmup;
};

/// The calls of MPIPCL that way `mpipcl` makes.
inline constexpr std::array kMpipclNames{"MPIP_Psend_init", "MPIP_Precv_init",  "MPIP_Start",
                                         "MPIP_Pready",     "MPIP_Parrived",    "MPIP_Test",
                                         "MPIP_Wait",       "MPIP_Request_free"};

struct Options {
  std::string benchmark;
  std::string variant = "native";    ///< the preloaded library, for the record
  std::vector<std::string> ways;     ///< the alternatives; the first one is the baseline
  std::vector<std::uint64_t> sizes;  ///< bytes
  std::uint32_t threads = 4;         ///< threads that compute and send
  std::uint32_t partitions_per_thread = 1;
  std::uint32_t recv_partitions = 0;  ///< 0: as many as the sender's
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
  std::uint32_t neighbours = 1;  ///< ranks that rank 0 sends to
  double budget_s = 0;           ///< 0: no limit
  double limit_s = 30;           ///< of one round; a longer one counts as hung
  std::uint32_t traces = 3;
  // Options of steps.
  double late_ns = 0;     ///< delay of one thread behind the others, or before the first partition
  double hold_ns = 3e5;   ///< delay between the first partition and the others
  bool is_bound = false;  ///< two threads, each bound to a core, the receiver to the second one's
  bool is_live = false;   ///< a partitioned channel exists while other calls are timed
  /// packets, doorbells: counts a round's requests to the device; of messages: system-calls
  std::string count;
  std::vector<PointShape> points;  ///< instead of sizes
  // Options of messages between threads.
  std::string operation = "send";  ///< ssend, put, put-signal, am
  std::string level = "multiple";  ///< of threads, that an MPI is asked for
  std::uint32_t window = 64;       ///< messages of a thread before an answer
  std::uint32_t lanes = 1;         ///< lanes that all threads share
  std::string completion = "queue", progress = "workers";  ///< Larklane's; empty: posts alone
  bool more_follow = false;               ///< each post of a window but the last passes this hint
  std::vector<std::string> of_exchanges;  ///< given, but ignored if it only posts
  std::string layout = "own";             ///< of lanes: each on its own cache lines, or packed
  std::uint32_t blocks = 0;               ///< of applications; 0: the application has none
  bool yields = false;   ///< a waiting thread yields: there are more threads than cores
  bool is_bare = false;  ///< only the requested rounds: no guards, no A/A
  std::string mpipcl;    ///< file of the library; empty: there is none
  std::array<void*, kMpipclNames.size()> mpipcl_calls{};
  std::string json, csv;
  bool quiet = false;

  std::uint32_t send_partitions() const noexcept { return threads * partitions_per_thread; }
  std::uint32_t receive_partitions() const noexcept {
    return recv_partitions == 0 ? send_partitions() : recv_partitions;
  }
  std::uint64_t bytes_of(std::uint64_t size) const noexcept {
    return scaling == Scaling::weak ? size * threads : size;
  }
  /// The options of point `index`, if points are given.
  Options at(std::size_t index) const {
    Options o = *this;
    if (index >= points.size()) return o;
    o.partitions_per_thread = points[index].partitions / threads;
    o.iterations = points[index].iterations;
    o.warmup = points[index].warmup;
    return o;
  }
  /// Way `everywhere` measures processes instead of threads.
  bool is_everywhere() const;
  /// Way `funneled`: one thread of each process sends and receives the messages of all. Those of an
  /// application compute.
  bool is_funneled() const;
  std::uint32_t threads_of_process() const;
  std::uint32_t threads_that_communicate() const {
    return is_funneled() ? 1 : threads_of_process();
  }
  /// With the window of a thread that communicates.
  Options of_process() const {
    Options o = *this;
    if (is_funneled()) o.window *= threads;
    return o;
  }
};

/// Every rank parses the same arguments.
/// @return -1: continue with *options. Otherwise the exit status: 0 after --help, 2 after an error.
///     If `print` is set, the help or the error is printed.
int parse_options(int argc, char** argv, bool print, Options* options);

}  // namespace larklane::bench
