#include "part/policy/policy.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "model/groups.hpp"
#include "model/plan.hpp"
#include "part/protocol/layout.hpp"

namespace larklane::part {
namespace {

/// Of a thread that is late, and what gathers all others (Temucin et al., CLUSTER'23, figures 3 and
/// 12).
constexpr std::uint64_t kDelayNs = 4'000'000, kDeadlineNs = 35'000;

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};
constexpr std::array kByteUnits{Unit{"K", 1ULL << 10}, Unit{"M", 1ULL << 20},
                                Unit{"G", 1ULL << 30}};
constexpr std::array kTimeUnits{Unit{"ns", 1}, Unit{"us", 1'000}, Unit{"ms", 1'000'000},
                                Unit{"s", 1'000'000'000}};

Result<std::uint64_t> parse_number(std::string_view text, std::span<const Unit> units) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return Errc::kBadOption;
  const std::string_view name(end, text.data() + text.size());
  if (name.empty()) return value;
  const auto unit = std::ranges::find(units, name, &Unit::name);
  if (unit == units.end() || value > ~std::uint64_t{0} / unit->factor) return Errc::kBadOption;
  return value * unit->factor;
}

}  // namespace

Result<Policy> Policy::parse(std::string_view text, std::uint64_t min_bytes_default) {
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const bool has_argument = colon != std::string_view::npos;
  if (name == "none" && !has_argument) return Policy{Kind::none, 0};
  if (name == "single" && !has_argument) return Policy{Kind::single, 0};
  if (name == "learned" && !has_argument) return Policy{Kind::learned, min_bytes_default};
  if (name == "min_bytes" && !has_argument) return Policy{Kind::min_bytes, min_bytes_default};
  if (name == "table" && !has_argument) return Policy{Kind::table, 0};
  if (name == "ploggp" && !has_argument) return Policy{Kind::ploggp, kDelayNs};
  if (name == "timer" && !has_argument) return Policy{Kind::timer, kDeadlineNs};
  const bool takes_time = name == "ploggp" || name == "timer";
  if (!has_argument || (name != "static" && name != "min_bytes" && !takes_time))
    return Errc::kBadOption;
  const std::string_view argument_text = text.substr(colon + 1);
  auto argument = takes_time ? parse_number(argument_text, kTimeUnits)
                             : parse_number(argument_text, kByteUnits);
  if (!argument) return argument.error();
  if (name == "ploggp") return Policy{Kind::ploggp, *argument};
  if (*argument == 0) return Errc::kBadOption;
  if (name == "timer") return Policy{Kind::timer, *argument};
  return Policy{name == "static" ? Kind::static_count : Kind::min_bytes, *argument};
}

std::vector<std::uint32_t> Policy::boundaries(std::uint32_t partitions,
                                              std::uint64_t partition_bytes) const {
  std::uint64_t groups = partitions;
  switch (kind) {
    case Kind::none:
      break;
    case Kind::single:
      groups = 1;
      break;
    case Kind::static_count:
      groups = argument;
      break;
    case Kind::learned:
    case Kind::min_bytes: {
      // A group takes whole partitions: as many as reach the least size.
      const std::uint64_t per_group =
          partition_bytes == 0 ? partitions : (argument + partition_bytes - 1) / partition_bytes;
      groups = partitions / std::max<std::uint64_t>(per_group, 1);
      break;
    }
    case Kind::timer:
      groups = (partitions + std::uint64_t{kUnitsPerWord} - 1) / kUnitsPerWord;
      break;
    case Kind::table:
      groups = model::tabled_groups(tuning, partitions, partition_bytes);
      break;
    case Kind::ploggp:
      groups = model::modelled_groups(tuning, partitions, partition_bytes,
                                      static_cast<double>(argument));
      break;
  }
  groups = std::clamp<std::uint64_t>(groups, 1, partitions);
  return model::equal_groups(partitions, static_cast<std::uint32_t>(groups));
}

}  // namespace larklane::part
