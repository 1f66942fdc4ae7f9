#include "bootstrap/host_card.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/hex.hpp"
#include "base/host.hpp"
#include "base/parse.hpp"
#include "base/siphash.hpp"

namespace larklane::boot {
namespace {

constexpr char kSeparator = '|';
constexpr std::string_view kHere = "here", kAway = "away";  // where the process uses its networks
constexpr std::string_view kNowhere = "none";               // the process declines

/// Succeeds only if the text has as many bytes as `value`.
template <class Value>
bool take_hex(std::string_view text, Value* value) {
  const auto bytes = bytes_of_hex(text);
  if (!bytes || bytes->size() != sizeof *value) return false;
  std::memcpy(value, bytes->data(), sizeof *value);
  return true;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  for (;;) {
    const std::size_t end = text.find(separator);
    words.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return words;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::string HostCard::text() const {
  std::string text = LARKLANE_VERSION;
  text += kSeparator + hex_text(std::as_bytes(std::span(&host, 1))) + kSeparator +
          std::to_string(user) + kSeparator + hex_text(secret) + kSeparator;
  for (const std::string& network : networks)
    text += (&network == &networks.front() ? "" : ",") + network;
  text += kSeparator;
  text += declines ? kNowhere : uses_them_here ? kHere : kAway;
  return text + kSeparator + address + kSeparator + local;
}

std::optional<HostCard> HostCard::of_text(std::string_view text) {
  const auto words = split(text, kSeparator);
  if (words.size() != 8 || words[0] != LARKLANE_VERSION) return std::nullopt;
  HostCard card;
  const auto user = number_of<std::uint32_t>(words[2]);
  if (!take_hex(words[1], &card.host) || !user || !take_hex(words[3], &card.secret))
    return std::nullopt;
  card.user = *user;
  if (!words[4].empty()) {
    for (const std::string_view network : split(words[4], ',')) card.networks.emplace_back(network);
  }
  card.uses_them_here = words[5] == kHere;
  card.declines = words[5] == kNowhere;
  card.address = words[6];
  card.local = words[7];
  const bool is_right = (card.uses_them_here || card.declines || words[5] == kAway) &&
                        (card.address.empty() || RemoteAddress::parse(card.address)) &&
                        (card.local.empty() || is_local_address(card.local));
  if (!is_right || card.networks.size() > kNetworksMax) return std::nullopt;
  return card;
}

bool HostCard::has(std::string_view network) const {
  return std::find(networks.begin(), networks.end(), network) != networks.end();
}

std::uint64_t this_host() {
  const std::string host = host_id();
  return siphash(Secret{}, std::as_bytes(std::span(host)));
}

std::string network_between(const HostCard& lower, const HostCard& higher) {
  const bool is_here = lower.host == higher.host;
  if (is_here && !(lower.uses_them_here && higher.uses_them_here)) return {};
  for (const std::string& network : lower.networks)
    if (higher.has(network)) return network;
  return {};
}

}  // namespace larklane::boot
