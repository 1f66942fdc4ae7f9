#include "control/helper/helper_thread.hpp"

#include <dirent.h>
#include <sched.h>
#include <signal.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>

namespace larklane::control {
namespace {

constexpr std::size_t kCpusMax = 8192;  // the largest NR_CPUS of Linux
struct CpuSet {
  std::array<cpu_set_t, kCpusMax / CPU_SETSIZE> parts{};
};

struct Start {
  void* (*body)(void*);
  void* argument;
};

/// Lets the helper run on the CPUs of all threads together. The creating thread may be bound to one
/// core, on which it then spins or computes: OpenMP, HPX and hand-written codes bind their threads.
/// A process has no CPU mask of its own that a call could read: only its threads have masks.
void use_all_cpus_of_process() noexcept {
  DIR* const tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return;
  CpuSet all;
  while (const dirent* entry = ::readdir(tasks)) {
    const auto thread = static_cast<pid_t>(std::atol(entry->d_name));
    CpuSet set;
    if (thread <= 0 || ::sched_getaffinity(thread, sizeof set, set.parts.data()) != 0) continue;
    CPU_OR_S(sizeof all, all.parts.data(), all.parts.data(), set.parts.data());
  }
  ::closedir(tasks);
  ::sched_setaffinity(0, sizeof all, all.parts.data());  // refused: keeps the creator's mask
}

void* run(void* start) {
  const std::unique_ptr<Start> given(static_cast<Start*>(start));
  ::pthread_setname_np(::pthread_self(), "larklane");
  use_all_cpus_of_process();
  return given->body(given->argument);
}

}  // namespace

Result<pthread_t> start_helper_thread(void* (*body)(void*), void* argument) {
  auto start = std::make_unique<Start>(Start{body, argument});
  // a new thread inherits the mask, so no signal of the application can ever reach the helper
  sigset_t all_signals;
  sigset_t former;
  ::sigfillset(&all_signals);
  ::pthread_sigmask(SIG_SETMASK, &all_signals, &former);
  pthread_t thread{};
  const int error = ::pthread_create(&thread, nullptr, run, start.get());
  ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
  if (error != 0) return Status(Errc::kNoThread, error);
  [[maybe_unused]] const Start* const taken = start.release();  // owned by run()
  return thread;
}

}  // namespace larklane::control
