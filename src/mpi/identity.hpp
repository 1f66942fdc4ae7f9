#pragma once
// Who we are: job and rank, as the launcher says. No MPI call.

#include <string>

#include "control/plane.hpp"

namespace larklane::mpi {

/// Thread safety: immutable.
struct Identity {
  std::string job;  ///< the same in all processes of one MPI_COMM_WORLD on one host, and in no
                    ///< others; empty: not known
  int rank = 0;     ///< in MPI_COMM_WORLD

  /// From PMIx, hydra's PMI, Slurm or LARKLANE_JOB, in this order; a process that nobody launched
  /// is rank 0 of a job of its own.
  static Identity of_this_process();
  /// Socket name of a rank of this job: version, user, job and rank.
  control::Address address_of(int world_rank) const;
};

}  // namespace larklane::mpi
