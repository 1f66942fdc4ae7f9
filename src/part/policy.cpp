#include "part/policy.hpp"

#include <algorithm>
#include <charconv>

namespace larklane::part {
namespace {

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value == 0) return Errc::kBadOption;
  const std::string_view unit(end, text.data() + text.size());
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (shift < 0 || value > (~std::uint64_t{0} >> shift)) return Errc::kBadOption;
  return value << shift;
}

}  // namespace

Result<Policy> Policy::parse(std::string_view text, std::uint64_t min_bytes_default) {
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const bool has_argument = colon != std::string_view::npos;
  if (name == "none" && !has_argument) return Policy{Kind::none, 0};
  if (name == "single" && !has_argument) return Policy{Kind::single, 0};
  if (name == "learned" && !has_argument) return Policy{Kind::learned, 0};
  if (name == "min_bytes" && !has_argument) return Policy{Kind::min_bytes, min_bytes_default};
  if (!has_argument || (name != "static" && name != "min_bytes")) return Errc::kBadOption;
  auto argument = parse_bytes(text.substr(colon + 1));
  if (!argument) return argument.error();
  return Policy{name == "static" ? Kind::static_count : Kind::min_bytes, *argument};
}

std::vector<std::uint32_t> Policy::boundaries(std::uint32_t partitions,
                                              std::uint64_t partition_bytes) const {
  std::uint64_t groups = partitions;
  switch (kind) {
    case Kind::none:
      break;
    case Kind::single:
    case Kind::learned:
      groups = 1;
      break;
    case Kind::static_count:
      groups = argument;
      break;
    case Kind::min_bytes: {
      // A group takes whole partitions: as many as reach the least size.
      const std::uint64_t per_group =
          partition_bytes == 0 ? partitions : (argument + partition_bytes - 1) / partition_bytes;
      groups = partitions / std::max<std::uint64_t>(per_group, 1);
      break;
    }
  }
  groups = std::clamp<std::uint64_t>(groups, 1, partitions);
  std::vector<std::uint32_t> first(groups);
  for (std::uint64_t g = 0; g < groups; ++g)
    first[g] = static_cast<std::uint32_t>(g * partitions / groups);
  return first;
}

}  // namespace larklane::part
