#pragma once
// How our blocking calls wait: they poll ours, let the MPI progress, and idle.

#include <atomic>
#include <cstdint>

#include "mpi/partitioned/carrier.hpp"
#include "mpi/world/process.hpp"
#include "part/engine.hpp"

namespace larklane::mpi {

namespace detail {
/// Called in every idle turn while a profile is recorded; null: there is none.
inline constinit std::atomic<void (*)() noexcept> idle_observer{nullptr};
}  // namespace detail

/// One per waiting call. Thread safety: single-owner.
class Waiting {
 public:
  Waiting() noexcept : backoff_(Process::get().config()) {}

  /// After polls that completed nothing. The MPI is driven in every 32nd of the first turns, in
  /// which an answer of ours is a matter of nanoseconds, and then in each: the peer may need our
  /// native progress to answer at all. After a poll that has moved something the turns begin anew.
  void idle() noexcept {
    if (const std::uint64_t moved = part::runs_moved_by_this_thread(); moved != moved_) {
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

/// In the tests of the MPI's own requests: a program that polls them may wait for what a step of
/// ours must do first.
inline void help_before_native() noexcept {
  if (!no_carriers()) [[unlikely]]
    Process::get().help();
}

/// For calls that don't wait but may be called in a loop: drives the MPI in the first miss of a
/// thread and in every 16th.
inline void poke_now_and_then() noexcept {
  constexpr std::uint32_t kPokeEvery = 16;
  thread_local std::uint32_t misses = 0;
  if (misses++ % kPokeEvery == 0) Process::get().poke_native();
}

}  // namespace larklane::mpi
