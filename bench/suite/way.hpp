#pragma once
// One way of getting a message from rank 0 to another, of several that are measured side by side.

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "measure/options.hpp"
#include "wait.hpp"

namespace larklane::bench {

/// What both sides have in common. The buffer is the sender's or the receiver's.
struct Pair {
  const Options* options;
  std::byte* buffer;
  std::uint64_t bytes;
  bool is_sender;
  MPI_Comm comm;  ///< of the two: rank 0 sends, rank 1 receives
};

/// The calls of one round, in this order, sender: start, ready of every partition, joined, finish;
/// receiver: start, poll until it says so, finish.
/// Thread safety: ready() of different partitions by different threads; everything else
/// single-owner.
class Way {
 public:
  virtual ~Way() = default;
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  virtual void start(std::uint64_t round) = 0;
  /// Send partition `partition` has been computed by `thread`, of whose it is the last if `last`.
  virtual void ready(std::uint32_t partition, std::uint32_t thread, bool last) = 0;
  virtual void joined() {}
  /// One look. Arrivals are noted. @return everything is there
  virtual bool poll() = 0;
  /// Instead: until everything is there, without a look at its parts.
  virtual void wait() {
    wait_until([&] { return poll(); });
  }
  virtual void finish() = 0;
  /// Sender, while a part is held back: does it claim to be complete? Receiver: does it?
  virtual bool claims_completion() { return false; }

  /// When each part that this way tells from the others left (sender), [units()].
  const std::vector<double>& begun_ns() const noexcept { return begun_ns_; }
  /// When each arrived (receiver), [arrivals()].
  std::vector<double>& arrived_ns() noexcept { return arrived_ns_; }

 protected:
  Way(const Pair& pair, std::size_t units, std::size_t arrivals)
      : pair_(pair), begun_ns_(units), arrived_ns_(arrivals) {}
  const Pair pair_;
  std::vector<double> begun_ns_, arrived_ns_;
};

/// Collective over both ranks, in the same order there. @param name  a way of bench/benchmarks.def
/// @return null if this MPI can't
std::unique_ptr<Way> make_way(const std::string& name, const Pair& pair);

}  // namespace larklane::bench
