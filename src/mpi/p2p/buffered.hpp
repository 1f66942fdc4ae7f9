#pragma once
// Buffered mode: the attached buffers, and the messages that count against them.
//
// A buffer of the program is counted, but not used: a message is copied to the peer's ring or to
// the heap. The MPI gets each buffer, too, for its own messages.

#include <cstddef>
#include <memory>
#include <string>

#include "mpi/p2p/call.hpp"

namespace larklane::mpi::p2p {

/// Sends a copy. @param copy  holds `from`; null: `from` is the program's
/// @param[out] problem  for people, of kUnsupportedBuffer
/// @errors kUnsupportedBuffer: it does not fit the buffer; kNoMemory; of a lost peer the reason
Status send_buffered(const Peer& to, msg::UserBytes from, std::unique_ptr<std::byte[]> copy,
                     std::string* problem);

/// The program has freed the communicator: so its buffer is detached.
void forget_buffer(const msg::Communicator& owner) noexcept;
/// After the MPI's finalisation, in which delete callbacks may still receive: waits for all
/// messages without the MPI, and detaches each buffer.
void end_buffers();

}  // namespace larklane::mpi::p2p
