// The parts of the harness that main.c uses.
#ifndef CONFORMANCE_HARNESS_H
#define CONFORMANCE_HARNESS_H

#include <stdbool.h>

enum { kRanksMax = 8 };

/// Initialises MPI by MPI_Init_thread, or by a session alone, and sets world, my_rank, world_size.
void base_open(int* argc, char*** argv, int level, bool session_only);
void base_close(void);

void board_open(void);
void board_clear(void);
void board_close(void);
/// Notifies the other processes that this one gave the case up: they need not wait for the
/// deadline.
void board_hurry_others(void);

/// Runs the part of a process spawned by a case. @param what  one of the names in spawn.c
int child_main(const char* what);

#endif
