#pragma once
// The idle turns of wait loops.

#include <cstdint>

#include "base/config.hpp"

namespace larklane::part {

/// Number of runs that the calling thread has moved. A wait loop that sees it grow polls again at
/// once: the next run may be there.
std::uint64_t runs_moved_by_this_thread() noexcept;

/// Idle turns of a wait loop: first spins, then yields, then sleeps, bounded. One per waiting call.
/// Thread safety: single-owner.
class Backoff {
 public:
  explicit Backoff(const Config& config) noexcept;
  void idle() noexcept;  ///< called after a poll that found nothing
  void reset() noexcept { turns_ = 0; }

 private:
  std::uint32_t turns_ = 0;
  std::uint32_t spins_, yields_;
  std::uint64_t sleep_ns_min_, sleep_ns_max_;
};

}  // namespace larklane::part
