/* Slots: small partitions travel through library memory. One channel, two Pready threads, three readers on the receiver's side.
 *
 *  1. There is one slot and one mark per partition and round parity. Start clears no mark.
 *  2. The mark of round r is a value of its own among the rounds of its parity (here r; in the code a byte, (r + 1) / 2).
 *  3. Pready copies the partition into its slot, then stores the round's mark.
 *  4. The send completes round r when all its partitions are marked and moved_count >= (r - 1) * S: so when Start(r + 1) writes into
 *     parity (r + 1) & 1, round r - 1 has been consumed.
 *  5. The receiver's Start(r) sets its round number, resets the moved word, then the receiver's own claim word (both tag r), and then the
 *     request is active.
 *  6. A reader (a thread in Parrived or Wait) reads the round r, then the marks of r's parity, one by one; ready is what has the mark of r.
 *  7. It claims ready and unclaimed bits by one compare-and-swap on the claim word with its tag: of two readers one wins, and a
 *     straggler of an old round always fails.
 *  8. Who has claimed copies out, then sets the moved bits, then adds to moved_count (never reset): the count is its last touch.
 *  9. The receive completes round r when moved_count >= r * S. Parrived(j) is true if the request is inactive, or the moved word has the bits
 *     of j, or another tag than r (round r is over).
 *
 * Checked: a partition is copied out exactly once a round, into an active round, with that round's data; Parrived is true only when the
 * data is there; nobody waits for ever. The other readers look a few times, whenever they like, and then never again: the receiver's
 * own Wait must be enough. They may stop between any two steps, so they become stragglers of rounds long gone.
 *
 * @cc -DCOLLAPSE
 * @model slots
 * @mutant 1 rule 3: Pready marks, then copies => slot[
 * @mutant 2 rule 4: the send completes when its partitions are marked, consumed or not => slot[
 * @mutant 3 rule 7: the claim word has no tag => round == r
 * @mutant 4 rule 7: a reader looks at the claim word, then writes it: two steps => data[1] == 0
 * @mutant 5 rule 6: any mark will do, of whatever round => slot[
 * @mutant 6 rule 8: moved_count before the moved bits => moved_bits
 * @mutant 7 rule 5: the claim word is reset before the moved word => moved_bits
 * @mutant 8 rule 1: Start(r) clears the marks of round r + 1 => deadlock
 * @mutant 9 rule 5: the request is active before the moved word has been reset => data[0] == r
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#ifndef ROUNDS
#define ROUNDS 4
#endif
#ifndef LOOKS
#define LOOKS 1
#endif
#define S 2
#define ALL 3
#define BIT(i) (1 << (i))
#define COUNT(m) (((m) & 1) + ((m) >> 1))

/* shared memory */
byte mark[4];                                      /* 2 * partition + parity: the round that it was set in */
byte slot[4];                                      /* 2 * partition + parity: the round whose data it holds */
byte moved_count;

/* the sender */
byte started, marked;

/* the receiver */
byte claim_bits, claim_tag, moved_bits, moved_tag;
byte round;                                        /* last round started */
bool in_round;                                     /* between Start and completion: for the checker */
bool live;                                         /* the request is active */
byte data[2];                                      /* the receive buffer: the round whose data it holds */

proctype thread(byte i) {                          /* MPI_Pready(i) in every round */
  byte r;
  for (r : 1 .. ROUNDS) {
    started == r;
#if MUTATE != 1
    slot[2 * i + (r & 1)] = r;                     /* rule 3 */
#endif
    atomic { mark[2 * i + (r & 1)] = r; marked = marked | BIT(i) }
#if MUTATE == 1
    ; slot[2 * i + (r & 1)] = r
#endif
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
    marked == ALL && moved_count >= (r - 1) * S    /* MPI_Wait: rule 4 */
#endif
  }
}

#if MUTATE == 3
#define HAS_TAG(r) true
#else
#define HAS_TAG(r) (claim_tag == r)
#endif
#if MUTATE == 3
#define CLAIMABLE claim_bits == seen
#elif MUTATE == 4
#define CLAIMABLE true
#else
#define CLAIMABLE claim_tag == r && claim_bits == seen
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
/* rules 6 to 8, for round r */
inline read_slots() {
  take = (IS_READY(0, r) -> BIT(0) : 0);           /* rule 6: two loads */
  take = take | (IS_READY(1, r) -> BIT(1) : 0);
  atomic {                                         /* one load */
    seen = claim_bits;
    take = (HAS_TAG(r) -> take & ~seen : 0)
  };
  if
  :: take ->
     atomic {                                      /* one compare-and-swap */
       if
       :: CLAIMABLE -> claim_bits = seen | take
       :: else -> take = 0
       fi;
       seen = 0
     };
     if
     :: take ->
        atomic { copy_out(0); copy_out(1) };
#if MUTATE == 6
        moved_count = moved_count + COUNT(take);
        atomic { moved_bits = moved_bits | take; take = 0 }
#else
        moved_bits = moved_bits | take;
        atomic { moved_count = moved_count + COUNT(take); take = 0 }
#endif
     :: else
     fi
  :: else -> seen = 0
  fi
}
#define SOMETHING(r) ((IS_READY(0, r) && !(claim_bits & BIT(0))) || (IS_READY(1, r) && !(claim_bits & BIT(1))))

proctype receiver() {
  byte r, seen, take;
  for (r : 1 .. ROUNDS) {
    atomic { in_round = true; round = r };         /* MPI_Start: rule 5 */
#if MUTATE == 9
    live = true;
#endif
#if MUTATE == 7
    atomic { claim_bits = 0; claim_tag = r };
#endif
    atomic { moved_bits = 0; moved_tag = r };
#if MUTATE != 7
    atomic { claim_bits = 0; claim_tag = r };
#endif
    live = true;
    do                                             /* MPI_Wait: polls, but here only when it could find something */
    :: moved_count >= r * S -> break
    :: moved_count < r * S && SOMETHING(r) -> read_slots()
    od;
    assert(data[0] == r && data[1] == r && moved_bits == ALL);
    atomic { live = false; in_round = false; data[0] = 0; data[1] = 0 }        /* the application writes its buffer */
  }
}
proctype reader(byte looks) {                      /* MPI_Parrived(0) in another thread */
  byte r, seen, take, k;
  for (k : 1 .. looks) {
end:                                               /* need not look at all */
    live;
    r = round;                                     /* may be the next one already */
    read_slots();
    atomic {                                       /* rule 9 */
      if
      :: moved_tag != r || (moved_bits & BIT(0)) -> assert(!(live && round == r) || data[0] == r)
      :: else
      fi
    }
  }
}
init {
  atomic {
    run thread(0); run thread(1); run sender(); run receiver(); run reader(LOOKS); run reader(1)
  }
}
