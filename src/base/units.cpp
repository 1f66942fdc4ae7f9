#include "base/units.hpp"

#include <charconv>
#include <limits>

namespace larklane {
namespace {

constexpr Unit kByteUnits[] = {
    {"T", 1ULL << 40}, {"G", 1ULL << 30}, {"M", 1ULL << 20}, {"K", 1ULL << 10}};
constexpr Unit kTimeUnits[] = {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}};

}  // namespace

std::span<const Unit> units_of(std::string_view type) {
  if (type == "bytes") return kByteUnits;
  if (type == "nanos") return kTimeUnits;
  return {};
}

std::optional<std::uint64_t> parse_number(std::string_view text, std::span<const Unit> units) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  const auto unit_name = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit_name.empty()) return number;
  for (const Unit& unit : units) {
    if (unit.name != unit_name) continue;
    if (number > std::numeric_limits<std::uint64_t>::max() / unit.factor) return std::nullopt;
    return number * unit.factor;
  }
  return std::nullopt;
}

std::string number_text(std::uint64_t number, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (number != 0 && number % unit.factor == 0) {
      return std::to_string(number / unit.factor) + std::string(unit.name);
    }
  }
  return std::to_string(number);
}

}  // namespace larklane
