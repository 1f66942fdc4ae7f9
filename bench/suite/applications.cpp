// The applications over an MPI, as applications/ports.cpp over Larklane.

#include "applications/applications.hpp"

#include <mpi.h>

#include <algorithm>

#include "benchmarks.hpp"
#include "ranks.hpp"

namespace larklane::bench {
namespace {

/// A window, and the ranks with operations of one thread in flight. Thread safety: single-owner.
class Targets {
 public:
  explicit Targets(MPI_Win window) : window_(window) {}
  MPI_Win to(int rank) {
    if (std::ranges::find(ranks_, rank) == ranks_.end()) ranks_.push_back(rank);
    return window_;
  }
  void flush() {
    for (const int rank : ranks_) MPI_Win_flush(rank, window_);
    ranks_.clear();
  }

 private:
  const MPI_Win window_;
  std::vector<int> ranks_;
};

/// A thread's calls. Thread safety: single-owner.
class MpiPort {
 public:
  MpiPort(const std::vector<MPI_Comm>& comms, MPI_Win gets, MPI_Win atomics, bool yields)
      : comms_(comms), gets_(gets), atomics_(atomics), yields_(yields) {}

  void get(int rank, std::uint64_t offset, void* to, std::uint64_t bytes) {
    const int count = static_cast<int>(bytes);
    MPI_Get(to, count, MPI_BYTE, rank, static_cast<MPI_Aint>(offset), count, MPI_BYTE,
            gets_.to(rank));
  }
  void accumulate(int rank, std::uint64_t offset, const double* values, std::uint32_t many) {
    const int count = static_cast<int>(many);
    MPI_Accumulate(values, count, MPI_DOUBLE, rank, static_cast<MPI_Aint>(offset), count,
                   MPI_DOUBLE, MPI_SUM, atomics_.to(rank));
  }
  std::uint64_t count_up(int rank, std::uint64_t offset) {
    const std::uint64_t one = 1;
    std::uint64_t before = 0;
    MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, rank, static_cast<MPI_Aint>(offset), MPI_SUM,
                     atomics_.to(rank));
    atomics_.flush();
    return before;
  }
  void receive(const Stream& stream, void* to, std::uint64_t bytes) {
    MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, stream.rank, static_cast<int>(stream.tag),
              comm_of(stream), &requests_.emplace_back());
  }
  void send(const Stream& stream, const void* from, std::uint64_t bytes) {
    MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, stream.rank, static_cast<int>(stream.tag),
              comm_of(stream), &requests_.emplace_back());
  }
  void wait() {
    gets_.flush();
    atomics_.flush();
    wait_for_all(requests_, yields_);
    requests_.clear();
  }

 private:
  MPI_Comm comm_of(const Stream& stream) const { return comms_[stream.stream % comms_.size()]; }

  const std::vector<MPI_Comm>& comms_;
  Targets gets_, atomics_;
  const bool yields_;
  std::vector<MPI_Request> requests_;
};

/// Communicators and windows as lanes. Atomics share one window, since those of two windows need
/// not be atomic to each other. Creation and destruction are collective.
class MpiPorts {
 public:
  MpiPorts(MpiRanks&, const PortsShape& shape)
      : comms_(comms_of(shape)), windows_(shape.open.empty() ? 0 : shape.lanes) {
    for (MPI_Comm& comm : comms_) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (MPI_Win& window : windows_) {
      MPI_Win_create(shape.open.data(), static_cast<MPI_Aint>(shape.open.size()), 1, MPI_INFO_NULL,
                     MPI_COMM_WORLD, &window);
      MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    }
    const auto window = [&](std::uint32_t lane) {
      return windows_.empty() ? MPI_WIN_NULL : windows_[lane];
    };
    for (std::uint32_t thread = 0; thread < shape.threads; ++thread)
      ports_.push_back(std::make_unique<MpiPort>(comms_, window(thread % shape.lanes), window(0),
                                                 shape.options->yields));
  }
  ~MpiPorts() {
    for (MPI_Win& window : windows_) {
      MPI_Win_unlock_all(window);
      MPI_Win_free(&window);
    }
    for (MPI_Comm& comm : comms_) MPI_Comm_free(&comm);
  }
  MpiPorts(const MpiPorts&) = delete;
  MpiPorts& operator=(const MpiPorts&) = delete;

  MpiPort& port(std::uint32_t thread) { return *ports_[thread]; }
  void begin_round() { sync(); }
  void end_round() { sync(); }

 private:
  static std::size_t comms_of(const PortsShape& shape) {
    const bool has_own = shape.lanes == shape.threads && shape.threads > 1;
    return has_own || shape.streams == 0 ? shape.streams : shape.lanes;
  }
  void sync() const {
    for (const MPI_Win window : windows_) MPI_Win_sync(window);
  }

  std::vector<MPI_Comm> comms_;
  std::vector<MPI_Win> windows_;
  std::vector<std::unique_ptr<MpiPort>> ports_;
};

struct Mpi {
  using World = MpiRanks;
  using Ports = MpiPorts;
};

}  // namespace

Point measure_applications(const Options& options, std::uint64_t size, const std::vector<Link>&,
                           double timer_ns, double budget_ns, const Watcher& watcher) {
  MpiRanks world;
  return measure_application<Mpi>(options, size, world, timer_ns, budget_ns, watcher);
}

}  // namespace larklane::bench
