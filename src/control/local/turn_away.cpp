// Turns away the peers of a listener that no plane will serve.

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/kernel_calls.hpp"
#include "control/local/socket.hpp"
#include "control/plane/incoming.hpp"

namespace larklane::control {
namespace {

/// A peer connects and sends its hello in one call, so the hello is here or on its way.
constexpr int kHelloMs = 1000;
/// The user that peer_credentials() returns where the kernel reports none.
constexpr uid_t kRefused = static_cast<uid_t>(-1);

/// The address in the hello of an accepted connection; nothing: it can't be read.
std::optional<Address> address_in_hello(UniqueFd fd) {
  pollfd ready{fd.get(), POLLIN, 0};
  if (::poll(&ready, 1, kHelloMs) != 1) return std::nullopt;
  LocalIncoming incoming(std::move(fd), peer_credentials(ready.fd));
  Introduction introduction;
  if (incoming.read() != Incoming::Read::data ||
      incoming.parse_hello(&introduction) != Incoming::Parsed::complete ||
      introduction.addresses.empty())
    return std::nullopt;
  return introduction.addresses.front();
}

}  // namespace

std::optional<std::vector<Address>> turn_away(Listener listener) {
  // Decides where accept is refused. A connection that comes between this poll and shutdown ends
  // with an error at its peer.
  pollfd waiting{listener.fd.get(), POLLIN, 0};
  const bool is_empty = ::poll(&waiting, 1, 0) == 0;
  // From now on the kernel refuses connect; accept still takes connections from the backlog.
  if (::shutdown(listener.fd.get(), SHUT_RDWR) != 0) return std::nullopt;
  std::vector<Address> found;
  for (;;) {
    UniqueFd fd(accept_connection(listener.fd.get()));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EINVAL || errno == EAGAIN || is_empty) return found;  // the backlog is empty
      return std::nullopt;
    }
    const Credentials peer = peer_credentials(fd.get());
    if (peer.uid == kRefused) return std::nullopt;
    if (!is_own_user(peer)) continue;
    auto address = address_in_hello(std::move(fd));
    if (!address) return std::nullopt;
    found.push_back(std::move(*address));
  }
}

}  // namespace larklane::control
