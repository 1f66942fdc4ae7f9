/* The life of a channel: INIT, match, Start before or after it, free at any inactive point, reuse of its block. Two processes, each with
 * an application thread and a helper; two or three pairs with one key on two blocks.
 *
 *  1. The sender owns a pool of blocks in shared memory. send_init takes one, raises its generation, clears it and sends INIT {block,
 *     generation} over a first-in first-out socket.
 *  2. The receiver keeps two lists under one lock: receives posted and not matched, INITs that came and are not matched. First come,
 *     first served: the k-th INIT of a key meets its k-th receive.
 *  3. At the match the receiver stores in the block where its buffer is, before it can open anything: a sender's thread that finds
 *     the word open needs no record to have arrived.
 *  4. Start and match meet under the channel's lock: Start opens if matched, else it sets "started, not matched", and then
 *     whoever matches (the helper) opens on the receiver's behalf and moves what is ready.
 *  5. The helper is in the channel from the match to its last look at the block (pieces of a shared copy may be left to take). The receiver's
 *     CLOSE is not sent before it has left: a reference that keeps the channel's object alive is not enough, the block is the sender's.
 *  6. A receive freed before its match stays in the list as a tombstone; the INIT that meets it is answered with CLOSE and no store.
 *  7. A send freed before its match stays in the receiver's list with its block (small sends may have completed: the data is there). One
 *     that has had no round stays as a tombstone, and is answered with CLOSE at once; the receive that meets it takes no block.
 *  8. The receiver's CLOSE is sent at its free, after its last store; the sender's at its free.
 *  9. The block goes back to the pool when both sides have closed, not before.
 * 10. An INIT whose memory can't be mapped takes its turn as well: the receive that it meets fails, and is answered with CLOSE.
 *
 * A pair is unused, or has one round by attach, or one round by slots, or its block can't be mapped (then both sides try a round and fail).
 * Checked: the k-th send meets the k-th receive; every store of the receiver's side hits a block of the generation that it means, and so
 * does every look of its helper; data arrives once, in the active round; all requests can be freed, and then every block is back in the
 * pool. Records carry the generation, and no record of an old one ever arrives (asserted): rules 8 and 9 and the order of the socket forbid it.
 *
 * @cc -DCOLLAPSE
 * @model two_pairs -DPAIRS=2
 * @model three_pairs -DPAIRS=3
 * @unreached sender_helper -end-
 * @unreached receiver_helper -end-
 * @mutant 1  rule 9: the block is reused after the sender's own free => r_closed
 * @mutant 2  rule 9: the block is reused after the receiver's CLOSE => receive[3].data == 0
 * @mutant 3  rule 6: a receive freed before its match is taken off the list => j == k
 * @mutant 4  rule 7: a send freed before its match is taken off the list => j == k
 * @mutant 5  rule 4: the helper matches and does not look whether the receive has been started => send[1].state
 * @mutant 6  rule 4: Start looks for the match and sets its flag in two steps, without the lock => send[1].state
 * @mutant 7  rule 5: CLOSE is sent at the free, while the helper may be in the channel => pooled
 * @mutant 8  rule 6: the INIT that meets a tombstone is answered, then the buffer is stored => pooled
 * @mutant 9  rule 3: the helper opens, then stores where the buffer is => buffer == 3
 * @mutant 10 rule 2: recv_init looks for an INIT and posts itself in two steps, the lock given back between them => next == k
 * @mutant 11 rule 8: CLOSE is sent, then the count is stored => pooled
 * @mutant 12 -DPAIRS=2 rule 10: an INIT that can't be mapped is answered and takes no turn => send[1].state
 * @mutant 13 rule 7: a send freed after a round is answered at once, too => send[1].state
 * @mutant 14 rule 7: the receive that meets a send's tombstone stores where its buffer is => pooled
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#define BLOCKS 2
#ifndef PAIRS
#define PAIRS 3
#endif
#define UNMAPPED (PAIRS == 2)                       /* some INITs can't be mapped */
mtype = { INIT, CLOSE };
mtype = { UNUSED, ATTACH, SLOTS, UNMAPPABLE };
mtype = { NOT_YET, IDLE, STARTED, FREED };

typedef Block {                                    /* shared memory; `gen` and `pooled` are the sender's */
  byte gen; bool pooled;
  byte buffer;                                     /* rule 3: the receive whose buffer it is; 0 = not known */
  bool ready, open; byte count;
  bool s_closed, r_closed
};
typedef Send { mtype use, state; byte block; bool tomb };   /* rule 7: `tomb` is the receiver's */
typedef Receive { mtype state; byte block, gen; bool matched, pending, failed, helped, tomb, over; byte data };
Block block[BLOCKS];
Send send[PAIRS + 1];
Receive receive[PAIRS + 1];
chan to_receiver = [2 * PAIRS] of { mtype, byte, byte, byte };   /* kind, block, generation; the pair is for the checker */
chan to_sender = [PAIRS] of { byte, byte, byte };       /* CLOSE: block, generation, pair */
chan posted = [PAIRS] of { byte };                 /* rule 2: receives */
chan unexpected = [PAIRS] of { byte, byte, byte }; /* block, generation, pair */

#define ALL_FREED(side) (side[1].state == FREED && side[2].state == FREED && side[PAIRS].state == FREED)
#define STORE(b, g) assert(block[b].gen == g && !block[b].pooled)      /* by the receiver's side */

/* ---- sender ---- */
#define POOLED (block[0].pooled || block[1].pooled)
inline send_init(k) {                              /* rule 1; inside atomic */
  b = (block[0].pooled -> 0 : 1);
  block[b].gen++; block[b].pooled = false; block[b].s_closed = false; block[b].r_closed = false;
  send[k].block = b; send[k].state = IDLE;
  to_receiver ! INIT, b, block[b].gen, k;
  b = 0
}
inline back_to_pool(b) {                           /* rule 9 */
#if MUTATE == 1
  if :: block[b].s_closed -> block[b].pooled = true :: else fi
#elif MUTATE == 2
  if :: block[b].r_closed -> block[b].pooled = true :: else fi
#else
  if
  :: block[b].s_closed && block[b].r_closed ->
     block[b].pooled = true; block[b].buffer = 0; block[b].ready = false; block[b].open = false; block[b].count = 0
  :: else
  fi
#endif
}
inline deliver(j) {                                /* into the receive buffer */
  assert(receive[j].state == STARTED && receive[j].data == 0);
  receive[j].data = 1
}
inline send_round(k) {                             /* MPI_Start, MPI_Pready */
  atomic {
    send[k].state = STARTED; b = send[k].block;
    block[b].ready = true; opened = block[b].open
  };
  if
  :: opened -> opened = false;
     assert(block[b].buffer == k);
     deliver(k);
     atomic { block[b].count++; b = 0 }
  :: else -> b = 0
  fi
}
#define IDLE_UNUSED(side, k) (side[k].state == IDLE && send[k].use == UNUSED)
#define SEND_COMPLETE(k) (send[k].state == STARTED && (send[k].use == SLOTS || block[send[k].block].count == 1 || \
  (send[k].use == UNMAPPABLE && block[send[k].block].r_closed)))
inline send_step(k) {
  if
  :: send[k].state == IDLE && send[k].use != UNUSED -> send_round(k)
  :: atomic { (SEND_COMPLETE(k) || IDLE_UNUSED(send, k)) ->
       send[k].state = FREED; b = send[k].block; send[k].block = 0;
       to_receiver ! CLOSE, b, block[b].gen, k;
       block[b].s_closed = true; back_to_pool(b); b = 0 }
  fi
}
proctype sender() {
  byte next = 1, b; bool opened;
  do
  :: atomic { next <= PAIRS && POOLED -> send_init(next); next++ }
  :: send_step(1)
  :: send_step(2)
#if PAIRS == 3
  :: send_step(3)
#endif
  :: next > PAIRS && ALL_FREED(send) -> break
  od
}
proctype sender_helper() {
  byte b, g, k;
end:
  do
  :: atomic { to_sender ? b, g, k ->
       assert(block[b].gen == g && !block[b].r_closed);
       block[b].r_closed = true; back_to_pool(b); b = 0; g = 0; k = 0 }
  od
}

/* ---- receiver ---- */
inline add_count(j) {                                  /* rule 8: the last store into the block */
  atomic { STORE(receive[j].block, receive[j].gen); block[receive[j].block].count++ }
}
inline open_and_move(j) {                          /* by Start, or by the helper on its behalf */
  atomic {
    STORE(receive[j].block, receive[j].gen);
    block[receive[j].block].open = true;
    found = block[receive[j].block].ready
  };
  if
  :: found -> deliver(j);
     add_count(j);
     found = false
  :: else
  fi
}
inline match(j, b, g, k) {                         /* inside the lists' critical section */
  assert(j == k);                                  /* rule 2 */
  if
  :: send[k].tomb -> receive[j].over = true
#if MUTATE == 14
     ; STORE(b, g); block[b].buffer = j
#endif
#if UNMAPPED
  :: send[k].use == UNMAPPABLE && !send[k].tomb -> receive[j].failed = true; to_sender ! b, g, k   /* rule 10 */
#endif
  :: send[k].use != UNMAPPABLE && !send[k].tomb ->
     receive[j].block = b; receive[j].gen = g; receive[j].matched = true;
#if MUTATE != 9
     STORE(b, g); block[b].buffer = j
#endif
  fi
}
proctype receiver_helper() {
  byte b, g, k, j; bool found;
end:
  do
  :: to_receiver ? INIT(b, g, k) ->
     atomic {                                      /* critical section: the lists */
       if
#if MUTATE == 12
       :: send[k].use == UNMAPPABLE -> to_sender ! b, g, k
       :: send[k].use != UNMAPPABLE && posted ? [j] -> posted ? j;
#else
       :: posted ? j ->
#endif
          if
          :: receive[j].tomb -> assert(j == k); to_sender ! b, g, k        /* rule 6 */
          :: else -> match(j, b, g, k); receive[j].helped = receive[j].matched
          fi
       :: empty(posted) -> unexpected ! b, g, k; j = 0
       fi
     };
#if MUTATE == 8
     if :: j && receive[j].tomb -> atomic { STORE(b, g); block[b].buffer = j } :: else fi;
#endif
     if
     :: j && receive[j].helped ->
#if MUTATE != 5
        if
        :: receive[j].pending && send[j].use == ATTACH -> open_and_move(j)
        :: else
        fi;
#endif
#if MUTATE == 9
        atomic { STORE(b, g); block[b].buffer = j };
#endif
        atomic { STORE(b, g); receive[j].pending = false; receive[j].helped = false }    /* the last look */
     :: else
     fi;
     d_step { b = 0; g = 0; k = 0; j = 0 }
  :: atomic { to_receiver ? CLOSE(b, g, k) ->
#if MUTATE == 4
       if
       :: unexpected ?? [eval(b), eval(g), eval(k)] -> unexpected ?? eval(b), eval(g), eval(k); to_sender ! b, g, k
       :: else
       fi;
#else
       if                                          /* rule 7; critical section: the lists */
#if MUTATE == 13
       :: unexpected ?? [eval(b), eval(g), eval(k)] -> send[k].tomb = true; to_sender ! b, g, k
       :: else
#else
       :: unexpected ?? [eval(b), eval(g), eval(k)] && send[k].use == UNUSED -> send[k].tomb = true; to_sender ! b, g, k
       :: else
#endif
       fi;
#endif
       b = 0; g = 0; k = 0 }
  od
}
inline recv_init(j) {
  atomic {                                         /* critical section: the lists */
    receive[j].state = IDLE;
    if
    :: unexpected ? b, g, k -> match(j, b, g, k); b = 0; g = 0; k = 0
    :: empty(unexpected) -> found = true
    fi;
#if MUTATE == 10
  };
  atomic {
#endif
    if
    :: found -> posted ! j; found = false
    :: else
    fi
  }
}
inline recv_start(j) {                             /* rule 4 */
#if MUTATE == 6
  atomic { receive[j].state = STARTED; found = receive[j].matched };
  atomic {
    if :: found :: else -> receive[j].pending = true fi
  };
#else
  atomic {                                         /* critical section: the channel */
    receive[j].state = STARTED;
    if :: receive[j].matched -> found = true :: else -> receive[j].pending = true fi
  };
#endif
  if
  :: found && send[j].use == ATTACH -> found = false; open_and_move(j)
  :: else -> found = false
  fi
}
#define FOUND(j) (receive[j].matched && send[j].use == SLOTS && block[receive[j].block].ready && receive[j].data == 0)
#if MUTATE == 11
#define RECV_COMPLETE(j) (receive[j].data == 1)
#else
#define RECV_COMPLETE(j) (receive[j].state == STARTED && receive[j].matched && block[receive[j].block].count == 1)
#endif
#if MUTATE == 7
#define LEFT(j) true
#else
#define LEFT(j) (!receive[j].helped)
#endif
inline recv_step(j) {
  if
  :: receive[j].state == IDLE && send[j].use != UNUSED -> recv_start(j)
  :: receive[j].state == STARTED && FOUND(j)-> deliver(j);
#if MUTATE != 11
     add_count(j)
#endif
  :: atomic {                                      /* free: rule 5 */
       (RECV_COMPLETE(j) || IDLE_UNUSED(receive, j)) && receive[j].matched && LEFT(j) ->
       assert(send[j].use == UNUSED || receive[j].data == 1);
       receive[j].state = FREED; receive[j].data = 0;
       to_sender ! receive[j].block, receive[j].gen, j };
#if MUTATE == 11
     add_count(j);
#endif
     d_step { receive[j].block = 0; receive[j].gen = 0 }
#if UNMAPPED
  :: atomic { receive[j].state == STARTED && receive[j].failed -> receive[j].state = FREED; receive[j].pending = false }
#endif
  :: atomic { IDLE_UNUSED(receive, j) && receive[j].over -> receive[j].state = FREED }   /* rule 7 */
  :: atomic {                                      /* free before the match: rule 6 */
       IDLE_UNUSED(receive, j) && !receive[j].matched && !receive[j].over ->
       receive[j].tomb = true; receive[j].state = FREED;
#if MUTATE == 3
       posted ?? eval(j)
#endif
     }
  fi
}
proctype receiver() {
  byte next = 1, b, g, k; bool found;
  do
  :: next <= PAIRS -> recv_init(next); next++
  :: recv_step(1)
  :: recv_step(2)
#if PAIRS == 3
  :: recv_step(3)
#endif
  :: next > PAIRS && ALL_FREED(receive) -> break
  od
}
inline choose(k) {
  send[k].state = NOT_YET; receive[k].state = NOT_YET;
  if
  :: send[k].use = UNUSED
  :: send[k].use = ATTACH
  :: send[k].use = SLOTS
#if UNMAPPED
  :: send[k].use = UNMAPPABLE
#endif
  fi
}
init {
  atomic {
    block[0].pooled = true; block[1].pooled = true;
    choose(1); choose(2);
#if PAIRS == 3
    choose(3);
#endif
    run sender(); run sender_helper(); run receiver(); run receiver_helper()
  }
  timeout;                                         /* nothing moves any more */
  atomic {
    assert(ALL_FREED(send) && ALL_FREED(receive));
    assert(block[0].pooled && block[1].pooled)
  }
}
