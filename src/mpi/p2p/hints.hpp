#pragma once
// Hints of communicators (mpi_assert_*) that concern ordinary messages.

#include "mpi/abi/handles.hpp"
#include "msg/protocol/communicator.hpp"

namespace larklane::mpi::p2p {

/// From the argument, not from MPI_Comm_get_info: the result of a nonblocking constructor answers
/// no call yet, and an MPI may forget keys that it does not know.
msg::Hints hints_of(MPI_Info info);

}  // namespace larklane::mpi::p2p
