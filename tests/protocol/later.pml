/* Records that wait to leave together: control's send_later, send, flush_later and the helper's timer. Two peers, a sender each, one timer
 * for both.
 *
 *  1. The first record that waits for a peer sets the timer unless it is set; the peer's mutex is held from before the record is there.
 *  2. The helper clears the flag before it flushes the peers.
 *  3. Where the kernel refuses to set the timer the flag is cleared and the flush is posted to the helper.
 *  4. A record that leaves at once goes after those that wait.
 *
 * Checked: every record leaves without any other call; a peer's records leave in order, each once.
 *
 * @model later
 * @mutant 1 rule 1: the timer is set before the record is there, without the mutex => deadlock
 * @mutant 2 rule 2: the helper flushes, then clears the flag => deadlock
 * @mutant 3 rule 3: a refused timer stays marked as set => deadlock
 * @mutant 4 rule 3: the flag is cleared, and nothing is posted => deadlock
 * @mutant 5 rule 4: a record that leaves at once goes before those that wait => sent[p]
 * @mutant 6 rule 1: a record that finds the flag set is taken for the first one of its peer only => deadlock
 * @unreached helper -end-
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#ifndef RECORDS
#define RECORDS 3
#endif

bool held[2];                                      /* the peers' mutexes */
byte made[2], later[2], sent[2];
bool is_set, armed;                                /* is_timer_set_; the kernel's timer */
byte posted;                                       /* to the helper */

inline lock(p) { atomic { !held[p] -> held[p] = true } }
inline unlock(p) { held[p] = false }
inline flush(p) { sent[p] = sent[p] + later[p]; later[p] = 0 }
inline flush_soon() {
  atomic { was_set = is_set; is_set = true };
  if
  :: was_set
  :: !was_set ->
     if
     :: armed = true
     :: skip;                                      /* refused */
#if MUTATE != 3
        is_set = false;
#endif
#if MUTATE != 3 && MUTATE != 4
        posted++
#else
        skip
#endif
     fi
  fi
}
inline flush_all() {
  lock(0); flush(0); unlock(0);
  lock(1); flush(1); unlock(1)
}
proctype sender(bit p) {
  bool was_set, is_first;
  do
  :: made[p] < RECORDS ->                          /* send_later */
#if MUTATE == 1
     flush_soon();
#endif
     lock(p);
     is_first = (later[p] == 0);
     made[p]++;
     later[p]++;
#if MUTATE == 6
     is_first = (made[p] == 1);
#endif
#if MUTATE != 1
     if
     :: is_first -> flush_soon()
     :: else
     fi;
#endif
     unlock(p)
  :: made[p] < RECORDS ->                          /* send */
     lock(p);
#if MUTATE != 5
     flush(p);
#endif
     made[p]++;
     assert(sent[p] == made[p] - 1);
     sent[p]++;
     unlock(p)
  :: made[p] == RECORDS -> break
  od;
  sent[p] == RECORDS                               /* nothing else is called */
}
proctype helper() {
end:
  do
  :: atomic { armed -> armed = false };
#if MUTATE == 2
     flush_all();
     is_set = false
#else
     is_set = false;
     flush_all()
#endif
  :: posted > 0 -> posted--; flush_all()
  od
}
init { atomic { run sender(0); run sender(1); run helper() } }
