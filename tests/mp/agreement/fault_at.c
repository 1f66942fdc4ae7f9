/* Preloaded: a rank dies or sleeps when it sends a ballot (src/mpi/p2p/agreement.hpp), or its
 * ballot is that of another version.
 *
 *   FAULT_AT=RANK:WHAT:KIND:ROUND:WHEN[,...]     one a rank
 *     WHAT   kill, version, or seconds of sleep
 *     KIND   of the record: 32 vote, 33 answer
 *     WHEN   before, after */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static const uint32_t magic = 0x6b72616c;
enum { kind_at = 8, header_bytes = 16, version_at = 4, round_at = 24, ballot_bytes = 32 };

struct fault {
  int rank, kind, round, seconds, is_after, is_version;
};

static int own_rank(void) {
  const char* rank = getenv("PMI_RANK");
  if (rank == NULL) rank = getenv("OMPI_COMM_WORLD_RANK");
  return rank == NULL ? -1 : atoi(rank);
}

/* 0: no fault for this process */
static int read_fault(struct fault* fault) {
  const char* text = getenv("FAULT_AT");
  char what[16], when[16];
  for (; text != NULL; text = strchr(text, ',')) {
    text += *text == ',';
    if (sscanf(text, "%d:%15[^:]:%d:%d:%15[^,]", &fault->rank, what, &fault->kind, &fault->round,
               when) != 5)
      return 0;
    if (fault->rank != own_rank()) continue;
    fault->seconds = strcmp(what, "kill") == 0 ? 0 : atoi(what);
    fault->is_version = strcmp(what, "version") == 0;
    fault->is_after = strcmp(when, "after") == 0;
    return 1;
  }
  return 0;
}

static int is_meant(const struct fault* fault, const struct msghdr* message,
                    unsigned char record[header_bytes + ballot_bytes]) {
  const size_t wanted = header_bytes + ballot_bytes;
  size_t bytes = 0;
  for (size_t i = 0; i < message->msg_iovlen && bytes < wanted; ++i) {
    const size_t left = wanted - bytes, here = message->msg_iov[i].iov_len;
    memcpy(record + bytes, message->msg_iov[i].iov_base, here < left ? here : left);
    bytes += here < left ? here : left;
  }
  uint32_t found;
  uint16_t kind;
  memcpy(&found, record, sizeof found);
  memcpy(&kind, record + kind_at, sizeof kind);
  return bytes == wanted && found == magic && kind == fault->kind &&
         record[header_bytes + round_at] == fault->round;
}

static void strike(const struct fault* fault) {
  if (fault->seconds == 0) kill(getpid(), SIGKILL);
  for (int left = fault->seconds; left > 0;) left = (int)sleep((unsigned)left);
}

ssize_t sendmsg(int socket, const struct msghdr* message, int flags) {
  ssize_t (*next)(int, const struct msghdr*, int) =
      (ssize_t(*)(int, const struct msghdr*, int))dlsym(RTLD_NEXT, "sendmsg");
  struct fault fault;
  unsigned char record[header_bytes + ballot_bytes];
  const int strikes = read_fault(&fault) && is_meant(&fault, message, record);
  if (strikes && fault.is_version) {
    record[header_bytes + version_at] ^= 0x40;
    struct iovec whole = {record, sizeof record};
    struct msghdr changed = *message;
    changed.msg_iov = &whole;
    changed.msg_iovlen = 1;
    return next(socket, &changed, flags);
  }
  if (strikes && !fault.is_after) strike(&fault);
  const ssize_t sent = next(socket, message, flags);
  if (strikes && fault.is_after) strike(&fault);
  return sent;
}
