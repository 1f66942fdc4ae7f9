#pragma once
// Who we are: job and rank, as the launcher says. No MPI call.

#include "control/plane/plane.hpp"
#include "mpi/world/member.hpp"

namespace larklane::mpi {

/// Thread safety: immutable.
struct Identity {
  Job job;       ///< the same in all processes of one MPI_COMM_WORLD on one host, and in no others;
                 ///< null: not known
  int rank = 0;  ///< in MPI_COMM_WORLD

  /// What the parents say of a process that was spawned; else from PMIx, hydra's PMI, Slurm or
  /// a keyed hash of LARKLANE_JOB, in this order; a process that nobody launched is rank 0 of a job
  /// of its own.
  /// @param birth  null: nobody under Larklane spawned this process
  static Identity of_this_process(const Birth* birth);
};

/// A job's name as it fits into an address and into text_of(members); others are hashed.
Job job_named(const std::string& name);
/// A socket name of this version and this user.
control::Address address_named(const std::string& rest);
/// Socket name of a process: its job and rank.
control::Address address_of(const Member& member);

}  // namespace larklane::mpi
