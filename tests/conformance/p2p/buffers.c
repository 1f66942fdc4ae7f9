// Buffered mode and its buffers: of the process, of a communicator, of a session, automatic.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 41 };

static int packed(int bytes) {
  int size = 0;
  MUST(MPI_Pack_size(bytes, MPI_BYTE, comm, &size));
  return size + MPI_BSEND_OVERHEAD;
}

static void detach(void* expected, int bytes) {
  void* back = NULL;
  int size = -1;
  MUST(MPI_Buffer_detach(&back, &size));
  EXPECT(back == expected && size == bytes, "detached %p of %d bytes, expected %p of %d", back,
         size, expected, bytes);
}

/// Bsend returns although no receive is posted; the data is in the buffer, not in the program's.
CASE(BU1_bsend_is_local, .ranks = 2, .traits = kEveryLevel) {
  static const int kBytes[] = {0, 4, 5000, 1 << 20};
  for (int i = 0; i < 4; ++i) {
    unsigned char* data = memory((size_t)kBytes[i]);
    if (my_rank == 0) {
      const int size = packed(kBytes[i]);
      void* space = memory((size_t)size);
      MUST(MPI_Buffer_attach(space, size));
      fill(data, (size_t)kBytes[i], 11, (uint64_t)i);
      MUST(MPI_Bsend(data, kBytes[i], MPI_BYTE, 1, kTag, comm));
      memset(data, 0, (size_t)kBytes[i]);
      post(0, i + 1);
      detach(space, size);
      free(space);
    } else {
      EXPECT(await(0, i + 1, 5), "Bsend of %d bytes waits for the receive", kBytes[i]);
      MUST(MPI_Recv(data, kBytes[i], MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, (size_t)kBytes[i], 11, (uint64_t)i);
    }
    free(data);
  }
}

/// After detach returned, the space is the program's: all its messages have left it.
CASE(BU2_detach_waits_for_the_messages, .ranks = 2) {
  enum { kMessages = 8, kBytes = 300000 };
  if (my_rank == 0) {
    const int size = kMessages * packed(kBytes);
    unsigned char *space = memory((size_t)size), *data = memory(kBytes);
    MUST(MPI_Buffer_attach(space, size));
    for (int i = 0; i < kMessages; ++i) {
      fill(data, kBytes, 12, (uint64_t)i);
      MUST(MPI_Bsend(data, kBytes, MPI_BYTE, 1, kTag, comm));
    }
    post(0, 1);
    detach(space, size);
    memset(space, 0, (size_t)size);
    free(space);
    free(data);
  } else {
    unsigned char* data = memory(kBytes);
    await(0, 1, 5);
    pause_s(0.01);
    for (int i = 0; i < kMessages; ++i) {
      MUST(MPI_Recv(data, kBytes, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, kBytes, 12, (uint64_t)i);
    }
    free(data);
  }
}

CASE(BU3_space_is_used_again, .ranks = 2) {
  enum { kRounds = 300, kBytes = 1000 };
  unsigned char data[kBytes];
  char space[3 * (kBytes + 100 + MPI_BSEND_OVERHEAD)];
  if (my_rank == 0) MUST(MPI_Buffer_attach(space, (int)sizeof(space)));
  for (int i = 0; i < kRounds; ++i) {
    if (my_rank == 0) {
      fill(data, kBytes, 13, (uint64_t)i);
      MUST(MPI_Bsend(data, kBytes, MPI_BYTE, 1, kTag, comm));
      recv_int(1, kTag, MPI_STATUS_IGNORE);
    } else {
      MUST(MPI_Recv(data, kBytes, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, kBytes, 13, (uint64_t)i);
      send_int(0, 0, kTag);
    }
  }
  if (my_rank == 0) detach(space, (int)sizeof(space));
}

/// Pack_size and MPI_BSEND_OVERHEAD for each message are enough for all of them at once.
CASE(BU3_overhead_covers_each_message, .ranks = 2) {
  enum { kMessages = 64 };
  if (my_rank == 0) {
    int size = 0;
    for (int i = 0; i < kMessages; ++i) size += packed(i * 13);
    void* space = memory((size_t)size);
    unsigned char data[kMessages * 13];
    MUST(MPI_Buffer_attach(space, size));
    for (int i = 0; i < kMessages; ++i) {
      fill(data, (size_t)i * 13, 14, (uint64_t)i);
      MPI_Request request;
      MUST(MPI_Ibsend(data, i * 13, MPI_BYTE, 1, kTag, comm, &request));
      complete(&request);
    }
    post(0, 1);
    detach(space, size);
    free(space);
  } else {
    unsigned char data[kMessages * 13];
    EXPECT(await(0, 1, 5), "the sender is not through");
    for (int i = 0; i < kMessages; ++i) {
      MPI_Status status;
      MUST(MPI_Recv(data, (int)sizeof(data), MPI_BYTE, 0, kTag, comm, &status));
      EXPECT_STATUS(&status, 0, kTag, i * 13);
      EXPECT_STREAM(data, (size_t)i * 13, 14, (uint64_t)i);
    }
  }
}

CASE(BU4_no_space_is_an_error, .ranks = 2) {
  if (my_rank != 0) return;
  char space[1000 + MPI_BSEND_OVERHEAD], *data = memory(1 << 20);
  memset(data, 1, 1 << 20);
  EXPECT_ERROR(MPI_Bsend(data, 1 << 20, MPI_BYTE, 1, kTag, comm), MPI_ERR_BUFFER);
  MUST(MPI_Buffer_attach(space, (int)sizeof(space)));
  EXPECT_ERROR(MPI_Bsend(data, 1 << 20, MPI_BYTE, 1, kTag, comm), MPI_ERR_BUFFER);
  detach(space, (int)sizeof(space));
  free(data);
}

/// Space comes back when the peer has received, also if the sender makes no other call.
CASE(BU3_space_of_long_messages_is_used_again, .ranks = 2) {
  enum { kRounds = 20, kBytes = 300000 };
  unsigned char* data = memory(kBytes);
  const int size = packed(kBytes);
  void* space = memory((size_t)size);
  if (my_rank == 0) MUST(MPI_Buffer_attach(space, size));
  for (int i = 0; i < kRounds; ++i) {
    if (my_rank == 0) {
      fill(data, kBytes, 18, (uint64_t)i);
      MUST(MPI_Bsend(data, kBytes, MPI_BYTE, 1, kTag, comm));
      memset(data, 0, kBytes);
      recv_int(1, kTag, MPI_STATUS_IGNORE);
    } else {
      MUST(MPI_Recv(data, kBytes, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, kBytes, 18, (uint64_t)i);
      send_int(0, 0, kTag);
    }
  }
  if (my_rank == 0) detach(space, size);
  free(space);
  free(data);
}

/// A message that is not received yet takes its space.
CASE(BU4_open_messages_take_space, .ranks = 2) {
  enum { kBytes = 1 << 20 };
  unsigned char* data = memory(kBytes);
  if (my_rank == 0) {
    const int size = 2 * packed(kBytes);
    void* space = memory((size_t)size);
    MUST(MPI_Buffer_attach(space, size));
    for (int i = 0; i < 2; ++i) {
      fill(data, kBytes, 19, (uint64_t)i);
      MUST(MPI_Bsend(data, kBytes, MPI_BYTE, 1, kTag, comm));
    }
    EXPECT_ERROR(MPI_Bsend(data, kBytes, MPI_BYTE, 1, kTag, comm), MPI_ERR_BUFFER);
    post(0, 1);
    detach(space, size);
    free(space);
    send_int(5, 1, kTag);
  } else {
    EXPECT(await(0, 1, 5), "the sender is not through");
    for (int i = 0; i < 2; ++i) {
      MUST(MPI_Recv(data, kBytes, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, kBytes, 19, (uint64_t)i);
    }
    EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == 5, "the message after the refused one");
  }
  free(data);
}

CASE(BU4_no_space_for_a_persistent_send, .ranks = 2) {
  if (my_rank != 0) return;
  enum { kBytes = 10000 };
  char space[1000 + MPI_BSEND_OVERHEAD], *data = memory(kBytes);
  memset(data, 1, kBytes);
  MPI_Request request;
  MUST(MPI_Buffer_attach(space, (int)sizeof(space)));
  MUST(MPI_Bsend_init(data, kBytes, MPI_BYTE, 1, kTag, comm, &request));
  EXPECT_ERROR(MPI_Start(&request), MPI_ERR_BUFFER);
  drop(&request);
  detach(space, (int)sizeof(space));
  free(data);
}

CASE(BU4_second_attach_is_an_error, .ranks = 2) {
  char space[2][500 + MPI_BSEND_OVERHEAD];
  MUST(MPI_Buffer_attach(space[0], (int)sizeof(space[0])));
  EXPECT_ERROR(MPI_Buffer_attach(space[1], (int)sizeof(space[1])), MPI_ERR_LASTCODE);
  detach(space[0], (int)sizeof(space[0]));
}

/// Messages to nowhere and to oneself.
CASE(BU5_bsend_to_null_and_to_self, .ranks = 2) {
  char space[200 + MPI_BSEND_OVERHEAD];
  int value = 4;
  MUST(MPI_Buffer_attach(space, (int)sizeof(space)));
  for (int i = 0; i < 20; ++i) MUST(MPI_Bsend(&value, 1, MPI_INT, MPI_PROC_NULL, kTag, comm));
  MUST(MPI_Bsend(&value, 1, MPI_INT, my_rank, kTag, comm));
  value = 0;
  EXPECT_DATA(recv_int(my_rank, kTag, MPI_STATUS_IGNORE) == 4, "the message to oneself");
  detach(space, (int)sizeof(space));
}

CASE(BU5_bsend_of_a_strided_type, .ranks = 2) {
  enum { kBlocks = 200 };
  int data[3 * kBlocks];
  if (my_rank == 0) {
    MPI_Datatype type;
    MUST(MPI_Type_vector(kBlocks, 1, 3, MPI_INT, &type));
    MUST(MPI_Type_commit(&type));
    int size = 0;
    MUST(MPI_Pack_size(1, type, comm, &size));
    size += MPI_BSEND_OVERHEAD;
    void* space = memory((size_t)size);
    MUST(MPI_Buffer_attach(space, size));
    for (int i = 0; i < 3 * kBlocks; ++i) data[i] = i;
    MUST(MPI_Bsend(data, 1, type, 1, kTag, comm));
    memset(data, 0, sizeof(data));
    MUST(MPI_Type_free(&type));
    post(0, 1);
    detach(space, size);
    free(space);
  } else {
    EXPECT(await(0, 1, 5), "Bsend waits for the receive");
    MUST(MPI_Recv(data, kBlocks, MPI_INT, 0, kTag, comm, MPI_STATUS_IGNORE));
    for (int i = 0; i < kBlocks; ++i) EXPECT_DATA(data[i] == 3 * i, "element %d: %d", i, data[i]);
  }
}

#if CASE_HAS_BUFFER_CALLS
#define NEEDS_BUFFER_CALLS
#else
#define NEEDS_BUFFER_CALLS       \
  do {                           \
    case_skip("MPI before 4.1"); \
    return;                      \
  } while (0)
#endif

enum { kSmall = 64, kMessages = 16 };

/// Rank 0 sends kMessages by Bsend on `on` before rank 1 receives.
__attribute__((unused)) static void send_before_receive(MPI_Comm on, int bytes, int mark) {
  unsigned char* data = memory((size_t)bytes);
  for (int i = 0; i < kMessages; ++i) {
    if (my_rank == 0) {
      fill(data, (size_t)bytes, 15, (uint64_t)i);
      MUST(MPI_Bsend(data, bytes, MPI_BYTE, 1, kTag, on));
      memset(data, 0, (size_t)bytes);
      if (i == kMessages - 1) post(mark, 1);
    } else {
      if (i == 0) EXPECT(await(mark, 1, 5), "Bsend waits for the receive");
      MUST(MPI_Recv(data, bytes, MPI_BYTE, 0, kTag, on, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, (size_t)bytes, 15, (uint64_t)i);
    }
  }
  free(data);
}

CASE(BU6_automatic_buffer_of_the_process, .ranks = 2) {
  NEEDS_BUFFER_CALLS;
#if CASE_HAS_BUFFER_CALLS
  MUST(MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0));
  send_before_receive(comm, kSmall, 0);
  send_before_receive(comm, 1 << 20, 1);
  void* back = NULL;
  int size = -1;
  MUST(MPI_Buffer_detach(&back, &size));
  EXPECT(back == MPI_BUFFER_AUTOMATIC && size == 0, "detached %p of %d bytes", back, size);
#endif
}

CASE(BU6_automatic_buffer_of_a_communicator, .ranks = 2) {
  NEEDS_BUFFER_CALLS;
#if CASE_HAS_BUFFER_CALLS
  MUST(MPI_Comm_attach_buffer(comm, MPI_BUFFER_AUTOMATIC, 0));
  send_before_receive(comm, kSmall, 0);
  send_before_receive(comm, 1 << 20, 1);
  void* back = NULL;
  int size = -1;
  MUST(MPI_Comm_detach_buffer(comm, &back, &size));
  EXPECT(back == MPI_BUFFER_AUTOMATIC && size == 0, "detached %p of %d bytes", back, size);
#endif
}

/// A communicator's own buffer is used, not that of the process.
CASE(BU7_buffer_of_a_communicator, .ranks = 2) {
  NEEDS_BUFFER_CALLS;
#if CASE_HAS_BUFFER_CALLS
  const int size = kMessages * packed(kSmall);
  void *space = memory((size_t)size), *back = NULL;
  char little[10 + MPI_BSEND_OVERHEAD];
  int bytes = -1;
  MUST(MPI_Buffer_attach(little, (int)sizeof(little)));
  MUST(MPI_Comm_attach_buffer(comm, space, size));
  EXPECT_ERROR(MPI_Comm_attach_buffer(comm, space, size), MPI_ERR_LASTCODE);
  send_before_receive(comm, kSmall, 0);
  MUST(MPI_Comm_detach_buffer(comm, &back, &bytes));
  EXPECT(back == space && bytes == size, "detached %p of %d bytes", back, bytes);
  detach(little, (int)sizeof(little));
  free(space);
#endif
}

CASE(BU7_buffer_of_a_session, .ranks = 2) {
  NEEDS_BUFFER_CALLS;
#if CASE_HAS_BUFFER_CALLS
  MPI_Session session;
  MPI_Group group;
  MPI_Comm from_session;
  MUST(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
  MUST(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
  MUST(MPI_Comm_create_from_group(group, "buffers", MPI_INFO_NULL, MPI_ERRORS_RETURN,
                                  &from_session));
  MUST(MPI_Group_free(&group));
  const int size = kMessages * packed(kSmall);
  void *space = memory((size_t)size), *back = NULL;
  int bytes = -1;
  MPI_Request request;
  MUST(MPI_Session_attach_buffer(session, space, size));
  send_before_receive(from_session, kSmall, 0);
  MUST(MPI_Session_flush_buffer(session));
  MUST(MPI_Session_iflush_buffer(session, &request));
  complete(&request);
  MUST(MPI_Session_detach_buffer(session, &back, &bytes));
  EXPECT(back == space && bytes == size, "detached %p of %d bytes", back, bytes);
  free(space);
  MUST(MPI_Comm_free(&from_session));
  MUST(MPI_Session_finalize(&session));
#endif
}

/// Flush returns when the messages have left the buffer; the buffer stays attached.
CASE(BU8_flush_waits_for_the_messages, .ranks = 2) {
  NEEDS_BUFFER_CALLS;
#if CASE_HAS_BUFFER_CALLS
  enum { kBytes = 500000 };
  unsigned char* data = memory(kBytes);
  const int size = packed(kBytes);
  void* space = memory((size_t)size);
  if (my_rank == 0) MUST(MPI_Buffer_attach(space, size));
  for (int i = 0; i < 6; ++i) {
    if (my_rank == 0) {
      fill(data, kBytes, 16, (uint64_t)i);
      MUST(MPI_Bsend(data, kBytes, MPI_BYTE, 1, kTag, comm));
      if (i % 2 == 0) {
        MUST(MPI_Buffer_flush());
      } else {
        MPI_Request request;
        MUST(MPI_Buffer_iflush(&request));
        MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
      }
    } else {
      MUST(MPI_Recv(data, kBytes, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, kBytes, 16, (uint64_t)i);
    }
  }
  if (my_rank == 0) detach(space, size);
  free(space);
  free(data);
#endif
}

/// Iflush is open while a message that the peer has not received lies in the buffer.
CASE(BU8_iflush_of_a_communicator, .ranks = 2) {
  NEEDS_BUFFER_CALLS;
#if CASE_HAS_BUFFER_CALLS
  enum { kBytes = 4 << 20 };
  unsigned char* data = memory(kBytes);
  if (my_rank == 0) {
    const int size = packed(kBytes);
    void *space = memory((size_t)size), *back;
    int bytes;
    MPI_Request request;
    MUST(MPI_Comm_attach_buffer(comm, space, size));
    fill(data, kBytes, 17, 0);
    MUST(MPI_Bsend(data, kBytes, MPI_BYTE, 1, kTag, comm));
    MUST(MPI_Comm_iflush_buffer(comm, &request));
    EXPECT(stays_open(&request, 0.01), "iflush is complete before the receive");
    post(0, 1);
    EXPECT(completes(&request, MPI_STATUS_IGNORE, 10), "iflush stays open");
    MUST(MPI_Comm_flush_buffer(comm));
    memset(space, 0, (size_t)size);
    MUST(MPI_Comm_detach_buffer(comm, &back, &bytes));
    free(space);
  } else {
    await(0, 1, 5);
    MUST(MPI_Recv(data, kBytes, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
    EXPECT_STREAM(data, kBytes, 17, 0);
  }
  free(data);
#endif
}

/// A buffered message arrives although its communicator, with its buffer, is freed.
CASE(BU7_free_of_a_communicator_with_a_buffer, .ranks = 2) {
  NEEDS_BUFFER_CALLS;
#if CASE_HAS_BUFFER_CALLS
  enum { kBytes = 1 << 20 };
  unsigned char* data = memory(kBytes);
  for (uint64_t round = 0; round < 3; ++round) {
    MPI_Comm copy;
    MUST(MPI_Comm_dup(comm, &copy));
    if (my_rank == 0) {
      MUST(MPI_Comm_attach_buffer(copy, MPI_BUFFER_AUTOMATIC, 0));
      fill(data, kBytes, 20, round);
      MUST(MPI_Bsend(data, kBytes, MPI_BYTE, 1, kTag, copy));
      memset(data, 0, kBytes);
    } else {
      MUST(MPI_Recv(data, kBytes, MPI_BYTE, 0, kTag, copy, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, kBytes, 20, round);
    }
    MUST(MPI_Comm_free(&copy));
  }
  free(data);
#endif
}
