#include "mpi/partitioned/carrier.hpp"

#include "mpi/abi/next.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi {

namespace detail {
constinit CarrierTable carriers;
constinit std::atomic<std::size_t> carrier_count{0};
}  // namespace detail

namespace {

/// The value of each entry in the table of forwarded handles, which needs no objects.
char forwarded_mark;
std::atomic<std::uint64_t> forwarded_count{0};

HandleTable& forwarded() noexcept {
  static HandleTable* const table = new HandleTable;
  return *table;
}

}  // namespace

int make_carrier(int tag, MPI_Datatype datatype, MPI_Request* carrier) {
  // One element, so that the MPI checks the datatype. Never started, so the MPI writes nothing.
  static char nowhere;
  return next_pmpi().Recv_init(&nowhere, 1, datatype, 0, tag, Process::get().private_comm(),
                               carrier);
}

void add_carrier(std::unique_ptr<Partitioned> request) {
  take_request_calls();
  // relaxed: see no_carriers(); the communicator's count is ordered by the program
  detail::carrier_count.fetch_add(1, std::memory_order_relaxed);
  request->communicator->request_count.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t handle = handle_bits(request->carrier);
  detail::carriers.table.insert(handle, request.release());
}

std::unique_ptr<Partitioned> remove_carrier(Partitioned* request) noexcept {
  detail::carriers.table.remove(handle_bits(request->carrier));
  // relaxed: as in add_carrier()
  detail::carrier_count.fetch_sub(1, std::memory_order_relaxed);
  request->communicator->request_count.fetch_sub(1, std::memory_order_relaxed);
  return std::unique_ptr<Partitioned>(request);
}

std::size_t release_carriers(part::Engine& engine) {
  std::size_t active = 0;
  for (void* value : detail::carriers.table.values()) {
    const auto request = remove_carrier(static_cast<Partitioned*>(value));
    if (request->is_null_process()) continue;
    if (request->request->active() || !engine.free(request->request).ok()) ++active;
  }
  return active;
}

void add_forwarded(MPI_Request handle) {
  forwarded().insert(handle_bits(handle), &forwarded_mark);
  forwarded_count.fetch_add(1, std::memory_order_relaxed);  // relaxed: statistics
}

std::uint64_t forwarded_total() noexcept {
  return forwarded_count.load(std::memory_order_relaxed);  // relaxed: statistics
}

bool is_forwarded(MPI_Request handle) noexcept {
  return forwarded().find(handle_bits(handle)) != nullptr;
}

void remove_forwarded(MPI_Request handle) noexcept { forwarded().remove(handle_bits(handle)); }

}  // namespace larklane::mpi
