// Progress: a matching pair completes whatever its processes do in other MPI calls meanwhile.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 31, kLong = 8 << 20 };

/// Rank 0 sends a long message, both sit in a collective call before they wait.
static void across(void (*meanwhile)(void), int sender) {
  unsigned char* data = memory(kLong);
  MPI_Request request;
  if (my_rank == sender) {
    fill(data, kLong, 5, 0);
    request = isend(data, kLong, my_peer, kTag);
  } else {
    request = irecv(data, kLong, my_peer, kTag);
  }
  meanwhile();
  complete(&request);
  if (my_rank != sender) EXPECT_STREAM(data, kLong, 5, 0);
  free(data);
}

static void in_barrier(void) { MUST(MPI_Barrier(comm)); }
static void in_allreduce(void) {
  int sum = 0;
  for (int i = 0; i < 10; ++i) MUST(MPI_Allreduce(&my_rank, &sum, 1, MPI_INT, MPI_SUM, comm));
  EXPECT_DATA(sum == 1, "the sum is %d", sum);
}
static void in_comm_dup(void) {
  MPI_Comm copy;
  MUST(MPI_Comm_dup(comm, &copy));
  MUST(MPI_Comm_free(&copy));
}

CASE(PG1_long_send_before_a_barrier, .ranks = 2, .traits = kEveryLevel) { across(in_barrier, 0); }
CASE(PG1_long_send_before_a_barrier_mirrored, .ranks = 2) { across(in_barrier, 1); }
CASE(PG1_long_send_before_allreduce, .ranks = 2) { across(in_allreduce, 0); }
CASE(PG1_long_send_before_comm_dup, .ranks = 2) { across(in_comm_dup, 0); }

/// The receiver is in a barrier when the sender's blocking call needs it.
CASE(PG2_blocking_long_send_to_a_receiver_in_a_barrier, .ranks = 2, .traits = kEveryLevel) {
  unsigned char* data = memory(kLong);
  for (int sender = 0; sender < 2; ++sender) {
    if (my_rank == sender) {
      fill(data, kLong, 6, (uint64_t)sender);
      await(sender, 1, 5);
      MUST(MPI_Send(data, kLong, MPI_BYTE, my_peer, kTag, comm));
      in_barrier();
    } else {
      MPI_Request request = irecv(data, kLong, my_peer, kTag);
      post(sender, 1);
      in_barrier();
      complete(&request);
      EXPECT_STREAM(data, kLong, 6, (uint64_t)sender);
    }
  }
  free(data);
}

CASE(PG2_ssend_to_a_receiver_in_a_barrier, .ranks = 2) {
  if (my_rank == 0) {
    int value = 8;
    await(0, 1, 5);
    MUST(MPI_Ssend(&value, 1, MPI_INT, 1, kTag, comm));
    in_barrier();
  } else {
    int value = 0;
    MPI_Request request = irecv_int(&value, 0, kTag);
    post(0, 1);
    in_barrier();
    complete(&request);
    EXPECT_DATA(value == 8, "received %d", value);
  }
}

/// A nonblocking collective call goes on while the process waits for a message.
CASE(PG2_nonblocking_barrier_beside_a_receive, .ranks = 2) {
  MPI_Request barrier;
  for (int round = 0; round < 10; ++round) {
    MUST(MPI_Ibarrier(comm, &barrier));
    if (my_rank == 0) {
      complete(&barrier);
      send_int(round, 1, kTag);
    } else {
      EXPECT_DATA(recv_int(0, kTag, MPI_STATUS_IGNORE) == round, "round %d", round);
      complete(&barrier);
    }
  }
}

/// An unmatched long message does not stop one that the receiver takes first.
CASE(PG3_a_later_message_passes_an_unmatched_long_one, .ranks = 2) {
  unsigned char* data = memory(kLong);
  if (my_rank == 0) {
    fill(data, kLong, 7, 0);
    MPI_Request request = isend(data, kLong, 1, kTag);
    send_int(3, 1, kTag + 1);
    complete(&request);
  } else {
    EXPECT_DATA(recv_int(0, kTag + 1, MPI_STATUS_IGNORE) == 3, "the later message");
    MUST(MPI_Recv(data, kLong, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE));
    EXPECT_STREAM(data, kLong, 7, 0);
  }
  free(data);
}

/// Both processes send a long message to each other by blocking calls; the receives are posted.
CASE(PG3_head_to_head_with_posted_receives, .ranks = 2) {
  unsigned char *in = memory(kLong), *out = memory(kLong);
  fill(out, kLong, 8, (uint64_t)my_rank);
  MPI_Request request = irecv(in, kLong, my_peer, kTag);
  MUST(MPI_Send(out, kLong, MPI_BYTE, my_peer, kTag, comm));
  complete(&request);
  EXPECT_STREAM(in, kLong, 8, (uint64_t)my_peer);
  free(in);
  free(out);
}

/// In each way the receiver makes no other MPI call.
static void by_call_alone(bool (*is_done)(MPI_Request*)) {
  unsigned char* data = memory(kLong);
  if (my_rank == 0) {
    fill(data, kLong, 9, 0);
    MUST(MPI_Send(data, kLong, MPI_BYTE, 1, kTag, comm));
  } else {
    MPI_Request request = irecv(data, kLong, 0, kTag);
    const double end = now_s() + 10;
    while (!is_done(&request) && now_s() < end) {
    }
    EXPECT(now_s() < end, "the receive made no progress");
    complete(&request);
    EXPECT_STREAM(data, kLong, 9, 0);
  }
  free(data);
}

static bool by_test(MPI_Request* request) { return tested(request); }
static bool by_get_status(MPI_Request* request) {
  int flag = 0;
  MUST(MPI_Request_get_status(*request, &flag, MPI_STATUS_IGNORE));
  return flag != 0;
}
static bool by_testsome(MPI_Request* request) {
  int done = 0, index = 0;
  MUST(MPI_Testsome(1, request, &done, &index, MPI_STATUSES_IGNORE));
  return done == 1;
}
CASE(PG4_test_alone_makes_progress, .ranks = 2) { by_call_alone(by_test); }
CASE(PG4_get_status_alone_makes_progress, .ranks = 2) { by_call_alone(by_get_status); }
CASE(PG4_testsome_alone_makes_progress, .ranks = 2) { by_call_alone(by_testsome); }

/// Iprobe of another message drives a receive.
CASE(PG4_iprobe_alone_makes_progress, .ranks = 2) {
  unsigned char* data = memory(kLong);
  if (my_rank == 0) {
    fill(data, kLong, 9, 1);
    MUST(MPI_Send(data, kLong, MPI_BYTE, 1, kTag, comm));
    send_int(1, 1, kTag + 1);
  } else {
    MPI_Request request = irecv(data, kLong, 0, kTag);
    const double end = now_s() + 10;
    int flag = 0;
    while (!flag && now_s() < end) {
      MUST(MPI_Iprobe(0, kTag + 1, comm, &flag, MPI_STATUS_IGNORE));
    }
    EXPECT(flag, "the second message is not visible");
    EXPECT_DATA(recv_int(0, kTag + 1, MPI_STATUS_IGNORE) == 1, "the second message");
    complete(&request);
    EXPECT_STREAM(data, kLong, 9, 1);
  }
  free(data);
}

/// Waiting for a third process must not stop the traffic of two.
CASE(PG5_waiting_for_another_process, .ranks = 4) {
  enum { kBytes = 1 << 20 };
  unsigned char *in = memory(kBytes), *out = memory(kBytes);
  const int right = (my_rank + 1) % 4, left = (my_rank + 3) % 4;
  fill(out, kBytes, 10, (uint64_t)my_rank);
  MPI_Request request[2] = {irecv(in, kBytes, left, kTag), isend(out, kBytes, right, kTag)};
  if (my_rank == 0) {
    send_int(1, 1, kTag + 1);
    recv_int(3, kTag + 1, MPI_STATUS_IGNORE);
  } else {
    recv_int(left, kTag + 1, MPI_STATUS_IGNORE);
    if (my_rank == 1) pause_s(0.01);
    send_int(1, right, kTag + 1);
  }
  MUST(MPI_Waitall(2, request, MPI_STATUSES_IGNORE));
  EXPECT_STREAM(in, kBytes, 10, (uint64_t)left);
  free(in);
  free(out);
}

/// A request that stands in the list of each call completes in the end, though others complete,
/// too.
CASE(FA1_waitsome_starves_no_request, .ranks = 4) {
  enum { kRounds = 200 };
  if (my_rank > 0) {
    for (int i = 0; i < kRounds; ++i) send_int(i, 0, kTag);
    return;
  }
  int value[3], next[3] = {0}, open = 3;
  MPI_Request request[3];
  for (int i = 0; i < 3; ++i) request[i] = irecv_int(&value[i], i + 1, kTag);
  while (open > 0) {
    int done = 0, index[3];
    MUST(MPI_Waitsome(3, request, &done, index, MPI_STATUSES_IGNORE));
    for (int d = 0; d < done; ++d) {
      const int i = index[d];
      EXPECT_DATA(value[i] == next[i], "source %d: %d, expected %d", i + 1, value[i], next[i]);
      if (++next[i] < kRounds) {
        request[i] = irecv_int(&value[i], i + 1, kTag);
      } else {
        --open;
      }
    }
  }
}

CASE(FA1_testsome_starves_no_request, .ranks = 2) {
  int late = 0, value = 0;
  if (my_rank == 0) {
    send_int(77, 1, kTag + 1);
    for (int i = 0; i < 2000; ++i) send_int(i, 1, kTag);
    return;
  }
  MPI_Request request[2] = {irecv_int(&value, 0, kTag), irecv_int(&late, 0, kTag + 1)};
  bool seen = false;
  for (int i = 0; i < 2000;) {
    int done = 0, index[2];
    MUST(MPI_Testsome(2, request, &done, index, MPI_STATUSES_IGNORE));
    for (int d = 0; d < done && done != MPI_UNDEFINED; ++d) {
      if (index[d] == 1) {
        seen = true;
      } else if (++i < 2000) {
        request[0] = irecv_int(&value, 0, kTag);
      }
    }
  }
  EXPECT(seen || completes(&request[1], MPI_STATUS_IGNORE, 5), "the other request never completed");
  EXPECT_DATA(late == 77, "received %d", late);
}
