// Calls that an older MPI lacks: the status calls on arrays of MPI 4.1, and those with sessions.

#include "mpi/abi/older_mpi.hpp"

#include "mpi/abi/handles.hpp"
#include "mpi/requests/complete_many.hpp"
#include "mpi/requests/status.hpp"

namespace larklane::mpi {
namespace {

/// The status calls, by MPI_Request_get_status of the table. To it, an inactive persistent request
/// looks like one that is complete.
template <const Next& (*kTable)() noexcept>
struct Statuses {
  static int look(MPI_Request request, int* flag, MPI_Status* status) {
    return kTable().Request_get_status(request, flag, status);
  }
  /// Of a status in an array.
  static void set_success(MPI_Status* status) noexcept {
    if (is_wanted(status)) status->MPI_ERROR = MPI_SUCCESS;
  }

  static int all(int count, const MPI_Request requests[], int* flag, MPI_Status* statuses) {
    *flag = 1;
    for (int i = 0; i < count && *flag != 0; ++i) {
      const int code = look(requests[i], flag, status_at(statuses, i));
      if (code != MPI_SUCCESS) return code;
      if (*flag != 0) set_success(status_at(statuses, i));
    }
    return MPI_SUCCESS;
  }

  static int any(int count, const MPI_Request requests[], int* index, int* flag,
                 MPI_Status* status) {
    *index = MPI_UNDEFINED;
    bool any_active = false;
    for (int i = 0; i < count; ++i) {
      if (requests[i] == handles().request_null) continue;
      any_active = true;
      const int code = look(requests[i], flag, status);
      if (code != MPI_SUCCESS) return code;
      if (*flag == 0) continue;
      *index = i;
      return MPI_SUCCESS;
    }
    *flag = 0;
    if (any_active) return MPI_SUCCESS;
    const int code = look(handles().request_null, flag, status);
    if (code == MPI_SUCCESS) set_success(status);  // of an empty status
    return code;
  }

  static int some(int count, const MPI_Request requests[], int* outcount, int indices[],
                  MPI_Status* statuses) {
    int found = 0;
    bool any_active = false;
    for (int i = 0; i < count; ++i) {
      if (requests[i] == handles().request_null) continue;
      any_active = true;
      int flag = 0;
      MPI_Status* const status = status_at(statuses, found);
      const int code = look(requests[i], &flag, status);
      if (code != MPI_SUCCESS) return code;
      if (flag == 0) continue;
      set_success(status);
      indices[found++] = i;
    }
    *outcount = any_active ? found : MPI_UNDEFINED;
    return MPI_SUCCESS;
  }
};

template <class Function>
void fill(Function*& call, Function* made) noexcept {
  if (call == nullptr) call = made;
}

template <class... Arguments>
void refuse(int (*&call)(Arguments...)) noexcept {
  fill(
      call, +[](Arguments... /*unused*/) -> int { return MPI_ERR_UNSUPPORTED_OPERATION; });
}

template <const Next& (*kTable)() noexcept>
void fill_table(Next& table) noexcept {
  fill(table.Request_get_status_all, &Statuses<kTable>::all);
  fill(table.Request_get_status_any, &Statuses<kTable>::any);
  fill(table.Request_get_status_some, &Statuses<kTable>::some);
  refuse(table.Session_init);
  refuse(table.Session_finalize);
  refuse(table.Comm_create_from_group);
  refuse(table.Intercomm_create_from_groups);
  refuse(table.Comm_idup_with_info);
}

}  // namespace

void fill_for_older_mpi(Next& mpi, Next& pmpi) noexcept {
  fill_table<&next_mpi>(mpi);
  fill_table<&next_pmpi>(pmpi);
}

}  // namespace larklane::mpi
