/* The medium by itself: half round trip of a message on a TCP connection of our own between the two
 * ranks, wherever they are. `socket`: both ask all the time; `asleep`: the kernel wakes them. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pair.h"

static void failed(const char* what) {
  perror(what);
  MPI_Abort(MPI_COMM_WORLD, 5);
}

/* IPv4 address of this host: of an interface that leads somewhere, else the loopback's. */
static struct sockaddr_in own_address(void) {
  struct sockaddr_in found = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct ifaddrs* all = NULL;
  if (getifaddrs(&all) != 0) failed("getifaddrs");
  for (struct ifaddrs* at = all; at; at = at->ifa_next)
    if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && !(at->ifa_flags & IFF_LOOPBACK) &&
        (at->ifa_flags & IFF_RUNNING))
      found.sin_addr = ((struct sockaddr_in*)at->ifa_addr)->sin_addr;
  freeifaddrs(all);
  return found;
}

/* Collective. @return a connection from rank 0 to rank 1 */
static int connected(void) {
  const int is_listener = rank_of_this() == 1, on = 1;
  int found = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = own_address();
  socklen_t size = sizeof address;
  if (is_listener && (bind(found, (struct sockaddr*)&address, size) != 0 || listen(found, 1) != 0 ||
                      getsockname(found, (struct sockaddr*)&address, &size) != 0))
    failed("pair: listening");
  MPI_Bcast(&address, sizeof address, MPI_BYTE, 1, MPI_COMM_WORLD);
  if (is_listener) {
    const int listener = found;
    found = accept(listener, NULL, NULL);
    close(listener);
  } else if (connect(found, (struct sockaddr*)&address, size) != 0) {
    failed("pair: connecting");
  }
  if (found < 0 || setsockopt(found, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    failed("pair: connection");
  return found;
}

static void send_all(int to, const char* from, size_t bytes, int flags) {
  while (bytes > 0) {
    const ssize_t sent = send(to, from, bytes, flags | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) failed("pair: send");
    from += sent > 0 ? sent : 0;
    bytes -= sent > 0 ? (size_t)sent : 0;
  }
}

static void receive_all(int from, char* to, size_t bytes, int flags) {
  while (bytes > 0) {
    const ssize_t got = recv(from, to, bytes, flags);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) failed("pair: recv");
    to += got > 0 ? got : 0;
    bytes -= got > 0 ? (size_t)got : 0;
  }
}

void measure_socket(const struct options* o, struct samples* s) {
  const int peer = connected(), is_first = rank_of_this() == 0;
  const int flags = strcmp(o->way, "socket") == 0 ? MSG_DONTWAIT : 0;
  char* out = malloc(o->bytes + 8);
  char* in = malloc(o->bytes + 8);
  for (int round = -o->warmup; round < o->rounds; ++round) {
    fill(out, o->bytes, 0, round);
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = now_ns();
    if (is_first) send_all(peer, out, o->bytes, flags);
    receive_all(peer, in, o->bytes, flags);
    if (!is_first) send_all(peer, out, o->bytes, flags);
    if (is_first && round >= 0) s->values[s->count++] = (now_ns() - began) / 2;
    s->wrong += wrong_words(in, o->bytes, round) != 0;
  }
  close(peer);
  free(out);
  free(in);
}
