// Preloaded behind Larklane: writes how often each MPI function was reached to the file
// COUNTER_FILE when the process ends.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char* const kNames[] = {
#define EACH(name) #name,
#include "counter.h"
};
enum { kCount = sizeof kNames / sizeof *kNames };

extern struct {
  void* next;
  unsigned long count;
} counter_slots[kCount];

__attribute__((constructor)) static void find_next(void) {
  for (int i = 0; i < kCount; ++i) counter_slots[i].next = dlsym(RTLD_NEXT, kNames[i]);
}

__attribute__((destructor)) static void report(void) {
  const char* path = getenv("COUNTER_FILE");
  FILE* file = NULL;  // made by the first line: launchers and shells load us too
  for (int i = 0; path && i < kCount; ++i) {
    if (counter_slots[i].count == 0) continue;
    if (!file && !(file = fopen(path, "w"))) return;
    fprintf(file, "%s %lu\n", kNames[i], counter_slots[i].count);
  }
  if (file) fclose(file);
}
