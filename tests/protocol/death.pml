/* Either process may stop at any step, all its threads and its helper at once. One channel, two partitions, two rounds; by slots, by
 * attach, by attach with all runs of the sender handed to the receiver's helper, or packed by the sender and unpacked by the receiver's Wait.
 *
 *  1. The helper reports a peer as down only after it has handled every record that the peer had sent.
 *  2. A copy from or to a dead process fails as a whole and is not counted; whoever tried it fails the request.
 *  3. A request that is asked looks in this order: is the round complete? then it is, whatever else is true. Is the peer down, or its half
 *     freed? then it looks ONCE MORE whether the round is complete: what the peer did before it died is seen by now.
 *  4. Only then does it fail, and only if nothing of the round is under way in this process: by slots, all that is ready is claimed and
 *     all that is claimed has arrived. (Another thread in Parrived may be between claim and arrival mark.)
 *  5. A receive without a match looks at "down", too, when it is asked: INITs of a dead peer have all been handled.
 *     Before that it unpacks what the peer had packed.
 *  6. An INIT that came before its receive is kept although its sender is dead: a send by slots may have completed.
 *
 * Checked: the survivor completes or fails and never waits for ever; a completion that the peer had earned it is never reported as an error;
 * no thread of the survivor writes into the receive buffer after the failure has been reported; what is reported complete is complete.
 *
 * @cc -DNOREDUCE -DCOLLAPSE
 * @model slots -DMODE=1
 * @model attach -DMODE=2
 * @model handed_over -DMODE=3
 * @model packed -DMODE=4
 * @unreached sender (sender_dead)
 * @unreached receiver (receiver_dead)
 * @unreached receiver_helper (receiver_dead)
 * @unreached reader (receiver_dead)
 * @unreached sender_helper -end-
 * @unreached receiver_helper -end-
 * @mutant 1 -DMODE=2 rule 3: complete? no; down? yes: it fails without a second look => earned
 * @mutant 2 -DMODE=1 rule 1: down is reported while records are still to be read => earned
 * @mutant 3 -DMODE=1 rule 4: it fails although another thread is between claim and arrival mark => earned
 * @mutant 4 -DMODE=2 rule 3: a wait looks at the count only => deadlock
 * @mutant 5 -DMODE=2 rule 5: a receive without a match does not look at "down" => deadlock
 * @mutant 6 -DMODE=3 rule 2: the helper counts the run although its copy failed => here == 3
 * @mutant 7 -DMODE=1 rule 6: at a hang-up the INITs that no receive has asked for yet are thrown away => earned
 * @mutant 8 -DMODE=4 rule 4: it fails although the peer had packed the missing partitions => earned
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#define SLOTS (MODE == 1)
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define S 2
#define ALL 3
#define BIT(i) (1 << (i))
#define COUNT(m) (((m) & 1) + ((m) >> 1))
mtype = { INIT, MOVE, CLOSE };                     /* MODE 4: MOVE says that the run is packed */

bool sender_dead, receiver_dead;

/* shared memory: outlives either process */
byte ready[2], tag[2];
bool opened[2];
byte moved_count;                                  /* attach */
byte told;                                         /* slots: the last round that the receiver has read */

/* the sender */
bool receiver_down;
byte s_round;                                      /* last round started */

/* the receiver */
chan to_receiver = [6] of { mtype, byte, byte };   /* kind, round, run */
bool unexpected, posted, matched, start_waits;
bool sender_down, sender_closed, copy_failed;
byte r_round, claim;                               /* claim: bits of round r_round */
bool in_round;                                     /* the receive buffer may be written */
chan to_sender = [2] of { byte };                  /* MODE 4: a run to be packed */
byte steps;                                        /* MODE 4: runs that wait for a thread of the program */
byte here, arrived;                                /* arrived: marks of round r_round, by slots */

#define READY(r) ((SLOTS && matched && tag[(r) & 1] == (r)) -> ready[(r) & 1] : 0)
#define FOUND(r) (READY(r) & ~claim)
#if SLOTS
#define R_COMPLETE(r) (arrived == ALL)
#else
#define R_COMPLETE(r) (moved_count >= (r) * S)
#endif
#define DOWN (sender_down || sender_closed)

/* ---- sender ---- */
#if SLOTS
#define S_COMPLETE(r) (ready[(r) & 1] == ALL && told >= (r) - 1)
#else
#define S_COMPLETE(r) (moved_count >= (r) * S)
#endif
#if SLOTS
inline pready(i) { ready[r & 1] = ready[r & 1] | BIT(i) }
#else
inline pready(i) {
  atomic {
    ready[r & 1] = ready[r & 1] | BIT(i);
    bits = (opened[r & 1] -> BIT(i) : 0)
  };
  if
  :: bits ->
#if MODE >= 3
     to_receiver ! MOVE, r, bits
#else
     atomic {
       if
       :: receiver_dead -> bits = 0                /* rule 2 */
       :: else -> assert(in_round && r_round == r); here = here | bits
       fi
     };
     moved_count = moved_count + COUNT(bits)
#endif
  :: else
  fi
}
#endif
proctype sender() {
  byte r, bits; bool earned;
  {
    to_receiver ! INIT, 0, 0;
    for (r : 1 .. ROUNDS) {
      atomic {                                     /* MPI_Start */
#if SLOTS
        ready[r & 1] = 0; tag[r & 1] = r;
#else
        ready[(r + 1) & 1] = 0; opened[(r + 1) & 1] = false; tag[(r + 1) & 1] = r + 1;
#endif
        s_round = r
      };
      pready(0);
      pready(1);
      do                                           /* MPI_Wait: rule 3 */
      :: S_COMPLETE(r) -> break
#if MODE == 4
      :: to_sender ? bits -> to_receiver ! MOVE, r, bits; bits = 0
#endif
#if MUTATE == 1
      :: !S_COMPLETE(r) ->
         if
         :: receiver_down -> goto failed
         :: S_COMPLETE(r)
         fi
#elif MUTATE != 4
      :: receiver_down ->
         if
         :: S_COMPLETE(r) -> break
         :: else -> goto failed
         fi
#endif
      od
    };
    to_receiver ! CLOSE, 0, 0;                     /* MPI_Request_free */
    goto over;
failed:
    earned = S_COMPLETE(r);
    assert(!earned);
over:
    skip
  } unless { sender_dead }
}
proctype sender_helper() {
end:
  { receiver_dead -> receiver_down = true } unless { sender_dead }
}

/* ---- receiver ---- */
inline copy(bits) {
  atomic {
#if !SLOTS && MODE != 4
    if
    :: sender_dead -> copy_failed = true;          /* rule 2 */
#if MUTATE != 6
       bits = 0
#endif
    :: else ->
       assert(in_round && r_round == r && (here & bits) == 0);
       here = here | bits
    fi
#else
    assert(in_round && r_round == r && (here & bits) == 0);
    here = here | bits
#endif
  };
#if SLOTS
  arrived = arrived | bits;
#else
  moved_count = moved_count + COUNT(bits);
#endif
  bits = 0
}
inline open_and_move() {
  atomic { opened[r & 1] = true; bits = ready[r & 1] };
  if
#if MODE == 4
  :: bits -> to_sender ! bits; bits = 0
#else
  :: bits -> copy(bits)
#endif
  :: else
  fi
}
inline drain() {                                   /* a reader: see slots.pml */
  atomic { bits = READY(r) };
  atomic { bits = (r_round == r -> bits & ~claim : 0); claim = claim | bits };
  if
  :: bits -> copy(bits)
  :: else
  fi
}
proctype receiver_helper() {
  byte r, bits;
  {
end:
    do
    :: atomic { to_receiver ? INIT(_, _) ->
         if
         :: posted -> matched = true; r = start_waits
         :: else -> unexpected = true
         fi };
#if !SLOTS
       if
       :: r == 1 -> open_and_move()
       :: else
       fi;
#endif
       r = 0
#if MODE == 4
    :: atomic { to_receiver ? MOVE(r, bits) -> steps = steps | bits; r = 0; bits = 0 }
#elif MODE == 3
    :: to_receiver ? MOVE(r, bits) -> copy(bits); r = 0
#endif
    :: to_receiver ? CLOSE(_, _) -> sender_closed = true
#if MUTATE == 2
    :: sender_dead && !sender_down ->
#else
    :: sender_dead && empty(to_receiver) && !sender_down ->     /* rule 1 */
#endif
#if MUTATE == 7
       unexpected = false;
#endif
       sender_down = true
    od
  } unless { receiver_dead }
}
#if SLOTS
proctype reader() {                                /* another application thread, in MPI_Parrived */
  byte r, bits;
end:
  {
    atomic { in_round -> r = r_round };
    drain()
  } unless { receiver_dead }
}
#endif
#if MODE == 4
inline unpack() { atomic { bits = steps; steps = 0 }; copy(bits) }
#endif
inline second_look() {                             /* rules 3 and 4 */
#if SLOTS
  if
  :: FOUND(r) -> drain()
  :: else ->
     if
     :: R_COMPLETE(r) -> break
#if MUTATE == 3
     :: else -> goto failed
#else
     :: !R_COMPLETE(r) && (claim & ~arrived) -> R_COMPLETE(r) || !(claim & ~arrived)   /* another thread will mark what it claimed */
     :: else -> goto failed
#endif
     fi
  fi
#else
  if
#if MODE == 4 && MUTATE != 8
  :: steps -> unpack()
  :: !steps && R_COMPLETE(r) -> break
#else
  :: R_COMPLETE(r) -> break
#endif
  :: else -> goto failed
  fi
#endif
}
proctype receiver() {
  byte r, bits; bool earned, waits;
  {
    atomic { if :: unexpected -> matched = true :: else -> posted = true fi };  /* rule 6 */
    for (r : 1 .. ROUNDS) {
      atomic {                                     /* MPI_Start */
        r_round = r; claim = 0; arrived = 0; here = 0; in_round = true;
        waits = !matched; start_waits = waits
      };
#if !SLOTS
      if
      :: !waits -> open_and_move()
      :: else
      fi;
#endif
      do                                           /* MPI_Wait */
      :: R_COMPLETE(r) -> break
#if SLOTS
      :: !R_COMPLETE(r) && FOUND(r) -> drain()
#endif
#if MODE == 4
      :: !R_COMPLETE(r) && steps -> unpack()
#endif
#if !SLOTS && MODE != 4 && MUTATE != 4
      :: !R_COMPLETE(r) && copy_failed -> goto failed
#endif
#if MUTATE == 1
      :: !R_COMPLETE(r) && !copy_failed && !FOUND(r) ->
         if
         :: DOWN -> goto failed
         :: R_COMPLETE(r) || FOUND(r) || copy_failed
         fi
#elif MUTATE == 5
      :: DOWN && matched -> second_look()
#elif MUTATE != 4
      :: DOWN -> second_look()
#endif
      od;
      assert(here == ALL);
      in_round = false;
      told = r
    };
    goto over;
failed:
    atomic {
      earned = R_COMPLETE(r) || (MODE == 4 && (here | steps) == ALL) || (SLOTS && s_round >= r && tag[r & 1] == r && ready[r & 1] == ALL);
      assert(!earned);
      in_round = false
    };
over:
    skip
  } unless { receiver_dead }
}
proctype reaper() {
  if
  :: sender_dead = true
  :: receiver_dead = true
  :: true
  fi
}
init {
  atomic {
#if !SLOTS
    tag[1] = 1;
#endif
    run sender(); run sender_helper(); run receiver(); run receiver_helper(); run reaper();
#if SLOTS
    run reader()
#endif
  }
}
