/* refuse WHAT PROGRAM ...: runs PROGRAM with some system calls refused, as a container's or a
 * hardened kernel's policy does. WHAT: read, write (cross-memory attach in that direction), attach
 * (both), memory (memfd_create).
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define SKIP_UNLESS(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (count))
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, (value))
#define REFUSE(error) ANSWER(SECCOMP_RET_ERRNO | (error))

static int install(struct sock_filter* filter, size_t length) {
  const struct sock_fprog program = {(unsigned short)length, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int refuse_call(long number, int error) {
  struct sock_filter filter[] = {LOAD(nr), SKIP_UNLESS((unsigned)number, 1),
                                 REFUSE((unsigned)error), ANSWER(SECCOMP_RET_ALLOW)};
  return install(filter, sizeof filter / sizeof *filter);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: refuse read|write|attach|memory PROGRAM ...\n");
    return 2;
  }
  int failed = 1;
  if (strcmp(argv[1], "read") == 0) failed = refuse_call(SYS_process_vm_readv, EPERM);
  if (strcmp(argv[1], "write") == 0) failed = refuse_call(SYS_process_vm_writev, EPERM);
  if (strcmp(argv[1], "attach") == 0)
    failed = refuse_call(SYS_process_vm_readv, EPERM) || refuse_call(SYS_process_vm_writev, EPERM);
  if (strcmp(argv[1], "memory") == 0) failed = refuse_call(SYS_memfd_create, ENOMEM);
  if (failed) {
    perror("refuse");
    return 77;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 127;
}
