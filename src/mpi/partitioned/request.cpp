// The calls on any request, for a partitioned one.

#include "base/log.hpp"
#include "base/status_text.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/status.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi {
namespace {

/// The engine's completion as that of a request.
constexpr Completion completion_of(part::Completion completion) noexcept {
  return static_cast<Completion>(completion);
}
static_assert(completion_of(part::Completion::pending) == Completion::pending &&
              completion_of(part::Completion::complete) == Completion::complete &&
              completion_of(part::Completion::failed) == Completion::failed);

/// Removes a request from the table; the caller owns it again.
std::unique_ptr<Partitioned> remove_partitioned(Partitioned* request) noexcept {
  remove_carrier(request->carrier);
  // relaxed: the program orders the init and the free of a communicator
  request->communicator->request_count.fetch_sub(1, std::memory_order_relaxed);
  return std::unique_ptr<Partitioned>(request);
}

}  // namespace

bool Partitioned::is_active() const noexcept { return request->active(); }

Completion Partitioned::poll(Pass& pass) {
  pass.needs_all = true;
  return request->active() ? completion_of(request->poll()) : Completion::inactive;
}

/// A receive reports all its bytes, a send the empty status.
void Partitioned::fill(MPI_Status* status) const {
  if (send != nullptr) {
    set_empty(status);
  } else if (is_null_process()) {
    set_received(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
  } else {
    set_received(status, peer, tag, request->total_bytes());
  }
}

int Partitioned::failure_code() const {
  const Status status = request->error();
  const std::string why = request->error_text();
  return error_code(error_class_of(status.code()),
                    description() + ": " + (why.empty() ? errc_name(status.code()) : why));
}

void Partitioned::finish(MPI_Request*) { request->finish(); }

Status Partitioned::start() { return request->start(); }

int Partitioned::cancel() {
  return raise(communicator.get(), MPI_ERR_REQUEST,
               "MPI_Cancel on " + description() + ": partitioned requests can't be cancelled");
}

int Partitioned::free(MPI_Request* handle) {
  // Rule C5: only an incomplete round refuses the call.
  if (request->active()) {
    if (request->poll() == part::Completion::pending) {
      return mpi::raise_refused(static_cast<const Request&>(*this), "MPI_Request_free",
                                Errc::kAlreadyActive);
    }
    request->finish();
  }
  // Remove it from the table first: once freed, the handle may at once belong to another thread.
  const auto freed = remove_partitioned(this);
  if (!freed->is_null_process()) {
    const Status status = Process::get().engine()->free(freed->request);
    if (!status.ok()) {
      log_warn("MPI_Request_free: %s", errc_name(status.code()));
    }
  }
  return next_pmpi().Request_free(handle);
}

MPI_Comm Partitioned::error_target() const noexcept { return communicator->error_target(); }

std::string Partitioned::description() const {
  return std::string("partitioned ") + (send != nullptr ? "send to " : "receive from ") +
         (is_null_process() ? std::string("MPI_PROC_NULL") : "rank " + std::to_string(peer)) +
         ", tag " + std::to_string(tag) + ", " + std::to_string(request->partitions()) +
         " partitions";
}

std::string Partitioned::reason() const { return request->error_text(); }

int raise_refused(const Partitioned& request, const char* call, Status status,
                  const std::string& what) {
  const std::string sentence = std::string(call) + " on " + request.description() + ": " + what;
  switch (status.code()) {
    case Errc::kInvalidArgument:
      return raise(request.communicator.get(), error_class_of(status.code()),
                   sentence + " is out of range: expected 0 to " +
                       std::to_string(request.request->partitions() - 1));
    case Errc::kAlreadyReady:
      return raise(request.communicator.get(), error_class_of(status.code()),
                   sentence + " has already been marked ready in this round: expected once");
    default:
      return raise_refused(static_cast<const Request&>(request), call, status);
  }
}

void add_partitioned(std::unique_ptr<Partitioned> request) {
  // relaxed: as in remove_partitioned()
  request->communicator->request_count.fetch_add(1, std::memory_order_relaxed);
  const MPI_Request carrier = request->carrier;
  add_carrier(carrier, request.release());
}

std::size_t release_partitioned(part::Engine& engine) {
  std::size_t active = 0;
  for (Request* const each : all_carriers()) {
    if (each->kind() == Request::Kind::message) continue;
    const auto request = remove_partitioned(static_cast<Partitioned*>(each));
    if (request->is_null_process()) continue;
    if (request->request->active() || !engine.free(request->request).ok()) ++active;
  }
  return active;
}

}  // namespace larklane::mpi
