#pragma once
// Numbers with units, as options and policies state them.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace larklane {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

/// Units of an option's type: K to T of `bytes`, ns to s of `nanos`, none of all others.
std::span<const Unit> units_of(std::string_view type);
/// Digits and at most one unit; nothing else, no overflow.
std::optional<std::uint64_t> parse_number(std::string_view text, std::span<const Unit> units);
/// The shortest exact form: 65536 is 64K.
std::string number_text(std::uint64_t number, std::span<const Unit> units);

}  // namespace larklane
