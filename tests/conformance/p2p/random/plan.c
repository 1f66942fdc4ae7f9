// The plan of a batch: messages, receives, and which receive gets which message. All ranks make the
// same one.
//
// The model. All events of a batch have a position; each rank goes through its own in this order. A
// receive is bound to one source: by its rank, or because its tag belongs to one source, or because
// its rank has one source in this batch. Then MPI's order rule leaves one possible match for each
// receive at any timing: going through the receives in the order of posting, each takes the
// first message of its source, in the order of sending, that fits and is not taken.
//
// No deadlock: a call may block at its position only if the calls that end it have an earlier
// position, or the same one.
#include <string.h>

#include "random.h"

enum {
  kPlainTags = 4,       // of a source on a communicator, for most messages
  kFirstReserved = 16,  // tags of one message of a batch
  kFirstVoid = 80,      // tags that no message has
  kFirstChannel = 100,
  kTagsOfTeam = 128,
  kBsendBytesMax = 1024,
  kBsendBatchBytes = 16384,  // of a team in a batch
  kBatchBytesMax = 24 << 20,
  kFrequentBarrier = 6,
};

int tag_of(const Planner* planner, int comm, int source, int number) {
  return planner->comm[comm].first_tag + (planner->team * kTagsOfTeam + number) * planner->ranks +
         source;
}

static int random_elements(Planner* planner, Base base, long long* budget) {
  uint64_t* random = &planner->random;
  const int choice = between(random, 1, 2000);
  int bytes = choice <= 1300   ? between(random, 0, 128)
              : choice <= 1700 ? between(random, 0, 2048)
              : choice <= 1900 ? between(random, 0, 20000)
              : choice <= 1990 ? between(random, 0, 150000)
              : choice <= 1999 ? between(random, 0, 1 << 20)
                               : between(random, 0, 8 << 20);
  if (bytes > planner->largest_bytes) bytes = planner->largest_bytes;
  if (bytes > *budget) bytes = (int)(*budget < 64 ? 64 : *budget);
  *budget -= bytes;
  return bytes / (int)bytes_of(base, 1);
}

static int member(Planner* planner, int comm) {
  const Comm* on = &planner->comm[comm];
  return on->world_of[between(&planner->random, 0, on->members - 1)];
}

static int comm_for(Planner* planner) {
  for (;;) {
    const int comm = between(&planner->random, 0, kComms - 1);
    if (planner->comm[comm].members > 0) return comm;
  }
}

void plan_channels(Planner* planner, Channel* channels) {
  static const SendKind kModes[] = {kSend, kSsend, kBsend};
  uint64_t* random = &planner->random;
  for (int i = 0; i < kChannels; ++i) {
    Channel* channel = &channels[i];
    long long budget = 1 << 20;
    channel->comm = comm_for(planner);
    channel->source = member(planner, channel->comm);
    channel->target = member(planner, channel->comm);
    channel->tag = tag_of(planner, channel->comm, channel->source, kFirstChannel + i);
    channel->base = (Base)between(random, 0, kBases - 1);
    channel->elements = random_elements(planner, channel->base, &budget);
    channel->mode = kModes[between(random, 0, 2)];
    if (bytes_of(channel->base, channel->elements) > kBsendBytesMax && channel->mode == kBsend) {
      channel->mode = kSend;
    }
    channel->from = random_layout(random, channel->base, channel->elements, 0);
    channel->to = random_layout(random, channel->base, channel->elements, between(random, 0, 9));
    channel->any_source = one_in(random, 3);
    channel->is_sender_persistent = !one_in(random, 4) && !avoided.persistent;
    channel->is_receiver_persistent = !one_in(random, 4) && !avoided.persistent;
  }
}

// Choices that a batch as a whole makes.
typedef struct Choices {
  bool wild, races, starts_all, has_fence;
  int comm, source_of[kRanksMax];  // wild: each rank's only source
  long long budget, bsend_budget;
  int reserved;
} Choices;

static Message* new_message(Planner* planner, Batch* batch, Choices* choices) {
  uint64_t* random = &planner->random;
  Message* message = &batch->message[batch->messages++];
  memset(message, 0, sizeof(*message));
  message->id = planner->next_id++;
  message->channel = -1;
  message->base = (Base)between(random, 0, kBases - 1);
  message->elements = random_elements(planner, message->base, &choices->budget);
  if (choices->wild) {
    message->comm = choices->comm;
    message->target = member(planner, message->comm);
    message->source = choices->source_of[message->target];
  } else {
    message->comm = comm_for(planner);
    message->source = member(planner, message->comm);
    message->target = member(planner, message->comm);
  }
  message->tag =
      tag_of(planner, message->comm, message->source, between(random, 0, kPlainTags - 1));
  return message;
}

static void reserve(Planner* planner, Message* message, Choices* choices) {
  message->is_reserved = true;
  message->tag =
      tag_of(planner, message->comm, message->source, kFirstReserved + choices->reserved++);
}

static void add_event(Batch* batch, EventKind kind, int message) {
  batch->event[batch->events++] = (Event){kind, message};
}

static void add_plain(Planner* planner, Batch* batch, Choices* choices) {
  Message* message = new_message(planner, batch, choices);
  if (choices->races && one_in(&planner->random, 6)) {
    message->is_raced = true;
    reserve(planner, message, choices);
  }
  add_event(batch, kSendEvent, batch->messages - 1);
  add_event(batch, kReceiveEvent, batch->messages - 1);
}

/// Two ranks that send to each other at one position; or one that sends to itself, twice.
static void add_exchange(Planner* planner, Batch* batch, Choices* choices) {
  uint64_t* random = &planner->random;
  Message* there = new_message(planner, batch, choices);
  Message* back = new_message(planner, batch, choices);
  back->comm = there->comm;
  back->source = there->target;
  back->target = there->source;
  back->base = there->base;
  back->elements = there->elements;
  reserve(planner, there, choices);
  reserve(planner, back, choices);
  there->exchange = (ExchangeKind)between(random, kSendrecv, kIrecvAndSsend);
  back->exchange = (ExchangeKind)between(random, kSendrecv, kIrecvAndSsend);
  if (there->source == there->target) {  // one call sends and receives `there`, and so with `back`
    there->exchange = (ExchangeKind)between(random, kSendrecv, kIsendrecv);
    back->exchange = (ExchangeKind)between(random, kSendrecv, kIsendrecv);
  }
  add_event(batch, kExchangeEvent, batch->messages - 2);
}

static bool is_started_with_all(const Planner* planner, const Choices* choices,
                                const Message* message) {
  if (message->channel < 0 || !choices->starts_all) return false;
  const Channel* channel = &planner->channel[message->channel];
  return channel->is_sender_persistent && channel->is_receiver_persistent;
}

static void add_channels(Planner* planner, Batch* batch, const Choices* choices) {
  for (int i = 0; i < kChannels && !choices->wild; ++i) {
    const Channel* channel = &planner->channel[i];
    if (!one_in(&planner->random, 3)) continue;
    Message* message = &batch->message[batch->messages++];
    *message = (Message){.source = channel->source,
                         .target = channel->target,
                         .comm = channel->comm,
                         .tag = channel->tag,
                         .elements = channel->elements,
                         .channel = i,
                         .base = channel->base,
                         .id = planner->next_id++,
                         .from = channel->from,
                         .to = channel->to,
                         .any_source = channel->any_source,
                         .is_reserved = true};
    if (is_started_with_all(planner, choices, message)) continue;  // both at position 0
    add_event(batch, kSendEvent, batch->messages - 1);
    add_event(batch, kReceiveEvent, batch->messages - 1);
  }
}

static void add_voids(Planner* planner, Batch* batch, const Choices* choices) {
  uint64_t* random = &planner->random;
  for (int i = 0; i < kVoidsMax && !choices->wild; ++i) {
    if (!one_in(random, 12)) continue;
    Void* nothing = &batch->nothing[batch->voids];
    nothing->comm = comm_for(planner);
    nothing->target = member(planner, nothing->comm);
    nothing->source = member(planner, nothing->comm);
    nothing->tag = tag_of(planner, nothing->comm, nothing->source, kFirstVoid + i);
    nothing->any_source = one_in(random, 2);
    add_event(batch, kVoidEvent, batch->voids++);
  }
}

static void shuffle(Planner* planner, Batch* batch, const Choices* choices) {
  for (int i = batch->events - 1; i > 0; --i) {
    const int other = between(&planner->random, 0, i);
    const Event moved = batch->event[i];
    batch->event[i] = batch->event[other];
    batch->event[other] = moved;
  }
  if (choices->starts_all) {
    add_event(batch, kStartAll, 0);
    const Event first = batch->event[0];
    batch->event[0] = batch->event[batch->events - 1];
    batch->event[batch->events - 1] = first;
  }
  if (choices->has_fence) {
    const int at = batch->events / 2;
    add_event(batch, kFence, 0);
    const Event moved = batch->event[at];
    batch->event[at] = batch->event[batch->events - 1];
    batch->event[batch->events - 1] = moved;
  }
}

// Matching
// -----------------------------------------------------------------------------------------

static void place_sends(Batch* batch) {
  for (int at = 0; at < batch->events; ++at) {
    const Event* event = &batch->event[at];
    Message* message = &batch->message[event->message];
    if (event->kind == kSendEvent) message->send_at = at;
    if (event->kind != kExchangeEvent) continue;
    message[0].send_at = message[1].send_at = message[0].receive_at = message[1].receive_at = at;
  }
}

/// The first message in the order of sending, of those that go where `like` goes and are not
/// `matched`. @param tag  -1: any
static Message* first_sent(Batch* batch, const Message* like, int tag, const bool* matched) {
  Message* first = NULL;
  for (int i = 0; i < batch->messages; ++i) {
    Message* message = &batch->message[i];
    if (matched[i] || message->source != like->source || message->target != like->target ||
        message->comm != like->comm || (tag >= 0 && message->tag != tag)) {
      continue;
    }
    if (!first || message->send_at < first->send_at) first = message;
  }
  return first;
}

/// A message that is not matched and has no tag of its own.
static Message* random_unmatched(Planner* planner, Batch* batch, const Message* like,
                                 const bool* matched) {
  Message* found[kMessagesMax];
  int count = 0;
  for (int i = 0; i < batch->messages; ++i) {
    Message* message = &batch->message[i];
    if (!matched[i] && !message->is_reserved && message->source == like->source &&
        message->target == like->target && message->comm == like->comm) {
      found[count++] = message;
    }
  }
  return found[between(&planner->random, 0, count - 1)];
}

static void match(Planner* planner, Batch* batch, const Choices* choices) {
  bool matched[kMessagesMax] = {false};
  uint64_t* random = &planner->random;
  for (int at = 0; at < batch->events; ++at) {
    const Event* event = &batch->event[at];
    for (int i = 0; i < batch->messages; ++i) {  // received at this position by their own tags
      const bool is_paired = batch->message[i].exchange != kNoExchange ||
                             is_started_with_all(planner, choices, &batch->message[i]);
      if (is_paired && batch->message[i].receive_at == at) matched[i] = true;
    }
    if (event->kind != kReceiveEvent) continue;
    Message* message = &batch->message[event->message];
    bool any_tag = false, any_source = message->any_source;
    if (!message->is_reserved) {
      const Message* like = message;
      message = random_unmatched(planner, batch, like, matched);
      message = first_sent(batch, like, message->tag, matched);
      if (like->comm > 0 && !choices->races && one_in(random, 3)) {
        Message* next = first_sent(batch, like, -1, matched);
        any_tag = !next->is_reserved;
        if (any_tag) message = next;
      }
    }
    if (message->channel < 0) any_source = one_in(random, 3) && (!any_tag || choices->wild);
    message->any_source = any_source;
    message->any_tag = any_tag;
    message->receive_at = at;
    matched[message - batch->message] = true;
  }
}

static void choose_receive(Planner* planner, Message* message) {
  uint64_t* random = &planner->random;
  message->receive = kIrecv;
  if (message->channel >= 0) {
    if (planner->channel[message->channel].is_receiver_persistent)
      message->receive = kPersistentRecv;
  } else {
    message->to = random_layout(random, message->base, message->elements,
                                one_in(random, 2) ? between(random, 0, 40) : 0);
    if (message->send_at < message->receive_at && !message->is_raced && !one_in(random, 3)) {
      message->receive =
          (ReceiveKind)between(random, kRecv, avoided.matched ? kIprobeRecv : kImprobeMrecv);
    }
  }
}

static void choose_send(Planner* planner, Message* message, int fence_at, Choices* choices) {
  static const SendKind kLocal[] = {kIsend, kIsend, kIssend, kIbsend, kBsend};
  static const SendKind kAll[] = {kSend, kSsend, kIsend, kIssend, kBsend, kIbsend};
  uint64_t* random = &planner->random;
  if (message->channel >= 0 && planner->channel[message->channel].is_sender_persistent) {
    message->send = kPersistentSend;
    return;
  }
  if (message->channel < 0)
    message->from = random_layout(random, message->base, message->elements, 0);
  message->send = kLocal[between(random, 0, 4)];
  const bool is_posted = message->receive_at < message->send_at;
  if (is_posted && !message->is_raced) {
    message->send = kAll[between(random, 0, 5)];
    const bool is_known = message->source == message->target ||
                          (message->receive_at < fence_at && fence_at < message->send_at);
    if (is_known && one_in(random, 2)) message->send = one_in(random, 2) ? kRsend : kIrsend;
  }
  if (message->send == kBsend || message->send == kIbsend) {
    if (avoided.buffered) message->send = kIsend;
  }
  if (message->send == kBsend || message->send == kIbsend) {
    const long long bytes = (long long)bytes_of(message->base, message->elements);
    if (bytes > kBsendBytesMax || bytes > choices->bsend_budget) {
      message->send = kIsend;
    } else {
      choices->bsend_budget -= bytes;
    }
  }
}

static void choose_calls(Planner* planner, Batch* batch, Choices* choices) {
  int fence_at = -1;
  for (int at = 0; at < batch->events; ++at) {
    if (batch->event[at].kind == kFence) fence_at = at;
  }
  for (int i = 0; i < batch->messages; ++i) {
    Message* message = &batch->message[i];
    if (message->exchange == kNoExchange) {
      choose_receive(planner, message);
      choose_send(planner, message, fence_at, choices);
      continue;
    }
    message->from = random_layout(&planner->random, message->base, message->elements, 0);
    message->to = random_layout(&planner->random, message->base, message->elements,
                                between(&planner->random, 0, 5));
    message->any_source = one_in(&planner->random, 3);
  }
  for (int at = 0; at < batch->events; ++at) {  // one buffer for both directions
    Message* there = &batch->message[batch->event[at].message];
    if (batch->event[at].kind != kExchangeEvent) continue;
    Message* back = there + 1;
    const bool is_to_itself = there->source == there->target;
    if (there->exchange == kSendrecvReplace) (is_to_itself ? there : back)->to = there->from;
    if (back->exchange == kSendrecvReplace) (is_to_itself ? back : there)->to = back->from;
  }
}

static void plan_gather(Planner* planner, Batch* batch) {
  uint64_t* random = &planner->random;
  const int comm = 1;
  batch->is_gather = batch->is_synchronized = true;
  batch->root = member(planner, comm);
  const int messages = between(random, 4, kMessagesMax);
  while (batch->messages < messages) {
    const int source = member(planner, comm);
    if (source == batch->root) continue;
    long long budget = 1 << 16;
    Message* message = &batch->message[batch->messages++];
    *message = (Message){.source = source,
                         .target = batch->root,
                         .comm = comm,
                         .channel = -1,
                         .base = kBaseByte,
                         .id = planner->next_id++};
    message->elements = random_elements(planner, kBaseByte, &budget);
    if (message->elements < 16) message->elements = 16;
    message->tag = tag_of(planner, comm, source, between(random, 0, kPlainTags - 1));
    message->send = (SendKind)between(random, kSend, kSsend);
    if (one_in(random, 2)) message->send = one_in(random, 2) ? kIsend : kIssend;
  }
}

static Choices choose(Planner* planner) {
  uint64_t* random = &planner->random;
  Choices choices = {.budget = kBatchBytesMax, .bsend_budget = kBsendBatchBytes};
  choices.wild = one_in(random, 8);
  choices.races = !choices.wild && one_in(random, 6);
  choices.starts_all = !choices.wild && one_in(random, 2);
  choices.has_fence = one_in(random, 4);
  choices.comm = planner->comm[2].members > 0 && one_in(random, 2) ? 2 : 1;
  for (int i = 0; i < planner->comm[choices.comm].members; ++i) {
    const int target = planner->comm[choices.comm].world_of[i];
    choices.source_of[target] = member(planner, choices.comm);
  }
  return choices;
}

void plan_batch(Planner* planner, Batch* batch) {
  uint64_t* random = &planner->random;
  batch->messages = batch->events = batch->voids = 0;
  batch->is_gather = false;
  if (planner->ranks > 2 ? one_in(random, 8) : one_in(random, 20)) {
    plan_gather(planner, batch);
    return;
  }
  Choices choices = choose(planner);
  batch->is_synchronized = choices.wild || one_in(random, kFrequentBarrier);
  for (int left = choices.wild ? 0 : between(random, 0, 3); left > 0; --left) {
    add_exchange(planner, batch, &choices);
  }
  for (int left = between(random, 2, kMessagesMax - 6 - kChannels); left > 0; --left) {
    add_plain(planner, batch, &choices);
  }
  add_channels(planner, batch, &choices);
  add_voids(planner, batch, &choices);
  shuffle(planner, batch, &choices);
  place_sends(batch);
  match(planner, batch, &choices);
  choose_calls(planner, batch, &choices);
}
