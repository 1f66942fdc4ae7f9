// Runs a batch: the calls of this rank, in the order of the plan.
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

static int rank_in(const Team* team, const Message* message, int world) {
  return team->comm[message->comm].rank_of[world];
}

void synchronize(Team* team) {
  DOING("MPI_Barrier");
  MUST(MPI_Barrier(team->base));
  for (; team->rotten_count > 0; --team->rotten_count) free(team->rotten[team->rotten_count - 1]);
}

static unsigned char* buffer_for(const Layout* layout) {
  unsigned char* buffer = malloc(span_of(layout));
  wipe(buffer, layout);
  return buffer;
}

// Sends
// --------------------------------------------------------------------------------------------

static MPI_Request start_send(Team* team, const Message* message, const void* buffer,
                              const Typed* typed) {
  const MPI_Comm on = team->comm[message->comm].handle;
  const int to = rank_in(team, message, message->target), tag = message->tag;
  const int count = typed->count;
  const MPI_Datatype type = typed->type;
  MPI_Request request = MPI_REQUEST_NULL;
  switch (message->send) {
    case kSend:
      DOING("MPI_Send");
      MUST(MPI_Send(buffer, count, type, to, tag, on));
      break;
    case kSsend:
      DOING("MPI_Ssend");
      MUST(MPI_Ssend(buffer, count, type, to, tag, on));
      break;
    case kBsend:
      DOING("MPI_Bsend");
      MUST(MPI_Bsend(buffer, count, type, to, tag, on));
      break;
    case kRsend:
      DOING("MPI_Rsend");
      MUST(MPI_Rsend(buffer, count, type, to, tag, on));
      break;
    case kIsend:
      DOING("MPI_Isend");
      MUST(MPI_Isend(buffer, count, type, to, tag, on, &request));
      break;
    case kIssend:
      DOING("MPI_Issend");
      MUST(MPI_Issend(buffer, count, type, to, tag, on, &request));
      break;
    case kIbsend:
      DOING("MPI_Ibsend");
      MUST(MPI_Ibsend(buffer, count, type, to, tag, on, &request));
      break;
    case kIrsend:
      DOING("MPI_Irsend");
      MUST(MPI_Irsend(buffer, count, type, to, tag, on, &request));
      break;
    default:
      fail(team, "no such send: %d", (int)message->send);
  }
  return request;
}

static int later_of(const Message* message) {
  return message->send_at > message->receive_at ? message->send_at : message->receive_at;
}

static void do_send(Team* team, const Message* message, int ready_at) {
  Operation operation = {.message = message, .layout = message->from, .ready_at = ready_at};
  if (message->send == kPersistentSend) {
    operation.is_persistent = true;
    operation.number = message->channel;
    operation.buffer = team->sender_buffer[message->channel];
    lay_out(operation.buffer, &operation.layout, message->elements, message->id);
    DOING("MPI_Start of a send");
    MUST(MPI_Start(&team->sender[message->channel]));
    add_request(team, team->sender[message->channel], &operation);
    return;
  }
  operation.buffer = buffer_for(&operation.layout);
  lay_out(operation.buffer, &operation.layout, message->elements, message->id);
  operation.typed = make_type(&operation.layout);
  const MPI_Request request = start_send(team, message, operation.buffer, &operation.typed);
  if (one_in(&team->random, 2)) free_type(&operation.typed);  // a type may be freed in use
  if (request != MPI_REQUEST_NULL) {
    add_request(team, request, &operation);
  } else {
    free_type(&operation.typed);
    memset(operation.buffer, 0, span_of(&operation.layout));  // it is free for new data
    free(operation.buffer);
  }
}

// Receives
// -----------------------------------------------------------------------------------------

static void check_probe(Team* team, const Message* message, const Typed* typed,
                        const MPI_Status* status) {
  int elements = -1;
  MUST(MPI_Get_elements(status, typed->type, &elements));
  const int source = rank_in(team, message, message->source);
  if (status->MPI_SOURCE != source || status->MPI_TAG != message->tag ||
      elements != basic_elements(message->base, message->elements)) {
    fail(team, "probe of message %d shows source %d, tag %d, %d elements; expected %d, %d, %d",
         (int)(message - team->batch.message), status->MPI_SOURCE, status->MPI_TAG, elements,
         source, message->tag, basic_elements(message->base, message->elements));
  }
}

/// Takes the message by a matched probe.
static MPI_Message take(Team* team, const Message* message, int source, int tag, MPI_Comm on,
                        MPI_Status* status) {
  MPI_Message taken = MPI_MESSAGE_NULL;
  int flag = 0;
  if (message->receive != kImprobeMrecv) {
    DOING("MPI_Mprobe");
    MUST(MPI_Mprobe(source, tag, on, &taken, status));
    return taken;
  }
  DOING("MPI_Improbe again and again");
  while (!flag) {
    MUST(MPI_Improbe(source, tag, on, &flag, &taken, status));
    if (!flag) sched_yield();
  }
  return taken;
}

static void probe(Team* team, ReceiveKind kind, int source, int tag, MPI_Comm on,
                  MPI_Status* status) {
  int flag = 0;
  if (kind == kProbeRecv) {
    DOING("MPI_Probe");
    MUST(MPI_Probe(source, tag, on, status));
    return;
  }
  DOING("MPI_Iprobe again and again");
  while (!flag) {
    MUST(MPI_Iprobe(source, tag, on, &flag, status));
    if (!flag) sched_yield();
  }
}

/// @return true if the receive is complete
static bool start_receive(Team* team, const Message* message, const Operation* operation,
                          MPI_Status* status, MPI_Request* request) {
  const MPI_Comm on = team->comm[message->comm].handle;
  int source = message->any_source ? MPI_ANY_SOURCE : rank_in(team, message, message->source);
  int tag = message->any_tag ? MPI_ANY_TAG : message->tag;
  const Typed* typed = &operation->typed;
  MPI_Message taken;
  switch (message->receive) {
    case kProbeRecv:
    case kIprobeRecv:
      probe(team, message->receive, source, tag, on, status);
      check_probe(team, message, typed, status);
      source = status->MPI_SOURCE;
      tag = status->MPI_TAG;  // fallthrough
    case kRecv:
      DOING("MPI_Recv");
      MUST(MPI_Recv(operation->buffer, typed->count, typed->type, source, tag, on, status));
      return true;
    case kMprobeMrecv:
    case kMprobeImrecv:
    case kImprobeMrecv:
      taken = take(team, message, source, tag, on, status);
      check_probe(team, message, typed, status);
      if (message->receive == kMprobeImrecv) {
        DOING("MPI_Imrecv");
        MUST(MPI_Imrecv(operation->buffer, typed->count, typed->type, &taken, request));
        return false;
      }
      DOING("MPI_Mrecv");
      MUST(MPI_Mrecv(operation->buffer, typed->count, typed->type, &taken, status));
      if (taken != MPI_MESSAGE_NULL) fail(team, "Mrecv left the message handle");
      return true;
    default:
      DOING("MPI_Irecv");
      MUST(MPI_Irecv(operation->buffer, typed->count, typed->type, source, tag, on, request));
      return false;
  }
}

static Operation receive_operation(const Message* message, int ready_at) {
  Operation operation = {.message = message,
                         .is_receive = true,
                         .layout = message->to,
                         .ready_at = ready_at,
                         .is_status_whole = true};
  operation.buffer = buffer_for(&operation.layout);
  operation.typed = make_type(&operation.layout);
  return operation;
}

static void drop(Operation* operation) {
  free_type(&operation->typed);
  free(operation->buffer);
}

static void do_receive(Team* team, const Message* message) {
  if (message->receive == kPersistentRecv) {
    Operation operation = {.message = message,
                           .is_receive = true,
                           .layout = message->to,
                           .is_persistent = true,
                           .number = message->channel,
                           .ready_at = later_of(message),
                           .is_status_whole = true,
                           .buffer = team->receiver_buffer[message->channel],
                           .typed = team->receiver_type[message->channel]};
    wipe(operation.buffer, &operation.layout);
    DOING("MPI_Start of a receive");
    MUST(MPI_Start(&team->receiver[message->channel]));
    add_request(team, team->receiver[message->channel], &operation);
    return;
  }
  Operation operation = receive_operation(message, later_of(message));
  MPI_Status status;
  MPI_Request request;
  operation.is_raced = message->is_raced;
  if (start_receive(team, message, &operation, &status, &request)) {
    check_receive(team, &operation, &status);
    drop(&operation);
  } else {
    add_request(team, request, &operation);
  }
}

// Exchanges
// ----------------------------------------------------------------------------------------

/// Sends `out` and receives `in` at once, as `out` says.
static void exchange(Team* team, const Message* out, const Message* in) {
  const MPI_Comm on = team->comm[out->comm].handle;
  const int to = rank_in(team, out, out->target);
  const int from = in->any_source ? MPI_ANY_SOURCE : rank_in(team, in, in->source);
  Message sent = *out;
  if (out->exchange == kIsendAndRecv || out->exchange == kIrecvAndSsend) {
    Operation operation = receive_operation(in, in->receive_at);
    MPI_Status status;
    if (out->exchange == kIsendAndRecv) {
      Operation sending = {.message = out, .layout = out->from, .ready_at = out->send_at};
      sending.buffer = buffer_for(&sending.layout);
      lay_out(sending.buffer, &sending.layout, out->elements, out->id);
      sending.typed = make_type(&sending.layout);
      sent.send = kIsend;
      add_request(team, start_send(team, &sent, sending.buffer, &sending.typed), &sending);
      DOING("MPI_Recv of an exchange");
      MUST(MPI_Recv(operation.buffer, operation.typed.count, operation.typed.type, from, in->tag,
                    on, &status));
      check_receive(team, &operation, &status);
      drop(&operation);
    } else {
      MPI_Request request;
      MUST(MPI_Irecv(operation.buffer, operation.typed.count, operation.typed.type, from, in->tag,
                     on, &request));
      add_request(team, request, &operation);
      sent.send = kSsend;
      do_send(team, &sent, sent.send_at);
    }
    return;
  }
  Operation operation = receive_operation(in, in->receive_at);
  unsigned char* buffer = buffer_for(&out->from);
  lay_out(buffer, &out->from, out->elements, out->id);
  Typed typed = make_type(&out->from);
  MPI_Status status;
  const bool is_replace_avoided = out->base == kBasePair && avoided.replaced_structures;
  if (out->exchange == kSendrecvReplace && !is_replace_avoided) {
    DOING("MPI_Sendrecv_replace");
    free(operation.buffer);
    operation.buffer = buffer;
    buffer = NULL;
    MUST(MPI_Sendrecv_replace(operation.buffer, typed.count, typed.type, to, out->tag, from,
                              in->tag, on, &status));
  } else if (out->exchange != kIsendrecv || avoided.isendrecv) {
    DOING("MPI_Sendrecv");
    MUST(MPI_Sendrecv(buffer, typed.count, typed.type, to, out->tag, operation.buffer,
                      operation.typed.count, operation.typed.type, from, in->tag, on, &status));
  } else {
#if MPI_VERSION >= 4
    MPI_Request request;
    DOING("MPI_Isendrecv");
    MUST(MPI_Isendrecv(buffer, typed.count, typed.type, to, out->tag, operation.buffer,
                       operation.typed.count, operation.typed.type, from, in->tag, on, &request));
    DOING("MPI_Wait of an Isendrecv");
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));  // MPI leaves its fields open
    operation.is_status_whole = false;
#else
    DOING("MPI_Sendrecv");
    MUST(MPI_Sendrecv(buffer, typed.count, typed.type, to, out->tag, operation.buffer,
                      operation.typed.count, operation.typed.type, from, in->tag, on, &status));
#endif
  }
  check_receive(team, &operation, &status);
  free_type(&typed);
  free(buffer);
  drop(&operation);
}

static void do_exchange(Team* team, const Message* there) {
  const Message* back = there + 1;
  if (there->source == there->target) {
    if (there->source != team->rank) return;
    exchange(team, there, there);
    exchange(team, back, back);
  } else if (there->source == team->rank) {
    exchange(team, there, back);
  } else if (back->source == team->rank) {
    exchange(team, back, there);
  }
}

// Batches
// ------------------------------------------------------------------------------------------

static void do_void(Team* team, const Void* nothing) {
  if (nothing->target != team->rank) return;
  const Comm* comm = &team->comm[nothing->comm];
  Operation operation = {.is_receive = true, .ready_at = kEventsMax};
  operation.buffer = malloc(8);
  MPI_Request request;
  DOING("MPI_Irecv without a message");
  MUST(MPI_Irecv(operation.buffer, 8, MPI_BYTE,
                 nothing->any_source ? MPI_ANY_SOURCE : comm->rank_of[nothing->source],
                 nothing->tag, comm->handle, &request));
  add_request(team, request, &operation);
}

/// The persistent requests of position 0, by one call.
static void start_all(Team* team) {
  MPI_Request requests[2 * kChannels];
  Operation operations[2 * kChannels];
  int count = 0;
  for (int i = 0; i < team->batch.messages; ++i) {
    const Message* message = &team->batch.message[i];
    if (message->channel < 0 || message->send != kPersistentSend ||
        message->receive != kPersistentRecv || message->send_at != 0 || message->receive_at != 0) {
      continue;
    }
    const int channel = message->channel;
    Operation operation = {
        .message = message, .is_persistent = true, .number = channel, .is_status_whole = true};
    if (message->target == team->rank) {
      operation.is_receive = true;
      operation.layout = message->to;
      operation.buffer = team->receiver_buffer[channel];
      operation.typed = team->receiver_type[channel];
      wipe(operation.buffer, &operation.layout);
      operations[count] = operation;
      requests[count++] = team->receiver[channel];
    }
    if (message->source == team->rank) {
      operation.is_receive = false;
      operation.layout = message->from;
      operation.buffer = team->sender_buffer[channel];
      lay_out(operation.buffer, &operation.layout, message->elements, message->id);
      operations[count] = operation;
      requests[count++] = team->sender[channel];
    }
  }
  DOING("MPI_Startall");
  MUST(MPI_Startall(count, requests));
  for (int i = 0; i < count; ++i) add_request(team, requests[i], &operations[i]);
}

static void run_events(Team* team) {
  const Batch* batch = &team->batch;
  for (int at = 0; at < batch->events; ++at) {
    const Event* event = &batch->event[at];
    const Message* message = &batch->message[event->message];
    team->position = at;
    if (event->kind == kSendEvent && message->source == team->rank) {
      do_send(team, message, message->is_raced ? kEventsMax : later_of(message));
    } else if (event->kind == kReceiveEvent) {
      // The event says where a receive is posted; the message is the one that the model gives it.
      for (int i = 0; i < batch->messages; ++i) {
        const Message* own = &batch->message[i];
        if (own->receive_at == at && own->target == team->rank && own->exchange == kNoExchange)
          do_receive(team, own);
      }
    } else if (event->kind == kExchangeEvent) {
      do_exchange(team, message);
    } else if (event->kind == kVoidEvent) {
      do_void(team, &batch->nothing[event->message]);
    } else if (event->kind == kStartAll) {
      start_all(team);
    } else if (event->kind == kFence) {
      DOING("MPI_Barrier as a fence");
      MUST(MPI_Barrier(team->base));
    }
    if (one_in(&team->random, 4)) complete_some(team, at);
  }
}

// Wildcards that race: one rank receives from all, in any order
// ----------------------

static void gather_sends(Team* team) {
  for (int i = 0; i < team->batch.messages; ++i) {
    const Message* message = &team->batch.message[i];
    if (message->source != team->rank) continue;
    Operation operation = {
        .message = message, .ready_at = -1, .layout = {.base = kBaseByte, .block = 1}};
    operation.layout.capacity = message->elements;
    operation.buffer = malloc((size_t)message->elements + 1);
    fill_stream(operation.buffer, (size_t)message->elements, message->id);
    memcpy(operation.buffer, &i, sizeof(i));  // which it is
    operation.typed = make_type(&operation.layout);
    const MPI_Request request = start_send(team, message, operation.buffer, &operation.typed);
    if (request != MPI_REQUEST_NULL) {
      add_request(team, request, &operation);
    } else {
      free(operation.buffer);
    }
  }
}

static void gather_one(Team* team, int number, int largest) {
  const MPI_Comm on = team->comm[1].handle;
  Operation operation = {.is_receive = true,
                         .number = number,
                         .ready_at = -1,
                         .is_status_whole = true,
                         .message = &team->batch.message[0],
                         .layout = {.base = kBaseByte, .block = 1}};
  operation.layout.capacity = largest;
  operation.buffer = malloc((size_t)largest);
  operation.typed = make_type(&operation.layout);
  MPI_Status status;
  MPI_Message taken;
  MPI_Request request = MPI_REQUEST_NULL;
  ReceiveKind kind = (ReceiveKind)between(&team->random, kRecv, kIrecv);
  if (avoided.matched && kind > kIprobeRecv) kind = kIrecv;
  if (kind == kIrecv) {
    DOING("MPI_Irecv of any message");
    MUST(MPI_Irecv(operation.buffer, largest, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, on, &request));
  } else if (kind == kRecv) {
    DOING("MPI_Recv of any message");
    MUST(MPI_Recv(operation.buffer, largest, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, on, &status));
  } else if (kind == kProbeRecv || kind == kIprobeRecv) {
    probe(team, kind, MPI_ANY_SOURCE, MPI_ANY_TAG, on, &status);
    const int source = status.MPI_SOURCE, tag = status.MPI_TAG;
    DOING("MPI_Recv of the message that a probe has shown");
    MUST(MPI_Recv(operation.buffer, largest, MPI_BYTE, source, tag, on, &status));
  } else {
    Message like = {.receive = kind};
    taken = take(team, &like, MPI_ANY_SOURCE, MPI_ANY_TAG, on, &status);
    if (kind == kMprobeImrecv) {
      MUST(MPI_Imrecv(operation.buffer, largest, MPI_BYTE, &taken, &request));
    } else {
      MUST(MPI_Mrecv(operation.buffer, largest, MPI_BYTE, &taken, &status));
    }
  }
  if (request != MPI_REQUEST_NULL) {
    add_request(team, request, &operation);
  } else {
    check_receive(team, &operation, &status);
    drop(&operation);
  }
}

static void gather(Team* team) {
  const Batch* batch = &team->batch;
  if (batch->root != team->rank) {
    gather_sends(team);
    return;
  }
  int largest = 0, last[kRanksMax];
  for (int i = 0; i < batch->messages; ++i) {
    if (batch->message[i].elements > largest) largest = batch->message[i].elements;
  }
  for (int i = 0; i < batch->messages; ++i) {
    team->position = i;
    gather_one(team, i, largest);
    if (one_in(&team->random, 4)) complete_some(team, i);
  }
  complete_all(team);
  for (int i = 0; i < kRanksMax; ++i) last[i] = -1;
  for (int i = 0; i < batch->messages; ++i) {
    const int got = (int)team->got[i], source = batch->message[got].source;
    if (got <= last[source])
      fail(team, "receive %d got message %d of rank %d after its message %d", i, got, source,
           last[source]);
    last[source] = got;
  }
}

void run_batch(Team* team, bool frees_communicators) {
  Batch* batch = &team->batch;
  plan_batch(&team->planner, batch);
  if (batch->is_synchronized) synchronize(team);
  if (batch->is_gather) {
    gather(team);
  } else {
    run_events(team);
  }
  team->position = kEventsMax;
  if (frees_communicators && !batch->is_gather) {
    // Not with raced receives: another receive after the cancel would need the
    // communicator.
    for (int i = 0; i < batch->messages; ++i) frees_communicators &= !batch->message[i].is_raced;
    if (frees_communicators) free_communicators(team);
  }
  complete_all(team);
  if (batch->is_synchronized) synchronize(team);
  team->messages += batch->messages;
  for (int i = 0; i < batch->messages; ++i)
    team->bytes += (long long)bytes_of(batch->message[i].base, batch->message[i].elements);
  ++team->batches;
}
