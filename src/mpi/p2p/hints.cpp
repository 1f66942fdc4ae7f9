#include "mpi/p2p/hints.hpp"

#include <array>

#include "base/log.hpp"
#include "mpi/abi/info.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/p2p/world.hpp"

namespace larklane::mpi::p2p {
namespace {

constexpr const char* kNoAnySource = "mpi_assert_no_any_source";
constexpr const char* kNoAnyTag = "mpi_assert_no_any_tag";
constexpr const char* kAllowOvertaking = "mpi_assert_allow_overtaking";
constexpr std::array kHints = {kNoAnySource, kNoAnyTag, kAllowOvertaking};

bool has_hint(MPI_Info info) {
  for (const char* const key : kHints)
    if (!info_value(info, key).empty()) return true;
  return false;
}

/// Sets the other keys.
int set_rest(const Next& next, MPI_Comm comm, MPI_Info info) {
  const Next& real = next_pmpi();
  MPI_Info rest;
  if (const int code = real.Info_dup(info, &rest); code != MPI_SUCCESS) return code;
  for (const char* const key : kHints)
    if (!info_value(info, key).empty()) real.Info_delete(rest, key);
  const int code = next.Comm_set_info(comm, rest);
  real.Info_free(&rest);
  return code;
}

}  // namespace

msg::Hints hints_of(MPI_Info info) {
  const auto promises = [info](const char* key) { return info_value(info, key) == "true"; };
  return {.no_any_source = promises(kNoAnySource),
          .no_any_tag = promises(kNoAnyTag),
          .allow_overtaking = promises(kAllowOvertaking)};
}

}  // namespace larklane::mpi::p2p

namespace larklane::mpi::face {

/// The hints that choose lanes stay those of the creation. Messages on the old lanes and on the new
/// ones would have no order, and MPI lets an implementation ignore hints here (MPI 5.0, 7.4.4). The
/// MPI does not get them, so its MPI_Comm_get_info reports those in force.
int Comm_set_info(const Next& next, MPI_Comm comm, MPI_Info info) {
  if (find_ordinary(comm) == nullptr || !p2p::has_hint(info)) return next.Comm_set_info(comm, info);
  log_info(
      "MPI_Comm_set_info: a communicator whose messages Larklane carries keeps the mpi_assert_* "
      "hints of its creation");
  return p2p::set_rest(next, comm, info);
}

}  // namespace larklane::mpi::face
