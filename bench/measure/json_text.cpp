#include "json_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace larklane::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kWidth = 120;  // characters

std::string plain(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// `{"name": value, ...}` or `[value, ...]`, each value written by `write`.
template <class Write>
std::string joined(const Json& value, const std::string& before, const std::string& after,
                   const Write& write) {
  std::string text(1, value.is_object() ? '{' : '[');
  bool is_first = true;
  for (const auto& [name, each] : value.items()) {
    text += (is_first ? "" : ",") + (is_first && before == " " ? "" : before);
    if (value.is_object()) text += plain(name) + ": ";
    text += write(each);
    is_first = false;
  }
  return text + after + (value.is_object() ? '}' : ']');
}

std::string line_of(const Json& value) {
  return value.is_structured() ? joined(value, " ", "", line_of) : plain(value);
}

bool is_series(const Json& value) {
  return value.is_array() && std::ranges::all_of(value, [](const Json& each) {
           return each.is_null() || each.is_number() || each.is_boolean();
         });
}

std::string text_of(const Json& value, const std::string& indent) {
  const std::string line = line_of(value);
  if (indent.size() + line.size() <= kWidth || !value.is_structured() || is_series(value))
    return line;
  const std::string within = indent + " ";
  return joined(value, "\n" + within, "\n" + indent,
                [&](const Json& each) { return text_of(each, within); });
}

}  // namespace

std::string json_text(const Json& value) { return text_of(value, "") + "\n"; }

}  // namespace larklane::bench
