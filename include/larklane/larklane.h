/** @file
 * The C API: messages between the processes of a job, as in larklane/message.hpp.
 *
 * Rules of every call, unless its description says otherwise:
 *
 * @return   0, or one of the negative LARKLANE_ERR_...; larklane_last_error() then says more
 * @errors   INVALID_ARGUMENT: a handle or an output is null, or a struct_size is of no version
 * @threads  thread-safe; the maker of a handle owns it, and destroys it while no other thread uses
 *           it
 * @owns     outputs (..._p) come last, and are written on success only
 * @cost     never blocks, never makes progress
 *
 * Structs begin with their size, so that later versions may append to them: initialize them with
 * the LARKLANE_..._INIT of their name. A handle must not be used after it is destroyed. While its
 * context exists, use of a destroyed lane returns INVALID_ARGUMENT; with other handles the mistake
 * is not noticed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "larklane/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- version ---------------------------------------------------------------------------------- */

/** Version of this header. Libraries with the same MAJOR.MINOR fit it, and no others.
 * @{ */
#define LARKLANE_VERSION_MAJOR 0
#define LARKLANE_VERSION_MINOR 1
#define LARKLANE_VERSION_PATCH 0
/** @} */
/** Version of the loaded library, as in "0.1.0". */
LARKLANE_API const char *larklane_version(void);

/* --- errors ----------------------------------------------------------------------------------- */

/** Errors, grouped by the largest thing that each kills, as in larklane/status.hpp. */
enum {
  LARKLANE_OK = 0, /**< no error */
  /* one call: nothing changed */
  LARKLANE_ERR_INVALID_ARGUMENT = -1,
  LARKLANE_ERR_NOT_ACTIVE = -2,     /**< the object is not ready */
  LARKLANE_ERR_ALREADY_ACTIVE = -3, /**< the object is still in use */
  LARKLANE_ERR_ALREADY_READY = -4,
  LARKLANE_ERR_WRONG_KIND = -5, /**< a call of another kind of object */
  LARKLANE_ERR_UNSUPPORTED_BUFFER = -6,
  /* one operation */
  LARKLANE_ERR_SIZE_MISMATCH = -7, /**< the message is longer than the receive */
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

/** Stable lower-case name of an error of a call or a completion; "unknown error" of other numbers.
 */
LARKLANE_API const char *larklane_error_name(int error);
/** Text of this thread's last failed call: the call, the error's name, the cause. Valid until the
 * next failure; never null. A success does not change it. */
LARKLANE_API const char *larklane_last_error(void);

/* --- the context ------------------------------------------------------------------------------ */

/** This process as a member of a job. */
typedef struct larklane_context larklane_context;

/** Collective over all processes of the job, called by all in the same order. Each passes `bytes`
 * bytes at `own`, the same number everywhere, and receives those of rank 0, 1, ... one after the
 * other at `all`. It may block. It returns 0, or another value on failure; the library's call that
 * needed it then fails. */
typedef int (*larklane_all_gather)(const void *own, size_t bytes, void *all, void *state);

/** The processes of a job, as the program itself knows them. */
typedef struct larklane_peers {
  size_t struct_size;             /**< size */
  int rank;                       /**< of this process, below `size` */
  int size;                       /**< number of processes */
  larklane_all_gather all_gather; /**< lives as long as the context */
  void *state;                    /**< passed to each call; lives as long */
} larklane_peers;
/** Defaults. */
#define LARKLANE_PEERS_INIT \
  { sizeof(larklane_peers), 0, 1, NULL, NULL }

/** Join the job that the environment names (`larklane launch`, PMIx, LARKLANE_RANK ...); without
 * one, be alone. Once in the life of a process.
 *
 * @errors  BAD_OPTION, UNREACHABLE, SYSTEM, NO_MEMORY, NO_THREAD; larklane_last_error() names the
 *          variable, the rank, the remedy
 * @cost    waits for the other processes, for a bounded time */
LARKLANE_API int larklane_context_create(larklane_context **context_p);
/** Join the job of `peers`, for a program that knows its processes.
 *
 * @errors  also INVALID_ARGUMENT: no all-gather, or rank and size that make no sense */
LARKLANE_API int larklane_context_create_with_peers(const larklane_peers *peers,
                                                    larklane_context **context_p);
/** Waits, for a bounded time, until all sends of this process have left, then takes leave of its
 * peers. Null is legal.
 *
 * In a forked child this call and those that destroy or free handles do nothing.
 *
 * @errors  ALREADY_ACTIVE: objects made from it are left; nothing has happened */
LARKLANE_API int larklane_context_destroy(larklane_context *context);

/** Rank of this process: 0 <= *rank_p < size. */
LARKLANE_API int larklane_context_rank(const larklane_context *context, int *rank_p);
/** Number of processes of the job. */
LARKLANE_API int larklane_context_size(const larklane_context *context, int *size_p);
/** Barrier: returns when all processes have called it equally often; makes progress meanwhile.
 *
 * @errors  PEER_DOWN and others: a process is gone
 * @cost    blocks */
LARKLANE_API int larklane_context_fence(larklane_context *context);

/* --- lanes ------------------------------------------------------------------------------------ */

/** A user's place on a lane. Threads with different lanes never contend. */
typedef struct larklane_vci larklane_vci;

/** Make a place on the lane with the fewest places. Not collective.
 *
 * @errors  SYSTEM; NO_MEMORY: also if all lanes are single threads' (vci_count_max) */
LARKLANE_API int larklane_vci_create(larklane_context *context, larklane_vci **vci_p);
/** Make a place on an exclusive lane without a lock, for the calling thread. Only that thread posts
 * to it and makes progress on it: arriving messages wait for that thread, also while others are in
 * larklane_context_fence(). If another thread uses the lane, a debug build of the library ends the
 * process; other builds spend microseconds on each such call. If the kernel has no membarrier(2),
 * the lock stays.
 *
 * @errors  SYSTEM; NO_MEMORY: also if no unused lane is left (vci_count_max) */
LARKLANE_API int larklane_vci_create_single_threaded(larklane_context *context,
                                                     larklane_vci **vci_p);
/** Give the place back. Null is legal. Some bytes stay until the context is destroyed, so that a
 * later use is noticed. */
LARKLANE_API int larklane_vci_destroy(larklane_vci *vci);
/** Make progress: serve arrivals and completions of this lane, and now and then of all others
 * except single threads'. Runs handlers.
 *
 * @param served_p  number of events served; 0: none, or another thread serves the lane. May be null
 */
LARKLANE_API int larklane_vci_progress(larklane_vci *vci, uint32_t *served_p);
/** Counts of sends that could not leave a lane at once, since the lane was made, by reason. Each
 * post that returned LARKLANE_RETRY, and each failed take of a packet (no_packet), counts once.
 * Posts that the lane keeps (`queues`), and its answers to peers, may count any number of times. */
typedef struct larklane_retry_counts {
  size_t struct_size;     /**< size */
  uint64_t not_connected; /**< the peer is not connected yet */
  uint64_t no_room;       /**< the peer's ring is full: the peer does not keep up */
  uint64_t no_packet;     /**< all packets of the lane are in flight, or the program's */
  uint64_t no_operation;  /**< the limit of operations in flight is reached */
  uint64_t no_memory;     /**< no memory can be registered until other operations end */
  uint64_t behind;        /**< others to the same process wait already */
} larklane_retry_counts;
/** Zeros. */
#define LARKLANE_RETRY_COUNTS_INIT \
  { sizeof(larklane_retry_counts), 0, 0, 0, 0, 0, 0 }
/** Counts of the lane, which other users may share.
 * @cost some loads */
LARKLANE_API int larklane_vci_retry_counts(const larklane_vci *vci,
                                           larklane_retry_counts *counts_p);
/** Bytes of the longest message that is copied: at least 64, the same for all lanes (option
 * message_eager_max). */
LARKLANE_API int larklane_vci_eager_bytes_max(const larklane_vci *vci, uint64_t *bytes_p);

/* --- completions ------------------------------------------------------------------------------ */

/** The result of a finished operation. */
typedef struct larklane_completion {
  size_t struct_size; /**< size */
  int status;         /**< LARKLANE_OK, or the error */
  int detail;         /**< the native errno; 0: there is none */
  int rank;           /**< the peer; -1: there is none */
  uint64_t tag;       /**< the message's */
  void *buffer;       /**< where the bytes are, or were */
  uint64_t bytes;     /**< number of bytes moved */
  void *user_context; /**< the pointer given with the operation */
} larklane_completion;
/** Defaults. */
#define LARKLANE_COMPLETION_INIT \
  { sizeof(larklane_completion), 0, 0, -1, 0, NULL, 0, NULL }

/** Receives completions of operations of this process and, by its number, of its peers: a
 * synchronizer, a queue, a counter or a handler. A call of one kind returns WRONG_KIND for an
 * object of another. */
typedef struct larklane_completion_object larklane_completion_object;
/** The number by which a peer names an object that is registered here; never 0. Processes that
 * register the same objects in the same order get the same numbers. */
typedef uint32_t larklane_remote_completion;

/** Destroy an object, if no operation in flight names it. Null is legal.
 *
 * @errors  ALREADY_ACTIVE: operations are in flight, or the last is not quite over; make progress,
 *          and call again. The object stays valid, but peers can't name it any more
 * @owns    after success no handler is called any more
 * @cost    a mutex, and some loads for each lane */
LARKLANE_API int larklane_completion_object_free(larklane_completion_object *object);
/** Destroy an object in any case: completions of operations in flight are lost, but a handler may
 * still be called until the context is destroyed. Null is legal. */
LARKLANE_API int larklane_completion_object_destroy(larklane_completion_object *object);
/** Let peers name the object. The same number in every call until ..._deregister_remote.
 *
 * @errors  NO_MEMORY: 4096 are registered, or 16 million have been
 * @cost    a mutex */
LARKLANE_API int larklane_completion_object_register_remote(larklane_completion_object *object,
                                                            larklane_remote_completion *number_p);
/** Take the number back; without one the call does nothing. Completions that still arrive under it
 * are refused. */
LARKLANE_API int larklane_completion_object_deregister_remote(larklane_completion_object *object);

/** Make a synchronizer: ready after `signals` signals; keeps their completions.
 *
 * @errors  INVALID_ARGUMENT: no signals; NO_MEMORY
 * @cost    a mutex and the heap, as for the other kinds; to be made once and reset */
LARKLANE_API int larklane_synchronizer_create(larklane_context *context, uint32_t signals,
                                              larklane_completion_object **object_p);
/** Is it ready?
 *
 * @param is_ready_p  1: all signals have come; the thread sees all effects of the operations
 * @cost              one load */
LARKLANE_API int larklane_synchronizer_test(const larklane_completion_object *object,
                                            int *is_ready_p);
/** Completion `index`, in the order of arrival; until the synchronizer is reset.
 *
 * @errors  NOT_ACTIVE: it is not ready; INVALID_ARGUMENT: `index` is out of range */
LARKLANE_API int larklane_synchronizer_completion(const larklane_completion_object *object,
                                                  uint32_t index,
                                                  larklane_completion *completion_p);
/** Begin anew, while no thread reads its completions.
 *
 * @errors   NOT_ACTIVE: it is not ready, and nothing has changed
 * @threads  one at a time */
LARKLANE_API int larklane_synchronizer_reset(larklane_completion_object *object);
/** Signals beyond the number needed, since it was made: a mistake of the program. */
LARKLANE_API int larklane_synchronizer_excess(const larklane_completion_object *object,
                                              uint64_t *excess_p);

/** Make a queue: keeps completions until they are popped, the oldest first, each once.
 * @errors NO_MEMORY */
LARKLANE_API int larklane_queue_create(larklane_context *context,
                                       larklane_completion_object **object_p);
/** Take the oldest completion.
 *
 * @param completion_p  written if there was one
 * @param is_there_p    0: there is none now, or another thread is in this call at this moment */
LARKLANE_API int larklane_queue_pop(larklane_completion_object *object,
                                    larklane_completion *completion_p, int *is_there_p);

/** Make a counter: counts completions, and drops their contents. @errors NO_MEMORY */
LARKLANE_API int larklane_counter_create(larklane_context *context,
                                         larklane_completion_object **object_p);
/** Completions since it was made, failed or not. A thread that reads n sees all effects of n
 * operations. */
LARKLANE_API int larklane_counter_completed(const larklane_completion_object *object,
                                            uint64_t *completed_p);
/** Completions with an error. Read after ..._completed, it includes all failures of those. */
LARKLANE_API int larklane_counter_failed(const larklane_completion_object *object,
                                         uint64_t *failed_p);

/** Called by threads that make progress, several at the same time, with no lock of the library
 * held. It may post; it must not block or make progress. */
typedef void (*larklane_handler)(const larklane_completion *completion, void *state);
/** Make a handler: calls a function with each completion.
 *
 * @param state     passed to each call; the caller keeps it until ..._free has succeeded
 * @errors          INVALID_ARGUMENT: no function; NO_MEMORY */
LARKLANE_API int larklane_handler_create(larklane_context *context, larklane_handler function,
                                         void *state, larklane_completion_object **object_p);

/* --- memory ----------------------------------------------------------------------------------- */

/** Memory of this process, registered with the network: the program's (larklane_region_register()),
 * or the library's (larklane_region_allocate()). */
typedef struct larklane_region larklane_region;
/** Names the memory of one process to others. Plain bytes: the owner sends it to the peers that
 * need it. */
typedef struct larklane_remote_region {
  size_t struct_size; /**< size */
  uint64_t bytes;     /**< its length */
  uint64_t address;   /**< the network's */
  uint64_t key;       /**< the network's */
  int32_t rank;       /**< of its owner */
  uint32_t number;    /**< in its owner's table */
} larklane_remote_region;
/** Defaults. */
#define LARKLANE_REMOTE_REGION_INIT \
  { sizeof(larklane_remote_region), 0, 0, 0, -1, 0 }

/** Register memory with the network.
 *
 * @param start     first byte, host memory
 * @param bytes     0 is legal
 * @errors          NO_MEMORY (locked memory), SYSTEM
 * @owns            the memory stays where it is until larklane_region_free() */
LARKLANE_API int larklane_region_register(larklane_context *context, void *start, uint64_t bytes,
                                          larklane_region **region_p);
/** Allocate memory and register it: zeroed, aligned to 64 bytes at least, freed by
 * larklane_region_free(). Processes of this host map it over provider `shm`: there a put or get
 * without a signal, and without `signals_always`, is a store or load, and LARKLANE_DONE. 8 bytes at
 * a multiple of 8 travel as a whole, with release and acquire. A forked child shares the memory
 * with its parent.
 *
 * @param bytes     0 is legal
 * @param region_p  larklane_region_start() says where its memory is
 * @errors          NO_MEMORY, SYSTEM */
LARKLANE_API int larklane_region_allocate(larklane_context *context, uint64_t bytes,
                                          larklane_region **region_p);
/** The first byte of the region. Of no bytes: any address. */
LARKLANE_API int larklane_region_start(const larklane_region *region, void **start_p);
/** The name of the region for peers. */
LARKLANE_API int larklane_region_remote(const larklane_region *region,
                                        larklane_remote_region *remote_p);
/** Deregister; free allocated memory. When it returns, peers' atomics and short puts with a signal
 * are over, and later ones are refused. Other puts and gets may access the memory for a moment
 * longer: have peers confirm that theirs are complete. No operation of this process may use it.
 * Null is legal. */
LARKLANE_API int larklane_region_free(larklane_region *region);

/* --- messages --------------------------------------------------------------------------------- */

/** State of an operation when its post returns. */
typedef enum larklane_post {
  LARKLANE_DONE,   /**< over; the object is not signalled */
  LARKLANE_POSTED, /**< in flight; the object will be signalled, once */
  LARKLANE_RETRY   /**< nothing has happened: make progress, and post again */
} larklane_post;

/** The fields in which a receive and a message must agree. */
typedef enum larklane_match {
  LARKLANE_MATCH_RANK_TAG,
  LARKLANE_MATCH_RANK,
  LARKLANE_MATCH_TAG,
  LARKLANE_MATCH_NONE
} larklane_match;

/** Options of all posts. */
typedef struct larklane_post_options {
  size_t struct_size; /**< size */
  /** Receives the completion. Null: there is none, so a failure is not reported either. */
  const larklane_completion_object *completion;
  void *user_context; /**< comes back in the completion */
  /** The region that holds the local memory, which is then not registered again; otherwise the post
   * is refused. Null: the library registers memory as needed. */
  const larklane_region *region;
  int signals_always; /**< not 0: never LARKLANE_DONE, the object is signalled in any case */
  int queues;         /**< not 0: RETRY only for want of memory; the lane keeps it and posts it */
  int match;          /**< a larklane_match, of send and receive: equal policies match */
  int space;          /**< of send and receive: 0..7, matched apart */
  /** Of send and receive: not 0: a receive may name any rank or any tag, independent of the
   * sender's policy. Such spaces are numbered separately. */
  int is_ordered;
  /** Not 0: more posts over this lane follow at once. A short message may wait for them and travel
   * together with its followers to the same process, until a send without this option leaves over
   * the lane, or a thread makes progress on the lane. Not with signals_always or queues. */
  int more_follow;
} larklane_post_options;
/** Defaults. */
#define LARKLANE_POST_OPTIONS_INIT \
  { sizeof(larklane_post_options), NULL, NULL, NULL, 0, 0, LARKLANE_MATCH_RANK_TAG, 0, 0, 0 }

/** @defgroup c_posts Posts in C
 * Rules of every post, unless its description says otherwise:
 *
 * - `vci`: the lane; `rank`: the peer's, this process's own is legal; `buffer`: `bytes` contiguous
 *   bytes of host memory
 * - `options`: null: LARKLANE_POST_OPTIONS_INIT
 * - `post_p`: the state. After an error nothing has happened, and posting again would not help.
 *   Later errors are in the completion, with the rank
 *
 * @errors  INVALID_ARGUMENT: rank, buffer, region; PEER_DOWN and others: the peer can't be reached;
 *          NO_MEMORY
 * @owns    POSTED: until the completion the caller does not write a buffer that is sent, and does
 * not access one that is received into
 * @cost    a DONE post takes no lock except one try of its lane's. A POSTED one, and a receive,
 * also take spin locks of the lane's pool and tables, each for some instructions: a thread that
 *          finds one held yields. The tables grow by allocations
 * @{ */

/** Send a message of any length. Up to an eager limit it is copied: DONE, and the buffer is the
 * caller's again. A longer one goes straight from the buffer to the receive, once one is posted. */
LARKLANE_API int larklane_post_send(larklane_vci *vci, int rank, uint32_t tag, const void *buffer,
                                    uint64_t bytes, const larklane_post_options *options,
                                    larklane_post *post_p);
/** Receive a message. If it is longer than `bytes`, the receive completes with SIZE_MISMATCH and
 * the message's length; the buffer is undefined. The rank is ignored where `match` does not name
 * it. `options` must name a completion object. `done_p` gets the completion of a DONE receive;
 * null: the object is signalled instead. */
LARKLANE_API int larklane_post_recv(larklane_vci *vci, int rank, uint32_t tag, void *buffer,
                                    uint64_t bytes, const larklane_post_options *options,
                                    larklane_completion *done_p, larklane_post *post_p);
/** Send an active message: object `there` of the peer is signalled with the bytes, in memory that
 * is allocated on arrival, and with the rank of this process and the tag. The peer gives the memory
 * back with larklane_free_buffer(). */
LARKLANE_API int larklane_post_am(larklane_vci *vci, int rank, larklane_remote_completion there,
                                  uint32_t tag, const void *buffer, uint64_t bytes,
                                  const larklane_post_options *options, larklane_post *post_p);
/** One of several buffers of a message. */
typedef struct larklane_buffer {
  const void *start; /**< first byte, host memory */
  uint64_t bytes;    /**< 0 is legal */
} larklane_buffer;
#define LARKLANE_BUFFERS_MAX 8 /**< most buffers of one message */
/** Send the contents of `count` buffers as one message, one after the other. The receiver sees one
 * message. Long ones go straight from each buffer; with a region in the options all of them lie in
 * it. The completion names the first. The list is the caller's again when the call returns.
 *
 * @errors  INVALID_ARGUMENT: more than LARKLANE_BUFFERS_MAX */
LARKLANE_API int larklane_post_send_buffers(larklane_vci *vci, int rank, uint32_t tag,
                                            const larklane_buffer *buffers, size_t count,
                                            const larklane_post_options *options,
                                            larklane_post *post_p);
/** Send an active message from `count` buffers; rules as larklane_post_send_buffers(). */
LARKLANE_API int larklane_post_am_buffers(larklane_vci *vci, int rank,
                                          larklane_remote_completion there, uint32_t tag,
                                          const larklane_buffer *buffers, size_t count,
                                          const larklane_post_options *options,
                                          larklane_post *post_p);

/** Memory of a lane for one short message. The program writes the message there; posting makes no
 * further copy. Single-owner. */
typedef struct larklane_packet {
  size_t struct_size; /**< size */
  void *buffer;       /**< room for the message, aligned to 8; null: the handle is empty */
  uint64_t bytes_max; /**< the room */
  void *lane;         /**< the library's */
  uint64_t number;    /**< the library's */
} larklane_packet;
/** Empty. */
#define LARKLANE_PACKET_INIT \
  { sizeof(larklane_packet), NULL, 0, NULL, 0 }
/** Take a packet. A lane has 224 for programs; other posts go on when programs hold all of them.
 *
 * @pre             *packet_p is empty: its packet would be lost
 * @param packet_p  its `buffer` is null if programs hold all packets: make progress, and call again
 * @cost            no lock, no allocation */
LARKLANE_API int larklane_packet_take(larklane_vci *vci, larklane_packet *packet_p);
/** Give an unposted packet back, before the context is destroyed. An empty one is legal.
 *
 * @errors  INVALID_ARGUMENT: a copy of one that was posted or given back */
LARKLANE_API int larklane_packet_give_back(larklane_packet *packet);
/** Send the first `bytes` bytes of a packet from the lane of `vci`. After DONE and POSTED it is the
 * library's, and the handle is empty. After RETRY and errors it is still the caller's, contents
 * unchanged.
 *
 * @errors  INVALID_ARGUMENT: an empty packet, another lane's, a posted one; too many bytes */
LARKLANE_API int larklane_post_send_packet(larklane_vci *vci, int rank, uint32_t tag,
                                           larklane_packet *packet, uint64_t bytes,
                                           const larklane_post_options *options,
                                           larklane_post *post_p);
/** Send a packet as an active message; rules as larklane_post_send_packet(). */
LARKLANE_API int larklane_post_am_packet(larklane_vci *vci, int rank,
                                         larklane_remote_completion there, uint32_t tag,
                                         larklane_packet *packet, uint64_t bytes,
                                         const larklane_post_options *options,
                                         larklane_post *post_p);

/** Free the buffer of an active message. Null is legal. */
LARKLANE_API void larklane_free_buffer(void *buffer);

/** Write `bytes` bytes at `offset` of `region`. Puts are not ordered among each other. Object
 * `there` of the peer, if not 0, is signalled when the bytes have arrived: with the rank of this
 * process, the tag and the number of bytes. */
LARKLANE_API int larklane_post_put(larklane_vci *vci, const larklane_remote_region *region,
                                   uint64_t offset, const void *buffer, uint64_t bytes,
                                   larklane_remote_completion there, uint32_t tag,
                                   const larklane_post_options *options, larklane_post *post_p);
/** Read `bytes` bytes from `offset` of `region`. Object `there` of the peer, if not 0, is signalled
 * when they have been read. */
LARKLANE_API int larklane_post_get(larklane_vci *vci, const larklane_remote_region *region,
                                   uint64_t offset, void *buffer, uint64_t bytes,
                                   larklane_remote_completion there, uint32_t tag,
                                   const larklane_post_options *options, larklane_post *post_p);

/** Add `value` to the 8 bytes at `offset`, a multiple of 8. Atomics on one location are atomic with
 * respect to each other, from any process. Those of one thread over one lane happen in its order.
 * `before_p` gets the former value, and is the library's until the completion; null: not wanted. */
LARKLANE_API int larklane_post_fetch_add(larklane_vci *vci, const larklane_remote_region *region,
                                         uint64_t offset, uint64_t value,
                                         const larklane_post_options *options, uint64_t *before_p,
                                         larklane_post *post_p);
/** Store `value` at `offset` if the 8 bytes there equal `expected`: then `*before_p` is
 * `expected`. */
LARKLANE_API int larklane_post_compare_swap(larklane_vci *vci, const larklane_remote_region *region,
                                            uint64_t offset, uint64_t expected, uint64_t value,
                                            const larklane_post_options *options,
                                            uint64_t *before_p, larklane_post *post_p);
#define LARKLANE_ACCUMULATE_MAX 1020 /**< most doubles of one call */
/** Add `count` doubles, LARKLANE_ACCUMULATE_MAX at most, to those at `offset`. Each addition is
 * atomic with respect to other accumulates, from any process, through regions of the same context.
 * It is not atomic with respect to the atomics above, to the owner's own, or to accesses through
 * another mapping of these bytes. */
LARKLANE_API int larklane_post_accumulate(larklane_vci *vci, const larklane_remote_region *region,
                                          uint64_t offset, const double *values, uint32_t count,
                                          const larklane_post_options *options,
                                          larklane_post *post_p);
/** @} */

#ifdef __cplusplus
}
#endif
