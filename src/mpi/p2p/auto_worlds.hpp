#pragma once
// The worlds that option p2p = auto gives to Larklane: those in which it was measured to pay, as
// base/p2p_auto.def lists them. No MPI call.

#include <string>
#include <string_view>

namespace larklane::mpi::p2p {

/// Name and first number of an MPI: "MPICH 5", "Open MPI 5".
/// @param library_version  of MPI_Get_library_version
std::string mpi_title(std::string_view library_version);

/// At some thread level? @param title  of mpi_title()
bool auto_may_own(std::string_view title) noexcept;
/// @param is_multiple  the thread level is MPI_THREAD_MULTIPLE
bool auto_owns(std::string_view title, bool is_multiple) noexcept;

}  // namespace larklane::mpi::p2p
