// Erroneous arguments: the class of the error, and the handler that gets it.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 121 };

// The same arguments for each kind of call. Every call but the receives is a send.
typedef int (*Call)(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm on);

static MPI_Request opened;  // by the last call of a nonblocking kind

static int send(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Send(d, n, t, p, g, c);
}
static int ssend(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Ssend(d, n, t, p, g, c);
}
static int rsend(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Rsend(d, n, t, p, g, c);
}
static int bsend(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Bsend(d, n, t, p, g, c);
}
static int start_isend(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Isend(d, n, t, p, g, c, &opened);
}
static int start_issend(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Issend(d, n, t, p, g, c, &opened);
}
static int start_irsend(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Irsend(d, n, t, p, g, c, &opened);
}
static int start_ibsend(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Ibsend(d, n, t, p, g, c, &opened);
}
static int send_init(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Send_init(d, n, t, p, g, c, &opened);
}
static int ssend_init(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Ssend_init(d, n, t, p, g, c, &opened);
}
static int send_part(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  int in = 0;
  return MPI_Sendrecv(d, n, t, p, g, &in, 1, MPI_INT, MPI_PROC_NULL, 0, c, MPI_STATUS_IGNORE);
}
static int recv(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Recv(d, n, t, p, g, c, MPI_STATUS_IGNORE);
}
static int start_irecv(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Irecv(d, n, t, p, g, c, &opened);
}
static int recv_init(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  return MPI_Recv_init(d, n, t, p, g, c, &opened);
}
static int recv_part(void* d, int n, MPI_Datatype t, int p, int g, MPI_Comm c) {
  int out = 0;
  return MPI_Sendrecv(&out, 1, MPI_INT, MPI_PROC_NULL, 0, d, n, t, p, g, c, MPI_STATUS_IGNORE);
}

typedef struct Kind {
  const char* name;
  Call call;
} Kind;

static const Kind kSends[] = {{"Send", send},           {"Ssend", ssend},
                              {"Rsend", rsend},         {"Bsend", bsend},
                              {"Isend", start_isend},   {"Issend", start_issend},
                              {"Irsend", start_irsend}, {"Ibsend", start_ibsend},
                              {"Send_init", send_init}, {"Ssend_init", ssend_init},
                              {"Sendrecv", send_part}};
static const Kind kReceives[] = {
    {"Recv", recv}, {"Irecv", start_irecv}, {"Recv_init", recv_init}, {"Sendrecv", recv_part}};
enum {
  kSendsCount = sizeof(kSends) / sizeof(kSends[0]),
  kReceivesCount = sizeof(kReceives) / sizeof(kReceives[0])
};

/// Expects an error of one of two classes from one kind of call.
static void refused(const Kind* kind, int code, const char* what, int class1, int class2) {
  const int class = class_of(code);
  EXPECT(class == class1 || class == class2, "MPI_%s with %s: error class %d, expected %d",
         kind->name, what, class, class1);
}

static void witness(void) {
  int in = 0;
  MPI_Request request = irecv_int(&in, my_peer, 9);
  send_int(my_rank, my_peer, 9);
  complete(&request);
  EXPECT_DATA(in == my_peer, "the messages after the errors: %d", in);
}

CASE(ER1_arguments_of_sends, .ranks = 2) {
  int value[4] = {0};
  for (int i = 0; i < kSendsCount; ++i) {
    const Kind* k = &kSends[i];
    refused(k, k->call(value, 1, MPI_INT, 77, kTag, comm), "a rank too large", MPI_ERR_RANK, 0);
    refused(k, k->call(value, 1, MPI_INT, -77, kTag, comm), "a negative rank", MPI_ERR_RANK, 0);
    refused(k, k->call(value, 1, MPI_INT, my_peer, -5, comm), "a negative tag", MPI_ERR_TAG, 0);
    refused(k, k->call(value, -1, MPI_INT, my_peer, kTag, comm), "a negative count", MPI_ERR_COUNT,
            0);
    refused(k, k->call(value, 1, MPI_DATATYPE_NULL, my_peer, kTag, comm), "no type", MPI_ERR_TYPE,
            0);
    refused(k, k->call(null_pointer, 1, MPI_INT, my_peer, kTag, comm), "no buffer", MPI_ERR_BUFFER,
            MPI_ERR_ARG);
  }
  witness();
}

CASE(ER1_wildcards_in_sends, .ranks = 2) {
  int value = 0;
  for (int i = 0; i < kSendsCount; ++i) {
    const Kind* k = &kSends[i];
    refused(k, k->call(&value, 1, MPI_INT, MPI_ANY_SOURCE, kTag, comm), "MPI_ANY_SOURCE",
            MPI_ERR_RANK, 0);
    refused(k, k->call(&value, 1, MPI_INT, my_peer, MPI_ANY_TAG, comm), "MPI_ANY_TAG", MPI_ERR_TAG,
            0);
  }
  witness();
}

CASE(ER1_arguments_of_receives, .ranks = 2) {
  int value[4] = {0};
  for (int i = 0; i < kReceivesCount; ++i) {
    const Kind* k = &kReceives[i];
    refused(k, k->call(value, 1, MPI_INT, 77, kTag, comm), "a rank too large", MPI_ERR_RANK, 0);
    refused(k, k->call(value, 1, MPI_INT, -77, kTag, comm), "a negative rank", MPI_ERR_RANK, 0);
    refused(k, k->call(value, 1, MPI_INT, my_peer, -5, comm), "a negative tag", MPI_ERR_TAG, 0);
    refused(k, k->call(value, -1, MPI_INT, my_peer, kTag, comm), "a negative count", MPI_ERR_COUNT,
            0);
    refused(k, k->call(value, 1, MPI_DATATYPE_NULL, my_peer, kTag, comm), "no type", MPI_ERR_TYPE,
            0);
    refused(k, k->call(null_pointer, 1, MPI_INT, my_peer, kTag, comm), "no buffer", MPI_ERR_BUFFER,
            MPI_ERR_ARG);
  }
  witness();
}

CASE(ER1_types_that_are_not_committed, .ranks = 2) {
  int value[2] = {0};
  MPI_Datatype type;
  MUST(MPI_Type_contiguous(2, MPI_INT, &type));
  for (int i = 0; i < kSendsCount; ++i) {
    const Kind* k = &kSends[i];
    refused(k, k->call(value, 1, type, my_peer, kTag, comm), "an uncommitted type", MPI_ERR_TYPE,
            0);
  }
  for (int i = 0; i < kReceivesCount; ++i) {
    const Kind* k = &kReceives[i];
    refused(k, k->call(value, 1, type, my_peer, kTag, comm), "an uncommitted type", MPI_ERR_TYPE,
            0);
  }
  MUST(MPI_Type_free(&type));
  witness();
}

CASE(ER1_tags_above_the_bound, .ranks = 2) {
  const int bound = largest_tag();
  if (bound == INT32_MAX) {
    case_skip("every tag is valid here");
    return;
  }
  int value = 0;
  for (int i = 0; i < kSendsCount; ++i) {
    refused(&kSends[i], kSends[i].call(&value, 1, MPI_INT, my_peer, bound + 1, comm),
            "a tag above the bound", MPI_ERR_TAG, 0);
  }
  for (int i = 0; i < kReceivesCount; ++i) {
    refused(&kReceives[i], kReceives[i].call(&value, 1, MPI_INT, my_peer, bound + 1, comm),
            "a tag above the bound", MPI_ERR_TAG, 0);
  }
}

/// Errors without a valid communicator go to the handler of MPI_COMM_WORLD or MPI_COMM_SELF.
CASE(ER1_null_communicator, .ranks = 2) {
  int value = 0;
  for (int i = 0; i < kSendsCount; ++i) {
    refused(&kSends[i], kSends[i].call(&value, 1, MPI_INT, my_peer, kTag, MPI_COMM_NULL),
            "MPI_COMM_NULL", MPI_ERR_COMM, 0);
  }
  for (int i = 0; i < kReceivesCount; ++i) {
    refused(&kReceives[i], kReceives[i].call(&value, 1, MPI_INT, my_peer, kTag, MPI_COMM_NULL),
            "MPI_COMM_NULL", MPI_ERR_COMM, 0);
  }
}

CASE(ER2_arguments_of_probes, .ranks = 2) {
  int flag = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status* const no = MPI_STATUS_IGNORE;
  EXPECT_ERROR(MPI_Probe(77, kTag, comm, no), MPI_ERR_RANK);
  EXPECT_ERROR(MPI_Probe(my_peer, -5, comm, no), MPI_ERR_TAG);
  EXPECT_ERROR(MPI_Iprobe(77, kTag, comm, &flag, no), MPI_ERR_RANK);
  EXPECT_ERROR(MPI_Iprobe(my_peer, -5, comm, &flag, no), MPI_ERR_TAG);
  EXPECT_ERROR(MPI_Mprobe(77, kTag, comm, &message, no), MPI_ERR_RANK);
  EXPECT_ERROR(MPI_Mprobe(my_peer, -5, comm, &message, no), MPI_ERR_TAG);
  EXPECT_ERROR(MPI_Improbe(77, kTag, comm, &flag, &message, no), MPI_ERR_RANK);
  EXPECT_ERROR(MPI_Improbe(my_peer, -5, comm, &flag, &message, no), MPI_ERR_TAG);
  witness();
}

CASE(ER2_null_communicator_in_probes, .ranks = 2) {
  int flag = 0;
  EXPECT_ERROR(MPI_Probe(my_peer, kTag, MPI_COMM_NULL, MPI_STATUS_IGNORE), MPI_ERR_COMM);
  EXPECT_ERROR(MPI_Iprobe(my_peer, kTag, MPI_COMM_NULL, &flag, MPI_STATUS_IGNORE), MPI_ERR_COMM);
}

CASE(ER2_mrecv_of_no_message, .ranks = 2) {
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Request request;
  int value = 0;
  EXPECT_ERROR(MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE), MPI_ERR_LASTCODE);
  EXPECT_ERROR(MPI_Imrecv(&value, 1, MPI_INT, &message, &request), MPI_ERR_LASTCODE);
  witness();
}

CASE(ER3_misuse_of_requests, .ranks = 2) {
  MPI_Request null = MPI_REQUEST_NULL, active[2];
  int value[2] = {0};
  EXPECT_ERROR(MPI_Request_free(&null), MPI_ERR_REQUEST);
  EXPECT_ERROR(MPI_Cancel(&null), MPI_ERR_REQUEST);
  EXPECT_ERROR(MPI_Start(&null), MPI_ERR_REQUEST);
  active[0] = irecv_int(&value[0], my_peer, kTag);
  EXPECT_ERROR(MPI_Start(&active[0]), MPI_ERR_REQUEST);  // not a persistent one
  MUST(MPI_Recv_init(&value[1], 1, MPI_INT, my_peer, kTag + 1, comm, &active[1]));
  MUST(MPI_Start(&active[1]));
  EXPECT_ERROR(MPI_Start(&active[1]), MPI_ERR_REQUEST);  // started already
  meet();
  send_int(5, my_peer, kTag);
  send_int(6, my_peer, kTag + 1);
  MUST(MPI_Waitall(2, active, MPI_STATUSES_IGNORE));
  EXPECT_DATA(value[0] == 5 && value[1] == 6, "%d, %d", value[0], value[1]);
  drop(&active[1]);
}

CASE(ER3_negative_numbers_of_requests, .ranks = 2) {
  MPI_Request request = MPI_REQUEST_NULL;
  int flag = 0, index = 0, done = 0;
  EXPECT_ERROR(MPI_Waitall(-1, &request, MPI_STATUSES_IGNORE), MPI_ERR_ARG, MPI_ERR_COUNT);
  EXPECT_ERROR(MPI_Testall(-1, &request, &flag, MPI_STATUSES_IGNORE), MPI_ERR_ARG, MPI_ERR_COUNT);
  EXPECT_ERROR(MPI_Waitany(-1, &request, &index, MPI_STATUS_IGNORE), MPI_ERR_ARG, MPI_ERR_COUNT);
  EXPECT_ERROR(MPI_Waitsome(-1, &request, &done, &index, MPI_STATUSES_IGNORE), MPI_ERR_ARG,
               MPI_ERR_COUNT);
}

/// Each error is given once, to the handler of the communicator of the call.
CASE(ER4_errors_go_to_the_communicators_handler, .ranks = 2) {
  MPI_Errhandler handler = counting_handler();
  MPI_Comm other;
  int data[4] = {0}, value = 0;
  MUST(MPI_Comm_dup(comm, &other));
  MUST(MPI_Comm_set_errhandler(other, handler));
  EXPECT_ERROR(MPI_Send(&value, 1, MPI_INT, 77, kTag, comm), MPI_ERR_RANK);
  EXPECT(handled_errors() == 0, "the handler of another communicator was called");
  (void)MPI_Send(&value, 1, MPI_INT, 77, kTag, other);
  EXPECT(handled_errors() == 1, "after a send: %d calls of the handler", handled_errors());
  (void)MPI_Irecv(&value, -1, MPI_INT, my_peer, kTag, other, &opened);
  EXPECT(handled_errors() == 2, "after a receive: %d calls of the handler", handled_errors());
  if (my_rank == 0) {
    MUST(MPI_Send(data, 4, MPI_INT, 1, kTag, other));
    MUST(MPI_Send(data, 4, MPI_INT, 1, kTag, other));
  } else {
    MPI_Request request;
    (void)MPI_Recv(&value, 1, MPI_INT, 0, kTag, other, MPI_STATUS_IGNORE);
    EXPECT(handled_errors() == 3, "a truncated Recv: %d calls of the handler", handled_errors());
    MUST(MPI_Irecv(&value, 1, MPI_INT, 0, kTag, other, &request));
    (void)MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT(handled_errors() == 4, "a truncated Irecv: %d calls of the handler", handled_errors());
  }
  MUST(MPI_Errhandler_free(&handler));
  MUST(MPI_Comm_free(&other));
}

/// What is legal though it looks wrong.
CASE(ER5_null_buffers_of_no_elements, .ranks = 2) {
  MPI_Status status;
  for (int i = 0; i < 4; ++i) {
    if (my_rank == 0) {
      MUST(MPI_Send(null_pointer, 0, MPI_INT, 1, kTag, comm));
    } else {
      MUST(MPI_Recv(null_pointer, 0, MPI_INT, 0, kTag, comm, &status));
      EXPECT_STATUS(&status, 0, kTag, 0);
    }
  }
}
