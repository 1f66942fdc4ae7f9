#pragma once
// A request of partitioned communication, as every benchmark makes it.

#include <mpi.h>

#include <cstddef>
#include <cstdint>

namespace larklane::bench {

/// One end of a message.
struct PartitionedEnd {
  std::byte* data;
  std::uint64_t bytes;  ///< a multiple of `partitions`
  std::uint32_t partitions;
  int peer, tag;
  bool is_sent;
};

/// @return inactive; the caller's to free
inline MPI_Request make_partitioned(const PartitionedEnd& end) {
  const auto partitions = static_cast<int>(end.partitions);
  const auto count = static_cast<MPI_Count>(end.bytes / end.partitions);
  MPI_Request request = MPI_REQUEST_NULL;
  if (end.is_sent)
    MPI_Psend_init(end.data, partitions, count, MPI_BYTE, end.peer, end.tag, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &request);
  else
    MPI_Precv_init(end.data, partitions, count, MPI_BYTE, end.peer, end.tag, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &request);
  return request;
}

}  // namespace larklane::bench
