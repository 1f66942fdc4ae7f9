/* An RDMA device by itself: half round trip of a write with immediate data between two processes of
 * one host; each polls its completion queue all the time. No MPI.
 *
 *   bare_verbs DEVICE [--at bytes=N,rounds=N,...]...
 *
 * With partitions=N of that many bytes each takes its share. Prints for each --at {"samples":
 * [...], "wrong": n}: every round's figure in ns, and the rounds that brought other bytes. GID 1,
 * as Soft-RoCE has its IPv4 address there; port 1. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  DEPTH = 64,
  PORT = 1,
  GID = 1,
  INLINE_MAX = 256,
  SIGNAL_EVERY = 16, /* and the rounds before it have ended by then: the peer has answered */
  RETRY_CODE = 14,   /* of the acknowledgement: 67 ms */
};

struct point {
  size_t bytes;
  int rounds;
};

/* How a process is reached. */
struct address {
  union ibv_gid gid;
  uint32_t queue, key;
  uint64_t in;
};

struct side {
  struct ibv_context* context;
  struct ibv_pd* domain;
  struct ibv_cq* completions;
  struct ibv_qp* pair;
  struct ibv_mr* region;
  char *out, *in;
  struct address peer;
  unsigned posted;
};

static void need(int is_good, const char* what) {
  if (is_good) return;
  perror(what);
  exit(1);
}

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static struct ibv_context* opened(const char* name) {
  struct ibv_device** all = ibv_get_device_list(NULL);
  for (int i = 0; all && all[i]; ++i)
    if (strcmp(ibv_get_device_name(all[i]), name) == 0) return ibv_open_device(all[i]);
  return NULL;
}

/* `bytes` out and twice as many in: those of one round are checked when the next ones may come. */
static void make(struct side* s, const char* device, size_t bytes) {
  need((s->context = opened(device)) != NULL, device);
  need((s->domain = ibv_alloc_pd(s->context)) != NULL, "ibv_alloc_pd");
  s->completions = ibv_create_cq(s->context, 4 * DEPTH, NULL, NULL, 0);
  need(s->completions != NULL, "ibv_create_cq");
  struct ibv_qp_init_attr wish = {.send_cq = s->completions,
                                  .recv_cq = s->completions,
                                  .qp_type = IBV_QPT_RC,
                                  .cap = {.max_send_wr = DEPTH,
                                          .max_recv_wr = DEPTH,
                                          .max_send_sge = 1,
                                          .max_recv_sge = 1,
                                          .max_inline_data = INLINE_MAX}};
  need((s->pair = ibv_create_qp(s->domain, &wish)) != NULL, "ibv_create_qp");
  s->out = calloc(3, bytes);
  s->in = s->out + bytes;
  s->region =
      ibv_reg_mr(s->domain, s->out, 3 * bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  need(s->region != NULL, "ibv_reg_mr");
}

static void exchange(struct side* s, int with) {
  struct address own = {.queue = s->pair->qp_num, .key = s->region->rkey, .in = (uintptr_t)s->in};
  need(ibv_query_gid(s->context, PORT, GID, &own.gid) == 0, "ibv_query_gid");
  need(write(with, &own, sizeof own) == sizeof own, "exchange");
  need(read(with, &s->peer, sizeof s->peer) == sizeof s->peer, "exchange");
}

static void post_receive(struct side* s) {
  struct ibv_recv_wr work = {0}, *bad;
  need(ibv_post_recv(s->pair, &work, &bad) == 0, "ibv_post_recv");
}

static void connect_pair(struct side* s) {
  struct ibv_port_attr port;
  need(ibv_query_port(s->context, PORT, &port) == 0, "ibv_query_port");
  struct ibv_qp_attr to = {
      .qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  need(ibv_modify_qp(s->pair, &to,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
       "init");
  for (int i = 0; i < DEPTH; ++i) post_receive(s);
  to = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTR,
      .path_mtu = port.active_mtu,
      .dest_qp_num = s->peer.queue,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 1,
      .ah_attr = {.is_global = 1,
                  .port_num = PORT,
                  .dlid = port.lid,
                  .grh = {.dgid = s->peer.gid, .sgid_index = GID, .hop_limit = 64}}};
  need(ibv_modify_qp(s->pair, &to,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
       "ready to receive");
  to = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                            .timeout = RETRY_CODE,
                            .retry_cnt = 7,
                            .rnr_retry = 0,
                            .max_rd_atomic = 1};
  need(ibv_modify_qp(s->pair, &to,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
       "ready to send");
}

static void send_one(struct side* s, size_t bytes, size_t offset) {
  struct ibv_sge element = {(uintptr_t)s->out, (uint32_t)bytes, s->region->lkey};
  const int is_signalled = ++s->posted % SIGNAL_EVERY == 0, is_small = bytes <= INLINE_MAX;
  struct ibv_send_wr work = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .sg_list = &element,
                             .num_sge = 1},
                     *bad;
  work.send_flags = (is_signalled ? IBV_SEND_SIGNALED : 0u) | (is_small ? IBV_SEND_INLINE : 0u);
  work.imm_data = htonl(s->posted);
  work.wr.rdma.remote_addr = s->peer.in + offset;
  work.wr.rdma.rkey = s->peer.key;
  need(ibv_post_send(s->pair, &work, &bad) == 0, "ibv_post_send");
}

static void receive_one(struct side* s) {
  struct ibv_wc found = {0};
  do {
    const int count = ibv_poll_cq(s->completions, 1, &found);
    need(count >= 0, "ibv_poll_cq");
    if (count > 0 && found.status != IBV_WC_SUCCESS) {
      fprintf(stderr, "bare_verbs: %s\n", ibv_wc_status_str(found.status));
      exit(1);
    }
    if (count == 0) found.opcode = 0;
  } while (found.opcode != IBV_WC_RECV_RDMA_WITH_IMM);
}

static char byte_of(size_t at, int round) { return (char)(at * 7 + (size_t)round * 13 + 1); }

static int is_wrong(const char* in, size_t bytes, int round) {
  size_t at = 0;
  while (at < bytes && in[at] == byte_of(at, round)) ++at;
  return at < bytes;
}

static void run(struct side* s, struct point p, int is_first) {
  const int warmup = p.rounds / 10 + 1;
  long wrong = 0;
  if (is_first) printf("{\"samples\": [");
  for (int round = -warmup; round < p.rounds; ++round) {
    const size_t offset = round % 2 ? p.bytes : 0;
    for (size_t at = 0; at < p.bytes; ++at) s->out[at] = byte_of(at, round);
    const double began = now_ns();
    if (is_first) send_one(s, p.bytes, offset);
    receive_one(s);
    if (!is_first) send_one(s, p.bytes, offset);
    const double half = (now_ns() - began) / 2;
    post_receive(s);
    wrong += is_wrong(s->in + offset, p.bytes, round);
    if (is_first && round >= 0) printf("%s%.1f", round ? ", " : "", half);
  }
  if (is_first) printf("], \"wrong\": %ld}\n", wrong);
  fflush(stdout);
}

static struct point parsed(char* text) {
  static char* const names[] = {"bytes", "rounds", "partitions", NULL};
  struct point p = {8, 1000};
  size_t partitions = 1;
  char* value = NULL;
  while (*text) {
    const int name = getsubopt(&text, names, &value);
    need(name >= 0 && value != NULL, "--at takes bytes=N, rounds=N and partitions=N");
    if (name == 0) p.bytes = (size_t)atoll(value);
    if (name == 1) p.rounds = atoi(value);
    if (name == 2) partitions = (size_t)atoll(value);
  }
  p.bytes /= partitions;
  return p;
}

int main(int argc, char** argv) {
  struct point points[64] = {{8, 1000}};
  int count = 0;
  for (int i = 2; i + 1 < argc && count < 64; i += 2) points[count++] = parsed(argv[i + 1]);
  if (argc < 2) {
    fprintf(stderr, "usage: bare_verbs DEVICE [--at bytes=N,rounds=N]...\n");
    return 2;
  }
  size_t most = 8;
  for (int i = 0; i < count; ++i) most = points[i].bytes > most ? points[i].bytes : most;
  int ends[2];
  need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  const pid_t child = fork();
  const int is_first = child != 0;
  if (!is_first) prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct side side = {0};
  make(&side, argv[1], most);
  exchange(&side, ends[is_first]);
  connect_pair(&side);
  exchange(&side, ends[is_first]); /* the peer can receive */
  for (int i = 0; i < (count ? count : 1); ++i) run(&side, points[i], is_first);
  exchange(&side, ends[is_first]); /* the peer has all */
  int status = 0;
  if (is_first) waitpid(child, &status, 0);
  return status != 0;
}
