#pragma once
// The functions for the stub's slots, in the order of calls.def, then extensions.def, then p2p.def,
// MPI_X before PMPI_X.
// Thread safety: immutable once attached.

#include <cstdint>

namespace larklane::mpi {

/// The calls that lead to this library. Each value includes those before it; the others lead to the
/// MPI, as without Larklane.
enum class Taken : std::uint8_t {
  always,    ///< communicators, initialisation, partitioned requests
  requests,  ///< once a request of ours exists: the calls that concern requests alone
  messages,  ///< once Larklane carries messages: those of p2p.def
};
void* const* functions_of(Taken taken) noexcept;
/// The calls of p2p.def lead to this library, or can: the stub is one of those that have them, or
/// the program is linked with this library.
bool has_message_calls() noexcept;

}  // namespace larklane::mpi
