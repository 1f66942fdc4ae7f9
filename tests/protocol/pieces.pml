/* Shared copies: a large run is cut in pieces that waiting threads of both sides take. One job, so that it is used again and again; two
 * movers with three runs between them; a thread that waits and helps. (The run is claimed already, see last_comer.pml.)
 *
 *  1. A mover offers its run by taking the job (compare-and-swap on `taken`); if it is taken, the mover copies alone.
 *  2. `next` is {generation, next piece} in one word. Offering first sets it to {generation + 1, exhausted}, then writes the fields
 *     (run, pieces, done = 0), then sets {generation + 1, 0}: whoever has seen a new field fails to claim an old piece.
 *  3. A piece is taken by: read `next`, read the fields, compare-and-swap `next` to the piece after it.
 *  4. Who has copied a piece adds 1 to `done`. Who makes it equal to `pieces` gives the job back, then publishes the run that it saw when
 *     it took its piece; nobody else does either.
 *  5. `open_jobs` is a hint for threads that wait; a mover that has offered finds its own job by it.
 *
 * Checked: every piece is copied once; a run is published once, when all its pieces have been copied; every run is published although the
 * third thread looks a few times, whenever it likes, and then never again.
 *
 * @model pieces
 * @mutant 1 rule 2: the fields are written while `next` still stands at the old job => copied
 * @mutant 2 rule 2: `next` has no generation => copied
 * @mutant 3 rule 4: the thread that takes the last piece gives the job back => copied
 * @mutant 4 rule 4: the thread that copies the last piece publishes, though others are still copying theirs => copied
 * @mutant 5 rule 3: `next` is read, then written: two steps => copied
 * @mutant 6 rule 4: the run is read from the job when it is published => copied
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#define RUNS 3
#define PIECES(n) ((n) == 1 -> 3 : 2)
#define EXHAUSTED 9
#define LOOKS 1

byte taken, next_gen, next_piece, run_of_job, pieces, finished, open_jobs;
byte copied[RUNS];                                 /* pieces that have been copied, a bit each */
bool published[RUNS];

inline publish(n) {
  atomic {
    assert(copied[n] == (1 << PIECES(n)) - 1 && !published[n]);
    published[n] = true
  }
}
inline offer(n) {                                  /* rules 1 and 2 */
  atomic { offered = (taken == 0); taken = 1 };
  if
  :: offered ->
#if MUTATE == 2
     next_piece = EXHAUSTED;
#elif MUTATE != 1
     atomic { next_gen++; next_piece = EXHAUSTED };
#endif
     run_of_job = n;
     pieces = PIECES(n);
     finished = 0;
     open_jobs++;
#if MUTATE == 1
     atomic { next_gen++; next_piece = 0 }
#else
     next_piece = 0
#endif
  :: else
  fi
}
#if MUTATE == 2
#define UNCHANGED (next_piece == piece)
#elif MUTATE == 5
#define UNCHANGED true
#else
#define UNCHANGED (next_gen == gen && next_piece == piece)
#endif
inline work() {
  do
  :: true ->
     atomic { gen = next_gen; piece = next_piece };            /* rule 3 */
     total = pieces;
     n = run_of_job;
     if
     :: piece >= total -> break
     :: else
     fi;
     atomic {
       if
       :: UNCHANGED -> next_piece = piece + 1
       :: else -> total = 0
       fi
     };
     if
     :: total ->
#if MUTATE == 3
        if :: piece + 1 == total -> taken = 0 :: else fi;
#endif
        atomic { assert(n < RUNS && !(copied[n] & (1 << piece))); copied[n] = copied[n] | (1 << piece) };
#if MUTATE == 4
        atomic { finished++; last = (piece + 1 == total) };
#else
        atomic { finished++; last = (finished == total) };    /* rule 4 */
#endif
        if
        :: last -> last = false;
           open_jobs--;
#if MUTATE != 3
           taken = 0;
#endif
#if MUTATE == 6
           n = run_of_job;
#endif
           publish(n)
        :: else
        fi
     :: else                                       /* somebody was faster: look again */
     fi
  od;
  atomic { gen = 0; piece = 0; total = 0; n = 0 }
}
proctype mover(byte first, last_run) {             /* runs first, first + 2, ... */
  byte run_no = first, gen, piece, total, n; bool offered, last;
  do
  :: run_no <= last_run ->
     offer(run_no);
     if
     :: offered && open_jobs > 0 -> work()
     :: offered && open_jobs == 0                  /* others have finished it all */
     :: !offered ->
        atomic { copied[run_no] = (1 << PIECES(run_no)) - 1 };
        publish(run_no)
     fi;
     run_no = run_no + 2
  :: else -> break
  od
}
proctype waiter() {
  byte k, gen, piece, total, n; bool last;
  for (k : 1 .. LOOKS) {
end:
    open_jobs > 0;
    work()
  }
}
init {
  atomic { run mover(0, 2); run mover(1, 1); run waiter() }
  timeout;
  assert(published[0] && published[1] && published[2])
}
