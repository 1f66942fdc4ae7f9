// What main.c needs of the other parts of the harness.
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
/// Tells the other processes that this one gave the case up: no use in waiting for the deadline.
void board_hurry_others(void);

/// What a process spawned by a case does. @param what  one of the names in spawn.c
int child_main(const char* what);

#endif
