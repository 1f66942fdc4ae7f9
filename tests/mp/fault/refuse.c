/* refuse CALL[,CALL...]:ERRNO[@RANK] PROGRAM ...: runs PROGRAM with these system calls refused, on
 * one rank or on all. The names are those of refuse.h.
 */
#include "refuse.h"

#include <stdio.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: refuse CALL[,CALL...]:ERRNO[@RANK] PROGRAM ...\n");
    return 2;
  }
  char* const at = strchr(argv[1], '@');
  if (at != NULL) *at = '\0';
  const int error = error_of(argv[1]);
  const int is_refused = at == NULL || atoi(at + 1) == launched_rank();
  const int failed = error < 0 ? EINVAL : is_refused ? refuse_calls(argv[1], error) : 0;
  if (failed != 0) {
    fprintf(stderr, "refuse %s: %s\n", argv[1], strerror(failed));
    return failed == EINVAL ? 2 : 77;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 127;
}
