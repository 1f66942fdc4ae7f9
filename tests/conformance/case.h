// The harness of the conformance suite: plain MPI-4 in C11, nothing of Larklane in it.
//
// A case is a function that all processes run together; its name begins with the id of the rule
// that it checks (docs/user/conformance.md). Cases signal each other outside MPI over a shared
// board, so that "the sender makes no MPI call" can really be arranged.
#ifndef CONFORMANCE_CASE_H
#define CONFORMANCE_CASE_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Open MPI 5 reports MPI 3.1 and has sessions and partitioned calls all the same.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define CASE_HAS_SESSIONS 1
#else
#define CASE_HAS_SESSIONS 0
#endif
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
#define CASE_HAS_STATUS_ALL 1
#else
#define CASE_HAS_STATUS_ALL 0
#endif

enum {
  kEveryLevel = 1,  ///< run again at each thread level
  kSessions = 2,    ///< run again in a process that has no world, only a session
  kBig = 4,         ///< needs gigabytes of memory: only when asked for
};

typedef struct Case {
  const char* name;
  int ranks;  ///< exact number of processes
  int level;  ///< smallest thread level, MPI_THREAD_*
  unsigned traits;
  double deadline_s;  ///< 0: kDeadlineSeconds
  void (*run)(void);
} Case;

/// Defines and registers a case: CASE(S1_start_is_local, .ranks = 2) { ... }
#define CASE(id, ...)                                                                       \
  static void id(void);                                                                     \
  static const Case case_##id = {.name = #id, .run = id, __VA_ARGS__};                      \
  static const Case* const entry_##id __attribute__((used, section("cases"))) = &case_##id; \
  static void id(void)

extern void* null_pointer;                ///< NULL, which the compiler does not know
extern int my_rank, my_peer, world_size;  ///< my_peer: 1 - my_rank where there are two processes
extern MPI_Comm world;                    ///< MPI_COMM_WORLD, or the communicator of the session
extern MPI_Comm comm;  ///< a duplicate of `world`, one for each case, errors return

// Verdicts. The first failure of a process is kept; the table of native failures shows `kind`.
void case_fail(const char* kind, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
void case_skip(const char* why);
/// Ends the case in this thread: a process's main thread goes back to the harness.
_Noreturn void case_abandon(void);
bool case_failed(void);
/// The present step of this process, for the report of a hang. A string literal.
void step(const char* what);

#define FAIL_AS(kind, condition, ...)                                     \
  do {                                                                    \
    if (!(condition)) case_fail((kind), __FILE__, __LINE__, __VA_ARGS__); \
  } while (0)
#define EXPECT(condition, ...) FAIL_AS("error", condition, __VA_ARGS__)
#define EXPECT_DATA(condition, ...) FAIL_AS("wrong data", condition, __VA_ARGS__)
#define EXPECT_PROMPT(condition, ...) FAIL_AS("late", condition, __VA_ARGS__)
#define REQUIRE(condition, ...)                            \
  do {                                                     \
    if (!(condition)) {                                    \
      case_fail("error", __FILE__, __LINE__, __VA_ARGS__); \
      case_abandon();                                      \
    }                                                      \
  } while (0)
/// An MPI call that has to succeed; the case ends if it doesn't.
#define MUST(call) case_must((call), #call, __FILE__, __LINE__)
void case_must(int code, const char* call, const char* file, int line);
/// An error handler of communicators, and how often it has been called since it was made.
MPI_Errhandler counting_handler(void);
int handled_errors(void);
/// An MPI call that has to fail with one of the classes; MPI_ERR_LASTCODE as first class: with any.
#define EXPECT_ERROR(call, ...) \
  case_expect_error((call), #call, (const int[]){__VA_ARGS__, MPI_SUCCESS}, __FILE__, __LINE__)
void case_expect_error(int code, const char* call, const int* classes, const char* file, int line);

// Outside MPI: a board of flags and times shared by all processes, zero at the start of a case.
enum { kBoardFlags = 64 };
void post(int flag, int value);
int peek(int flag);
/// @return false after `seconds` without flag >= value
bool await(int flag, int value, double seconds);
void post_time(int flag);  ///< notes now_s() under `flag`, visible to any process that sees a later
                           ///< post()
double posted_time(int flag);
double now_s(void);              ///< one clock for all processes of the host
void pause_s(double seconds);    ///< asleep, outside MPI
void compute_s(double seconds);  ///< busy, outside MPI

// Partitioned requests. All end the case on an error.
MPI_Request psend(const void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int peer,
                  int tag, MPI_Comm on);
MPI_Request precv(void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int peer,
                  int tag, MPI_Comm on);
/// Rank 0 sends to rank 1, over `comm`: `parts` integers, each a partition.
MPI_Request int_pair(int* data, int parts, int tag);
/// Rank 0 sends to rank 1, over `comm`. @param sent, received  partitions
MPI_Request byte_pair(void* data, size_t bytes, int sent, int received, int tag);
void start(MPI_Request* request);
void ready(MPI_Request request, int partition);
void ready_all(MPI_Request request, int partitions);
bool arrived(MPI_Request request, int partition);
/// Asks until true or `seconds` have passed.
bool arrives(MPI_Request request, int partition, double seconds);
bool tested(MPI_Request* request);    ///< MPI_Test
void complete(MPI_Request* request);  ///< MPI_Wait
void drop(MPI_Request* request);      ///< MPI_Request_free

// Data: byte i of round r of stream s is a fixed function of (s, r, i).
void fill(void* buffer, size_t bytes, uint64_t stream, uint64_t round);
/// Bytes [offset, offset + bytes) of the stream, at `buffer`.
void fill_part(void* buffer, size_t offset, size_t bytes, uint64_t stream, uint64_t round);
/// @return the first wrong byte's index in the stream, or -1
int64_t wrong_byte(const void* buffer, size_t offset, size_t bytes, uint64_t stream,
                   uint64_t round);
#define EXPECT_STREAM(buffer, bytes, stream, round)                                      \
  do {                                                                                   \
    int64_t wrong_ = wrong_byte((buffer), 0, (bytes), (stream), (round));                \
    EXPECT_DATA(wrong_ < 0, "round %lld: byte %lld of %zu is wrong", (long long)(round), \
                (long long)wrong_, (size_t)(bytes));                                     \
  } while (0)
/// Integers that follow from the round and the partition.
void write_ints(int* data, int parts, int round);
void expect_ints(const int* data, int parts, int round);
/// A round of byte_pair(), with byte_pair's `sent`.
void stream_round(MPI_Request* request, void* data, size_t bytes, int sent, uint64_t stream,
                  uint64_t round);
uint64_t random_next(uint64_t* state);
/// In [low, high].
int random_between(uint64_t* state, int low, int high);

/// Memory with guard bytes before and after it, filled with kUntouched.
enum { kGuardBytes = 128, kUntouched = 0xa5 };
void* guarded(size_t bytes);
/// Expects the guards to be whole.
void check_guards(const void* buffer, size_t bytes);
void release_guarded(void* buffer);
/// @return true if every byte is kUntouched
bool untouched(const void* buffer, size_t bytes);

/// Runs body(0) .. body(threads - 1), each in a thread of its own, and joins them.
void in_threads(int threads, void (*body)(int thread, void* argument), void* argument);

#endif
