#pragma once
// Partitioned communication for all benchmarks. An MPI may not have it: then its calls are null,
// unless Larklane is preloaded.

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "measure/options.hpp"

// Every file that calls them needs this: one strong reference would need a definition.
#pragma weak MPI_Psend_init
#pragma weak MPI_Precv_init
#pragma weak MPI_Pready
#pragma weak MPI_Pready_range
#pragma weak MPI_Parrived

namespace larklane::bench {

/// True if this way needs partitioned calls.
inline bool is_partitioned(std::string_view way) {
  constexpr std::string_view kWays[] = {"partitioned", "surprise", "pready", "contended", "marks",
                                        "parrived",    "turn",     "move",   "first"};
  return std::ranges::find(kWays, way) != std::end(kWays);
}

/// @return why the way can't be measured; empty if it can
inline std::string missing(const std::string& way) {
  return is_partitioned(way) && MPI_Psend_init == nullptr ? "this MPI has no partitioned calls"
                                                          : "";
}

/// One end of a message.
struct PartitionedEnd {
  std::byte* data;
  std::uint64_t bytes;  ///< a multiple of `partitions`
  std::uint32_t partitions;
  int peer, tag;
  bool is_sent;
  MPI_Comm comm = MPI_COMM_WORLD;
};

/// @return inactive; the caller frees it
inline MPI_Request make_partitioned(const PartitionedEnd& end) {
  const auto partitions = static_cast<int>(end.partitions);
  const auto count = static_cast<MPI_Count>(end.bytes / end.partitions);
  MPI_Request request = MPI_REQUEST_NULL;
  if (end.is_sent)
    MPI_Psend_init(end.data, partitions, count, MPI_BYTE, end.peer, end.tag, end.comm,
                   MPI_INFO_NULL, &request);
  else
    MPI_Precv_init(end.data, partitions, count, MPI_BYTE, end.peer, end.tag, end.comm,
                   MPI_INFO_NULL, &request);
  return request;
}

/// True if the request claims to be complete. The request stays active: one that completes too
/// early still goes on to its end.
inline bool is_complete(MPI_Request request) {
  int flag = 0;
  MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
  return flag != 0;
}

/// A request of the MPI's own calls. Thread safety: several threads may call ready() and arrived(),
/// each for its own partitions; all else is single-owner.
class MpiRequest {
 public:
  explicit MpiRequest(const PartitionedEnd& end, const Options& = {})
      : request_(make_partitioned(end)) {}
  ~MpiRequest() { MPI_Request_free(&request_); }
  MpiRequest(const MpiRequest&) = delete;
  MpiRequest& operator=(const MpiRequest&) = delete;

  void start() { MPI_Start(&request_); }
  void ready(std::uint32_t partition) { MPI_Pready(static_cast<int>(partition), request_); }
  bool arrived(std::uint32_t partition) {
    int flag = 0;
    MPI_Parrived(request_, static_cast<int>(partition), &flag);
    return flag != 0;
  }
  void wait() { MPI_Wait(&request_, MPI_STATUS_IGNORE); }
  bool test() {
    int flag = 0;
    MPI_Test(&request_, &flag, MPI_STATUS_IGNORE);
    return flag != 0;
  }
  bool is_complete() { return bench::is_complete(request_); }

 private:
  MPI_Request request_;
};

}  // namespace larklane::bench
