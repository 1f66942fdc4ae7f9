/* Cancel of ordinary messages on one host: of a send that has been offered, and of a posted receive. One slot for offers, two messages
 * one after the other, three receives that fit either, a probe.
 *
 *  1. An offer, also one of a small synchronous send, has a word in shared memory. Cancel is one compare-and-swap from *offered* to
 *     *withdrawn*. If it fails the send is too late to be cancelled and completes by the receiver.
 *  2. The receiver takes an offer by one compare-and-swap from *offered* to *taken*, with the lane's lock held, before it takes the receive
 *     off its list: if the offer is withdrawn the receive keeps its place.
 *  3. A withdrawn offer is dropped wherever the receiver meets it, among the unexpected messages, too, and the receiver says so.
 *  4. A slot is used again only after the receiver's answer, *done* or *dropped*: the record that names it may still lie in a ring.
 *  5. The wait of a cancelled send returns without the receiver; the slot waits for the answer instead.
 *  6. A probe takes the offer that it shows: from then on it is too late to cancel, and the next fitting receive gets it.
 *  7. Cancel of a receive takes it off the list with the lane's lock held; a receive that is not there any more has its message.
 *
 * Checked: a message is received or cancelled, never both; its buffer is read only while the send is incomplete; a receive is completed or
 * cancelled; messages and receives match in order, the cancelled left out; what a probe has shown is received; no wait without end, although
 * the receiver may begin only after the sender's Wait.
 *
 * @cc -DCOLLAPSE
 * @model cancel
 * @soak cancel_three -DN=3
 * @mutant 1 rule 1: Cancel looks at the word, then stores: two steps => stable[m]
 * @mutant 2 rule 2: the receiver looks at the word, then stores: two steps => !(cancelled[m])
 * @mutant 3 rule 2: the receive is taken off the list, and returns to its end if the offer is withdrawn => completed[i]
 * @mutant 4 rule 4: the slot of a cancelled send is used again at once => !(cancelled[m])
 * @mutant 5 rule 6: a probe shows an offer and leaves its word => stable[m]
 * @mutant 6 rule 5: the wait of a cancelled send waits for the receiver's answer => deadlock
 * @mutant 7 rule 7: Cancel looks for the receive, then takes it off, without the lane's lock => gone[r]
 * @mutant 8 rule 3: an unexpected offer is taken without its word => !(cancelled[m])
 * @mutant 9 rule 3: a withdrawn offer is dropped without an answer => deadlock
 * @mutant 10 rule 1: the wait of a send that was too late to cancel returns at once => stable[m]
 * @unreached poller -end-
 * @unreached answered -end-
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#ifndef N
#define N 2
#endif
#define OFFERED 1
#define WITHDRAWN 2
#define TAKEN 3
#define NONE 9

chan ring = [N] of { byte };
chan answers = [N] of { byte };                    /* the slot's message: done, or dropped */
byte word;                                         /* of the only slot */
bool busy;                                         /* the slot */
bool lane;                                         /* lock */
bool stable[N], cancelled[N], matched[N], done[N], told;
chan list = [N + 1] of { byte };                       /* posted receives */
chan unexpected = [N] of { byte };
bool gone[N + 1], completed[N + 1];          /* gone: cancelled */
byte shown = NONE;

inline lock(x) { atomic { !x -> x = true } }
inline unlock(x) { x = false }
inline take(ok) {                                  /* rule 2 */
#if MUTATE == 2
  ok = (word == OFFERED);
  if
  :: ok -> word = TAKEN
  :: else
  fi
#else
  atomic { ok = (word == OFFERED);
    if
    :: ok -> word = TAKEN
    :: else
    fi }
#endif
}
inline finish() {                                  /* message m meets receive r, off its list */
  d_step {
    assert(!(cancelled[m]));
    assert(!gone[r]);
    assert(!matched[m] && !completed[r]);
    i = 0;
    do
    :: i < r -> assert(completed[i] || gone[i]); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < m -> assert(matched[i] || cancelled[i]); i++
    :: else -> break
    od;
    i = 0;
    assert(shown == NONE || shown == m);
    assert(stable[m]);
    shown = NONE; matched[m] = true; completed[r] = true
  };
  assert(stable[m]);                               /* the copy ends */
  answers ! m
}
inline drop() {
#if MUTATE == 9
  skip
#else
  answers ! m
#endif
}
inline arrive() {                                  /* lane's lock held */
#if MUTATE == 3
  if
  :: nempty(list) -> list ? r; take(ok);
     if
     :: ok -> finish()
     :: else -> list ! r; drop()
     fi
#else
  if
  :: nempty(list) -> take(ok);
     if
     :: ok -> list ? r; finish()
     :: else -> drop()
     fi
#endif
  :: empty(list) -> unexpected ! m
  fi;
  ok = false; r = 0; m = 0; i = 0
}
inline post() {                                    /* receive r */
  lock(lane);
  do
  :: nempty(unexpected) -> unexpected ? m;
#if MUTATE == 8
     ok = true;
#else
     if
     :: shown == m -> ok = true                    /* the probe has taken it */
     :: else -> take(ok)
     fi;
#endif
     if
     :: ok -> finish(); break
     :: else -> drop()
     fi
  :: empty(unexpected) -> list ! r; break
  od;
  unlock(lane);
  ok = false; m = 0
}
inline probe() {
  lock(lane);
  if
  :: unexpected ? [m] ->
     unexpected ? <m>;
#if MUTATE == 5
     ok = (word == OFFERED);
#else
     take(ok);
#endif
     if
     :: ok -> shown = m
     :: else -> unexpected ? m; drop()
     fi
  :: empty(unexpected)
  fi;
  unlock(lane);
  ok = false; m = 0
}
inline cancel_receive() {                          /* receive 0 */
#if MUTATE != 7
  lock(lane);
#endif
  if
  :: list ?? [0] ->
#if MUTATE == 7
     gone[0] = true;
#endif
     atomic {
       if
       :: list ?? [0] -> list ?? 0
       :: else
       fi };
     gone[0] = true
  :: else -> assert(completed[0])
  fi;
#if MUTATE != 7
  unlock(lane)
#endif
}

proctype sender() {
  byte m; bool ok;
  for (m : 0 .. N - 1) {
#if MUTATE == 4
    atomic { !busy || cancelled[0] -> busy = true; word = OFFERED };
#else
    atomic { !busy -> busy = true; word = OFFERED };
#endif
    stable[m] = true;
    ring ! m;
    if
    :: m < N - 1 ->                                /* MPI_Cancel */
#if MUTATE == 1
       ok = (word == OFFERED);
       if
       :: ok -> word = WITHDRAWN; cancelled[m] = true
       :: else
       fi
#else
       atomic { ok = (word == OFFERED);
         if
         :: ok -> word = WITHDRAWN; cancelled[m] = true
         :: else
         fi }
#endif
    :: true -> ok = false
    fi;
    if
    :: ok
    :: else -> told = true                         /* it needs the receiver */
    fi;
    if                                             /* MPI_Wait */
#if MUTATE == 6
    :: ok -> done[m]
#else
    :: ok
#endif
#if MUTATE == 10
    :: !ok && m < N - 1
#endif
    :: !ok -> done[m]
    fi;
    stable[m] = false; ok = false;
    told = true
  }
}
proctype answered() {                              /* the sender's lane: any thread of the sender */
  byte m;
end:
  do
  :: atomic { answers ? m -> done[m] = true; busy = false; word = 0; m = 0 }
  od
}
proctype poller() {
  byte i, m, r; bool ok;
end:
  do
  :: atomic { nempty(ring) && !lane -> lane = true };
     if
     :: ring ? m -> arrive()
     :: empty(ring)
     fi;
     unlock(lane)
  od
}
proctype receiver() {
  byte i, m, r; bool ok, late;
  if
  :: late = true
  :: late = false
  fi;
  (!late || told);
  run poller();
  do                                               /* as many receives as there are messages, and one to cancel */
  :: r <= N ->
     if
     :: probe()
     :: true
     fi;
     post();
     if
     :: r == 0 -> cancel_receive()
     :: true
     fi;
     r++
  :: r > N -> break
  od
}
init { atomic { run sender(); run answered(); run receiver() } }
