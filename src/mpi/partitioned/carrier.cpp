#include "mpi/partitioned/carrier.hpp"

#include "mpi/abi/next.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi {

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
