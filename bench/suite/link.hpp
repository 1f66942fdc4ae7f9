#pragma once
// Pairs of rank 0 and each other rank.

#include <mpi.h>

#include <algorithm>
#include <vector>

#include "clock.hpp"

namespace larklane::bench {

struct Link {
  MPI_Comm comm;  ///< rank 0 sends; the other is rank 1 there and receives
  Offset clock;   ///< of the other rank
};

/// Collective over all ranks, as read_clocks() is. Thread safety: single-owner.
class Links {
 public:
  Links() {
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int peer = 1; peer < ranks; ++peer) {
      const bool takes_part = rank == 0 || rank == peer;
      MPI_Comm comm;
      MPI_Comm_split(MPI_COMM_WORLD, takes_part ? 0 : MPI_UNDEFINED, rank, &comm);
      if (takes_part) links_.push_back({comm, clock_offset(comm)});
    }
  }
  ~Links() {
    for (Link& link : links_) MPI_Comm_free(&link.comm);
  }
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  /// Repeats the measurement, since clocks drift.
  void read_clocks() {
    for (Link& link : links_) link.clock = drifting(link.clock, clock_offset(link.comm));
  }
  double clock_error_ns() const {
    double worst = 0;
    for (const Link& link : links_) worst = std::max(worst, link.clock.error_ns);
    return worst;
  }

  /// On rank 0 the links to all others, on another rank the link to rank 0.
  const std::vector<Link>& own() const noexcept { return links_; }

 private:
  std::vector<Link> links_;
};

}  // namespace larklane::bench
