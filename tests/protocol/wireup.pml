/* One link between two processes: opened, offered, connected, greeted, ready, over (src/wireup/link.hpp). Both sides may want it, one
 * may leave or die at any step, either may lose it at any step, and opening, connecting and greeting may fail. Records of one side
 * arrive in order. Where links are connected by use (BY_USE), side 1 has the greater offer.
 *
 *  1. A side opens its end when it wants the link or gets the peer's offer, offers that end once, and connects it to the peer's offer.
 *  2. A connected side says ready. Its peer may use the link then.
 *  3. BY_USE: the side with the greater offer does not say ready. It greets when the peer has, and says ready when it has its answer.
 *     The peer may use the link then, says ready once more, and the first side may use it, too.
 *  4. The result of a greeting is stored before it is told: its completion can't take the side's lock.
 *  5. BY_USE: from the connection until it is ready, a greeted side polls its lane, and so does the greeting side from the greeting on.
 *  6. A side that can't go on says so. A side whose end could not be opened, and that has offered nothing, says so when the peer offers.
 *  7. The greeted side says an error back, so that the greeting side hears of its own failure with its lock held.
 *  8. A link that is over stays so: records about it change nothing, and the program hears of it once.
 *  9. A side that leaves says goodbye, begins no link after that, and waits for the answer. A peer that has said goodbye, or is dead
 *     with all its records handled, stays gone: links that are wanted later are refused.
 *
 * Checked: no side waits for ever, nor keeps a link that the other side has given up; no side uses a link before both ends are connected,
 * nor, BY_USE, before the greeting has been answered; each callback comes once, and none after the end.
 *
 * @cc -DCOLLAPSE
 * @model connected -DBY_USE=0
 * @model by_use -DBY_USE=1
 * @mutant 1 -DBY_USE=0 rule 1: a side that gets an offer connects, and offers nothing => state[s] >= 2
 * @mutant 2 -DBY_USE=0 rule 2: ready is said when the offer is there, then the end is connected => connected[s]
 * @mutant 3 -DBY_USE=1 rule 3: the first ready will do for the greeting side, too => greeted
 * @mutant 4 -DBY_USE=1 rule 3: the greeted side does not say ready once more => deadlock
 * @mutant 5 -DBY_USE=1 rule 3: both sides say ready when they are connected => state[s] != 4
 * @mutant 6 -DBY_USE=1 rule 4: ready is said, then the result is stored => answered
 * @mutant 7 -DBY_USE=1 rule 5: the greeted side leaves its lane to its program => deadlock
 * @mutant 8 -DBY_USE=0 rule 6: an end that can't be connected is given up without a word => deadlock
 * @mutant 9 -DBY_USE=0 rule 6: an offer of a link that is over gets no answer => deadlock
 * @mutant 10 -DBY_USE=0 rule 6: a link that is lost in use is given up without a word => deadlock
 * @mutant 11 -DBY_USE=1 rule 7: an error is not said back => deadlock
 * @mutant 12 -DBY_USE=0 rule 8: a ready begins a link that is over => overs[s] == 0
 * @mutant 13 -DBY_USE=0 rule 9: a link that is wanted of a peer that is gone is offered => deadlock
 * @mutant 14 -DBY_USE=0 rule 9: a goodbye gets no answer => deadlock
 * @mutant 15 -DBY_USE=0 rule 9: a leaving side opens its end for an offer that comes later => !(leaving[s])
 * @unreached helper -end-
 */
#ifndef MUTATE
#define MUTATE 0
#endif
mtype = { OFFER, READY, ERROR, GOODBYE, FAREWELL };
#define UNOPENED 0
#define OFFERED 1
#define CONNECTED 2
#define GREETING 3
#define IS_READY 4
#define OVER 5
#define OURS(s) (BY_USE && (s) == 1)
#define THEIRS(s) (BY_USE && (s) == 0)

chan to[2] = [8] of { mtype };
byte state[2];
bool connected[2];                                 /* the end has been connected, whatever became of it */
bool served[2];
bool leaving[2], dead[2];
bool gone[2];                                      /* side s has heard that the other one is gone */
byte readies[2], overs[2];                         /* callbacks */
bool posted, answered, failed, greeted;            /* side 1's greeting; greeted: it has been there */
bool opens_badly[2], connects_badly[2];

inline tell(s, record) {
  if
  :: dead[1 - (s)]
  :: else -> to[1 - (s)] ! record
  fi
}
inline finish(s) {
  if
  :: state[s] == OVER
  :: else -> state[s] = OVER; served[s] = false; overs[s]++; assert(overs[s] == 1)
  fi
}
inline lose(s) {
  if
  :: state[s] == OVER
  :: else -> tell(s, ERROR); finish(s)
  fi
}
inline begin(s) {
  state[s] = IS_READY; served[s] = false;
  readies[s]++;
  assert(readies[s] == 1);
  assert(overs[s] == 0);
  assert(connected[s] && connected[1 - s]);
  assert(!BY_USE || greeted)
}
inline open(s) {                                   /* Link::want() */
  if
  :: state[s] == UNOPENED && opens_badly[s] -> finish(s)
  :: state[s] == UNOPENED && !opens_badly[s] ->
     assert(!leaving[s]);
     state[s] = OFFERED;
#if MUTATE == 1
     if
     :: is_answer
     :: else -> tell(s, OFFER)
     fi
#else
     tell(s, OFFER)
#endif
  :: else
  fi
}
inline say_connected(s) {
#if BY_USE && MUTATE != 5
  if
  :: THEIRS(s) -> tell(s, READY)
  :: else
  fi
#else
  tell(s, READY)
#endif
}
inline hear_offer(s) {
  if
  :: state[s] == OVER ->
#if MUTATE != 9
     tell(s, ERROR)
#else
     skip
#endif
#if MUTATE != 15
  :: state[s] == UNOPENED && leaving[s] -> tell(s, ERROR); finish(s)
  :: state[s] != OVER && !(state[s] == UNOPENED && leaving[s]) ->
#else
  :: state[s] != OVER ->
#endif
     assert(state[s] < CONNECTED);
     is_answer = true; open(s); is_answer = false;
     if
     :: state[s] == OVER -> tell(s, ERROR)
     :: state[s] != OVER && connects_badly[s] ->
#if MUTATE == 8
        finish(s)
#else
        lose(s)
#endif
     :: else ->
#if MUTATE == 2
        say_connected(s); is_half = true
#else
        connected[s] = true; state[s] = CONNECTED;
#if BY_USE && MUTATE != 7
        if
        :: THEIRS(s) -> served[s] = true
        :: else
        fi;
#endif
        say_connected(s)
#endif
     fi
  fi
}
inline hear_ready(s) {
  if
  :: state[s] == OVER && MUTATE != 12
  :: state[s] != OVER && leaving[s]                /* nothing is posted after a goodbye */
  :: (state[s] != OVER || MUTATE == 12) && !leaving[s] ->
     assert(MUTATE == 12 || state[s] >= CONNECTED);
     assert(state[s] != IS_READY);
#if BY_USE
     if
     :: OURS(s) && state[s] == CONNECTED && MUTATE != 3 -> state[s] = GREETING; served[s] = true; posted = true
     :: OURS(s) && (state[s] == GREETING || MUTATE == 3) -> assert(answered || MUTATE == 3); begin(s)
     :: THEIRS(s) ->
#if MUTATE != 4
        tell(s, READY);
#endif
        begin(s)
     fi
#else
     begin(s)
#endif
  fi
}
inline hear_error(s) {
  if
  :: state[s] == OVER
  :: else ->
#if BY_USE && MUTATE != 11
     if
     :: THEIRS(s) && state[s] != IS_READY -> tell(s, ERROR)
     :: else
     fi;
#endif
     finish(s)
  fi
}
inline hear_end(s) {                               /* of the peer */
  gone[s] = true;
  if
  :: state[s] != UNOPENED -> finish(s)
  :: else
  fi
}
inline leave(s) {
  atomic { leaving[s] = true; tell(s, GOODBYE) };
  gone[s]                                          /* farewell, or the end of the peer */
}
inline lost(s) {
#if MUTATE == 10
  finish(s)
#else
  lose(s)
#endif
}

proctype helper(bit s) {
  bool is_answer;
#if MUTATE == 2
  bool is_half;
#endif
  {
end:
    do
    :: atomic { to[s] ? OFFER ->
         if
         :: gone[s]
         :: else -> hear_offer(s)
         fi }
#if MUTATE == 2
       ;
       atomic {
         if
         :: is_half && state[s] != OVER -> is_half = false; connected[s] = true; state[s] = CONNECTED
         :: else
         fi }
#endif
    :: atomic { to[s] ? READY ->
         if
         :: gone[s] && MUTATE != 12
         :: else -> hear_ready(s)
         fi }
    :: atomic { to[s] ? ERROR ->
         if
         :: gone[s]
         :: else -> hear_error(s)
         fi }
    :: atomic { to[s] ? GOODBYE ->
         hear_end(s)
#if MUTATE != 14
         ; tell(s, FAREWELL)
#endif
       }
    :: atomic { to[s] ? FAREWELL -> hear_end(s) }
    :: atomic { dead[1 - s] && empty(to[s]) && !gone[s] -> hear_end(s) }
    od
  } unless { dead[s] }
}
#if BY_USE
proctype lane() {                                  /* side 1's, and the network */
  {
end:
    do
    :: atomic { posted && served[0] && served[1] -> posted = false;
         if
         :: greeted = true
         :: failed = true
         fi };
       goto told
    :: atomic { posted && state[1] == OVER -> posted = false; failed = true }; goto told   /* the end has been cut */
    od;
told:
#if MUTATE == 6
    atomic {
      if
      :: failed -> tell(1, ERROR)
      :: else -> tell(1, READY)
      fi };
    answered = true;
#else
    answered = true;
    atomic {
      if
      :: failed -> tell(1, ERROR)
      :: else -> tell(1, READY)
      fi };
#endif
    goto end
  } unless { dead[1] }
}
#endif
proctype program(bit s) {                          /* wants the link, and waits */
  bool is_answer;
  {
    if
    :: atomic {
         if
         :: leaving[s] || (gone[s] && MUTATE != 13) ->         /* refused */
            if
            :: state[s] == UNOPENED -> finish(s)
            :: else
            fi
         :: else -> open(s)
         fi };
    :: true
    fi;
end:
    state[s] != UNOPENED;
    state[s] >= IS_READY;                          /* ready, or over */
end_in_use:
    state[1 - s] == OVER || gone[s];
    state[s] == OVER
  } unless { dead[s] }
}
proctype fate() {
  if
  :: atomic { dead[0] = true }
  :: atomic { dead[1] = true }
  :: leave(0)
  :: leave(1)
  :: true
  fi
}
proctype loss() {
  if
  :: atomic { state[0] >= OFFERED && !dead[0] -> lost(0) }
  :: atomic { state[1] >= OFFERED && !dead[1] -> lost(1) }
  :: true
  fi
}
init {
  atomic {
    if
    :: opens_badly[0] = true
    :: opens_badly[1] = true
    :: connects_badly[0] = true
    :: connects_badly[1] = true
    :: true
    fi;
    run helper(0); run helper(1); run program(0); run program(1); run fate(); run loss();
#if BY_USE
    run lane()
#endif
  }
}
