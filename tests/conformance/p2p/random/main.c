// Random messages against a plain model.
//
// usage: random [--seed N] [--messages N | --seconds N] [--threads N] [--largest BYTES] [--deadline
// SECONDS] [--avoid replace|get_status|isendrecv|buffered|matched|persistent]...
//
// Thread t of each process is a member of team t. All members make the same plan from the seed
// (plan.c): batches of messages of many sizes, types, modes, tags and communicators, with receives,
// probes and cancels, and each receive's message by the order rule. Each member makes the calls of
// its rank (run.c) and completes its requests by calls of its own choice (complete.c). Every byte
// and every status is compared. Communicators are made and freed every few batches, some with
// requests in flight.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "random.h"

enum { kBsendBuffer = 8 << 20, kExitHang = 3, kExitSkip = 77 };

static struct {
  uint64_t seed;
  long long messages;
  double seconds;  // 0: `messages` say when to end
  int threads, largest, deadline;
} options = {.seed = 1, .messages = 20000, .threads = 1, .largest = 8 << 20, .deadline = 60};

Avoided avoided;
static Team* teams;
static MPI_Comm shared;  // of all teams

static void show_plan(const Team* team) {
  for (int i = 0; i < team->batch.messages; ++i) {
    const Message* message = &team->batch.message[i];
    fprintf(stderr,
            "message %d: rank %d to %d, comm %d, tag %d%s%s, %d elements of base %d, sent at %d by "
            "%d, received at %d by %d, exchange %d%s%s\n",
            i, message->source, message->target, message->comm, message->tag,
            message->any_source ? " any source" : "", message->any_tag ? " any tag" : "",
            message->elements, (int)message->base, message->send_at, (int)message->send,
            message->receive_at, (int)message->receive, (int)message->exchange,
            message->is_raced ? ", raced" : "", message->channel >= 0 ? ", persistent" : "");
  }
}

void fail(const Team* team, const char* format, ...) {
  char text[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  fprintf(stderr,
          "not ok random messages: rank %d, team %d, epoch %lld, batch %lld, position %d, %s: %s\n"
          "again by --seed %llu --messages %lld --threads %d --largest %d with %d ranks\n",
          team->rank, team->team, team->epochs, team->batches, team->position, team->doing, text,
          (unsigned long long)options.seed, options.messages, options.threads, options.largest,
          team->ranks);
  show_plan(team);
  MPI_Abort(MPI_COMM_WORLD, 1);
  _exit(1);
}

void fail_call(const Team* team, const char* call, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(team, "%s failed: %s", call, text);
}

// The watchdog
// -------------------------------------------------------------------------------------

static void on_alarm(int signal_number) {
  (void)signal_number;
  static long long before = -1;
  long long now = 0;
  for (int t = 0; t < options.threads; ++t) now += teams[t].batches;
  if (now != before) {
    before = now;
    alarm((unsigned)options.deadline);
    return;
  }
  char line[4000];
  for (int t = 0; t < options.threads; ++t) {
    const Team* team = &teams[t];
    int used =
        snprintf(line, sizeof(line),
                 "hang: rank %d, team %d, epoch %lld, batch %lld%s, position %d, in %s; in flight:",
                 team->rank, t, team->epochs, team->batches,
                 team->batch.is_gather ? " (gather)" : "", team->position, team->doing);
    for (int i = 0; i < team->in_flight && i < 12; ++i) {
      const Operation* operation = &team->operation[i];
      const Message* message = operation->message;
      used += snprintf(
          line + used, sizeof(line) - (size_t)used,
          " [%s message %d rank %d to %d comm %d tag %d bytes %d at %d/%d kinds %d/%d]",
          operation->is_receive ? "receive" : "send",
          message ? (int)(message - team->batch.message) : -1, message ? message->source : -1,
          message ? message->target : -1, message ? message->comm : -1, message ? message->tag : -1,
          message ? (int)bytes_of(message->base, message->elements) : 0,
          message ? message->send_at : 0, message ? message->receive_at : 0,
          message ? (int)message->send : 0, message ? (int)message->receive : 0);
    }
    line[used < (int)sizeof(line) - 1 ? used++ : used - 1] = '\n';
    if (write(STDERR_FILENO, line, (size_t)used) < 0) break;
  }
  snprintf(line, sizeof(line), "again by --seed %llu --messages %lld --threads %d --largest %d\n",
           (unsigned long long)options.seed, options.messages, options.threads, options.largest);
  if (write(STDERR_FILENO, line, strlen(line)) < 0) _exit(kExitHang);
  sleep(2);  // so that all ranks get to write
  _exit(kExitHang);
}

// Communicators
// ------------------------------------------------------------------------------------

static void describe(Team* team, Comm* comm) {
  memset(comm->rank_of, -1, sizeof(comm->rank_of));
  for (int r = 0; r < comm->members; ++r) comm->rank_of[comm->world_of[r]] = r;
  int rank = -1;
  if (comm->handle != MPI_COMM_NULL) MUST(MPI_Comm_rank(comm->handle, &rank));
  if (rank != comm->rank_of[team->rank])
    fail(team, "rank %d in a new communicator, expected %d", rank, comm->rank_of[team->rank]);
}

static void make_communicator(Team* team, Comm* comm, int way) {
  const int last = team->ranks - 1;
  comm->members = team->ranks;
  for (int r = 0; r <= last; ++r) comm->world_of[r] = r;
  MPI_Request request;
  MPI_Group all, some;
  switch (way) {
    case 0:
      MUST(MPI_Comm_dup(team->base, &comm->handle));
      break;
    case 1:
      MUST(MPI_Comm_idup(team->base, &comm->handle, &request));
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
      break;
    case 2:  // the ranks reversed
      for (int r = 0; r <= last; ++r) comm->world_of[r] = last - r;
      MUST(MPI_Comm_split(team->base, 0, last - team->rank, &comm->handle));
      break;
    case 3:  // without the last rank
      comm->members = last;
      MUST(MPI_Comm_split(team->base, team->rank == last ? MPI_UNDEFINED : 0, 0, &comm->handle));
      break;
    default:  // without the first rank
      comm->members = last;
      for (int r = 0; r < last; ++r) comm->world_of[r] = r + 1;
      MUST(MPI_Comm_group(team->base, &all));
      MUST(MPI_Group_incl(all, last, comm->world_of, &some));
      MUST(MPI_Comm_create(team->base, some, &comm->handle));
      MUST(MPI_Group_free(&some));
      MUST(MPI_Group_free(&all));
  }
  describe(team, comm);
}

void free_communicators(Team* team) {
  for (int c = 1; c < kComms; ++c) {
    DOING("MPI_Comm_free");
    if (team->comm[c].handle != MPI_COMM_NULL) MUST(MPI_Comm_free(&team->comm[c].handle));
  }
}

// Persistent requests
// ------------------------------------------------------------------------------

static void init_channels(Team* team) {
  plan_channels(&team->planner, team->channel);
  for (int i = 0; i < kChannels; ++i) {
    const Channel* channel = &team->channel[i];
    const Comm* comm = &team->comm[channel->comm];
    team->sender[i] = team->receiver[i] = MPI_REQUEST_NULL;
    if (channel->source == team->rank && channel->is_sender_persistent) {
      const int to = comm->rank_of[channel->target];
      Typed* typed = &team->sender_type[i];
      *typed = make_type(&channel->from);
      unsigned char* buffer = team->sender_buffer[i] = malloc(span_of(&channel->from));
      int (*const init)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*) =
          channel->mode == kSend    ? MPI_Send_init
          : channel->mode == kSsend ? MPI_Ssend_init
                                    : MPI_Bsend_init;
      MUST(init(buffer, typed->count, typed->type, to, channel->tag, comm->handle,
                &team->sender[i]));
    }
    if (channel->target == team->rank && channel->is_receiver_persistent) {
      const int from = channel->any_source ? MPI_ANY_SOURCE : comm->rank_of[channel->source];
      Typed* typed = &team->receiver_type[i];
      *typed = make_type(&channel->to);
      unsigned char* buffer = team->receiver_buffer[i] = malloc(span_of(&channel->to));
      MUST(MPI_Recv_init(buffer, typed->count, typed->type, from, channel->tag, comm->handle,
                         &team->receiver[i]));
    }
  }
}

static void free_channels(Team* team) {
  for (int i = 0; i < kChannels; ++i) {
    if (team->sender[i] != MPI_REQUEST_NULL) {
      MUST(MPI_Request_free(&team->sender[i]));
      free_type(&team->sender_type[i]);
      free(team->sender_buffer[i]);
    }
    if (team->receiver[i] != MPI_REQUEST_NULL) {
      MUST(MPI_Request_free(&team->receiver[i]));
      free_type(&team->receiver_type[i]);
      free(team->receiver_buffer[i]);
    }
  }
}

// Teams
// --------------------------------------------------------------------------------------------

static void run_epoch(Team* team, long long messages) {
  Planner* planner = &team->planner;
  uint64_t* random = &planner->random;
  DOING("making communicators");
  make_communicator(team, &team->comm[1], between(random, 0, 2));
  make_communicator(team, &team->comm[2], between(random, 0, team->ranks > 2 ? 4 : 2));
  init_channels(team);
  const int batches = between(random, 1, 30);
  const bool is_freed_early = one_in(random, 2);
  for (int i = 0; i < batches && team->messages < messages; ++i) {
    run_batch(team, is_freed_early && i == batches - 1);
  }
  synchronize(team);
  free_channels(team);
  free_communicators(team);
  ++team->epochs;
}

static void prepare_team(Team* team, int number, int tag_bound) {
  team->team = number;
  MPI_Comm_rank(MPI_COMM_WORLD, &team->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &team->ranks);
  MPI_Comm_dup(shared, &team->base);
  team->random = options.seed * 1000003u + (uint64_t)(number * kRanksMax + team->rank) + 77;
  team->planner = (Planner){.random = options.seed * 999983u + (uint64_t)number,
                            .ranks = team->ranks,
                            .team = number,
                            .largest_bytes = options.largest,
                            .comm = team->comm,
                            .channel = team->channel};
  next_random(&team->random);
  next_random(&team->planner.random);
  team->planner.next_id = next_random(&team->planner.random);
  team->comm[0] = (Comm){
      .handle = shared, .members = team->ranks, .world_of = {0, 1, 2, 3}, .rank_of = {0, 1, 2, 3}};
  team->comm[2].first_tag = tag_bound - 10000;
  team->doing = "starting";
}

static void* run_team(void* argument) {
  Team* team = argument;
  const long long messages = options.seconds > 0 ? INT64_MAX : options.messages / options.threads;
  const double end = MPI_Wtime() + options.seconds;
  int is_over = 0;
  while (team->messages < messages && !is_over) {
    run_epoch(team, messages);
    const int mine = options.seconds > 0 && MPI_Wtime() > end;
    MUST(MPI_Allreduce(&mine, &is_over, 1, MPI_INT, MPI_MAX, team->base));
  }
  return NULL;
}

/// Expects that no message is left.
static void check_rest(Team* team) {
  int flag = 1;
  MUST(MPI_Barrier(shared));
  MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, shared, &flag, MPI_STATUS_IGNORE));
  if (flag) fail(team, "a message is left");
}

static int parse(int argc, char** argv) {
  const char* seed = getenv("LARKLANE_SEED");
  if (seed) options.seed = strtoull(seed, NULL, 10);
  for (int i = 1; i + 1 < argc; i += 2) {
    const long long value = atoll(argv[i + 1]);
    if (strcmp(argv[i], "--seed") == 0)
      options.seed = (uint64_t)value;
    else if (strcmp(argv[i], "--messages") == 0)
      options.messages = value;
    else if (strcmp(argv[i], "--seconds") == 0)
      options.seconds = (double)value;
    else if (strcmp(argv[i], "--threads") == 0)
      options.threads = (int)value;
    else if (strcmp(argv[i], "--largest") == 0)
      options.largest = (int)value;
    else if (strcmp(argv[i], "--deadline") == 0)
      options.deadline = (int)value;
    else if (strcmp(argv[i + 1], "replace") == 0)
      avoided.replaced_structures = true;
    else if (strcmp(argv[i + 1], "isendrecv") == 0)
      avoided.isendrecv = true;
    else if (strcmp(argv[i + 1], "buffered") == 0)
      avoided.buffered = true;
    else if (strcmp(argv[i + 1], "matched") == 0)
      avoided.matched = true;
    else if (strcmp(argv[i + 1], "persistent") == 0)
      avoided.persistent = true;
    else if (strcmp(argv[i + 1], "get_status") == 0)
      avoided.persistent_get_status = true;
    else
      return 2;
  }
  return argc % 2 == 0 || options.threads < 1 || options.threads > kThreadsMax ? 2 : 0;
}

int main(int argc, char** argv) {
  if (parse(argc, argv) != 0) {
    fputs(
        "usage: random [--seed N] [--messages N | --seconds N] [--threads N] [--largest BYTES] "
        "[--deadline SECONDS] "
        "[--avoid replace|get_status|isendrecv|buffered|matched|persistent]...\n",
        stderr);
    return 2;
  }
  const int level = options.threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  int provided = 0, ranks = 0, found = 0, *bound = NULL;
  MPI_Init_thread(&argc, &argv, level, &provided);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (provided < level || ranks < 2 || ranks > kRanksMax) {
    fprintf(stderr, "random: needs 2 to %d ranks, and threads; this MPI offers thread level %d\n",
            kRanksMax, provided);
    MPI_Finalize();
    return kExitSkip;
  }
  void* buffer = malloc(kBsendBuffer);
  MPI_Buffer_attach(buffer, kBsendBuffer);
  MPI_Comm_dup(MPI_COMM_WORLD, &shared);
  MPI_Comm_set_errhandler(shared, MPI_ERRORS_RETURN);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
  teams = calloc((size_t)options.threads, sizeof(Team));
  for (int t = 0; t < options.threads; ++t) prepare_team(&teams[t], t, found ? *bound : 32767);
  signal(SIGALRM, on_alarm);
  alarm((unsigned)options.deadline);
  pthread_t threads[kThreadsMax];
  for (int t = 1; t < options.threads; ++t) pthread_create(&threads[t], NULL, run_team, &teams[t]);
  run_team(&teams[0]);
  for (int t = 1; t < options.threads; ++t) pthread_join(threads[t], NULL);
  check_rest(&teams[0]);
  long long messages = 0, bytes = 0, epochs = 0, batches = 0;
  for (int t = 0; t < options.threads; ++t) {
    messages += teams[t].messages;
    bytes += teams[t].bytes;
    epochs += teams[t].epochs;
    batches += teams[t].batches;
    MPI_Comm_free(&teams[t].base);
  }
  const bool is_first = teams[0].rank == 0;
  MPI_Comm_free(&shared);
  void* detached = NULL;
  int size = 0;
  MPI_Buffer_detach(&detached, &size);
  alarm((unsigned)options.deadline);
  MPI_Finalize();
  if (is_first) {
    printf("ok random messages: %lld in %lld batches and %lld epochs, %lld bytes, seed %llu\n",
           messages, batches, epochs, bytes, (unsigned long long)options.seed);
  }
  free(buffer);
  free(teams);
  return 0;
}
