// The first intercepted call: finds the loaded MPI, opens our library for its ABI beside this
// object, and fills the slots. Thread safety: thread-safe without a lock. Threads that call at the
// same time all store the same values. A lock here could deadlock with the dynamic linker's lock,
// which a thread holds while it runs the constructors of a library that it opens. The stub depends
// on libc alone and does nothing before the first call, so it is harmless in a process without MPI.
// Compiled three times: for `larklane run`; with LARKLANE_MESSAGES for option p2p, to intercept the
// point-to-point calls, which cost nothing without; with LARKLANE_PROFILE, too, for
// `larklane profile`, to observe threads besides.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mpi_choices.h"
#include "mpi/preload/attach.h"

#ifdef LARKLANE_MESSAGES
enum { kHasMessages = 1 };
#else
enum { kHasMessages = 0 };
#endif
#ifdef LARKLANE_PROFILE
#include "mpi/preload/threads.h"
#define WATCH_THREADS larklane_watch_threads
enum { kIsForProfile = 1 };
#else
#define WATCH_THREADS NULL
enum { kIsForProfile = 0 };
#endif

static const char* const kNames[] = {
#define LARKLANE_CALL(ret, Name, params, args) "MPI_" #Name, "PMPI_" #Name,
#define LARKLANE_EXTENSION(ret, Name, params, args) "MPIX_" #Name, "PMPIX_" #Name,
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#undef LARKLANE_EXTENSION
#ifdef LARKLANE_MESSAGES
#include "mpi/p2p/p2p.def"
#endif
#undef LARKLANE_CALL
};
enum { kNameCount = sizeof kNames / sizeof *kNames, kPathBytes = 4096 };

// trampolines.S; each entry belongs to the name of the same index
extern _Atomic(void*) larklane_preload_slots[kNameCount];

// Handle of an MPI that is not in the global scope.
static _Atomic(void*) local_mpi;

// Writes one line. It may quote the environment, so control characters become question marks.
__attribute__((format(printf, 1, 0))) static void say(const char* format, va_list values) {
  char text[1024] = "larklane: ";
  const size_t begin = strlen(text);
  vsnprintf(text + begin, sizeof text - begin - 1, format, values);
  for (char* at = text; *at; ++at)
    if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
  strcat(text, "\n");
  dprintf(STDERR_FILENO, "%s", text);
}

__attribute__((format(printf, 1, 2))) static void warn_once(const char* format, ...) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  // relaxed: nothing but this message depends on it
  if (atomic_flag_test_and_set_explicit(&warned, memory_order_relaxed)) return;
  va_list values;
  va_start(values, format);
  say(format, values);
  va_end(values);
}

// The next definition after this object, as the dynamic linker would have bound it without us. For
// an MPI that was opened RTLD_LOCAL (Python, Julia), only that object's own scope has it.
static void* find_next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found) return found;
  void* mpi = atomic_load_explicit(&local_mpi, memory_order_acquire);  // pairs with find_mpi
  return mpi ? dlsym(mpi, name) : NULL;
}

// A loaded object, found by its segments: dladdr would walk the symbols of a large library.
struct Object {
  uintptr_t low, high;
  char path[kPathBytes];
};

static bool contains(const struct Object* object, const void* address) {
  return (uintptr_t)address >= object->low && (uintptr_t)address < object->high;
}

static void describe(const struct dl_phdr_info* info, struct Object* object) {
  object->low = UINTPTR_MAX;
  object->high = 0;
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD) continue;
    const uintptr_t start = info->dlpi_addr + segment->p_vaddr;
    if (start < object->low) object->low = start;
    if (start + segment->p_memsz > object->high) object->high = start + segment->p_memsz;
  }
}

struct Search {
  const void* address;  // within the wanted object; null: the next object is wanted
  size_t skip;          // objects before it
  struct Object* found;
};

static int search_step(struct dl_phdr_info* info, size_t size, void* search_p) {
  struct Search* search = search_p;
  (void)size;
  if (search->skip > 0) return --search->skip, 0;
  describe(info, search->found);
  if (search->address && !contains(search->found, search->address)) return 0;
  return snprintf(search->found->path, kPathBytes, "%s", info->dlpi_name) < kPathBytes;
}

static bool find_object(const void* address, struct Object* object) {
  struct Search search = {.address = address, .found = object};
  return dl_iterate_phdr(search_step, &search) != 0;
}

// PMPI_Init in the scope of `object`, not counting our own; null for the program itself, which sees
// the global scope.
static void* init_seen_by(const struct Object* object, const struct Object* self) {
  void* handle = object->path[0] ? dlopen(object->path, RTLD_NOLOAD | RTLD_LAZY) : NULL;
  if (!handle) return NULL;
  void* init = dlsym(handle, "PMPI_Init");
  dlclose(handle);
  return init && !contains(self, init) ? init : NULL;
}

// PMPI_Init of an MPI that was opened RTLD_LOCAL: in the caller's scope, else in any object's.
static void* find_local_init(const void* caller, const struct Object* self) {
  struct Object object;
  void* init = find_object(caller, &object) ? init_seen_by(&object, self) : NULL;
  for (size_t i = 0; !init; ++i) {
    struct Search search = {.skip = i, .found = &object};
    if (dl_iterate_phdr(search_step, &search) == 0) break;
    init = init_seen_by(&object, self);
  }
  return init;
}

struct Mpi {
  void* handle;
  struct Object object;
};

// The symbol that only our libraries define.
static const char kOurs[] = "larklane_mpi_attach";

// True if the MPI itself defines `name`, not one of its dependencies.
static bool defines(const struct Mpi* mpi, const char* name) {
  const void* found = dlsym(mpi->handle, name);
  return found && contains(&mpi->object, found);
}

// Symbols that each belong to one ABI family. MPI_COMM_WORLD is the address of the first;
// MPI_DUP_FN names the second.
static const struct {
  const char *symbol, *family;
} kMarks[] = {
    {"ompi_mpi_comm_world", "ompi"}, {"MPIR_Dup_fn", "mpich"}, {"MPI_Abi_get_version", "abi"}};
enum { kMarkCount = sizeof kMarks / sizeof *kMarks };

// The ABI family of the opened MPI; null if Larklane has no library for it.
static const char* family_of(const struct Mpi* mpi) {
  for (size_t i = 0; i < kMarkCount; ++i) {
    if (defines(mpi, kMarks[i].symbol)) return kMarks[i].family;
  }
  return NULL;
}

// The first PMPI_Init may belong to a tool, which is no MPI: then the MPI is the object with a mark
// symbol. A linked library of ours precedes its MPI as a tool does; use_larklane() checks for it.
static void look_behind_tools(struct Mpi* mpi) {
  if (family_of(mpi) || defines(mpi, kOurs)) return;
  for (size_t i = 0; i < kMarkCount; ++i) {
    struct Mpi other;
    const void* mark = dlsym(RTLD_NEXT, kMarks[i].symbol);
    if (!mark || !find_object(mark, &other.object) || !other.object.path[0]) continue;
    other.handle = dlopen(other.object.path, RTLD_NOLOAD | RTLD_LAZY);
    if (!other.handle || !defines(&other, "PMPI_Init")) continue;
    *mpi = other;
    return;
  }
}

// Finds the MPI that the caller uses: in the global scope, else one that was opened locally.
static bool find_mpi(const void* caller, const struct Object* self, struct Mpi* mpi) {
  void* init = dlsym(RTLD_NEXT, "PMPI_Init");
  const bool is_global = init != NULL;
  if (!init) init = find_local_init(caller, self);
  if (!init || !find_object(init, &mpi->object)) return false;
  mpi->handle = dlopen(mpi->object.path, RTLD_NOLOAD | RTLD_LAZY);
  // release: pairs with find_next
  if (!is_global) atomic_store_explicit(&local_mpi, mpi->handle, memory_order_release);
  if (is_global && mpi->handle) look_behind_tools(mpi);
  return mpi->handle && mpi->object.path[0];  // else the program itself defines PMPI_Init
}

// The value of LARKLANE_MPI; null if it leaves the choice to us.
static const char* family_wanted(void) {
  static const char* const kChoices[] = {LARKLANE_MPI_CHOICES};
  const char* value = secure_getenv("LARKLANE_MPI");
  if (!value || value[0] == '\0') return NULL;
  for (size_t i = 0; i < sizeof kChoices / sizeof *kChoices; ++i) {
    if (strcmp(value, kChoices[i]) == 0) return i == 0 ? NULL : kChoices[i];
  }
  warn_once("LARKLANE_MPI is '%s'; accepted: " LARKLANE_MPI_CHOICES_TEXT "; taken as auto", value);
  return NULL;
}

static void missing(void) {
  dprintf(STDERR_FILENO,
          "larklane: the program calls an MPI function that no loaded library defines\n");
  abort();
}

// An extension has no effect where no request of ours can exist.
static int succeed(void) { return 0; /* MPI_SUCCESS */ }

static bool is_extension(const char* name) { return strstr(name, "MPIX_") != NULL; }

static void set_functions(void* const* functions) {
  for (size_t i = 0; i < kNameCount; ++i) {
    void* function = functions[i];
    if (!function && is_extension(kNames[i]))
      *(int (**)(void)) & function = succeed;
    else if (!function)
      *(void (**)(void)) & function = missing;
    // release: pairs with the load in the trampoline, after which the family's tables must be
    // visible
    atomic_store_explicit(&larklane_preload_slots[i], function, memory_order_release);
  }
}

static _Atomic(void (*)(void)) commit_hook;

static void before_commit(void (*hook)(void)) {
  atomic_store_explicit(&commit_hook, hook, memory_order_release);  // pairs with PMIx_Commit
}

// Intercepts the call that the MPI makes while it initialises, and any other caller's.
__attribute__((visibility("default"))) int PMIx_Commit(void);
int PMIx_Commit(void) {
  void (*hook)(void) = atomic_load_explicit(&commit_hook, memory_order_acquire);
  if (hook) hook();
  int (*real)(void);
  *(void**)&real = find_next("PMIx_Commit");
  if (!real) {  // its library is in a local scope
    void* library = dlopen("libpmix.so.2", RTLD_NOLOAD | RTLD_LAZY);
    if (library) *(void**)&real = dlsym(library, "PMIx_Commit");
  }
  enum { kPmixErrInit = -31 };
  return real ? real() : kPmixErrInit;
}

// Leads the calls to our library of `family`. @return false after a warning if that fails
static bool use_family(const char* family, const struct Object* self, bool is_native) {
  static LarklaneStub stub = {find_next, set_functions, WATCH_THREADS,
                              0,         before_commit, kHasMessages};
  stub.is_native = is_native;
  char path[kPathBytes + 64];
  const char* slash = strrchr(self->path, '/');
  snprintf(path, sizeof path, "%.*s/liblarklane_mpi_%s" LARKLANE_LIBRARY_SUFFIX,
           slash ? (int)(slash - self->path) : 1, slash ? self->path : ".", family);
  // Lazy: the library has no undefined symbols, and binding all symbols costs per cents of a short
  // program's MPI_Init.
  void* library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (!library) {
    warn_once("%s; the MPI's own functions are used", dlerror());
    return false;
  }
  LarklaneAttach* attach;
  *(void**)&attach = dlsym(library, kOurs);
  const char* problem = attach ? attach(LARKLANE_VERSION, &stub) : "it is not ours";
  if (problem) warn_once("%s: %s; the MPI's own functions are used", path, problem);
  return !problem;
}

// Stops the program: with the library of another ABI it would crash in its first call. `larklane
// run` reports this where it sees the MPI, but not behind a script.
static _Noreturn void stop_wrong_choice(const char* family, const char* own, const char* path) {
  dprintf(STDERR_FILENO,
          "larklane: LARKLANE_MPI (or --mpi) is %s, but %s is of the %s family; leave it out\n",
          family, path, own);
  _exit(2);
}

// @return false if the calls must go to the MPI itself
static bool use_larklane(const void* caller) {
  struct Object self;
  struct Mpi mpi;
  if (!find_object(kNames, &self) || !find_mpi(caller, &self, &mpi)) return false;
  // The program is linked with one of our libraries, which is already attached.
  if (defines(&mpi, kOurs)) return false;
  const char* own = family_of(&mpi);
  const char* family = family_wanted();
  const bool is_native = family && strcmp(family, "native") == 0;
  if (is_native && !kIsForProfile) return false;
  if (!family || is_native) family = own;
  if (own && strcmp(family, own) != 0) stop_wrong_choice(family, own, mpi.object.path);
  if (!family) {
    warn_once(
        "%s has none of the MPI ABIs known here (MPICH, Open MPI, MPI 5.0 standard ABI); its own "
        "functions are used. LARKLANE_MPI=mpich|ompi|abi overrides",
        mpi.object.path);
    return false;
  }
  return use_family(family, &self, is_native);
}

void* larklane_preload_resolve(_Atomic(void*)* slot, const void* caller);

static atomic_bool is_resolved;

void* larklane_preload_resolve(_Atomic(void*)* slot, const void* caller) {
  // relaxed: read when the process ends
  atomic_store_explicit(&is_resolved, true, memory_order_relaxed);
  if (!use_larklane(caller)) {
    void* natives[kNameCount];
    for (size_t i = 0; i < kNameCount; ++i) natives[i] = find_next(kNames[i]);
    set_functions(natives);
  }
  return atomic_load_explicit(slot, memory_order_acquire);  // pairs with set_functions
}

// For `larklane run --summary`. A program that looks up the functions in the MPI's own library
// (dlopen and dlsym, ctypes, RTLD_DEEPBIND) bypasses Larklane. Nothing else would report that.
__attribute__((destructor)) static void say_if_unused(void) {
  const char* summary = secure_getenv("LARKLANE_SUMMARY");
  const bool is_wanted = summary && (strcmp(summary, "on") == 0 || strcmp(summary, "1") == 0);
  if (!is_wanted || atomic_load_explicit(&is_resolved, memory_order_relaxed)) return;
  struct Object self;
  struct Mpi mpi;
  if (!find_object(kNames, &self) || !find_mpi(NULL, &self, &mpi)) return;
  warn_once(
      "no MPI call of this process came through Larklane: it made none, or asks %s itself (dlopen "
      "with dlsym or RTLD_DEEPBIND, ctypes); remedy: link it with the MPI",
      mpi.object.path);
}
