// All ranks enter MPI_Finalize together, without the MPI: MPICH 4.0 over UCX waits there for the
// answers of all, which answer as long as they wait. Who answers early, from its last collective
// call, asks when the first has gone, for ever.
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

// Each rank makes the file at `path` longer by a byte: all are here when it has `ranks` bytes.
// @return 0, or -1 (printed): it can't be written
static inline int meet_by_file(const char* path, int ranks) {
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  struct stat found;
  if (file < 0 || write(file, "", 1) != 1) {
    perror(path);
    return -1;
  }
  while (fstat(file, &found) == 0 && found.st_size < ranks) {
    usleep(10000);
  }
  close(file);
  return 0;
}
