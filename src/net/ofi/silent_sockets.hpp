#pragma once
// libfabric's tcp waits for a host that is silent as long as the kernel does by default: a quarter
// of an hour. It offers no way to close one connection, so the kernel is told. Thread-safe.

#include <sys/socket.h>

namespace larklane::ofi {

/// Of this process's connections between the two endpoints' hosts, one of them at an endpoint's own
/// port: those whose last words nobody has acknowledged for seconds end now, others within seconds
/// if nobody answers a probe. Whoever is alive notices nothing.
void end_silent_sockets(const sockaddr_storage& own, const sockaddr_storage& peer);

}  // namespace larklane::ofi
