#pragma once
// Communicators that stay with the MPI while Larklane carries the world's messages: counted for
// `larklane run --summary`.

#include <cstdint>

#include "mpi/abi/next.hpp"

namespace larklane::mpi::p2p {

/// Counts a new communicator without a record of ours for its messages. Does nothing for comm_null,
/// and unless is_owned(). Thread safety: thread-safe.
void note_left(MPI_Comm made) noexcept;
std::uint64_t left_count() noexcept;

}  // namespace larklane::mpi::p2p
