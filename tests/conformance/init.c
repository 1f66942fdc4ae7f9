// Initialization: local, matched in order among partitioned calls only, and the meaning of its
// arguments.
#include <stdlib.h>
#include <string.h>

#include "case.h"

enum { kTag = 7 };

// The pointer types require that count is an MPI_Count (rule I11): they would not compile
// otherwise.
static int (*const psend_init)(const void*, int, MPI_Count, MPI_Datatype, int, int, MPI_Comm,
                               MPI_Info, MPI_Request*) = MPI_Psend_init;
static int (*const precv_init)(void*, int, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Info,
                               MPI_Request*) = MPI_Precv_init;

CASE(I1_send_side_needs_no_peer, .ranks = 2, .traits = kEveryLevel) {
  enum { kPartitions = 4, kBytes = 1024 };
  unsigned char data[kPartitions * kBytes];
  if (my_rank == 0) {
    fill(data, sizeof(data), 1, 1);
    const double begin = now_s();
    MPI_Request request = psend(data, kPartitions, kBytes, MPI_BYTE, 1, kTag, comm);
    start(&request);
    ready_all(request, kPartitions);
    const double took = now_s() - begin;
    EXPECT(peek(0) == 0, "the peer has initialized before this side came back");
    EXPECT(took < 0.4, "init, start and pready took %.3f s while the peer slept", took);
    complete(&request);
    drop(&request);
  } else {
    pause_s(1);
    post(0, 1);
    MPI_Request request = precv(data, kPartitions, kBytes, MPI_BYTE, 0, kTag, comm);
    start(&request);
    complete(&request);
    EXPECT_STREAM(data, sizeof(data), 1, 1);
    drop(&request);
  }
}

CASE(I1_receive_side_needs_no_peer, .ranks = 2) {
  enum { kPartitions = 4, kBytes = 1024 };
  unsigned char data[kPartitions * kBytes];
  if (my_rank == 1) {
    const double begin = now_s();
    MPI_Request request = precv(data, kPartitions, kBytes, MPI_BYTE, 0, kTag, comm);
    start(&request);
    EXPECT(!arrived(request, 0), "a partition arrived that nobody has sent");
    EXPECT(!tested(&request), "it completed without a sender");
    const double took = now_s() - begin;
    EXPECT(took < 0.25, "init, start and test took %.3f s while the peer slept", took);
    complete(&request);
    EXPECT_STREAM(data, sizeof(data), 1, 1);
    drop(&request);
  } else {
    pause_s(0.5);
    fill(data, sizeof(data), 1, 1);
    MPI_Request request = psend(data, kPartitions, kBytes, MPI_BYTE, 1, kTag, comm);
    start(&request);
    ready_all(request, kPartitions);
    complete(&request);
    drop(&request);
  }
}

CASE(I2_equal_tags_match_in_init_order, .ranks = 2, .traits = kSessions) {
  enum { kRequests = 6, kBytes = 256 };
  unsigned char data[kRequests][kBytes];
  MPI_Request request[kRequests];
  if (my_rank == 0) {
    for (int i = 0; i < kRequests; ++i) {
      fill(data[i], kBytes, (uint64_t)i, 1);
      request[i] = psend(data[i], 2, kBytes / 2, MPI_BYTE, 1, kTag, comm);
    }
    for (int i = kRequests - 1; i >= 0; --i) {  // the order of start and pready must not matter
      start(&request[i]);
      ready_all(request[i], 2);
    }
  } else {
    for (int i = 0; i < kRequests; ++i) {
      request[i] = precv(data[i], 1, kBytes, MPI_BYTE, 0, kTag, comm);
    }
    for (int i = 0; i < kRequests; ++i) start(&request[(i + 3) % kRequests]);
  }
  MUST(MPI_Waitall(kRequests, request, MPI_STATUSES_IGNORE));
  for (int i = 0; i < kRequests; ++i) {
    if (my_rank == 1) EXPECT_STREAM(data[i], kBytes, (uint64_t)i, 1);
    drop(&request[i]);
  }
}

CASE(I2_tags_separate, .ranks = 2) {
  enum { kRequests = 4, kBytes = 64 };
  unsigned char data[kRequests][kBytes];
  MPI_Request request[kRequests];
  for (int i = 0; i < kRequests; ++i) {  // the receiver initializes in the opposite order
    const int t = my_rank == 0 ? i : kRequests - 1 - i;
    if (my_rank == 0) fill(data[t], kBytes, (uint64_t)t, 1);
    request[t] = my_rank == 0 ? psend(data[t], 4, kBytes / 4, MPI_BYTE, 1, 100 + t, comm)
                              : precv(data[t], 2, kBytes / 2, MPI_BYTE, 0, 100 + t, comm);
    start(&request[t]);
  }
  for (int i = 0; i < kRequests; ++i) {
    if (my_rank == 0) ready_all(request[i], 4);
  }
  MUST(MPI_Waitall(kRequests, request, MPI_STATUSES_IGNORE));
  for (int i = 0; i < kRequests; ++i) {
    if (my_rank == 1) EXPECT_STREAM(data[i], kBytes, (uint64_t)i, 1);
    drop(&request[i]);
  }
}

CASE(I2_largest_tag, .ranks = 2) {
  int* tag_ub;
  int found;
  MUST(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &found));
  int sent = 4711, got = 0;
  MPI_Request request = my_rank == 0 ? psend(&sent, 1, 1, MPI_INT, 1, *tag_ub, comm)
                                     : precv(&got, 1, 1, MPI_INT, 0, *tag_ub, comm);
  start(&request);
  if (my_rank == 0) ready(request, 0);
  complete(&request);
  EXPECT_DATA(my_rank == 0 || got == sent, "expected %d, found %d", sent, got);
  drop(&request);
}

CASE(I2_sources_separate, .ranks = 3) {
  enum { kBytes = 128 };
  unsigned char data[2][kBytes];
  MPI_Request request[2];
  if (my_rank == 0) {
    for (int i = 1; i >= 0; --i) {
      request[i] = precv(data[i], 2, kBytes / 2, MPI_BYTE, i + 1, kTag, comm);
      start(&request[i]);
    }
    MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
    for (int i = 0; i < 2; ++i) {
      EXPECT_STREAM(data[i], kBytes, (uint64_t)i + 1, 1);
      drop(&request[i]);
    }
  } else {
    fill(data[0], kBytes, (uint64_t)my_rank, 1);
    request[0] = psend(data[0], 1, kBytes, MPI_BYTE, 0, kTag, comm);
    start(&request[0]);
    ready(request[0], 0);
    complete(&request[0]);
    drop(&request[0]);
  }
}

CASE(I3_plain_receive_and_probe_see_no_setup, .ranks = 2) {
  int value = 0, flag = 0, plain = 99;
  MPI_Status status;
  MPI_Request request, receive;
  if (my_rank == 0) {
    value = 41;
    request = psend(&value, 1, 1, MPI_INT, 1, kTag, comm);
    start(&request);
    ready(request, 0);
    post(0, 1);
    await(1, 1, 5);
    MUST(MPI_Send(&plain, 1, MPI_INT, 1, kTag, comm));
  } else {
    MUST(MPI_Irecv(&plain, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &receive));
    plain = 0;
    await(0, 1, 5);
    for (int i = 0; i < 200; ++i) {
      MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status));
      EXPECT(!flag, "MPI_Iprobe sees a message of the library");
      MUST(MPI_Test(&receive, &flag, &status));
      EXPECT(!flag, "a plain receive took a message of the library");
      if (flag) break;
    }
    request = precv(&value, 1, 1, MPI_INT, 0, kTag, comm);
    start(&request);
    post(1, 1);
    if (!flag) MUST(MPI_Wait(&receive, &status));
    EXPECT_DATA(plain == 99, "the plain receive got %d", plain);
  }
  complete(&request);
  EXPECT_DATA(value == 41, "the partitioned receive got %d", value);
  drop(&request);
}

CASE(I3_plain_send_is_not_matched, .ranks = 2) {
  int value = 0, plain = 0;
  MPI_Request request;
  if (my_rank == 0) {
    plain = 12;
    value = 13;
    MUST(MPI_Send(&plain, 1, MPI_INT, 1, kTag, comm));
    request = psend(&value, 1, 1, MPI_INT, 1, kTag, comm);
    start(&request);
    ready(request, 0);
    complete(&request);
  } else {
    request = precv(&value, 1, 1, MPI_INT, 0, kTag, comm);
    start(&request);
    complete(&request);
    MUST(MPI_Recv(&plain, 1, MPI_INT, 0, kTag, comm, MPI_STATUS_IGNORE));
    EXPECT_DATA(plain == 12 && value == 13, "expected 12 and 13, found %d and %d", plain, value);
  }
  drop(&request);
}

CASE(I3_persistent_requests_are_not_matched, .ranks = 2) {
  enum { kRounds = 5 };
  int value[2] = {0, 0};
  MPI_Request request[2];
  if (my_rank == 0) {
    MUST(MPI_Send_init(&value[0], 1, MPI_INT, 1, kTag, comm, &request[0]));
    request[1] = psend(&value[1], 1, 1, MPI_INT, 1, kTag, comm);
  } else {
    request[1] = precv(&value[1], 1, 1, MPI_INT, 0, kTag, comm);
    MUST(MPI_Recv_init(&value[0], 1, MPI_INT, 0, kTag, comm, &request[0]));
  }
  for (int round = 1; round <= kRounds; ++round) {
    if (my_rank == 0) {
      value[0] = 10 * round;
      value[1] = 10 * round + 1;
    }
    MUST(MPI_Startall(2, request));
    if (my_rank == 0) ready(request[1], 0);
    MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
    EXPECT_DATA(value[0] == 10 * round && value[1] == 10 * round + 1,
                "round %d: persistent %d, partitioned %d", round, value[0], value[1]);
  }
  for (int i = 0; i < 2; ++i) drop(&request[i]);
}

CASE(I4_any_source_is_refused, .ranks = 2) {
  int value;
  MPI_Request request = MPI_REQUEST_NULL;
  EXPECT_ERROR(
      MPI_Precv_init(&value, 1, 1, MPI_INT, MPI_ANY_SOURCE, kTag, comm, MPI_INFO_NULL, &request),
      MPI_ERR_RANK);
}

CASE(I4_any_tag_is_refused, .ranks = 2) {
  int value;
  MPI_Request request = MPI_REQUEST_NULL;
  EXPECT_ERROR(
      MPI_Precv_init(&value, 1, 1, MPI_INT, my_peer, MPI_ANY_TAG, comm, MPI_INFO_NULL, &request),
      MPI_ERR_TAG);
  EXPECT_ERROR(
      MPI_Psend_init(&value, 1, 1, MPI_INT, my_peer, MPI_ANY_TAG, comm, MPI_INFO_NULL, &request),
      MPI_ERR_TAG);
}

CASE(I5_partitions_must_be_positive, .ranks = 2) {
  int value = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  for (int partitions = 0; partitions >= -1; --partitions) {
    EXPECT_ERROR(MPI_Psend_init(&value, partitions, 1, MPI_INT, my_peer, kTag, comm, MPI_INFO_NULL,
                                &request),
                 MPI_ERR_ARG);
    EXPECT_ERROR(MPI_Precv_init(&value, partitions, 1, MPI_INT, my_peer, kTag, comm, MPI_INFO_NULL,
                                &request),
                 MPI_ERR_ARG);
  }
}

static void zero_bytes(void* buffer) {
  enum { kRounds = 3 };
  MPI_Request request = my_rank == 0 ? psend(buffer, 3, 0, MPI_DOUBLE, 1, kTag, comm)
                                     : precv(buffer, 5, 0, MPI_DOUBLE, 0, kTag, comm);
  for (int round = 0; round < kRounds; ++round) {
    start(&request);
    EXPECT(!tested(&request), "round %d completed before every pready", round);
    MPI_Barrier(world);
    if (my_rank == 0) {
      ready_all(request, 3);
      complete(&request);
    } else {
      for (int i = 0; i < 5; ++i) EXPECT(arrives(request, i, 5), "partition %d never arrived", i);
      MPI_Status status;
      MUST(MPI_Wait(&request, &status));
      int count = -1;
      MUST(MPI_Get_count(&status, MPI_DOUBLE, &count));
      EXPECT(count == 0, "the status of the receive says %d elements", count);
    }
  }
  drop(&request);
}

CASE(I6_count_zero, .ranks = 2) {
  double value = 1;
  zero_bytes(&value);
}

CASE(I6_count_zero_null_buffer, .ranks = 2) { zero_bytes(NULL); }

CASE(I6_negative_count_is_refused, .ranks = 2) {
  int value = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  EXPECT_ERROR(psend_init(&value, 1, -4, MPI_INT, my_peer, kTag, comm, MPI_INFO_NULL, &request),
               MPI_ERR_COUNT);
  EXPECT_ERROR(precv_init(&value, 1, -4, MPI_INT, my_peer, kTag, comm, MPI_INFO_NULL, &request),
               MPI_ERR_COUNT);
}

CASE(I6_count_is_per_partition, .ranks = 2) {
  enum { kPartitions = 5, kCount = 3, kInts = kPartitions * kCount };
  int* data = guarded(kInts * sizeof(int));
  if (my_rank == 0) {
    for (int i = 0; i < kInts; ++i) data[i] = 1000 + i;
  }
  MPI_Request request = my_rank == 0 ? psend(data, kPartitions, kCount, MPI_INT, 1, kTag, comm)
                                     : precv(data, kPartitions, kCount, MPI_INT, 0, kTag, comm);
  start(&request);
  if (my_rank == 0) ready_all(request, kPartitions);
  complete(&request);
  for (int i = 0; i < kInts; ++i) {
    EXPECT_DATA(data[i] == 1000 + i, "element %d: expected %d, found %d", i, 1000 + i, data[i]);
  }
  check_guards(data, kInts * sizeof(int));
  drop(&request);
  release_guarded(data);
}

CASE(I10_info_null_and_unknown_keys, .ranks = 2) {
  MPI_Info info;
  MUST(MPI_Info_create(&info));
  MUST(MPI_Info_set(info, "some_vendor_key", "some value"));
  MUST(MPI_Info_set(info, "mpi_optimization_goal", "123"));
  int value = my_rank == 0 ? 5 : 0;
  MPI_Request request = MPI_REQUEST_NULL;
  if (my_rank == 0) {
    MUST(MPI_Psend_init(&value, 1, 1, MPI_INT, 1, kTag, comm, info, &request));
  } else {
    MUST(MPI_Precv_init(&value, 1, 1, MPI_INT, 0, kTag, comm, info, &request));
  }
  MUST(MPI_Info_free(&info));
  start(&request);
  if (my_rank == 0) ready(request, 0);
  complete(&request);
  EXPECT_DATA(value == 5, "expected 5, found %d", value);
  drop(&request);
}

CASE(I11_count_is_mpi_count, .ranks = 2) {
  enum { kBytes = 4096 };
  unsigned char data[kBytes];
  const MPI_Count count = kBytes / 4;
  MPI_Request request = MPI_REQUEST_NULL;
  if (my_rank == 0) {
    fill(data, kBytes, 1, 1);
    MUST(psend_init(data, 4, count, MPI_BYTE, 1, kTag, comm, MPI_INFO_NULL, &request));
    start(&request);
    ready_all(request, 4);
  } else {
    MUST(precv_init(data, 4, count, MPI_BYTE, 0, kTag, comm, MPI_INFO_NULL, &request));
    start(&request);
  }
  complete(&request);
  if (my_rank == 1) EXPECT_STREAM(data, kBytes, 1, 1);
  drop(&request);
}

CASE(I12_send_to_proc_null, .ranks = 2) {
  double value[8] = {0};
  MPI_Request request = psend(value, 8, 1, MPI_DOUBLE, MPI_PROC_NULL, kTag, comm);
  for (int round = 0; round < 3; ++round) {
    start(&request);
    step("marking partitions of a send to MPI_PROC_NULL");
    ready(request, 3);
    MUST(MPI_Pready_range(4, 7, request));
    MUST(MPI_Pready_list(3, (int[]){2, 0, 1}, request));
    step("waiting for a send to MPI_PROC_NULL");
    if (round == 1) {
      EXPECT(tested(&request), "MPI_Test of a send to MPI_PROC_NULL says false");
    } else {
      complete(&request);
    }
  }
  drop(&request);
}

CASE(I12_receive_from_proc_null, .ranks = 2) {
  double value[8] = {0};
  MPI_Request request = precv(value, 8, 1, MPI_DOUBLE, MPI_PROC_NULL, kTag, comm);
  for (int round = 0; round < 3; ++round) {
    start(&request);
    EXPECT(arrived(request, 5), "MPI_Parrived says false");
    MPI_Status status;
    int count = -1;
    MUST(MPI_Wait(&request, &status));
    MUST(MPI_Get_count(&status, MPI_DOUBLE, &count));
    EXPECT(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG && count == 0,
           "status: source %d, tag %d, count %d", status.MPI_SOURCE, status.MPI_TAG, count);
  }
  drop(&request);
}

CASE(I12_proc_null_in_arrays, .ranks = 2) {
  int value = my_rank == 0 ? 3 : 0, other[2] = {0, 0};
  MPI_Request request[3] = {
      psend(&other[0], 1, 1, MPI_INT, MPI_PROC_NULL, kTag, comm),
      my_rank == 0 ? psend(&value, 1, 1, MPI_INT, 1, kTag, comm)
                   : precv(&value, 1, 1, MPI_INT, 0, kTag, comm),
      precv(&other[1], 1, 1, MPI_INT, MPI_PROC_NULL, kTag, comm),
  };
  MUST(MPI_Startall(3, request));
  ready(request[0], 0);
  if (my_rank == 0) ready(request[1], 0);
  MUST(MPI_Waitall(3, request, MPI_STATUSES_IGNORE));
  EXPECT_DATA(value == 3, "expected 3, found %d", value);
  for (int i = 0; i < 3; ++i) drop(&request[i]);
}
