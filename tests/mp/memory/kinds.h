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
#include <sys/wait.h>
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
  KINDS,
  // Pages that hold the program's bytes, in both directions.
  HUGE_PAGES = KINDS,  // MAP_HUGETLB
  CUT_FILE,            // the valid part of a file mapping: pages behind it are lost
  OTHERS_FILE,         // shared with a file in memory that another process made
  WRITE_ONLY,          // PROT_WRITE alone, which the processor reads, too
  SERVED,  // as PAGED, with data; the kernel's accesses wait for the thread, if it may have that
  SERVED_USER,  // with data, on access in user mode only
  READ_ONLY,    // PROT_READ alone: a send buffer
  ALL_KINDS
};
static const char* const kind_names[ALL_KINDS] = {"plain",
                                                  "secret",
                                                  "guarded",
                                                  "half guarded",
                                                  "paged",
                                                  "huge pages",
                                                  "cut file",
                                                  "others' file",
                                                  "write only",
                                                  "served",
                                                  "served in user mode",
                                                  "read only"};

struct memory {
  enum kind kind;
  unsigned char* start;
  size_t bytes, mapped_bytes;
  int pager;                // of userfaultfd: the descriptor
  unsigned char* contents;  // SERVED: of the pages
  pthread_t thread;
};

static inline int is_served(const struct memory* m) {
  return m->kind == SERVED || m->kind == SERVED_USER;
}

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, LOST_BYTES = 16 * PAGE, GUARDS = 8 };
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
  struct uffdio_copy copy;
  memset(&zero, 0, sizeof zero);
  memset(&copy, 0, sizeof copy);
  zero.range.len = copy.len = PAGE;
  while (read(m->pager, &message, sizeof message) == (ssize_t)sizeof message) {
    if (message.event != UFFD_EVENT_PAGEFAULT) continue;
    zero.range.start = copy.dst = message.arg.pagefault.address & ~(uint64_t)(PAGE - 1);
    copy.src = (uintptr_t)m->contents + (copy.dst - (uintptr_t)m->start);
    if (is_served(m))
      (void)ioctl(m->pager, UFFDIO_COPY, &copy);
    else
      (void)ioctl(m->pager, UFFDIO_ZEROPAGE, &zero);
  }
  return NULL;
}

static inline int page_by_thread(struct memory* m) {
  m->pager =
      (int)syscall(SYS_userfaultfd, O_CLOEXEC | (m->kind == SERVED ? 0 : UFFD_USER_MODE_ONLY));
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

// Made by a process that is gone when this returns. -1: no such file.
static inline int open_others_file(size_t bytes) {
  int told[2], over[2];
  if (pipe(told) || pipe(over)) return -1;
  const pid_t child = fork();
  if (child == 0) {
    int fd = (int)syscall(SYS_memfd_create, "others", 0);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes)) fd = -1;
    close(over[1]);
    char end;
    if (write(told[1], &fd, sizeof fd) == (ssize_t)sizeof fd) (void)!read(over[0], &end, 1);
    _exit(0);
  }
  int there = -1, fd = -1;
  close(told[1]);
  close(over[0]);
  if (child > 0 && read(told[0], &there, sizeof there) == (ssize_t)sizeof there && there >= 0) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)child, there);
    fd = open(path, O_RDWR | O_CLOEXEC);
  }
  close(told[0]);
  close(over[1]);
  if (child > 0) waitpid(child, NULL, 0);
  return fd;
}

// -1: anonymous; -2: this machine has none.
static inline int open_file_of(const struct memory* m) {
  int fd = -1;
  if (m->kind == SECRET)
    fd = (int)syscall(SYS_memfd_secret, 0);
  else if (m->kind == CUT_FILE)
    fd = (int)syscall(SYS_memfd_create, "cut", MFD_CLOEXEC);
  else if (m->kind == OTHERS_FILE)
    fd = open_others_file(m->mapped_bytes);
  else
    return -1;
  return fd >= 0 && ftruncate(fd, (off_t)m->mapped_bytes) == 0 ? fd : -2;
}

// 0: this machine has no such memory.
static inline int make_memory(struct memory* m, enum kind kind, size_t bytes) {
  const size_t page = kind == HUGE_PAGES ? HUGE_PAGE : PAGE;
  memset(m, 0, sizeof *m);
  m->kind = kind;
  m->bytes = (bytes + page - 1) / page * page;
  m->mapped_bytes = m->bytes + (kind == CUT_FILE ? LOST_BYTES : 0);
  m->pager = -1;
  const int fd = open_file_of(m);
  if (fd == -2) return 0;
  const int flags = fd >= 0              ? MAP_SHARED
                    : kind == HUGE_PAGES ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB
                                         : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const start = mmap(NULL, m->mapped_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (kind == CUT_FILE && ftruncate(fd, (off_t)m->bytes)) return 0;
  if (fd >= 0) close(fd);
  if (start == MAP_FAILED) return 0;
  m->start = (unsigned char*)start;
  if (is_served(m)) m->contents = (unsigned char*)calloc(1, m->bytes);
  if (kind == PAGED || is_served(m)) return page_by_thread(m);
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
  if (m->thread != 0) {
    pthread_cancel(m->thread);
    pthread_join(m->thread, NULL);
  }
  if (m->pager >= 0) close(m->pager);
  if (m->start != NULL) munmap(m->start, m->mapped_bytes);
  free(m->contents);
}

// From now on each page is opened on access.
static inline void guard(const struct memory* m, int protection) {
  const size_t from = guarded_from(m);
  if (m->kind == GUARDED || m->kind == HALF) mprotect(m->start + from, m->bytes - from, protection);
  if (m->kind == WRITE_ONLY) mprotect(m->start, m->bytes, PROT_WRITE);
  if (m->kind == READ_ONLY) mprotect(m->start, m->bytes, PROT_READ);
  if (is_served(m)) memcpy(m->contents, m->start, m->bytes);
  if (m->kind == PAGED || is_served(m)) madvise(m->start, m->bytes, MADV_DONTNEED);
}
static inline void unguard(const struct memory* m) {
  if (m->kind == GUARDED || m->kind == HALF || m->kind == WRITE_ONLY || m->kind == READ_ONLY)
    mprotect(m->start, m->bytes, PROT_READ | PROT_WRITE);
}
