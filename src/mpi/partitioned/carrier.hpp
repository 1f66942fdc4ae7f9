#pragma once
// Our partitioned requests, and the MPI handles that stand for them.
//
// A carrier is a real persistent receive of the MPI, on a communicator of our own. It is never
// started. Its handle is unique and survives c2f and f2c. Each function of the MPI accepts it as an
// inactive request.

#include <atomic>
#include <cstddef>
#include <memory>

#include "mpi/abi/handles.hpp"
#include "mpi/requests/handle_table.hpp"
#include "mpi/world/communicator.hpp"
#include "part/engine.hpp"

namespace larklane::mpi {

/// One partitioned request: the engine's object, and the values for MPI's statuses and errors.
/// Thread safety: immutable, except the engine's request, which states its own.
struct Partitioned {
  part::Request* request = nullptr;      ///< `send` or `receive`, the one that is not null
  part::SendRequest* send = nullptr;     ///< null on a receive
  part::RecvRequest* receive = nullptr;  ///< null on a send
  std::unique_ptr<part::Request> own;    ///< the face's own request: the peer is MPI_PROC_NULL
  MPI_Request carrier{};
  int peer = 0;  ///< rank argument of the init call
  int tag = 0;
  std::shared_ptr<Communicator> communicator;

  bool is_null_process() const noexcept { return own != nullptr; }
};

namespace detail {
/// Never destroyed: MPI calls may come from exit handlers.
union CarrierTable {
  constexpr CarrierTable() noexcept : table() {}
  ~CarrierTable() {}
  HandleTable table;
};
extern constinit CarrierTable carriers;
extern constinit std::atomic<std::size_t> carrier_count;
}  // namespace detail

/// True while no request of ours exists: intercepted calls go straight on.
/// relaxed: the init call counts before it returns, so before the caller has a handle of ours.
inline bool no_carriers() noexcept {
  return detail::carrier_count.load(std::memory_order_relaxed) == 0;
}

/// The request behind a handle, or null if it is not ours.
inline Partitioned* find_carrier(MPI_Request handle) noexcept {
  return static_cast<Partitioned*>(detail::carriers.table.find(handle_bits(handle)));
}

/// True if one of the handles is ours.
inline bool any_carrier(int count, const MPI_Request* handles) noexcept {
  return detail::carriers.table.contains_any(count, [&](int i) { return handle_bits(handles[i]); });
}

/// Makes a carrier on the private communicator, which must exist.
/// @param datatype  the user's: the MPI refuses null and uncommitted ones
/// @return          MPI_SUCCESS, or the MPI's error code
int make_carrier(int tag, MPI_Datatype datatype, MPI_Request* carrier);
/// Enters a request with its carrier in the table.
void add_carrier(std::unique_ptr<Partitioned> request);
/// Removes a request from the table; the caller owns it again.
std::unique_ptr<Partitioned> remove_carrier(Partitioned* request) noexcept;
/// Call at the end: frees the inactive requests. @return the number of active ones, which remain
std::size_t release_carriers(part::Engine& engine);

/// Native partitioned requests: the MPI makes them for a pair that Larklane does not serve.
void add_forwarded(MPI_Request handle);
/// The number of native partitioned requests so far.
std::uint64_t forwarded_total() noexcept;
bool is_forwarded(MPI_Request handle) noexcept;
void remove_forwarded(MPI_Request handle) noexcept;

}  // namespace larklane::mpi
