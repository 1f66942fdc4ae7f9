#pragma once
// Partitioned requests of ours and the MPI handles that stand for them.
//
// A carrier is a real persistent receive of the MPI, on a communicator of our own, that is never
// started: its handle is unique, survives c2f and f2c, and the MPI takes it for an inactive request
// wherever it meets it.

#include <atomic>
#include <cstddef>
#include <memory>

#include "mpi/abi/handles.hpp"
#include "mpi/partitioned/handle_table.hpp"
#include "mpi/world/communicator.hpp"
#include "part/engine.hpp"

namespace larklane::mpi {

/// One partitioned request: the engine's object and what MPI wants to know of it.
/// Thread safety: immutable but for the engine's request, which has its own word.
struct Partitioned {
  part::Request* request = nullptr;      ///< the one of send and receive that is not null
  part::SendRequest* send = nullptr;     ///< null on a receive
  part::RecvRequest* receive = nullptr;  ///< null on a send
  std::unique_ptr<part::Request> own;    ///< a request of the face itself: MPI_PROC_NULL
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
/// relaxed: who uses a handle of ours has it from the init call, which counted before it returned.
inline bool no_carriers() noexcept {
  return detail::carrier_count.load(std::memory_order_relaxed) == 0;
}

/// The request behind a handle, or null if it is not ours.
inline Partitioned* find_carrier(MPI_Request handle) noexcept {
  return static_cast<Partitioned*>(detail::carriers.table.find(handle_bits(handle)));
}

/// Is one of the handles ours?
inline bool any_carrier(int count, const MPI_Request* handles) noexcept {
  return detail::carriers.table.contains_any(count, [&](int i) { return handle_bits(handles[i]); });
}

/// A carrier: on the private communicator, which exists.
/// @param datatype  the user's, for the MPI to check: null and uncommitted ones are refused
/// @return          MPI_SUCCESS, or the MPI's error code
int make_carrier(int tag, MPI_Datatype datatype, MPI_Request* carrier);
/// Enter a request with its carrier in the table.
void add_carrier(std::unique_ptr<Partitioned> request);
/// Out of the table; the caller owns it again.
std::unique_ptr<Partitioned> remove_carrier(Partitioned* request) noexcept;
/// At the end: free what is inactive. @return the number of active requests, which are left alone
std::size_t release_carriers(part::Engine& engine);

/// Native partitioned requests: made by the MPI for a pair that we don't serve.
void add_forwarded(MPI_Request handle);
/// How many there have been.
std::uint64_t forwarded_total() noexcept;
bool is_forwarded(MPI_Request handle) noexcept;
void remove_forwarded(MPI_Request handle) noexcept;

}  // namespace larklane::mpi
