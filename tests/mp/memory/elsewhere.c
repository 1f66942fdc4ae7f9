// Pages that the program's SIGSEGV handler opens, while the threads of their process are in calls
// for something else: a wait for the other side of a pair within a process, for another request,
// for a message of the MPI. Prints `elsewhere ok` on rank 0.
//
#include <mpi.h>
#include <sched.h>

#include "kinds.h"

enum {
  PARTITIONS = 4,
  SIZE = 48 << 10,
  ALL = PARTITIONS * SIZE,
  ROUNDS = 4,
  BLOCKED_ROUNDS = 60,
  SECONDS = 60
};
enum { TAG = 3, OTHER_TAG = 4, NATIVE_TAG = 5 };

static int rank, failures;
static const char* what = "";

static void give_up(int number) {
  (void)number;
  static const char text[] = "elsewhere: hangs in: ";
  (void)!write(2, text, sizeof text - 1);
  (void)!write(2, what, strlen(what));
  (void)!write(2, "\n", 1);
  _exit(1);
}

static void begin(const char* now) {
  what = now;
  alarm(SECONDS);
}

static void expect(int good, int round, const char* wrong) {
  if (good || ++failures > 20) return;
  fprintf(stderr, "[%d] %s, round %d: %s\n", rank, what, round, wrong);
}

static unsigned char byte_of(int round, size_t i) {
  return (unsigned char)(i * 7 + i / SIZE * 13 + (size_t)round * 31);
}

static void fill(const struct memory* m, int round) {
  unguard(m);
  for (size_t i = 0; i < ALL; ++i) m->start[i] = byte_of(round, i);
  guard(m, PROT_NONE);
}
static void clear(const struct memory* m) {
  unguard(m);
  memset(m->start, 0xEE, m->bytes);
  guard(m, PROT_READ);
}
static void check(const struct memory* m, int round) {
  size_t wrong = 0;
  for (size_t i = 0; i < ALL; ++i) wrong += m->start[i] != byte_of(round, i);
  expect(wrong == 0, round, "wrong bytes");
}

static void init_send(const struct memory* m, int to, int tag, MPI_Comm comm, MPI_Request* r) {
  MPI_Psend_init(m->start, PARTITIONS, SIZE, MPI_BYTE, to, tag, comm, MPI_INFO_NULL, r);
}
static void init_receive(const struct memory* m, int from, int tag, MPI_Comm comm, MPI_Request* r) {
  MPI_Precv_init(m->start, PARTITIONS, SIZE, MPI_BYTE, from, tag, comm, MPI_INFO_NULL, r);
}
static void start_ready(MPI_Request* r) {
  MPI_Start(r);
  MPI_Pready_range(0, PARTITIONS - 1, *r);
}
static void wait_for(MPI_Request* r, int round) {
  expect(MPI_Wait(r, MPI_STATUS_IGNORE) == MPI_SUCCESS, round, "Wait");
}

// --- a process that sends to itself: the send is waited for alone, or both are ------------------

enum way { WAIT, TEST, GET_STATUS, WAITALL, TESTALL, WAITANY, TESTANY, WAITSOME, TESTSOME, WAYS };
static const char* const way_names[WAYS] = {"Wait",    "Test",     "Request_get_status",
                                            "Waitall", "Testall",  "Waitany",
                                            "Testany", "Waitsome", "Testsome"};

// pair[0] is the send.
static void complete_pair(enum way way, MPI_Request* pair) {
  int done = 0, index, indices[2], count;
  for (int r = 0; r < 2 && way == WAIT; ++r) MPI_Wait(&pair[r], MPI_STATUS_IGNORE);
  for (int r = 0; r < 2 && way == TEST; ++r)
    for (done = 0; !done; sched_yield()) MPI_Test(&pair[r], &done, MPI_STATUS_IGNORE);
  for (; way == GET_STATUS && !done; sched_yield())
    MPI_Request_get_status(pair[0], &done, MPI_STATUS_IGNORE);
  if (way == WAITALL || way == GET_STATUS) MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
  for (; way == TESTALL && !done; sched_yield()) MPI_Testall(2, pair, &done, MPI_STATUSES_IGNORE);
  for (int r = 0; r < 2 && way == WAITANY; ++r) MPI_Waitany(2, pair, &index, MPI_STATUS_IGNORE);
  for (int r = 0; r < 2 && way == TESTANY; r += done, sched_yield())
    MPI_Testany(2, pair, &index, &done, MPI_STATUS_IGNORE);
  for (int r = 0; r < 2 && way == WAITSOME; r += count)
    MPI_Waitsome(2, pair, &count, indices, MPI_STATUSES_IGNORE);
  for (int r = 0; r < 2 && way == TESTSOME; r += count, sched_yield())
    MPI_Testsome(2, pair, &count, indices, MPI_STATUSES_IGNORE);
}

static void send_to_self(const struct memory* from, const struct memory* to, enum way way,
                         int is_receive_first) {
  MPI_Request pair[2];
  begin(way_names[way]);
  for (int r = 0; r < 2; ++r)
    if (r == is_receive_first)
      init_send(from, 0, TAG, MPI_COMM_SELF, &pair[0]);
    else
      init_receive(to, 0, TAG, MPI_COMM_SELF, &pair[1]);
  for (int round = 0; round < ROUNDS; ++round) {
    fill(from, round);
    clear(to);
    if (is_receive_first) MPI_Start(&pair[1]);
    start_ready(&pair[0]);
    if (!is_receive_first) MPI_Start(&pair[1]);
    complete_pair(way, pair);
    check(to, round);
  }
  for (int r = 0; r < 2; ++r) MPI_Request_free(&pair[r]);
}

// --- two processes ------------------------------------------------------------------------------

// The receiver waits for the message that is sent once the first send is complete: a partitioned
// message, or one of the MPI that it polls.
static void wait_for_the_next(const struct memory* m, const struct memory* plain, int is_native) {
  MPI_Request first, next;
  int word = 0, done = 0, index = 0;
  begin(is_native ? "a receiver that polls for a message of the MPI"
                  : "a receiver that waits for another request");
  if (rank == 0) {
    init_send(plain, 1, TAG, MPI_COMM_WORLD, &first);
    init_send(plain, 1, OTHER_TAG, MPI_COMM_WORLD, &next);
  } else {
    init_receive(m, 0, TAG, MPI_COMM_WORLD, &first);
    init_receive(plain, 0, OTHER_TAG, MPI_COMM_WORLD, &next);
  }
  for (int round = 0; round < ROUNDS; ++round) {
    if (rank == 0) {
      fill(plain, round);
      if (round % 2) MPI_Barrier(MPI_COMM_WORLD);
      start_ready(&first);
      wait_for(&first, round);
      if (is_native)
        MPI_Send(&round, 1, MPI_INT, 1, NATIVE_TAG, MPI_COMM_WORLD);
      else
        start_ready(&next);
      if (!is_native) wait_for(&next, round);
      if (round % 2 == 0) MPI_Barrier(MPI_COMM_WORLD);
      continue;
    }
    clear(m);
    MPI_Request native;
    MPI_Start(&first);
    if (is_native)
      MPI_Irecv(&word, 1, MPI_INT, 0, NATIVE_TAG, MPI_COMM_WORLD, &native);
    else
      MPI_Start(&next);
    if (round % 2) MPI_Barrier(MPI_COMM_WORLD);
    for (done = !is_native; !done; sched_yield())
      round == 0   ? MPI_Test(&native, &done, MPI_STATUS_IGNORE)
      : round == 1 ? MPI_Testall(1, &native, &done, MPI_STATUSES_IGNORE)
      : round == 2 ? MPI_Testany(1, &native, &index, &done, MPI_STATUS_IGNORE)
                   : MPI_Testsome(1, &native, &done, &index, MPI_STATUSES_IGNORE);
    if (!is_native) wait_for(&next, round);
    if (!is_native) check(plain, round);
    wait_for(&first, round);
    check(m, round);
    if (round % 2 == 0) MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Request_free(&first);
  MPI_Request_free(&next);
}

// The sender waits for the answer to its message: a partitioned one.
static void wait_for_an_answer(const struct memory* m, const struct memory* plain) {
  MPI_Request out, in;
  begin("a sender that waits for a partitioned answer");
  if (rank == 0) {
    init_send(m, 1, TAG, MPI_COMM_WORLD, &out);
    init_receive(plain, 1, OTHER_TAG, MPI_COMM_WORLD, &in);
  } else {
    init_receive(plain, 0, TAG, MPI_COMM_WORLD, &in);
    init_send(plain, 0, OTHER_TAG, MPI_COMM_WORLD, &out);
  }
  for (int round = 0; round < ROUNDS; ++round) {
    if (rank == 0) {
      fill(m, round);
      MPI_Start(&in);
      if (round % 2) MPI_Barrier(MPI_COMM_WORLD);
      start_ready(&out);
      if (round % 2 == 0) MPI_Barrier(MPI_COMM_WORLD);
    } else {
      if (round % 2 == 0) MPI_Barrier(MPI_COMM_WORLD);
      MPI_Start(&in);
      if (round % 2) MPI_Barrier(MPI_COMM_WORLD);
    }
    wait_for(&in, round);
    check(plain, round);
    if (rank == 1) start_ready(&out);
    wait_for(&out, round);
  }
  MPI_Request_free(&out);
  MPI_Request_free(&in);
}

// A process with such pages blocks in a receive of the MPI, which the other one serves only after
// the partitioned message has reached it (the pages are the sender's), or has left it (the
// receiver's).
static void block(const struct memory* m, const struct memory* plain, int is_sender_guarded,
                  int is_sender_first, int first_guarded_round, const char* title) {
  const int is_guarded = (rank == 0) == is_sender_guarded;
  const struct memory* const buffer = is_guarded ? m : plain;
  MPI_Request request;
  int word = 0;
  begin(title);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    init_send(buffer, 1, TAG, MPI_COMM_WORLD, &request);
  else
    init_receive(buffer, 0, TAG, MPI_COMM_WORLD, &request);
  for (int round = 0; round < BLOCKED_ROUNDS; ++round) {
    rank == 0 ? fill(buffer, round) : clear(buffer);
    if (round < first_guarded_round) unguard(buffer);
    if ((rank == 0) != is_sender_first) MPI_Barrier(MPI_COMM_WORLD);
    rank == 0 ? start_ready(&request) : (void)MPI_Start(&request);
    if ((rank == 0) == is_sender_first) MPI_Barrier(MPI_COMM_WORLD);
    if (is_guarded) {
      MPI_Recv(&word, 1, MPI_INT, 1 - rank, NATIVE_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      wait_for(&request, round);
    } else {
      // At once, and again and again: it takes pieces that the other side offers.
      for (int done = 0; !done;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      MPI_Send(&word, 1, MPI_INT, 1 - rank, NATIVE_TAG, MPI_COMM_WORLD);
    }
    if (rank == 1) check(buffer, round);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Request_free(&request);
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  catch_faults();
  signal(SIGALRM, give_up);
  struct memory from, to, plain;
  if (!make_memory(&from, GUARDED, ALL) || !make_memory(&to, GUARDED, ALL) ||
      !make_memory(&plain, PLAIN, ALL))
    return 1;

  for (int way = 0; way < WAYS; ++way)
    for (int is_receive_first = 0; is_receive_first < 2; ++is_receive_first)
      send_to_self(&from, &to, (enum way)way, is_receive_first);
  wait_for_the_next(&to, &plain, 0);
  wait_for_the_next(&to, &plain, 1);
  wait_for_an_answer(&from, &plain);
  // A signal makes a thread open them; from its second round on a sender has packed them before.
  block(&from, &plain, 1, 0, 0, "a blocked sender, whose Pready comes last");
  block(&from, &plain, 1, 1, 0, "a blocked sender, whose Pready comes first");
  block(&from, &plain, 1, 0, 3, "a blocked sender, whose pages are closed later");
  // Whether the waiting sender is in time to take a piece of the first round is chance.
  for (int chance = 0; chance < 3; ++chance)
    block(&to, &plain, 0, 1, 0, "a blocked receiver, whose Start comes last");
  block(&to, &plain, 0, 0, 0, "a blocked receiver, whose Start comes first");
  block(&to, &plain, 0, 0, 3, "a blocked receiver, whose pages are closed later");
  expect(!__atomic_load_n(&opened_by_library, __ATOMIC_ACQUIRE), 0,
         "a thread of the library has run the program's SIGSEGV handler");
  alarm(0);
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && failures == 0) puts("elsewhere ok");
  MPI_Finalize();
  return failures != 0;
}
