#pragma once
// Addresses of processes. Thread safety: immutable; the functions are thread-safe.

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace larklane {

/// Where a process can be reached.
/// On its host: the name of its abstract unix socket, without the leading NUL; 1 to
/// kAddressBytes - 1 printable characters, no blanks, and no `tcp://` at the begin.
/// From other hosts: `tcp://HOST[,HOST...]:PORT/NAME`, hosts by number, IPv6 in brackets; NAME is
/// like a local one and tells two processes with the same hosts and port (container bridges have
/// one address on every host) from each other. At most kRemoteAddressBytes - 1 characters.
using Address = std::string;
inline constexpr std::size_t kAddressBytes = 96;
inline constexpr std::size_t kRemoteAddressBytes = 512;
inline constexpr std::size_t kHostsMax = 8;  ///< of one process

bool is_local_address(std::string_view address) noexcept;
/// Of the remote form, be it valid or not.
bool is_remote_form(std::string_view address) noexcept;

/// The argument of bind and connect. Thread safety: immutable.
struct Endpoint {
  sockaddr_storage name{};
  socklen_t length = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&name); }
};

/// The parts of a remote address.
struct RemoteAddress {
  std::vector<std::string> hosts;  ///< without brackets, in the order in which they are tried
  std::uint16_t port = 0;
  std::string name;

  Address text() const;
  /// @param index  of a host
  Endpoint endpoint(std::size_t index) const noexcept;
  /// Nothing if `address` is not a valid remote address.
  static std::optional<RemoteAddress> parse(std::string_view address);
};

/// A host and a port as endpoint; nothing if `host` is no address by number.
std::optional<Endpoint> endpoint_of(const std::string& host, std::uint16_t port) noexcept;
/// The host of an endpoint by number; an IPv4 host that comes by an IPv6 socket as IPv4.
std::string host_text(const sockaddr* endpoint);

}  // namespace larklane
