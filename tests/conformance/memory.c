// I10: unknown info keys are ignored; I8, C3: buffers from MPI_Alloc_mem, also when a key asks for
// memory that peers may map.
#include "case.h"

enum { kTag = 8, kPartitions = 8, kRounds = 6 };

static unsigned char* allocate(size_t bytes, const char* key) {
  void* memory = NULL;
  MPI_Info info;
  MUST(MPI_Info_create(&info));
  MUST(MPI_Info_set(info, key, "true"));
  MUST(MPI_Alloc_mem((MPI_Aint)bytes, info, &memory));
  MUST(MPI_Info_free(&info));
  return memory;
}

/// Both sides' buffers, or only one side's, from MPI_Alloc_mem with the key; a vector type in every
/// other exchange.
static void exchange(size_t bytes, bool send_mapped, bool receive_mapped) {
  const bool mapped = my_rank == 0 ? send_mapped : receive_mapped;
  unsigned char* data = allocate(bytes + 1, mapped ? "larklane_mapped" : "no_such_key");
  const MPI_Count part = (MPI_Count)(bytes / kPartitions);
  MPI_Request request = my_rank == 0 ? psend(data, kPartitions, part, MPI_BYTE, 1, kTag, comm)
                                     : precv(data, kPartitions, part, MPI_BYTE, 0, kTag, comm);
  data[bytes] = 77;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    if (my_rank == 0) fill(data, bytes, 5, round);
    start(&request);
    if (my_rank == 0) ready_all(request, kPartitions);
    complete(&request);
    EXPECT_STREAM(data, bytes, 5, round);
  }
  EXPECT(data[bytes] == 77, "the byte behind the buffer was written");
  drop(&request);
  MUST(MPI_Free_mem(data));
}

CASE(I10_mapped_memory_by_info_key, .ranks = 2) {
  static const size_t kSizes[] = {64, 65536, 4 << 20};
  for (int size = 0; size < 3; ++size) {
    for (int sides = 0; sides < 4; ++sides) exchange(kSizes[size], sides & 1, sides & 2);
  }
}
