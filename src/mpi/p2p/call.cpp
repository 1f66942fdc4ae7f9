#include "mpi/p2p/call.hpp"

#include <optional>

#include "base/status_text.hpp"
#include "mpi/requests/error.hpp"

namespace larklane::mpi::p2p {
namespace detail {
constinit std::atomic<int> tag_max{0};
}

namespace {

__extension__ using Wide = __int128;

/// No program has memory below this address: one page, the least vm.mmap_min_addr in use.
constexpr std::uint64_t kLowestAddress = 4096;

}  // namespace

int Call::refuse(int error_class, const std::string& why) const {
  return raise_at(comm, error_class, std::string(name) + ": " + why);
}

int Call::refuse(Status status, int peer) const {
  return refuse(error_class_of(status.code()),
                "message with rank " + std::to_string(peer) + ": " + status_text(status));
}

void set_tag_max(int tag) noexcept { detail::tag_max.store(tag, std::memory_order_relaxed); }

[[gnu::noinline]] int check_slow(const Call& call, const Peer& peer, bool is_receive) {
  const bool is_any = is_receive && peer.rank == MPI_ANY_SOURCE;
  if (!is_rank(peer) && !is_any)
    return call.refuse(
        MPI_ERR_RANK, (is_receive ? "source " : "dest ") + std::to_string(peer.rank) +
                          ": expected 0 to " +
                          std::to_string(static_cast<int>(peer.communicator.members().size()) - 1) +
                          (is_receive ? ", MPI_ANY_SOURCE or MPI_PROC_NULL" : " or MPI_PROC_NULL"));
  return call.refuse(MPI_ERR_TAG, "tag " + std::to_string(peer.tag) + ": expected 0 to " +
                                      std::to_string(tag_max()) +
                                      (is_receive ? " or MPI_ANY_TAG" : ""));
}

[[gnu::noinline]] int find_payload_slow(const Call& call, const void* buffer, MPI_Count count,
                                        MPI_Datatype datatype, Payload* found) {
  if (count < 0) [[unlikely]]
    return call.refuse(MPI_ERR_COUNT, "count is " + std::to_string(count) + ": expected 0 or more");
  if (datatype == handles().datatype_null) [[unlikely]]
    return call.refuse(MPI_ERR_TYPE, "datatype is MPI_DATATYPE_NULL");
  std::string problem;
  const PlainType* const known = find_plain_type(datatype);
  const std::optional<PlainType> type =
      known != nullptr ? std::optional(*known) : make_plain_type(datatype, &problem);
  if (!type) [[unlikely]]
    return call.refuse(MPI_ERR_TYPE, problem);
  const Wide total = Wide{count} * Wide{type->bytes};
  if (total > Wide{INT64_MAX}) [[unlikely]]
    return call.refuse(MPI_ERR_COUNT, std::to_string(count) + " elements of " +
                                          std::to_string(type->bytes) +
                                          " bytes: more than 2^63 - 1 bytes");
  const std::uint64_t first =
      reinterpret_cast<std::uintptr_t>(buffer) + static_cast<std::uint64_t>(type->first_byte);
  if (buffer == nullptr && total > 0 && first < kLowestAddress) [[unlikely]]
    return call.refuse(MPI_ERR_BUFFER,
                       "the buffer is null: expected " + std::to_string(count) +
                           " elements, or MPI_BOTTOM and a datatype of absolute addresses");
  found->bytes = static_cast<std::uint64_t>(total);
  found->is_scattered = !type->is_dense && !(type->is_one_block && count == 1) && total > 0;
  found->start = found->is_scattered
                     ? static_cast<std::byte*>(const_cast<void*>(buffer))
                     : reinterpret_cast<std::byte*>(first);  // NOLINT(performance-no-int-to-ptr)
  return MPI_SUCCESS;
}

}  // namespace larklane::mpi::p2p
