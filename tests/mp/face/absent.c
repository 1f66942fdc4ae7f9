// Calls of MPI 4.0 and 4.1 that the MPI lacks, on two ranks. A program that looks them up, as
// mpi4py does, finds the preload stub's symbols: then they must work. Each rank says "rank N ok",
// or "rank N lacks NAME" of the first that it cannot find.

#include <dlfcn.h>

#include "carried.h"

enum { kBytes = 500000, kTag = 5 };

static int (*buffer_flush)(void);
static int (*buffer_iflush)(MPI_Request*);
static int (*buffer_detach_c)(void*, MPI_Count*);
static int (*comm_attach_buffer)(MPI_Comm, void*, int);
static int (*comm_attach_buffer_c)(MPI_Comm, void*, MPI_Count);
static int (*comm_detach_buffer)(MPI_Comm, void*, int*);
static int (*comm_detach_buffer_c)(MPI_Comm, void*, MPI_Count*);
static int (*comm_flush_buffer)(MPI_Comm);
static int (*comm_iflush_buffer)(MPI_Comm, MPI_Request*);
static int (*get_status_all)(int, const MPI_Request*, int*, MPI_Status*);
static int (*get_status_any)(int, const MPI_Request*, int*, int*, MPI_Status*);
static int (*get_status_some)(int, const MPI_Request*, int*, int*, MPI_Status*);

/// The name of a call that is nowhere; null: all are found.
static const char* find_calls(void) {
  const struct {
    const char* name;
    void* call_p;
  } calls[] = {{"MPI_Buffer_flush", &buffer_flush},
               {"MPI_Buffer_iflush", &buffer_iflush},
               {"MPI_Buffer_detach_c", &buffer_detach_c},
               {"MPI_Comm_attach_buffer", &comm_attach_buffer},
               {"MPI_Comm_attach_buffer_c", &comm_attach_buffer_c},
               {"MPI_Comm_detach_buffer", &comm_detach_buffer},
               {"MPI_Comm_detach_buffer_c", &comm_detach_buffer_c},
               {"MPI_Comm_flush_buffer", &comm_flush_buffer},
               {"MPI_Comm_iflush_buffer", &comm_iflush_buffer},
               {"MPI_Request_get_status_all", &get_status_all},
               {"MPI_Request_get_status_any", &get_status_any},
               {"MPI_Request_get_status_some", &get_status_some}};
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
    void* const found = dlsym(RTLD_DEFAULT, calls[i].name);
    if (found == NULL) return calls[i].name;
    memcpy(calls[i].call_p, &found, sizeof found);
  }
  return NULL;
}

static void must(int code, const char* what) { expect(code == MPI_SUCCESS, what, code); }

static void wait_for(MPI_Request* request, const char* what) {
  must(MPI_Wait(request, MPI_STATUS_IGNORE), what);
  expect(*request == MPI_REQUEST_NULL, "the request of an iflush is not freed", 0);
}

/// Rank 0 sends in buffered mode, through a buffer with room for one message.
static void send(MPI_Comm comm, unsigned char* data, unsigned seed) {
  fill(data, kBytes, seed);
  must(MPI_Bsend(data, kBytes, MPI_BYTE, 1, kTag, comm), "MPI_Bsend");
  memset(data, 0, kBytes);
}

static void receive(MPI_Comm comm, unsigned char* data, unsigned seed) {
  must(MPI_Recv(data, kBytes, MPI_BYTE, 0, kTag, comm, MPI_STATUS_IGNORE), "MPI_Recv");
  expect(wrong_bytes(data, kBytes, seed) == 0, "wrong bytes of a message", (long)seed);
}

static void use_buffer_of_process(unsigned char* data, void* space, int size) {
  MPI_Request request;
  must(MPI_Buffer_attach(space, size), "MPI_Buffer_attach");
  if (my_rank == 0) {
    send(MPI_COMM_WORLD, data, 1);
    must(buffer_flush(), "MPI_Buffer_flush");
    send(MPI_COMM_WORLD, data, 2);
    must(buffer_iflush(&request), "MPI_Buffer_iflush");
    wait_for(&request, "MPI_Buffer_iflush");
    send(MPI_COMM_WORLD, data, 3);
  } else {
    for (unsigned seed = 1; seed <= 3; ++seed) receive(MPI_COMM_WORLD, data, seed);
    must(buffer_flush(), "MPI_Buffer_flush of an empty buffer");
    must(buffer_iflush(&request), "MPI_Buffer_iflush of an empty buffer");
    wait_for(&request, "MPI_Buffer_iflush of an empty buffer");
  }
  void* back = NULL;
  MPI_Count bytes = -1;
  must(buffer_detach_c(&back, &bytes), "MPI_Buffer_detach_c");
  expect(back == space && bytes == size, "MPI_Buffer_detach_c: another buffer", (long)bytes);
}

/// The process has no buffer.
static void use_buffer_of_communicator(MPI_Comm comm, unsigned char* data, void* space, int size) {
  MPI_Request request;
  must(comm_attach_buffer(comm, space, size), "MPI_Comm_attach_buffer");
  expect(comm_attach_buffer(comm, space, size) != MPI_SUCCESS, "a second buffer is attached", 0);
  if (my_rank == 0) {
    send(comm, data, 4);
    must(comm_flush_buffer(comm), "MPI_Comm_flush_buffer");
    send(comm, data, 5);
    must(comm_iflush_buffer(comm, &request), "MPI_Comm_iflush_buffer");
    wait_for(&request, "MPI_Comm_iflush_buffer");
    send(comm, data, 6);
  } else {
    for (unsigned seed = 4; seed <= 6; ++seed) receive(comm, data, seed);
  }
  void* back = NULL;
  int bytes = -1;
  must(comm_detach_buffer(comm, &back, &bytes), "MPI_Comm_detach_buffer");
  expect(back == space && bytes == size, "MPI_Comm_detach_buffer: another buffer", bytes);
  expect(comm_detach_buffer(comm, &back, &bytes) != MPI_SUCCESS, "a buffer is detached twice", 0);
  MPI_Count count = -1;
  must(comm_attach_buffer_c(comm, space, size), "MPI_Comm_attach_buffer_c");
  must(comm_detach_buffer_c(comm, &back, &count), "MPI_Comm_detach_buffer_c");
  expect(back == space && count == size, "MPI_Comm_detach_buffer_c: another buffer", (long)count);
}

static int query(void* state, MPI_Status* status) {
  (void)state;
  MPI_Status_set_cancelled(status, 0);
  MPI_Status_set_elements(status, MPI_BYTE, 0);
  status->MPI_SOURCE = my_rank;
  status->MPI_TAG = kTag;
  return MPI_SUCCESS;
}
static int release(void* state) { return (void)state, MPI_SUCCESS; }
static int cancel(void* state, int is_complete) {
  return (void)state, (void)is_complete, MPI_SUCCESS;
}

/// The answers of the three calls. `complete`: the index of the only complete one;
/// -1: none is; MPI_UNDEFINED: none is active.
static void expect_statuses(int count, const MPI_Request* requests, int complete, int are_all) {
  MPI_Status statuses[4];
  int flag = -1, index = -2, found = -2, indices[4] = {-1, -1, -1, -1};
  must(get_status_all(count, requests, &flag, statuses), "MPI_Request_get_status_all");
  expect(flag == are_all, "MPI_Request_get_status_all: flag", flag);
  statuses[0].MPI_ERROR = MPI_ERR_OTHER;  // an empty status says MPI_SUCCESS
  must(get_status_any(count, requests, &index, &flag, statuses), "MPI_Request_get_status_any");
  expect(flag == (complete != -1), "MPI_Request_get_status_any: flag", flag);
  expect(!flag || index == complete, "MPI_Request_get_status_any: index", index);
  expect(complete != MPI_UNDEFINED || statuses[0].MPI_ERROR == MPI_SUCCESS,
         "MPI_Request_get_status_any: MPI_ERROR", statuses[0].MPI_ERROR);
  must(get_status_some(count, requests, &found, indices, statuses), "MPI_Request_get_status_some");
  const int wanted = complete == -1 ? 0 : complete == MPI_UNDEFINED ? MPI_UNDEFINED : 1;
  expect(found == wanted, "MPI_Request_get_status_some: outcount", found);
  if (found != 1) return;
  expect(indices[0] == complete, "MPI_Request_get_status_some: index", indices[0]);
  expect(statuses[0].MPI_TAG == kTag, "MPI_Request_get_status_some: tag", statuses[0].MPI_TAG);
}

/// Of the MPI's own requests, and of a receive beside them.
static void use_statuses(MPI_Comm comm) {
  MPI_Request requests[4] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL,
                             MPI_REQUEST_NULL};
  expect_statuses(4, requests, MPI_UNDEFINED, 1);
  MPI_Grequest_start(query, release, cancel, NULL, &requests[1]);
  expect_statuses(4, requests, -1, 0);
  MPI_Grequest_complete(requests[1]);
  expect_statuses(4, requests, 1, 1);
  char in = 0, out = 1;
  MPI_Irecv(&in, 1, MPI_CHAR, 1 - my_rank, kTag, comm, &requests[3]);
  expect_statuses(4, requests, 1, 0);
  MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
  expect_statuses(4, requests, -1, 0);
  MPI_Barrier(comm);
  MPI_Send(&out, 1, MPI_CHAR, 1 - my_rank, kTag, comm);
  MPI_Wait(&requests[3], MPI_STATUS_IGNORE);
}

/// Of an MPI without sessions.
static void expect_no_session(void) {
#if MPI_VERSION < 4 && !(defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
  int (*init)(MPI_Info, MPI_Errhandler, void*);
  void* const found = dlsym(RTLD_DEFAULT, "MPI_Session_init");
  if (found == NULL) return;
  memcpy(&init, &found, sizeof found);
  void* session[2];
  expect(init(MPI_INFO_NULL, MPI_ERRORS_RETURN, session) != MPI_SUCCESS, "MPI_Session_init", 0);
#endif
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  const char* const absent = find_calls();
  if (absent == NULL) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    const int size = kBytes + MPI_BSEND_OVERHEAD;
    unsigned char* const data = memory(kBytes);
    void* const space = memory((size_t)size);
    use_buffer_of_process(data, space, size);
    use_buffer_of_communicator(comm, data, space, size);
    use_statuses(comm);
    expect_no_session();
    MPI_Comm_free(&comm);
    free(space);
    free(data);
    // The MPI's alone: its absence shows.
    const int has_sessions = dlsym(RTLD_DEFAULT, "MPI_Session_flush_buffer") != NULL;
    printf("rank %d %s\n", my_rank, has_sessions ? "finds sessions' buffers" : "ok");
  } else {
    printf("rank %d lacks %s\n", my_rank, absent);
  }
  MPI_Finalize();
  return 0;
}
