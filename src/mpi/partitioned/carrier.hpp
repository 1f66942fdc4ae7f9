#pragma once
// Our partitioned requests, and those of the MPI.
//
// The carrier of a partitioned request is a persistent receive of the MPI, on a communicator of our
// own. It is never started, so each function of the MPI accepts it as an inactive request.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "mpi/requests/request.hpp"
#include "mpi/world/communicator.hpp"
#include "part/engine.hpp"

namespace larklane::mpi {

/// One partitioned request: the engine's object, and the values for MPI's statuses and errors.
/// Thread safety: immutable once in the table, except the engine's request, which states its own.
class Partitioned final : public Request {
 public:
  explicit Partitioned(part::Kind kind) noexcept
      : Request(kind == part::Kind::send ? Kind::partitioned_send : Kind::partitioned_receive) {}

  part::Request* request = nullptr;    ///< `send` or `receive`, the one that is not null
  std::unique_ptr<part::Request> own;  ///< the face's own request: the peer is MPI_PROC_NULL
  MPI_Request carrier{};
  int peer = 0;  ///< rank argument of the init call
  int tag = 0;
  std::shared_ptr<Communicator> communicator;

  bool is_null_process() const noexcept { return own != nullptr; }

  bool is_active() const noexcept override;
  Completion poll(Pass& pass) override;
  void fill(MPI_Status* status) const override;
  int failure_code() const override;
  void finish(MPI_Request* handle) override;
  Status start() override;
  int cancel() override;
  int free(MPI_Request* handle) override;
  MPI_Comm error_target() const noexcept override;
  std::string description() const override;
  std::string reason() const override;
};

/// The request as a partitioned one of that kind; null if it is of another kind.
inline const Partitioned* as_partitioned(const Request* request, Request::Kind kind) noexcept {
  return request != nullptr && request->kind() == kind ? static_cast<const Partitioned*>(request)
                                                       : nullptr;
}

/// Raises the error of a refused call on partitions. @param partitions  "partition 7"
int raise_refused(const Partitioned& request, const char* call, Status status,
                  const std::string& partitions);

/// Makes a carrier on the private communicator, which must exist.
/// @param datatype  the user's: the MPI refuses null and uncommitted ones
/// @return          MPI_SUCCESS, or the MPI's error code
int make_carrier(int tag, MPI_Datatype datatype, MPI_Request* carrier);
/// Enters a request with its carrier in the table.
void add_partitioned(std::unique_ptr<Partitioned> request);
/// Call at the end: frees the inactive requests. @return the number of active ones, which remain
std::size_t release_partitioned(part::Engine& engine);

/// Native partitioned requests: the MPI makes them for a pair that Larklane does not serve.
void add_forwarded(MPI_Request handle);
/// The number of native partitioned requests so far.
std::uint64_t forwarded_total() noexcept;
bool is_forwarded(MPI_Request handle) noexcept;
void remove_forwarded(MPI_Request handle) noexcept;

}  // namespace larklane::mpi
