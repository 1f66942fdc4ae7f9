/* Lanes by tag, the whole receiving side (docs/design/protocols/ordinary_messages.md): two equal receiver threads, each of which polls, posts,
 * probes and receives; receives that were posted before the communicator went wide; back to exact. One pair, two lanes with a ring of one record
 * each, three messages: thread S0 sends 0, then tells S1, which has sent 1 and now sends 2. So 0 and 1 happened before 2. The tag of message m is
 * lane_of[m]. lanes.pml has the rules that concern one receiver of each kind; here are
 *
 *  1. A push returns only when its record, and all before it in its ring, can be read.
 *  2. A stamp is read in the call, after the caller's last acquire. If the clock is coarse, the push waits until the clock has passed the stamp.
 *  3. Exact mode: the head of a ring moves only after the record is in its lane's table: a ring that looks empty needs no lock.
 *  4. Going wide: the flag, then one lane after the other.
 *  5. A delivered message keeps its place: a receive that follows a probe gets the message that the probe has shown. A poll tries the wide lock,
 *     and the thread that releases it looks at the inbox again: no record is left behind.
 *  6. One backlog flag for the pair, never one a lane.
 *  7. is in lanes_hook.pml.
 *  8. Back to exact only with no wildcard receive, nothing undelivered, and nothing in the inbox; unexpected messages return in order.
 *
 * Instances: `polls` (polls and receives with a wildcard), `probes` (polls, and probes with their receives). Three more have no error in the 33 million
 * states that fit into 1.9 GB, and are not complete: all calls at once (-DPLACED=1), a coarse clock (-DMIN -DPLACED=1 -DCOARSE), and -DSLEEP: all
 * receiving calls end, the receiver's helper wakes only while a ring is not empty, and each message is delivered.
 *
 * @cc -DCOLLAPSE
 * @model polls -DMIN -DPLACED=1
 * @model probes -DPROBES -DPLACED=1
 * @soak polls_other -DMIN -DPLACED=2
 * Unreached in R: branches of inlines for other constants.
 * @unreached S0 (!(blk))
 * @unreached S0 ring[lane_of[0]]!0
 * @unreached S0 flag = 1
 * @unreached S0 lflag
 * @unreached S0 back!0
 * @unreached S0 ((!(flag)
 * @unreached S0 else
 * @unreached S1 (!(blk))
 * @unreached S1 ring[lane_of[1]]!1
 * @unreached S1 flag = 1
 * @unreached S1 lflag
 * @unreached S1 back!1
 * @unreached S1 ((!(flag)
 * @unreached S1 else
 * @unreached Drain -end-
 * @unreached Tick -end-
 * @unreached R list[m] = 1
 * @unreached R D_STEP
 * @unreached R ring[
 * @unreached R ((2==
 * @unreached R else
 * @mutant 1 -DMIN -DPLACED=2 -DTHREE -DCAP=2 -DRESERVE rule 1: a place in the ring is reserved first and written later => dl[0]
 * @mutant 2 -DMIN -DPLACED=1 -DEARLYSTAMP rule 2: the stamp is read before the caller's last acquire => dl[0]
 * @mutant 3 -DMIN -DPLACED=1 -DCOARSE -DNOWAIT rule 2: a push does not wait for a coarse clock => dl[0]
 * @mutant 4 -DMIN -DPLACED=1 -DPEEK rule 3: the head moves before the record is in its table => dl[0]
 * @mutant 5 -DPROBES -DPLACED=2 -DSORTEDUQ rule 5: unexpected messages are sorted by stamp => d==p
 * @mutant 6 -DSLEEP -DNORECHECK rule 5: the inbox is not looked at again after the wide lock is released => dl[0]
 * @mutant 7 -DSLEEP -DLEAVE rule 5: the wide lock is released with an undelivered record => dl[0]
 * @mutant 8 -DMIN -DPLACED=2 -DLANEFLAG rule 6: a backlog flag for each lane => dl[0]
 * @mutant 9 -DPLACED=1 -DBACKDIRTY rule 8: back to exact with a record in the inbox => dl[0]
 */
#ifndef CAP
#define CAP 1
#endif
#define N 3
#define ANY 2
chan ring[2] = [CAP] of { byte };
chan back = [N] of { byte };
chan tab[2] = [N] of { byte };
chan uq = [N] of { byte };           /* unexpected messages, in order of delivery */
byte lane_of[N], stamp[N], clk = 1, nwait, nrecv, ninbox, px[2], prq[4], nprq, seq[N], nseq;
byte list[N];                        /* 0: not there; 1: seen in the last look; 2: seen before it began */
bool flag, lflag[2], blk, told, wide, wl, lk[2], inbox[N], dl[N], rc[N], pub[N], wentback;
inline lock(x)   { atomic { !x -> x = true } }
inline unlock(x) { x = false }
inline read_clock(m) {
#ifdef COARSE
  stamp[m] = clk;
#ifndef NOWAIT
  nwait++; atomic { clk > stamp[m] -> nwait-- };
#endif
#else
  atomic { stamp[m] = clk; clk++ }
#endif
}
#ifdef RESERVE
#define PUSH(m) ring[lane_of[m]]!m
#define PUBLISH(m) pub[m] = true
#else
#define PUSH(m) ring[lane_of[m]]!m; pub[m] = true
#define PUBLISH(m) skip
#endif
#ifdef LANEFLAG
#define FLAG lflag[lane_of[m]]
#else
#define FLAG flag
#endif
inline send(m) {
#ifdef EARLYSTAMP
  if :: m != 2 -> read_clock(m) :: else fi;
#else
  read_clock(m);
#endif
  f = FLAG;
  if
  :: atomic { !f && nfull(ring[lane_of[m]]) -> PUSH(m) }; PUBLISH(m)
  :: else -> lock(blk);
     if
     :: atomic { !FLAG && nfull(ring[lane_of[m]]) -> PUSH(m) }; PUBLISH(m)
     :: else -> flag = true; lflag[lane_of[m]] = true; back!m
     fi; unlock(blk)
  fi;
}
proctype S0() { bool f; send(0); told = true }
proctype S1() { bool f; send(1);
#ifdef EARLYSTAMP
  read_clock(2);
#endif
#ifndef THREE
  told; send(2)
#endif
}
#ifdef THREE
proctype S2() { bool f; told; send(2) }
#define AFTER_1 true
#else
#define AFTER_1 dl[1]
#endif
proctype Drain() {                   /* the sender's helper */
  byte m;
end: do
  :: atomic { nempty(back) && !blk -> blk = true };
     back?<m>;
     if
     :: atomic { nfull(ring[lane_of[m]]) -> PUSH(m); pub[m] = true; back?m };
        if :: empty(back) -> flag = false; lflag[0] = false; lflag[1] = false :: else fi
     :: full(ring[lane_of[m]]) -> skip
     fi; unlock(blk); m = 0
  od
}
#ifdef COARSE
proctype Tick() { end: do :: clk < 2 || nwait > 0 -> clk++ od }
#endif
/* What happened before m is delivered; in exact mode, what happened before it in its lane. */
inline check_wide(m) { assert(!dl[m]); if :: m == 2 -> assert(dl[0] && AFTER_1) :: else fi }
inline check_exact(m) { assert(!dl[m]); if :: m == 2 -> assert((dl[0] || lane_of[0] != lane_of[2]) && (AFTER_1 || lane_of[1] != lane_of[2])) :: else fi }
inline arrived(m) { seq[m] = nseq; nseq++ }
inline deliver_exact(l, m) { d_step { if :: px[l] > 0 -> px[l]--; check_exact(m); dl[m] = true; rc[m] = true; nrecv++ :: else -> tab[l]!m fi; k = 0 } }
/* Takes the records that are in the ring now. to: 0 the tables, 1 the inbox, 2 the list of a look */
inline take(l, to) {
  t = len(ring[l]);
  do
  :: t > 0 -> t--; ring[l]?<m>;
     if
#ifdef RESERVE
     :: !pub[m] -> t = 0             /* reserved and not written: the reader stops here */
     :: pub[m] ->
#else
     :: else ->
#endif
#ifdef PEEK
        ring[l]?m;
#endif
        d_step { arrived(m) };
        if :: to == 2 -> list[m] = 1 :: to == 1 -> d_step { inbox[m] = true; ninbox++ } :: else -> deliver_exact(l, m) fi;
#ifndef PEEK
        ring[l]?m;
#endif
     fi; m = 0
  :: else -> break
  od
}
inline take_inbox() { d_step { k = 0; do :: k < N -> if :: inbox[k] -> inbox[k] = false; list[k] = 1 :: else fi; k++ :: else -> break od; ninbox = 0; k = 0 } }
inline look_lane(l) {
#ifdef PEEK
  if :: empty(ring[l]) -> skip :: nempty(ring[l]) -> lock(lk[l]); take(l, 2); unlock(lk[l]) fi
#else
  lock(lk[l]); take(l, 2); unlock(lk[l])
#endif
}
inline look() {
  skip; d_step { k = 0; do :: k < N -> if :: list[k] == 1 -> list[k] = 2 :: else fi; k++ :: else -> break od; k = 0 };
  look_lane(0); look_lane(1); take_inbox()
}
/* Lanes are merged by their first entries: of each lane the one that left the ring first, of these the least stamp. */
inline before(a, b, r) { r = (stamp[a] < stamp[b] || (stamp[a] == stamp[b] && a > b)) }
inline first_of(l_, x_) { x_ = N; k = 0; do :: k < N -> if :: list[k] && lane_of[k] == l_ -> if :: x_ == N -> x_ = k :: else -> if :: seq[k] < seq[x_] -> x_ = k :: else fi fi :: else fi; k++ :: else -> break od; k = 0 }
inline least(x) {
  first_of(0, x); first_of(1, t);
  if :: t == N :: t < N && x == N -> x = t :: t < N && x < N -> before(t, x, q); if :: q -> x = t :: else fi fi; t = 0; q = false
}
/* A message meets the oldest receive that fits, or goes behind the unexpected ones. */
inline deliver(m_) {
  check_wide(m_); dl[m_] = true; list[m_] = 0; k = 0; do :: k < nprq && prq[k] != ANY && prq[k] != lane_of[m_] -> k++ :: else -> break od;
  if :: k < nprq -> rc[m_] = true; nrecv++; do :: k + 1 < nprq -> prq[k] = prq[k + 1]; k++ :: else -> break od; nprq--; prq[nprq] = 0 :: else -> uq!m_ fi; k = 0
}
inline step() {
  do
  :: look();
     d_step { do :: least(c);
        if :: c < N && list[c] == 2 -> deliver(c) :: else -> break fi
       od; k = 0; least(d); c = 0 };
#ifdef LEAVE
     d = 0; break
#else
     if :: d == N -> d = 0; break :: else -> d = 0 fi
#endif
  od; skip
}
#ifdef SORTEDUQ
inline first(r_, tag_) { r_ = N; k = 0; do :: k < N -> if :: dl[k] && !rc[k] && (tag_ == ANY || tag_ == lane_of[k]) && (r_ == N || stamp[k] < stamp[r_]) -> r_ = k :: else fi; k++ :: else -> break od; k = 0 }
#else
inline first(r_, tag_) { r_ = N; k = len(uq); do :: k > 0 -> uq?q2; if :: r_ == N && (tag_ == ANY || tag_ == lane_of[q2]) -> r_ = q2 :: else fi; uq!q2; k-- :: else -> break od; k = 0; q2 = 0 }
#endif
inline remove(r_) { k = len(uq); do :: k > 0 -> uq?q2; if :: q2 == r_ :: else -> uq!q2 fi; k-- :: else -> break od; k = 0; q2 = 0; rc[r_] = true; nrecv++ }
inline move_tab(l) { k = len(tab[l]); do :: k > 0 -> tab[l]?q2; list[q2] = 1; k-- :: else -> break od; k = 0; q2 = 0; do :: px[l] > 0 -> prq[nprq] = l; nprq++; px[l]-- :: else -> break od }
inline go_wide() { wide = true; lock(lk[0]); d_step { move_tab(0); k = 0 }; unlock(lk[0]); lock(lk[1]); d_step { move_tab(1); k = 0 }; unlock(lk[1]) }
inline turn() {
  do
  :: atomic { !wl -> wl = true }; if :: wide -> step() :: else fi; unlock(wl);
#ifdef NORECHECK
     break
#else
     if :: ninbox > 0 -> skip :: ninbox == 0 -> break fi
#endif
  :: wl -> break
  od
}
inline poll(l) {
  if
  :: atomic { !lk[l] -> lk[l] = true }; w = wide; if :: w -> take(l, 1) :: else -> take(l, 0) fi; unlock(lk[l]);
     if :: w -> w = false; turn() :: else fi
  :: lk[l] -> skip
  fi
}
inline post_exact(l) {
  lock(lk[l]);
  if
  :: !wide -> d_step { if :: nempty(tab[l]) -> tab[l]?m; check_exact(m); dl[m] = true; rc[m] = true; nrecv++; m = 0 :: else -> px[l]++ fi; m = 0 }; unlock(lk[l])
  :: else -> unlock(lk[l]); lock(wl);
     if :: wide -> step(); d_step { first(c, l); if :: c < N -> remove(c) :: else -> prq[nprq] = l; nprq++ fi; c = 0 } :: else fi; unlock(wl)
  fi
}
inline post_any() { lock(wl); if :: !wide -> go_wide() :: else fi; step(); d_step { first(c, ANY); if :: c < N -> remove(c) :: else -> prq[nprq] = ANY; nprq++ fi; c = 0 }; unlock(wl) }
bool alone;                          /* no other thread receives between a probe and its receive */
/* A probe with a wildcard, then a receive of the tag that it has shown: the same message. */
inline probe_recv() {
  lock(wl); if :: !wide -> go_wide() :: else fi; step(); d_step { first(p, ANY) }; unlock(wl);
  if
  :: p < N -> skip;
     lock(lk[lane_of[p]]);
     if
     :: !wide -> d_step { m = N; if :: nempty(tab[lane_of[p]]) -> tab[lane_of[p]]?m :: else fi; assert(m == p); check_exact(p); dl[p] = true; rc[p] = true; nrecv++; m = 0 }; unlock(lk[lane_of[p]])
     :: else -> unlock(lk[lane_of[p]]); lock(wl);
        if :: wide -> step(); d_step { first(d, lane_of[p]); assert(d == p); remove(p); d = 0 } :: else fi; unlock(wl)
     fi
  :: else
  fi; p = 0
}
/* A probe of a tag in exact mode; another thread goes wide; a receive of the tag. */
inline probe_tag(l) {
  lock(lk[l]);
  if
  :: !wide && nempty(tab[l]) -> tab[l]?<d>; unlock(lk[l]); p = d; d = 0;
     lock(wl); if :: !wide -> go_wide() :: else fi; step(); d_step { first(d, l); assert(d == p); remove(d); d = 0; p = 0 }; unlock(wl)
  :: else -> unlock(lk[l])
  fi
}
inline go_exact() {
  lock(wl);
  if
  :: wide -> lock(lk[0]); lock(lk[1]);
     d_step { k = 0; d = 0; do :: k < N -> if :: list[k] || (k < nprq && prq[k] == ANY) -> d = 1 :: else fi; k++ :: else -> break od; k = 0;
#ifndef BACKDIRTY
       if :: ninbox > 0 -> d = 1 :: else fi;
#endif
       if :: !d -> wide = false; wentback = true; k = len(uq); do :: k > 0 -> uq?q2; dl[q2] = false; tab[lane_of[q2]]!q2; k-- :: else -> break od; k = 0; q2 = 0;
                   do :: nprq > 0 -> nprq--; px[prq[nprq]]++; prq[nprq] = 0 :: else -> break od :: else fi; d = 0 };
     unlock(lk[0]); unlock(lk[1])
  :: else
  fi; unlock(wl)
}
#define LOCALS byte c, d, k, m, t, q2, p; bool q, w
inline pick_lane(m) { if :: lane_of[m] = 0 :: lane_of[m] = 1 fi }
#if PLACED == 1                      /* 0 in lane 0; 1 and 2 in lane 1 */
#define PLACE lane_of[1] = 1; lane_of[2] = 1;
#elif PLACED == 2                    /* 0 and 1 in lane 0; 2 in lane 1 */
#define PLACE lane_of[2] = 1;
#else
#define PLACE pick_lane(0); pick_lane(1); pick_lane(2);
#endif
#if defined(SLEEP)
proctype R(byte calls) { LOCALS; do :: calls > 0 -> calls--; if :: poll(0) :: poll(1) fi :: calls == 0 -> break od }     /* then in a native barrier */
proctype Bell() { LOCALS;            /* the receiver's helper */
end: do :: nempty(ring[0]) -> poll(0) :: nempty(ring[1]) -> poll(1) od }
proctype Watch() { timeout; assert(dl[0] && dl[1] && dl[2]) }
init { atomic { wide = true; prq[0] = ANY; prq[1] = ANY; prq[2] = ANY; nprq = 3; PLACE
  run S0(); run S1(); run Drain(); run R(2); run R(2); run Bell(); run Watch() } }
#else
proctype R(byte id) { LOCALS; bool posted_e;
end: do
  :: nrecv == N -> break
  :: nrecv < N && (nempty(ring[0])) -> poll(0)
  :: nrecv < N && (nempty(ring[1])) -> poll(1)
#if !defined(MIN) && !defined(PROBES)
  :: nrecv < N && id == 0 && !posted_e -> posted_e = true; if :: post_exact(0) :: post_exact(1) fi
  :: id == 1 && wide && !wentback -> go_exact()
#endif
#if !defined(MIN)
  :: atomic { id == 0 && nrecv < N && !alone && px[0] + px[1] + nprq == 0 -> alone = true }; probe_recv(); alone = false
  :: atomic { id == 0 && nempty(tab[0]) && !alone && px[0] + px[1] + nprq == 0 -> alone = true }; probe_tag(0); alone = false
#endif
#ifndef PROBES
  :: atomic { id == 1 && nrecv < N && !alone && nprq < 2 -> alone = true }; post_any(); alone = false
#endif
  od
}
init { atomic {
  PLACE
#ifdef COARSE
  run Tick();
#endif
#ifdef THREE
  run S2();
#endif
  run S0(); run S1(); run Drain(); run R(0); run R(1) } }
#endif
