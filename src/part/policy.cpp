#include "part/policy.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "model/ploggp.hpp"

namespace larklane::part {
namespace {

/// The paper's: of a thread that is late.
constexpr std::uint64_t kDelayNs = 4'000'000;

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

/// Table I of the PLogGP paper as a rule: 1 group up to 256 KiB, 2 from 512 KiB, 32 at 128 MiB.
/// sqrt(bytes / 192 KiB), of the powers of two the one that is nearest in log2.
std::uint64_t ruled_groups(std::uint64_t bytes) {
  std::uint64_t groups = 1;
  while (4 * groups * groups <= bytes / (96 << 10)) groups *= 2;
  return groups;
}

/// The best of 1, 2, 4, ... and as many as there are partitions, all at once but the last.
std::uint64_t modelled_groups(const model::Tuning& tuning, std::uint32_t partitions,
                              std::uint64_t partition_bytes, double delay_ns) {
  const auto cost = [&](std::uint32_t groups) {
    const std::uint64_t bytes =
        (std::uint64_t{partitions} + groups - 1) / groups * partition_bytes;  // of the largest
    const model::Medium medium{.network = *tuning.network_of(bytes)};
    return model::closed_form::many_before_one_ns(medium, groups, bytes, delay_ns);
  };
  const std::uint32_t best = model::best_power_of_two(partitions, cost);
  return cost(partitions) < cost(best) ? partitions : best;
}

std::uint64_t tuned_groups(const Policy& policy, std::uint32_t partitions,
                           std::uint64_t partition_bytes) {
  const std::uint64_t bytes = partitions * partition_bytes;
  const model::Tuning* const tuning = policy.tuning;
  if (tuning != nullptr && policy.kind == Policy::Kind::table) {
    if (const auto groups = tuning->groups_of(partitions, bytes)) return *groups;
  } else if (tuning != nullptr && !tuning->ranges.empty()) {
    return modelled_groups(*tuning, partitions, partition_bytes,
                           static_cast<double>(policy.argument));
  }
  return ruled_groups(bytes);
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
  if (name == "table" && !has_argument) return Policy{Kind::table, 0};
  if (name == "ploggp" && !has_argument) return Policy{Kind::ploggp, kDelayNs};
  if (!has_argument || (name != "static" && name != "min_bytes" && name != "ploggp"))
    return Errc::kBadOption;
  const std::string_view argument_text = text.substr(colon + 1);
  auto argument = name == "ploggp" ? parse_number(argument_text, kTimeUnits)
                                   : parse_number(argument_text, kByteUnits);
  if (!argument) return argument.error();
  if (name == "ploggp") return Policy{Kind::ploggp, *argument};
  if (*argument == 0) return Errc::kBadOption;
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
    case Kind::table:
    case Kind::ploggp:
      groups = tuned_groups(*this, partitions, partition_bytes);
      break;
  }
  groups = std::clamp<std::uint64_t>(groups, 1, partitions);
  std::vector<std::uint32_t> first(groups);
  for (std::uint64_t g = 0; g < groups; ++g)
    first[g] = static_cast<std::uint32_t>(g * partitions / groups);
  return first;
}

}  // namespace larklane::part
