// Many threads make the first intercepted call at the same time; arguments in registers and on the
// stack must arrive. `first_call`: with a fake MPI. The stub has the calls that no MPI has, and
// they succeed where no library of a family answers. Exit status 0: every thread got the fake MPI's
// answer.

#include <pthread.h>
#include <stdio.h>

int MPI_Init(int* argc, char*** argv);
int MPI_Testsome(int a, void* b, int* c, int* d, void* e);
int MPI_Dist_graph_create_adjacent(void* a, int b, const int* c, const int* d, int e, const int* f,
                                   const int* g, void* h, int i, void** j);

int MPIX_Pbuf_prepare(void* request) __attribute__((weak));
int PMPIX_Pbuf_prepareall(int count, void* const* requests) __attribute__((weak));

enum { kThreads = 16 };

static pthread_barrier_t barrier;
static int requests_only;

static void* call(void* index_p) {
  const int index = *(int*)index_p;
  pthread_barrier_wait(&barrier);
  int good;
  if (requests_only || index % 2 == 0) {
    good = MPI_Testsome(1, (void*)2, (int*)3, (int*)4, (void*)5) == 43;
  } else {
    good = MPI_Dist_graph_create_adjacent((void*)1, 2, (int*)3, (int*)4, 5, (int*)6, (int*)7,
                                          (void*)8, 9, (void**)10) == 44;
  }
  if (!good) printf("thread %d: arguments or answer wrong\n", index);
  return good ? NULL : index_p;
}

int main(int argc, char** argv) {
  (void)argv;
  requests_only = argc > 1;
  pthread_t threads[kThreads];
  int indices[kThreads], failures = 0;
  pthread_barrier_init(&barrier, NULL, kThreads);
  for (int i = 0; i < kThreads; ++i) {
    indices[i] = i;
    pthread_create(&threads[i], NULL, call, &indices[i]);
  }
  for (int i = 0; i < kThreads; ++i) {
    void* result;
    pthread_join(threads[i], &result);
    failures += result != NULL;
  }
  failures += !MPIX_Pbuf_prepare || MPIX_Pbuf_prepare(NULL) != 0;
  failures += !PMPIX_Pbuf_prepareall || PMPIX_Pbuf_prepareall(0, NULL) != 0;
  failures += !requests_only && MPI_Init(NULL, NULL) != 42;
  return failures != 0;
}
