#pragma once
// The wait loop of blocking calls: they poll our requests, make progress in the MPI, and back off.

#include <atomic>
#include <cstdint>

#include "mpi/requests/request.hpp"
#include "mpi/world/process.hpp"
#include "part/backoff.hpp"

namespace larklane::mpi {

namespace detail {
/// Each idle turn calls it while a profile is recorded; null: no profile.
inline constinit std::atomic<void (*)() noexcept> idle_observer{nullptr};
}  // namespace detail

/// One per waiting call; part::Backoff spins, yields and sleeps by the options wait_spins and its
/// like. Thread safety: single-owner.
class Waiting {
 public:
  Waiting() noexcept : backoff_(Process::get().config()) {}

  /// Call after polls that completed nothing. In the first 256 turns a peer's answer takes
  /// nanoseconds, so only every 32nd turn makes progress in the MPI. Later turns each do: the peer
  /// may need our native progress to answer at all. A poll that moved data restarts the turns.
  void idle(const Pass& pass = {}) noexcept {
    if (const std::uint64_t moved = part::runs_moved_by_this_thread();
        moved != moved_ || pass.moved) {
      moved_ = moved;
      turns_ = 0;
      backoff_.reset();
    }
    if (++turns_ > kQuickTurns || turns_ % kPokeEvery == 0) Process::get().poke_native();
    rest();
  }

 private:
  void rest() noexcept {
    // relaxed: the address of a function
    if (auto* const look = detail::idle_observer.load(std::memory_order_relaxed)) [[unlikely]]
      look();
    backoff_.idle();
  }

  static constexpr std::uint32_t kQuickTurns = 256;
  static constexpr std::uint32_t kPokeEvery = 32;

  std::uint32_t turns_ = 0;
  std::uint64_t moved_ = part::runs_moved_by_this_thread();
  part::Backoff backoff_;
};

/// For tests of the MPI's own requests: a program that polls them may depend on progress of ours.
inline void help_before_native() noexcept {
  if (!no_carriers()) [[unlikely]]
    Process::get().help();
}

/// For calls that don't wait, but that a program may call in a loop: makes progress in the MPI at a
/// thread's first miss and at every 64th after it: 2 us in a loop.
inline void poke_now_and_then() noexcept {
  constexpr std::uint32_t kPokeEvery = 64;
  thread_local std::uint32_t misses = 0;
  if (misses++ % kPokeEvery == 0) Process::get().poke_native();
}

}  // namespace larklane::mpi
