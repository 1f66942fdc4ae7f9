/* The engine `lazy` of a communicator on one lane: exact, with a lock for each bucket, until the first receive or probe with a wildcard;
 * then ordered, with one lock. One source; messages 0, 1 and 2 arrive in this order, message m with tag m & 1; tag t hashes to bucket t.
 *
 *  1. A record leaves its ring under the lane's lock and enters the engine before that lock is released: records of a lane arrive in order.
 *  2. Each message carries an arrival number of its source, given under the lane's lock.
 *  3. `ordered` is read with the bucket's lock held. A call that finds it set releases the bucket and takes the ordered lock.
 *  4. The first wildcard takes the ordered lock, sets `ordered`, then moves the entries of each bucket under that bucket's lock, one bucket
 *     after the other, and only then makes its own look-up.
 *  5. Unexpected messages are moved in the order of their arrival numbers, whatever the bucket.
 *  6. Receives that were posted before are older than the wildcard.
 *  7. A probe with a wildcard changes the engine, too: what it has shown is what the next receive gets.
 *  8. Only the receiver knows: the sender changes nothing.
 *
 * Two threads poll the lane; one of them posts a receive with tag 0 and one with tag 1, the other probes or posts with a wildcard, then posts
 * with a wildcard again. A wildcard that was posted before an exact receive is older than it.
 *
 * Checked: a receive gets the first arrived of the messages that fit and are unmatched; a message gets the first posted of the receives that
 * fit; a message that a probe has shown is the one that the next wildcard receive gets; each message and receive is matched once; none stays
 * beside a fitting one.
 *
 * @cc -DCOLLAPSE
 * @model lazy
 * @soak lazy_long -DN=4
 * @mutant 1 rule 3: `ordered` is read, then the bucket's lock is taken => lost
 * @mutant 2 rule 4: the entries are moved, then `ordered` is set => lost
 * @mutant 3 rule 4: the wildcard looks before the buckets have been moved => state[i]==3
 * @mutant 4 rule 5: unexpected messages are moved bucket by bucket, without arrival numbers => state[i]==3
 * @mutant 5 rule 6: receives that were posted before are numbered behind the wildcard => posted[i]==0
 * @mutant 6 rule 4: unexpected messages are moved, posted receives are not => posted[i]==0
 * @mutant 7 rule 7: a probe with a wildcard looks through the buckets and leaves the engine exact => shown
 * @mutant 8 rule 1: the lane's lock is released before the record is in the engine => state[i]==3
 * @mutant 9 rule 4: `ordered` is set without the ordered lock => state[i]==3
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#ifndef N
#define N 3
#endif
#define ANY 2
#define FITS(q, x) ((q) == ANY || (q) == ((x) & 1))
#define NO N
#define TAG(q) ((q) > 1 -> ANY : (q))

bool lane, bucket[2], wide;                        /* locks; wide: the ordered engine's */
bool ordered;
byte ring;                                         /* the next record; N: empty for good */
byte state[N];                                     /* of a message: 0 not arrived, 1 in its bucket, 2 in the ordered list, 3 matched */
byte number[N];                                    /* of arrival */
byte place[N], places;                   /* the ordered list: in which order messages entered it */
/* receives: 0 and 1 with that tag, in their buckets or ordered; 2 and 3 with a wildcard */
byte posted[4];                                    /* 0: not yet; 1: waits in its bucket; 2: waits in the ordered list; 3: matched */
byte turn[4], turns;                               /* order of posting in the ordered list */
byte since[4], clock;                              /* checker: when the post had ended */
byte begun[4];                                     /* checker: when the post began */
byte shown;                                        /* 1 + message that a probe has shown */

inline lock(x) { atomic { !x -> x = true } }
inline unlock(x) { x = false }
inline match(q, x) {                               /* checks, and makes, a pair */
  d_step {
    i = 0;
    do
    :: i < x -> assert(state[i] == 3 || !FITS(TAG(q), i)) /* earlier */; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < 4 -> assert(i == q || posted[i] == 0 || posted[i] == 3 || !FITS(TAG(i), x) || since[i] == 0 || since[i] > begun[q]) /* older */; i++
    :: else -> break
    od;
    assert(state[x] != 3 && posted[q] != 3);
    assert(!(shown && q > 1 && shown != x + 1));
    if
    :: q > 1 || shown == x + 1 -> shown = 0
    :: else
    fi;
    state[x] = 3; posted[q] = 3; i = 0
  }
}
inline oldest(x) {                                 /* of the receives in the ordered list that fit; sets j */
  j = 4; i = 0;
  do
  :: i < 4 ->
     if
     :: posted[i] == 2 && FITS(TAG(i), x) && (j == 4 || turn[i] < turn[j]) -> j = i
     :: else
     fi; i++
  :: else -> break
  od;
  i = 0
}
inline first(t) {                                  /* of the messages in the ordered list that fit; sets j */
  j = NO; i = 0;
  do
  :: i < N ->
     if
     :: state[i] == 2 && FITS(t, i) && (j == NO || place[i] < place[j]) -> j = i
     :: else
     fi; i++
  :: else -> break
  od;
  i = 0
}
inline enter(x) {                                  /* the ordered list */
  d_step { state[x] = 2; place[x] = places; places++ }
}
inline insert_ordered(x) {                         /* a message; ordered lock held */
  d_step { oldest(x); k = j };
  if
  :: k < 4 -> match(k, x)
  :: else -> enter(x)
  fi; k = 0; j = 0
}
inline insert_message(x) {
#if MUTATE == 1
  was = ordered;
  lock(bucket[x & 1]);
#else
  lock(bucket[x & 1]);
  was = ordered;
#endif
  if
  :: !was ->
     if
     :: posted[x & 1] == 1 -> match(x & 1, x)
     :: else -> state[x] = 1
     fi;
     unlock(bucket[x & 1])
  :: else -> unlock(bucket[x & 1]); lock(wide); insert_ordered(x); unlock(wide)
  fi; was = false
}
inline poll() {
  if
  :: atomic { !lane && ring < N -> lane = true };
     if
     :: ring < N ->
        m = ring; number[m] = ring; ring++;
#if MUTATE == 8
        unlock(lane); insert_message(m)
#else
        insert_message(m); unlock(lane)
#endif
        ; m = 0
     :: else -> unlock(lane)
     fi
  :: lane || ring == N
  fi
}
inline wait_ordered(q) {                           /* ordered lock held */
  d_step { first(TAG(q)); k = j };
  if
  :: k < N -> match(q, k)
  :: else -> d_step { posted[q] = 2; turn[q] = turns + 4; turns++ }
  fi; k = 0; j = 0
}
inline post_exact(q) {
  begun[q] = clock;
#if MUTATE == 1
  was = ordered;
  lock(bucket[q]);
#else
  lock(bucket[q]);
  was = ordered;
#endif
  if
  :: !was ->
     d_step { k = NO; i = 0;
       do
       :: i < N ->
          if
          :: state[i] == 1 && (i & 1) == q && k == NO -> k = i
          :: else
          fi; i++
       :: else -> break
       od; i = 0 };
     if
     :: k < N -> match(q, k)
     :: else -> posted[q] = 1
     fi; k = 0;
     unlock(bucket[q])
  :: else -> unlock(bucket[q]); lock(wide); wait_ordered(q); unlock(wide)
  fi; was = false;
  d_step { clock++; since[q] = clock }
}
inline move(b) {
  lock(bucket[b]);
#if MUTATE != 6
  d_step {
    if
    :: posted[b] == 1 -> posted[b] = 2; turn[b] = (MUTATE == 5 -> turns + 8 : b)
    :: else
    fi };
#endif
  d_step { i = 0;
    do
    :: i < N ->
       if
       :: state[i] == 1 && (i & 1) == b -> state[i] = 2;
#if MUTATE == 4
          place[i] = places; places++
#else
          place[i] = number[i]
#endif
       :: else
       fi; i++
    :: else -> break
    od; i = 0;
#if MUTATE != 4
    places = N
#endif
  };
  unlock(bucket[b])
}
inline widen() {                                   /* ordered lock held */
#if MUTATE == 2
  move(0); move(1); ordered = true
#elif MUTATE == 3
  ordered = true
#else
  ordered = true; move(0); move(1)
#endif
}
inline post_any(q) {
  begun[q] = clock;
#if MUTATE == 9
  if
  :: !ordered -> ordered = true; lock(wide); move(0); move(1)
  :: else -> lock(wide)
  fi;
#else
  lock(wide);
  if
  :: !ordered -> widen()
  :: else
  fi;
#endif
  wait_ordered(q);
#if MUTATE == 3
  move(0); move(1);
#endif
  unlock(wide);
  d_step { clock++; since[q] = clock }
}
inline probe_any() {
#if MUTATE == 7
  lock(bucket[1]);
  d_step { i = N;
    do
    :: i > 0 -> i--;
       if
       :: state[i] == 1 && (i & 1) -> shown = i + 1
       :: else
       fi
    :: else -> break
    od; i = 0 };
  unlock(bucket[1])
#else
  lock(wide);
  if
  :: !ordered -> widen()
  :: else
  fi;
  d_step { first(ANY);
    if
    :: j < N -> shown = j + 1
    :: else
    fi; j = 0 };
  unlock(wide)
#endif
}
proctype exact() {
  byte i, j, k, m, q; bool was;
  do
  :: ring < N -> poll()
  :: q < 2 -> post_exact(q); q++
  :: q == 2 && ring == N -> break
  od
}
proctype any() {
  byte i, j, k, m, q, polls; bool was;
  q = 2;
  do
  :: q < 4 && ring < N && polls < 2 -> polls++; poll()
  :: q == 2 -> probe_any(); q = 3
  :: q < 4 -> post_any(q); q++
  :: q == 4 -> break
  od
}
proctype check() {
  byte i, j; bool lost;
  timeout;
  d_step {
    for (i : 0 .. N - 1) {
      for (j : 0 .. 3) {
        if
        :: state[i] != 3 && (posted[j] == 1 || posted[j] == 2) && FITS(TAG(j), i) -> lost = true
        :: else
        fi
      }
    }
  };
  assert(!lost)
}
init { atomic { run exact(); run any(); run check() } }
