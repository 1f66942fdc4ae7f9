#pragma once
// MPI_Message: the handles of matched messages of ours.

namespace larklane::mpi::p2p {

/// Before the MPI's finalisation: frees the handles that stand for no message.
void free_spare_message_handles() noexcept;

}  // namespace larklane::mpi::p2p
