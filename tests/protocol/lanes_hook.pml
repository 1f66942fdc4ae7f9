/* Lanes by tag and the MPI's progress hook (docs/design/protocols/ordinary_messages.md, lanes by tag, rule 8): a thread in a native barrier, whose
 * progress calls the hook with the MPI's own lock held; two threads that poll a lane and match an offer whose bytes the MPI carries; a thread that
 * holds the wide lock and waits for a lane.
 *
 *  7. No call of the MPI is made with a lock of ours held. In the hook each lock is a try; a lane that is missed makes the look no look.
 *
 * Either half prevents the deadlock (instances `tries`, `outside`); the engine has both, for a program's callbacks may hold locks, too.
 *
 * @model both
 * @model tries -DNATIVEINSIDE
 * @model outside -DHOOKBLOCK
 * @mutant 1 -DHOOKBLOCK -DNATIVEINSIDE rule 7: a call of the MPI with a lane's lock held, and a hook that waits for it => deadlock
 */
bool wl, lk[2];                      /* the wide lock, the lanes' */
inline lock(x)   { atomic { !x -> x = true } }
inline unlock(x) { x = false }
bool L;                              /* the MPI's own lock */
proctype InMPI() { lock(L);          /* a native barrier: its progress calls the hook */
  if :: atomic { !wl -> wl = true };
#ifdef HOOKBLOCK
        lock(lk[0]); unlock(lk[0]); lock(lk[1]); unlock(lk[1]);
#else
        if :: atomic { !lk[0] -> lk[0] = true }; unlock(lk[0]) :: lk[0] fi; if :: atomic { !lk[1] -> lk[1] = true }; unlock(lk[1]) :: lk[1] fi;
#endif
        unlock(wl)
  :: wl -> skip fi; unlock(L) }
proctype Polls(byte l) { lock(lk[l]);      /* matches an offer whose bytes the MPI carries: a native Irecv */
#ifdef NATIVEINSIDE
  lock(L); unlock(L); unlock(lk[l])
#else
  unlock(lk[l]); lock(L); unlock(L)
#endif
}
proctype Holder() { lock(wl); lock(lk[0]); unlock(lk[0]); unlock(wl); lock(L); unlock(L) }
init { atomic { run InMPI(); run Polls(0); run Polls(1); run Holder() } }
