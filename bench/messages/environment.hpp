#pragma once
// Description of a launch without an MPI, built from a card of each process. Pure functions; thread
// safety: thread-safe.

#include <sched.h>

#include <cstddef>
#include <span>

#include "measure/options.hpp"
#include "measure/record.hpp"

namespace larklane::bench {

/// A process's description of itself: plain bytes.
struct Card {
  std::size_t host;  ///< a hash of the kernel's start
  int threads;
  cpu_set_t cores;
  char binding[256];
};

Card card_of_this(const Options& options);
/// @param cards  of all ranks, by rank
Environment environment_of(std::span<const Card> cards);

}  // namespace larklane::bench
