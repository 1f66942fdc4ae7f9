#pragma once
// The launcher of this process, as the environment describes it.

#include <cstdint>
#include <optional>
#include <string>

namespace larklane::boot {

/// Thread safety: immutable.
struct Launcher {
  /// The protocol by which the launcher passes cards on.
  enum class Speech : std::uint8_t { none, pmix, pmi };

  Speech speech = Speech::none;
  std::string title;          ///< empty: the environment describes no job
  std::string size_variable;  ///< the source of `size`
  int rank = 0;
  int size = 1;
  std::optional<int> ranks_here;           ///< processes of the job on this host
  std::optional<bool> spans_hosts;         ///< the job has processes on other hosts
  bool is_hydra = false, is_flux = false;  ///< their MPIs speak PMI-1, Slurm's may speak PMI-2

  /// The innermost launcher counts: mpiexec hides the batch system that it runs in.
  static Launcher of_environment();
};

/// A whole number in the environment; nothing: the variable is not set, or holds another text.
std::optional<int> number_in_environment(const char* variable);

/// The end of each message to a native program that can't find its peers through its launcher.
inline constexpr const char* kJoinRemedy =
    "; remedy: start it by larklane launch, Hydra's mpiexec, srun --mpi=pmix or --mpi=pmi2, flux "
    "run, or with LARKLANE_RANK, LARKLANE_SIZE, LARKLANE_JOB and LARKLANE_MEET; a process that is "
    "alone says so by LARKLANE_SIZE=1";

}  // namespace larklane::boot
