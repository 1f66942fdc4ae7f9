// Early bird (rule P5): a receive partition arrives as soon as the send partitions that cover it
// are ready, independent of the others. While partitions are held back the sender makes no MPI call
// at all: it polls the board. (Only in the rows of the behaviour matrix it polls MPI as well, so
// that libraries without a helper of their own get their chance.)
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"

enum { kTag = 23, kSeen = 1, kReady = 2, kWhen = 3, kFlag = 4 };

typedef struct Flight {
  int senders, receivers;
  size_t bytes;
  unsigned char* data;
  MPI_Request request;
  double hold_s;  ///< how long the receiver asks, and so how long the sender holds the rest back
  bool polls;     ///< the sender makes native progress meanwhile
} Flight;

static Flight take_off(int senders, int receivers, size_t bytes) {
  Flight f = {.senders = senders,
              .receivers = receivers,
              .bytes = bytes,
              .data = guarded(bytes),
              .hold_s = 2};  // a helper may have to wait for a core; early arrivals are seen at
                             // once
  const MPI_Count s = (MPI_Count)(bytes / (size_t)senders);
  const MPI_Count r = (MPI_Count)(bytes / (size_t)receivers);
  f.request = my_rank == 0 ? psend(f.data, senders, s, MPI_BYTE, 1, kTag, comm)
                           : precv(f.data, receivers, r, MPI_BYTE, 0, kTag, comm);
  return f;
}

static void land(Flight* f) {
  check_guards(f->data, f->bytes);
  drop(&f->request);
  release_guarded(f->data);
}

/// Is receive partition r wholly covered by the ready send partitions?
static bool covered(const Flight* f, int r, uint64_t mask) {
  const int first = r * f->senders / f->receivers;
  const int last = ((r + 1) * f->senders + f->receivers - 1) / f->receivers;
  for (int s = first; s < last; ++s) {
    if (!(mask >> s & 1)) return false;
  }
  return true;
}

static void look(const Flight* f, uint64_t mask, uint64_t round, bool once) {
  const size_t part = f->bytes / (size_t)f->receivers;
  for (int r = 0; r < f->receivers; ++r) {
    if (!covered(f, r, mask)) continue;
    const bool here = once ? arrived(f->request, r) : arrives(f->request, r, f->hold_s);
    EXPECT_PROMPT(here,
                  "S %d, R %d, %zu bytes, round %d: partition %d not there, ready mask 0x%llx",
                  f->senders, f->receivers, f->bytes, (int)round, r, (unsigned long long)mask);
    if (!here) return;
    const int64_t wrong = wrong_byte(f->data + (size_t)r * part, (size_t)r * part, part, 5, round);
    EXPECT_DATA(wrong < 0, "S %d, R %d, round %d: partition %d arrived, byte %lld is wrong",
                f->senders, f->receivers, (int)round, r, (long long)wrong);
  }
  for (int r = 0; r < f->receivers; ++r) {
    EXPECT_DATA(covered(f, r, mask) || !arrived(f->request, r),
                "S %d, R %d, round %d: partition %d arrived, ready mask is only 0x%llx", f->senders,
                f->receivers, (int)round, r, (unsigned long long)mask);
  }
}

static void hold(const Flight* f, int round) {
  const double end = now_s() + 5;
  while (f->polls && peek(kSeen) < round && now_s() < end) {
    int flag;
    MUST(MPI_Iprobe(MPI_ANY_SOURCE, 777, comm, &flag, MPI_STATUS_IGNORE));
  }
  await(kSeen, round, 5);
}

/// One round with only `mask` ready at first. Both processes call it with the same arguments.
/// @param pause_before_s  the receiver makes no call for that long, then asks once for each
/// partition; 0: it asks until true
static void fly(Flight* f, uint64_t mask, int round, double pause_before_s) {
  if (my_rank == 0) {
    fill(f->data, f->bytes, 5, (uint64_t)round);
    start(&f->request);
    for (int s = 0; s < f->senders; ++s) {
      if (mask >> s & 1) ready(f->request, s);
    }
    post(kReady, round);
    hold(f, round);
    for (int s = 0; s < f->senders; ++s) {
      if (!(mask >> s & 1)) ready(f->request, s);
    }
  } else {
    start(&f->request);
    await(kReady, round, 5);
    if (pause_before_s > 0) pause_s(pause_before_s);
    if (!case_failed()) look(f, mask, (uint64_t)round, pause_before_s > 0);
    post(kSeen, round);
  }
  complete(&f->request);
  if (my_rank == 1) EXPECT_STREAM(f->data, f->bytes, 5, (uint64_t)round);
}

/// @param unit  bytes of the part that a sender and a receiver share
static void every_split(uint64_t seed, size_t unit, int rounds) {
  int round = 0;
  for (int senders = 1; senders <= 8; ++senders) {
    for (int receivers = 1; receivers <= 8; ++receivers) {
      Flight f = take_off(senders, receivers, (size_t)(senders * receivers) * unit);
      const uint64_t all = (1U << senders) - 1;
      for (int i = 0; i < rounds; ++i) fly(&f, random_next(&seed) & all, ++round, 0);
      land(&f);
    }
  }
}

CASE(P5_early_bird_every_split_to_8, .ranks = 2) { every_split(5, 24, 4); }
CASE(P5_early_bird_every_split_to_8_large, .ranks = 2) { every_split(6, 20480, 2); }

CASE(P5_early_bird_asked_once_after_a_pause, .ranks = 2, .traits = kEveryLevel) {
  static const size_t kSizes[] = {48, 12 * 4096, 12 << 17};
  int round = 0;
  for (size_t i = 0; i < sizeof(kSizes) / sizeof(kSizes[0]); ++i) {
    Flight f = take_off(4, 6, kSizes[i]);
    fly(&f, 0xe, ++round, i == 0 ? 0.3 : 0.02);  // the first round may have to connect
    fly(&f, 0x5, ++round, 0.02);
    fly(&f, 0x3, ++round, 0.3);
    land(&f);
  }
}

CASE(P5_early_bird_with_a_late_start, .ranks = 2) {
  static const size_t kSizes[] = {64, 1 << 16, 1 << 20};
  int round = 0;
  for (size_t i = 0; i < sizeof(kSizes) / sizeof(kSizes[0]); ++i) {
    Flight f = take_off(8, 8, kSizes[i]);
    for (int repeat = 0; repeat < 5; ++repeat) {
      if (my_rank == 1) await(kReady, round + 1, 5);  // ready before the receiver starts
      fly(&f, 0xa5, ++round, 0);
    }
    land(&f);
  }
}

CASE(P5_early_bird_many_partitions, .ranks = 2) {
  uint64_t seed = 7;
  int round = 0;
  for (int receivers = 61; receivers <= 64; ++receivers) {
    Flight f = take_off(64, receivers, (size_t)(64 * receivers) * 4);
    for (int i = 0; i < 5; ++i) fly(&f, random_next(&seed) | 0xffff, ++round, 0);
    land(&f);
  }
}

static void bind_to(int core) {
  cpu_set_t allowed, one;
  sched_getaffinity(0, sizeof(allowed), &allowed);
  CPU_ZERO(&one);
  const int chosen = core % CPU_COUNT(&allowed);
  int n = 0;
  for (size_t c = 0; c < CPU_SETSIZE; ++c) {
    if (CPU_ISSET(c, &allowed) && n++ == chosen) CPU_SET(c, &one);
  }
  sched_setaffinity(0, sizeof(one), &one);
}

CASE(P5_early_bird_bound_to_one_core_each, .ranks = 2) {
  cpu_set_t before;
  sched_getaffinity(0, sizeof(before), &before);
  int round = 0;
  for (int same = 0; same < 2; ++same) {
    sched_setaffinity(0, sizeof(before), &before);
    bind_to(same ? 0 : my_rank);
    Flight f = take_off(8, 4, 1 << 15);
    for (int i = 0; i < 10; ++i) fly(&f, 0x3c, ++round, i % 5 == 4 ? 0.02 : 0);
    land(&f);
  }
  sched_setaffinity(0, sizeof(before), &before);
}

static int compare_doubles(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/// The sender's part of one round: first a flag on the board, then all partitions but one.
static void show_and_mark(Flight* f, int serial, int held) {
  await(kSeen, 3 * serial - 2, 1);
  post_time(kWhen);
  post(kFlag, serial);
  await(kSeen, 3 * serial - 1, 1);  // the receiver polls
  post_time(kWhen);
  for (int s = 0; s < f->senders; ++s) {
    if (s != held) ready(f->request, s);
  }
  await(kSeen, 3 * serial, 5);
  ready(f->request, held);
}

/// The receiver's part: how long the flag took, and how long one of the partitions.
static void watch_both(Flight* f, int serial, int held, double* flag_s, double* partition_s) {
  post(kSeen, 3 * serial - 2);
  const double end = now_s() + f->hold_s;
  while (peek(kFlag) < serial && now_s() < end) {
  }
  *flag_s = now_s() - posted_time(kWhen);
  post(kSeen, 3 * serial - 1);
  const bool here = arrives(f->request, (held + 1) % f->receivers, f->hold_s);
  *partition_s = now_s() - posted_time(kWhen);
  EXPECT_PROMPT(here, "%zu bytes, round %d: not there after %.1f s", f->bytes, serial, f->hold_s);
  post(kSeen, 3 * serial);
}

/// Time from the Pready of one partition to the first true Parrived, while others are held. The
/// median may be 0.2 ms or, because the machine may be busy, ten times that of a bare flag in
/// shared memory at the same time.
CASE(P5_early_bird_is_prompt, .ranks = 2) {
  enum { kRounds = 60, kParts = 8 };
  static const size_t kSizes[] = {64, 1 << 16};
  int failed = 0;
  for (int i = 0; i < 2 && !failed; ++i) {
    Flight f = take_off(kParts, kParts, kSizes[i]);
    double flag[kRounds] = {0}, partition[kRounds] = {0};
    for (int round = 0; round < kRounds && !failed; ++round) {
      const int held = round % kParts, serial = i * kRounds + round + 1;
      start(&f.request);
      if (my_rank == 0) {
        show_and_mark(&f, serial, held);
      } else {
        watch_both(&f, serial, held, &flag[round], &partition[round]);
      }
      complete(&f.request);
      failed = case_failed();
      MPI_Bcast(&failed, 1, MPI_INT, 1, world);
    }
    if (my_rank == 1 && !failed) {
      qsort(flag, kRounds, sizeof(double), compare_doubles);
      qsort(partition, kRounds, sizeof(double), compare_doubles);
      const double took = partition[kRounds / 2], bare = flag[kRounds / 2];
      EXPECT_PROMPT(took < 2e-4 || took < 10 * bare, "%zu bytes: median %.6f s, of a flag %.6f s",
                    f.bytes, took, bare);
    }
    land(&f);
  }
}

// The rows of the behaviour matrix: only partition 0 (or the partitions that cover it) ready until
// it has been seen.

static void matrix_row(int senders, int receivers, uint64_t mask, int round) {
  Flight f = take_off(senders, receivers, (size_t)(senders * receivers) * 1024);
  f.polls = true;
  for (int i = 0; i < 3; ++i) fly(&f, mask, ++round, 0);
  land(&f);
}

CASE(M_early_bird_partial, .ranks = 2) { matrix_row(4, 4, 0x1, 0); }
CASE(M_early_bird_8_to_4, .ranks = 2) { matrix_row(8, 4, 0x7, 0); }
CASE(M_early_bird_6_to_4, .ranks = 2) { matrix_row(6, 4, 0x3, 0); }
CASE(M_no_arrival_before_its_data, .ranks = 2) {
  matrix_row(8, 4, 0x1, 0);  // half of the first receive partition
  matrix_row(6, 4, 0x1, 3);
}
