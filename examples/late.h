#ifndef EXAMPLES_LATE_H_
#define EXAMPLES_LATE_H_
/* Delays for threads: one thread always, or all threads at random. A late thread sleeps, so it
 * takes no core from the others. Needs _POSIX_C_SOURCE 200809L before the first header.
 */

#include <stdint.h>
#include <time.h>

static inline void late_sleep(double ms) {
  const int64_t ns = (int64_t)(ms * 1e6);
  if (ns > 0)
    nanosleep(&(struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)}, NULL);
}

/* Uniform from 0 to 1; equal arguments give equal results. (splitmix64, Steele et al., OOPSLA
 * 2014)
 */
static inline double late_chance(int seed, int rank, int step, int thread) {
  const int numbers[] = {seed, rank, step, thread};
  uint64_t z = 0;
  for (int i = 0; i < 4; ++i) {
    z += UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(int64_t)numbers[i];
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
  }
  return (double)(z >> 11) / 9007199254740992.0;
}

#endif /* EXAMPLES_LATE_H_ */
