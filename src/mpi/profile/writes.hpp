#pragma once
// `larklane profile --trace-writes`: records of the threads' writes to send buffers.

#include <atomic>
#include <cstdint>

#include "mpi/abi/next.hpp"
#include "profile/recorder.hpp"
#include "profile/write_watch.hpp"

namespace larklane::mpi {

namespace detail {
extern constinit std::atomic<profile::WriteWatch*> write_watch;
}  // namespace detail

/// The bytes that a request or a message sends; empty if it has gaps: these buffers are not
/// watched.
struct SendBuffer {
  std::uintptr_t address = 0;
  std::uint64_t bytes = 0;
};

inline bool traces_writes() noexcept {
  // acquire: pairs with begin_tracing_writes() release
  return detail::write_watch.load(std::memory_order_acquire) != nullptr;
}

/// @return  false after a message: this system does not allow it
bool begin_tracing_writes();
/// Ends the watch, and records the writes that it has noted.
void end_tracing_writes(profile::Recorder* recorder) noexcept;

SendBuffer send_buffer_of(const void* buffer, std::int64_t count, MPI_Datatype datatype) noexcept;
/// Records the writes noted until now, and watches the buffer for the first write to each of its
/// pages. The program may write it until the next send.
void watch_writes(profile::Recorder& recorder, const SendBuffer& buffer) noexcept;

}  // namespace larklane::mpi
