#pragma once
// The identity of this process: job and rank, from the launcher. No MPI call.

#include "control/plane/plane.hpp"
#include "mpi/world/member.hpp"

namespace larklane::mpi {

/// Thread safety: immutable.
struct Identity {
  Job job;       ///< the same in all processes of one MPI_COMM_WORLD on one host, and in no others;
                 ///< null: not known
  int rank = 0;  ///< in MPI_COMM_WORLD

  /// A spawned process takes its job from its parents. Otherwise the sources are PMIx, hydra's PMI,
  /// Slurm and a keyed hash of LARKLANE_JOB, in this order. A process without a launcher is rank 0
  /// of a job of its own.
  /// @param birth  null: no process under Larklane spawned this one
  static Identity of_this_process(const Birth* birth);
};

/// A job named `name`, which is hashed if it does not fit into an address or text_of(members).
Job job_named(const std::string& name);
/// A socket name of this version and this user.
control::Address address_named(const std::string& rest);
/// The socket name of a process, from its job and rank.
control::Address address_of(const Member& member);

}  // namespace larklane::mpi
