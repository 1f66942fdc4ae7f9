// MPI_Cancel of receives and sends, MPI_Test_cancelled.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 81 };

static bool cancelled(const MPI_Status* status) {
  int flag = -1;
  MUST(MPI_Test_cancelled(status, &flag));
  return flag != 0;
}

/// Cancels and completes. @return true if it was cancelled
static bool cancel(MPI_Request* request) {
  MPI_Status status;
  spoil(&status);
  MUST(MPI_Cancel(request));
  EXPECT(*request != MPI_REQUEST_NULL, "MPI_Cancel freed the request");
  step("completing a cancelled request");
  MUST(MPI_Wait(request, &status));
  EXPECT(*request == MPI_REQUEST_NULL, "a cancelled request is not null after Wait");
  return cancelled(&status);
}

CASE(CA1_receives_are_cancelled, .ranks = 2, .traits = kEveryLevel) {
  static const int kTags[] = {kTag, MPI_ANY_TAG}, kSources[] = {1, MPI_ANY_SOURCE, 0};
  for (int i = 0; i < 6; ++i) {
    int value = 5;
    MPI_Request request = irecv_int(&value, kSources[i % 3], kTags[i % 2]);
    EXPECT(cancel(&request), "a receive without a message was not cancelled");
    EXPECT_DATA(value == 5, "a cancelled receive wrote %d", value);
  }
  meet();
  send_int(my_rank, my_peer, kTag);
  EXPECT_DATA(recv_int(my_peer, kTag, MPI_STATUS_IGNORE) == my_peer, "the message after cancels");
}

/// A cancelled receive takes no message: the next receive gets it.
CASE(CA1_a_cancelled_receive_takes_no_message, .ranks = 2) {
  enum { kReceives = 9 };
  if (my_rank == 0) {
    await(0, 1, 5);
    for (int i = 0; i < kReceives - 3; ++i) send_int(i, 1, kTag);
    return;
  }
  int value[kReceives], next = 0;
  MPI_Request request[kReceives];
  for (int i = 0; i < kReceives; ++i) {
    value[i] = -1;
    request[i] = irecv_int(&value[i], i % 2 ? MPI_ANY_SOURCE : 0, i % 3 ? kTag : MPI_ANY_TAG);
  }
  for (int i = 1; i < kReceives; i += 3) {
    EXPECT(cancel(&request[i]), "receive %d was not cancelled", i);
  }
  post(0, 1);
  for (int i = 0; i < kReceives; ++i) {
    if (i % 3 == 1) {
      EXPECT_DATA(value[i] == -1, "a cancelled receive got %d", value[i]);
      continue;
    }
    complete(&request[i]);
    EXPECT_DATA(value[i] == next, "receive %d got %d, expected %d", i, value[i], next);
    ++next;
  }
}

/// Either cancelled, and the message is there for another receive, or complete, with its status.
CASE(CA2_cancel_against_a_message_that_comes, .ranks = 2) {
  enum { kRounds = 200 };
  for (int round = 0; round < kRounds; ++round) {
    if (my_rank == 0) {
      await(0, round + 1, 5);
      send_int(round, 1, kTag);
      recv_int(1, kTag, MPI_STATUS_IGNORE);
      continue;
    }
    int value = -1;
    MPI_Status status;
    MPI_Request request = irecv_int(&value, 0, kTag);
    post(0, round + 1);
    for (int i = 0; i < round % 10; ++i) {
      int flag;
      MUST(MPI_Iprobe(0, kTag + 1, comm, &flag, MPI_STATUS_IGNORE));
    }
    MUST(MPI_Cancel(&request));
    MUST(MPI_Wait(&request, &status));
    if (cancelled(&status)) {
      EXPECT_DATA(value == -1, "a cancelled receive got %d", value);
      value = recv_int(0, kTag, MPI_STATUS_IGNORE);
    } else {
      EXPECT_STATUS(&status, 0, kTag, 4);
    }
    EXPECT_DATA(value == round, "round %d: %d", round, value);
    send_int(0, 0, kTag);
  }
}

CASE(CA2_cancel_of_a_completed_receive_changes_nothing, .ranks = 2) {
  int value = 0;
  if (my_rank == 0) {
    send_int(6, 1, kTag);
    return;
  }
  MPI_Request request = irecv_int(&value, 0, kTag);
  int flag = 0;
  MPI_Status status;
  while (!flag) MUST(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
  MUST(MPI_Cancel(&request));
  MUST(MPI_Wait(&request, &status));
  EXPECT_STATUS(&status, 0, kTag, 4);
  EXPECT_DATA(value == 6, "received %d", value);
}

static MPI_Request start_send(int way, const void* data, int bytes) {
  return way ? issend(data, bytes, 1, kTag) : isend(data, bytes, 1, kTag);
}

/// Makes progress, and receives the message if it is there, until the sender goes on.
static void help_sender(void* data, int bytes) {
  while (peek(0) == 0) {
    int flag = 0;
    MUST(MPI_Iprobe(0, kTag, comm, &flag, MPI_STATUS_IGNORE));
    if (flag) MUST(MPI_Recv(data, bytes, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
  }
}

/// A send is cancelled or arrives, never both, never neither. Wait returns without the receiver.
static void cancel_sends(int way, int bytes) {
  unsigned char* data = memory((size_t)bytes);
  if (my_rank == 0) {
    fill(data, (size_t)bytes, 41, 0);
    MPI_Request request = start_send(way, data, bytes);
    MPI_Status status;
    MUST(MPI_Cancel(&request));
    step("waiting for a send after its cancel");
    MUST(MPI_Wait(&request, &status));  // the receiver makes no call before the flag
    post(0, cancelled(&status) ? 1 : 2);
    send_int(7, 1, kTag + 1);
  } else {
    const bool is_local = await(0, 1, 2);
    EXPECT(is_local, "Wait of a send after MPI_Cancel needs the receiver");
    if (!is_local) {  // the sender needs it: end the case in order
      help_sender(data, bytes);
      recv_int(0, kTag + 1, MPI_STATUS_IGNORE);
      free(data);
      return;
    }
    const bool was_cancelled = peek(0) == 1;
    EXPECT_DATA(recv_int(0, kTag + 1, MPI_STATUS_IGNORE) == 7, "the later message");
    int flag = 0;
    MUST(MPI_Iprobe(0, kTag, comm, &flag, MPI_STATUS_IGNORE));
    EXPECT(!!flag == !was_cancelled, "cancelled %d, and the message is visible: %d", was_cancelled,
           flag);
    if (flag) {
      MUST(MPI_Recv(data, bytes, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
      EXPECT_STREAM(data, (size_t)bytes, 41, 0);
    }
  }
  free(data);
}

CASE(CA3_cancelled_issend_needs_no_receiver, .ranks = 2) { cancel_sends(1, 8); }
CASE(CA3_cancelled_long_isend_needs_no_receiver, .ranks = 2) { cancel_sends(0, 8 << 20); }
CASE(CA3_cancelled_short_isend, .ranks = 2) { cancel_sends(0, 8); }

CASE(CA3_cancel_of_a_received_send, .ranks = 2, .traits = kEveryLevel) {
  int value = 4;
  if (my_rank == 0) {
    MPI_Request request = issend(&value, 4, 1, kTag);
    await(0, 1, 5);
    MUST(MPI_Cancel(&request));
    MPI_Status status;
    MUST(MPI_Wait(&request, &status));
    EXPECT(!cancelled(&status), "a received send was cancelled");
  } else {
    EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == 4, "the message");
    post(0, 1);
  }
}

/// Cancel and free instead of a wait.
CASE(CA4_cancel_and_free, .ranks = 2) {
  int value[20];
  for (int i = 0; i < 20; ++i) {
    value[i] = 3;
    MPI_Request request = irecv_int(&value[i], my_peer, kTag);
    MUST(MPI_Cancel(&request));
    MUST(MPI_Request_free(&request));
  }
  meet();
  send_int(8, my_peer, kTag);
  EXPECT_DATA(recv_int(my_peer, kTag, MPI_STATUS_IGNORE) == 8, "the message after the cancels");
  for (int i = 0; i < 20; ++i) EXPECT_DATA(value[i] == 3, "a cancelled receive got %d", value[i]);
}

CASE(CA4_cancelled_requests_in_arrays, .ranks = 2) {
  enum { kReceives = 6 };
  int value[kReceives], done = 0, index[kReceives];
  MPI_Request request[kReceives];
  MPI_Status status[kReceives];
  for (int way = 0; way < 3; ++way) {
    for (int i = 0; i < kReceives; ++i) request[i] = irecv_int(&value[i], my_peer, i);
    meet();
    for (int i = 0; i < kReceives; i += 2) {
      MUST(MPI_Cancel(&request[i]));
      send_int(i + 1, my_peer, i + 1);
    }
    for (int n = 0; n < kReceives; n += done) {
      done = 1;
      if (way == 0) MUST(MPI_Waitsome(kReceives, request, &done, index, status));
      if (way == 1) MUST(MPI_Waitany(kReceives, request, index, status));
      if (way == 2) MUST(MPI_Waitall(kReceives, request, status));
      if (way == 2) done = kReceives;
      for (int d = 0; d < done; ++d) {
        const int i = way == 2 ? d : index[d];
        REQUIRE(i >= 0 && i < kReceives, "index %d", i);
        EXPECT(cancelled(&status[d]) == (i % 2 == 0), "receive %d: cancelled %d", i,
               cancelled(&status[d]));
        if (i % 2) EXPECT_DATA(value[i] == i, "receive %d got %d", i, value[i]);
      }
    }
  }
}

/// A cancelled persistent receive can be started again.
CASE(CA5_persistent_receive_after_a_cancel, .ranks = 2) {
  int value = -1;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status;
  if (my_rank == 1) {
    MUST(MPI_Recv_init(&value, 1, MPI_INT, 0, kTag, comm, &request));
    for (int round = 0; round < 5; ++round) {
      MUST(MPI_Start(&request));
      MUST(MPI_Cancel(&request));
      MUST(MPI_Wait(&request, &status));
      EXPECT(cancelled(&status) && request != MPI_REQUEST_NULL, "round %d: not cancelled", round);
      MUST(MPI_Start(&request));
      post(0, round + 1);
      MUST(MPI_Wait(&request, &status));
      EXPECT_STATUS(&status, 0, kTag, 4);
      EXPECT_DATA(value == round, "round %d: %d", round, value);
    }
    drop(&request);
  } else {
    for (int round = 0; round < 5; ++round) {
      await(0, round + 1, 5);
      send_int(round, 1, kTag);
    }
  }
}
