/* Slots: small partitions travel through library memory. One channel, two Pready threads, three readers on the receiver's side
 * (two in the model with pushes).
 *
 *  1. There is one slot and one mark per partition and round parity. Start clears no mark.
 *  2. The mark of round r is a value of its own among the rounds of its parity (here r; in the code the lowest byte of r).
 *  3. Pready copies the partition into its slot, then stores the round's mark.
 *  4. The send completes round r when all its partitions are marked and the receiver has said that round r - 1 is read: so when
 *     Start(r + 1) writes into parity (r + 1) & 1, round r - 1 has been consumed.
 *  5. The receiver's Start(r) sets its round number; it clears nothing, neither claims nor arrival marks.
 *  6. A reader (a thread in Parrived or Wait) reads the round r, then the marks of r's parity, one by one; ready is what has the mark of r.
 *  7. It claims ready and unclaimed bits by one compare-and-swap on the claim word, which gets the tag r: of two readers one wins. A claim
 *     word of r - 1 is one of r without claims, and for a straggler of an older round there is nothing to claim.
 *  8. Who has claimed copies out, then stores r as the arrival mark of what it copied.
 *  9. The receive completes round r when all arrival marks are r; then it says so to the sender. Parrived(j) is true if the request is
 *     inactive, or the arrival mark of j is r.
 * 10. If the receiver's Start(r) has said so, Pready may push instead: copy into the receive buffer, then set the arrival mark. The
 *     ready mark gets a value that no round has as its own (here PUSHED; in the code r ^ 1, of the other
 *     parity), which counts as marked in rule 4 only.
 * 11. When a round is complete the receiver writes its tag into the claim word, if no reader has.
 *
 * Checked: a partition is copied out exactly once a round, into an active round, with that round's data; Parrived is true only when the
 * data is there; nobody waits for ever. The other readers look a few times, whenever they like, and then never again: the receiver's
 * own Wait must be enough. They may stop between any two steps, so they become stragglers of rounds long gone.
 *
 * @cc -DCOLLAPSE
 * @model slots
 * @model pushed -DMAY_PUSH=1 -DROUNDS=3 -DREADERS=1
 * @mutant 1 rule 3: Pready marks, then copies => slot[
 * @mutant 2 rule 4: the send completes when its partitions are marked, consumed or not => slot[
 * @mutant 3 rule 7: a claim word of any other round is one without claims => round == r
 * @mutant 4 rule 7: a reader looks at the claim word, then writes it: two steps => data[1] == 0
 * @mutant 5 rule 6: any mark will do, of any round => slot[
 * @mutant 6 rule 8: the arrival mark, then the copy => data[0] == r
 * @mutant 7 rule 7: claims of round r - 1 count in round r => deadlock
 * @mutant 8 rule 1: Start(r) clears the marks of round r + 1 => deadlock
 * @mutant 9 rule 9: an arrival mark of any round will do => data[0] == r
 * @mutant 10 rule 9: the receiver says that a round is read when all of it has been claimed => slot[
 * @mutant 11 -DMAY_PUSH=1 rule 10: Pready pushes before the receiver's Start => in_round
 * @mutant 12 -DMAY_PUSH=1 rule 10: a push sets the arrival mark, then copies => data[0] == r
 * @mutant 13 -DMAY_PUSH=1 rule 10: a push leaves the round's own mark on the slot => data[1] == 0
 * @mutant 14 -DMAY_PUSH=1 rule 11: the claim word keeps the tag of a round in which all was pushed => deadlock
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#ifndef ROUNDS
#define ROUNDS 4
#endif
#ifndef MAY_PUSH
#define MAY_PUSH 0
#endif
#ifndef READERS
#define READERS 2
#endif
#ifndef LOOKS
#define LOOKS 1
#endif
#define S 2
#define ALL 3
#define BIT(i) (1 << (i))

/* shared memory */
byte mark[4];                                      /* 2 * partition + parity: the round that it was set in */
byte slot[4];                                      /* 2 * partition + parity: the round whose data it holds */
byte arrived[2];                                   /* the round whose data has arrived */
byte told;                                         /* the last round that has been read */
byte opened;                                       /* the last round that the receiver has started */

/* the sender */
byte started, marked;

/* the receiver */
byte claim_bits, claim_tag;
byte round;                                        /* last round started */
bool in_round;                                     /* between Start and completion: for the checker */
bool live;                                         /* the request is active */
byte data[2];                                      /* the receive buffer: the round whose data it holds */

#if MAY_PUSH
#define PUSHED 100
#if MUTATE == 11
#define IS_OPEN true
#else
#define IS_OPEN (opened == r)
#endif
inline push() {                                    /* rule 10 */
  assert(in_round && round == r);
#if MUTATE == 12
  arrived[i] = r;
#endif
  assert(data[i] == 0);
  data[i] = r;
  atomic {
#if MUTATE == 13
    mark[2 * i + (r & 1)] = r;
#else
    mark[2 * i + (r & 1)] = PUSHED;
#endif
    marked = marked | BIT(i)
  }
  arrived[i] = r
}
#endif
proctype thread(byte i) {                          /* MPI_Pready(i) in every round */
  byte r;
  for (r : 1 .. ROUNDS) {
    started == r;
    if
#if MAY_PUSH
    :: IS_OPEN -> push()
#endif
    :: true ->
#if MUTATE != 1
       slot[2 * i + (r & 1)] = r;                  /* rule 3 */
#endif
       atomic { mark[2 * i + (r & 1)] = r; marked = marked | BIT(i) }
#if MUTATE == 1
       ; slot[2 * i + (r & 1)] = r
#endif
    fi
  }
}
proctype sender() {
  byte r;
  for (r : 1 .. ROUNDS) {
#if MUTATE == 8
    atomic { mark[(r + 1) & 1] = 0; mark[2 + ((r + 1) & 1)] = 0 };
#endif
    atomic { marked = 0; started = r };            /* MPI_Start: rule 1 */
#if MUTATE == 2
    marked == ALL
#else
    marked == ALL && told >= r - 1                 /* MPI_Wait: rule 4 */
#endif
  }
}

#if MUTATE == 3
#define MAY_CLAIM(r) true
#else
#define MAY_CLAIM(r) (claim_tag == (r) || claim_tag == (r) - 1)
#endif
#if MUTATE == 7
#define CLAIMS(r) claim_bits
#else
#define CLAIMS(r) (claim_tag == (r) -> claim_bits : 0)
#endif
#if MUTATE == 4
#define UNCHANGED true
#else
#define UNCHANGED claim_tag == tag && claim_bits == bits
#endif
#if MUTATE == 5
#define IS_READY(i, r) (mark[2 * (i) + ((r) & 1)] != 0)
#else
#define IS_READY(i, r) (mark[2 * (i) + ((r) & 1)] == (r))
#endif

inline copy_out(i) {
  if
  :: take & BIT(i) ->
     assert(in_round && round == r);               /* inside the round */
     assert(data[i] == 0);                         /* exactly once */
     assert(slot[2 * i + (r & 1)] == r);           /* this round's data */
     data[i] = r
  :: else
  fi
}
inline arrive() {                                  /* rule 8 */
  if :: take & BIT(0) -> arrived[0] = r :: else fi;
  if :: take & BIT(1) -> arrived[1] = r :: else fi
}
/* rules 6 to 8, for round r */
inline read_slots() {
  take = (IS_READY(0, r) -> BIT(0) : 0);           /* rule 6: two loads */
  take = take | (IS_READY(1, r) -> BIT(1) : 0);
  atomic {                                         /* one load */
    tag = claim_tag; bits = claim_bits;
    take = (MAY_CLAIM(r) -> take & ~CLAIMS(r) : 0)
  };
  if
  :: take ->
     atomic {                                      /* one compare-and-swap */
       if
       :: UNCHANGED -> claim_bits = CLAIMS(r) | take; claim_tag = r
       :: else -> take = 0
       fi;
       tag = 0; bits = 0
     };
     if
     :: take ->
#if MUTATE == 6
        arrive();
#endif
#if MUTATE == 10
        if :: CLAIMS(r) == ALL -> told = r :: else fi;
#endif
        atomic { copy_out(0); copy_out(1) };
#if MUTATE != 6
        arrive();
#endif
        take = 0
     :: else
     fi
  :: else -> tag = 0; bits = 0
  fi
}
#define SOMETHING(r) (MAY_CLAIM(r) && ((IS_READY(0, r) && !(CLAIMS(r) & BIT(0))) || (IS_READY(1, r) && !(CLAIMS(r) & BIT(1)))))

proctype receiver() {
  byte r, tag, bits, take;
  for (r : 1 .. ROUNDS) {
    atomic { in_round = true; round = r; live = true };            /* MPI_Start: rule 5 */
    opened = r;
    do                                             /* MPI_Wait: polls, but here only when it could find something */
    :: arrived[0] == r && arrived[1] == r -> break
    :: (arrived[0] != r || arrived[1] != r) && SOMETHING(r) -> read_slots()
    od;
#if MAY_PUSH && MUTATE != 14
    atomic {                                       /* rule 11 */
      if :: claim_tag != r -> claim_tag = r; claim_bits = ALL :: else fi
    };
#endif
    told = r;                                      /* rule 9 */
    assert(data[0] == r && data[1] == r);
    atomic { live = false; in_round = false; data[0] = 0; data[1] = 0 }        /* the application writes its buffer */
  }
}
#if MUTATE == 9
#define ARRIVED(i) (arrived[i] != 0)
#else
#define ARRIVED(i) (arrived[i] == r)
#endif
proctype reader(byte looks) {                      /* MPI_Parrived(0) in another thread */
  byte r, tag, bits, take, k;
  for (k : 1 .. looks) {
end:                                               /* need not look at all */
    live;
    r = round;                                     /* may be the next one already */
    read_slots();
    atomic {                                       /* rule 9 */
      if
      :: ARRIVED(0) -> assert(!(live && round == r) || data[0] == r)
      :: else
      fi
    }
  }
}
init {
  atomic {
    run thread(0); run thread(1); run sender(); run receiver(); run reader(LOOKS)
#if READERS > 1
    ; run reader(1)
#endif
  }
}
