#pragma once
// The memory of this process, and failures of its rank.

#include <stdio.h>
#include <unistd.h>

static int rank, failures;

static void expect(int good, const char* what, long value) {
  if (good) return;
  ++failures;
  fprintf(stderr, "[%d] %s: %ld\n", rank, what, value);
}

// Of this process.
static long resident_kib(void) {
  long all = 0, resident = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%ld %ld", &all, &resident) != 2) resident = 0;
  if (file != NULL) fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}
