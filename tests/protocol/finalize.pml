/* MPI_Finalize, and MPI_Comm_disconnect, with ordinary messages not received yet. One pair, a ring of one record. The sender has sent
 * messages 0 and 1, of which the receiver takes one at most, and sends message 2 in a delete callback inside the native MPI_Finalize; the
 * receiver may receive it in its own callback. The native call may synchronise the ranks or not.
 *
 *  1. A rank drains its backlog before the native call, without a time limit while the peer lives. It rings a receiver that does not poll.
 *  2. From its own drain until the native call returns a rank's helper polls its lanes: the peer's drain may need room.
 *  3. In that time the helper drains the rank's own backlog, too: a callback may have sent.
 *  4. After the native call the rank drains again, then says goodbye and ends.
 *  5. A drain ends when the peer has said goodbye, or is dead: the records have no receiver any more.
 *
 * Checked: the receive of a callback completes; no wait without end; no heap is freed with a record that a living peer waits for.
 *
 * @model finalize
 * @mutant 1 rule 2: a rank's helper stops polling when the rank's own drain has ended => deadlock
 * @mutant 2 rule 3: the helper does not drain inside the native call, nor does the rank after it => deadlock
 * @mutant 3 rule 4: a rank ends when the native call has returned => deadlock
 * @mutant 4 rule 5: a drain goes on although the peer has said goodbye => deadlock
 * @mutant 5 rule 1: a draining rank rings no bell => deadlock
 * @unreached sender_helper -end-
 * @unreached receiver_helper -end-
 */
#ifndef MUTATE
#define MUTATE 0
#endif

chan ring = [1] of { byte };
byte backlog, sent;                                /* the sender's heap: its last `backlog` messages */
bool receiver_bell, sender_bell;
bool sender_gone, receiver_gone, receiver_drained;
byte got;                                          /* messages taken from the ring */
bool sender_in, receiver_in, synchronises;         /* the native call */

inline send() {
  atomic {
    if
    :: backlog == 0 && len(ring) == 0 -> ring ! sent
    :: else -> backlog++
    fi;
    sent++ }
}
inline push() {
  atomic {
    if
    :: backlog && len(ring) == 0 -> ring ! sent - backlog; backlog--
    :: else
    fi }
}
inline drain() {
  do
  :: backlog == 0 -> break
#if MUTATE != 4
  :: receiver_gone -> break
#endif
  :: backlog && len(ring) == 0 -> push()
#if MUTATE != 5
  :: backlog && len(ring) == 1 && !receiver_gone && (!rang || rung_at != got) ->
     rang = true; rung_at = got; receiver_bell = true   /* once a stall */
#endif
  od
}
inline take() {
  atomic {
    if
    :: len(ring) == 1 -> ring ? m; got++; m = 0;
       if
       :: backlog -> sender_bell = true
       :: else
       fi
    :: else
    fi }
}
proctype sender() {
  byte rung_at; bool rang;
  drain();                                         /* MPI_Finalize */
  send();                                          /* the native call: a callback */
  sender_in = true;
  (!synchronises || receiver_in);
#if MUTATE == 2
  skip;
#elif MUTATE != 3
  drain();
#endif
  sender_gone = true
}
proctype sender_helper() {
  {
end:
    do
    :: sender_bell -> sender_bell = false;
#if MUTATE == 2
       skip
#else
       push()
#endif
    od
  } unless { sender_gone }
}
proctype receiver() {
  byte m;
  if
  :: len(ring) == 1 -> take()                      /* a receive of message 0 */
  :: true
  fi;
  receiver_drained = true;                         /* MPI_Finalize; its own backlog is empty */
  if                                               /* the native call: a callback */
  :: do
     :: got == 3 -> break
     :: got < 3 && len(ring) == 1 -> take()
     od
  :: true
  fi;
  receiver_in = true;
  (!synchronises || sender_in);
  receiver_gone = true
}
proctype receiver_helper() {
  byte m;
  {
end:
    do
#if MUTATE == 1
    :: receiver_bell && !receiver_drained -> receiver_bell = false; take()
#else
    :: receiver_bell -> receiver_bell = false; take()
#endif
    od
  } unless { receiver_gone }
}
init { atomic {
  ring ! 0; backlog = 1; sent = 2;
  if
  :: synchronises = true
  :: true
  fi;
  run sender(); run sender_helper(); run receiver(); run receiver_helper() } }
