#pragma once
// `larklane profile --trace-writes`: who writes what is sent, and when.

#include <atomic>
#include <cstdint>

#include "mpi/abi/next.hpp"
#include "profile/recorder.hpp"
#include "profile/write_watch.hpp"

namespace larklane::mpi {

namespace detail {
extern constinit std::atomic<profile::WriteWatch*> write_watch;
}  // namespace detail

/// What a request or a message sends; of no bytes if it has gaps, which nobody watches.
struct SendBuffer {
  std::uintptr_t address = 0;
  std::uint64_t bytes = 0;
};

inline bool traces_writes() noexcept {
  // acquire: pairs with begin_tracing_writes() release
  return detail::write_watch.load(std::memory_order_acquire) != nullptr;
}

/// @return  false: this system does not let us, and it has been said
bool begin_tracing_writes();
/// The watch ends; what was noted is recorded.
void end_tracing_writes(profile::Recorder* recorder) noexcept;

SendBuffer send_buffer_of(const void* buffer, std::int64_t count, MPI_Datatype datatype) noexcept;
/// From now until it is sent again the program may write the buffer: the first write to each of its
/// pages will be recorded. Those that were noted until now are.
void watch_writes(profile::Recorder& recorder, const SendBuffer& buffer) noexcept;

}  // namespace larklane::mpi
