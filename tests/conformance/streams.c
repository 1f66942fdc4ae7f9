// Parts of the harness that any suite uses: the counting error handler, completion, data streams,
// guarded memory, threads.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"

static atomic_int handled;
static void count_error(MPI_Comm* on, int* code, ...) {
  (void)on;
  (void)code;
  atomic_fetch_add(&handled, 1);
}

MPI_Errhandler counting_handler(void) {
  MPI_Errhandler handler;
  MUST(MPI_Comm_create_errhandler(count_error, &handler));
  atomic_store(&handled, 0);
  return handler;
}

int handled_errors(void) { return atomic_load(&handled); }

bool tested(MPI_Request* request) {
  int flag = 0;
  MUST(MPI_Test(request, &flag, MPI_STATUS_IGNORE));
  return flag != 0;
}

void complete(MPI_Request* request) { MUST(MPI_Wait(request, MPI_STATUS_IGNORE)); }
void drop(MPI_Request* request) { MUST(MPI_Request_free(request)); }

// Data -------------------------------------------------------------------------------------------

static uint64_t mixed(uint64_t x) {
  x *= 0x9e3779b97f4a7c15U;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93U;
  return x ^ (x >> 29);
}

static uint64_t word_of(uint64_t stream, uint64_t round, uint64_t index) {
  return mixed(index + (stream << 50) + (round << 33) + 1);
}

void fill_part(void* buffer, size_t offset, size_t bytes, uint64_t stream, uint64_t round) {
  unsigned char* out = buffer;
  size_t done = 0;
  while (done < bytes) {
    const size_t at = offset + done, skip = at % 8;
    const size_t take = bytes - done < 8 - skip ? bytes - done : 8 - skip;
    const uint64_t word = word_of(stream, round, at / 8);
    memcpy(out + done, (const unsigned char*)&word + skip, take);
    done += take;
  }
}

void fill(void* buffer, size_t bytes, uint64_t stream, uint64_t round) {
  fill_part(buffer, 0, bytes, stream, round);
}

int64_t wrong_byte(const void* buffer, size_t offset, size_t bytes, uint64_t stream,
                   uint64_t round) {
  const unsigned char* in = buffer;
  size_t done = 0;
  while (done < bytes) {
    const size_t at = offset + done, skip = at % 8;
    const size_t take = bytes - done < 8 - skip ? bytes - done : 8 - skip;
    const uint64_t word = word_of(stream, round, at / 8);
    const unsigned char* expected = (const unsigned char*)&word + skip;
    if (memcmp(in + done, expected, take) != 0) {
      size_t i = 0;
      while (in[done + i] == expected[i]) ++i;
      return (int64_t)(at + i);
    }
    done += take;
  }
  return -1;
}

uint64_t random_next(uint64_t* state) { return mixed(++*state); }

int random_between(uint64_t* state, int low, int high) {
  return low + (int)(random_next(state) % (uint64_t)(high - low + 1));
}

// Memory -----------------------------------------------------------------------------------------

void* guarded(size_t bytes) {
  unsigned char* all = malloc(bytes + 2 * kGuardBytes);
  REQUIRE(all != NULL, "no memory for %zu bytes", bytes);
  memset(all, kUntouched, bytes + 2 * kGuardBytes);
  return all + kGuardBytes;
}

bool untouched(const void* buffer, size_t bytes) {
  const unsigned char* p = buffer;
  for (size_t i = 0; i < bytes; ++i) {
    if (p[i] != kUntouched) return false;
  }
  return true;
}

void check_guards(const void* buffer, size_t bytes) {
  const unsigned char* p = buffer;
  EXPECT_DATA(untouched(p - kGuardBytes, kGuardBytes), "bytes before the buffer were written");
  EXPECT_DATA(untouched(p + bytes, kGuardBytes), "bytes after the buffer were written");
}

void release_guarded(void* buffer) { free((unsigned char*)buffer - kGuardBytes); }

// Threads ----------------------------------------------------------------------------------------

typedef struct Work {
  pthread_t id;
  int thread;
  void* argument;
  void (*body)(int, void*);
} Work;

static void* run_work(void* pointer) {
  Work* work = pointer;
  work->body(work->thread, work->argument);
  return NULL;
}

void in_threads(int threads, void (*body)(int thread, void* argument), void* argument) {
  enum { kThreadsMax = 16 };
  Work work[kThreadsMax];
  REQUIRE(threads <= kThreadsMax, "%d threads are too many", threads);
  for (int t = 0; t < threads; ++t) {
    work[t] = (Work){.thread = t, .argument = argument, .body = body};
    REQUIRE(pthread_create(&work[t].id, NULL, run_work, &work[t]) == 0, "pthread_create failed");
  }
  for (int t = 0; t < threads; ++t) pthread_join(work[t].id, NULL);
}
