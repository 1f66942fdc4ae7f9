#pragma once
// This process's own sockets: libfabric offers no list of them. Thread-safe.

#include <sys/socket.h>

#include <cstddef>
#include <span>

namespace larklane::ofi {

/// The socket that listens at `name` takes no connection any more.
void end_listening(const sockaddr_storage& name);

/// Connections that have come in at `name`, but from none of `known`, end, if there are
/// `at_least` as many. @return how many there were
std::size_t end_strangers(const sockaddr_storage& name, std::span<const sockaddr_storage> known,
                          std::size_t at_least);

}  // namespace larklane::ofi
