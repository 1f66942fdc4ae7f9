// What the first intercepted call does: find the MPI that is loaded, open our library for its ABI
// beside this object, fill the slots. Thread safety: thread-safe without a lock. Threads that call
// at the same time all do the same and store the same values; a lock here could deadlock with the
// dynamic linker's, which a thread holds while it runs the constructors of a library that it opens.
// Depends on libc alone and does nothing before the first call, so it is harmless in a process
// without MPI.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpi/preload/attach.h"

static const char* const kNames[] = {
#define LARKLANE_CALL(ret, Name, params, args) "MPI_" #Name, "PMPI_" #Name,
#include "mpi/calls.def"
#undef LARKLANE_CALL
};
enum { kNameCount = sizeof kNames / sizeof *kNames, kPathBytes = 4096 };

// trampolines.S; each entry belongs to the name of the same index
extern _Atomic(void*) larklane_preload_slots[kNameCount];

// The object that defines PMPI_Init, opened, and its address.
static _Atomic(void*) mpi_handle;

__attribute__((format(printf, 1, 2))) static void warn_once(const char* format, ...) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  // relaxed: nothing but this message depends on it
  if (atomic_flag_test_and_set_explicit(&warned, memory_order_relaxed)) return;
  va_list values;
  va_start(values, format);
  dprintf(STDERR_FILENO, "larklane: ");
  vdprintf(STDERR_FILENO, format, values);
  dprintf(STDERR_FILENO, "\n");
  va_end(values);
}

// The next definition after this object, as the dynamic linker would have bound it without us; in
// an MPI that was opened RTLD_LOCAL (Python, Julia) only that object's own scope has it.
static void* find_next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found) return found;
  void* mpi = atomic_load_explicit(&mpi_handle, memory_order_acquire);  // pairs with open_mpi
  return mpi ? dlsym(mpi, name) : NULL;
}

static bool same_object(const void* a, const void* b) {
  Dl_info in_a, in_b;
  return dladdr(a, &in_a) && dladdr(b, &in_b) && in_a.dli_fbase == in_b.dli_fbase;
}

// PMPI_Init as the object `path` sees it, not counting our own.
static void* init_seen_by(const char* path) {
  void* object = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
  if (!object) return NULL;
  void* init = dlsym(object, "PMPI_Init");
  dlclose(object);
  return init && !same_object(init, kNames) ? init : NULL;
}

struct Walk {
  size_t skip;
  char path[kPathBytes];
};

static int copy_path(struct dl_phdr_info* object, size_t size, void* walk_p) {
  struct Walk* walk = walk_p;
  (void)size;
  if (walk->skip-- > 0) return 0;
  return snprintf(walk->path, sizeof walk->path, "%s", object->dlpi_name) < kPathBytes;
}

// PMPI_Init of the MPI that the caller uses: in the global scope, else in the scope of the calling
// object, else anywhere.
static void* find_init(const void* caller) {
  void* init = dlsym(RTLD_NEXT, "PMPI_Init");
  if (init) return init;
  Dl_info calling;
  if (dladdr(caller, &calling) && (init = init_seen_by(calling.dli_fname))) return init;
  struct Walk walk;
  for (size_t i = 0; walk.skip = i, dl_iterate_phdr(copy_path, &walk) != 0; ++i) {
    if (walk.path[0] != '\0' && (init = init_seen_by(walk.path))) return init;
  }
  return NULL;
}

// Is `name` defined by the very object that defines `init`, not by one that it depends on?
static bool defines(void* mpi, const void* init, const char* name) {
  void* found = dlsym(mpi, name);
  return found && same_object(found, init);
}

// The ABI family of the opened MPI, judged by symbols that are part of each ABI; null if it is none
// of ours.
static const char* family_of(void* mpi, const void* init) {
  if (defines(mpi, init, "ompi_mpi_comm_world")) return "ompi";  // MPI_COMM_WORLD is its address
  if (defines(mpi, init, "MPIR_Dup_fn")) return "mpich";         // MPI_DUP_FN names it
  if (defines(mpi, init, "MPI_Abi_get_version")) return "abi";
  return NULL;
}

// What LARKLANE_MPI says; null if it leaves the choice to us.
static const char* family_wanted(void) {
  static const char* const kFamilies[] = {"mpich", "ompi", "abi", "native"};
  const char* value = secure_getenv("LARKLANE_MPI");
  if (!value || value[0] == '\0' || strcmp(value, "auto") == 0) return NULL;
  for (size_t i = 0; i < sizeof kFamilies / sizeof *kFamilies; ++i) {
    if (strcmp(value, kFamilies[i]) == 0) return kFamilies[i];
  }
  warn_once("LARKLANE_MPI is '%s'; accepted: auto, mpich, ompi, abi, native; taken as auto", value);
  return NULL;
}

// Our library of `family`, attached to the MPI; null after a warning if that fails.
static void* open_family(const char* family) {
  Dl_info self;
  char path[kPathBytes];
  if (!dladdr(kNames, &self)) return NULL;
  const char* slash = strrchr(self.dli_fname, '/');
  const int folder = slash ? (int)(slash - self.dli_fname) : 1;
  snprintf(path, sizeof path, "%.*s/liblarklane_mpi_%s" LARKLANE_LIBRARY_SUFFIX, folder,
           slash ? self.dli_fname : ".", family);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    warn_once("%s; the MPI's own functions are used", dlerror());
    return NULL;
  }
  LarklaneAttach* attach;
  *(void**)&attach = dlsym(library, "larklane_mpi_attach");
  const char* problem = attach ? attach(LARKLANE_VERSION, find_next) : "it is not ours";
  if (problem) {
    warn_once("%s: %s; the MPI's own functions are used", path, problem);
    return NULL;
  }
  return library;
}

// The library that takes the calls: one of ours, or null for the MPI itself.
static void* choose_library(const void* caller) {
  void* init = find_init(caller);
  Dl_info in;
  if (!init || !dladdr(init, &in)) return NULL;
  void* mpi = dlopen(in.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  if (!mpi) return NULL;  // the program itself defines PMPI_Init
  atomic_store_explicit(&mpi_handle, mpi, memory_order_release);  // pairs with find_next
  // Linked with one of our libraries: that one is attached already.
  if (defines(mpi, init, "larklane_mpi_attach")) return NULL;
  const char* family = family_wanted();
  if (!family) family = family_of(mpi, init);
  if (!family) {
    warn_once(
        "%s has none of the MPI ABIs known here (MPICH, Open MPI, MPI 5.0 standard ABI); its own "
        "functions are used. "
        "LARKLANE_MPI=mpich|ompi|abi overrides",
        in.dli_fname);
    return NULL;
  }
  return strcmp(family, "native") == 0 ? NULL : open_family(family);
}

static void missing(void) {
  dprintf(STDERR_FILENO,
          "larklane: the program calls an MPI function that no loaded library defines\n");
  abort();
}

void* larklane_preload_resolve(_Atomic(void*)* slot, const void* caller);

void* larklane_preload_resolve(_Atomic(void*)* slot, const void* caller) {
  void* library = choose_library(caller);
  void* wanted = NULL;
  for (size_t i = 0; i < kNameCount; ++i) {
    void* target = library ? dlsym(library, kNames[i]) : find_next(kNames[i]);
    if (!target) *(void (**)(void)) & target = missing;
    // release: pairs with the load in the trampoline, after which the family's tables must be
    // visible
    atomic_store_explicit(&larklane_preload_slots[i], target, memory_order_release);
    if (slot == &larklane_preload_slots[i]) wanted = target;
  }
  return wanted;
}
