// Binds the TCP listener of a plane, and finds the addresses of this host.

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/tcp.hpp"
#include "control/plane/plane.hpp"

namespace larklane::control {
namespace {

struct InterfaceHost {
  std::string interface;
  std::string host;
  bool is_v6;
  bool is_loopback;
};

bool is_link_local(const sockaddr& address) noexcept {
  if (address.sa_family != AF_INET6) return false;
  sockaddr_in6 v6;
  std::memcpy(&v6, &address, sizeof v6);
  return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);  // has no meaning without an interface
}

/// Addresses of interfaces that are up; IPv4 first, since not every host that has IPv6 routes it.
std::vector<InterfaceHost> interface_hosts() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, ::freeifaddrs);
  std::vector<InterfaceHost> found;
  for (const bool v6 : {false, true}) {
    for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
      if (entry->ifa_addr->sa_family != (v6 ? AF_INET6 : AF_INET)) continue;
      if (is_link_local(*entry->ifa_addr)) continue;
      found.push_back({entry->ifa_name, host_text(entry->ifa_addr), v6,
                       (entry->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  return found;
}

/// The hosts that peers get when the process listens at every interface.
std::vector<std::string> reachable_hosts(bool with_v6) {
  std::vector<std::string> hosts;
  std::vector<std::string> loopback;
  for (const InterfaceHost& entry : interface_hosts()) {
    if (entry.is_v6 && !with_v6) continue;
    std::vector<std::string>& list = entry.is_loopback ? loopback : hosts;
    if (list.size() < kHostsMax) list.push_back(entry.host);
  }
  return hosts.empty() ? loopback : hosts;
}

/// The first address of an interface; an address stands for itself.
std::optional<std::string> host_of_interface(const std::string& interface) {
  if (const auto endpoint = endpoint_of(interface, 0)) return host_text(endpoint->get());
  for (const InterfaceHost& entry : interface_hosts()) {
    if (entry.interface == interface) return entry.host;
  }
  return std::nullopt;
}

Result<UniqueFd> listen_on(const std::string& host) {
  return larklane::listen_at({*endpoint_of(host, 0)});
}

}  // namespace

Result<RemoteListener> RemoteListener::bind(const std::string& name, const std::string& interface,
                                            std::string* problem) {
  RemoteAddress address;
  address.name = name;
  *problem = "\"" + name + "\" is no name for a process";
  if (!is_local_address(name)) return Errc::kInvalidArgument;
  std::string at = "::";
  if (!interface.empty()) {
    const auto host = host_of_interface(interface);
    *problem = "control_interface is \"" + interface +
               "\"; accepted: an interface of this host that is up and has an address, or an "
               "address of this host";
    if (!host) return Errc::kInvalidArgument;
    at = *host;
  }
  Result<UniqueFd> fd = listen_on(at);
  const bool is_without_v6 = !fd && interface.empty();
  if (is_without_v6) fd = listen_on("0.0.0.0");
  if (!fd) {
    if (fd.error().detail() != EADDRNOTAVAIL) {
      *problem = "a TCP socket can't be made to listen at " + at + ": " +
                 std::strerror(fd.error().detail());
    }
    return fd.error();
  }
  address.port = port_of(fd->get());
  address.hosts = interface.empty() ? reachable_hosts(!is_without_v6) : std::vector{at};
  *problem = "this host has no address that others could reach it by";
  if (address.hosts.empty()) return Status(Errc::kSystem, EADDRNOTAVAIL);
  problem->clear();
  return RemoteListener{address.text(), address.hosts, std::move(*fd)};
}

}  // namespace larklane::control
