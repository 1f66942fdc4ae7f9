// Completion of requests by every call there is, and the checks that follow.
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

void add_request(Team* team, MPI_Request request, const Operation* operation) {
  if (team->in_flight == kPoolMax) fail(team, "the pool is full");
  if (request == MPI_REQUEST_NULL) fail(team, "%s gave a null request", team->doing);
  Operation* kept = &team->operation[team->in_flight];
  *kept = *operation;
  if (kept->is_receive && !kept->is_persistent && !kept->is_raced && kept->typed.is_made &&
      one_in(&team->random, 3)) {
    MUST(MPI_Type_free(
        &kept->typed.type));  // a type may be freed in use; its elements can still be counted
    kept->typed.type = kept->typed.basic;
    kept->typed.is_made = false;
  }
  team->request[team->in_flight++] = request;
}

// Checks
// -------------------------------------------------------------------------------------------

static void check_status(Team* team, const Operation* operation, const Message* message,
                         const MPI_Status* status) {
  int elements = -1, count = -1, cancelled = -1;
  const int source = team->comm[message->comm].rank_of[message->source];
  const int expected = basic_elements(message->base, message->elements);
  MUST(MPI_Get_elements(status, operation->typed.type, &elements));
  MUST(MPI_Test_cancelled(status, &cancelled));
  if (status->MPI_SOURCE != source || status->MPI_TAG != message->tag || elements != expected ||
      cancelled) {
    fail(team,
         "status of message %d: source %d, tag %d, %d elements, cancelled %d; expected %d, %d, %d, "
         "0",
         (int)(message - team->batch.message), status->MPI_SOURCE, status->MPI_TAG, elements,
         cancelled, source, message->tag, expected);
  }
  const bool has_whole_type = operation->typed.is_made || operation->layout.shape == kPlain;
  if (!has_whole_type || operation->layout.capacity == 0) return;
  MUST(MPI_Get_count(status, operation->typed.type, &count));
  const int right = expected_count(&operation->layout, message->elements);
  if (count != right) {
    fail(team, "message %d: MPI_Get_count says %d, expected %d",
         (int)(message - team->batch.message), count, right);
  }
}

static void check_gathered(Team* team, const Operation* operation, const MPI_Status* status) {
  int index = -1;
  memcpy(&index, operation->buffer, sizeof(index));
  if (index < 0 || index >= team->batch.messages)
    fail(team, "receive %d got bytes of no message", operation->number);
  const Message* message = &team->batch.message[index];
  check_status(team, operation, message, status);
  unsigned char* expected = malloc((size_t)message->elements + 1);
  fill_stream(expected, (size_t)message->elements, message->id);
  memcpy(expected, &index, sizeof(index));
  if (memcmp(expected, operation->buffer, (size_t)message->elements) != 0) {
    fail(team, "wrong data in message %d of a gather", index);
  }
  free(expected);
  team->got[operation->number] = (uint64_t)index;
}

void check_receive(Team* team, const Operation* operation, const MPI_Status* status) {
  if (team->batch.is_gather) {
    check_gathered(team, operation, status);
    return;
  }
  const Message* message = operation->message;
  if (operation->is_status_whole) check_status(team, operation, message, status);
  const long long wrong =
      wrong_in_layout(operation->buffer, &operation->layout, message->elements, message->id);
  if (wrong == -1) return;
  fail(team,
       "message %d (rank %d to %d, tag %d, %d elements of base %d, shapes %d to %d): %s %lld is "
       "wrong",
       (int)(message - team->batch.message), message->source, message->target, message->tag,
       message->elements, (int)message->base, (int)message->from.shape,
       (int)operation->layout.shape, wrong == -2 ? "a byte outside it," : "byte", wrong);
}

static void receive_again(Team* team, Operation operation) {
  const Message* message = operation.message;
  const Comm* comm = &team->comm[message->comm];
  operation.is_raced = operation.is_cancelled = false;
  operation.ready_at = team->position > message->send_at ? team->position : message->send_at;
  MPI_Request request;
  DOING("MPI_Irecv after a cancel");
  MUST(MPI_Irecv(operation.buffer, operation.typed.count, operation.typed.type,
                 comm->rank_of[message->source], message->tag, comm->handle, &request));
  add_request(team, request, &operation);
}

/// Takes operation `index`, which is complete, out of the pool. @param status  NULL: not known
static void finish(Team* team, int index, const MPI_Status* status) {
  Operation operation = team->operation[index];
  if (!operation.is_persistent && team->request[index] != MPI_REQUEST_NULL) {
    fail(team, "%s completed a request and left its handle", team->doing);
  }
  --team->in_flight;
  team->operation[index] = team->operation[team->in_flight];
  team->request[index] = team->request[team->in_flight];
  if (operation.is_receive) {
    int cancelled = 0;
    if (status) MUST(MPI_Test_cancelled(status, &cancelled));
    if (cancelled && !operation.is_cancelled) fail(team, "a receive was cancelled by no call");
    if (!operation.message && !cancelled)
      fail(team, "a receive without a message is complete, and not cancelled");
    if (operation.message && cancelled) {
      receive_again(team, operation);
      return;
    }
    if (!status) operation.is_status_whole = false;
    if (operation.message) check_receive(team, &operation, status);
  }
  if (operation.is_persistent) return;
  free_type(&operation.typed);
  free(operation.buffer);
}

// Calls
// --------------------------------------------------------------------------------------------

static bool is_ready(const Operation* operation, int position) {
  return !operation->is_raced && operation->message && operation->ready_at < position;
}

typedef struct Chosen {
  int count, ready, index[kPoolMax];
  MPI_Request request[kPoolMax];
  MPI_Status status[kPoolMax];
  int done[kPoolMax];
} Chosen;

/// Some of the requests. @param only_ready  those that complete for certain
static void choose(Team* team, Chosen* chosen, int position, bool only_ready) {
  const int share = between(&team->random, 1, 4);
  chosen->count = chosen->ready = 0;
  for (int i = 0; i < team->in_flight; ++i) {
    const bool ready = is_ready(&team->operation[i], position);
    if ((only_ready && !ready) || !one_in(&team->random, share)) continue;
    chosen->index[chosen->count] = i;
    chosen->request[chosen->count++] = team->request[i];
    chosen->ready += ready;
  }
}

/// Takes the chosen requests number done[0 .. count) out of the pool.
static void finish_chosen(Team* team, Chosen* chosen, int count, bool has_status) {
  for (int i = 0; i < chosen->count; ++i) team->request[chosen->index[i]] = chosen->request[i];
  // The last of the pool first, for each removal moves the last one.
  for (;;) {
    int last = -1;
    for (int i = 0; i < count; ++i) {
      if (chosen->done[i] >= 0 &&
          (last < 0 || chosen->index[chosen->done[i]] > chosen->index[chosen->done[last]]))
        last = i;
    }
    if (last < 0) return;
    const int index = chosen->index[chosen->done[last]];
    chosen->done[last] = -1;
    finish(team, index, has_status ? &chosen->status[last] : NULL);
  }
}

/// Expects success of a call that gives an array of statuses.
static void expect_success(Team* team, int code, const Chosen* chosen, int count, bool has_status) {
  if (code == MPI_SUCCESS) return;
  for (int i = 0; i < count && has_status; ++i) {
    const Operation* operation = &team->operation[chosen->index[chosen->done[i]]];
    if (chosen->status[i].MPI_ERROR == MPI_SUCCESS) continue;
    fail(team, "error %d of request %d of %d, a %s of message %d", chosen->status[i].MPI_ERROR, i,
         count, operation->is_receive ? "receive" : "send",
         operation->message ? (int)(operation->message - team->batch.message) : -1);
  }
  fail(team, "%s failed: %d", team->doing, code);
}

static void wait_or_test_all(Team* team, int position, bool waits) {
  Chosen chosen;
  choose(team, &chosen, position, waits);
  // Without statuses no cancel could be seen.
  bool ignores = one_in(&team->random, 6) && !team->batch.is_gather;
  for (int i = 0; i < chosen.count; ++i) {
    if (team->operation[chosen.index[i]].is_raced || !team->operation[chosen.index[i]].message)
      ignores = false;
  }
  MPI_Status* statuses = ignores ? MPI_STATUSES_IGNORE : chosen.status;
  int flag = 1;
  for (int i = 0; i < chosen.count; ++i) chosen.done[i] = i;
  if (waits) {
    DOING("MPI_Waitall");
    expect_success(team, MPI_Waitall(chosen.count, chosen.request, statuses), &chosen, chosen.count,
                   !ignores);
  } else {
    DOING("MPI_Testall");
    expect_success(team, MPI_Testall(chosen.count, chosen.request, &flag, statuses), &chosen,
                   chosen.count, !ignores);
  }
  if (!flag) return;
  finish_chosen(team, &chosen, chosen.count, !ignores);
}

static void wait_or_test_some(Team* team, int position, bool waits) {
  Chosen chosen;
  choose(team, &chosen, position, false);
  int count = 0;
  if (waits) {
    if (chosen.ready == 0) return;
    DOING("MPI_Waitsome");
    const int code = MPI_Waitsome(chosen.count, chosen.request, &count, chosen.done, chosen.status);
    expect_success(team, code, &chosen, count, true);
    if (count < 1) fail(team, "MPI_Waitsome completed %d requests", count);
  } else {
    DOING("MPI_Testsome");
    const int code = MPI_Testsome(chosen.count, chosen.request, &count, chosen.done, chosen.status);
    expect_success(team, code, &chosen, count, true);
  }
  if (count == MPI_UNDEFINED) {
    if (chosen.count > 0) fail(team, "Testsome sees no active request");
    return;
  }
  finish_chosen(team, &chosen, count, true);
}

static void wait_or_test_any(Team* team, int position, bool waits) {
  Chosen chosen;
  choose(team, &chosen, position, false);
  int index = MPI_UNDEFINED, flag = 1;
  if (waits) {
    if (chosen.ready == 0) return;
    DOING("MPI_Waitany");
    MUST(MPI_Waitany(chosen.count, chosen.request, &index, &chosen.status[0]));
  } else {
    DOING("MPI_Testany");
    MUST(MPI_Testany(chosen.count, chosen.request, &index, &flag, &chosen.status[0]));
  }
  if (!flag) return;
  if (index == MPI_UNDEFINED) {
    if (chosen.count > 0) fail(team, "%s sees no active request", team->doing);
    return;
  }
  if (index < 0 || index >= chosen.count)
    fail(team, "%s gave the index %d of %d", team->doing, index, chosen.count);
  chosen.done[0] = index;
  finish_chosen(team, &chosen, 1, true);
}

static void wait_or_test(Team* team, int position, bool waits) {
  if (team->in_flight == 0) return;
  const int index = between(&team->random, 0, team->in_flight - 1);
  MPI_Status status;
  int flag = 1;
  if (waits) {
    if (!is_ready(&team->operation[index], position)) return;
    DOING("MPI_Wait");
    MUST(MPI_Wait(&team->request[index], &status));
  } else {
    DOING("MPI_Test");
    MUST(MPI_Test(&team->request[index], &flag, &status));
  }
  if (flag) finish(team, index, &status);
}

/// Asks for the status; a request that is complete is so at once for MPI_Test, too.
static void get_status(Team* team) {
  if (team->in_flight == 0) return;
  const int index = between(&team->random, 0, team->in_flight - 1);
  const MPI_Request before = team->request[index];
  if (team->operation[index].is_persistent && avoided.persistent_get_status) return;
  MPI_Status first, second;
  int flag = 0, again = 0, cancelled = 0;
  DOING("MPI_Request_get_status");
  MUST(MPI_Request_get_status(team->request[index], &flag, &first));
  if (team->request[index] != before) fail(team, "MPI_Request_get_status changed the handle");
  if (!flag) return;
  MUST(MPI_Test(&team->request[index], &again, &second));
  if (!again) fail(team, "MPI_Request_get_status said complete, and MPI_Test did not");
  const Operation* operation = &team->operation[index];
  if (operation->is_receive) MUST(MPI_Test_cancelled(&first, &cancelled));
  if (operation->is_receive && !cancelled && operation->message && !team->batch.is_gather) {
    check_status(team, operation, operation->message, &first);
  }
  finish(team, index, &second);
}

/// Frees a send in flight: its buffer lives until a barrier after which the message has been
/// received.
static void free_a_send(Team* team) {
  for (int i = 0; i < team->in_flight && team->rotten_count < kRottenMax; ++i) {
    const Operation* operation = &team->operation[i];
    if (operation->is_receive || operation->is_persistent) continue;
    team->rotten[team->rotten_count++] = operation->buffer;
    DOING("MPI_Request_free");
    MUST(MPI_Request_free(&team->request[i]));
    team->operation[i].buffer = NULL;
    finish(team, i, NULL);
    return;
  }
}

static bool cancel_one(Team* team) {
  for (int i = 0; i < team->in_flight; ++i) {
    Operation* operation = &team->operation[i];
    if (operation->message && !operation->is_raced) continue;
    operation->is_cancelled = true;
    DOING("MPI_Cancel");
    MUST(MPI_Cancel(&team->request[i]));
    MPI_Status status;
    DOING("MPI_Wait after MPI_Cancel");
    if (one_in(&team->random, 2)) {
      MUST(MPI_Wait(&team->request[i], &status));
    } else {
      int flag = 0;
      while (!flag) MUST(MPI_Test(&team->request[i], &flag, &status));
    }
    finish(team, i, &status);
    return true;
  }
  return false;
}

static void complete_by(Team* team, int call, int position) {
  switch (call) {
    case 0:
      wait_or_test(team, position, true);
      break;
    case 1:
      wait_or_test_any(team, position, true);
      break;
    case 2:
      wait_or_test_some(team, position, true);
      break;
    case 3:
      wait_or_test_all(team, position, true);
      break;
    case 4:
      wait_or_test(team, position, false);
      break;
    case 5:
      wait_or_test_any(team, position, false);
      break;
    case 6:
      wait_or_test_some(team, position, false);
      break;
    case 7:
      wait_or_test_all(team, position, false);
      break;
    case 8:
      get_status(team);
      break;
    case 9:
      free_a_send(team);
      break;
    default:
      cancel_one(team);
  }
}

void complete_some(Team* team, int position) {
  complete_by(team, between(&team->random, 0, 10), position);
}

void complete_all(Team* team) {
  enum { kForCertain = kEventsMax + 1 };
  while (cancel_one(team)) continue;
  for (int calls = 0; team->in_flight > 0; ++calls) {
    complete_by(team, between(&team->random, calls < 40 ? 0 : 3, calls < 40 ? 9 : 3), kForCertain);
    if (calls % 8 == 7) sched_yield();
  }
}
