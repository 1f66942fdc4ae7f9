/* A side that can't go on: nobody gets its buffer back while somebody may still store into it. Two sides, two movers on one, one on the
 * other; a mover may find that it can't move.
 *
 *  1. Who enters a side that is shut moves nothing.
 *  2. A side that gives up shuts itself; who leaves it last (or shuts it empty) sends FAIL, once.
 *  3. Who gets FAIL shuts its side and answers likewise.
 *  4. A side reports the failure only when it is quiet itself and has had the other's FAIL.
 *
 * Checked: no mover of either side moves after a side has reported; when one side fails both report.
 *
 * @cc -DCOLLAPSE
 * @model quiet
 * @mutant 1 rule 2: FAIL is sent at once, not by the last one to leave => moving
 * @mutant 2 rule 4: a side reports without the other's FAIL => moving
 * @mutant 3 rule 1: a mover looks, then enters: two steps => reported
 * @unreached helper -end-
 */
#ifndef MUTATE
#define MUTATE 0
#endif
byte movers[2]; bool shut[2]; bool told[2]; bool peer_quiet[2]; bool failed[2]; bool reported[2];
byte moving = 0;
chan to[2] = [3] of { bit };
inline tell(s) { if :: told[s] :: else -> told[s] = true; to[1 - s] ! 1 fi }
inline shut_up(s) { d_step { shut[s] = true; q = (movers[s] == 0) } if :: q || MUTATE == 1 -> tell(s) :: else fi }
inline leave(s) { d_step { movers[s]--; q = (movers[s] == 0 && shut[s]) } if :: q -> tell(s) :: else fi; q = false }
proctype mover(bit s) { bool in; bool q;
#if MUTATE == 3
  in = !shut[s]; movers[s]++;
#else
  d_step { in = !shut[s]; movers[s]++ }
#endif
  if
  :: in ->
    if
    :: moving++; assert(!reported[0] && !reported[1]); moving--
    :: failed[s] = true; d_step { shut[s] = true; q = false }
#if MUTATE == 1
       tell(s)
#endif
    fi
  :: else
  fi;
  leave(s)
}
proctype helper(bit s) { bool q; bit x;
  end: to[s] ? x; failed[s] = true; peer_quiet[s] = true; shut_up(s); goto end }
proctype waiter(bit s) { bool q;
  /* polls only while something may still change: a wait without end shows */
  end: failed[s]; shut_up(s);
  ((MUTATE == 2 || peer_quiet[s]) && shut[s] && movers[s] == 0);
  d_step { reported[s] = true; assert(moving == 0) }
  }
init { atomic { run mover(0); run mover(0); run mover(1); run helper(0); run helper(1); run waiter(0); run waiter(1) } }
