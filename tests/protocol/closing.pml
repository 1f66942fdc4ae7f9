/* The end of a communicator with ordinary messages not received yet. One pair, two lanes from sender to receiver; each keeps order, and
 * there is none between them. The sender makes communicator A, sends on both lanes, frees it; then the same with B, which may get A's number.
 * Two threads of the receiver make, use and free A and B at the same time.
 *
 *  1. A number on a link is announced in band, on each lane before the first message with it: identity -> number.
 *  2. The receiver may get an announcement before its own call has made the communicator: the engine made on first sight is adopted.
 *     A sender has a communicator only after all members have entered the call that makes it. So an unknown identity belongs to a
 *     creation that this process is inside of, or to a communicator that it has freed.
 *  3. An engine that no call adopts is dropped when all creations that this process was inside of at its first sight have returned.
 *  4. The local free runs the delete callbacks, which may receive, and then drops the unexpected messages, and later ones with the number.
 *  5. The sender's free sends a close mark on every lane that has announced the number, behind all messages. The mark says how many lanes
 *     these are.
 *  6. The receiver retires the number when that many marks have come, and says so. The engine stays if the program has not freed it yet.
 *  7. The sender uses a number again only after the receiver has retired it.
 *
 * Checked: no message is delivered to another communicator than its own; a message that the program receives, in its callback too,
 * is there; when all calls have returned no engine, number or message is left.
 *
 * @cc -DCOLLAPSE
 * @model closing
 * @mutant 1 rule 7: the sender uses the number again after its own free => named[n]
 * @mutant 2 rule 6: the number is retired when each lane that has announced it has sent its mark => named[n]
 * @mutant 3 rule 2: an announcement of an unknown identity makes no engine => deadlock
 * @mutant 4 rule 6: the last mark ends an engine that no call has adopted yet => deadlock
 * @mutant 5 rule 3: an engine that no call adopts stays => left == 0
 * @mutant 6 rule 3: an engine is dropped when the first of these creations returns => deadlock
 * @mutant 7 rule 4: messages that come after the local free are kept => left == 0
 * @mutant 8 rule 5: the free sends one mark, on the last lane => left == 0
 * @mutant 9 rule 5: the mark passes a message that waits in the backlog => named[n]
 * @mutant 10 rule 4: unexpected messages are dropped, then the callbacks run => deadlock
 * @mutant 11 rule 4: the local free retires the number, and a message of it is still in its ring => named[n]
 * @unreached lane -end-
 */
#ifndef MUTATE
#define MUTATE 0
#endif
mtype = { ANNOUNCE, MESSAGE, MARK };
#define A 0
#define B 1
#define NONE 2
#define NO_ENGINE 0
#define SIGHTED 1                                  /* made on first sight */
#define ADOPTED 2

chan lanes[2] = [8] of { mtype, byte, byte };      /* record, number, and what the checker knows: the communicator; of a mark: lanes */
bool both[2];                                      /* the sender uses both lanes */
bool sender_in[2], receiver_in[2];                 /* has entered the creation */
byte retired;                                      /* numbers, as the sender knows */

byte engine[2], kept[2];                           /* kept: unexpected messages, a bit for each lane */
byte since[2];                                     /* of a sighted engine: creations under way at first sight, that have not returned */
byte inside;                                       /* creations under way */
byte named[2], sink, announced[2], marks[2];          /* of a number: communicator; sink: numbers whose messages are dropped */
byte over;                                         /* processes that have ended */

#define BIT(c) (1 << (c))

inline sink_of(c) {
  if
  :: named[0] == c -> sink = sink | 1
  :: named[1] == c -> sink = sink | 2
  :: else
  fi
}
inline drop_engine(c) { engine[c] = NO_ENGINE; kept[c] = 0; since[c] = 0; sink_of(c) }
inline retire() {
#if MUTATE == 4
  if
  :: engine[named[n]] == SIGHTED -> kept[named[n]] = 0; engine[named[n]] = NO_ENGINE
  :: else
  fi;
#endif
  named[n] = NONE; marks[n] = 0; announced[n] = 0; sink = sink & ~BIT(n); retired = retired | BIT(n)
}
proctype lane(bit l) {                             /* the receiver's: any thread that polls it */
  byte n, c;
end:
  do
  :: atomic { lanes[l] ? ANNOUNCE(n, c) ->
       assert(named[n] == NONE || named[n] == c);
       if
       :: named[n] == NONE -> named[n] = c;
          if
          :: engine[c] == NO_ENGINE && inside && MUTATE != 3 -> engine[c] = SIGHTED; since[c] = inside
          :: engine[c] == NO_ENGINE && (!inside || MUTATE == 3) ->
#if MUTATE == 5
             engine[c] = SIGHTED
#else
             sink = sink | BIT(n)
#endif
          :: else
          fi
       :: else
       fi;
       announced[n]++; n = 0; c = 0 }
  :: atomic { lanes[l] ? MESSAGE(n, c) ->
       assert(named[n] == c);
       if
#if MUTATE == 7
       :: true -> kept[c] = kept[c] | BIT(l)
#else
       :: sink & BIT(n)
       :: else -> kept[c] = kept[c] | BIT(l)
#endif
       fi; n = 0; c = 0 }
  :: atomic { lanes[l] ? MARK(n, c) ->
       marks[n]++;
       if
#if MUTATE == 2
       :: marks[n] == announced[n] -> retire()
#else
       :: marks[n] == c -> retire()
#endif
       :: else
       fi; n = 0; c = 0 }
  od
}
proctype sender() {
  byte c, n;
  for (c : A .. B) {
    sender_in[c] = true;
    receiver_in[c];                                /* the creation has returned */
    atomic {
      n = (retired & 1 -> 0 : 1);
      retired = retired & ~BIT(n) };
    lanes[0] ! ANNOUNCE(n, c);
#if MUTATE == 9
    if
    :: both[c] -> lanes[1] ! ANNOUNCE(n, c)
    :: else
    fi;
    lanes[0] ! MESSAGE(n, c);
    if
    :: both[c] -> lanes[1] ! MARK(n, 2); lanes[1] ! MESSAGE(n, c)
    :: else
    fi;
    lanes[0] ! MARK(n, 1 + both[c]);
#else
    lanes[0] ! MESSAGE(n, c);
    if
    :: both[c] -> lanes[1] ! ANNOUNCE(n, c); lanes[1] ! MESSAGE(n, c)
    :: else
    fi;
#if MUTATE == 8
    lanes[both[c]] ! MARK(n, 1 + both[c]);
#else
    lanes[0] ! MARK(n, 1 + both[c]);               /* MPI_Comm_free */
    if
    :: both[c] -> lanes[1] ! MARK(n, 2)
    :: else
    fi;
#endif
#endif
#if MUTATE == 1
    retired = retired | BIT(n)
#endif
  };
  over++
}
inline creation_returns(c, other) {
  inside = inside & ~BIT(c);
  engine[c] = ADOPTED; since[c] = 0;
  if
#if MUTATE == 6
  :: engine[other] == SIGHTED -> drop_engine(other)
#elif MUTATE != 5
  :: engine[other] == SIGHTED ->
     since[other] = since[other] & ~BIT(c);
     if
     :: since[other] == 0 -> drop_engine(other)
     :: else
     fi
#endif
  :: else
  fi
}
proctype thread(bit c) {                           /* of the receiver */
  bit other = 1 - c;
  atomic { receiver_in[c] = true; inside = inside | BIT(c) };
  sender_in[c];
  atomic { creation_returns(c, other) };
  if                                               /* MPI_Recv, of the first lane's message; or none */
  :: atomic { kept[c] & 1 -> kept[c] = kept[c] & ~1 }
  :: true
  fi;
  if                                               /* MPI_Comm_free */
  :: both[c] ->                                    /* the delete callback receives the other one */
#if MUTATE == 10
     kept[c] = 0;
#endif
     atomic { kept[c] & 2 -> kept[c] = kept[c] & ~2 }
  :: true
  fi;
  atomic { drop_engine(c);
#if MUTATE == 11
    if
    :: named[0] == c -> named[0] = NONE; sink = sink & ~1
    :: named[1] == c -> named[1] = NONE; sink = sink & ~2
    :: else
    fi
#endif
  };
  over++
}
proctype check() {
  byte left;
  (over == 3 && empty(lanes[0]) && empty(lanes[1]));
  d_step {
    left = engine[A] + engine[B] + kept[A] + kept[B] + sink;
    left = left + (named[0] != NONE) + (named[1] != NONE) + marks[0] + marks[1]
  };
  assert(left == 0)
}
init {
  atomic {
    named[0] = NONE; named[1] = NONE; retired = 3;
    if
    :: both[A] = true
    :: true
    fi;
    if
    :: both[B] = true
    :: true
    fi;
    run lane(0); run lane(1); run sender(); run thread(A); run thread(B); run check()
  }
}
