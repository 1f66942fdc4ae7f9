#pragma once
// Ordinary messages of the world: the decision in MPI_Init whether Larklane carries them, and their
// end in MPI_Finalize. (docs/design/protocols/ordinary_messages.md)

#include <atomic>
#include <string>

#include "control/plane/plane.hpp"
#include "mpi/p2p/ballot_lines.hpp"

namespace larklane::mpi::p2p {

namespace detail {
extern std::atomic<bool> is_owned;
}

/// Larklane carries the ordinary messages of the world. relaxed: the program orders MPI_Init and
/// its messages.
inline bool is_owned() noexcept { return detail::is_owned.load(std::memory_order_relaxed); }

/// After the MPI's own initialisation, on the calling thread: decides with the other ranks. Does
/// nothing without option `p2p`. Aborts the job if the decision can't be known.
void opened();
/// Before and after the MPI's own finalisation.
void closing();
void closed();

/// For people: the carrier of ordinary messages, and the reason. Empty: option `p2p` is off.
std::string ownership_text();

/// Gets the plane's records that are not the partitioned engine's. Never destroyed.
control::Handler& handler() noexcept;

}  // namespace larklane::mpi::p2p
