#include "base/address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace larklane {
namespace {

constexpr std::string_view kScheme = "tcp://";

/// Takes "HOST" or "[HOST]" from the begin of `text`.
std::optional<std::string> take_host(std::string_view* text) {
  const bool in_brackets = text->starts_with('[');
  if (in_brackets) text->remove_prefix(1);
  const std::size_t end = in_brackets ? text->find(']') : text->find_first_of(",:");
  if (end == std::string_view::npos || end >= INET6_ADDRSTRLEN) return std::nullopt;
  std::string host(text->substr(0, end));
  text->remove_prefix(end + (in_brackets ? 1 : 0));
  const bool is_v6 = host.find(':') != std::string::npos;
  if (is_v6 != in_brackets || !endpoint_of(host, 1)) return std::nullopt;
  return host;
}

}  // namespace

bool is_remote_form(std::string_view address) noexcept { return address.starts_with(kScheme); }

bool is_local_address(std::string_view address) noexcept {
  return !address.empty() && address.size() < kAddressBytes && !is_remote_form(address) &&
         std::all_of(address.begin(), address.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::optional<RemoteAddress> RemoteAddress::parse(std::string_view address) {
  if (!is_remote_form(address) || address.size() >= kRemoteAddressBytes) return std::nullopt;
  std::string_view rest = address.substr(kScheme.size());
  RemoteAddress parsed;
  for (bool has_more = true; has_more;) {
    auto host = take_host(&rest);
    if (!host || rest.empty() || parsed.hosts.size() == kHostsMax) return std::nullopt;
    parsed.hosts.push_back(std::move(*host));
    has_more = rest.front() == ',';
    if (!has_more && rest.front() != ':') return std::nullopt;
    rest.remove_prefix(1);
  }
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), parsed.port);
  if (error != std::errc{} || parsed.port == 0) return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  if (!rest.starts_with('/')) return std::nullopt;
  parsed.name = rest.substr(1);
  if (!is_local_address(parsed.name)) return std::nullopt;
  // one text for one address: peers are known by it
  if (parsed.text() != address) return std::nullopt;
  return parsed;
}

Address RemoteAddress::text() const {
  Address all(kScheme);
  for (const std::string& host : hosts) {
    if (&host != &hosts.front()) all += ',';
    const bool is_v6 = host.find(':') != std::string::npos;
    if (is_v6) all += '[';
    all += host;
    if (is_v6) all += ']';
  }
  all += ':';
  all += std::to_string(port);
  all += '/';
  all += name;
  return all;
}

Endpoint RemoteAddress::endpoint(std::size_t index) const noexcept {
  return endpoint_of(hosts[index], port).value_or(Endpoint{});
}

std::optional<Endpoint> endpoint_of(const std::string& host, std::uint16_t port) noexcept {
  Endpoint endpoint;
  sockaddr_in v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&endpoint.name, &v4, sizeof v4);
    endpoint.length = sizeof v4;
    return endpoint;
  }
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1) return std::nullopt;
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  std::memcpy(&endpoint.name, &v6, sizeof v6);
  endpoint.length = sizeof v6;
  return endpoint;
}

std::string host_text(const sockaddr* endpoint) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (endpoint->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, endpoint, sizeof v4);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
  } else if (endpoint->sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, endpoint, sizeof v6);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      ::inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text.data(), text.size());
    } else {
      ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    }
  }
  return text.data();
}

}  // namespace larklane
