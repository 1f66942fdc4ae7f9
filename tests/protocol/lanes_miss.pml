/* Lanes by tag: a probe with a wildcard tag that finds nothing, without a lock and without a change to wide mode. One message is visible
 * before the probe begins, and no receive takes it: the probe must not say that there is none.
 *
 *  1. A turn of the lane puts the record into the lane's table and counts it (`kept`), in wide mode into the inbox; the ring's head moves last.
 *  2. One word counts the changes of mode; odd: wide. Going wide counts first, then moves the lane's entries and clears `kept`, with the lane's
 *     lock held.
 *  3. Back to exact: all entries return to their tables and are counted, then the change is counted, with the lane's lock held.
 *  4. The probe reads the word; of each lane the ring, then `kept`; then the word again. It says "nothing" only if the word was even, the ring
 *     and the table were empty, and the word is the same.
 *
 * @model lanes_miss
 * @mutant 1 rule 1: the head moves before the record is counted => is_missed
 * @mutant 2 rule 2: the change is counted after the entries have moved => is_missed
 * @mutant 3 rule 4: `kept` is read before the ring => is_missed
 * @mutant 4 rule 4: the word is not read again => is_missed
 * @mutant 5 rule 4: only the mode is compared, not the count => is_missed
 * @mutant 6 rule 3: the change is counted before the entries are => is_missed
 * @mutant 7 rule 4: the probe does not look whether the word is odd => is_missed
 */
#ifndef MUTATE
#define MUTATE 0
#endif

bool lane;                                         /* its lock */
bool in_ring, in_inbox;                            /* the message */
byte kept;                                         /* 1: it waits in the lane's table */
byte mode;                                         /* changes so far; odd: wide */
bool is_visible;
bool is_missed;                                    /* checker: a probe has said that there is none */

inline lock(x) { atomic { !x -> x = true } }
inline unlock(x) { x = false }

active proctype sender() { in_ring = true; is_visible = true }

active proctype poller() {
  is_visible;
  lock(lane);
  if
  :: mode % 2 -> in_inbox = true; in_ring = false
  :: else ->
#if MUTATE == 1
     in_ring = false; kept = 1
#else
     kept = 1; in_ring = false
#endif
  fi;
  unlock(lane)
}

active proctype changer() {
  byte rounds = 0;
  do
  :: rounds < 2 ->
     rounds++;
#if MUTATE != 2
     mode++;
#endif
     lock(lane);
     if
     :: kept -> in_inbox = true; kept = 0
     :: else
     fi;
     unlock(lane);
#if MUTATE == 2
     mode++;
#endif
     lock(lane);
#if MUTATE == 6
     mode++;
#endif
     if
     :: in_inbox -> kept = 1; in_inbox = false
     :: else
     fi;
#if MUTATE != 6
     mode++;
#endif
     unlock(lane)
  :: else -> break
  od
}

active proctype prober() {
  byte before;
  bool shows, counts;
  is_visible;
  before = mode;
#if MUTATE == 3
  counts = kept != 0;
  shows = in_ring;
#else
  shows = in_ring;
  counts = kept != 0;
#endif
#if MUTATE == 4
  is_missed = before % 2 == 0 && !shows && !counts;
#elif MUTATE == 5
  is_missed = before % 2 == 0 && !shows && !counts && mode % 2 == 0;
#elif MUTATE == 7
  is_missed = !shows && !counts && mode == before;
#else
  is_missed = before % 2 == 0 && !shows && !counts && mode == before;
#endif
  assert(!is_missed)
}
