#include "mpi/p2p/progress_hook.hpp"

#include <atomic>
#include <cstdint>

#include "mpi/abi/next.hpp"

namespace larklane::mpi::p2p {
namespace {

// Bounds of a turn: the thread that calls the hook has work of its own.
constexpr std::uint32_t kRecordsMax = 64;
constexpr std::uint64_t kBytesMax = 64 << 10;

/// Null: stopped. acquire and release: start_hook() and stop_hook() with the hook.
std::atomic<msg::Engine*> engine_of_hook{nullptr};
/// Threads inside the engine. seq_cst, with engine_of_hook: store, then look.
std::atomic<std::uint32_t> inside_count{0};

/// @return records served; less than 0: stopped
[[maybe_unused]] int take_turn() noexcept {
  thread_local bool is_inside = false;  // a lane may call the MPI, which calls the hook
  if (is_inside) return 0;
  is_inside = true;
  // seq_cst: pairs with stop_hook(), which stores null and then reads the count.
  inside_count.fetch_add(1, std::memory_order_seq_cst);
  int served = -1;
  if (msg::Engine* const engine = engine_of_hook.load(std::memory_order_seq_cst))
    served = static_cast<int>(engine->try_progress(kRecordsMax, kBytesMax));
  inside_count.fetch_sub(1, std::memory_order_release);  // release: pairs with stop_hook()
  is_inside = false;
  return served;
}

#if defined(LARKLANE_FAMILY_MPICH)
// mpi.h of MPICH from 4.3 on; compiled with the header of any MPICH.
using AsyncPoll = int(void* thing);
using AsyncStart = int(AsyncPoll* poll, void* state, int stream);
constexpr int kStreamNull = 0x3c000000;
constexpr int kNoProgress = 0, kDone = 1;

int poll_for_mpich(void*) { return take_turn() < 0 ? kDone : kNoProgress; }

bool register_hook() {
  const auto start = reinterpret_cast<AsyncStart*>(find_data("MPIX_Async_start"));
  return start != nullptr && start(poll_for_mpich, nullptr, kStreamNull) == MPI_SUCCESS;
}
#elif defined(LARKLANE_FAMILY_OMPI)
using ProgressRegister = int(int (*callback)());

int poll_for_open_mpi() {
  const int served = take_turn();
  return served < 0 ? 0 : served;
}

/// Once: it stays registered.
bool register_hook() {
  const auto add = reinterpret_cast<ProgressRegister*>(find_data("opal_progress_register"));
  static const bool is_registered = add != nullptr && add(poll_for_open_mpi) == 0;
  return is_registered;
}
#else
bool register_hook() { return false; }
#endif

}  // namespace

bool start_hook(msg::Engine& engine) {
  engine_of_hook.store(&engine, std::memory_order_seq_cst);  // as take_turn()
  if (register_hook()) return true;
  engine_of_hook.store(nullptr, std::memory_order_seq_cst);
  return false;
}

void stop_hook() noexcept {
  engine_of_hook.store(nullptr, std::memory_order_seq_cst);  // as take_turn()
  while (inside_count.load(std::memory_order_seq_cst) != 0) {
  }
}

}  // namespace larklane::mpi::p2p
