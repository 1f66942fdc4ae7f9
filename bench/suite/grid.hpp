#pragma once
// Ranks in a plane or a box; ranks at the sides have no neighbours beyond them.

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace larklane::bench {

/// Thread safety: immutable.
class Grid {
 public:
  Grid(int ranks, std::size_t axes) : sides_(axes) {
    MPI_Dims_create(ranks, static_cast<int>(axes), sides_.data());
  }

  /// Ranks along each axis.
  const std::vector<int>& sides() const noexcept { return sides_; }

  /// @param step  1 or -1   @return MPI_PROC_NULL beyond the edge
  int neighbour(int rank, std::size_t axis, int step) const {
    int stride = 1;
    for (std::size_t a = axis + 1; a < sides_.size(); ++a) stride *= sides_[a];
    const int place = rank / stride % sides_[axis] + step;
    return place < 0 || place >= sides_[axis] ? MPI_PROC_NULL : rank + step * stride;
  }

  int neighbours(int rank) const {
    int count = 0;
    for (std::size_t axis = 0; axis < sides_.size(); ++axis)
      for (const int step : {-1, 1}) count += neighbour(rank, axis, step) != MPI_PROC_NULL;
    return count;
  }

 private:
  std::vector<int> sides_;
};

}  // namespace larklane::bench
