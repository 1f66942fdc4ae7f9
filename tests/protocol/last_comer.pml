/* Attach mode on one host: the last to come moves the data. One channel; the helper of either process may have to move for the other.
 *
 * Partitions 0 and 1 are group 0, partition 2 is group 1: both in one shared word. Group 2 is larger than a word: leaf 0 holds
 * partitions 3 and 4, leaf 1 holds partition 5, and a root word stands above them.
 *
 *  1. A word is {a ready bit per unit, open, expired, tag}, two of each kind by round parity; the tag is the round's low bits.
 *     trigger(group) = open and (all units of the group ready, or expired). A unit is a partition, at a root a whole leaf.
 *  2. Pready, the receiver's Start and expiry are each ONE sequentially consistent read-modify-write on the word.
 *  3. Whoever makes a group's trigger true moves all ready units of that group, and of no other.
 *  4. A Pready that finds its group's trigger true moves its own unit only; expiry or Start that finds it true moves nothing of it.
 *  5. A leaf word has ready bits only. The Pready that completes a leaf then sets the leaf's bit in the root; no other Pready touches the root.
 *  6. Expiry tests the tag in the same read-modify-write (a compare-and-swap): an expirer that comes late changes nothing.
 *  7. The sender's Start(r) clears the words of round r + 1, never those of round r: the receiver may have opened them already.
 *  8. An arrival mark is the round in which its partition arrived: the receiver's Start clears none.
 *  9. A mover copies, then sets the arrival marks, then adds to moved_count (never reset): the count is its last touch.
 * 10. Either side completes round r when moved_count >= r * S. Parrived(j): the arrival marks of all send partitions under j are r.
 * 11. A mover that may not move (attach refused in its direction) hands exactly the run that it claimed to the peer's helper, over a
 *     first-in first-out control channel, and touches it no more.
 * 12. That helper moves the run and does the marking of rule 9.
 * 13. A Pready may expire its word, in the read-modify-write that marks: it knows the deadline, and its own partition keeps the round open.
 * 14. Who expires a leaf first expires its root. Then, if the root is open, it sets open and expired in the leaf, in one
 *     read-modify-write, unless the leaf is full: what is ready in it is the expirer's, and a later Pready moves its own partition and
 *     leaves the root alone.
 * 15. Parrived(j) expires what is ready under j and waits for its group.
 *
 * 16. Where the kernel copies for neither side, the sender packs exactly the claimed run into staging memory, in which each partition has its
 *     place, and tells the receiver, which unpacks it and does the marking of rule 9.
 * 17. Only threads of the programs pack and unpack: the sender's in Pready and Wait, the receiver's in Wait and Parrived.
 *
 * Checked: a partition is copied exactly once a round, after its Pready, between the receiver's Start and completion, from a buffer
 * that the application has not taken back; Parrived is true only when the data is there; Pready never blocks; nobody waits for ever
 * although the receiver does nothing between Start and completion, and in some rounds Pready(2) is called only after Parrived(0) was true;
 * in `asked` Pready(4) is, and receive partition 0 is send partition 3, of the same leaf: nobody expires anything but Parrived.
 *
 * @cc -DCOLLAPSE
 * @model attach          -DREFUSED=0
 * @model sender_refused  -DREFUSED=1
 * @model receiver_refused -DREFUSED=2
 * @model asked           -DREFUSED=0 -DASKED
 * @model asked_refused   -DREFUSED=2 -DASKED
 * @model neither         -DREFUSED=3 -DROUNDS=2
 * @unreached helper -end-
 * @mutant 1  rule 2: Pready looks at the trigger, then marks: two steps => here & claim
 * @mutant 2  rule 4: the expirer moves the ready partitions though the trigger was true before => here & claim
 * @mutant 3  rule 7: Start(r) clears the words of round r => deadlock
 * @mutant 4  rule 3: the receiver's Start opens and leaves the ready partitions to the sender => deadlock
 * @mutant 5  rule 6: the expirer tests the tag, then sets the bit: two steps => r_round == r
 * @mutant 6  rule 9: moved_count before the arrival marks => arrived == 63
 * @mutant 7  rule 8: the receiver's Start clears the arrival marks, after the words are opened => (here&3)==3
 * @mutant 8  rule 4: a Pready that finds the trigger true moves all that is ready => here & claim
 * @mutant 9  rule 3: the mark that makes one group's trigger true moves all ready partitions of the word => here & claim
 * @mutant 10 rule 5: every Pready of a leaf sets the leaf's bit in the root => filled & claim
 * @mutant 11 rule 5: a Pready that does not complete its leaf looks at the root, and moves its own partition if the root is triggered => r_round == r
 * @mutant 12 rule 10: the send completes when its partitions have been marked, moved or not => deadlock
 * @mutant 13 -DREFUSED=1 rule 11: the run is handed over and marked as moved by the thread that hands it over => arrived == 63
 * @mutant 14 -DREFUSED=1 rule 11: the record names no run: the helper moves all ready partitions that are not yet moved => started == r
 * @mutant 15 -DREFUSED=2 rule 12: the sender's helper moves but leaves the marking to the receiver => deadlock
 * @mutant 16 rule 13: a Pready that expires its word moves its own partition only => deadlock
 * @mutant 17 rule 14: a full leaf is expired, too => r_round == r
 * @mutant 18 -DASKED rule 14: a leaf is expired, and its root is not => deadlock
 * @mutant 19 rule 14: a Pready that completes an expired leaf sets its bit in the root => here & claim
 * @mutant 20 rule 14: a leaf is expired whether its root is open or not => r_round == r
 * @mutant 21 -DASKED rule 15: Parrived expires the root only => deadlock
 * @mutant 22 -DREFUSED=3 -DROUNDS=2 rule 16: the sender marks a run as moved when it has packed it => (here&3)==3
 * @mutant 23 -DREFUSED=3 -DROUNDS=2 rule 17: a Pready packs, a Wait does not => deadlock
 * @mutant 24 -DREFUSED=3 -DROUNDS=2 rule 17: Parrived unpacks, a Wait does not => deadlock
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#ifndef REFUSED
#define REFUSED 0                                  /* 1: the sender may not write, 2: the receiver may not read, 3: both */
#endif
#ifndef ROUNDS
#define ROUNDS 3
#endif
#define S 6                                        /* send partitions */
#define ALL 63
#ifdef ASKED
#define J0 8                                       /* receive partition 0 overlaps send partition 3 */
#else
#define J0 3                                       /* receive partition 0 overlaps send partitions 0 and 1 */
#endif

/* shared memory; words are indexed 2 * kind + parity, kind 0 = shared word, 1 = root */
byte ready[4], tag[4];
bool open[4], expired[4];
byte leaf[4];                                      /* 2 * leaf + parity */
bool alone[4];                                     /* the leaf has expired */
byte arrived;                                      /* partitions whose arrival mark is the receiver's round */
byte moved_count;

/* what the applications and the checker know */
byte started;                                      /* round of the sender */
byte r_round;                                      /* active round of the receiver; 0 = none */
byte filled;                                       /* partitions of the send buffer that hold this round's data */
byte here;                                         /* partitions of the receive buffer that hold this round's data */
byte seen;                                         /* last round in which Parrived(0) was true */
hidden byte was0, was1;

chan delegated = [S] of { byte, byte };            /* round, run */
#if REFUSED == 3
byte staged;                                       /* partitions in staging memory */
chan packed = [S] of { byte, byte };               /* round, run */
#endif

#define GROUP0 3                                   /* units of the first group of a word ... */
#define GROUP1(x) ((x) < 2 -> 4 : 0)               /* ... and of the second */
#define TRIGGER(x, g) (open[x] && ((ready[x] & (g)) == (g) || expired[x]))
#define LOOK(x) was0 = TRIGGER(x, GROUP0); was1 = TRIGGER(x, GROUP1(x))
#define COUNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1) + (((m) >> 3) & 1) + (((m) >> 4) & 1) + (((m) >> 5) & 1))
#define PARTITIONS(x, units) ((x) < 2 -> (units) : ((((units) & 1) -> 24 : 0) | (((units) & 2) -> 32 : 0)))

/* rules 1 to 4: the read-modify-write and what its old value says; `run` = partitions to move */
inline event(x, mark, opens, expires) {
  ready[x] = ready[x] | mark; open[x] = open[x] || opens; expired[x] = expired[x] || expires;
  claim = 0;
  if
#if MUTATE == 2
  :: expires && TRIGGER(x, GROUP0) -> claim = ready[x] & GROUP0
#endif
#if MUTATE == 8
  :: was0 && (mark & GROUP0) -> claim = ready[x] & GROUP0
#else
  :: was0 -> claim = mark & GROUP0
#endif
#if MUTATE == 9
  :: !was0 && TRIGGER(x, GROUP0) -> claim = ready[x]
#else
  :: !was0 && TRIGGER(x, GROUP0) -> claim = ready[x] & GROUP0
#endif
  :: else
  fi;
  if
  :: was1 -> claim = claim | (mark & GROUP1(x))
  :: !was1 && TRIGGER(x, GROUP1(x)) -> claim = claim | (ready[x] & GROUP1(x))
  :: else
  fi;
  claim = PARTITIONS(x, claim)
}

inline copy(r) {
  atomic {
    assert(r_round == r && started == r);          /* inside the round, on both sides */
    assert((filled & claim) == claim);             /* after Pready, before the application takes the buffer back */
    assert((here & claim) == 0);                   /* exactly once */
    here = here | claim
  }
}
inline mark_moved() {                              /* rule 9 */
#if MUTATE == 6
  moved_count = moved_count + COUNT(claim);
  arrived = arrived | claim
#else
  arrived = arrived | claim;
  moved_count = moved_count + COUNT(claim)
#endif
}
inline move(r) {
  if :: claim -> copy(r); mark_moved(); claim = 0 :: else fi
}
inline hand_over(r) {                              /* rule 11 */
  if
  :: claim ->
     atomic { assert(nfull(delegated)); delegated ! r, claim };
#if MUTATE == 13
     mark_moved();
#endif
     claim = 0
  :: else
  fi
}
#if REFUSED == 3
inline pack(r) {                                   /* rule 16 */
  atomic {
    assert(started == r && (filled & claim) == claim && (staged & claim) == 0);
    staged = staged | claim
  };
#if MUTATE == 22
  mark_moved();
#endif
  atomic { assert(nfull(packed)); packed ! r, claim; claim = 0 }
}
inline unpack(r) {
  assert((staged & claim) == claim);
  copy(r);
  staged = staged & ~claim;
#if MUTATE != 22
  mark_moved();
#endif
  claim = 0
}
inline pack_or_hand_over(r) {                      /* whether the thread knows that the receiver can't */
  if
  :: claim -> if :: pack(r) :: hand_over(r) fi
  :: else
  fi
}
#define SENDER_MOVES(r) pack_or_hand_over(r)
#elif REFUSED == 1
#define SENDER_MOVES(r) hand_over(r)
#else
#define SENDER_MOVES(r) move(r)
#endif
#if REFUSED >= 2
#define RECEIVER_MOVES(r) hand_over(r)
#else
#define RECEIVER_MOVES(r) move(r)
#endif

#define BIT(i) (1 << (i))
#define LEAF(i) ((i) < 5 -> 0 : 2)
#define FULL(l) ((l) == 0 -> 3 : 4)
inline pready(i, r) {
  p = r & 1;
  if
  :: i < 3 ->
#if MUTATE == 1
     atomic { LOOK(p); look = was0 };
     atomic { was0 = look; was1 = look; filled = filled | BIT(i); event(p, BIT(i), false, false) };
#else
     if :: expires = true :: true fi;               /* rule 13 */
     atomic {
       LOOK(p); filled = filled | BIT(i); event(p, BIT(i), false, expires);
#if MUTATE == 16
       claim = (expires -> claim & BIT(i) : claim);
#endif
       expires = false
     };
#endif
     SENDER_MOVES(r)
  :: else ->                                       /* rule 5 */
     atomic {
       filled = filled | BIT(i);
       leaf[LEAF(i) + p] = leaf[LEAF(i) + p] | BIT(i - 3);
#if MUTATE == 19
       completes = (leaf[LEAF(i) + p] == FULL(LEAF(i)));
#else
       completes = (leaf[LEAF(i) + p] == FULL(LEAF(i)) && !alone[LEAF(i) + p]);
#endif
       claim = (alone[LEAF(i) + p] -> BIT(i) : 0)
     };
#if MUTATE == 10
     completes = true;
#endif
     if
     :: completes -> completes = false;
        atomic { LOOK(2 + p); event(2 + p, (i < 5 -> 1 : 2), false, false) }
#if MUTATE == 11
     :: !completes && TRIGGER(2 + p, GROUP0) -> claim = BIT(i)
#endif
     :: else
     fi;
     SENDER_MOVES(r)
  fi
}
proctype thread(byte first, second; bool holds) {  /* an application thread: two partitions a round */
  byte r, p, i, claim; bool completes;
#if MUTATE == 1
  bool look;
#else
  bool expires;
#endif
  for (r : 1 .. ROUNDS) {
    started == r;
    if
    :: holds -> seen == r                          /* early bird: Pready(2) comes only after Parrived(0) */
    :: true
    fi;
    i = first;
    do
    :: pready(i, r); if :: i == first -> i = second :: else -> break fi
    od;
    i = 0
  }
}
inline expire_word(x, r) {                         /* rule 6 */
  atomic {
    fits = (tag[x] == r);
#if MUTATE == 5
  };
  atomic {
#endif
    if
    :: fits -> LOOK(x); event(x, 0, false, true)
    :: else
    fi;
    fits = false
  }
}
inline expire_leaf(l, r) {       /* its root has expired: rule 14 */
  fits = (tag[2 + (r & 1)] == r && open[2 + (r & 1)]);
  atomic {
#if MUTATE == 20
    fits = true;
#endif
    if
#if MUTATE == 17
    :: fits && tag[2 + (r & 1)] == r && !alone[l + (r & 1)] ->
#else
    :: fits && tag[2 + (r & 1)] == r && !alone[l + (r & 1)] && leaf[l + (r & 1)] != FULL(l) ->
#endif
       alone[l + (r & 1)] = true; claim = leaf[l + (r & 1)] << 3
    :: else
    fi;
    fits = false
  }
}
#if !defined(ASKED) && REFUSED != 3
proctype expirer() {                               /* a deadline: may or may not expire, at any moment */
  byte r, p, x, claim; bool fits;
  for (r : 1 .. ROUNDS) {
    started >= r;
    p = r & 1;
    if :: x = p :: x = 2 + p :: x = 4 fi;
    if
    :: x == 4                                      /* not this time */
    :: else -> expire_word(x, r); SENDER_MOVES(r)
    fi;
#if !REFUSED
    if
    :: x == 2 + p -> expire_leaf(0, r); SENDER_MOVES(r)
    :: else
    fi
#endif
  }
}
#endif
inline clear(x, t) { ready[x] = 0; open[x] = false; expired[x] = false; tag[x] = t }
proctype sender() {
  byte r, q, t;
#if REFUSED == 3
  byte its, claim;
#endif
  for (r : 1 .. ROUNDS) {
#if MUTATE == 3
    t = r;
#else
    t = r + 1;
#endif
    q = t & 1;
    atomic { clear(q, t) };                        /* MPI_Start: rule 7 */
    atomic { clear(2 + q, t); leaf[q] = 0; leaf[2 + q] = 0; alone[q] = false; alone[2 + q] = false };
    started = r;
#if MUTATE == 12
    filled == ALL;
#elif REFUSED == 3 && MUTATE != 23
    do                                             /* rule 17 */
    :: moved_count >= r * S -> break
    :: delegated ? its, claim -> pack(its); its = 0
    od;
#else
    moved_count >= r * S;                          /* MPI_Wait: rule 10 */
#endif
    assert(filled == ALL);
    filled = 0                                     /* the application writes its buffer */
  }
}
proctype receiver() {
  byte r, p, claim;
#if REFUSED == 3
  byte its;
#endif
  for (r : 1 .. ROUNDS) {
    p = r & 1;
#if MUTATE == 7
    r_round = r;
#else
    atomic { r_round = r; arrived = 0 };           /* MPI_Start: marks of r - 1 are none of r: rule 8 */
#endif
    atomic { LOOK(p); event(p, 0, true, false) };
#if MUTATE != 4
    RECEIVER_MOVES(r);
#endif
    atomic { LOOK(2 + p); event(2 + p, 0, true, false) };
    RECEIVER_MOVES(r);
#if MUTATE == 7
    arrived = 0;
#endif
#if REFUSED == 3 && MUTATE != 24
    do                                             /* rule 17 */
    :: moved_count >= r * S && seen == r -> break
    :: packed ? its, claim -> unpack(its); its = 0
    od;
#endif
    moved_count >= r * S && seen == r;             /* sits in a native call meanwhile; then joins the observer */
    assert(here == ALL && arrived == ALL);
    atomic { r_round = 0; here = 0 }               /* the application writes its buffer */
  }
}
proctype observer() {                              /* an application thread in MPI_Parrived(0) */
  byte r;
#ifdef ASKED
  byte p, claim; bool fits;
#endif
#if REFUSED == 3
  byte its, claim;
#endif
  for (r : 1 .. ROUNDS) {
    r_round == r;
#if REFUSED == 3
    do                                             /* rule 17 */
    :: (arrived & J0) == J0 -> break
    :: packed ? its, claim -> unpack(its); its = 0
    od;
#endif
#ifdef ASKED
    p = r & 1;
    do
    :: (arrived & J0) == J0 -> break
#if MUTATE == 21
    :: (leaf[p] & 1) && !expired[2 + p] -> expire_word(2 + p, r); RECEIVER_MOVES(r)
#else
    :: (leaf[p] & 1) && !alone[p] && (!expired[2 + p] || open[2 + p]) ->     /* rule 15 */
#if MUTATE != 18
       expire_word(2 + p, r); RECEIVER_MOVES(r);
#endif
       expire_leaf(0, r); RECEIVER_MOVES(r)
#endif
    od;
#endif
    atomic { r_round == r && (arrived & J0) == J0 -> assert((here & J0) == J0); seen = r }
  }
}
#if REFUSED == 1 || REFUSED == 2
proctype helper() {                                /* of the process that may move: rule 12 */
  byte r, claim;
end:
  do
  :: delegated ? r, claim ->
#if MUTATE == 14
     claim = filled & ~here;
#endif
     copy(r);
#if MUTATE != 15
     mark_moved();
#endif
     claim = 0; r = 0
  od
}
#endif
init {
  atomic {
    tag[1] = 1; tag[3] = 1;
#ifdef ASKED
    run thread(0, 3, false); run thread(4, 1, true); run thread(2, 5, false);
#else
    run thread(0, 3, false); run thread(4, 1, false); run thread(2, 5, true);
#if REFUSED != 3
    run expirer();
#endif
#endif
    run sender(); run receiver(); run observer();
#if REFUSED == 1 || REFUSED == 2
    run helper()
#endif
  }
}
