// The tables of next functions and handles, filled once.

#include "mpi/preload/attach.h"

#include <dlfcn.h>
#include <unwind.h>

#include <cstring>
#include <mutex>
#include <utility>

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

// Both tables' and the slots' changes happen under it; no call to the dynamic linker does.
std::mutex mutex;
FindNext* find_next_of_all = nullptr;           // null: not attached
void (*set_functions)(void* const*) = nullptr;  // null: the slots stay as they are

// A data symbol's address is the program's where a copy relocation moved it there.
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
#include "mpi/abi/calls.def"
#undef LARKLANE_CALL
}

void find_pmpi(FindNext* find_next, Next& next) noexcept {
#define LARKLANE_CALL(ret, Name, params, args) find(find_next, "PMPI_" #Name, next.Name);
#define LARKLANE_REAL(ret, Name, params) find(find_next, "PMPI_" #Name, next.Name);
#include "mpi/abi/calls.def"
#include "mpi/abi/reals.def"
#undef LARKLANE_CALL
#undef LARKLANE_REAL
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

// An exception of the program's error handler passes our frames by the program's unwinder, but what
// runs our destructors on its way is the copy in this library, which prepares itself only when it
// is used by itself: unprepared it aborts.
void prepare_unwinder() noexcept {
  const auto stop = [](_Unwind_Context*, void*) { return _URC_END_OF_STACK; };
  _Unwind_Backtrace(stop, nullptr);
}

// The lookups come before the lock: they take the dynamic linker's, which another caller may hold
// already.
// @param stub  null: linked, not preloaded
void attach(FindNext* find_next, const LarklaneStub* stub) noexcept {
  const bool is_profiled = stub != nullptr && stub->watch_threads != nullptr;
  prepare_unwinder();
  Next pmpi;
  Handles found;
  find_pmpi(find_next, pmpi);
  Next mpi = pmpi;  // our own calls are no tool's business
  find_mpi(find_next, mpi);
  find_handles(find_next, found);
  const TrafficTables traffic = is_profiled ? find_traffic(find_next) : TrafficTables{};
  if (stub != nullptr) stub->before_commit(boot::put_before_commit);
  const std::lock_guard lock(mutex);
  if (find_next_of_all != nullptr) return;
  find_next_of_all = find_next;
  detail::next_mpi = mpi;
  detail::next_pmpi = pmpi;
  detail::handles = found;
  if (is_profiled) {
    set_traffic(traffic, stub->is_native != 0);
    set_thread_watch(stub->watch_threads);
    stub->set_functions(functions_of_profile());
  } else if (stub != nullptr) {
    set_functions = stub->set_functions;
    set_functions(functions_without_requests());
  }
}

}  // namespace

void* find_data(const char* name) noexcept { return find_data_with(find_next_of_all, name); }

void take_request_calls() noexcept {
  const std::lock_guard lock(mutex);
  if (set_functions != nullptr) std::exchange(set_functions, nullptr)(functions_with_requests());
}

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

// Linked by the program before its MPI: nobody calls larklane_mpi_attach, and the next functions
// are the next in link order. Opened by the stub the library is in no global scope, and this does
// nothing.
[[gnu::constructor]] static void attach_linked() {
  void* const program = dlopen(nullptr, RTLD_LAZY);
  if (dlsym(program, "larklane_mpi_attach") != reinterpret_cast<void*>(&larklane_mpi_attach)) {
    return;
  }
  larklane::mpi::attach([](const char* name) { return dlsym(RTLD_NEXT, name); }, nullptr);
}
}
