// Freeing inactive requests at any point, reuse of tags after it (C5, I2), the life of
// communicators (C9).
#include <dirent.h>
#include <string.h>

#include "case.h"

enum { kTag = 41, kBytes = 64 };

static MPI_Request pair_on(MPI_Comm on, void* data) {
  return my_rank == 0 ? psend(data, 4, kBytes / 4, MPI_BYTE, 1, kTag, on)
                      : precv(data, 2, kBytes / 2, MPI_BYTE, 0, kTag, on);
}

static MPI_Request pair_of(void* data) { return pair_on(comm, data); }

static void one_round(MPI_Request* request, void* data, uint64_t round) {
  stream_round(request, data, kBytes, 4, 1, round);
}

/// A new pair with the same tag has to work after any sequence of frees.
static void works_still(uint64_t round) {
  unsigned char data[kBytes];
  MPI_Request request = pair_of(data);
  one_round(&request, data, round);
  one_round(&request, data, round + 1000);
  drop(&request);
}

CASE(C5_free_never_started, .ranks = 2) {
  unsigned char data[kBytes];
  for (uint64_t i = 1; i <= 5; ++i) {
    MPI_Request request = pair_of(data);
    drop(&request);
    works_still(i);
  }
}

CASE(C5_free_before_the_peer_initialises, .ranks = 2) {
  for (int first = 0; first < 2; ++first) {
    unsigned char data[kBytes];
    if (my_rank != first) await(first, 1, 5);
    MPI_Request request = pair_of(data);
    drop(&request);
    if (my_rank == first) post(first, 1);
    works_still((uint64_t)first);
  }
}

CASE(C5_free_after_the_peer_has_initialised, .ranks = 2) {
  for (uint64_t i = 1; i <= 5; ++i) {
    unsigned char data[kBytes];
    MPI_Request request = pair_of(data);
    MPI_Barrier(world);
    pause_s(0.005);
    drop(&request);
    if (i % 2) MPI_Barrier(world);
    works_still(i);
  }
}

/// Requests freed in the middle of a queue of equal tags: the others must match in order all the
/// same.
CASE(C5_freed_requests_keep_their_place, .ranks = 2) {
  enum { kRequests = 8 };
  unsigned char data[kRequests][kBytes];
  MPI_Request request[kRequests];
  for (int late = 0; late < 2; ++late) {  // which side comes when the other has freed already
    const int flag = late;
    if (my_rank == late) await(flag, 1, 5);
    for (int i = 0; i < kRequests; ++i) request[i] = pair_of(data[i]);
    for (int i = 0; i < kRequests; i += 3) drop(&request[i]);
    if (my_rank != late) post(flag, 1);
    for (int i = 0; i < kRequests; ++i) {
      if (i % 3 == 0) continue;
      if (my_rank == 0) fill(data[i], kBytes, (uint64_t)i, 1);
      start(&request[i]);
      if (my_rank == 0) ready_all(request[i], 4);
    }
    step("waiting for requests that stand after freed ones");
    MUST(MPI_Waitall(kRequests, request, MPI_STATUSES_IGNORE));
    for (int i = 0; i < kRequests; ++i) {
      if (i % 3 == 0) continue;
      if (my_rank == 1) EXPECT_STREAM(data[i], kBytes, (uint64_t)i, 1);
      drop(&request[i]);
    }
  }
}

/// The other half is gone, matched or not: rounds end in an error, not in a wait without end. A
/// small send may have been taken up before the notice.
CASE(C5_rounds_after_the_other_half_was_freed, .ranks = 2) {
  enum { kRounds = 3 };
  unsigned char data[kBytes];
  for (int freed_first = 0; freed_first < 2; ++freed_first) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (my_rank == 1 || !freed_first) request = pair_of(data);
    if (my_rank == 1) drop(&request);
    MPI_Barrier(world);
    if (my_rank == 1) continue;
    if (freed_first) request = pair_of(data);
    int code = MPI_SUCCESS;
    for (int round = 1; round <= kRounds && code == MPI_SUCCESS; ++round) {
      step("waiting for a round whose receive has been freed");
      code = MPI_Start(&request);
      if (code == MPI_SUCCESS) ready_all(request, 4);
      if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    EXPECT(code != MPI_SUCCESS, "%d rounds went well without a receiver", kRounds);
    drop(&request);
  }
}

static int open_descriptors(void) {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (folder != NULL && readdir(folder) != NULL) ++count;
  if (folder != NULL) closedir(folder);
  return count;
}

CASE(C5_channels_take_no_descriptors, .ranks = 2) {
  enum { kChannels = 64, kParts = 64, kPart = 8192 };
  static unsigned char data[kParts * kPart];
  MPI_Request request[kChannels];
  const int before = open_descriptors();
  for (int i = 0; i < kChannels; ++i) {
    request[i] = my_rank == 0 ? psend(data, kParts, kPart, MPI_BYTE, 1, 3, comm)
                              : precv(data, kParts, kPart, MPI_BYTE, 0, 3, comm);
  }
  start(&request[kChannels - 1]);
  if (my_rank == 0) ready_all(request[kChannels - 1], kParts);
  complete(&request[kChannels - 1]);
  const int after = open_descriptors();
  EXPECT(after < before + kChannels / 2, "%d channels took %d descriptors", kChannels,
         after - before);
  for (int i = 0; i < kChannels; ++i) drop(&request[i]);
}

/// One side alone frees its request and goes on; the other keeps its own, unused.
static void one_side_frees(int who) {
  unsigned char data[2][kBytes];
  MPI_Request kept = pair_of(data[0]);
  if (who % 4 >= 2) one_round(&kept, data[0], 1);
  if (my_rank == who % 2) drop(&kept);
  works_still((uint64_t)who + 2);
  if (my_rank != who % 2) drop(&kept);
  works_still((uint64_t)who + 3);
}

CASE(C5_free_on_one_side_only, .ranks = 2) {
  for (int who = 0; who < 8; ++who) one_side_frees(who);
}

CASE(C5_free_between_rounds, .ranks = 2) {
  unsigned char data[kBytes];
  for (uint64_t i = 1; i <= 100; ++i) {
    MPI_Request request = pair_of(data);
    for (uint64_t round = 0; round < i % 4; ++round) one_round(&request, data, 10 * i + round);
    drop(&request);
  }
}

CASE(C5_reused_10000_times, .ranks = 2, .deadline_s = 40) {
  unsigned char data[kBytes];
  for (uint64_t i = 1; i <= 10000; ++i) {
    MPI_Request request = pair_of(data);
    one_round(&request, data, i);
    drop(&request);
  }
}

static void free_in_thread(int thread, void* argument) {
  const MPI_Comm* on = argument;
  unsigned char data[kBytes];
  for (uint64_t i = 1; i <= 50; ++i) {
    MPI_Request request = my_rank == 0 ? psend(data, 4, kBytes / 4, MPI_BYTE, 1, thread, *on)
                                       : precv(data, 2, kBytes / 2, MPI_BYTE, 0, thread, *on);
    if ((i + (uint64_t)thread) % 3) one_round(&request, data, i);
    drop(&request);
  }
}

CASE(C5_free_in_threads, .ranks = 2, .level = MPI_THREAD_MULTIPLE) {
  in_threads(4, free_in_thread, &comm);
}

/// The request is active and goes on as if nothing had been tried.
static void finish(MPI_Request request, unsigned char* data) {
  MPI_Barrier(world);
  if (my_rank == 0) {
    fill(data, kBytes, 1, 1);
    ready_all(request, 4);
  }
  complete(&request);
  if (my_rank == 1) EXPECT_STREAM(data, kBytes, 1, 1);
  drop(&request);
}

CASE(C5_free_of_an_active_request_is_an_error, .ranks = 2) {
  unsigned char data[kBytes];
  MPI_Request request = pair_of(data);
  start(&request);
  MPI_Request copy = request;
  EXPECT_ERROR(MPI_Request_free(&copy), MPI_ERR_REQUEST);
  if (case_failed()) case_abandon();
  finish(request, data);
}

CASE(C5_cancel_of_an_active_request_is_an_error, .ranks = 2) {
  unsigned char data[kBytes];
  MPI_Request request = pair_of(data);
  start(&request);
  EXPECT_ERROR(MPI_Cancel(&request), MPI_ERR_REQUEST);
  finish(request, data);
}

CASE(C9_comm_free_before_use, .ranks = 2) {
  unsigned char data[kBytes];
  MPI_Comm own;
  MUST(MPI_Comm_dup(comm, &own));
  MPI_Request request = pair_on(own, data);
  MUST(MPI_Comm_free(&own));
  for (uint64_t round = 1; round <= 3; ++round) one_round(&request, data, round);
  drop(&request);
}

CASE(C9_comm_free_in_mid_round, .ranks = 2) {
  unsigned char data[kBytes];
  MPI_Comm own;
  MUST(MPI_Comm_dup(comm, &own));
  MPI_Request request = pair_on(own, data);
  if (my_rank == 0) fill(data, kBytes, 1, 7);
  start(&request);
  MUST(MPI_Comm_free(&own));
  if (my_rank == 0) ready_all(request, 4);
  complete(&request);
  if (my_rank == 1) EXPECT_STREAM(data, kBytes, 1, 7);
  MPI_Comm again;  // its context may be reused by the MPI: the old request must not care
  MUST(MPI_Comm_dup(comm, &again));
  one_round(&request, data, 8);
  drop(&request);
  MUST(MPI_Comm_free(&again));
}

CASE(C9_errors_after_comm_free_use_its_handler, .ranks = 2) {
  unsigned char data[kBytes];
  MPI_Comm own;
  MPI_Errhandler handler = counting_handler();
  MUST(MPI_Comm_dup(comm, &own));
  MUST(MPI_Comm_set_errhandler(own, handler));
  MUST(MPI_Errhandler_free(&handler));
  MPI_Request request = pair_on(own, data);
  MUST(MPI_Comm_free(&own));
  start(&request);
  int flag = 0;
  const int code =
      my_rank == 0 ? MPI_Pready(4, request) : MPI_Parrived(request, 2, &flag);  // out of range
  EXPECT(code != MPI_SUCCESS, "a partition out of range is accepted");
  EXPECT(handled_errors() == 1, "the communicator's handler was called %d times", handled_errors());
  if (my_rank == 0) {
    fill(data, kBytes, 1, 1);
    ready_all(request, 4);
  }
  complete(&request);
  drop(&request);
}

static int refusing;
static int refuse_deletion(MPI_Comm on, int key, void* value, void* state) {
  (void)on;
  (void)key;
  (void)value;
  (void)state;
  return refusing ? MPI_ERR_OTHER : MPI_SUCCESS;
}

/// Tries to free a communicator that the callback keeps alive; by MPI_Comm_free in one process
/// alone.
static void free_in_vain(MPI_Comm* own, bool by_disconnect, int key) {
  MUST(MPI_Comm_set_attr(*own, key, NULL));  // again: MPICH asks each attribute once
  refusing = 1;
  if (by_disconnect) {
    MPI_Comm_disconnect(own);  // Open MPI's does not report the refusal
  } else if (my_rank == 1) {
    MPI_Comm_free(own);
  }
  refusing = 0;
  REQUIRE(*own != MPI_COMM_NULL, "it was freed all the same");
}

static void keep_alive(bool by_disconnect, int key) {
  unsigned char data[kBytes], later[kBytes];
  MPI_Comm own;
  MPI_Errhandler handler;
  MPI_Request request[2];
  MUST(MPI_Comm_dup(comm, &own));
  MUST(MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN));
  free_in_vain(&own, by_disconnect, key);
  request[0] = pair_on(own, data);
  free_in_vain(&own, by_disconnect, key);
  step("pairs on a communicator whose free was refused");
  request[1] = pair_on(own, later);
  for (uint64_t round = 1; round <= 3; ++round) {
    one_round(&request[0], data, round);
    one_round(&request[1], later, round);
  }
  step("misusing a request");
  handler = counting_handler();
  MUST(MPI_Comm_set_errhandler(own, handler));
  MUST(MPI_Errhandler_free(&handler));
  for (int gone = 0; gone < 2; ++gone) {
    if (gone) MUST((by_disconnect ? MPI_Comm_disconnect : MPI_Comm_free)(&own));
    const int before = handled_errors();
    MPI_Pready(4, request[0]);  // inactive, or a receive
    EXPECT(handled_errors() == before + 1, "%s: the communicator's handler was called %d times",
           gone ? "freed" : "alive", handled_errors() - before);
  }
  drop(&request[0]);
  drop(&request[1]);
}

CASE(C9_free_refused_by_a_callback, .ranks = 2) {
  int key;
  MUST(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, refuse_deletion, &key, NULL));
  keep_alive(false, key);
  keep_alive(true, key);
  MUST(MPI_Comm_free_keyval(&key));
}
