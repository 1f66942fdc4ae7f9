#pragma once
// One way to send a message from rank 0 to another rank, of several that are measured side by side.

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "measure/options.hpp"
#include "wait.hpp"

namespace larklane::bench {

/// The common arguments of both sides. The buffer is the sender's or the receiver's.
struct Pair {
  const Options* options;
  std::byte* buffer;
  std::uint64_t bytes;
  bool is_sender;
  MPI_Comm comm;  ///< of the two: rank 0 sends, rank 1 receives
};

/// The calls of one round, in this order. Sender: start, ready of every partition, joined, finish.
/// Receiver: start, poll until it returns true, finish. Thread safety: different threads may call
/// ready() for different partitions; everything else is single-owner.
class Way {
 public:
  virtual ~Way() = default;
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  virtual void start(std::uint64_t round) = 0;
  /// `thread` has computed send partition `partition`; `last`: this is the thread's last one.
  virtual void ready(std::uint32_t partition, std::uint32_t thread, bool last) = 0;
  virtual void joined() {}
  /// Checks once and notes the arrivals.
  /// @return true if everything has arrived
  virtual bool poll() = 0;
  /// Alternative to poll(): waits until everything has arrived, without checking its parts.
  virtual void wait() {
    wait_until([&] { return poll(); });
  }
  virtual void finish() = 0;
  /// True if this side claims to be complete while the sender holds a part back.
  virtual bool claims_completion() { return false; }

  /// Send time of each part that this way distinguishes (sender), [units()].
  const std::vector<double>& begun_ns() const noexcept { return begun_ns_; }
  /// Arrival time of each part (receiver), [arrivals()].
  std::vector<double>& arrived_ns() noexcept { return arrived_ns_; }

 protected:
  Way(const Pair& pair, std::size_t units, std::size_t arrivals)
      : pair_(pair), begun_ns_(units), arrived_ns_(arrivals) {}
  const Pair pair_;
  std::vector<double> begun_ns_, arrived_ns_;
};

/// Collective over both ranks, in the same order on both.
/// @param name  a way of bench/benchmarks.def
/// @return null if this MPI can't
std::unique_ptr<Way> make_way(const std::string& name, const Pair& pair);

}  // namespace larklane::bench
