#include "base/choice.hpp"

#include <algorithm>
#include <limits>
#include <span>

#include "base/parse.hpp"

namespace larklane {
namespace {

/// The number of an argument, by the name that the form gives it.
std::optional<std::uint64_t> read_argument(std::string_view text, std::string_view form) {
  const bool is_bytes = form.find("BYTES") != std::string_view::npos;
  const bool is_delay = form.find("DELAY") != std::string_view::npos;
  const bool is_time = is_delay || form.find("DEADLINE") != std::string_view::npos;
  const char* const type = is_bytes ? "bytes" : is_time ? "nanos" : "count";
  const auto argument = number_of(text, units_of(type));
  const std::uint64_t most = is_bytes || is_time ? std::numeric_limits<std::int64_t>::max()
                                                 : std::numeric_limits<std::int32_t>::max();
  if (!argument || *argument < (is_delay ? 0 : 1) || *argument > most) return std::nullopt;
  return argument;
}

/// @param form  one alternative
std::optional<Choice> read_form(std::string_view text, std::string_view form, std::size_t index) {
  const std::size_t word_end = form.find_first_of("[:");
  const std::string_view word = form.substr(0, word_end);
  if (!text.starts_with(word)) return std::nullopt;
  const std::string_view rest = text.substr(word.size());
  const bool takes_argument = word_end != std::string_view::npos;
  const Choice without{index, std::nullopt};
  if (rest.empty())
    return !takes_argument || form[word_end] == '[' ? std::optional(without) : std::nullopt;
  if (!takes_argument || rest[0] != ':') return std::nullopt;
  if (form.find("DEVICE") != std::string_view::npos)
    return rest.size() > 1 ? std::optional(without) : std::nullopt;
  const auto argument = read_argument(rest.substr(1), form);
  return argument ? std::optional(Choice{index, argument}) : std::nullopt;
}

}  // namespace

std::optional<Choice> read_choice(std::string_view text, std::string_view forms) {
  for (std::size_t index = 0; !forms.empty(); ++index) {
    const std::size_t bar = std::min(forms.find('|'), forms.size());
    if (auto choice = read_form(text, trimmed(forms.substr(0, bar)), index)) return choice;
    forms.remove_prefix(std::min(bar + 1, forms.size()));
  }
  return std::nullopt;
}

}  // namespace larklane
