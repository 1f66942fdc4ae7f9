/* ring: every process sends a message to the next one and receives one from the previous one, in C.
 *
 * Shows a send, a receive, and synchronizers that are waited for and reused. Checks itself: each
 * round has other data. Exit status 1 if a byte was wrong. ring.cpp is the same in C++.
 *
 *     larklane launch -n 4 ./ring_c --rounds 100 --bytes 65536
 */
#include <larklane/larklane.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An error ends the program. */
static void must(int status) {
  if (status == LARKLANE_OK) return;
  fprintf(stderr, "%s\n", larklane_last_error());
  exit(1);
}

static void wait_for(larklane_vci *vci, larklane_completion_object *synchronizer) {
  larklane_completion told = LARKLANE_COMPLETION_INIT;
  int is_ready = 0;
  for (;;) {
    must(larklane_synchronizer_test(synchronizer, &is_ready));
    if (is_ready) break;
    must(larklane_vci_progress(vci, NULL));
  }
  must(larklane_synchronizer_completion(synchronizer, 0, &told));
  if (told.status != LARKLANE_OK) {
    fprintf(stderr, "rank %d: %s\n", told.rank, larklane_error_name(told.status));
    exit(1);
  }
  must(larklane_synchronizer_reset(synchronizer));
}

static void read_options(int argc, char **argv, long *rounds, long *bytes) {
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--help") == 0) {
      printf(
          "ring: messages around a ring of processes\n\n"
          "  --rounds   rounds [%ld]\n  --bytes    length of a message [%ld]\n",
          *rounds, *bytes);
      exit(0);
    }
    long *value = strcmp(argv[i], "--rounds") == 0 ? rounds : bytes;
    const int is_known = value == rounds || strcmp(argv[i], "--bytes") == 0;
    if (!is_known || i + 1 == argc || (*value = atol(argv[++i])) < 1) {
      fprintf(stderr, "%s: what is %s? (--help lists all options)\n", argv[0], argv[i]);
      exit(2);
    }
  }
}

int main(int argc, char **argv) {
  long rounds = 100, bytes = 65536, wrong = 0;
  read_options(argc, argv, &rounds, &bytes);

  larklane_context *context;
  larklane_vci *vci;
  larklane_completion_object *sent, *received;
  int rank, size;
  must(larklane_context_create(&context));
  must(larklane_context_rank(context, &rank));
  must(larklane_context_size(context, &size));
  must(larklane_vci_create(context, &vci));
  must(larklane_synchronizer_create(context, 1, &sent));
  must(larklane_synchronizer_create(context, 1, &received));
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;

  /* Both are always signalled, also if an operation is done at once: one wait serves all cases. */
  larklane_post_options send = LARKLANE_POST_OPTIONS_INIT, receive = LARKLANE_POST_OPTIONS_INIT;
  send.completion = sent;
  receive.completion = received;
  send.signals_always = receive.signals_always = 1;

  const size_t length = (size_t)bytes;
  unsigned char *outgoing = malloc(length), *incoming = malloc(length);
  if (!outgoing || !incoming) return 1;
  for (long round = 0; round < rounds; ++round) {
    const uint32_t tag = (uint32_t)round;
    larklane_post answer;
    memset(outgoing, (unsigned char)(rank + round), length);
    for (;;) {
      must(larklane_post_recv(vci, previous, tag, incoming, length, &receive, NULL, &answer));
      if (answer != LARKLANE_RETRY) break;
      must(larklane_vci_progress(vci, NULL));
    }
    for (;;) {
      must(larklane_post_send(vci, next, tag, outgoing, length, &send, &answer));
      if (answer != LARKLANE_RETRY) break;
      must(larklane_vci_progress(vci, NULL));
    }
    wait_for(vci, received);
    wait_for(vci, sent);
    for (size_t i = 0; i < length; ++i) wrong += incoming[i] != (unsigned char)(previous + round);
  }
  must(larklane_context_fence(context)); /* a receiver may still fetch from this process */
  if (rank == 0)
    printf("ring: %d processes, %ld rounds of %ld bytes, %ld bytes wrong\n", size, rounds, bytes,
           wrong);

  free(outgoing);
  free(incoming);
  must(larklane_completion_object_free(sent));
  must(larklane_completion_object_free(received));
  must(larklane_vci_destroy(vci));
  must(larklane_context_destroy(context));
  return wrong != 0;
}
