// MPI_Waitall on requests whose messages come in any order, over two communicators. Ranks 0 and 1.

#include "carried.h"

enum { kMany = 100, kLong = 1 << 20, kGo = 999 };

static int class_of(int code) {
  int class = 0;
  MPI_Error_class(code, &class);
  return class;
}

/// The first message comes only after the call has returned: the second one has failed.
static void fails_behind_an_open_one(void) {
  int value[3] = {7, 8, 9}, first = 0, second = 0, go = 1;
  if (my_rank == 0) {
    MPI_Recv(&go, 1, MPI_INT, 1, kGo, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    usleep(100000);  // the other rank is in the call
    MPI_Send(value, 3, MPI_INT, 1, 2, MPI_COMM_WORLD);
    MPI_Recv(&go, 1, MPI_INT, 1, kGo, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    return;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Status statuses[3];
  MPI_Irecv(&first, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &requests[1]);
  MPI_Irecv(&second, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &requests[2]);
  MPI_Send(&go, 1, MPI_INT, 0, kGo, MPI_COMM_WORLD);
  const int class = class_of(MPI_Waitall(3, requests, statuses));
  expect(class == MPI_ERR_IN_STATUS, "class of MPI_Waitall", class);
  expect(statuses[0].MPI_ERROR == MPI_SUCCESS, "error of the null request", statuses[0].MPI_ERROR);
  expect(statuses[1].MPI_ERROR == MPI_ERR_PENDING, "error of the open receive",
         statuses[1].MPI_ERROR);
  expect(class_of(statuses[2].MPI_ERROR) == MPI_ERR_TRUNCATE, "error of the short receive",
         statuses[2].MPI_ERROR);
  MPI_Send(&go, 1, MPI_INT, 0, kGo, MPI_COMM_WORLD);
  MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
  expect(first == 7, "value of the open receive", first);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/// One has ended before another fails.
static void fails_behind_one_that_is_over(void) {
  int value[3] = {7, 8, 9}, first = 0, second = 0;
  if (my_rank == 0) {
    MPI_Send(value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    MPI_Send(value, 3, MPI_INT, 1, 2, MPI_COMM_WORLD);
    return;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Request requests[2];
  MPI_Status statuses[2];
  statuses[0].MPI_ERROR = -1;
  MPI_Irecv(&first, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(&second, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &requests[1]);
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  MPI_Irecv(&first, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &requests[0]);
  MPI_Cancel(&requests[0]);
  const int class = class_of(MPI_Waitall(2, requests, statuses));
  int is_cancelled = 0;
  MPI_Test_cancelled(&statuses[0], &is_cancelled);
  expect(class == MPI_ERR_IN_STATUS, "class of MPI_Waitall", class);
  expect(statuses[0].MPI_ERROR == MPI_SUCCESS && is_cancelled, "error of the one that is over",
         statuses[0].MPI_ERROR);
  expect(requests[0] == MPI_REQUEST_NULL, "the one that is over is null", 0);
  expect(class_of(statuses[1].MPI_ERROR) == MPI_ERR_TRUNCATE, "error of the short receive",
         statuses[1].MPI_ERROR);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/// The message of the first request comes once a later request's long message is through.
static void depends_on_a_later_one(MPI_Comm first, MPI_Comm second) {
  static unsigned char data[kLong];
  int value = 5;
  if (my_rank == 0) {
    MPI_Recv(data, kLong, MPI_BYTE, 1, 1, second, MPI_STATUS_IGNORE);
    expect(wrong_bytes(data, kLong, 3) == 0, "wrong bytes", kLong);
    MPI_Send(&value, 1, MPI_INT, 1, 1, first);
    return;
  }
  MPI_Request requests[2];
  value = 0;
  fill(data, kLong, 3);
  MPI_Irecv(&value, 1, MPI_INT, 0, 1, first, &requests[0]);
  MPI_Isend(data, kLong, MPI_BYTE, 0, 1, second, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  expect(value == 5, "value of the first message", value);
}

/// Many, also null and persistent ones; the messages come last to first.
static void many(MPI_Comm first, MPI_Comm second) {
  static int in[kMany];
  if (my_rank == 0) {
    for (int i = kMany - 1; i >= 0; --i)
      if (i % 10 != 3) MPI_Send(&i, 1, MPI_INT, 1, i, i % 2 != 0 ? first : second);
    return;
  }
  MPI_Request requests[kMany], kept = MPI_REQUEST_NULL;
  MPI_Status statuses[kMany];
  for (int i = 0; i < kMany; ++i) {
    MPI_Comm comm = i % 2 != 0 ? first : second;
    in[i] = -1;
    if (i % 10 == 3) {
      requests[i] = MPI_REQUEST_NULL;
    } else if (i == 50) {
      MPI_Recv_init(&in[i], 1, MPI_INT, 0, i, comm, &requests[i]);
      kept = requests[i];
      MPI_Start(&requests[i]);
    } else {
      MPI_Irecv(&in[i], 1, MPI_INT, MPI_ANY_SOURCE, i, comm, &requests[i]);
    }
  }
  MPI_Waitall(kMany, requests, statuses);
  for (int i = 0; i < kMany; ++i) {
    int count = -1;
    const int is_null = i % 10 == 3;
    MPI_Get_count(&statuses[i], MPI_INT, &count);
    expect(in[i] == (is_null ? -1 : i), "value of message", i);
    expect(statuses[i].MPI_SOURCE == (is_null ? MPI_ANY_SOURCE : 0), "source of message", i);
    expect(statuses[i].MPI_TAG == (is_null ? MPI_ANY_TAG : i), "tag of message", i);
    expect(count == !is_null, "count of message", i);
    expect(requests[i] == (i == 50 ? kept : MPI_REQUEST_NULL), "request of message", i);
  }
  MPI_Request_free(&requests[50]);
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  MPI_Comm first, second;
  MPI_Comm_dup(MPI_COMM_WORLD, &first);
  MPI_Comm_dup(MPI_COMM_WORLD, &second);
  fails_behind_an_open_one();
  fails_behind_one_that_is_over();
  depends_on_a_later_one(first, second);
  depends_on_a_later_one(second, first);
  many(first, second);
  MPI_Comm_free(&first);
  MPI_Comm_free(&second);
  MPI_Finalize();
  printf("rank %d ok\n", my_rank);
  return 0;
}
