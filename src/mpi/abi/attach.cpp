// Attach: fills the tables of next functions and handles, once.

#include "mpi/preload/attach.h"

#include <dlfcn.h>
#include <unwind.h>

#include <climits>
#include <cstring>
#include <mutex>

#include "bootstrap/launcher_board.hpp"
#include "mpi/abi/exports.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/profile/threads.hpp"
#include "mpi/profile/tracer.hpp"

namespace larklane::mpi {

namespace detail {
Next next_mpi;
Next next_pmpi;
Handles handles;
}  // namespace detail

namespace {

using FindNext = void*(const char* name);

// Guards changes of the tables and of the slots. No thread calls the dynamic linker under it.
std::mutex mutex;
FindNext* find_next_of_all = nullptr;           // null: not attached
void (*set_functions)(void* const*) = nullptr;  // null: the slots stay as they are
Taken taken = Taken::always;
bool are_messages_intercepted = false;

// Where a copy relocation moved a data symbol into the program, its address is the program's.
void* find_data_with(FindNext* find_next, const char* name) noexcept {
  void* found = dlsym(RTLD_DEFAULT, name);
  return found != nullptr ? found : find_next(name);
}

template <class Function>
void find(FindNext* find_next, const char* name, Function*& function) noexcept {
  function = reinterpret_cast<Function*>(find_next(name));
}

void find_mpi(FindNext* find_next, Next& next) noexcept {
#define LARKLANE_CALL(ret, Name, params, args) find(find_next, "MPI_" #Name, next.Name);
#define LARKLANE_EXTENSION(ret, Name, params, args) find(find_next, "MPIX_" #Name, next.Name);
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#undef LARKLANE_CALL
#undef LARKLANE_EXTENSION
}

void find_pmpi(FindNext* find_next, Next& next) noexcept {
#define LARKLANE_CALL(ret, Name, params, args) find(find_next, "PMPI_" #Name, next.Name);
#define LARKLANE_EXTENSION(ret, Name, params, args) find(find_next, "PMPIX_" #Name, next.Name);
#define LARKLANE_REAL(ret, Name, params) find(find_next, "PMPI_" #Name, next.Name);
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/abi/reals.def"
#undef LARKLANE_CALL
#undef LARKLANE_EXTENSION
#undef LARKLANE_REAL
  find(find_next, "PMPI_Recv_init", next.Recv_init);  // for carriers
}

bool fits(MPI_Count count) noexcept { return count >= INT_MIN && count <= INT_MAX; }
template <class Argument>
bool fits(Argument) noexcept {
  return true;
}
int narrow(MPI_Count count) noexcept { return static_cast<int>(count); }
template <class Argument>
Argument narrow(Argument argument) noexcept {
  return argument;
}

/// A call's result of type int, for the program's MPI_Count.
class Narrowed {
 public:
  explicit Narrowed(MPI_Count* result) noexcept : result_(result) {}
  ~Narrowed() { *result_ = count_; }
  Narrowed(const Narrowed&) = delete;
  Narrowed& operator=(const Narrowed&) = delete;
  operator int*() noexcept { return &count_; }  // NOLINT(google-explicit-constructor): an argument

 private:
  MPI_Count* const result_;
  int count_ = 0;
};
Narrowed narrow(MPI_Count* result) noexcept { return Narrowed(result); }

/// Maps a call with MPI_Count that the MPI lacks to the call with int: a program that looks up the
/// former finds the stub's symbol.
template <const Next& (*kTable)() noexcept, auto kPlain, class... Arguments>
void fill(const Next& found, int (*&call)(Arguments...)) noexcept {
  if (call != nullptr || found.*kPlain == nullptr) return;
  call = [](Arguments... arguments) -> int {
    if (!(fits(arguments) && ...)) return MPI_ERR_COUNT;
    return (kTable().*kPlain)(narrow(arguments)...);
  };
}

void fill_large_counts(Next& mpi, Next& pmpi) noexcept {
#define LARKLANE_COUNT int
#define LARKLANE_COUNT_CALL(Name, params, args)    \
  fill<&next_mpi, &Next::Name>(mpi, mpi.Name##_c); \
  fill<&next_pmpi, &Next::Name>(pmpi, pmpi.Name##_c);
#include "mpi/p2p/counts.def"
#undef LARKLANE_COUNT
#undef LARKLANE_COUNT_CALL
}

/// The calls of p2p.def, which are many: only for a stub that has them.
void find_messages(FindNext* find_next, Next& mpi, Next& pmpi) noexcept {
#define LARKLANE_CALL(ret, Name, params, args) \
  find(find_next, "MPI_" #Name, mpi.Name);     \
  find(find_next, "PMPI_" #Name, pmpi.Name);
#include "mpi/p2p/p2p.def"
#undef LARKLANE_CALL
  fill_large_counts(mpi, pmpi);
}

void find_handles([[maybe_unused]] FindNext* find_next, Handles& found) noexcept {
#ifdef LARKLANE_FAMILY_OMPI
#define LARKLANE_HANDLE(type, member, mpi_name, ompi_variable) \
  found.member = static_cast<type>(find_data_with(find_next, #ompi_variable));
#else
#define LARKLANE_HANDLE(type, member, mpi_name, ompi_variable) found.member = mpi_name;
#endif
#include "mpi/abi/handles.def"
#undef LARKLANE_HANDLE
}

// Initialises this library's own copy of the unwinder. An exception of the program's error handler
// passes our frames by the program's unwinder, but our copy runs our destructors on the way. That
// copy initialises itself only at a use of its own, and aborts if it is uninitialised.
void prepare_unwinder() noexcept {
  const auto stop = [](_Unwind_Context*, void*) { return _URC_END_OF_STACK; };
  _Unwind_Backtrace(stop, nullptr);
}

// The lookups precede the lock: they take the dynamic linker's lock, which another caller may
// already hold.
// @param stub  null: the program is linked with this library, which is not preloaded
void attach(FindNext* find_next, const LarklaneStub* stub) noexcept {
  const bool is_profiled = stub != nullptr && stub->watch_threads != nullptr;
  prepare_unwinder();
  Next pmpi;
  Handles found;
  find_pmpi(find_next, pmpi);
  Next mpi = pmpi;  // Larklane's own calls stay invisible to tools
  find_mpi(find_next, mpi);
  if (stub == nullptr || stub->has_messages != 0) find_messages(find_next, mpi, pmpi);
  find_handles(find_next, found);
  if (stub != nullptr) stub->before_commit(boot::put_before_commit);
  const std::lock_guard lock(mutex);
  if (find_next_of_all != nullptr) return;
  find_next_of_all = find_next;
  are_messages_intercepted = stub == nullptr || stub->has_messages != 0;
  detail::next_mpi = mpi;
  detail::next_pmpi = pmpi;
  detail::handles = found;
  if (is_profiled) {
    set_profiled_native(stub->is_native != 0);
    set_thread_watch(stub->watch_threads);
    stub->set_functions(functions_of_profile());
  } else if (stub != nullptr) {
    set_functions = stub->set_functions;
    set_functions(functions_of(taken));
  }
}

}  // namespace

bool has_message_calls() noexcept { return are_messages_intercepted; }

void* find_data(const char* name) noexcept { return find_data_with(find_next_of_all, name); }

namespace {

void take(Taken wanted) noexcept {
  const std::lock_guard lock(mutex);
  if (set_functions != nullptr && wanted > taken) set_functions(functions_of(taken = wanted));
}

}  // namespace

void take_request_calls() noexcept { take(Taken::requests); }

void take_message_calls() noexcept { take(Taken::messages); }

}  // namespace larklane::mpi

extern "C" {

[[gnu::visibility("default")]] LarklaneAttach larklane_mpi_attach;

const char* larklane_mpi_attach(const char* version, const LarklaneStub* stub) {
  if (std::strcmp(version, LARKLANE_VERSION) != 0) {
    return "it is of another version of Larklane than the preloaded object";
  }
  larklane::mpi::attach(stub->find_next, stub);
  return nullptr;
}

// Attaches a library that the program links before its MPI. No stub calls larklane_mpi_attach then,
// and the next functions are the next in link order. A library that the stub opens is in no global
// scope, so this constructor does nothing.
[[gnu::constructor]] static void attach_linked() {
  void* const program = dlopen(nullptr, RTLD_LAZY);
  if (dlsym(program, "larklane_mpi_attach") != reinterpret_cast<void*>(&larklane_mpi_attach)) {
    return;
  }
  larklane::mpi::attach([](const char* name) { return dlsym(RTLD_NEXT, name); }, nullptr);
}
}
