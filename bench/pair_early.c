/* Early bird: from the moment when partition 0 is ready, the others being held, to the moment when
 * the receiver, who asks all the time, knows that it is there. `surprise`: they are held in every
 * third round only, which counts, so that no policy expects it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"

enum { TAG = 5 };

void measure_early(const struct options* o, struct samples* s) {
  const int sender = rank_of_this() == 0;
  const MPI_Count count = (MPI_Count)(o->bytes / (size_t)o->partitions);
  struct news* news = share_news(0);
  char* buffer = malloc(o->bytes + 8);
  MPI_Request request;
  if (sender)
    MPI_Psend_init(buffer, o->partitions, count, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &request);
  else
    MPI_Precv_init(buffer, o->partitions, count, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_INFO_NULL,
                   &request);
  const int surprise = strcmp(o->way, "surprise") == 0;
  if (!surprise && strcmp(o->way, "partitioned") != 0) {
    fprintf(stderr, "pair: early has no way called %s\n", o->way);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (int round = -o->warmup; round < o->rounds; ++round) {
    const int held = !surprise || round % 3 == 0;
    if (sender) fill(buffer, o->bytes, 0, round);
    MPI_Start(&request);
    MPI_Barrier(MPI_COMM_WORLD);
    if (sender) {
      compute_until(now_ns() + o->late_us * 1e3);
      const double ready = now_ns();
      MPI_Pready(0, request);
      if (held) compute_until(ready + o->hold_us * 1e3);
      if (o->partitions > 1) MPI_Pready_range(1, o->partitions - 1, request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      await_news(news, round);
      if (round >= 0 && held) s->values[s->count++] = news->arrived - ready;
      s->wrong += news->arrived < ready;
    } else {
      int flag = 0;
      while (!flag) MPI_Parrived(request, 0, &flag);
      const double arrived = now_ns();
      s->wrong += wrong_words(buffer, (size_t)count, round) != 0;
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      tell_news(news, round, arrived);
      s->wrong += wrong_words(buffer, o->bytes, round) != 0;
    }
  }
  MPI_Request_free(&request);
  free(buffer);
}
