#include "mpi/requests/request.hpp"

#include "mpi/abi/next.hpp"

namespace larklane::mpi {

namespace detail {
constinit LastingHandleTable carriers;
constinit std::atomic<std::size_t> carrier_count{0};
}  // namespace detail

void add_carrier(MPI_Request handle, Request* request) {
  take_request_calls();
  // relaxed: see no_carriers()
  detail::carrier_count.fetch_add(1, std::memory_order_relaxed);
  detail::carriers.table.insert(handle_bits(handle), request);
}

void remove_carrier(MPI_Request handle) noexcept {
  detail::carriers.table.remove(handle_bits(handle));
  // relaxed: as in add_carrier()
  detail::carrier_count.fetch_sub(1, std::memory_order_relaxed);
}

std::vector<Request*> all_carriers() {
  std::vector<Request*> found;
  for (void* const value : detail::carriers.table.values())
    found.push_back(static_cast<Request*>(value));
  return found;
}

}  // namespace larklane::mpi
