#pragma once
// A secret given as text, and the names that are made of it. Thread safety: thread-safe.

#include <string>
#include <string_view>

#include "base/siphash.hpp"

namespace larklane {

/// The key that a secret text stands for. It is as secret as the text.
Secret key_of(std::string_view text) noexcept;

/// A name that every process may read: 32 hexadecimal digits, SipHash-128 of `label` under
/// key_of(text). It tells nothing of the text, and nothing of a name under another label.
/// @param label  one for each use
std::string public_name(std::string_view text, std::string_view label);

}  // namespace larklane
