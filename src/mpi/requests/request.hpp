#pragma once
// The base class of Larklane's requests, and the table of the MPI handles that stand for them.
//
// A carrier is a real request of the MPI. Its handle is unique and survives c2f and f2c, and each
// function of the MPI accepts it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/requests/handle_table.hpp"

namespace larklane::part {
class SendRequest;
class RecvRequest;
}  // namespace larklane::part

namespace larklane::mpi {

class Communicator;

/// The state of a request's round. A request that is not persistent has one round.
enum class Completion : std::uint8_t { pending, complete, failed, inactive };
/// The round has ended, and finish() is due.
constexpr bool is_over(Completion completion) noexcept {
  return completion == Completion::complete || completion == Completion::failed;
}

/// One pass over the requests of a call. An ordinary message that finds its lane here makes no
/// progress: an earlier request of the pass has made it. Thread safety: single-owner.
struct Pass {
  std::uint64_t lanes = 0;  ///< that have had a turn, a bit each
  bool moved = false;       ///< the progress has handled a message
  bool needs_all = false;   ///< a request needs more than turns of lanes: its own poll()
};

/// A request of ours. Thread safety: as the calls on an MPI request. One thread at a time makes
/// them; is_active() and kind() may run beside calls of other threads.
class Request {
 public:
  /// The kinds with calls of their own.
  enum class Kind : std::uint8_t { partitioned_send, partitioned_receive, message };

  virtual ~Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  Kind kind() const noexcept { return kind_; }
  // For MPI_Pready and MPI_Parrived: they load nothing else of a request. Null on each other kind.
  part::SendRequest* send = nullptr;
  part::RecvRequest* receive = nullptr;

  /// True from start to finish().
  virtual bool is_active() const noexcept = 0;
  /// Makes progress and returns the state; does not end the round. Never blocks.
  virtual Completion poll(Pass& pass) = 0;
  /// After `complete` or `failed`: the status except MPI_ERROR, which only calls on arrays set.
  /// Does nothing if the status is ignored.
  virtual void fill(MPI_Status* status) const = 0;
  /// After `failed`: the error code. Notes no error.
  virtual int failure_code() const = 0;
  /// After `complete` or `failed`: ends the round. A persistent request becomes inactive. Another
  /// one ends, `*handle` becomes MPI_REQUEST_NULL, and the object must not be used again.
  virtual void finish(MPI_Request* handle) = 0;
  /// After `complete`: fill() and finish() in one call.
  virtual void end(MPI_Request* handle, MPI_Status* status) {
    fill(status);
    finish(handle);
  }
  /// As poll(), and ends the round if it is complete.
  virtual Completion try_end(Pass& pass, MPI_Request* handle, MPI_Status* status) {
    const Completion completion = poll(pass);
    if (completion == Completion::complete) end(handle, status);
    return completion;
  }
  /// Begins a round. @errors kAlreadyActive; kWrongKind: not persistent
  virtual Status start() = 0;
  /// MPI_Cancel. @return an MPI error code, noted for settle()
  virtual int cancel() = 0;
  /// MPI_Request_free. @return an MPI error code, noted for settle(); MPI_SUCCESS: the object must
  /// not be used again
  virtual int free(MPI_Request* handle) = 0;
  /// The communicator with the error handler for this request.
  virtual MPI_Comm error_target() const noexcept = 0;
  /// Before MPI_Comm_free of `freed`: a request of it keeps the record, which has an error handler
  /// afterwards, too. May run beside calls of other threads on requests of other communicators.
  virtual void keep_target(MPI_Comm, const std::shared_ptr<Communicator>&) {}
  /// "receive from rank 3, tag 7"
  virtual std::string description() const = 0;
  /// The reason for a status that no call on the request explains; empty: its name suffices.
  virtual std::string reason() const { return {}; }

 protected:
  explicit Request(Kind kind) noexcept : kind_(kind) {}

 private:
  const Kind kind_;
};

namespace detail {
extern constinit LastingHandleTable carriers;
extern constinit std::atomic<std::size_t> carrier_count;
}  // namespace detail

/// True while no request of ours exists: intercepted calls go straight on.
/// relaxed: the init call counts before it returns, so before the caller has a handle of ours.
inline bool no_carriers() noexcept {
  return detail::carrier_count.load(std::memory_order_relaxed) == 0;
}

/// The request behind a handle, or null if it is not ours.
inline Request* find_carrier(MPI_Request handle) noexcept {
  return static_cast<Request*>(detail::carriers.table.find(handle_bits(handle)));
}

/// True if one of the handles is ours.
inline bool any_carrier(int count, const MPI_Request* handles) noexcept {
  return detail::carriers.table.contains_any(count, [&](int i) { return handle_bits(handles[i]); });
}

/// Enters a request in the table. @param request  kept; remove_carrier() returns it to the caller
void add_carrier(MPI_Request handle, Request* request);
void remove_carrier(MPI_Request handle) noexcept;
/// Every request in the table, in no order.
std::vector<Request*> all_carriers();

}  // namespace larklane::mpi
