#include "mpi/p2p/left.hpp"

#include <atomic>

#include "mpi/abi/handles.hpp"
#include "mpi/p2p/world.hpp"

namespace larklane::mpi::p2p {
namespace {

std::atomic<std::uint64_t> left{0};  // relaxed: statistics

}  // namespace

void note_left(MPI_Comm made) noexcept {
  if (is_owned() && made != handles().comm_null) left.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t left_count() noexcept { return left.load(std::memory_order_relaxed); }

}  // namespace larklane::mpi::p2p
