// Probes: MPI_Probe, MPI_Iprobe, and matched: MPI_Mprobe, MPI_Improbe, MPI_Mrecv, MPI_Imrecv.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 71 };

CASE(PR1_probe_shows_the_message, .ranks = 2, .traits = kEveryLevel | kSessions) {
  static const int kBytes[] = {0, 4, 5000, 2 << 20};
  for (int i = 0; i < 4; ++i) {
    unsigned char* data = memory((size_t)kBytes[i]);
    if (my_rank == 0) {
      fill(data, (size_t)kBytes[i], 31, (uint64_t)i);
      MUST(MPI_Send(data, kBytes[i], MPI_BYTE, 1, kTag + i, comm));
    } else {
      MPI_Status status;
      spoil(&status);
      MUST(MPI_Probe(i % 2 ? 0 : MPI_ANY_SOURCE, i < 2 ? MPI_ANY_TAG : kTag + i, comm, &status));
      EXPECT_STATUS(&status, 0, kTag + i, kBytes[i]);
      MUST(MPI_Probe(0, kTag + i, comm, &status));  // it stays
      MUST(MPI_Recv(data, kBytes[i], MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm, &status));
      EXPECT_STATUS(&status, 0, kTag + i, kBytes[i]);
      EXPECT_STREAM(data, (size_t)kBytes[i], 31, (uint64_t)i);
    }
    free(data);
  }
}

CASE(PR1_iprobe_is_false_without_a_message, .ranks = 2) {
  int flag = 1;
  MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE));
  EXPECT(!flag, "a message of which nothing was sent");
  meet();
  send_int(1, my_peer, kTag);
  const double end = now_s() + 5;
  while (!flag && now_s() < end) {
    MUST(MPI_Iprobe(my_peer, kTag, comm, &flag, MPI_STATUS_IGNORE));
  }
  EXPECT(flag, "Iprobe stays false");
  MUST(MPI_Iprobe(my_peer, kTag + 1, comm, &flag, MPI_STATUS_IGNORE));
  EXPECT(!flag, "Iprobe of another tag is true");
  recv_int(my_peer, kTag, MPI_STATUS_IGNORE);
  MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE));
  EXPECT(!flag, "Iprobe shows a message that was received");
}

/// The receive after a probe with the same arguments gets the message of the probe.
CASE(PR2_a_receive_after_a_probe_gets_that_message, .ranks = 4) {
  enum { kMessages = 60 };
  if (my_rank > 0) {
    int data[kMessages];
    for (int i = 0; i < kMessages; ++i) data[i] = my_rank;
    for (int i = 1; i < kMessages; ++i) MUST(MPI_Send(data, i, MPI_INT, 0, i, comm));
    return;
  }
  int data[kMessages], next[4] = {0, 1, 1, 1};
  for (int i = 0; i < 3 * (kMessages - 1); ++i) {
    MPI_Status seen, got;
    MUST(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &seen));
    const int source = seen.MPI_SOURCE, tag = seen.MPI_TAG;
    REQUIRE(source > 0 && source < 4, "source %d", source);
    EXPECT(tag == next[source]++, "source %d: tag %d out of order", source, tag);
    MUST(MPI_Recv(data, kMessages, MPI_INT, source, tag, comm, &got));
    EXPECT_STATUS(&got, source, tag, 4 * tag);
    EXPECT_DATA(data[0] == source, "data of process %d", data[0]);
  }
}

/// A posted receive has taken the message: no probe shows it.
CASE(PR2_a_matched_message_is_invisible, .ranks = 2) {
  if (my_rank == 0) {
    await(0, 1, 5);
    send_int(1, 1, kTag);
    send_int(2, 1, kTag);
  } else {
    int value = 0, flag = 0;
    MPI_Request request = irecv_int(&value, 0, kTag);
    post(0, 1);
    MUST(MPI_Probe(0, kTag, comm, MPI_STATUS_IGNORE));
    EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == 2, "the probe's message");
    complete(&request);
    EXPECT_DATA(value == 1, "received %d", value);
    MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE));
    EXPECT(!flag, "a message is left");
  }
}

CASE(PR3_probe_of_a_synchronous_and_a_buffered_message, .ranks = 2) {
  char space[100 + MPI_BSEND_OVERHEAD];
  if (my_rank == 0) {
    int value[2] = {1, 2}, bytes;
    void* back;
    MPI_Request request = issend(value, 4, 1, kTag);
    MUST(MPI_Buffer_attach(space, (int)sizeof(space)));
    MUST(MPI_Bsend(value, 2, MPI_INT, 1, kTag + 1, comm));
    complete(&request);
    MUST(MPI_Buffer_detach(&back, &bytes));
  } else {
    MPI_Status status;
    int value[2];
    MUST(MPI_Probe(0, kTag + 1, comm, &status));
    EXPECT_STATUS(&status, 0, kTag + 1, 8);
    MUST(MPI_Probe(0, kTag, comm, &status));
    EXPECT_STATUS(&status, 0, kTag, 4);
    recv_int(0, kTag, MPI_STATUS_IGNORE);
    MUST(MPI_Recv(value, 2, MPI_INT, 0, kTag + 1, comm, MPI_STATUS_IGNORE));
  }
}

/// A probe with MPI_ANY_TAG after tagged receives, and the other way round.
CASE(PR3_probes_with_and_without_wildcards, .ranks = 2) {
  enum { kMessages = 300 };
  if (my_rank == 0) {
    for (int i = 0; i < kMessages; ++i) send_int(i, 1, i % 10);
    return;
  }
  int left[10], taken = 0;
  uint64_t seed = 99;
  for (int tag = 0; tag < 10; ++tag) left[tag] = tag;  // the next message of each tag
  while (taken < kMessages) {
    int tag = random_between(&seed, 0, 9);
    if (left[tag] >= kMessages) continue;
    MPI_Status status;
    if (random_between(&seed, 0, 3) == 0) {
      int first = kMessages;
      for (int t = 0; t < 10; ++t) first = left[t] < first ? left[t] : first;
      MUST(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
      tag = status.MPI_TAG;
      EXPECT(tag == first % 10, "the first message has tag %d, not %d", first % 10, tag);
    } else {
      MUST(MPI_Probe(0, tag, comm, &status));
    }
    const int value = recv_int(0, tag, MPI_STATUS_IGNORE);
    EXPECT_DATA(value == left[tag], "tag %d: %d, expected %d", tag, value, left[tag]);
    left[tag] += 10;
    ++taken;
  }
}

CASE(MP1_mprobe_takes_the_message, .ranks = 2, .traits = kEveryLevel) {
  static const int kBytes[] = {0, 4, 5000, 2 << 20};
  for (int i = 0; i < 8; ++i) {
    const int bytes = kBytes[i / 2];
    unsigned char* data = memory((size_t)bytes);
    if (my_rank == 0) {
      fill(data, (size_t)bytes, 32, (uint64_t)i);
      MUST(MPI_Send(data, bytes, MPI_BYTE, 1, kTag, comm));
    } else {
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      spoil(&status);
      MUST(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &message, &status));
      EXPECT_STATUS(&status, 0, kTag, bytes);
      EXPECT(message != MPI_MESSAGE_NULL && message != MPI_MESSAGE_NO_PROC, "no message");
      int flag = 1;
      MUST(MPI_Iprobe(0, kTag, comm, &flag, MPI_STATUS_IGNORE));
      EXPECT(!flag, "a message that Mprobe has taken is visible");
      if (i % 2) {
        MUST(MPI_Mrecv(data, bytes, MPI_BYTE, &message, &status));
      } else {
        MPI_Request request;
        MUST(MPI_Imrecv(data, bytes, MPI_BYTE, &message, &request));
        MUST(MPI_Wait(&request, &status));
      }
      EXPECT(message == MPI_MESSAGE_NULL, "the message is not null after its receive");
      EXPECT_STATUS(&status, 0, kTag, bytes);
      EXPECT_STREAM(data, (size_t)bytes, 32, (uint64_t)i);
    }
    meet();
    free(data);
  }
}

CASE(MP1_improbe, .ranks = 2) {
  int flag = 1, value = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  MUST(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &message, &status));
  EXPECT(!flag, "Improbe is true without a message");
  meet();
  send_int(my_rank, my_peer, kTag);
  const double end = now_s() + 5;
  while (!flag && now_s() < end) {
    MUST(MPI_Improbe(MPI_ANY_SOURCE, kTag, comm, &flag, &message, &status));
  }
  REQUIRE(flag, "Improbe stays false");
  EXPECT_STATUS(&status, my_peer, kTag, 4);
  MUST(MPI_Mrecv(&value, 1, MPI_INT, &message, &status));
  EXPECT_STATUS(&status, my_peer, kTag, 4);
  EXPECT_DATA(value == my_peer, "received %d", value);
}

/// Messages that were taken may be received in any order; no receive can match them.
CASE(MP2_taken_messages_in_any_order, .ranks = 2) {
  enum { kMessages = 50 };
  if (my_rank == 0) {
    for (int i = 0; i <= kMessages; ++i) send_int(i, 1, kTag);
    return;
  }
  MPI_Message message[kMessages];
  for (int i = 0; i < kMessages; ++i) {
    MUST(MPI_Mprobe(0, i % 2 ? kTag : MPI_ANY_TAG, comm, &message[i], MPI_STATUS_IGNORE));
  }
  EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == kMessages, "a receive took a taken message");
  for (int n = 0; n < kMessages; ++n) {
    const int i = (n * 7 + 3) % kMessages;
    int value = -1;
    MUST(MPI_Mrecv(&value, 1, MPI_INT, &message[i], MPI_STATUS_IGNORE));
    EXPECT_DATA(value == i, "message %d: %d", i, value);
  }
}

CASE(MP2_imrecv_among_other_requests, .ranks = 2) {
  enum { kBytes = 1 << 20 };
  unsigned char* data = memory(2 * kBytes);
  if (my_rank == 0) {
    fill(data, 2 * kBytes, 33, 0);
    MPI_Request both[2] = {isend(data, kBytes, 1, 1), isend(data + kBytes, kBytes, 1, 2)};
    MUST(MPI_Waitall(2, both, MPI_STATUSES_IGNORE));
  } else {
    MPI_Message message;
    MPI_Request request[3];
    MPI_Status status[3];
    request[0] = irecv(data, kBytes, 0, 1);
    MUST(MPI_Mprobe(0, 2, comm, &message, MPI_STATUS_IGNORE));
    MUST(MPI_Imrecv(data + kBytes, kBytes, MPI_BYTE, &message, &request[1]));
    request[2] = MPI_REQUEST_NULL;
    MUST(MPI_Waitall(3, request, status));
    EXPECT_STATUS(&status[1], 0, 2, kBytes);
    EXPECT_STREAM(data, 2 * kBytes, 33, 0);
  }
  free(data);
}

/// A synchronous send is complete only when the matched receive has started.
CASE(MP3_ssend_completes_with_the_matched_receive, .ranks = 2) {
  int value = 3;
  if (my_rank == 0) {
    MPI_Request request = issend(&value, 4, 1, kTag);
    await(0, 1, 5);
    EXPECT(stays_open(&request, 0.01), "Issend is complete by Mprobe");
    post(1, 1);
    EXPECT(completes(&request, MPI_STATUS_IGNORE, 5), "Issend is incomplete after Mrecv");
  } else {
    MPI_Message message;
    MUST(MPI_Mprobe(0, kTag, comm, &message, MPI_STATUS_IGNORE));
    post(0, 1);
    await(1, 1, 5);
    value = 0;
    MUST(MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    EXPECT_DATA(value == 3, "received %d", value);
  }
}

CASE(MP4_null_process_gives_no_proc, .ranks = 2) {
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  MPI_Request request;
  int flag = 0, value = 5;
  for (int way = 0; way < 3; ++way) {
    spoil(&status);
    if (way == 0) {
      MUST(MPI_Mprobe(MPI_PROC_NULL, kTag, comm, &message, &status));
    } else {
      MUST(MPI_Improbe(MPI_PROC_NULL, kTag, comm, &flag, &message, &status));
      EXPECT(flag, "Improbe of MPI_PROC_NULL is false");
    }
    EXPECT(message == MPI_MESSAGE_NO_PROC, "the message is not MPI_MESSAGE_NO_PROC");
    EXPECT_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    spoil(&status);
    if (way < 2) {
      MUST(MPI_Mrecv(&value, 1, MPI_INT, &message, &status));
    } else {
      MUST(MPI_Imrecv(&value, 1, MPI_INT, &message, &request));
      MUST(MPI_Wait(&request, &status));
    }
    EXPECT_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    EXPECT(message == MPI_MESSAGE_NULL, "the message is not null after its receive");
  }
  EXPECT_DATA(value == 5, "a receive from nowhere wrote %d", value);
}

CASE(MP5_truncated_matched_receive, .ranks = 2) {
  int data[4] = {1, 2, 3, 4};
  if (my_rank == 0) {
    MUST(MPI_Send(data, 4, MPI_INT, 1, kTag, comm));
    send_int(9, 1, kTag);
  } else {
    MPI_Message message;
    int small[2] = {0};
    MUST(MPI_Mprobe(0, kTag, comm, &message, MPI_STATUS_IGNORE));
    EXPECT_ERROR(MPI_Mrecv(&small, 2, MPI_INT, &message, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == 9, "the next message");
  }
}

/// A handle is good in the other language, and stands for the same message.
CASE(MP1_handles_of_fortran, .ranks = 2) {
#ifdef MPI_ABI_VERSION
  case_skip("the standard ABI has no Fortran");
#else
  enum { kMessages = 5 };
  for (int i = 0; my_rank == 0 && i < kMessages; ++i) send_int(i, 1, kTag);
  if (my_rank == 0) return;
  MPI_Fint number[kMessages];
  for (int i = 0; i < kMessages; ++i) {
    MPI_Message message;
    MUST(MPI_Mprobe(0, kTag, comm, &message, MPI_STATUS_IGNORE));
    number[i] = MPI_Message_c2f(message);
    for (int j = 0; j < i; ++j) EXPECT(number[j] != number[i], "two messages with one handle");
  }
  for (int i = kMessages - 1; i >= 0; --i) {
    int value = -1;
    MPI_Message message = MPI_Message_f2c(number[i]);
    MUST(MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    EXPECT_DATA(value == i, "message %d: %d", i, value);
  }
#endif
}

/// A matched receive with a wrong argument leaves the message.
CASE(MP5_wrong_arguments_leave_the_message, .ranks = 2) {
  if (my_rank == 0) {
    send_int(7, 1, kTag);
    return;
  }
  MPI_Message message;
  MPI_Request request;
  int value = 0;
  MUST(MPI_Mprobe(0, kTag, comm, &message, MPI_STATUS_IGNORE));
  const MPI_Message handle = message;
  EXPECT_ERROR(MPI_Mrecv(&value, -1, MPI_INT, &message, MPI_STATUS_IGNORE), MPI_ERR_COUNT);
  EXPECT_ERROR(MPI_Imrecv(&value, 1, MPI_DATATYPE_NULL, &message, &request), MPI_ERR_TYPE);
  EXPECT(message == handle, "a refused receive changed the handle");
  MUST(MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
  EXPECT_DATA(value == 7, "received %d", value);
}
