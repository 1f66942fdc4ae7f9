// Partitioned requests between buffers that the kernel does not copy: each kind of memory at the
// sender with each at the receiver, from the first round on or from a later one, contiguous and
// strided, with as many partitions on both sides and with other numbers. Prints `copies ok` on rank
// 0. With the argument `allocated` plain memory is that of MPI_Alloc_mem; with `more` the kinds are
// those that are not needed in each combination.
#include <mpi.h>
#include <sched.h>
#include <time.h>

#include "kinds.h"

enum {
  ELEMENTS = 48,
  SIZE = 4096,
  BLOCK = 1024,
  STRIDE = 1536,
  EXTENT = 4 * STRIDE,
  ROUNDS = 4,
  TAG = 3
};

struct combination {
  int number;
  enum kind send, receive;
  int is_send_strided, is_receive_strided;
  int send_partitions, receive_partitions;
  int is_receiver_first;  // its Start; in the first round its init, too
  int guarded_from;       // round
};

static int rank, failures, combinations, skipped, is_allocated;
static MPI_Datatype strided;

static void expect(int good, const struct combination* c, int round, const char* what) {
  if (good || ++failures > 20) return;
  fprintf(stderr,
          "[%d] combination %d, round %d: %s to %s%s%s, %d to %d partitions, %s first, guarded "
          "from round %d: %s\n",
          rank, c->number, round, kind_names[c->send], kind_names[c->receive],
          c->is_send_strided ? ", sends strided" : "",
          c->is_receive_strided ? ", receives strided" : "", c->send_partitions,
          c->receive_partitions, c->is_receiver_first ? "receiver" : "sender", c->guarded_from,
          what);
}

static unsigned char byte_of(const struct combination* c, int round, size_t i) {
  return (unsigned char)(i * 7 + i / SIZE * 13 + (size_t)round * 31 + (size_t)c->number);
}
static size_t place(int is_strided, size_t i) {
  return is_strided ? i / SIZE * EXTENT + i % SIZE / BLOCK * STRIDE + i % BLOCK : i;
}
static size_t buffer_bytes(int is_strided) {
  return (size_t)ELEMENTS * (is_strided ? EXTENT : SIZE);
}

static void fill(const struct combination* c, const struct memory* m, int round) {
  unguard(m);
  for (size_t i = 0; i < (size_t)ELEMENTS * SIZE; ++i)
    m->start[place(c->is_send_strided, i)] = byte_of(c, round, i);
  if (round >= c->guarded_from) guard(m, PROT_NONE);
}

static void clear(const struct combination* c, const struct memory* m, int round) {
  unguard(m);
  memset(m->start, 0xEE, m->bytes);
  if (round >= c->guarded_from) guard(m, PROT_READ);
}

static void check(const struct combination* c, const struct memory* m, int round) {
  size_t wrong = 0, gaps = 0;
  for (size_t i = 0; i < (size_t)ELEMENTS * SIZE; ++i)
    wrong += m->start[place(c->is_receive_strided, i)] != byte_of(c, round, i);
  expect(wrong == 0, c, round, "wrong bytes");
  for (size_t at = 0; at < buffer_bytes(1) && c->is_receive_strided; ++at)
    gaps += at % STRIDE >= BLOCK &&
            m->start[at] != (m->kind == PAGED && round >= c->guarded_from ? 0 : 0xEE);
  expect(gaps == 0, c, round, "bytes between the blocks were written");
}

// By Wait, or by Parrived of each and Test.
static int complete(const struct combination* c, MPI_Request* request, int is_receive) {
  if (c->number % 2 == 0) return MPI_Wait(request, MPI_STATUS_IGNORE);
  const time_t deadline = time(NULL) + 30;
  int done = 0, error = MPI_SUCCESS;
  for (int p = 0; p < c->receive_partitions && is_receive; ++p)
    for (done = 0; !done && !error && time(NULL) < deadline; sched_yield())
      error = MPI_Parrived(*request, p, &done);
  for (done = 0; !done && !error && time(NULL) < deadline; sched_yield())
    error = MPI_Test(request, &done, MPI_STATUS_IGNORE);
  return done ? error : MPI_ERR_OTHER;
}

static void make_request(const struct combination* c, const struct memory* m, int is_send, int peer,
                         MPI_Comm comm, MPI_Request* request) {
  const int is_strided = is_send ? c->is_send_strided : c->is_receive_strided;
  const int partitions = is_send ? c->send_partitions : c->receive_partitions;
  const MPI_Count count = ELEMENTS / partitions * (is_strided ? 1 : SIZE);
  const MPI_Datatype type = is_strided ? strided : MPI_BYTE;
  const int error = is_send ? MPI_Psend_init(m->start, partitions, count, type, peer, TAG, comm,
                                             MPI_INFO_NULL, request)
                            : MPI_Precv_init(m->start, partitions, count, type, peer, TAG, comm,
                                             MPI_INFO_NULL, request);
  expect(error == MPI_SUCCESS, c, 0, "init");
}

static void ready_all(const struct combination* c, MPI_Request* request, int round) {
  expect(MPI_Start(request) == MPI_SUCCESS, c, round, "Start");
  for (int p = 0; p < c->send_partitions; ++p)
    expect(MPI_Pready(c->number % 3 ? p : c->send_partitions - 1 - p, *request) == MPI_SUCCESS, c,
           round, "Pready");
}

static void run_sender(const struct combination* c, const struct memory* m) {
  MPI_Request request;
  if (c->is_receiver_first) MPI_Barrier(MPI_COMM_WORLD);
  make_request(c, m, 1, 1, MPI_COMM_WORLD, &request);
  for (int round = 0; round < ROUNDS; ++round) {
    fill(c, m, round);
    if (c->is_receiver_first && round > 0) MPI_Barrier(MPI_COMM_WORLD);
    ready_all(c, &request, round);
    if (!c->is_receiver_first) MPI_Barrier(MPI_COMM_WORLD);
    expect(complete(c, &request, 0) == MPI_SUCCESS, c, round, "the send did not complete");
  }
  MPI_Request_free(&request);
}

static void run_receiver(const struct combination* c, const struct memory* m) {
  MPI_Request request;
  make_request(c, m, 0, 0, MPI_COMM_WORLD, &request);
  for (int round = 0; round < ROUNDS; ++round) {
    clear(c, m, round);
    if (!c->is_receiver_first) MPI_Barrier(MPI_COMM_WORLD);
    expect(MPI_Start(&request) == MPI_SUCCESS, c, round, "Start");
    if (c->is_receiver_first) MPI_Barrier(MPI_COMM_WORLD);
    expect(complete(c, &request, 1) == MPI_SUCCESS, c, round, "the receive did not complete");
    check(c, m, round);
  }
  MPI_Request_free(&request);
}

// A process that sends to itself.
static void run_self(const struct combination* c, const struct memory* from,
                     const struct memory* to) {
  MPI_Request send, receive;
  make_request(c, to, 0, 0, MPI_COMM_SELF, &receive);
  for (int round = 0; round < ROUNDS; ++round) {
    clear(c, to, round);
    if (c->is_receiver_first) expect(MPI_Start(&receive) == MPI_SUCCESS, c, round, "Start");
    if (round == 0) make_request(c, from, 1, 0, MPI_COMM_SELF, &send);
    fill(c, from, round);
    ready_all(c, &send, round);
    if (!c->is_receiver_first) expect(MPI_Start(&receive) == MPI_SUCCESS, c, round, "Start");
    expect(complete(c, &receive, 1) == MPI_SUCCESS, c, round, "the receive did not complete");
    expect(complete(c, &send, 0) == MPI_SUCCESS, c, round, "the send did not complete");
    check(c, to, round);
  }
  MPI_Request_free(&send);
  MPI_Request_free(&receive);
}

static int take(struct memory* m, enum kind kind, size_t bytes) {
  if (!is_allocated || kind != PLAIN) return make_memory(m, kind, bytes);
  *m = (struct memory){.kind = kind, .bytes = bytes, .pager = -1};
  return MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &m->start) == MPI_SUCCESS;
}
static void give_back(struct memory* m) {
  if (!is_allocated || m->kind != PLAIN) return free_memory(m);
  MPI_Free_mem(m->start);
}

// More kinds: each with plain, guarded and secret memory at the other side, and with its like.
// Pages of a PAGED buffer are empty when they come: it can't be sent.
static int is_wanted(enum kind send, enum kind receive, int has_more) {
  if (send == PAGED) return 0;
  const int is_more = send >= KINDS || receive >= KINDS;
  return has_more == is_more && (!is_more || send == receive || send < HALF || receive < HALF);
}

static void run(const struct combination* c, int is_self) {
  struct memory send, receive;
  const int sends = is_self || rank == 0, receives = is_self || rank == 1;
  int is_there = !sends || take(&send, c->send, buffer_bytes(c->is_send_strided));
  is_there &= !receives || take(&receive, c->receive, buffer_bytes(c->is_receive_strided));
  MPI_Allreduce(MPI_IN_PLACE, &is_there, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  ++*(is_there ? &combinations : &skipped);
  if (!is_there && rank == 0)
    printf("skipped: %s to %s\n", kind_names[c->send], kind_names[c->receive]);
  if (is_there && is_self) run_self(c, &send, &receive);
  if (is_there && !is_self) rank == 0 ? run_sender(c, &send) : run_receiver(c, &receive);
  if (sends) give_back(&send);
  if (receives) give_back(&receive);
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  is_allocated = argc > 1 && strcmp(argv[1], "allocated") == 0;
  const int has_more = argc > 1 && strcmp(argv[1], "more") == 0;
  MPI_Datatype blocks;
  MPI_Type_vector(SIZE / BLOCK, BLOCK, STRIDE, MPI_BYTE, &blocks);
  MPI_Type_create_resized(blocks, 0, EXTENT, &strided);
  MPI_Type_commit(&strided);
  catch_faults();

  int number = 0;
  for (int is_self = 0; is_self < 2; ++is_self)
    for (int send = 0; send < ALL_KINDS; ++send)
      for (int receive = 0; receive < READ_ONLY; ++receive) {
        if (!is_wanted((enum kind)send, (enum kind)receive, has_more)) continue;
        for (int is_receiver_first = 0; is_receiver_first < 2; ++is_receiver_first, ++number) {
          const int shape = number / 2 % 4 ^ send;  // all of them with each kind
          const struct combination c = {
              number,    (enum kind)send,   (enum kind)receive,
              shape & 1, shape >> 1 & 1,    shape == 1 || shape == 2 ? 6 : 4,
              4,         is_receiver_first, number % 5 == 4 ? 2 : 0};
          run(&c, is_self);
        }
      }
  expect(!__atomic_load_n(&opened_by_library, __ATOMIC_ACQUIRE), &(struct combination){0}, 0,
         "a thread of the library has run the program's SIGSEGV handler");

  MPI_Type_free(&blocks);
  MPI_Type_free(&strided);
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && failures == 0)
    printf("copies ok: %d combinations, %d skipped\n", combinations, skipped);
  MPI_Finalize();
  return failures != 0;
}
