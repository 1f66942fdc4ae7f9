// Send-receive calls, messages to oneself, and the null process.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 101 };

static const int kBytes[] = {0, 8, 5000, 2 << 20};

CASE(SR1_sendrecv_around_a_ring, .ranks = 4, .traits = kEveryLevel | kSessions) {
  const int right = (my_rank + 1) % 4, left = (my_rank + 3) % 4;
  for (int i = 0; i < 4; ++i) {
    unsigned char *out = memory((size_t)kBytes[i]), *in = guarded((size_t)kBytes[i]);
    MPI_Status status;
    fill(out, (size_t)kBytes[i], 61, (uint64_t)my_rank);
    MUST(MPI_Sendrecv(out, kBytes[i], MPI_BYTE, right, kTag + my_rank, in, kBytes[i], MPI_BYTE,
                      left, MPI_ANY_TAG, comm, &status));
    EXPECT_STATUS(&status, left, kTag + left, kBytes[i]);
    EXPECT_STREAM(in, (size_t)kBytes[i], 61, (uint64_t)left);
    check_guards(in, (size_t)kBytes[i]);
    free(out);
    release_guarded(in);
  }
}

CASE(SR1_sendrecv_of_different_types_and_sizes, .ranks = 2) {
  int out[6] = {1, 2, 3, 4, 5, 6}, in[12];
  MPI_Datatype type;
  MPI_Status status;
  memset(in, 0, sizeof(in));
  MUST(MPI_Type_vector(6, 1, 2, MPI_INT, &type));
  MUST(MPI_Type_commit(&type));
  MUST(MPI_Sendrecv(out, my_rank == 0 ? 6 : 3, MPI_INT, my_peer, 1, in, 1, type, my_peer, 1, comm,
                    &status));
  EXPECT_STATUS(&status, my_peer, 1, my_rank == 0 ? 12 : 24);
  for (int i = 0; i < 12; ++i) {
    const int expected = i % 2 || i / 2 >= (my_rank == 0 ? 3 : 6) ? 0 : i / 2 + 1;
    EXPECT_DATA(in[i] == expected, "element %d: %d", i, in[i]);
  }
  MUST(MPI_Type_free(&type));
}

CASE(SR2_sendrecv_replace, .ranks = 4) {
  const int right = (my_rank + 1) % 4, left = (my_rank + 3) % 4;
  for (int i = 0; i < 4; ++i) {
    unsigned char *data = guarded((size_t)kBytes[i]);
    MPI_Status status;
    fill(data, (size_t)kBytes[i], 62, (uint64_t)my_rank);
    MUST(MPI_Sendrecv_replace(data, kBytes[i], MPI_BYTE, right, kTag, left, kTag, comm, &status));
    EXPECT_STATUS(&status, left, kTag, kBytes[i]);
    EXPECT_STREAM(data, (size_t)kBytes[i], 62, (uint64_t)left);
    check_guards(data, (size_t)kBytes[i]);
    release_guarded(data);
  }
}

CASE(SR2_sendrecv_replace_of_a_strided_type, .ranks = 2) {
  int data[20];
  MPI_Datatype type;
  MUST(MPI_Type_vector(10, 1, 2, MPI_INT, &type));
  MUST(MPI_Type_commit(&type));
  for (int i = 0; i < 20; ++i) data[i] = 100 * my_rank + i;
  MUST(MPI_Sendrecv_replace(data, 1, type, my_peer, kTag, my_peer, kTag, comm, MPI_STATUS_IGNORE));
  for (int i = 0; i < 20; ++i) {
    EXPECT_DATA(data[i] == 100 * (i % 2 ? my_rank : my_peer) + i, "element %d: %d", i, data[i]);
  }
  MUST(MPI_Type_free(&type));
}

CASE(SR3_sendrecv_matches_plain_calls, .ranks = 2) {
  for (int round = 0; round < 20; ++round) {
    if (my_rank == 0) {
      int in = -1, out = round;
      MUST(MPI_Sendrecv(&out, 1, MPI_INT, 1, kTag, &in, 1, MPI_INT, 1, kTag, comm,
                        MPI_STATUS_IGNORE));
      EXPECT_DATA(in == 2 * round, "round %d: %d", round, in);
    } else {
      MPI_Status status;
      MUST(MPI_Probe(0, kTag, comm, &status));
      EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == round, "round %d", round);
      send_int(2 * round, 0, kTag);
    }
  }
}

CASE(SR3_sendrecv_with_the_null_process, .ranks = 4) {
  const int right = my_rank < 3 ? my_rank + 1 : MPI_PROC_NULL;
  const int left = my_rank > 0 ? my_rank - 1 : MPI_PROC_NULL;
  int in = -1;
  MPI_Status status;
  MUST(MPI_Sendrecv(&my_rank, 1, MPI_INT, right, kTag, &in, 1, MPI_INT, left, kTag, comm, &status));
  EXPECT_DATA(in == (my_rank > 0 ? left : -1), "received %d", in);
  if (my_rank > 0) EXPECT_STATUS(&status, left, kTag, 4);
  if (my_rank == 0) EXPECT_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
}

CASE(SR4_isendrecv, .ranks = 4) {
#if CASE_HAS_ISENDRECV
  const int right = (my_rank + 1) % 4, left = (my_rank + 3) % 4;
  for (int i = 0; i < 4; ++i) {
    unsigned char *out = memory((size_t)kBytes[i]), *in = guarded((size_t)kBytes[i]);
    MPI_Request request;
    MPI_Status status;
    fill(out, (size_t)kBytes[i], 63, (uint64_t)my_rank);
    MUST(MPI_Isendrecv(out, kBytes[i], MPI_BYTE, right, kTag, in, kBytes[i], MPI_BYTE, left,
                       MPI_ANY_TAG, comm, &request));
    MUST(MPI_Wait(&request, &status));
    EXPECT_STATUS(&status, left, kTag, kBytes[i]);
    EXPECT_STREAM(in, (size_t)kBytes[i], 63, (uint64_t)left);
    check_guards(in, (size_t)kBytes[i]);
    free(out);
    release_guarded(in);
  }
#else
  case_skip("MPI before 4.0");
#endif
}

CASE(SR4_isendrecv_replace, .ranks = 2) {
#if CASE_HAS_ISENDRECV
  for (int i = 0; i < 4; ++i) {
    unsigned char *data = guarded((size_t)kBytes[i]);
    MPI_Request request;
    MPI_Status status;
    fill(data, (size_t)kBytes[i], 64, (uint64_t)my_rank);
    MUST(MPI_Isendrecv_replace(data, kBytes[i], MPI_BYTE, my_peer, kTag, my_peer, kTag, comm,
                               &request));
    MUST(MPI_Wait(&request, &status));
    EXPECT_STATUS(&status, my_peer, kTag, kBytes[i]);
    EXPECT_STREAM(data, (size_t)kBytes[i], 64, (uint64_t)my_peer);
    check_guards(data, (size_t)kBytes[i]);
    release_guarded(data);
  }
#else
  case_skip("MPI before 4.0");
#endif
}

CASE(PN1_null_process_takes_and_gives_nothing, .ranks = 2, .traits = kEveryLevel) {
  int value = 7, flag = 0;
  MPI_Status status;
  MPI_Request request[4];
  MUST(MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, kTag, comm));
  MUST(MPI_Ssend(&value, 1, MPI_INT, MPI_PROC_NULL, kTag, comm));
  MUST(MPI_Rsend(&value, 1, MPI_INT, MPI_PROC_NULL, kTag, comm));
  spoil(&status);
  MUST(MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, kTag, comm, &status));
  EXPECT_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
  spoil(&status);
  MUST(MPI_Probe(MPI_PROC_NULL, kTag, comm, &status));
  EXPECT_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
  spoil(&status);
  MUST(MPI_Iprobe(MPI_PROC_NULL, kTag, comm, &flag, &status));
  EXPECT(flag, "Iprobe of the null process is false");
  EXPECT_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
  request[0] = isend_int(&value, MPI_PROC_NULL, kTag);
  request[1] = issend(&value, 4, MPI_PROC_NULL, kTag);
  request[2] = irecv_int(&value, MPI_PROC_NULL, MPI_ANY_TAG);
  MUST(MPI_Irsend(&value, 1, MPI_INT, MPI_PROC_NULL, kTag, comm, &request[3]));
  MPI_Status all[4];
  MUST(MPI_Testall(4, request, &flag, all));
  EXPECT(flag, "requests of the null process are open");
  if (flag) EXPECT_STATUS(&all[2], MPI_PROC_NULL, MPI_ANY_TAG, 0);
  EXPECT_DATA(value == 7, "a receive from nowhere wrote %d", value);
}

CASE(SE1_messages_to_oneself, .ranks = 2, .traits = kEveryLevel) {
  for (int i = 0; i < 4; ++i) {
    const int bytes = kBytes[i];
    unsigned char *out = memory((size_t)bytes), *in = guarded((size_t)bytes);
    MPI_Status status;
    fill(out, (size_t)bytes, 65, (uint64_t)i);
    MPI_Request request = isend(out, bytes, my_rank, kTag);  // the send first
    MUST(MPI_Recv(in, bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
    EXPECT_STATUS(&status, my_rank, kTag, bytes);
    EXPECT_STREAM(in, (size_t)bytes, 65, (uint64_t)i);
    complete(&request);
    memset(in, 0, (size_t)bytes);
    request = irecv(in, bytes, my_rank, kTag);  // the receive first
    MUST(MPI_Ssend(out, bytes, MPI_BYTE, my_rank, kTag, comm));
    MUST(MPI_Wait(&request, &status));
    EXPECT_STREAM(in, (size_t)bytes, 65, (uint64_t)i);
    check_guards(in, (size_t)bytes);
    free(out);
    release_guarded(in);
  }
}

CASE(SE1_order_and_probes_of_oneself, .ranks = 2) {
  enum { kMessages = 100 };
  int value[kMessages];
  MPI_Request request[kMessages];
  for (int i = 0; i < kMessages; ++i) {
    value[i] = i;
    MUST(MPI_Isend(&value[i], 1, MPI_INT, 0, i % 3, MPI_COMM_SELF, &request[i]));
  }
  for (int i = 0; i < kMessages; ++i) {
    int got = -1;
    MPI_Status status;
    spoil(&status);
    MUST(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &status));
    EXPECT_STATUS(&status, 0, i % 3, 4);
    MUST(MPI_Recv(&got, 1, MPI_INT, 0, status.MPI_TAG, MPI_COMM_SELF, &status));
    EXPECT_DATA(got == i, "message %d came as number %d", got, i);
  }
  MUST(MPI_Waitall(kMessages, request, MPI_STATUSES_IGNORE));
}

CASE(SE2_issend_to_oneself_is_open_until_received, .ranks = 2) {
  int value = 6;
  MPI_Request request = issend(&value, 4, my_rank, kTag);
  EXPECT(stays_open(&request, 0.005), "Issend to oneself is complete without a receive");
  EXPECT_DATA(recv_int(my_rank, kTag, MPI_STATUS_IGNORE) == 6, "the message");
  EXPECT(completes(&request, MPI_STATUS_IGNORE, 5), "Issend to oneself stays open");
}
