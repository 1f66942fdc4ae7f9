// Fields of a status and its calls: counts, elements, truncation, ignored statuses.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 111 };

typedef void (*Receive)(void* data, int bytes, MPI_Status* status);

static void by_recv(void* data, int bytes, MPI_Status* status) {
  MUST(MPI_Recv(data, bytes, MPI_BYTE, 0, kTag, comm, status));
}
static void by_wait(void* data, int bytes, MPI_Status* status) {
  MPI_Request request = irecv(data, bytes, MPI_ANY_SOURCE, kTag);
  MUST(MPI_Wait(&request, status));
}
static void by_test(void* data, int bytes, MPI_Status* status) {
  MPI_Request request = irecv(data, bytes, 0, MPI_ANY_TAG);
  REQUIRE(completes(&request, status, 5), "Test never succeeds");
}
static void by_waitany(void* data, int bytes, MPI_Status* status) {
  MPI_Request request[2] = {MPI_REQUEST_NULL, irecv(data, bytes, 0, kTag)};
  int index = 0;
  MUST(MPI_Waitany(2, request, &index, status));
}
static void by_testany(void* data, int bytes, MPI_Status* status) {
  MPI_Request request[2] = {MPI_REQUEST_NULL, irecv(data, bytes, 0, kTag)};
  int index = 0, flag = 0;
  while (!flag) MUST(MPI_Testany(2, request, &index, &flag, status));
}
static void by_waitall(void* data, int bytes, MPI_Status* status) {
  MPI_Request request = irecv(data, bytes, 0, kTag);
  MUST(MPI_Waitall(1, &request, status));
}
static void by_testall(void* data, int bytes, MPI_Status* status) {
  MPI_Request request = irecv(data, bytes, 0, kTag);
  int flag = 0;
  while (!flag) MUST(MPI_Testall(1, &request, &flag, status));
}
static void by_waitsome(void* data, int bytes, MPI_Status* status) {
  MPI_Request request = irecv(data, bytes, 0, kTag);
  int done = 0, index = 0;
  MUST(MPI_Waitsome(1, &request, &done, &index, status));
}
static void by_testsome(void* data, int bytes, MPI_Status* status) {
  MPI_Request request = irecv(data, bytes, 0, kTag);
  int done = 0, index = 0;
  while (done == 0) MUST(MPI_Testsome(1, &request, &done, &index, status));
}
static void by_mrecv(void* data, int bytes, MPI_Status* status) {
  MPI_Message message;
  MUST(MPI_Mprobe(0, kTag, comm, &message, MPI_STATUS_IGNORE));
  MUST(MPI_Mrecv(data, bytes, MPI_BYTE, &message, status));
}
static void by_sendrecv(void* data, int bytes, MPI_Status* status) {
  MUST(MPI_Sendrecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, data, bytes, MPI_BYTE, 0, kTag, comm,
                    status));
}

static const Receive kReceives[] = {by_recv,     by_wait,    by_test,    by_waitany,
                                    by_testany,  by_waitall, by_testall, by_waitsome,
                                    by_testsome, by_mrecv,   by_sendrecv};
enum { kReceivesCount = sizeof(kReceives) / sizeof(kReceives[0]) };

/// The message is shorter than the buffer: the status has its length.
CASE(ST1_status_of_each_receiving_call, .ranks = 2, .traits = kSessions) {
  static const int kBytes[] = {0, 5, 5000, 1 << 20};
  unsigned char* data = guarded(1 << 20);
  for (size_t i = 0; i < 4 * kReceivesCount; ++i) {
    const int bytes = kBytes[i % 4];
    MPI_Status status;
    spoil(&status);
    if (my_rank == 0) {
      MUST(MPI_Send(data, bytes, MPI_BYTE, 1, kTag, comm));
      continue;
    }
    kReceives[i / 4](data, bytes < 10 ? 10 : 1 << 20, &status);
    EXPECT_STATUS(&status, 0, kTag, bytes);
    if (case_failed()) {
      EXPECT(false, "call number %zu", i / 4);
      return;
    }
  }
  check_guards(data, 1 << 20);
  release_guarded(data);
}

CASE(ST1_statuses_may_be_ignored, .ranks = 2) {
  unsigned char data[100];
  for (size_t i = 0; i < kReceivesCount; ++i) {
    if (my_rank == 0) {
      MUST(MPI_Send(data, 100, MPI_BYTE, 1, kTag, comm));
    } else {
      kReceives[i](data, 100, MPI_STATUS_IGNORE);
    }
  }
}

/// A receive writes no byte beyond the message.
CASE(ST1_bytes_beyond_the_message_stay, .ranks = 2) {
  static const int kBytes[] = {0, 1, 100, 10000, 300000};
  enum { kRoom = 1000000 };
  for (int i = 0; i < 5; ++i) {
    unsigned char* data = guarded(kRoom);
    if (my_rank == 0) {
      MUST(MPI_Send(data, kBytes[i], MPI_BYTE, 1, kTag, comm));
    } else {
      memset(data, 1, (size_t)kBytes[i]);
      MUST(MPI_Recv(data, kRoom, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
      EXPECT_DATA(untouched(data, kRoom), "a receive wrote beyond its message");
    }
    release_guarded(data);
  }
}

CASE(ST2_get_count_is_undefined_for_parts_of_elements, .ranks = 2) {
  unsigned char data[24] = {0};
  if (my_rank == 0) {
    MUST(MPI_Send(data, 10, MPI_BYTE, 1, kTag, comm));
    return;
  }
  MPI_Status status;
  int count = 0;
  MUST(MPI_Recv(data, 24, MPI_BYTE, 0, kTag, comm, &status));
  MUST(MPI_Get_count(&status, MPI_INT, &count));
  EXPECT(count == MPI_UNDEFINED, "10 bytes are %d integers", count);
  MUST(MPI_Get_count(&status, MPI_SHORT, &count));
  EXPECT(count == 5, "10 bytes are %d short integers", count);
}

/// Get_elements counts basic elements, in parts of the type, too.
CASE(ST2_get_elements_of_a_structure, .ranks = 2) {
  MPI_Datatype type;
  const int lengths[2] = {1, 2};
  const MPI_Aint places[2] = {0, 8};
  const MPI_Datatype members[2] = {MPI_INT, MPI_DOUBLE};
  char data[3 * 24] = {0};
  MUST(MPI_Type_create_struct(2, lengths, places, members, &type));
  MUST(MPI_Type_commit(&type));
  if (my_rank == 0) {
    MPI_Datatype part;
    MUST(MPI_Type_create_struct(2, (const int[]){1, 1}, places, members, &part));
    MUST(MPI_Type_commit(&part));
    MUST(MPI_Send(data, 1, part, 1, kTag, comm));  // an integer and one of two doubles
    MUST(MPI_Send(data, 2, type, 1, kTag, comm));
    MUST(MPI_Type_free(&part));
  } else {
    MPI_Status status;
    int count = 0, elements = 0;
    MPI_Count large = 0;
    MUST(MPI_Recv(data, 3, type, 0, kTag, comm, &status));
    MUST(MPI_Get_count(&status, type, &count));
    MUST(MPI_Get_elements(&status, type, &elements));
    EXPECT(count == MPI_UNDEFINED && elements == 2, "a part: count %d, elements %d", count,
           elements);
    MUST(MPI_Recv(data, 3, type, 0, kTag, comm, &status));
    MUST(MPI_Get_count(&status, type, &count));
    MUST(MPI_Get_elements_x(&status, type, &large));
    EXPECT(count == 2 && large == 6, "two: count %d, elements %lld", count, (long long)large);
  }
  MUST(MPI_Type_free(&type));
}

CASE(ST3_set_elements_and_set_cancelled, .ranks = 2) {
  MPI_Status status;
  int count = 0, flag = 0;
  memset(&status, 0, sizeof(status));
  MUST(MPI_Status_set_elements(&status, MPI_INT, 12));
  MUST(MPI_Get_count(&status, MPI_INT, &count));
  EXPECT(count == 12, "count %d", count);
  MUST(MPI_Status_set_elements_x(&status, MPI_INT, 1000));
  MUST(MPI_Get_elements(&status, MPI_INT, &count));
  EXPECT(count == 1000, "elements %d", count);
  MUST(MPI_Status_set_cancelled(&status, 1));
  MUST(MPI_Test_cancelled(&status, &flag));
  EXPECT(flag, "Test_cancelled is false after set_cancelled");
  MUST(MPI_Status_set_cancelled(&status, 0));
  MUST(MPI_Test_cancelled(&status, &flag));
  EXPECT(!flag, "Test_cancelled is true");
}

CASE(ST3_fields_by_calls, .ranks = 2) {
#if CASE_HAS_STATUS_ALL
  MPI_Status status;
  int value = 1, source = -5, tag = -5;
  if (my_rank == 0) {
    send_int(value, 1, kTag);
    return;
  }
  recv_int(0, kTag, &status);
  MUST(MPI_Status_get_source(&status, &source));
  MUST(MPI_Status_get_tag(&status, &tag));
  EXPECT(source == 0 && tag == kTag, "source %d, tag %d", source, tag);
  MUST(MPI_Status_set_source(&status, 9));
  MUST(MPI_Status_set_tag(&status, 8));
  EXPECT(status.MPI_SOURCE == 9 && status.MPI_TAG == 8, "set: %d, %d", status.MPI_SOURCE,
         status.MPI_TAG);
#else
  case_skip("MPI before 4.1");
#endif
}

/// Calls that complete one request do not write MPI_ERROR.
CASE(ST3_error_field_stays_in_calls_of_one_request, .ranks = 2) {
  int value = 0, out = my_rank;
  MPI_Status status;
  for (int way = 0; way < 3; ++way) {
    MPI_Request request = irecv_int(&value, my_peer, kTag), sent = isend_int(&out, my_peer, kTag);
    status.MPI_ERROR = 4711;
    if (way == 0) MUST(MPI_Wait(&request, &status));
    if (way == 1) REQUIRE(completes(&request, &status, 5), "Test never succeeds");
    if (way == 2) {
      int index;
      MUST(MPI_Waitany(1, &request, &index, &status));
    }
    complete(&sent);
    EXPECT(status.MPI_ERROR == 4711, "way %d: MPI_ERROR became %d", way, status.MPI_ERROR);
  }
}

static void truncated(bool is_unexpected, int sent, int room) {
  unsigned char* data = guarded((size_t)sent);
  if (my_rank == 0) {
    if (!is_unexpected) await(0, 1, 5);
    MUST(MPI_Send(data, sent, MPI_BYTE, 1, kTag, comm));
    send_int(3, 1, kTag);
    post(1, 1);
  } else {
    if (is_unexpected) MUST(MPI_Probe(0, kTag, comm, MPI_STATUS_IGNORE));
    unsigned char* little = guarded((size_t)room);
    MPI_Status status;
    MPI_Request request = irecv(little, room, 0, kTag);
    post(0, 1);
    EXPECT_ERROR(MPI_Wait(&request, &status), MPI_ERR_TRUNCATE);
    EXPECT(request == MPI_REQUEST_NULL, "the failed request is not null");
    check_guards(little, (size_t)room);
    release_guarded(little);
    EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == 3, "the next message");
  }
  release_guarded(data);
}
CASE(ST4_truncation_of_a_short_message, .ranks = 2) { truncated(false, 100, 50); }
CASE(ST4_truncation_of_a_short_unexpected_message, .ranks = 2) { truncated(true, 100, 99); }
CASE(ST4_truncation_of_a_long_message, .ranks = 2) { truncated(false, 1 << 20, 1000); }
CASE(ST4_truncation_of_a_long_unexpected_message, .ranks = 2) { truncated(true, 1 << 20, 300000); }
CASE(ST4_truncation_to_nothing, .ranks = 2) { truncated(false, 8, 0); }
CASE(ST4_truncation_in_recv_and_sendrecv, .ranks = 2) {
  int data[4] = {1, 2, 3, 4}, one = 0;
  if (my_rank == 0) {
    for (int i = 0; i < 2; ++i) MUST(MPI_Send(data, 4, MPI_INT, 1, kTag, comm));
    return;
  }
  EXPECT_ERROR(MPI_Recv(&one, 1, MPI_INT, 0, kTag, comm, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
  EXPECT_ERROR(MPI_Sendrecv(&one, 1, MPI_INT, MPI_PROC_NULL, 0, &one, 1, MPI_INT, 0, kTag, comm,
                            MPI_STATUS_IGNORE),
               MPI_ERR_TRUNCATE);
}
