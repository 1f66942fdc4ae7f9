/* Progress while a rank is outside Larklane: the hook, the bell, and records in the sender's own heap. One pair, one lane, a ring of one
 * record from sender to receiver. Records 0 and 1 are eager; record 2 is an offer, whose send completes when the receiver has answered.
 *
 *  1. A record that finds the ring full, or the backlog in use, joins the backlog in the sender's heap; the send returns. The sender then
 *     sets `flag`, which lies in the receiver's memory.
 *  2. A receiver that waits, and finds its ring empty and `flag` set, rings the sender's helper; again, as long as that is so.
 *  3. The flag is cleared when the backlog is empty, in the order in which the backlog has become so.
 *  4. A sender that waits rings the receiver's helper when the head has not moved for 50 us: once a stall. A head that has moved since
 *     begins a new stall.
 *  5. A helper clears its bell, then polls.
 *  6. The receiver's helper takes the lane's lock. A failed try would leave a record behind: the lock's holder may have read the tail.
 *     It polls until the ring is empty, and makes no MPI call.
 *  7. The progress hook, called inside the MPI with the MPI's lock held, tries every lock and waits for none: a thread that holds the lane
 *     may be entering the MPI.
 *  8. A sender drains its backlog from its own waits and, with a hook, from native calls. Its helper suffices: a receiver that waits rings it.
 *
 * The receiver looks once, then enters a native barrier; afterwards it waits for all records. `bell`: the sender waits for its offer before
 * the barrier, and the receiver's MPI has no hook. `asleep`: all records are eager; the sender is asleep after the barrier. `hook`: as
 * `bell`, with the hook, and without the receiver's helper. No process polls where the code would sleep.
 *
 * Checked: no wait without end, neither the sender's nor the receiver's; records arrive in order, each once.
 *
 * @cc -DCOLLAPSE
 * @model bell
 * @model asleep -DASLEEP
 * @model hook -DHOOK
 * @soak bell_long -DN=5
 * @soak asleep_long -DASLEEP -DN=6
 * @mutant 1 -DASLEEP rule 1: a sender with a backlog sets no flag => deadlock
 * @mutant 2 -DASLEEP rule 2: a receiver that waits rings once a wait => deadlock
 * @mutant 3 -DASLEEP rule 2: a receiver rings when it takes a record, not when it finds none => deadlock
 * @mutant 4 -DASLEEP rule 2: a receiver that waits rings no bell => deadlock
 * @mutant 5 rule 1: a send that finds the backlog in use passes it => next == m
 * @mutant 7 rule 4: a waiting sender rings no bell => deadlock
 * @mutant 8 rule 4: a waiting sender rings once a wait => deadlock
 * @mutant 9 rule 5: the receiver's helper polls, then clears its bell => deadlock
 * @mutant 11 rule 6: the receiver's helper tries the lane's lock once => deadlock
 * @mutant 12 -DHOOK rule 7: the hook waits for the lane's lock => deadlock
 * @mutant 13 -DASLEEP rule 3: the flag is cleared with records in the backlog => deadlock
 * @unreached receiver_helper -end-
 * @unreached other_thread -end-
 * @unreached sender_helper -end-
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#ifndef N
#define N 3
#endif

chan ring = [1] of { byte };
chan back = [N] of { byte };                       /* in the sender's heap */
bool flag;                                         /* in shared memory: the sender has a backlog */
bool lane, backlog, mpi;                           /* locks: the receiver's lane, the sender's backlog, the receiver's MPI */
bool sender_bell, receiver_bell;
byte next, head;                                   /* records taken */
bool answered, sender_in, receiver_in;             /* sender_in: inside the native barrier */

inline lock(x) { atomic { !x -> x = true } }
inline unlock(x) { x = false }

/* ---- sender ---- */
inline drain() {                                   /* backlog's lock held */
  do
  :: atomic { nempty(back) && nfull(ring) ->
       back ? m; ring ! m; m = 0
     }
  :: atomic { empty(back) -> flag = false; break }
#if MUTATE == 13
  :: full(ring) -> flag = false; break
#else
  :: atomic { nempty(back) && full(ring) -> break }
#endif
  od
}
inline send(x) {
  if
#if MUTATE == 5
  :: atomic { nfull(ring) -> ring ! x }
#else
  :: atomic { empty(back) && !backlog && nfull(ring) -> ring ! x }
#endif
  :: else ->
     lock(backlog);
     back ! x;
#if MUTATE != 1
     flag = true;
#endif
     unlock(backlog)
  fi
}
proctype sender() {
  byte m, x, rung_at; bool rang;
  for (x : 0 .. N - 1) { send(x) };
#ifndef ASLEEP
  do                                               /* MPI_Wait of the offer */
  :: answered -> break
  :: atomic { nempty(back) && nfull(ring) && !backlog && !answered -> backlog = true }; drain(); unlock(backlog)
#if MUTATE == 8
  :: atomic { nempty(ring) && !rang && !answered -> rang = true; receiver_bell = true }
#elif MUTATE != 7
  :: atomic { nempty(ring) && (!rang || rung_at != head) && !answered -> rang = true; rung_at = head; receiver_bell = true }
#endif
  od;
#endif
  sender_in = true
end:
  receiver_in;
}
#ifdef ASLEEP
proctype sender_helper() {
  byte m;
end:
  do
  :: sender_bell ->
     sender_bell = false;
     lock(backlog); drain(); unlock(backlog)
  od
}
#endif

/* ---- receiver ---- */
inline take() {                                    /* lane's lock held; moves the head of one record */
  atomic { ring ? m; assert(next == m); next++; head++;
    if
    :: m == N - 1 -> answered = true
    :: else
    fi; m = 0 }
#if MUTATE == 3
  ; if
  :: flag -> sender_bell = true
  :: else
  fi
#endif
}
inline take_all() {
  do
  :: nempty(ring) -> take()
  :: empty(ring) -> break
  od
}
inline poll() {
  lock(lane);
#ifdef HOOK
  lock(mpi); unlock(mpi);                          /* a native Irecv */
#endif
  take_all();
  unlock(lane)
}
proctype receiver() {
  byte m; bool rang;
  poll();                                          /* looks once */
  receiver_in = true;                              /* MPI_Barrier */
#ifdef HOOK
  do
  :: sender_in -> break
  :: nempty(ring) && !sender_in ->
     lock(mpi);
     if
     :: atomic { !lane -> lane = true };
        if
        :: nempty(ring) -> take()                  /* a bounded number of records */
        :: empty(ring)
        fi;
        unlock(lane)
#if MUTATE != 12
     :: lane
#endif
     fi;
     unlock(mpi)
  od;
#else
  sender_in;
#endif
#ifdef ASLEEP
  do                                               /* MPI_Waitall */
  :: next == N -> break
  :: next < N && nempty(ring) -> poll()
#if MUTATE == 2
  :: next < N && empty(ring) && flag && !sender_bell && !rang -> rang = true; sender_bell = true
#elif MUTATE != 3 && MUTATE != 4
  :: next < N && empty(ring) && flag && !sender_bell -> sender_bell = true
#endif
  od
#else
  assert(next == N)                                /* the offer was the last record, and its send is complete */
#endif
}
#ifdef HOOK
proctype other_thread() {                          /* of the receiver, in a wait of ours */
  byte m;
end:
  do
  :: nempty(ring) -> poll()
  od
}
#elif !defined(ASLEEP)
proctype receiver_helper() {
  byte m;
end:
  do
  :: receiver_bell ->
#if MUTATE == 9
     lock(lane); take_all(); unlock(lane);
     receiver_bell = false
#elif MUTATE == 11
     receiver_bell = false;
     if
     :: atomic { !lane -> lane = true }; take_all(); unlock(lane)
     :: lane
     fi
#else
     receiver_bell = false;
     lock(lane); take_all(); unlock(lane)
#endif
  od
}
#endif
init {
  atomic {
    run sender(); run receiver();
#ifdef ASLEEP
    run sender_helper();
#endif
#ifdef HOOK
    run other_thread()
#elif !defined(ASLEEP)
    run receiver_helper()
#endif
  }
}
