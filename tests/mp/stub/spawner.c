// A plain program that spawns one process and reports how that went: spawner COMMAND [KEY=VALUE...]
// The process spawned says how it was started, and whether Larklane is in it.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void child(MPI_Comm* parent, char** argv) {
  char line[4096], folder[4096] = "";
  int is_ours = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) is_ours |= !!strstr(line, "/liblarklane_mpi_");
  if (maps) fclose(maps);
  printf("child: arguments '%s' '%s' in %s\n", argv[1], argv[2], getcwd(folder, sizeof folder));
  printf("ours: %s, variable %s\n", is_ours ? "yes" : "no",
         getenv("LARKLANE_SPAWNED") ? "left" : "gone");
  fflush(stdout);
  MPI_Comm_disconnect(parent);
}

int main(int argc, char** argv) {
  MPI_Comm other;
  MPI_Init(NULL, NULL);
  MPI_Comm_get_parent(&other);
  if (other != MPI_COMM_NULL) {
    child(&other, argv);
  } else {
    char *arguments[] = {"two words", "=", NULL}, text[MPI_MAX_ERROR_STRING] = "";
    int length = 0, class = MPI_SUCCESS;
    MPI_Info info;
    MPI_Info_create(&info);
    for (int i = 2; i < argc; ++i) {
      char* value = strchr(argv[i], '=');
      *value = '\0';
      MPI_Info_set(info, argv[i], value + 1);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const int code =
        MPI_Comm_spawn(argv[1], arguments, 1, info, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
    MPI_Info_free(&info);
    if (code == MPI_SUCCESS) {
      MPI_Comm_disconnect(&other);
    } else {
      MPI_Error_class(code, &class);
      MPI_Error_string(class, text, &length);
    }
    printf("parent: %s\n", code == MPI_SUCCESS ? "spawned" : text);
  }
  MPI_Finalize();
  return 0;
}
