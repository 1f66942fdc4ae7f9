#pragma once
// All ranks of an MPI.

#include <mpi.h>

#include <cstddef>
#include <vector>

#include "wait.hpp"

namespace larklane::bench {

/// Thread safety: single-owner.
class MpiRanks {
 public:
  MpiRanks() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  std::vector<double> gather(double mine) const {
    std::vector<double> all(static_cast<std::size_t>(size_));
    MPI_Request request;
    MPI_Iallgather(&mine, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, MPI_COMM_WORLD, &request);
    wait_for(&request);
    return all;
  }

 private:
  int rank_ = 0, size_ = 0;
};

/// Polls until all requests are complete; yields in between if `yields`.
inline void wait_for_all(std::vector<MPI_Request>& requests, bool yields) {
  const int count = static_cast<int>(requests.size());
  if (!yields) {
    MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE);
    return;
  }
  wait_until([&] {
    int flag = 0;
    MPI_Testall(count, requests.data(), &flag, MPI_STATUSES_IGNORE);
    return flag != 0;
  });
}

}  // namespace larklane::bench
