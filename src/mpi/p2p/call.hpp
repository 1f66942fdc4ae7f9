#pragma once
// Parts of all point-to-point calls: the owner of a communicator, the checks of arguments, the
// bytes behind a buffer.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/p2p/world.hpp"
#include "mpi/types/type_cache.hpp"
#include "msg/protocol/communicator.hpp"

namespace larklane::mpi::p2p {

/// The engine's communicator of a call; null: the MPI serves it, as it does MPI_PROC_NULL.
inline msg::Communicator* owner_of(MPI_Comm comm, int peer) noexcept {
  return peer != MPI_PROC_NULL ? find_ordinary(comm) : nullptr;
}

/// Makes the MPI's call. Older MPIs lack some.
template <class... Parameters, class... Arguments>
int forward(int (*call)(Parameters...), Arguments... arguments) {
  return call != nullptr ? call(arguments...) : MPI_ERR_UNSUPPORTED_OPERATION;
}

/// The name and the communicator of a call, for its errors. Thread safety: immutable.
struct Call {
  const char* name;
  MPI_Comm comm;

  /// Raises an error of the call on its communicator. @param why  "count is -1: expected 0 or more"
  int refuse(int error_class, const std::string& why) const;
  /// The same for an error of the engine.
  int refuse(Status status, int peer) const;
};

/// A probe of MPI_COMM_NULL, at which Open MPI ends the job.
inline bool is_refused(MPI_Comm comm) noexcept { return is_owned() && comm == handles().comm_null; }
inline int refuse_null(const Call& call) {
  return call.refuse(MPI_ERR_COMM, "comm is MPI_COMM_NULL");
}

/// The end of a message that the program names.
struct Peer {
  msg::Communicator& communicator;
  int rank;
  int tag;
};
/// MPI_SUCCESS, or the error code, which is noted.
int check_slow(const Call& call, const Peer& peer, bool is_receive);
namespace detail {
extern constinit std::atomic<int> tag_max;
}
/// MPI_TAG_UB of the MPI. relaxed: set before the first message
inline int tag_max() noexcept { return detail::tag_max.load(std::memory_order_relaxed); }
void set_tag_max(int tag) noexcept;
inline bool is_rank(const Peer& peer) noexcept {
  return static_cast<unsigned>(peer.rank) < peer.communicator.members().size();
}
inline bool is_tag(const Peer& peer) noexcept {
  return static_cast<unsigned>(peer.tag) <= static_cast<unsigned>(tag_max());
}
inline bool can_send(const Peer& to) noexcept { return is_rank(to) && is_tag(to); }
inline bool can_receive(const Peer& from) noexcept {
  return (is_rank(from) || from.rank == MPI_ANY_SOURCE) &&
         (is_tag(from) || from.tag == MPI_ANY_TAG);
}
inline int check_send(const Call& call, const Peer& to) {
  return can_send(to) ? MPI_SUCCESS : check_slow(call, to, false);
}
inline int check_receive(const Call& call, const Peer& from) {
  return can_receive(from) ? MPI_SUCCESS : check_slow(call, from, true);
}
/// As the engine names them.
inline int source_of(const Peer& from) noexcept {
  return from.rank == MPI_ANY_SOURCE ? msg::kAnySource : from.rank;
}
inline std::int64_t tag_of(const Peer& from) noexcept {
  return from.tag == MPI_ANY_TAG ? msg::kAnyTag : from.tag;
}

/// The arguments of a send. Thread safety: immutable.
struct SendArguments {
  const void* buffer;
  MPI_Count count;
  MPI_Datatype datatype;
  int dest, tag;
};

/// The bytes of a message in the program's memory. Thread safety: immutable.
struct Payload {
  std::byte* start = nullptr;  ///< of the first byte, if they lie in one piece
  std::uint64_t bytes = 0;
  bool is_scattered = false;  ///< `start` is the program's argument, for the datatype's typemap

  msg::UserBytes user_bytes() const noexcept { return {start, bytes}; }
};
/// Good arguments, and bytes in one piece, of a datatype that is known. False: look closer.
inline bool find_dense(const void* buffer, MPI_Count count, MPI_Datatype datatype,
                       msg::UserBytes* found) noexcept {
  const PlainType* const type = find_plain_type(datatype);
  std::int64_t total = 0;
  const bool is_dense = type != nullptr && type->is_dense && count >= 0 && buffer != nullptr &&
                        !__builtin_mul_overflow(count, type->bytes, &total);
  if (!is_dense) return false;
  *found = {static_cast<std::byte*>(const_cast<void*>(buffer)) + type->first_byte,
            static_cast<std::uint64_t>(total)};
  return true;
}
int find_payload_slow(const Call& call, const void* buffer, MPI_Count count, MPI_Datatype datatype,
                      Payload* found);
/// MPI_SUCCESS, or the error code, which is noted.
inline int find_payload(const Call& call, const void* buffer, MPI_Count count,
                        MPI_Datatype datatype, Payload* found) {
  msg::UserBytes bytes;
  if (!find_dense(buffer, count, datatype, &bytes)) [[unlikely]]
    return find_payload_slow(call, buffer, count, datatype, found);
  *found = {bytes.start, bytes.bytes};
  return MPI_SUCCESS;
}

}  // namespace larklane::mpi::p2p
