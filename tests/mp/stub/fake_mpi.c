// Looks like an MPI to the stub: PMPI_Init, and with -DABI_SYMBOL=name the symbol that identifies
// its ABI.

#define PAIR(ret, name, params) \
  ret P##name params;           \
  __attribute__((alias("P" #name))) ret name params;

PAIR(int, MPI_Init, (int* argc, char*** argv))
PAIR(int, MPI_Testsome, (int a, void* b, int* c, int* d, void* e))
PAIR(int, MPI_Dist_graph_create_adjacent,
     (void* a, int b, const int* c, const int* d, int e, const int* f, const int* g, void* h, int i,
      void** j))

int PMPI_Init(int* argc, char*** argv) { return argc || argv ? 1 : 42; }

int PMPI_Testsome(int a, void* b, int* c, int* d, void* e) {
  return a == 1 && b == (void*)2 && c == (int*)3 && d == (int*)4 && e == (void*)5 ? 43 : 0;
}

int PMPI_Dist_graph_create_adjacent(void* a, int b, const int* c, const int* d, int e, const int* f,
                                    const int* g, void* h, int i, void** j) {
  return a == (void*)1 && b == 2 && c == (int*)3 && d == (int*)4 && e == 5 && f == (int*)6 &&
                 g == (int*)7 && h == (void*)8 && i == 9 && j == (void**)10
             ? 44
             : 0;
}

#ifdef ABI_SYMBOL
int ABI_SYMBOL = 1;
#endif
