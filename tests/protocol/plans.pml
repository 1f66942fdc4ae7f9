/* The groups of a round may be other ones than those of the round before. Direct mode, one channel, one word with partitions 0 and 1,
 * which are one group or two; both sides have to take them for the same in every round.
 *
 *  1. The sender's Start(r) chooses the groups of round r + 1, with the words of that round, before any Pready of round r.
 *  2. There are two places in shared memory, by round parity: while round r + 1 is planned the receiver may still have to read round r's.
 *  3. The receiver's Start(r) reads the place of r, then opens the words; it never looks there again in that round.
 *  4. The sender goes by what it wrote, the receiver by what it has read.
 *
 * The places are plain memory, written and read piece by piece. No mark of their own says that one is whole: the receiver reaches Start(r)
 * only after round r - 1 is complete, hence after some Pready of r - 1; the sender writes the place of r again in Start(r + 1), after round r is
 * complete, hence after the receiver has opened its word.
 *
 * Checked: the receiver never reads while the sender writes and finds the groups of this very round; a partition is copied exactly once a
 * round, together with its group; nobody waits for ever.
 *
 * @model two_places
 * @mutant 1 rule 1: Start(r) chooses the groups of round r => writing
 * @mutant 2 rule 2: one place for all rounds => writing
 * @mutant 3 rule 1: the groups of round r + 1 are written when threads may already mark round r => writing
 * @mutant 4 rule 3: the receiver looks there again after it has opened the words => writing
 * @mutant 5 rule 4: the receiver goes by the groups of the round before => deadlock
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#ifndef ROUNDS
#define ROUNDS 4
#endif
#define ALL 3
#define BIT(i) (1 << (i))
#if MUTATE == 2
#define PLACE(r) 0
#else
#define PLACE(r) ((r) & 1)
#endif

/* shared memory */
byte ready[2];
bool open[2];
bool together[2], again[2];                        /* the place of a plan: two pieces of memory that hold the same */
byte moved_count;

/* what the sides and the checker know */
bool own[2];                                       /* the sender's groups, by parity: one of both partitions? */
byte started, r_round, here, filled;
bool writing[2];
bool planned[ROUNDS + 2];

#define GROUP_OF(i, one) ((one) -> ALL : BIT(i))

inline choose(r) {
  if
  :: own[(r) & 1] = true
  :: own[(r) & 1] = false
  fi;
  planned[r] = own[(r) & 1];
  writing[PLACE(r)] = true;
  together[PLACE(r)] = own[(r) & 1];
  again[PLACE(r)] = own[(r) & 1];
  writing[PLACE(r)] = false
}
inline copy(r) {
  if
  :: claim ->
     atomic {
       assert(r_round == r && (filled & claim) == claim);
       assert((here & claim) == 0);                /* exactly once */
       here = here | claim
     };
     moved_count = moved_count + (claim & 1) + (claim >> 1);
     claim = 0
  :: else
  fi
}
proctype thread(byte i) {
  byte r, claim, group;
  for (r : 1 .. ROUNDS) {
    started == r;
    atomic {                                       /* Pready */
      group = GROUP_OF(i, own[r & 1]);
      filled = filled | BIT(i);
      ready[r & 1] = ready[r & 1] | BIT(i);
      claim = ((open[r & 1] && (ready[r & 1] & group) == group) -> group : 0)
    };
    copy(r)
  }
}
proctype sender() {
  byte r;
  for (r : 1 .. ROUNDS) {                          /* MPI_Start */
#if MUTATE == 1
    choose(r);
#elif MUTATE != 3
    choose(r + 1);
#endif
    atomic { ready[(r + 1) & 1] = 0; open[(r + 1) & 1] = false };
    started = r;
#if MUTATE == 3
    choose(r + 1);
#endif
    atomic { moved_count >= 2 * r -> assert(filled == ALL); filled = 0 }
  }
}
inline read_plan(r) {
  assert(!writing[PLACE(r)]);
  one = together[PLACE(r)];
  assert(!writing[PLACE(r)] && one == again[PLACE(r)] && one == planned[r])
}
proctype receiver() {
  byte r, claim; bool one, last;
  for (r : 1 .. ROUNDS) {
    r_round = r;
    read_plan(r);
#if MUTATE == 5
    atomic { one = last; last = together[PLACE(r)] };
#endif
    atomic {                                       /* MPI_Start */
      open[r & 1] = true;
      claim = ((one) -> (ready[r & 1] == ALL -> ALL : 0) : ready[r & 1])
    };
#if MUTATE == 4
    read_plan(r);
#endif
    copy(r);
    atomic { moved_count >= 2 * r -> assert(here == ALL); r_round = 0; here = 0 }
  }
}
init {
  atomic { run thread(0); run thread(1); run sender(); run receiver() }
}
