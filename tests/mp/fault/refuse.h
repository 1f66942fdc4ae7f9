#pragma once
/* Refuses system calls by name, for the calling thread and every thread and process that it starts
 * from now on (seccomp). A container's filter, a security module or an old kernel does the same.
 * C11 and C++. */
/* NOLINTBEGIN(modernize-use-nullptr,cert-err34-c): C */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#endif

/* A call, and the value of the argument that it is refused with; argument -1: any. */
struct refusable {
  const char* name;
  long number;
  int argument;
  unsigned value;
};

static const struct refusable kRefusable[] = {
    {"memfd_create", SYS_memfd_create, -1, 0},
    {"fallocate", SYS_fallocate, -1, 0},
    {"pwrite", SYS_pwrite64, -1, 0},
    {"F_ADD_SEALS", SYS_fcntl, 1, F_ADD_SEALS},
    {"socket", SYS_socket, 0, AF_UNIX},
    {"bind", SYS_bind, -1, 0},
    {"listen", SYS_listen, -1, 0},
    {"connect", SYS_connect, -1, 0},
    {"accept4", SYS_accept4, -1, 0},
    {"accept", SYS_accept, -1, 0},
    {"getsockopt", SYS_getsockopt, -1, 0},
    {"sendmsg", SYS_sendmsg, -1, 0},
    {"recvmsg", SYS_recvmsg, -1, 0},
    {"epoll_create1", SYS_epoll_create1, -1, 0},
    {"epoll_ctl", SYS_epoll_ctl, -1, 0},
#ifdef SYS_epoll_wait
    {"epoll_wait", SYS_epoll_wait, -1, 0},
#else
    {"epoll_wait", SYS_epoll_pwait, -1, 0},
#endif
    {"epoll_pwait2", 441, -1, 0},
    {"eventfd2", SYS_eventfd2, -1, 0},
    {"timerfd_create", SYS_timerfd_create, -1, 0},
    {"timerfd_settime", SYS_timerfd_settime, -1, 0},
    {"clone3", 435, -1, 0},
    {"clone", SYS_clone, -1, 0},
    {"getrandom", SYS_getrandom, -1, 0},
    {"pidfd_open", 434, -1, 0},
    {"membarrier", SYS_membarrier, -1, 0},
    {"process_vm_readv", SYS_process_vm_readv, -1, 0},
    {"process_vm_writev", SYS_process_vm_writev, -1, 0},
    {"prctl", SYS_prctl, -1, 0},
    {"sched_setaffinity", SYS_sched_setaffinity, -1, 0},
    {"setpriority", SYS_setpriority, -1, 0},
    {"sigaltstack", SYS_sigaltstack, -1, 0},
    {"madvise", SYS_madvise, -1, 0},
    {"statx", SYS_statx, -1, 0},
};
enum { REFUSABLE_COUNT = sizeof kRefusable / sizeof *kRefusable, FILTER_MAX = 8 * 16 + 4 };

static const struct {
  const char* name;
  int number;
} kErrors[] = {{"EPERM", EPERM},          {"ENOSYS", ENOSYS}, {"EACCES", EACCES},
               {"ENOMEM", ENOMEM},        {"EMFILE", EMFILE}, {"EAGAIN", EAGAIN},
               {"EOPNOTSUPP", EOPNOTSUPP}};

static inline void add_to_filter(struct sock_filter* filter, unsigned short* length, unsigned code,
                                 unsigned value, unsigned if_not) {
  struct sock_filter one;
  one.code = (unsigned short)code;
  one.jt = 0;
  one.jf = (unsigned char)if_not;
  one.k = value;
  filter[(*length)++] = one;
}

/* CALLS is "name,name"; at most 16. @return 0, or an errno: EINVAL: no such name */
static inline int refuse_calls(const char* calls, int error) {
  struct sock_filter filter[FILTER_MAX];
  unsigned short length = 0;
  const unsigned load = BPF_LD | BPF_W | BPF_ABS, equal = BPF_JMP | BPF_JEQ | BPF_K;
  const unsigned refuse = SECCOMP_RET_ERRNO | (unsigned)error;
  while (*calls != '\0') {
    const size_t name_length = strcspn(calls, ",");
    const struct refusable* found = NULL;
    for (size_t i = 0; i < REFUSABLE_COUNT; ++i)
      if (strlen(kRefusable[i].name) == name_length &&
          strncmp(kRefusable[i].name, calls, name_length) == 0)
        found = &kRefusable[i];
    if (found == NULL || length + 9 > FILTER_MAX) return EINVAL;
    add_to_filter(filter, &length, load, offsetof(struct seccomp_data, nr), 0);
    add_to_filter(filter, &length, equal, (unsigned)found->number, found->argument < 0 ? 1 : 3);
    if (found->argument >= 0) {
      const size_t low = offsetof(struct seccomp_data, args) + 8 * (size_t)found->argument;
      add_to_filter(filter, &length, load, (unsigned)low, 0); /* little-endian */
      add_to_filter(filter, &length, equal, found->value, 1);
    }
    add_to_filter(filter, &length, BPF_RET | BPF_K, refuse, 0);
    calls += name_length + (calls[name_length] == ',');
  }
  add_to_filter(filter, &length, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0);
  struct sock_fprog program;
  program.len = length;
  program.filter = filter;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0 ? errno : 0;
}

/* `what` is "name,name:EPERM", changed to its names. @return the errno; -1: no such form */
static inline int error_of(char* what) {
  char* const colon = strchr(what, ':');
  if (colon == NULL) return -1;
  *colon = '\0';
  for (size_t i = 0; i < sizeof kErrors / sizeof *kErrors; ++i)
    if (strcmp(kErrors[i].name, colon + 1) == 0) return kErrors[i].number;
  return -1;
}

/* The rank that a launcher has given this process; -1: none. */
static inline int launched_rank(void) {
  static const char* const kNames[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                                       "LARKLANE_RANK"};
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i)
    if (getenv(kNames[i]) != NULL) return atoi(getenv(kNames[i]));
  return -1;
}
/* NOLINTEND(modernize-use-nullptr,cert-err34-c) */
