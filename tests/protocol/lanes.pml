/* Lanes by tag without sequence numbers, over shared memory: what is visible is enough (docs/design/protocols/ordinary_messages.md). One
 * pair, two lanes with a ring of one record each, two sending threads, the sender's helper; a thread that polls and receives with a tag, and
 * one that receives with wildcard tags. Message 3 is sent after messages 0 and 1 (thread S0 has told S1) and after 2.
 *
 *  2. A sender reads the message's stamp in the call, before it pushes. Stamps extend happens-before.
 *  3. Exact mode: a record leaves its ring into its lane's own table, with the lane's lock held.
 *  4. Going wide: the flag, then the entries of each lane, with that lane's lock held.
 *  5. Wide mode: a poller puts a record into the inbox before it releases the lane. A look takes all rings, then the inbox. The least stamp is
 *     delivered if it was seen before the last whole look began, and that look found none smaller.
 *  6. One backlog flag for the pair: a send that finds it set goes through the backlog. It is cleared after the last push.
 *
 * Rules 1, 7 and 8, and receives that are posted before the change, are those of lanes_wide.pml.
 *
 * Checked: a message is matched only after all unmatched ones that happened before it, and fit.
 *
 * @cc -DCOLLAPSE
 * @model lanes -DSMALL
 * @soak lanes_four
 * @unreached S0 (!(blk))
 * @unreached S0 ring[lane_of[0]]!0
 * @unreached S0 flag = 1
 * @unreached S0 back!0
 * @unreached S0 ((!(flag)
 * @unreached S0 else
 * @unreached Drain -end-
 * @mutant 1 -DSMALL -DONELOOK rule 5: the least stamp is delivered after one look => done[0]
 * @mutant 2 -DSMALL -DINBOXFIRST rule 5: a look takes the inbox, then the rings => done[0]
 * @mutant 3 -DSMALL -DNOFLAG rule 6: a send does not look at the flag => done[0]
 * @mutant 4 -DSMALL -DLATESTAMP rule 2: the stamp is read after the push => done[0]
 * @mutant 5 -DSMALL -DSWITCHUNLOCKED rule 4: the lanes' entries are moved without their locks => done[0]
 * @mutant 6 -DSMALL -DLIMBO rule 5: a poller releases the lane, then puts the record into the inbox => done[0]
 * @mutant 7 -DSMALL -DCLEAREARLY rule 6: the flag is cleared before the last push => done[0]
 */
#ifndef CAP
#define CAP 1
#endif
#define N 4            /* 0,1: thread S0 in that order; 2,3: thread S1; S1 sends 3 after S0 has told it that 0 and 1 are sent */
chan ring[2] = [CAP] of { byte };
chan back = [N] of { byte };
chan tab0 = [N] of { byte }; chan tab1 = [N] of { byte };
byte lane_of[N], stamp[N], clk = 1, ndone;
bool flag, blk, told, wide, lk[2], inbox[N], list[N], done[N];

inline lock(x)   { atomic { !x -> x = true } }
inline unlock(x) { x = false }
inline read_clock(m) { atomic { stamp[m] = clk; clk++ } }
inline send(m) {
#ifndef LATESTAMP
  read_clock(m);
#endif
  f = flag;
#ifdef NOFLAG
  f = false;
#endif
  if
  :: atomic { !f && nfull(ring[lane_of[m]]) -> ring[lane_of[m]]!m }
  :: else -> lock(blk);
     if
     :: atomic { !flag && nfull(ring[lane_of[m]]) -> ring[lane_of[m]]!m }
     :: else -> flag = true; back!m
     fi; unlock(blk)
  fi;
#ifdef LATESTAMP
  read_clock(m);
#endif
}
inline preds_done(m) {
  assert(!done[m]);
  if :: m == 1 -> assert(done[0]) :: m == 3 -> assert(done[0] && done[1] && done[2]) :: else fi
}
inline pick_lane(m) { if :: lane_of[m] = 0 :: lane_of[m] = 1 fi }
init { atomic {
#ifdef SMALL
  done[2] = true; ndone = 1;
#endif
  pick_lane(0); pick_lane(1); pick_lane(2); pick_lane(3); run S0(); run S1(); run Drain(); run Poller(); run Wide() } }

proctype S0() { bool f; send(0); send(1); told = true }
#ifdef SMALL
proctype S1() { bool f; told; send(3) }
#else
proctype S1() { bool f; send(2); told; send(3) }
#endif
proctype Drain() {            /* the sender's helper */
  byte m;
end: do
  :: atomic { nempty(back) && !blk -> blk = true };
#ifdef CLEAREARLY
     if :: len(back) == 1 -> flag = false :: else fi;
#endif
     back?<m>;
     if
     :: atomic { nfull(ring[lane_of[m]]) -> ring[lane_of[m]]!m; back?m };
        if :: empty(back) -> flag = false :: else fi
     :: full(ring[lane_of[m]]) -> skip
     fi; unlock(blk)
  od
}
proctype Poller() {           /* another receiving thread: polls either lane, takes one message by its tag from lane 0 while the communicator is exact */
  byte m; byte l; bool took, w;
end: do
  :: if :: l = 0 :: l = 1 fi;
     if
     :: atomic { nempty(ring[l]) && !lk[l] -> lk[l] = true };
        w = wide;
        if
        :: ring[l]?m ->
#ifdef LIMBO
           unlock(lk[l]);
#endif
           if
           :: w -> inbox[m] = true
           :: !w && l == 0 -> tab0!m
           :: !w && l == 1 -> tab1!m
           fi; m = 0
        :: empty(ring[l]) -> skip
        fi;
#ifndef LIMBO
        unlock(lk[l])
#endif
     :: atomic { l == 0 && !took && nempty(tab0) && !wide && !lk[0] -> tab0?m; took = true;      /* an exact receive */
          if :: m == 1 && lane_of[0] == 0 -> assert(done[0]) :: m == 3 -> assert((lane_of[0] || done[0]) && (lane_of[1] || done[1]) && (lane_of[2] || done[2])) :: else fi;
          done[m] = true; ndone++; m = 0 }
     :: else -> skip
     fi
  :: ndone == N -> break
  od
}
inline take_inbox() { k = 0; do :: k < N -> atomic { if :: inbox[k] -> inbox[k] = false; list[k] = true :: else fi; k++ } :: else -> break od; k = 0 }
inline take_ring(l) { lock(lk[l]); do :: atomic { nempty(ring[l]) -> ring[l]?m; list[m] = true; m = 0 } :: empty(ring[l]) -> break od; unlock(lk[l]) }
inline look() {
#ifdef INBOXFIRST
  take_inbox(); take_ring(0); take_ring(1)
#else
  take_ring(0); take_ring(1); take_inbox()
#endif
}
inline least(x) { atomic { x = N; k = 0; do :: k < N -> if :: list[k] && (x == N || stamp[k] < stamp[x]) -> x = k :: else fi; k++ :: else -> break od; k = 0 } }
proctype Wide() {             /* posts receives with a wildcard tag until all have come */
  byte c, d, k, m;
#ifdef SWITCHUNLOCKED
  wide = true;
#else
  lock(lk[0]); lock(lk[1]); wide = true;
#endif
  do :: atomic { nempty(tab0) -> tab0?m; list[m] = true; m = 0 } :: atomic { nempty(tab1) -> tab1?m; list[m] = true; m = 0 } :: atomic { empty(tab0) && empty(tab1) -> break } od;
#ifndef SWITCHUNLOCKED
  unlock(lk[0]); unlock(lk[1]);
#endif
  do
  :: ndone == N -> break
  :: else ->
     look(); least(c);
     do
     :: c == N -> break
     :: else ->
#ifndef ONELOOK
        look();
#endif
        least(d);
        if
        :: d == c -> atomic { preds_done(c); list[c] = false; done[c] = true; ndone++ }; break
        :: else -> c = d
        fi
     od; c = 0; d = 0
  od
}
