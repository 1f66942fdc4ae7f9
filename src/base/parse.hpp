#pragma once
// Parsers of short texts: numbers with and without a unit, as options, commands and benchmarks take
// them. Pure functions.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace larklane {

/// Without the blanks at both ends.
constexpr std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// @return nothing if `text` is not, as a whole, a number that `Number` holds
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};
/// The largest first: number_text() takes the first that divides.
inline constexpr std::array kByteUnits{Unit{"T", 1ULL << 40}, Unit{"G", 1ULL << 30},
                                       Unit{"M", 1ULL << 20}, Unit{"K", 1ULL << 10}};
inline constexpr std::array kTimeUnits{Unit{"s", 1'000'000'000}, Unit{"ms", 1'000'000},
                                       Unit{"us", 1'000}, Unit{"ns", 1}};

/// Units of an option's type: K to T of `bytes`, ns to s of `nanos`, none of all others.
constexpr std::span<const Unit> units_of(std::string_view type) noexcept {
  if (type == "bytes") return kByteUnits;
  if (type == "nanos") return kTimeUnits;
  return {};
}

/// Digits and at most one unit; nothing else, no overflow.
inline std::optional<std::uint64_t> number_of(std::string_view text, std::span<const Unit> units) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = number_of<std::uint64_t>(text.substr(0, digits));
  if (!number || digits == text.size()) return number;
  const auto unit = std::ranges::find(units, text.substr(digits), &Unit::name);
  if (unit == units.end() || *number > std::numeric_limits<std::uint64_t>::max() / unit->factor)
    return std::nullopt;
  return *number * unit->factor;
}

/// The shortest exact form: 65536 is 64K.
inline std::string number_text(std::uint64_t number, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (number != 0 && number % unit.factor == 0)
      return std::to_string(number / unit.factor) + std::string(unit.name);
  }
  return std::to_string(number);
}

}  // namespace larklane
