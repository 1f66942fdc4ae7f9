#pragma once
// The only writer of JSON text: the command's output, and records. Thread safety: thread-safe.

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace larklane::bench {

/// A short value or a list of numbers takes one line, so that a difference of two files shows the
/// series that differs. larklane/files/json_text.py has the same form. Bytes that are no UTF-8 are
/// replaced.
/// @return text that ends in a line end
std::string json_text(const nlohmann::ordered_json& value);

}  // namespace larklane::bench
