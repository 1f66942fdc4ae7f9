#pragma once
// The processes of a job as the program itself knows them, passed to Context::create().
// Thread safety: immutable.

#include <cstddef>
#include <functional>

/// How a native program tells the library its processes.
namespace larklane::boot {

/// Rank, size and an all-gather that the program supplies.
struct Peers {
  int rank = 0;  ///< of this process, below `size`
  int size = 1;  ///< number of processes, >= 1
  /// Collective over all processes of the job, called by all in the same order. Each passes `bytes`
  /// bytes at `own`, the same number everywhere, and receives those of rank 0, 1, ... one after the
  /// other at `all`: size * bytes bytes. The call may block; the library sets no deadline for it.
  /// It returns false on failure; the library's call that needed it then fails.
  std::function<bool(const void* own, std::size_t bytes, void* all)> all_gather;
};

}  // namespace larklane::boot
