// Preloaded behind Larklane: prints the permission to attach to the process, whenever that is set.

#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int prctl(int option, ...) {
  unsigned long values[4];
  va_list list;
  va_start(list, option);
  for (int i = 0; i < 4; ++i) values[i] = va_arg(list, unsigned long);
  va_end(list);
  if (option == PR_SET_PTRACER) printf("ptracer %ld\n", (long)values[0]);
  return (int)syscall(SYS_prctl, option, values[0], values[1], values[2], values[3]);
}
