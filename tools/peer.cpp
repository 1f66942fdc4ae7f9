#include "peer.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/parse.hpp"
#include "bootstrap/launcher.hpp"
#include "mpi/world/hosts.hpp"
#include "net/registry.hpp"

namespace larklane::tools {
namespace {

constexpr const char *kHere = "this host", *kElsewhere = "another host", *kUnknown = "not known";

/// A network that can be opened here, and the skipped ones that can't be.
struct Opened {
  std::string option;   ///< as LARKLANE_PROVIDER names it; empty: none
  std::string skipped;  ///< each with its reason and remedy
};

/// As the engine does it. @param wanted  options, the best first
Opened open_first(const std::vector<std::string>& wanted, const Config& config,
                  const std::string& folder, bool is_between_hosts) {
  Opened found;
  for (const std::string& option : wanted) {
    std::string reason;
    auto fabric = net::open_fabric_named(config, option, &reason, folder);
    if (fabric && is_between_hosts && (*fabric)->limits().network.empty())
      reason = (*fabric)->limits().provider + " does not leave the host";
    else if (fabric) {
      found.option = net::provider_title(option, **fabric);
      return found;
    }
    found.skipped += (found.skipped.empty() ? "" : "; ") + reason;
  }
  return found;
}

std::string skipped_text(const std::string& skipped) {
  return skipped.empty() ? std::string() : "; skipped: " + skipped;
}

/// @param way  of its card; null: no process has seen it
void choose_here(const Config& config, const std::string& folder, const mpi::Hosts::Way* way,
                 PeerFacts* facts) {
  facts->change =
      "LARKLANE_PROVIDER=ofi[:DEVICE] or verbs[:DEVICE], on all processes alike, puts pairs on one "
      "host on that network, too";
  if (config.provider == "auto") {
    facts->goes_by = "shared memory";
    facts->reason = "option provider is auto, which takes it on one host";
    return;
  }
  facts->change = "LARKLANE_PROVIDER=auto takes shared memory on one host";
  if (way != nullptr) {
    facts->goes_by = way->network.empty() ? "shared memory" : way->network;
    facts->reason = way->network.empty()
                        ? "option provider names no network that the other side names and has, too"
                        : "option provider asks for it on both sides, on one host, too";
    return;
  }
  const Opened opened = open_first(net::wanted_providers(config.provider), config, folder, false);
  if (!opened.option.empty()) {
    facts->goes_by = opened.option;
    facts->reason = "option provider asks for it, on one host, too" + skipped_text(opened.skipped);
  } else if (config.unreachable == "refuse") {
    facts->goes_by = "an MPI error";
    facts->reason = "option provider is " + config.provider +
                    ", option unreachable is refuse; not opened: " + opened.skipped;
  } else {
    facts->goes_by = "shared memory";
    facts->reason = "option provider is " + config.provider + skipped_text(opened.skipped) +
                    "; a peer that can open it fails with this process";
  }
}

void leave_to_mpi(const Config& config, const std::string& why, PeerFacts* facts) {
  const bool is_refused = config.unreachable == "refuse";
  facts->goes_by = is_refused ? "an MPI error" : "the MPI";
  facts->reason = why + "; option unreachable is " + config.unreachable;
}

constexpr const char* kChangeBetween =
    "LARKLANE_PROVIDER, on one side or both: networks in order of preference, of which the pair "
    "takes the lower rank's first that the other side has opened, too; LARKLANE_UNREACHABLE for "
    "what no network joins";

/// No process has seen its card.
void choose_between(const Config& config, const std::string& folder, PeerFacts* facts) {
  facts->change = kChangeBetween;
  const Opened opened = open_first(net::wanted_providers(config.provider), config, folder, true);
  if (opened.option.empty())
    return leave_to_mpi(config, "no network between hosts can be opened here: " + opened.skipped,
                        facts);
  facts->goes_by = opened.option;
  facts->reason = "option provider is " + config.provider +
                  "; this is what this host has: whether that one has it, too, and runs Larklane, "
                  "is known when a launcher starts processes on both (mpirun ... larklane info "
                  "--peer RANK)" +
                  skipped_text(opened.skipped);
}

void choose_between(const Config& config, const mpi::Hosts& hosts, const mpi::Hosts::Way& way,
                    PeerFacts* facts) {
  facts->change = kChangeBetween;
  const std::string skipped = skipped_text(hosts.skipped());
  if (way.address.empty()) return leave_to_mpi(config, way.why_not + skipped, facts);
  facts->goes_by = way.network;
  facts->reason = "option provider is " + config.provider +
                  "; it is the lower rank's first that both sides have, says the launcher" +
                  skipped;
}

/// The cards of a world on several hosts. Null: its launcher tells them to MPI programs only.
std::unique_ptr<mpi::Hosts> exchange(const boot::Launcher& world, const Config& config,
                                     const std::string& folder) {
  auto hosts = mpi::Hosts::open();
  if (!hosts) return nullptr;
  hosts->announce("larklane-info." + std::to_string(::getpid()), config, folder);
  if (!hosts->meet()) return nullptr;
  hosts->learn(world.size, world.rank, config, [](int) { return control::Address(); });
  return hosts;
}

void find_rank(int peer, const boot::Launcher& world, const Config& config,
               const std::string& folder, PeerFacts* facts) {
  const bool is_spread = world.ranks_here.value_or(0) < world.size;
  const auto hosts = is_spread ? exchange(world, config, folder) : nullptr;
  facts->is_told = world.rank == (peer == 0 && world.size > 1 ? 1 : 0);
  if (peer == world.rank) {
    facts->where = "this process";
    facts->goes_by = "shared memory";
    facts->reason = "a process has nothing to gain from a network to itself";
    return;
  }
  if (!is_spread) {
    facts->where = kHere;
    facts->why = "the launcher has all " + std::to_string(world.size) + " ranks here";
    return choose_here(config, folder, nullptr, facts);
  }
  if (hosts == nullptr) {
    facts->where = facts->goes_by = kUnknown;
    facts->why =
        "there are ranks on other hosts, and this launcher tells only MPI programs who is "
        "where";
    facts->reason =
        "run the program with LARKLANE_LOG_LEVEL=info: it says of each request by what "
        "it goes";
    return;
  }
  const mpi::Hosts::Way way = hosts->way_to(peer);
  facts->where = way.is_here ? kHere : kElsewhere;
  facts->why = "says its card, which the launcher has passed on";
  if (way.is_here) return choose_here(config, folder, &way, facts);
  choose_between(config, *hosts, way, facts);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

std::string text_of(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  ::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

/// It belongs to an interface of this host.
bool is_own(const std::string& host) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (text_of(entry->ifa_addr, length) == host) return true;
  }
  return false;
}

/// The address from which this host would send to it; empty: there is no way. Nothing is sent.
std::string way_from(const addrinfo& to) {
  const int fd = ::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  const bool is_there = fd >= 0 && ::connect(fd, to.ai_addr, to.ai_addrlen) == 0 &&
                        ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0;
  if (fd >= 0) ::close(fd);
  return is_there ? text_of(reinterpret_cast<const sockaddr*>(&own), length) : std::string();
}

void find_host(const std::string& name, const Config& config, const std::string& folder,
               PeerFacts* facts) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(name.c_str(), "9", &hints, &found);
  const Addresses owner(found, &::freeaddrinfo);
  if (error != 0) {
    facts->where = facts->goes_by = kUnknown;
    facts->why = std::string("nothing here knows a host of this name: ") + ::gai_strerror(error);
    facts->reason = "it is another host's, if it is one: see what can be opened here, below";
    return;
  }
  std::string from;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const std::string address = text_of(one->ai_addr, one->ai_addrlen);
    if (is_own(address)) {
      facts->where = kHere;
      facts->why = address + " is an address of it";
      return choose_here(config, folder, nullptr, facts);
    }
    if (from.empty()) from = way_from(*one);
    facts->why += (facts->why.empty() ? "" : ", ") + address;
  }
  facts->where = kElsewhere;
  if (from.empty()) {
    facts->why += ": no way there is known (ip route)";
    return leave_to_mpi(config, "it is not reached from here", facts);
  }
  facts->why += ", reached from " + from;
  choose_between(config, folder, facts);
}

}  // namespace

PeerFacts find_peer(const std::string& asked, const Config& config, const std::string& folder,
                    std::string* problem) {
  PeerFacts facts;
  facts.asked = asked;
  const auto world = boot::Launcher::of_environment();
  const auto rank = number_of<int>(asked);
  if (!rank) {
    facts.is_told = world.title.empty() || world.rank == 0;
    if (facts.is_told) find_host(asked, config, folder, &facts);
  } else if (world.title.empty()) {
    *problem = "rank " + asked +
               " of what? Start it by the launcher: mpirun -n 2 larklane info "
               "--peer 1; or name a host";
  } else if (*rank < 0 || *rank >= world.size) {
    *problem =
        "there is no rank " + asked + ": the launcher has started " + std::to_string(world.size);
  } else {
    find_rank(*rank, world, config, folder, &facts);
  }
  return facts;
}

}  // namespace larklane::tools
