#pragma once
// The cache of flattened datatypes: all requests of a datatype share one typemap.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/types/types.hpp"

namespace larklane::mpi {

/// flatten(), once for each datatype. The cache keeps the result until the datatype is freed, or
/// the MPI is closed. Thread-safe.
Result<FlatType> flatten_once(MPI_Datatype datatype, std::string* problem);

/// The properties of a datatype that most messages need. Thread safety: immutable.
struct PlainType {
  std::uint64_t bytes;      ///< of an element
  std::int64_t first_byte;  ///< offset in the element, or an address
  bool is_one_block;        ///< the element has no gap
  bool is_dense;            ///< elements follow each other without a gap
};

namespace detail {
/// The datatypes of a thread's last messages, by their handles' bits.
struct LastType {
  std::uint64_t epoch = 0;
  MPI_Datatype datatype{};
  PlainType type{};
};
inline constexpr std::size_t kLastTypes = 8;
inline thread_local constinit LastType last_types[kLastTypes];
/// Changes when the cache forgets a datatype, before the MPI gives its handle to another one.
/// relaxed: the program orders the free of a datatype and the next use of its handle.
extern constinit std::atomic<std::uint64_t> type_epoch;
const PlainType* plain_type_slow(MPI_Datatype datatype, std::string* problem);
}  // namespace detail

/// Null: not among the datatypes of the thread's last messages. Valid until the thread's next call.
inline const PlainType* last_plain_type(MPI_Datatype datatype) noexcept {
  const std::uint64_t bits = handle_bits(datatype);
  const detail::LastType& last = detail::last_types[(bits ^ bits >> 6) % detail::kLastTypes];
  const bool is_it =
      last.datatype == datatype && last.epoch == detail::type_epoch.load(std::memory_order_relaxed);
  return is_it ? &last.type : nullptr;
}
/// Null, with the reason, if flatten() fails, or the datatype is not committed. The result is valid
/// until the thread's next call. @pre the private communicator exists
inline const PlainType* plain_type(MPI_Datatype datatype, std::string* problem) {
  const PlainType* const last = last_plain_type(datatype);
  return last != nullptr ? last : detail::plain_type_slow(datatype, problem);
}

/// Empties the cache when the MPI is closed and its datatypes no longer exist.
void forget_datatypes() noexcept;

}  // namespace larklane::mpi
