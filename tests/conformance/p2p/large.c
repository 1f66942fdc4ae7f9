// Calls with counts of type MPI_Count, and counts that no int holds.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "messages.h"

enum { kTag = 151 };

#if CASE_HAS_LARGE_COUNTS
static const MPI_Count kHuge = (MPI_Count)5 << 30;

/// Address space for `bytes` bytes without memory behind it.
static void* address_space(MPI_Count bytes) {
  void* all = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(all != MAP_FAILED, "no address space for %lld bytes", (long long)bytes);
  return all;
}

static void expect_bytes(const MPI_Status* status, MPI_Count bytes) {
  MPI_Count count = -1;
  MUST(MPI_Get_count_c(status, MPI_BYTE, &count));
  EXPECT(count == bytes, "count %lld, expected %lld", (long long)count, (long long)bytes);
}

/// Each sending call with MPI_Count; the receiver has a buffer of 5 GiB, none of it touched.
static void each_send(const unsigned char* data, MPI_Count n) {
  MPI_Request r;
  MUST(MPI_Send_c(data, n, MPI_BYTE, 1, kTag, comm));
  MUST(MPI_Ssend_c(data, n, MPI_BYTE, 1, kTag, comm));
  MUST(MPI_Bsend_c(data, n, MPI_BYTE, 1, kTag, comm));
  MUST(MPI_Isend_c(data, n, MPI_BYTE, 1, kTag, comm, &r));
  complete(&r);
  MUST(MPI_Issend_c(data, n, MPI_BYTE, 1, kTag, comm, &r));
  complete(&r);
  MUST(MPI_Ibsend_c(data, n, MPI_BYTE, 1, kTag, comm, &r));
  complete(&r);
  MUST(MPI_Send_init_c(data, n, MPI_BYTE, 1, kTag, comm, &r));
  MUST(MPI_Start(&r));
  complete(&r);
  drop(&r);
  MUST(MPI_Ssend_init_c(data, n, MPI_BYTE, 1, kTag, comm, &r));
  MUST(MPI_Start(&r));
  complete(&r);
  drop(&r);
  MUST(MPI_Bsend_init_c(data, n, MPI_BYTE, 1, kTag, comm, &r));
  MUST(MPI_Start(&r));
  complete(&r);
  drop(&r);
  MUST(MPI_Sendrecv_c(data, n, MPI_BYTE, 1, kTag, NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, comm,
                      MPI_STATUS_IGNORE));
}

static void receive_by(int way, unsigned char* data, MPI_Status* status) {
  MPI_Request r = MPI_REQUEST_NULL;
  MPI_Message message;
  switch (way % 5) {
    case 0:
      MUST(MPI_Recv_c(data, kHuge, MPI_BYTE, 0, kTag, comm, status));
      return;
    case 1:
      MUST(MPI_Irecv_c(data, kHuge, MPI_BYTE, 0, kTag, comm, &r));
      MUST(MPI_Wait(&r, status));
      return;
    case 2:
      MUST(MPI_Recv_init_c(data, kHuge, MPI_BYTE, 0, kTag, comm, &r));
      MUST(MPI_Start(&r));
      MUST(MPI_Wait(&r, status));
      drop(&r);
      return;
    case 3:
      MUST(MPI_Mprobe(0, kTag, comm, &message, MPI_STATUS_IGNORE));
      MUST(MPI_Mrecv_c(data, kHuge, MPI_BYTE, &message, status));
      return;
    default:
      MUST(MPI_Mprobe(0, kTag, comm, &message, MPI_STATUS_IGNORE));
      MUST(MPI_Imrecv_c(data, kHuge, MPI_BYTE, &message, &r));
      MUST(MPI_Wait(&r, status));
  }
}
#endif

CASE(LC1_short_messages_by_calls_with_large_counts, .ranks = 2) {
#if CASE_HAS_LARGE_COUNTS
  enum { kBytes = 1000, kSends = 10 };
  if (my_rank == 0) {
    unsigned char data[kBytes];
    MPI_Count size = 0;
    MUST(MPI_Pack_size_c(kBytes, MPI_BYTE, comm, &size));
    size = 3 * (size + MPI_BSEND_OVERHEAD);
    void *space = memory((size_t)size), *back = NULL;
    fill(data, kBytes, 91, 0);
    MUST(MPI_Buffer_attach_c(space, size));
    each_send(data, kBytes);
    MUST(MPI_Buffer_detach_c(&back, &size));
    EXPECT(back == space, "another buffer was detached");
    free(space);
  } else {
    unsigned char* data = address_space(kHuge);
    for (int i = 0; i < kSends; ++i) {
      MPI_Status status;
      memset(data, 0, kBytes);
      receive_by(i, data, &status);
      expect_bytes(&status, kBytes);
      EXPECT_STATUS(&status, 0, kTag, kBytes);
      EXPECT_STREAM(data, kBytes, 91, 0);
    }
    munmap(data, (size_t)kHuge);
  }
#else
  case_skip("MPI before 4.0");
#endif
}

/// Billions of elements of no bytes.
CASE(LC2_five_billion_empty_elements, .ranks = 2) {
#if CASE_HAS_LARGE_COUNTS
  MPI_Datatype empty;
  int value = 6;
  MUST(MPI_Type_contiguous(0, MPI_INT, &empty));
  MUST(MPI_Type_commit(&empty));
  if (my_rank == 0) {
    MUST(MPI_Send_c(&value, kHuge, empty, 1, kTag, comm));
  } else {
    MPI_Status status;
    MUST(MPI_Recv_c(&value, kHuge, empty, 0, kTag, comm, &status));
    EXPECT_STATUS(&status, 0, kTag, 0);
    EXPECT_DATA(value == 6, "an empty message wrote %d", value);
  }
  MUST(MPI_Type_free(&empty));
#else
  case_skip("MPI before 4.0");
#endif
}

CASE(LC2_counts_above_int_in_a_status, .ranks = 2) {
#if CASE_HAS_STATUS_ALL
  MPI_Status status;
  MPI_Count count = 0;
  int little = 0;
  memset(&status, 0, sizeof(status));
  MUST(MPI_Status_set_elements_c(&status, MPI_BYTE, kHuge));
  expect_bytes(&status, kHuge);
  MUST(MPI_Get_elements_c(&status, MPI_INT, &count));
  EXPECT(count == kHuge / 4, "%lld integers", (long long)count);
  MUST(MPI_Get_elements_x(&status, MPI_BYTE, &count));
  EXPECT(count == kHuge, "%lld bytes", (long long)count);
  MUST(MPI_Get_count(&status, MPI_BYTE, &little));
  EXPECT(little == MPI_UNDEFINED, "a count that int does not hold became %d", little);
#else
  case_skip("MPI before 4.1");
#endif
}

CASE(LC2_exchanges_with_large_counts, .ranks = 2) {
#if CASE_HAS_LARGE_COUNTS
  enum { kBytes = 5000 };
  unsigned char out[kBytes], *in = address_space(kHuge);
  MPI_Request request;
  MPI_Status status;
  fill(out, kBytes, 92, (uint64_t)my_rank);
  MUST(MPI_Sendrecv_c(out, kBytes, MPI_BYTE, my_peer, kTag, in, kHuge, MPI_BYTE, my_peer, kTag,
                      comm, &status));
  expect_bytes(&status, kBytes);
  EXPECT_STREAM(in, kBytes, 92, (uint64_t)my_peer);
  MUST(MPI_Sendrecv_replace_c(in, kBytes, MPI_BYTE, my_peer, kTag, my_peer, kTag, comm, &status));
  EXPECT_STREAM(in, kBytes, 92, (uint64_t)my_rank);
  MUST(MPI_Isendrecv_c(out, kBytes, MPI_BYTE, my_peer, kTag, in, kHuge, MPI_BYTE, my_peer, kTag,
                       comm, &request));
  complete(&request);
  EXPECT_STREAM(in, kBytes, 92, (uint64_t)my_peer);
  MUST(MPI_Isendrecv_replace_c(in, kBytes, MPI_BYTE, my_peer, kTag, my_peer, kTag, comm, &request));
  complete(&request);
  EXPECT_STREAM(in, kBytes, 92, (uint64_t)my_rank);
  munmap(in, (size_t)kHuge);
#else
  case_skip("MPI before 4.0");
#endif
}

CASE(LC2_negative_large_counts, .ranks = 2) {
#if CASE_HAS_LARGE_COUNTS
  int value = 0;
  MPI_Request request;
  EXPECT_ERROR(MPI_Send_c(&value, -kHuge, MPI_BYTE, my_peer, kTag, comm), MPI_ERR_COUNT);
  EXPECT_ERROR(MPI_Irecv_c(&value, -1, MPI_BYTE, my_peer, kTag, comm, &request), MPI_ERR_COUNT);
#else
  case_skip("MPI before 4.0");
#endif
}

/// Three gibibytes, by a type of 1 MiB elements where the MPI has no large counts.
CASE(LC3_three_gibibytes, .ranks = 2, .traits = kBig, .deadline_s = 120) {
  const size_t element = 1 << 20, elements = 3 << 10, bytes = element * elements;
  MPI_Datatype type;
  unsigned char* data = memory(bytes);
  MUST(MPI_Type_contiguous((int)element, MPI_BYTE, &type));
  MUST(MPI_Type_commit(&type));
  if (my_rank == 0) {
    fill(data, bytes, 93, 0);
    MUST(MPI_Send(data, (int)elements, type, 1, kTag, comm));
  } else {
    MPI_Status status;
    MPI_Count count = 0;
    MUST(MPI_Recv(data, (int)elements, type, 0, kTag, comm, &status));
    MUST(MPI_Get_elements_x(&status, MPI_BYTE, &count));
    EXPECT(count == (MPI_Count)bytes, "%lld bytes", (long long)count);
    EXPECT_STREAM(data, bytes, 93, 0);
  }
  MUST(MPI_Type_free(&type));
  free(data);
}
