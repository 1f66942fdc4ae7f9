#ifndef EXAMPLES_TRACE_H_
#define EXAMPLES_TRACE_H_
/* Traces of partitions: the times at which each became ready, and at which the receiver first saw
 * it.
 *
 * A trace_channel notes the events of one partitioned request. For each round these are its Start,
 * the begin and end of Wait, and one time per partition. The sending side notes when it is ready,
 * the receiving side when MPI_Parrived first saw it. Rank r writes its channels to FILE.r: one JSON
 * object per line, the first describes the run.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. The processes of one host share it, so times are
 * comparable between its ranks, not between hosts. MPI_Wtime is unsuitable: several MPIs start it
 * at zero in each process.
 *
 * Threads: different threads may mark different partitions at the same time. One thread opens and
 * writes.
 */

#include <inttypes.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TRACE_START = -3, TRACE_WAIT = -2, TRACE_DONE = -1 }; /* otherwise: the partition's number */

typedef struct {
  char name[24];
  int sends; /* 1: partitions are marked when ready; 0: when first seen to have arrived */
  int peer, partitions, rounds;
  int64_t *at_ns; /* rounds x (3 + partitions), 0: did not happen; NULL: no trace */
} trace_channel;

static inline int64_t trace_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Makes room for `rounds` rounds of one request; does nothing if `file` is NULL. */
static inline void trace_open(trace_channel *channel, const char *file, const char *name, int sends,
                              int peer, int partitions, int rounds) {
  *channel =
      (trace_channel){.sends = sends, .peer = peer, .partitions = partitions, .rounds = rounds};
  snprintf(channel->name, sizeof channel->name, "%s", name);
  if (file)
    channel->at_ns = calloc((size_t)rounds * (size_t)(3 + partitions), sizeof *channel->at_ns);
}

/* Notes the time of an event (TRACE_... or a partition) of a round, unless it was noted before. */
static inline void trace_mark(trace_channel *channel, int round, int event) {
  if (!channel->at_ns) return;
  int64_t *at_ns = &channel->at_ns[(int64_t)round * (3 + channel->partitions) + 3 + event];
  if (*at_ns == 0) *at_ns = trace_now_ns();
}

static inline void trace_write_channel(FILE *out, const trace_channel *channel) {
  static const char *const kNames[] = {"start", "wait", "done"};
  for (int round = 0; round < channel->rounds; ++round) {
    const int64_t *at_ns = &channel->at_ns[(int64_t)round * (3 + channel->partitions)];
    for (int i = 0; i < 3 + channel->partitions; ++i) {
      if (at_ns[i] == 0) continue;
      fprintf(out, "{\"channel\": \"%s\", \"side\": \"%s\", \"peer\": %d, \"round\": %d, ",
              channel->name, channel->sends ? "send" : "receive", channel->peer, round);
      if (i < 3) {
        fprintf(out, "\"event\": \"%s\", ", kNames[i]);
      } else {
        fprintf(out, "\"event\": \"%s\", \"partition\": %d, ", channel->sends ? "ready" : "arrived",
                i - 3);
      }
      fprintf(out, "\"t_ns\": %" PRId64 "}\n", at_ns[i]);
    }
  }
}

/* Writes FILE.rank and frees the channels. Returns 0, or 1 if the file could not be written. */
static inline int trace_write(const char *file, const char *program, trace_channel *channels[],
                              int count) {
  if (!file) return 0;
  int rank = 0, length = 0;
  char path[4096], library[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Get_library_version(library, &length);
  library[strcspn(library, "\n\r\"\\")] = '\0';
  for (char *c = library; *c; ++c) *c = *c == '\t' ? ' ' : *c;
  snprintf(path, sizeof path, "%s.%d", file, rank);
  FILE *out = fopen(path, "w");
  if (!out) {
    perror(path);
    return 1;
  }
  fprintf(out,
          "{\"program\": \"%s\", \"rank\": %d, \"mpi\": \"%s\", \"clock\": \"CLOCK_MONOTONIC\"}\n",
          program, rank, library);
  for (int i = 0; i < count; ++i) {
    trace_write_channel(out, channels[i]);
    free(channels[i]->at_ns);
    channels[i]->at_ns = NULL;
  }
  return fclose(out) != 0;
}

#endif /* EXAMPLES_TRACE_H_ */
