// Misuse: an MPI error of a sensible class (E1), nothing crashes, no other request is harmed.
#include <string.h>

#include "case.h"

enum { kTag = 43, kParts = 4 };

/// A pair that lives through every misuse.
typedef struct Witness {
  int data[kParts];
  MPI_Request request;
} Witness;

static void witness_open(Witness* w) {
  w->request = my_rank == 0 ? psend(w->data, kParts, 1, MPI_INT, 1, 4000, comm)
                            : precv(w->data, kParts, 1, MPI_INT, 0, 4000, comm);
  start(&w->request);
  if (my_rank == 0) {
    w->data[0] = 1;
    ready(w->request, 0);
  }
}

static void witness_close(Witness* w) {
  if (my_rank == 0) {
    w->data[1] = 2;
    w->data[2] = 3;
    w->data[3] = 4;
    MUST(MPI_Pready_range(1, 3, w->request));
  }
  step("completing a pair that had nothing to do with the error");
  complete(&w->request);
  for (int i = 0; i < kParts; ++i) EXPECT_DATA(w->data[i] == i + 1, "%d: %d", i, w->data[i]);
  drop(&w->request);
}

typedef int (*Init)(void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int rank,
                    int tag, MPI_Comm on, MPI_Info info, MPI_Request* request);
static int send_init(void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int rank,
                     int tag, MPI_Comm on, MPI_Info info, MPI_Request* request) {
  return MPI_Psend_init(buffer, partitions, count, type, rank, tag, on, info, request);
}
static const Init kInits[] = {send_init, MPI_Precv_init};

CASE(E1_arguments_of_init, .ranks = 2) {
  Witness witness;
  int value = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  witness_open(&witness);
  for (int i = 0; i < 2; ++i) {
    const Init init = kInits[i];
    EXPECT_ERROR(init(&value, 1, 1, MPI_INT, 77, kTag, comm, MPI_INFO_NULL, &request),
                 MPI_ERR_RANK);
    EXPECT_ERROR(init(&value, 1, 1, MPI_INT, -77, kTag, comm, MPI_INFO_NULL, &request),
                 MPI_ERR_RANK);
    EXPECT_ERROR(init(&value, 1, 1, MPI_INT, my_peer, -5, comm, MPI_INFO_NULL, &request),
                 MPI_ERR_TAG);
    EXPECT_ERROR(
        init(&value, 1, 1, MPI_DATATYPE_NULL, my_peer, kTag, comm, MPI_INFO_NULL, &request),
        MPI_ERR_TYPE);
    EXPECT_ERROR(init(&value, 1, -1, MPI_INT, my_peer, kTag, comm, MPI_INFO_NULL, &request),
                 MPI_ERR_COUNT);
    EXPECT_ERROR(init(&value, 0, 1, MPI_INT, my_peer, kTag, comm, MPI_INFO_NULL, &request),
                 MPI_ERR_ARG);
    EXPECT_ERROR(init(&value, 1, 1, MPI_INT, my_peer, kTag, MPI_COMM_NULL, MPI_INFO_NULL, &request),
                 MPI_ERR_COMM);
  }
  witness_close(&witness);
}

CASE(E1_uncommitted_type, .ranks = 2) {
  int value[2] = {0, 0};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Datatype type;
  MUST(MPI_Type_contiguous(2, MPI_INT, &type));
  for (int i = 0; i < 2; ++i) {
    EXPECT_ERROR(kInits[i](value, 1, 1, type, my_peer, kTag, comm, MPI_INFO_NULL, &request),
                 MPI_ERR_TYPE);
  }
  MUST(MPI_Type_free(&type));
}

CASE(E1_tag_above_the_bound, .ranks = 2) {
  int value = 0, found = 0, *tag_ub = NULL;
  MUST(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &found));
  if (!found || *tag_ub == INT32_MAX) {
    case_skip("every tag is valid here");
    return;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  for (int i = 0; i < 2; ++i) {
    EXPECT_ERROR(
        kInits[i](&value, 1, 1, MPI_INT, my_peer, *tag_ub + 1, comm, MPI_INFO_NULL, &request),
        MPI_ERR_TAG);
  }
}

CASE(E1_null_buffer_with_data, .ranks = 2) {
  Witness witness;
  MPI_Request request = MPI_REQUEST_NULL;
  witness_open(&witness);
  for (int i = 0; i < 2; ++i) {
    EXPECT_ERROR(kInits[i](NULL, 2, 1, MPI_INT, my_peer, kTag, comm, MPI_INFO_NULL, &request),
                 MPI_ERR_BUFFER, MPI_ERR_ARG);
  }
  witness_close(&witness);
}

/// Total sizes that differ fail both requests by name, in the first call after it is known; others
/// go on.
CASE(E1_sizes_differ, .ranks = 2) {
  Witness witness;
  witness_open(&witness);
  int data[8] = {0};
  MPI_Request request = my_rank == 0 ? psend(data, 2, 4, MPI_INT, 1, kTag, comm)
                                     : precv(data, 3, 2, MPI_INT, 0, kTag, comm);
  step("waiting for a pair with different sizes");
  int code = MPI_SUCCESS;
  for (int round = 0; round < 3 && code == MPI_SUCCESS; ++round) {  // a send may be buffered
    code = MPI_Start(&request);
    if (code == MPI_SUCCESS && my_rank == 0) code = MPI_Pready_range(0, 1, request);
    if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  EXPECT_ERROR(code, MPI_ERR_TRUNCATE, MPI_ERR_OTHER);
  witness_close(&witness);
  if (request != MPI_REQUEST_NULL) drop(&request);
}

/// The receiver is in MPI_Waitall when the sizes are found to differ.
CASE(E1_error_in_status_of_an_array, .ranks = 2) {
  int data[8] = {0}, plain[2] = {17, 0};
  MPI_Request request[4] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Status status[4];
  MUST(MPI_Irecv(&plain[1], 1, MPI_INT, my_peer, 1, comm, &request[2]));
  MUST(MPI_Isend(&plain[0], 1, MPI_INT, my_peer, 1, comm, &request[0]));
  if (my_rank == 1) {
    request[1] = precv(data, 3, 2, MPI_INT, 0, kTag, comm);
    start(&request[1]);
    post(0, 1);
    step("MPI_Waitall with one pair of different sizes");
    int code = MPI_Waitall(4, request, status), class = 0;
    MPI_Error_class(code, &class);
    EXPECT(class == MPI_ERR_IN_STATUS, "expected MPI_ERR_IN_STATUS, found class %d", class);
    if (class == MPI_ERR_IN_STATUS) {
      EXPECT(status[1].MPI_ERROR != MPI_SUCCESS && status[1].MPI_ERROR != MPI_ERR_PENDING,
             "the status of the failed request says %d", status[1].MPI_ERROR);
      EXPECT(status[2].MPI_ERROR == MPI_SUCCESS || status[2].MPI_ERROR == MPI_ERR_PENDING,
             "the plain receive says %d", status[2].MPI_ERROR);
    }
  } else {
    await(0, 1, 5);
    pause_s(0.01);
    request[1] = psend(data, 2, 4, MPI_INT, 1, kTag, comm);
  }
  MUST(MPI_Wait(&request[0], MPI_STATUS_IGNORE));
  MUST(MPI_Wait(&request[2], MPI_STATUS_IGNORE));
  EXPECT_DATA(plain[1] == 17, "the plain receive got %d", plain[1]);
  if (request[1] != MPI_REQUEST_NULL) drop(&request[1]);
}

CASE(E1_free_and_cancel_of_null, .ranks = 2) {
  MPI_Request request = MPI_REQUEST_NULL;
  EXPECT_ERROR(MPI_Request_free(&request), MPI_ERR_REQUEST);
  EXPECT_ERROR(MPI_Cancel(&request), MPI_ERR_REQUEST);
}

// Results without a place, requests without an array: refused, and no round ends by it.
CASE(E1_null_pointers, .ranks = 2) {
  int* const nowhere = null_pointer;
  MPI_Request* const none = null_pointer;
  MPI_Status* const no_status = null_pointer;
  Witness witness;
  witness_open(&witness);
  MPI_Request both[2] = {witness.request, MPI_REQUEST_NULL};
  int flag = 0, index = 0, indices[2];
  EXPECT_ERROR(MPI_Start(none), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Wait(none, MPI_STATUS_IGNORE), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Test(none, &flag, MPI_STATUS_IGNORE), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Test(both, nowhere, MPI_STATUS_IGNORE), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Testall(2, both, nowhere, MPI_STATUSES_IGNORE), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Waitany(2, both, nowhere, MPI_STATUS_IGNORE), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Testany(2, both, nowhere, &flag, MPI_STATUS_IGNORE), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Testany(2, both, &index, nowhere, MPI_STATUS_IGNORE), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Waitsome(2, both, nowhere, indices, MPI_STATUSES_IGNORE), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Testsome(2, both, &index, nowhere, MPI_STATUSES_IGNORE), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Request_get_status(both[0], nowhere, MPI_STATUS_IGNORE), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Parrived(both[0], 0, nowhere), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Parrived(MPI_REQUEST_NULL, 0, nowhere), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Pready_list(2, nowhere, both[0]), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Request_free(none), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Cancel(none), MPI_ERR_LASTCODE);
  if (MPI_STATUS_IGNORE != no_status)
    EXPECT_ERROR(MPI_Test(both, &flag, no_status), MPI_ERR_LASTCODE);
  witness_close(&witness);
}

/// Names without a text, communicators without a place.
CASE(E1_null_names, .ranks = 2) {
  char* const nameless = null_pointer;
  char *one[] = {nameless}, **const none = null_pointer;
  const int ones[] = {1};
  const MPI_Info infos[] = {MPI_INFO_NULL};
  MPI_Comm made;
  EXPECT_ERROR(MPI_Close_port(nameless), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Comm_accept(nameless, MPI_INFO_NULL, my_rank, comm, &made), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Comm_connect(nameless, MPI_INFO_NULL, my_rank, comm, &made), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Comm_spawn(nameless, MPI_ARGV_NULL, 1, MPI_INFO_NULL, my_rank, comm, &made,
                              MPI_ERRCODES_IGNORE),
               MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Comm_spawn_multiple(1, one, MPI_ARGVS_NULL, ones, infos, my_rank, comm, &made,
                                       MPI_ERRCODES_IGNORE),
               MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Comm_spawn_multiple(1, none, MPI_ARGVS_NULL, ones, infos, my_rank, comm, &made,
                                       MPI_ERRCODES_IGNORE),
               MPI_ERR_LASTCODE);
#ifndef OMPI_MAJOR_VERSION  // a function of the MPI that reads it
  EXPECT_ERROR(MPI_Comm_free(null_pointer), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Comm_disconnect(null_pointer), MPI_ERR_LASTCODE);
#endif
}

CASE(E1_every_misuse_beside_a_live_pair, .ranks = 2) {
  Witness witness;
  witness_open(&witness);
  int flag = 0;
  if (my_rank == 0) {
    EXPECT_ERROR(MPI_Pready(0, witness.request), MPI_ERR_ARG, MPI_ERR_REQUEST);  // again
    EXPECT_ERROR(MPI_Pready(kParts, witness.request), MPI_ERR_ARG);
    EXPECT_ERROR(MPI_Pready_range(3, 7, witness.request), MPI_ERR_ARG);
    EXPECT_ERROR(MPI_Parrived(witness.request, 0, &flag), MPI_ERR_REQUEST);
  } else {
    EXPECT_ERROR(MPI_Pready(1, witness.request), MPI_ERR_REQUEST);
    EXPECT_ERROR(MPI_Parrived(witness.request, -3, &flag), MPI_ERR_ARG);
  }
  EXPECT_ERROR(MPI_Start(&witness.request), MPI_ERR_REQUEST);
  EXPECT_ERROR(MPI_Pready(0, MPI_REQUEST_NULL), MPI_ERR_REQUEST);
  witness_close(&witness);
}

CASE(E1_errors_go_through_the_handler_of_the_communicator, .ranks = 2) {
  Witness witness;
  witness_open(&witness);
  MPI_Errhandler handler = counting_handler();
  MUST(MPI_Comm_set_errhandler(comm, handler));
  int value = 0, flag = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Psend_init(&value, 1, 1, MPI_INT, 77, kTag, comm, MPI_INFO_NULL, &request);
  EXPECT(handled_errors() == 1, "init: called %d times", handled_errors());
  if (my_rank == 0) {
    MPI_Pready(-1, witness.request);
  } else {
    MPI_Parrived(witness.request, -1, &flag);
  }
  EXPECT(handled_errors() == 2, "partition: called %d times", handled_errors());
  MPI_Start(&witness.request);
  EXPECT(handled_errors() == 3, "start: called %d times", handled_errors());
  MUST(MPI_Errhandler_free(&handler));
  MUST(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  witness_close(&witness);
}
