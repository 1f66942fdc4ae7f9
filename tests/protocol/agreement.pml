/* The agreement in MPI_Init: the ranks of a world decide together whether Larklane carries their messages. An AND over a tree of control
 * connections. The yes of round 1 is final, unless a wire needs a communicator of the MPI (ROUNDS=2): then round 2 asks whether it could be
 * made everywhere. Ranks 0 - 1 - 2 are a chain with the root 0; with RANKS=4 rank 3 is a second child of the root.
 *
 *  1. A rank sends yes to its parent when it agrees and each child has said yes. The root's yes is the final answer.
 *  2. Before its yes a rank may say no alone: at a deadline, for other options, if its parent or the root has no address or refuses
 *     the connection. So each rank that waits for an answer knows that the root runs Larklane. It looks for the root once: the root may end
 *     between that look and the yes.
 *  3. After its yes a rank waits for the answer without a time limit. It never decides alone.
 *  4. If the connection to the parent ends after the yes, the rank asks the root. The root answers when it has decided, not before.
 *  5. If the root is gone, too, the rank aborts the job.
 *  6. A rank passes its answer to each connected child. A child that votes later finds the answer no.
 *  7. A connection that ends before the child's vote counts as no, unless this rank has said yes.
 *  8. Votes and questions are handled by the helper thread: the calling thread may be inside the native MPI_Comm_dup, which waits for
 *     ranks that still wait for an answer.
 *  9. Of two rounds: after the yes of round 1 each live rank calls MPI_Comm_dup, even if it has learned a no of round 2 already. Its failure on a rank is that rank's no in round 2.
 * 10. A rank keeps its listener until all ranks have decided: until the native MPI_Finalize returns, which synchronises them.
 *
 * Faults, one in a run (with TWO, a death or a lost connection beside another one): one rank runs without Larklane, or disagrees, or meets its deadline, or fails to make the communicator; at any step one rank dies,
 * or a connection is lost with the records on it. A rank may be slow to start: each step may come at any time.
 *
 * Checked: no two ranks decide differently in a round, the dead included; each live rank decides, or the job is aborted; a job is aborted
 * only if the root has died; without a fault the answer is yes.
 *
 * @cc -DCOLLAPSE
 * @model chain
 * @model chain_rounds -DROUNDS=2
 * @soak chain_two -DTWO
 * @soak chain_rounds_two -DROUNDS=2 -DTWO
 * @soak tree -DRANKS=4
 * @soak tree_rounds -DROUNDS=2 -DRANKS=4
 * @mutant 1 rule 3: a deadline passes after the yes, and the rank goes native => outcome
 * @mutant 2 rule 4: the connection to the parent ends, and the rank goes native => outcome
 * @mutant 3 rule 4: an undecided root answers no => outcome
 * @mutant 4 rule 4: the end of the connection to the parent is not noticed => deadlock
 * @mutant 5 rule 6: a rank that says no alone does not pass it to its children => deadlock
 * @mutant 6 rule 6: a vote that comes after the decision gets no answer => deadlock
 * @mutant 7 rule 1: a rank says yes before its child has voted => said[s]
 * @mutant 8 -DROUNDS=2 rule 8: the calling thread answers questions, when it is not inside the MPI => deadlock
 * @mutant 9 rule 10: a rank closes its listener when it has decided => dead[0]
 * @mutant 10 -DROUNDS=2 rule 9: a rank whose communicator failed goes native without a second vote => deadlock
 * @mutant 11 -DROUNDS=2 rule 7: a connection that ends without a vote is not noticed => deadlock
 * @mutant 12 rule 5: the root is gone, and the rank waits => deadlock
 * @mutant 13 rule 2: a rank that has said no alone counts later votes, and sends its yes => deadlock
 * @mutant 14 rule 2: a rank says yes to a parent although the root has no address => deadlock
 * @mutant 15 -DROUNDS=2 rule 9: a rank with a no of round 2 leaves out MPI_Comm_dup => deadlock
 * @unreached helper -end-
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#ifndef RANKS
#define RANKS 3
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#define NONE 0
#define YES 1
#define NO 2
#define PARENT(s) ((s) == 2 -> 1 : 0)
#define ENDED(c) (cut[c] || dead[c] || dead[PARENT(c)] || left[c] || left[PARENT(c)])
#define HAS_CHILDREN_VOTES(s) (MUTATE == 7 || ((s) == 0 -> voted[1] && (RANKS < 4 || voted[3]) : (s) != 1 || voted[2]))
#define IS_OWNED_OR_NATIVE(s) (answer[s] == NO || (answer[s] == YES && round[s] == ROUNDS + 1))
#define IS_OVER(s) (!present[s] || dead[s] || IS_OWNED_OR_NATIVE(s))
#if RANKS > 3
#define DEAD (dead[0] + dead[1] + dead[2] + dead[3])
#else
#define DEAD (dead[0] + dead[1] + dead[2])
#endif

chan up[RANKS] = [2] of { byte };                  /* votes of a child, on its connection */
chan down[RANKS] = [2] of { byte };                /* answers of its parent */
chan questions = [RANKS] of { byte, byte };        /* to the root: rank, round */
chan replies[RANKS] = [1] of { byte };

bool present[RANKS], agrees[RANKS], listening[RANKS], connected[RANKS], cut[RANKS], dead[RANKS], left[RANKS];
byte round[RANKS], answer[RANKS];
bool own[RANKS], fails[RANKS], said[RANKS], voted[RANKS], asked[RANKS];
byte waiting[RANKS];                               /* at the root: the round that a rank asked about too early */
byte outcome[3];                                   /* of a round, of the rank that decided first */
byte finals[3];                                    /* the root's answers */
byte entered;                                      /* ranks inside MPI_Comm_dup, or past it */
byte late, unmade;                                 /* the rank whose deadline may pass; whose MPI_Comm_dup fails */
bool aborted, fault;

inline to_child(c, d) {
  if
  :: connected[c] && !ENDED(c) -> down[c] ! d
  :: else
  fi
}
inline pass_on(s, d) {
  if
  :: s == 0 -> to_child(1, d)
#if RANKS > 3
     ; to_child(3, d)
#endif
  :: s == 1 -> to_child(2, d)
  :: else
  fi
}
inline reply(c, d) {
  if
  :: waiting[c] && waiting[c] == round[0] -> replies[c] ! d; waiting[c] = 0
  :: else
  fi
}
inline decide(s, d) {
  assert(outcome[round[s]] == NONE || outcome[round[s]] == d);
  assert(d == YES || fault);
  outcome[round[s]] = d;
  answer[s] = d;
  if
  :: s == 0 -> finals[round[0]] = d; reply(1, d); reply(2, d)
#if RANKS > 3
     ; reply(3, d)
#endif
  :: else
  fi;
#if MUTATE == 5
  if
  :: d == NO && !said[s]
  :: else -> pass_on(s, d)
  fi;
#else
  pass_on(s, d);
#endif
  if
  :: d == YES -> round[s]++; own[s] = false; said[s] = false; asked[s] = false; voted[s] = false;
     if
     :: s == 0 -> voted[1] = false
#if RANKS > 3
        ; voted[3] = false
#endif
     :: s == 1 -> voted[2] = false
     :: else
     fi;
#if ROUNDS > 1
     if
     :: round[s] <= ROUNDS -> answer[s] = NONE
     :: else
     fi
#endif
  :: else
  fi
}
#define CAN_VOTE(s) (own[s] && !said[s] && HAS_CHILDREN_VOTES(s) && (answer[s] == NONE || MUTATE == 13))
#define WAITS(s) (answer[s] == NONE && said[s])    /* for its parent's answer */
#if MUTATE == 14
#define REFUSES(s) ((!listening[s] || dead[s] || left[s]) && s != 0)
#else
#define REFUSES(s) (!listening[s] || dead[s] || left[s])
#endif
#define LACKS(c) (present[c] && connected[c] && ENDED(c) && empty(up[c]) && !voted[c])

inline on_vote(c) {
  up[c] ? d;
  if
  :: answer[s] == NO && MUTATE != 13 ->
#if MUTATE != 6
     to_child(c, NO);
#endif
     d = NONE
  :: d == NO && answer[s] == NONE -> assert(!said[s]); alone = true
  :: else -> voted[c] = true; d = NONE
  fi
}
inline act() {
  if
  :: d == NONE && CAN_VOTE(s) ->                   /* rule 1 */
     if
     :: s == 0 -> d = YES
     :: s != 0 && (REFUSES(0) || (!connected[s] && REFUSES(PARENT(s)))) ->
        fault = true; alone = true; d = NO         /* refused */
     :: s != 0 && listening[0] && REFUSES(0) && (connected[s] || !REFUSES(PARENT(s))) ->
        said[s] = true; sends = YES                /* it has found the root, which has ended since */
     :: else -> said[s] = true; sends = YES
     fi
  :: else
  fi;
  if
  :: d != NONE && answer[s] == NONE -> decide(s, d);
     if
     :: alone && s != 0 && present[PARENT(s)] && listening[PARENT(s)] -> sends = NO
     :: else
     fi
  :: else
  fi;
  if
  :: sends != NONE && (!connected[s] || !ENDED(s)) -> connected[s] = true; up[s] ! sends
  :: else                                          /* what is sent is lost */
  fi;
  d = NONE; sends = NONE; alone = false; c = 0
}
proctype helper(byte s) {
  byte d, c, sends; bool alone;
  {
end:
    do
    :: atomic {
         if
         :: own[s] && answer[s] == NONE && !said[s] && HAS_CHILDREN_VOTES(s)
         :: fails[s] -> fails[s] = false; alone = true; d = NO
         :: s == 0 && listening[0] && nempty(up[1]) -> on_vote(1)
         :: s == 1 && listening[1] && nempty(up[2]) -> on_vote(2)
#if RANKS > 3
         :: s == 0 && listening[0] && nempty(up[3]) -> on_vote(3)
#endif
#if MUTATE != 11
         :: answer[s] == NONE && !said[s] && ((s == 0 && (LACKS(1) || (RANKS > 3 && LACKS(RANKS - 1)))) || (s == 1 && LACKS(2))) ->
            fault = true; alone = true; d = NO     /* rule 7 */
#endif
         :: (fault || late == s) && listening[s] && answer[s] == NONE && round[s] == 1 && !said[s] -> fault = true; alone = true; d = NO   /* deadline */
#if MUTATE == 1
         :: (fault || late == s) && answer[s] == NONE && round[s] == 1 && said[s] -> fault = true; d = NO
#endif
         :: s != 0 && nempty(down[s]) -> down[s] ? d
         :: nempty(replies[s]) -> replies[s] ? d
#if MUTATE == 2
         :: s != 0 && WAITS(s) && ENDED(s) && empty(down[s]) -> d = NO
#elif MUTATE != 4
         :: s != 0 && WAITS(s) && !asked[s] && ENDED(s) && empty(down[s]) && !dead[0] && !left[0] -> asked[s] = true; questions ! s, round[s]
#endif
#if MUTATE != 12
         :: s != 0 && WAITS(s) && ENDED(s) && empty(down[s]) && empty(replies[s]) && (dead[0] || left[0]) -> assert(dead[0]); aborted = true
#endif
#if MUTATE == 8
         :: s == 0 && (round[0] == 1 || own[0]) && nempty(questions) ->
#else
         :: s == 0 && nempty(questions) ->
#endif
            questions ? c, d;
            if
            :: finals[d] != NONE -> replies[c] ! finals[d]
            :: else ->
#if MUTATE == 3
               replies[c] ! NO
#else
               waiting[c] = d
#endif
            fi; d = NONE
         fi;
         act() }
    od
  } unless { dead[s] || left[s] || aborted }
}
proctype caller(byte s) {                          /* the thread inside MPI_Init */
  {
    atomic { listening[s] = true;
      if
      :: agrees[s] -> own[s] = true
      :: else -> fails[s] = true
      fi };
    (answer[s] == NO || round[s] >= 2);
#if ROUNDS > 1
    if
#if MUTATE == 15
    :: answer[s] == NO
    :: round[s] == 2 && answer[s] != NO ->
#else
    :: round[s] == 1
    :: round[s] >= 2 ->
#endif
                             /* MPI_Comm_dup: returns when all have entered; no rank waits for a dead one */
       entered++;
       (entered + DEAD >= RANKS);
       if
       :: atomic { unmade != s && answer[s] == NONE -> own[s] = true }
#if MUTATE == 10
       :: atomic { unmade == s && answer[s] == NONE -> fault = true; answer[s] = NO; assert(outcome[2] != YES); outcome[2] = NO }
#else
       :: atomic { unmade == s && answer[s] == NONE -> fault = true; fails[s] = true }
#endif
       :: answer[s] != NONE
       fi;
       answer[s] != NONE
    fi;
#endif
#if MUTATE != 9
    (IS_OVER(0) && IS_OVER(1) && IS_OVER(2) && (RANKS < 4 || IS_OVER(RANKS - 1)));   /* the program, up to MPI_Finalize */
#endif
    left[s] = true
  } unless { dead[s] || aborted }
}
proctype fate() {
  byte c;
  if
  :: c = 0
  :: c = 1
  :: c = 2
#if RANKS > 3
  :: c = 3
#endif
  fi;
  if
  :: atomic { present[c] && !left[c] && !aborted -> fault = true; dead[c] = true }
  :: atomic { c != 0 && connected[c] -> fault = true; cut[c] = true;    /* lost, with the records on it */
       do
       :: up[c] ? _
       :: empty(up[c]) -> break
       od;
       do
       :: down[c] ? _
       :: empty(down[c]) -> break
       od }
  :: true
  fi
}
init {
  byte s;
  atomic {
    for (s : 0 .. RANKS - 1) { present[s] = true; agrees[s] = true; round[s] = 1 };
    late = RANKS; unmade = RANKS;
    if
    :: s = 0
    :: s = 1
    :: s = 2
#if RANKS > 3
    :: s = 3
#endif
    fi;
    if
    :: present[s] = false; fault = true; outcome[1] = NO
    :: agrees[s] = false; fault = true
    :: late = s
#if ROUNDS > 1
    :: unmade = s
#endif
    :: true
    fi;
    for (s : 0 .. RANKS - 1) {
      if
      :: present[s] -> run helper(s); run caller(s)
      :: else
      fi
    };
#ifndef TWO
    if
    :: fault || unmade < RANKS                     /* has its fault already */
    :: else -> run fate()
    fi;
#else
    run fate();
#endif
    s = 0
  }
}
