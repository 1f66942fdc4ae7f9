/* Networks: push if the receiver has opened the round, else leave a notice and let it pull. One channel slot, used by two channels
 * one after the other (generations), each with two groups. (On one host the shared word of last_comer.pml needs no bell.)
 *
 * Remote stores, remote reads, notices, pushes and FINs are messages on a network that keeps NO order and delivers at any later time, also
 * in the next generation. A push writes the receive buffer when it is delivered; the sender's processor and the network interleave freely
 * (sequentially consistent: "set my ready word" and "look at the block again" are seq_cst operations in the code).
 *
 *  1. Every credit and FIN carries {generation, round}; ACCEPT carries the generation; what is older than what stands there changes nothing. (Notices carry
 *     them, too, for checks only: none is late, since its sender waits for the FIN that answers it.)
 *  2. With credit for the round the sender pushes a group, and only then.
 *  3. Without, it sends a notice for the group. From then on the group is the receiver's to pull, and never pushed.
 *  4. A group travels when it is ready and its channel has been accepted. Both are bits of one word of the sender's: Pready sets the one, the
 *     helper that takes ACCEPT in the other, each in one read-modify-write; the second one sends.
 *  5. The sender's Start and the helper's ACCEPT agree under a lock who opens the words of the round: Start, if it has been accepted; else the helper.
 *  6. The receiver's Start opens the round, stores the credit, and looks once at the notices.
 *  7. Every notice rings the helper's bell.
 *  8. Notices are claimed by Start and helper, each group by one read-modify-write: one of them pulls.
 *  9. Who has pulled sends FIN after the read's completion; the sender completes a group at its FIN or at its push's completion.
 * 10. The slot is used again when both sides have closed.
 *
 * With -DJOINED both partitions are one group, and in some rounds the sender marks the second one only after it has heard by other means that the first one has arrived:
 * 11. A receiver that asks sends a demand, at most once a round, and only when the sender has heard the last one; it rings the sender's helper.
 * 12. Whoever hears it notes its round, then, if the channel is accepted, expires the group's word if that is the round's and open (so it is with a leaf; a word that is
 *     none expires before, too, which is less than what this needs), moves what is ready in it, and says that it has heard. Not accepted: so does who takes ACCEPT.
 * 13. Whoever opens the word looks, after that, whether there is a demand of its round, and expires it.
 * 14. A Pready in an expired word sends its own.
 * With -DTOLD the sender decides, in the Start before, that a round begins with its word expired:
 * 15. Once such a round has begun, what it says of demands that it hears names the next one, if that is to be such a round, too: of rounds up to that nothing is demanded.
 * With -DPREPARED the sender waits, before it marks in some rounds, for the credit (MPIX_Pbuf_prepare). A store replaces the word that stands there, older or not:
 * 16. At most one credit is in flight. A Start that finds one leaves the round's credit to that one's completion.
 * 17. The receiver closes when no credit is in flight.
 *
 * Checked: the receive buffer is written only while its round is open, exactly once a group and round, from a group that is ready; the send
 * completes only when its data has been moved; nobody waits for ever although the receiver looks once in Start and then sits in a native call;
 * duplicate and late notices do no harm. At most one demand is ever there that has not been heard.
 *
 * @cc -DCOLLAPSE
 * @model two_generations -DROUNDS=1
 * @model three_rounds -DROUNDS=3 -DGENERATIONS=1
 * @model demands -DROUNDS=2 -DGENERATIONS=1 -DJOINED
 * @model demands_of_two -DROUNDS=1 -DJOINED
 * @model told -DROUNDS=2 -DGENERATIONS=1 -DJOINED -DTOLD
 * @model prepared -DROUNDS=3 -DGENERATIONS=1 -DPREPARED
 * @model prepared_of_two -DROUNDS=2 -DPREPARED
 * @unreached nic_sender -end-
 * @unreached nic_receiver -end-
 * @unreached helper -end-
 * @unreached sender_helper -end-
 * @mutant 1 rule 2: pushes without credit => open_round
 * @mutant 2 rule 4: Pready looks whether the word is open, then marks: two steps => deadlock
 * @mutant 3 rule 4: the helper opens the word, then looks for ready partitions: two steps => sent
 * @mutant 4 rule 5: the helper looks whether a Start waits, then accepts: two steps => deadlock
 * @mutant 5 rule 9: pulls and sends no FIN => deadlock
 * @mutant 6 rule 5: Start opens the words whether it has been accepted or not => accepted
 * @mutant 7 rule 7: a notice does not ring => deadlock
 * @mutant 8 rule 6: Start does not look at the notices => deadlock
 * @mutant 9 rule 8: looks at the claim, then writes it: two steps => open_round
 * @mutant 10 rule 1: the credit carries no generation => open_round
 * @mutant 11 -DROUNDS=2 -DGENERATIONS=1 -DJOINED rule 11: a demand does not ring => deadlock
 * @mutant 12 -DROUNDS=3 -DGENERATIONS=1 -DJOINED rule 11: the next demand does not wait until the last has been heard => unheard
 * @mutant 13 -DROUNDS=2 -DGENERATIONS=1 -DJOINED rule 12: expires the open words, then notes the round => deadlock
 * @mutant 14 -DROUNDS=2 -DGENERATIONS=1 -DJOINED rule 12: ACCEPT answers none that came before => deadlock
 * @mutant 15 -DROUNDS=2 -DGENERATIONS=1 -DJOINED rule 13: looks for a demand, then opens => deadlock
 * @mutant 16 -DROUNDS=3 -DGENERATIONS=1 -DJOINED rule 12: expires the word of any round => sent
 * @mutant 17 -DROUNDS=2 -DGENERATIONS=1 -DJOINED -DTOLD rule 15: names the next round while this one still holds something => deadlock
 * @mutant 18 -DROUNDS=2 -DGENERATIONS=1 -DJOINED -DTOLD rule 15: names the next round although that one will hold something => deadlock
 * @mutant 19 -DROUNDS=3 -DGENERATIONS=1 -DPREPARED rule 16: a credit goes while another one is in flight => deadlock
 * @mutant 20 -DROUNDS=3 -DGENERATIONS=1 -DPREPARED rule 16: a Start that finds one in flight gives no credit => deadlock
 * @mutant 21 -DROUNDS=1 -DPREPARED rule 17: closes while a credit is in flight => deadlock
 */
#ifndef MUTATE
#define MUTATE 0
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef GENERATIONS
#define GENERATIONS 2
#endif
#define NAME(g, r) (4 * (g) + (r))                 /* generation and round in one number that only grows */
mtype = { ACCEPT, CREDIT, FIN, NOTICE, PUSH, DEMAND, HEARD };

/* kind, group, value; sorted, because messages in flight have no order */
chan to_sender = [7] of { mtype, byte, byte };
chan to_receiver = [6] of { mtype, byte, byte };

/* sender's memory */
byte accepted;                                     /* generation of the last ACCEPT */
byte credit;                                       /* last round that the receiver has opened */
bool is_ready[2], is_open[2];                      /* the group's word in this round: rule 4 */
bool start_waits;                                  /* for ACCEPT: rule 5 */
byte sent[2];                                      /* last round in which the group was sent */
byte stable[2];                                    /* round whose data the group holds, between Pready and completion; else 0 */
byte pushed[2], finished[2];                       /* last round whose push, whose FIN is complete */

/* receiver's memory */
byte open_round;                                   /* 0 = closed: the buffer is the application's */
byte arrived[2];                                   /* last round that has arrived */
byte noticed[2], claimed[2];
bool bell;                                         /* wakes the helper */

byte s_closed, r_closed;                           /* generations that either side has closed */

#ifdef PREPARED
/* receiver's memory */
byte credits_away, last_credit;                    /* in flight; the youngest */
byte owed;                                         /* round of the credit that follows; 0: none */
#endif

#ifdef JOINED
/* sender's memory */
bool expired;                                      /* the word, whose other bits are is_open[0] and is_ready */
byte word_round;                                   /* its tag */
byte demand_word, noted, answered;
#ifdef TOLD
bool is_free, is_next_free;                        /* the round begins expired */
byte free_until;
#endif
chan demands = [2] of { byte };                    /* immediates that the helper has not heard */
/* receiver's memory */
byte heard;
byte unheard[GENERATIONS + 1];                     /* demands: what the sender has reserved receives for */
#endif

#define RAISE(where, value) if :: value > where -> where = value :: else fi

#ifdef PREPARED
inline give_credit(w) { to_sender !! CREDIT, 0, w; last_credit = w; credits_away++ }
inline store_credit() {                            /* (the completion is folded in) */
  credit = v;
  if :: credits_away != 0 -> credits_away-- :: else fi;
  if :: owed != 0 && credits_away == 0 -> give_credit(owed); owed = 0 :: else fi;
  i = 0; v = 0
}
#endif
proctype nic_sender() {                            /* applies what the receiver sent */
  byte i, v;
end:
  do
#ifdef PREPARED
  :: atomic { to_sender ?? CREDIT(i, v) -> store_credit() }
  :: atomic { to_sender ?? CREDIT(i, eval(last_credit)) -> v = last_credit; store_credit() }   /* it overtakes */
#else
  :: atomic { to_sender ?? CREDIT(i, v) ->
#if MUTATE == 10
       v = NAME(s_closed + 1, v & 3);
#endif
       RAISE(credit, v); v = 0 }
#endif
  :: atomic { to_sender ?? FIN(i, v) -> RAISE(finished[i], v); i = 0; v = 0 }
#ifdef JOINED
  :: atomic { to_sender ?? DEMAND(i, v) -> RAISE(demand_word, v);
#if MUTATE != 11
       demands ! v;
#endif
       v = 0 }
#endif
  od
}
proctype nic_receiver() {
  byte i, v;
end:
  do
  :: atomic { to_receiver ?? PUSH(i, v) ->
       assert(open_round == v);                    /* never outside an open round */
       assert(arrived[i] != v);                    /* exactly once */
       assert(stable[i] == v);
       arrived[i] = v; pushed[i] = v; i = 0; v = 0 }             /* (the acknowledgement is folded in) */
  :: atomic { to_receiver ?? NOTICE(i, v) -> RAISE(noticed[i], v);
#if MUTATE != 7
       bell = true;
#endif
       i = 0; v = 0 }
#ifdef JOINED
  :: atomic { to_receiver ?? HEARD(i, v) -> RAISE(heard, v); v = 0 }
#endif
  od
}

inline send(i, v) {
  atomic {
    assert(accepted == v / 4);                     /* else it would not know where to */
    assert(sent[i] != v);                          /* once a round */
    sent[i] = v;
    if
#if MUTATE == 1
    :: to_receiver !! PUSH, i, v
#else
    :: credit == v -> to_receiver !! PUSH, i, v    /* rule 2 */
    :: credit != v -> to_receiver !! NOTICE, i, v  /* rule 3 */
#endif
    fi
  }
}
#ifdef JOINED
inline send_mine(v) {                              /* of `mine` and `other` */
  do
  :: mine -> mine = false; k = 0; send(k, v)
  :: !mine && other -> other = false; k = 1; send(k, v)
  :: else -> break
  od;
  k = 0
}
inline expire(v) {                                 /* rule 12 */
  atomic {
    if
#if MUTATE == 16
    :: is_open[0] && !expired && !(is_ready[0] && is_ready[1]) ->
#else
    :: word_round == v && is_open[0] && !expired && !(is_ready[0] && is_ready[1]) ->
#endif
       expired = true; mine = is_ready[0]; other = is_ready[1]
    :: else
    fi
  }
}
inline ready(i) {
  stable[i] = v;
  atomic {
    is_ready[i] = true;
    mine = is_open[0] && (expired -> (i) == 0 : is_ready[0] && is_ready[1]);           /* rule 14 */
    other = is_open[0] && (expired -> (i) == 1 : is_ready[0] && is_ready[1])
  };
  send_mine(v)
}
inline open_word() {
#if MUTATE == 15
  looked = (noted == v);
#endif
  atomic {
    is_open[0] = true; mine = is_ready[0] && (expired || is_ready[1]); other = is_ready[1] && (expired || is_ready[0])
  };
#if MUTATE != 15
  looked = (noted == v);                           /* rule 13 */
#endif
  if :: looked -> looked = false; expire(v) :: else fi;
  send_mine(v)
}
inline start() {                                   /* nothing is ready: nothing is sent */
  atomic {
    is_ready[0] = false; is_ready[1] = false; is_open[0] = false; expired = false; word_round = v;
#ifdef TOLD
    is_free = is_next_free; expired = is_free;
    if :: is_next_free = true :: is_next_free = false fi;
#if MUTATE == 17
    free_until = (is_next_free -> v + 1 : 0);
#elif MUTATE == 18
    free_until = (is_free -> v + 1 : 0);
#else
    free_until = (is_free && is_next_free -> v + 1 : 0);                               /* rule 15 */
#endif
#endif
    opens = (accepted == g);
    if :: opens :: else -> start_waits = true fi
  };
#if MUTATE == 15
  looked = (noted == v);
#endif
  if :: opens -> opens = false; is_open[0] = true :: else fi;
#if MUTATE != 15
  looked = (noted == v);                           /* rule 13 */
#endif
  if :: looked -> looked = false; expire(v) :: else fi
}
inline answer() {                                  /* rule 12: whatever was noted last */
  atomic {
    waits = (noted != answered && accepted == noted / 4);
    if :: waits -> answered = noted; w = noted :: else fi
  };
  if
  :: waits -> waits = false;
#if MUTATE != 13
     expire(w); send_mine(w);
#endif
#ifdef TOLD
     atomic { RAISE(w, free_until); to_receiver !! HEARD, 0, w; w = 0 }
#else
     to_receiver !! HEARD, 0, w; w = 0
#endif
  :: else
  fi
}
proctype sender_helper() {
  byte i, g, v, w, k; bool mine, other, waits, looked;
end:
  if
  :: atomic { to_sender ?? ACCEPT(i, g) -> accepted = g; waits = start_waits; start_waits = false; v = NAME(g, 1) };
     if :: waits -> waits = false; open_word() :: else fi
  :: atomic { demands ? v -> unheard[v / 4]--; v = demand_word };
     if
     :: v / 4 == s_closed + 1 ->
#if MUTATE == 13
        expire(v); send_mine(v);
#endif
        noted = v
     :: else                                       /* of a channel before this one */
     fi
  fi;
  v = 0;
#if MUTATE == 14
  if :: g == 0 -> answer() :: else fi;
#else
  answer();
#endif
  g = 0;
  goto end
}
#else
inline ready(i) {                                  /* Pready of the last partition of group i */
  stable[i] = v;
#if MUTATE == 2
  mine = is_open[i];
  is_ready[i] = true;
#else
  atomic { mine = is_open[i]; is_ready[i] = true };               /* rule 4 */
#endif
  if :: mine -> mine = false; send(i, v) :: else fi
}
inline start() {                                   /* MPI_Start: no group is ready */
  atomic {
    is_ready[0] = false; is_ready[1] = false;
    is_open[0] = false; is_open[1] = false;
#if MUTATE == 6
    is_open[0] = true; is_open[1] = true
#else
    if                                             /* rule 5 */
    :: accepted == g -> is_open[0] = true; is_open[1] = true
    :: else -> start_waits = true
    fi
#endif
  }
}
inline open(i) {
#if MUTATE == 3
  is_open[i] = true;
  mine = is_ready[i];
#else
  atomic { is_open[i] = true; mine = is_ready[i] };               /* rule 4 */
#endif
  if :: mine -> mine = false; send(i, v) :: else fi
}
proctype sender_helper() {                         /* takes control records */
  byte i, g, v; bool mine, waits;
end:
  do
  :: atomic { to_sender ?? ACCEPT(i, g) ->
#if MUTATE == 4
       waits = start_waits; start_waits = false };
     accepted = g;
     atomic {
#else
       accepted = g; waits = start_waits; start_waits = false;    /* rule 5 */
#endif
       v = NAME(g, 1) };
     if
     :: waits -> waits = false; open(0); open(1)
     :: else
     fi;
     g = 0; v = 0
  od
}
#endif
#define MOVED(i) (pushed[i] == v || finished[i] == v)
proctype sender() {
  byte g, r, v; bool mine;
#ifdef PREPARED
  bool waits;
#endif
#ifdef JOINED
  bool other, opens, looked, must_hear; byte k, p, q;
#endif
#ifdef TOLD
  if :: is_next_free = true :: is_next_free = false fi;
#endif
  for (g : 1 .. GENERATIONS) {
    for (r : 1 .. ROUNDS) {
      v = NAME(g, r);
      start();
#ifdef JOINED
      if :: p = 0; q = 1 :: p = 1; q = 0 fi;
      if :: must_hear = true :: must_hear = false fi;
      ready(p);
      if                                           /* that this one is there, by other means */
      :: !must_hear || arrived[p] == v
      fi;
      ready(q);
#else
#ifdef PREPARED
      if :: waits = true :: waits = false fi;
      if :: !waits || accepted == g && credit == v fi;
      waits = false;
#endif
      ready(0);
      ready(1);
#endif
      atomic { MOVED(0) && MOVED(1) ->             /* MPI_Wait: rule 9 */
        assert(arrived[0] == v && arrived[1] == v);
        stable[0] = 0; stable[1] = 0 }             /* the application writes its buffer */
    };
    s_closed = g;
    r_closed == g                                  /* rule 10 */
  }
}

/* rule 8: whoever claims the group pulls it */
inline claim_and_pull(i, v) {
#if MUTATE == 9
  mine = (noticed[i] == v && open_round == v && claimed[i] < v);
  if :: mine -> claimed[i] = v :: else fi;
#else
  atomic {
    mine = (noticed[i] == v && open_round == v && claimed[i] < v);
    if :: mine -> claimed[i] = v :: else fi
  };
#endif
  if
  :: mine -> mine = false;
     atomic {                                      /* the remote read */
       assert(open_round == v);
       assert(arrived[i] != v);
       assert(stable[i] == v);
       arrived[i] = v;
#if MUTATE != 5
       to_sender !! FIN, i, v                      /* rule 9 */
#endif
     }
  :: else
  fi
}
proctype helper() {                                /* asleep until it is rung */
  byte v; bool mine;
end:
  do
  :: atomic { bell -> bell = false; v = open_round };
     if
     :: v != 0 -> claim_and_pull(0, v); claim_and_pull(1, v)
     :: else
     fi;
     v = 0
  od
}
inline accept() { to_sender !! ACCEPT, 0, g }
proctype receiver() {
  byte g, r, v; bool mine, late;
#ifdef JOINED
  byte demanded;
#endif
  for (g : 1 .. GENERATIONS) {
    if
    :: late = true                                 /* the channel is accepted in its first Start ... */
    :: late = false; accept()                      /* ... or as soon as it is matched */
    fi;
    for (r : 1 .. ROUNDS) {
      v = NAME(g, r);
      open_round = v;                              /* MPI_Start: rule 6 */
      if
      :: late -> late = false; accept()
      :: else
      fi;
#ifdef PREPARED
      atomic {                                     /* rule 16 */
        if
#if MUTATE != 19
        :: credits_away != 0 ->
#if MUTATE != 20
           owed = v
#else
           skip
#endif
#endif
        :: MUTATE == 19 || credits_away == 0 -> give_credit(v)
        fi
      };
#else
      to_sender !! CREDIT, 0, v;
#endif
#if MUTATE != 8
      claim_and_pull(0, v);
      claim_and_pull(1, v);
#endif
#ifdef JOINED
      do
      :: atomic { arrived[0] == v && arrived[1] == v -> open_round = 0; break }
#if MUTATE == 12
      :: atomic { demanded != v ->
#else
      :: atomic { demanded != v && (demanded == 0 || heard >= demanded && heard < v) ->   /* rules 11, 15 */
#endif
           demanded = v; unheard[g]++;
           assert(unheard[g] <= 1);
           to_sender !! DEMAND, 0, v }
      od
#else
      atomic { arrived[0] == v && arrived[1] == v -> open_round = 0 }   /* sits in a native call meanwhile */
#endif
    };
#ifdef JOINED
    demanded = 0;
#endif
#ifdef PREPARED
#if MUTATE == 21
    credits_away = 0;
#else
    credits_away == 0;                             /* rule 17 */
#endif
#endif
    r_closed = g;
    s_closed == g
  }
}
init {
  atomic { run nic_sender(); run nic_receiver(); run sender(); run sender_helper(); run helper(); run receiver() }
}
