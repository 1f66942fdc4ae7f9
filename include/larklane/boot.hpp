#pragma once
// For programs that know their processes by means of their own: what the library has to be told.
// Thread safety: immutable.

#include <cstddef>
#include <functional>

namespace larklane::boot {

/// The processes of a job, as the program itself knows them.
struct Peers {
  int rank = 0;  ///< of this process, below `size`
  int size = 1;
  /// Collective over all processes of the job, which call it in the same order: each gives `bytes`
  /// bytes at `own`, as many as every other, and gets those of rank 0, 1, ... one after the other
  /// at `all`, size * bytes. It may block; the library has no deadline for it.
  /// @return false: it has failed, and so does whatever needed it
  std::function<bool(const void* own, std::size_t bytes, void* all)> all_gather;
};

}  // namespace larklane::boot
