#include "mpi/world/host_card.hpp"

#include <algorithm>
#include <charconv>

#include "base/host.hpp"
#include "base/parse.hpp"
#include "mpi/world/context_id.hpp"

namespace larklane::mpi {
namespace {

constexpr std::size_t kHexDigits = 16;
constexpr char kSeparator = '|';
constexpr std::string_view kHere = "here", kAway = "away";  // where networks are used
constexpr std::string_view kNowhere = "none";               // it declines

std::string hex(std::uint64_t value) {
  char digits[kHexDigits];
  const auto [end, error] = std::to_chars(digits, digits + kHexDigits, value, 16);
  const std::string used(digits, end);
  return std::string(kHexDigits - used.size(), '0') + used;
}

bool take_hex(std::string_view text, std::uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, 16);
  return error == std::errc{} && end == text.data() + text.size() && text.size() == kHexDigits;
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
  std::uint64_t words[2];
  static_assert(sizeof words == sizeof secret);
  __builtin_memcpy(words, secret.data(), sizeof words);
  std::string text = LARKLANE_VERSION;
  text += kSeparator + hex(host) + kSeparator + std::to_string(user) + kSeparator + hex(words[0]) +
          hex(words[1]) + kSeparator;
  for (const std::string& network : networks)
    text += (&network == &networks.front() ? "" : ",") + network;
  text += kSeparator;
  text += declines ? kNowhere : uses_them_here ? kHere : kAway;
  return text + kSeparator + address;
}

std::optional<HostCard> HostCard::of_text(std::string_view text) {
  const auto words = split(text, kSeparator);
  if (words.size() != 7 || words[0] != LARKLANE_VERSION || words[3].size() != 2 * kHexDigits)
    return std::nullopt;
  HostCard card;
  std::uint64_t secret[2];
  const auto user = number_of<std::uint32_t>(words[2]);
  if (!take_hex(words[1], &card.host) || !user ||
      !take_hex(words[3].substr(0, kHexDigits), &secret[0]) ||
      !take_hex(words[3].substr(kHexDigits), &secret[1]))
    return std::nullopt;
  card.user = *user;
  __builtin_memcpy(card.secret.data(), secret, sizeof secret);
  if (!words[4].empty()) {
    for (const std::string_view network : split(words[4], ',')) card.networks.emplace_back(network);
  }
  card.uses_them_here = words[5] == kHere;
  card.declines = words[5] == kNowhere;
  card.address = words[6];
  const bool is_right = (card.uses_them_here || card.declines || words[5] == kAway) &&
                        (card.address.empty() || RemoteAddress::parse(card.address));
  if (!is_right || card.networks.size() > kNetworksMax) return std::nullopt;
  return card;
}

bool HostCard::has(std::string_view network) const {
  return std::find(networks.begin(), networks.end(), network) != networks.end();
}

std::uint64_t this_host() {
  return ContextHash(Origin::world).add(std::string_view(host_id())).id().high;
}

std::string network_between(const HostCard& lower, const HostCard& higher) {
  const bool is_here = lower.host == higher.host;
  if (is_here && !(lower.uses_them_here && higher.uses_them_here)) return {};
  for (const std::string& network : lower.networks)
    if (higher.has(network)) return network;
  return {};
}

}  // namespace larklane::mpi
