#pragma once
// Memory that its owner can use, and that the kernel does not copy for others. C and C++.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

enum kind {
  PLAIN,
  SECRET,   // memfd_secret: no other process's system call reads or writes it
  GUARDED,  // the program's SIGSEGV handler opens each page on access
  HALF,     // so is the second half; a copy stops in the middle
  PAGED,    // a thread of the program provides each page (userfaultfd), on access in user mode only
  KINDS
};
static const char* const kind_names[KINDS] = {"plain", "secret", "guarded", "half guarded",
                                              "paged"};

struct memory {
  enum kind kind;
  unsigned char* start;
  size_t bytes;
  int pager;  // PAGED: the descriptor
  pthread_t thread;
};

enum { PAGE = 4096, GUARDS = 8 };
// A fault handler reads and writes both: with atomic calls alone.
static struct memory* guards[GUARDS];
static int opened_by_library;

static inline size_t guarded_from(const struct memory* m) {
  return m->kind == HALF ? m->bytes / 2 / PAGE * PAGE : 0;
}

// Opens the page; notes a thread that is not the program's.
static inline void open_page(int number, siginfo_t* info, void* context) {
  (void)context;
  unsigned char* const at = (unsigned char*)info->si_addr;
  for (int i = 0; i < GUARDS; ++i) {
    const struct memory* const m = __atomic_load_n(
        &guards[i], __ATOMIC_ACQUIRE);  // pairs with make_memory() and free_memory()
    if (m == NULL || at < m->start || at >= m->start + m->bytes) continue;
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (strcmp(name, "larklane") == 0) __atomic_store_n(&opened_by_library, 1, __ATOMIC_RELEASE);
    mprotect((void*)((uintptr_t)at & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
    return;
  }
  signal(number, SIG_DFL);
}

static inline void catch_faults(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = open_page;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, NULL);
}

static inline void* provide_pages(void* argument) {
  const struct memory* const m = (const struct memory*)argument;
  struct uffd_msg message;
  struct uffdio_zeropage zero;
  memset(&zero, 0, sizeof zero);
  zero.range.len = PAGE;
  while (read(m->pager, &message, sizeof message) == (ssize_t)sizeof message) {
    zero.range.start = message.arg.pagefault.address & ~(uint64_t)(PAGE - 1);
    if (message.event == UFFD_EVENT_PAGEFAULT) (void)ioctl(m->pager, UFFDIO_ZEROPAGE, &zero);
  }
  return NULL;
}

static inline int page_by_thread(struct memory* m) {
  m->pager = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
  struct uffdio_api api;
  struct uffdio_register range;
  memset(&api, 0, sizeof api);
  memset(&range, 0, sizeof range);
  api.api = UFFD_API;
  range.range.start = (uintptr_t)m->start;
  range.range.len = m->bytes;
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (m->pager < 0 || ioctl(m->pager, UFFDIO_API, &api) || ioctl(m->pager, UFFDIO_REGISTER, &range))
    return 0;
  return pthread_create(&m->thread, NULL, provide_pages, m) == 0;
}

// 0: this machine has no such memory.
static inline int make_memory(struct memory* m, enum kind kind, size_t bytes) {
  memset(m, 0, sizeof *m);
  m->kind = kind;
  m->bytes = (bytes + PAGE - 1) / PAGE * PAGE;
  m->pager = -1;
  int fd = -1;
  if (kind == SECRET) {
    fd = (int)syscall(SYS_memfd_secret, 0);
    if (fd < 0 || ftruncate(fd, (off_t)m->bytes)) return 0;
  }
  void* const start = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE,
                           fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (start == MAP_FAILED) return 0;
  m->start = (unsigned char*)start;
  if (kind == PAGED) return page_by_thread(m);
  for (int i = 0; i < GUARDS && (kind == GUARDED || kind == HALF); ++i)
    if (guards[i] == NULL) {
      __atomic_store_n(&guards[i], m, __ATOMIC_RELEASE);  // pairs with open_page()
      break;
    }
  return 1;
}

static inline void free_memory(struct memory* m) {
  for (int i = 0; i < GUARDS; ++i)
    if (guards[i] == m)
      __atomic_store_n(&guards[i], NULL, __ATOMIC_RELEASE);  // pairs with open_page()
  if (m->kind == PAGED) {
    pthread_cancel(m->thread);
    pthread_join(m->thread, NULL);
    close(m->pager);
  }
  if (m->start != NULL) munmap(m->start, m->bytes);
}

// From now on each page is opened on access.
static inline void guard(const struct memory* m, int protection) {
  const size_t from = guarded_from(m);
  if (m->kind == GUARDED || m->kind == HALF) mprotect(m->start + from, m->bytes - from, protection);
  if (m->kind == PAGED) madvise(m->start, m->bytes, MADV_DONTNEED);
}
static inline void unguard(const struct memory* m) {
  if (m->kind == GUARDED || m->kind == HALF) mprotect(m->start, m->bytes, PROT_READ | PROT_WRITE);
}
