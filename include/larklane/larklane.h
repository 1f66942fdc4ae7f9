/* Larklane in C: messages between the processes of a job, as larklane/message.hpp has them in C++.
 *
 * What holds for every call, unless it says otherwise:
 *
 * @return   0, or one of the negative LARKLANE_ERR_...; then larklane_last_error() says more
 * @errors   INVALID_ARGUMENT: a handle or an output that is null, a struct_size that no version has
 * @threads  thread-safe; who makes a handle owns it, and destroys it while nobody else uses it
 * @owns     outputs (..._p) come last, and are written on success only
 * @cost     never blocks, never makes progress
 *
 * Structs begin with their size, so that later versions may append to them: initialize them with
 * the LARKLANE_..._INIT of their name. A handle that was destroyed must not be used: of a lane
 * INVALID_ARGUMENT says so while there is its context, of others it is not noticed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "larklane/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- version ---------------------------------------------------------------------------------- */

/* Of this header. Libraries with the same MAJOR.MINOR fit it, and no others. */
#define LARKLANE_VERSION_MAJOR 0
#define LARKLANE_VERSION_MINOR 1
#define LARKLANE_VERSION_PATCH 0
/* Of the library that is loaded, as in "0.1.0". Thread-safe. */
LARKLANE_API const char *larklane_version(void);

/* --- errors ----------------------------------------------------------------------------------- */

/* Grouped by the largest thing that they kill, as in larklane/status.hpp. */
enum {
  LARKLANE_OK = 0,
  /* one call: nothing changed */
  LARKLANE_ERR_INVALID_ARGUMENT = -1,
  LARKLANE_ERR_NOT_ACTIVE = -2,
  LARKLANE_ERR_ALREADY_ACTIVE = -3,
  LARKLANE_ERR_ALREADY_READY = -4,
  LARKLANE_ERR_WRONG_KIND = -5,
  LARKLANE_ERR_UNSUPPORTED_BUFFER = -6,
  /* one operation */
  LARKLANE_ERR_SIZE_MISMATCH = -7,
  LARKLANE_ERR_TRANSFER = -8,
  LARKLANE_ERR_VERSION = -9,
  LARKLANE_ERR_PEER_FREED = -10,
  /* one peer */
  LARKLANE_ERR_PEER_DOWN = -11,
  LARKLANE_ERR_UNREACHABLE = -12,
  LARKLANE_ERR_FOREIGN_USER = -13,
  LARKLANE_ERR_PROTOCOL = -14,
  /* the process */
  LARKLANE_ERR_NO_MEMORY = -15,
  LARKLANE_ERR_NO_THREAD = -16,
  LARKLANE_ERR_SYSTEM = -17,
  LARKLANE_ERR_BAD_OPTION = -18
};

/* Stable lower-case name of a code, as calls and completions have it; "unknown error" of others. */
LARKLANE_API const char *larklane_error_name(int error);
/* Why the last call of this thread failed that did: the call, the error's name, what was wrong.
 * Until the next that fails; never null. A success does not change it. */
LARKLANE_API const char *larklane_last_error(void);

/* --- the context ------------------------------------------------------------------------------ */

/* One process of a job. */
typedef struct larklane_context larklane_context;

/* Collective over all processes of the job, which call it in the same order: each gives `bytes`
 * bytes at `own`, as many as every other, and gets those of rank 0, 1, ... one after the other at
 * `all`. It may block. Returns 0, or anything else: it has failed, and so does whatever needed it.
 */
typedef int (*larklane_all_gather)(const void *own, size_t bytes, void *all, void *state);

/* The processes of a job, as the program itself knows them. */
typedef struct larklane_peers {
  size_t struct_size;
  int rank; /* of this process, below `size` */
  int size;
  larklane_all_gather all_gather;
  void *state; /* given to each call of it; both live as long as the context */
} larklane_peers;
#define LARKLANE_PEERS_INIT \
  { sizeof(larklane_peers), 0, 1, NULL, NULL }

/* As the environment says (`larklane launch`, PMIx, LARKLANE_RANK ...); alone, if it says nothing.
 * One in the life of a process.
 *
 * @errors  BAD_OPTION, UNREACHABLE, SYSTEM, NO_MEMORY, NO_THREAD; larklane_last_error() names the
 *          variable, the rank, the remedy
 * @cost    waits for the other processes, for a bounded time */
LARKLANE_API int larklane_context_create(larklane_context **context_p);
/* Of a program that knows its processes.
 *
 * @errors  also INVALID_ARGUMENT: no all-gather, or rank and size that make no sense */
LARKLANE_API int larklane_context_create_with_peers(const larklane_peers *peers,
                                                    larklane_context **context_p);
/* Waits, for a bounded time, until what this process has sent is out, and says goodbye. Null is
 * legal.
 *
 * In a forked child this and what destroys or frees handles do nothing.
 *
 * @errors  ALREADY_ACTIVE: something that was made of it is left; nothing has happened */
LARKLANE_API int larklane_context_destroy(larklane_context *context);

LARKLANE_API int larklane_context_rank(const larklane_context *context, int *rank_p);
LARKLANE_API int larklane_context_size(const larklane_context *context, int *size_p);
/* Returns when all processes have called it as often; makes progress meanwhile.
 *
 * @errors  of a process that is gone: PEER_DOWN and others
 * @cost    blocks */
LARKLANE_API int larklane_context_fence(larklane_context *context);

/* --- lanes ------------------------------------------------------------------------------------ */

/* A user's place on a lane. Threads with different lanes never meet. */
typedef struct larklane_vci larklane_vci;

/* On the lane with the fewest; no collective call.
 *
 * @errors  SYSTEM; NO_MEMORY: also if all lanes are single threads' (vci_count_max) */
LARKLANE_API int larklane_vci_create(larklane_context *context, larklane_vci **vci_p);
/* The same on a lane that nobody else has, without a lock: for the calling thread. Only that thread
 * posts on it, and makes progress of it: what comes there waits for that thread, also while others
 * are in larklane_context_fence(). A debug build of the library ends the process where another
 * thread does; elsewhere each such call takes microseconds. Where the kernel has no membarrier(2),
 * the lock stays.
 *
 * @errors  SYSTEM; NO_MEMORY: also if no lane is left that nobody has (vci_count_max) */
LARKLANE_API int larklane_vci_create_single_threaded(larklane_context *context,
                                                     larklane_vci **vci_p);
/* Null is legal. Some bytes stay until the context is destroyed, so that a later use is noticed. */
LARKLANE_API int larklane_vci_destroy(larklane_vci *vci);
/* Serve what has come, on this lane, and now and then on all others but single threads'. Runs
 * handlers.
 *
 * @param served_p  how much; 0: nothing, or another thread is at it. May be null */
LARKLANE_API int larklane_vci_progress(larklane_vci *vci, uint32_t *served_p);
/* How often something could not go out over a lane at once, since the lane was made, by reason.
 * Each post that has answered LARKLANE_RETRY is counted once, and so is each packet that was not
 * there (no_packet). What the lane keeps (`queues`), and its answers to peers, may be counted any
 * number of times. */
typedef struct larklane_retry_counts {
  size_t struct_size;
  uint64_t not_connected; /* the peer is not yet */
  uint64_t no_room;       /* in the peer's ring: it does not keep up */
  uint64_t no_packet;     /* of the lane's: all are under way, or the program's */
  uint64_t no_operation;  /* as many are in flight as may be */
  uint64_t no_memory;     /* can be registered before other operations are over */
  uint64_t behind;        /* others wait already, to the same process */
} larklane_retry_counts;
#define LARKLANE_RETRY_COUNTS_INIT \
  { sizeof(larklane_retry_counts), 0, 0, 0, 0, 0, 0 }
/* Of the lane, which others may use, too.
 *
 * @threads  thread-safe
 * @cost     some loads */
LARKLANE_API int larklane_vci_retry_counts(const larklane_vci *vci,
                                           larklane_retry_counts *counts_p);
/* Bytes of the longest message that is copied: at least 64, the same for all lanes (option
 * message_eager_max). Thread-safe. */
LARKLANE_API int larklane_vci_eager_bytes_max(const larklane_vci *vci, uint64_t *bytes_p);

/* --- completions ------------------------------------------------------------------------------ */

/* What a finished operation tells. */
typedef struct larklane_completion {
  size_t struct_size;
  int status;         /* LARKLANE_OK, or what went wrong */
  int detail;         /* the native errno; 0: there is none */
  int rank;           /* the peer; -1: there is none */
  uint64_t tag;       /* the message's */
  void *buffer;       /* where the bytes are, or were */
  uint64_t bytes;     /* that have been moved */
  void *user_context; /* as it was given with the operation */
} larklane_completion;
#define LARKLANE_COMPLETION_INIT \
  { sizeof(larklane_completion), 0, 0, -1, 0, NULL, 0, NULL }

/* Hears of finished operations, of this process and, by its number, of its peers: a synchronizer, a
 * queue, a counter or a handler. The calls of one kind answer WRONG_KIND to another's. */
typedef struct larklane_completion_object larklane_completion_object;
/* By what a peer names an object that is registered here; never 0. Processes that register the same
 * objects in the same order get the same numbers. */
typedef uint32_t larklane_remote_completion;

/* Destroy an object that no operation in flight names. Null is legal.
 *
 * @errors  ALREADY_ACTIVE: there are some, or the last is not quite over; make progress, and call
 *          again. The object is as good as before, but peers can't name it any more
 * @owns    after success no handler is called any more
 * @cost    a mutex, and some loads for each lane */
LARKLANE_API int larklane_completion_object_free(larklane_completion_object *object);
/* Destroy it in any case: what operations in flight would have told is lost, but that a handler may
 * still be called until the context is destroyed. Null is legal. */
LARKLANE_API int larklane_completion_object_destroy(larklane_completion_object *object);
/* Let peers name it. The same number in every call until ..._deregister_remote.
 *
 * @errors  NO_MEMORY: 4096 are registered, or 16 million have been
 * @cost    a mutex */
LARKLANE_API int larklane_completion_object_register_remote(larklane_completion_object *object,
                                                            larklane_remote_completion *number_p);
/* Take the number back; nothing if it has none. What still comes under it is refused. */
LARKLANE_API int larklane_completion_object_deregister_remote(larklane_completion_object *object);

/* Ready when it has been signalled `signals` times; keeps what the completions told.
 *
 * @errors  INVALID_ARGUMENT: no signals; NO_MEMORY
 * @cost    a mutex and the heap, as for the other kinds; to be made once and reset */
LARKLANE_API int larklane_synchronizer_create(larklane_context *context, uint32_t signals,
                                              larklane_completion_object **object_p);
/* @param is_ready_p  1: it has been signalled as often as it needs. Who gets 1 sees all that the
 *                    operations did
 * @cost              one load */
LARKLANE_API int larklane_synchronizer_test(const larklane_completion_object *object,
                                            int *is_ready_p);
/* What completion `index` told, in the order in which they came; until it is reset.
 *
 * @errors  NOT_ACTIVE: it is not ready; INVALID_ARGUMENT: there are not so many */
LARKLANE_API int larklane_synchronizer_completion(const larklane_completion_object *object,
                                                  uint32_t index,
                                                  larklane_completion *completion_p);
/* Begin anew, while nobody reads its completions.
 *
 * @errors   NOT_ACTIVE: it is not ready, and nothing has changed
 * @threads  one at a time */
LARKLANE_API int larklane_synchronizer_reset(larklane_completion_object *object);
/* How often it has been signalled beyond that since it was made: a mistake of the program. */
LARKLANE_API int larklane_synchronizer_excess(const larklane_completion_object *object,
                                              uint64_t *excess_p);

/* Keeps completions until they are popped: the oldest first, each once. @errors NO_MEMORY */
LARKLANE_API int larklane_queue_create(larklane_context *context,
                                       larklane_completion_object **object_p);
/* Take the oldest completion.
 *
 * @param completion_p  written if there was one
 * @param is_there_p    0: there is none now, or another thread is in this call at this moment */
LARKLANE_API int larklane_queue_pop(larklane_completion_object *object,
                                    larklane_completion *completion_p, int *is_there_p);

/* Counts completions, and forgets what they told. @errors NO_MEMORY */
LARKLANE_API int larklane_counter_create(larklane_context *context,
                                         larklane_completion_object **object_p);
/* All since it was made, failed or not. Who sees a number sees all that so many operations did. */
LARKLANE_API int larklane_counter_completed(const larklane_completion_object *object,
                                            uint64_t *completed_p);
/* Of these: with an error. Asked afterwards, it has all failures of those. */
LARKLANE_API int larklane_counter_failed(const larklane_completion_object *object,
                                         uint64_t *failed_p);

/* Called by whoever makes progress, by several threads at the same time, with no lock of the
 * library held. It may post; it must not block or make progress. */
typedef void (*larklane_handler)(const larklane_completion *completion, void *state);
/* Calls a function with each completion.
 *
 * @param state  given to each call; the caller's, until ..._free has succeeded
 * @errors       INVALID_ARGUMENT: no function; NO_MEMORY */
LARKLANE_API int larklane_handler_create(larklane_context *context, larklane_handler function,
                                         void *state, larklane_completion_object **object_p);

/* --- memory ----------------------------------------------------------------------------------- */

/* Memory of this process that the network knows. */
typedef struct larklane_region larklane_region;
/* Memory of some process that others may use. Plain bytes: send it to whom it concerns. */
typedef struct larklane_remote_region {
  size_t struct_size;
  uint64_t bytes;
  uint64_t address; /* the network's */
  uint64_t key;     /* the network's */
  int32_t rank;     /* whose */
  uint32_t number;  /* there */
} larklane_remote_region;
#define LARKLANE_REMOTE_REGION_INIT \
  { sizeof(larklane_remote_region), 0, 0, 0, -1, 0 }

/* @param bytes  0 is legal
 * @errors       NO_MEMORY (locked memory), SYSTEM
 * @owns         the memory stays where it is until larklane_region_free() */
LARKLANE_API int larklane_region_register(larklane_context *context, void *start, uint64_t bytes,
                                          larklane_region **region_p);
/* What peers need. */
LARKLANE_API int larklane_region_remote(const larklane_region *region,
                                        larklane_remote_region *remote_p);
/* What comes later is refused, and peers' atomics and short puts with a signal are over when it
 * returns. Other puts and gets may be in it for a moment longer: have peers say that theirs are
 * complete. None of this process may use it. Null is legal. */
LARKLANE_API int larklane_region_free(larklane_region *region);

/* --- messages --------------------------------------------------------------------------------- */

/* What a post answers. */
typedef enum larklane_post {
  LARKLANE_DONE,   /* it is over, and the object is not signalled */
  LARKLANE_POSTED, /* the object will be signalled, once */
  LARKLANE_RETRY   /* nothing has happened: make progress, and post again */
} larklane_post;

/* What a receive and a message must have in common. */
typedef enum larklane_match {
  LARKLANE_MATCH_RANK_TAG,
  LARKLANE_MATCH_RANK,
  LARKLANE_MATCH_TAG,
  LARKLANE_MATCH_NONE
} larklane_match;

/* What all posts may say. */
typedef struct larklane_post_options {
  size_t struct_size;
  /* Hears of the end; null: nobody, so that a failure is not heard of, either. */
  const larklane_completion_object *completion;
  void *user_context; /* comes back in the completion */
  /* Local memory lies in it, or the post is refused: not registered anew. Null: the library
   * registers what it has to. */
  const larklane_region *region;
  int signals_always; /* not 0: never LARKLANE_DONE, the object is signalled in any case */
  int queues;         /* not 0: RETRY only for want of memory; the lane keeps it and posts it */
  int match; /* a larklane_match, of send and receive: messages match receives of the same */
  int space; /* of send and receive: 0..7, matched apart */
  /* Of send and receive: not 0: a receive may name any rank or any tag, whatever the sender said.
   * Such spaces are counted apart. */
  int is_ordered;
  /* Not 0: more posts over this lane follow at once. A short message may wait for them and travel
   * together with its followers to the same process, until something goes out over the lane that
   * does not say this (a receive does not), or a turn of the lane. Not with the two above. */
  int more_follow;
} larklane_post_options;
#define LARKLANE_POST_OPTIONS_INIT \
  { sizeof(larklane_post_options), NULL, NULL, NULL, 0, 0, LARKLANE_MATCH_RANK_TAG, 0, 0, 0 }

/* What holds for every post, unless it says otherwise:
 *
 * @param options  null: LARKLANE_POST_OPTIONS_INIT
 * @param post_p   on an error nothing has happened, and it would not help to post again. Later
 *                 errors are in the completion, with the rank
 * @errors         INVALID_ARGUMENT: rank, buffer, region; PEER_DOWN and others: there is no way to
 *                 the peer; NO_MEMORY
 * @owns           POSTED: the buffer is the library's until the completion
 * @cost           what is DONE takes no lock but one try of its lane's; what is POSTED, and a
 *                 receive, also spin locks of its lane's pool and tables, each for some
 *                 instructions: who finds one held yields. The tables grow by allocations */

/* @param bytes  any length. Up to an eager limit they are copied: DONE, and the buffer is the
 *               caller's again. Longer ones go from where they lie to the receive, once it is there
 * @param rank   this process's own is legal */
LARKLANE_API int larklane_post_send(larklane_vci *vci, int rank, uint32_t tag, const void *buffer,
                                    uint64_t bytes, const larklane_post_options *options,
                                    larklane_post *post_p);
/* A message that is longer than `bytes` leaves the buffer undefined and completes with
 * SIZE_MISMATCH and its own length.
 *
 * @param rank     of the source; ignored where the match does not name it
 * @param options  must name a completion object
 * @param done_p   written if it is DONE: what it tells. Null: the object is signalled */
LARKLANE_API int larklane_post_recv(larklane_vci *vci, int rank, uint32_t tag, void *buffer,
                                    uint64_t bytes, const larklane_post_options *options,
                                    larklane_completion *done_p, larklane_post *post_p);
/* An active message: `there`, an object of the peer's, is signalled with the bytes, in memory that
 * is allocated on arrival, and with our rank and the tag. The peer gives it back with
 * larklane_free_buffer(). */
LARKLANE_API int larklane_post_am(larklane_vci *vci, int rank, larklane_remote_completion there,
                                  uint32_t tag, const void *buffer, uint64_t bytes,
                                  const larklane_post_options *options, larklane_post *post_p);
/* One of the buffers of a message that lies in several. */
typedef struct larklane_buffer {
  const void *start;
  uint64_t bytes; /* 0 is legal */
} larklane_buffer;
#define LARKLANE_BUFFERS_MAX 8 /* of one message */
/* The same of a message that lies in `count` buffers, one after the other: its receiver can't tell.
 * Long ones go from where each lies; with the options' region all of them lie in it. The
 * completion names the first.
 *
 * @param buffers  the list is the caller's again when the call returns
 * @errors         INVALID_ARGUMENT: more than LARKLANE_BUFFERS_MAX */
LARKLANE_API int larklane_post_send_buffers(larklane_vci *vci, int rank, uint32_t tag,
                                            const larklane_buffer *buffers, size_t count,
                                            const larklane_post_options *options,
                                            larklane_post *post_p);
LARKLANE_API int larklane_post_am_buffers(larklane_vci *vci, int rank,
                                          larklane_remote_completion there, uint32_t tag,
                                          const larklane_buffer *buffers, size_t count,
                                          const larklane_post_options *options,
                                          larklane_post *post_p);

/* Memory of a lane for one short message, which the program writes there itself: posted without
 * another copy. Its owner uses it alone. */
typedef struct larklane_packet {
  size_t struct_size;
  void *buffer;       /* where the message goes, aligned to 8; null: there is none */
  uint64_t bytes_max; /* the room */
  void *lane;         /* the library's */
  uint64_t number;    /* the library's */
} larklane_packet;
#define LARKLANE_PACKET_INIT \
  { sizeof(larklane_packet), NULL, 0, NULL, 0 }
/* A lane has 224 for programs; all other posts go on when those are out.
 *
 * @pre             *packet_p holds none: it would be lost
 * @param packet_p  its `buffer` is null if all are out: make progress, and ask again
 * @cost            no lock, no allocation */
LARKLANE_API int larklane_packet_take(larklane_vci *vci, larklane_packet *packet_p);
/* One that is not posted, before the context is destroyed. An empty one is legal.
 *
 * @errors  INVALID_ARGUMENT: a copy of one that was posted or given back */
LARKLANE_API int larklane_packet_give_back(larklane_packet *packet);
/* Send, or signal, with the first `bytes` bytes of it.
 *
 * @param packet  of the lane of `vci`. DONE, POSTED: the library's, and it is emptied. RETRY, an
 *                error: it is still the caller's, with all that is in it
 * @errors        INVALID_ARGUMENT: an empty one, another lane's, one that was posted; too many
 * bytes
 */
LARKLANE_API int larklane_post_send_packet(larklane_vci *vci, int rank, uint32_t tag,
                                           larklane_packet *packet, uint64_t bytes,
                                           const larklane_post_options *options,
                                           larklane_post *post_p);
LARKLANE_API int larklane_post_am_packet(larklane_vci *vci, int rank,
                                         larklane_remote_completion there, uint32_t tag,
                                         larklane_packet *packet, uint64_t bytes,
                                         const larklane_post_options *options,
                                         larklane_post *post_p);

/* Give back what an active message has brought. Null is legal. */
LARKLANE_API void larklane_free_buffer(void *buffer);

/* Write `bytes` bytes at `offset` of `region`. Puts have no order among each other.
 *
 * @param there  not 0: that object of the peer's is signalled when they are there: our rank, the
 *               tag, how many */
LARKLANE_API int larklane_post_put(larklane_vci *vci, const larklane_remote_region *region,
                                   uint64_t offset, const void *buffer, uint64_t bytes,
                                   larklane_remote_completion there, uint32_t tag,
                                   const larklane_post_options *options, larklane_post *post_p);
/* Read them. @param there  not 0: that object of the peer's is signalled when they are read */
LARKLANE_API int larklane_post_get(larklane_vci *vci, const larklane_remote_region *region,
                                   uint64_t offset, void *buffer, uint64_t bytes,
                                   larklane_remote_completion there, uint32_t tag,
                                   const larklane_post_options *options, larklane_post *post_p);

/* Add `value` to the 8 bytes at `offset`, a multiple of 8. Atomics of one location happen one after
 * the other, whoever posts them; those of one thread over one lane in its order.
 *
 * @param before_p  what was there; the library's until the completion. Null: not wanted */
LARKLANE_API int larklane_post_fetch_add(larklane_vci *vci, const larklane_remote_region *region,
                                         uint64_t offset, uint64_t value,
                                         const larklane_post_options *options, uint64_t *before_p,
                                         larklane_post *post_p);
/* Store `value` there if `expected` is there. It was done if `*before_p` is `expected`. */
LARKLANE_API int larklane_post_compare_swap(larklane_vci *vci, const larklane_remote_region *region,
                                            uint64_t offset, uint64_t expected, uint64_t value,
                                            const larklane_post_options *options,
                                            uint64_t *before_p, larklane_post *post_p);
#define LARKLANE_ACCUMULATE_MAX 1020 /* of one call */
/* Add `count` doubles to those at `offset`: each atomically as far as other accumulates go, whoever
 * posts them, through regions of the same context. Not so with the atomics above, or the owner's
 * own, of the same bytes, or through another mapping of them.
 *
 * @param count  LARKLANE_ACCUMULATE_MAX at most */
LARKLANE_API int larklane_post_accumulate(larklane_vci *vci, const larklane_remote_region *region,
                                          uint64_t offset, const double *values, uint32_t count,
                                          const larklane_post_options *options,
                                          larklane_post *post_p);

#ifdef __cplusplus
}
#endif
