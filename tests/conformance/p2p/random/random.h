// Random messages against a plain model: shared declarations (main.c says how it works).
#ifndef CONFORMANCE_P2P_RANDOM_H
#define CONFORMANCE_P2P_RANDOM_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  kRanksMax = 4,
  kThreadsMax = 16,
  kComms = 3,     ///< of a team; 0: shared by all teams of the process, the others made and freed
  kChannels = 4,  ///< persistent requests of a team on a side
  kMessagesMax = 48,  ///< of a batch
  kEventsMax = 2 * kMessagesMax + 16,
  kVoidsMax = 4,
  kPoolMax = 2 * kMessagesMax + kVoidsMax + 16,
  kRottenMax = 1024,
};

// Random numbers
// -----------------------------------------------------------------------------------
uint64_t next_random(uint64_t* state);
/// In [low, high].
int between(uint64_t* state, int low, int high);
/// True once in `n`.
bool one_in(uint64_t* state, int n);

// Data: message `id` is a fixed stream of bytes
// -----------------------------------------------------
void fill_stream(unsigned char* to, size_t bytes, uint64_t id);
/// @return the first wrong byte's index, or -1
long long wrong_in_stream(const unsigned char* from, size_t bytes, uint64_t id);

typedef enum Base { kBaseByte, kBaseInt, kBaseDouble, kBasePair, kBases } Base;
typedef enum Shape {
  kPlain,       ///< `capacity` elements of the basic type
  kSpaced,      ///< resized blocks, one after the other
  kVector,      ///< one MPI_Type_vector
  kIndexed,     ///< one MPI_Type_indexed of blocks of 1, 2 and 3
  kReversed,    ///< one MPI_Type_create_hindexed_block, the last element first
  kContiguous,  ///< one MPI_Type_contiguous
  kShapes
} Shape;

/// Where the elements of a message lie in a buffer.
typedef struct Layout {
  Base base;
  Shape shape;
  int block;        ///< elements of a block: kSpaced, kVector
  int capacity;     ///< elements that the buffer holds
  bool is_swapped;  ///< kBasePair: the double before the integer
} Layout;

typedef struct Typed {
  MPI_Datatype type, basic;  ///< `basic` has the elements
  int count;
  bool is_basic_made, is_made;
} Typed;

size_t bytes_of(Base base, int elements);     ///< in the stream
int basic_elements(Base base, int elements);  ///< as MPI_Get_elements counts
Layout random_layout(uint64_t* random, Base base, int elements, int spare);
size_t span_of(const Layout* layout);  ///< bytes of a buffer
Typed make_type(const Layout* layout);
void free_type(Typed* typed);
/// Lays the stream of `id` out in `buffer`.
void lay_out(unsigned char* buffer, const Layout* layout, int elements, uint64_t id);
/// Makes every byte of a buffer known before a receive.
void wipe(unsigned char* buffer, const Layout* layout);
/// @return the first wrong byte's index in the stream; -1: right; -2: a byte outside the message
/// changed
long long wrong_in_layout(const unsigned char* buffer, const Layout* layout, int elements,
                          uint64_t id);
/// The right answer of MPI_Get_count for `elements` received with the type.
int expected_count(const Layout* layout, int elements);

// The plan: the same on all ranks
// -------------------------------------------------------------------
typedef enum SendKind {
  kSend,
  kSsend,
  kBsend,
  kRsend,
  kIsend,
  kIssend,
  kIbsend,
  kIrsend,
  kPersistentSend
} SendKind;
typedef enum ReceiveKind {
  kRecv,
  kProbeRecv,
  kIprobeRecv,
  kMprobeMrecv,
  kMprobeImrecv,
  kImprobeMrecv,
  kIrecv,
  kPersistentRecv
} ReceiveKind;
typedef enum ExchangeKind {
  kNoExchange,
  kSendrecv,
  kSendrecvReplace,
  kIsendrecv,
  kIsendAndRecv,
  kIrecvAndSsend
} ExchangeKind;

/// A message and the receive that the model gives it.
typedef struct Message {
  int source, target;  ///< ranks of the world
  int comm, tag, elements, channel;
  Base base;
  uint64_t id;
  int send_at, receive_at;  ///< positions in the batch
  SendKind send;
  ReceiveKind receive;
  ExchangeKind exchange;  ///< of the side that sends this message
  Layout from, to;
  bool any_source, any_tag;
  bool is_reserved;  ///< has a tag of its own
  bool is_raced;     ///< its receive is cancelled at some time
} Message;

typedef enum EventKind {
  kSendEvent,
  kReceiveEvent,
  kExchangeEvent,
  kVoidEvent,
  kStartAll,
  kFence
} EventKind;
typedef struct Event {
  EventKind kind;
  int message;  ///< kExchangeEvent: and the next one; kVoidEvent: the receive's number
} Event;

/// A receive that no message matches.
typedef struct Void {
  int target, source, comm, tag;
  bool any_source;
} Void;

typedef struct Batch {
  int messages, events, voids;
  Message message[kMessagesMax];
  Event event[kEventsMax];
  Void nothing[kVoidsMax];
  bool is_synchronized;  ///< barriers before and after
  bool is_gather;        ///< wildcards that race: one rank receives from all
  int root;
} Batch;

typedef struct Comm {
  MPI_Comm handle;
  int members, world_of[kRanksMax], rank_of[kRanksMax];  ///< rank_of: -1 for the others
  int first_tag;
} Comm;

typedef struct Channel {
  int source, target, comm, tag, elements;
  Base base;
  SendKind mode;
  Layout from, to;
  bool any_source, is_sender_persistent, is_receiver_persistent;
} Channel;

/// Input of the plan of a batch.
typedef struct Planner {
  uint64_t random;
  int ranks, team, largest_bytes;
  uint64_t next_id;
  const Comm* comm;  ///< kComms
  const Channel* channel;
} Planner;

int tag_of(const Planner* planner, int comm, int source, int number);
void plan_batch(Planner* planner, Batch* batch);
void plan_channels(Planner* planner, Channel* channels);

/// Calls that an MPI is known to get wrong without Larklane: not made.
typedef struct Avoided {
  bool buffered, matched, persistent;  ///< to find a fault: no such calls
  bool replaced_structures;            ///< MPICH 5: Sendrecv_replace of a long structure fails with
                                       ///< MPI_ERR_TYPE
  bool isendrecv;                      ///< MPICH 4: releases its types once too often
  bool persistent_get_status;  ///< MPICH 5: Request_get_status makes a persistent request inactive,
                               ///< its status empty
} Avoided;
extern Avoided avoided;

// Running a team: one thread of each process
// --------------------------------------------------------
/// A request in flight.
typedef struct Operation {
  const Message* message;  ///< NULL: a receive that no message matches
  bool is_receive, is_persistent, is_raced, is_cancelled;
  bool is_status_whole;  ///< receives: the call gives a status
  int number;            ///< gather: of the receive; persistent: the channel
  int ready_at;          ///< complete for certain after this position
  unsigned char* buffer;
  Layout layout;
  Typed typed;
} Operation;

typedef struct Team {
  int team, rank, ranks;
  MPI_Comm base;  ///< for barriers and new communicators
  Comm comm[kComms];
  Channel channel[kChannels];
  MPI_Request sender[kChannels], receiver[kChannels];
  unsigned char *sender_buffer[kChannels], *receiver_buffer[kChannels];
  Typed sender_type[kChannels], receiver_type[kChannels];
  Planner planner;
  uint64_t random;  ///< of this rank alone
  Batch batch;
  MPI_Request request[kPoolMax];
  Operation operation[kPoolMax];
  int in_flight;
  unsigned char* rotten[kRottenMax];  ///< buffers of freed requests, until a barrier
  int rotten_count;
  uint64_t got[kMessagesMax];  ///< gather: the message of each receive
  long long messages, bytes, epochs, batches;
  // For the report of a hang.
  _Atomic int position;
  const char* _Atomic doing;
} Team;

void run_batch(Team* team, bool frees_communicators);
void synchronize(Team* team);
void free_communicators(Team* team);

/// Adds a request. `operation->buffer` and its type belong to the pool from now on.
void add_request(Team* team, MPI_Request request, const Operation* operation);
/// Some completion calls; none that could block.
void complete_some(Team* team, int position);
void complete_all(Team* team);
/// Checks the status and the data of a receive that is complete.
void check_receive(Team* team, const Operation* operation, const MPI_Status* status);

/// Ends the program: says where and how to run it again.
_Noreturn void fail(const Team* team, const char* format, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void fail_call(const Team* team, const char* call, int code);
#define MUST(call)                                           \
  do {                                                       \
    const int must_ = (call);                                \
    if (must_ != MPI_SUCCESS) fail_call(team, #call, must_); \
  } while (0)
#define DOING(what) (team->doing = (what))

#endif
