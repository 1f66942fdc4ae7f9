#pragma once
// The registry of policies, which makes them by name from the rows of policies.def.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "base/status.hpp"
#include "model/tuning.hpp"
#include "part/policy/policy.hpp"

namespace larklane::part {

using PolicyPointer = std::shared_ptr<const Policy>;

/// Facts of the process that policies may use.
struct PolicyInputs {
  std::uint64_t min_bytes;  ///< option `min_bytes`
  /// Returns the measurements of `larklane tune`, or null; they outlive the policies that keep
  /// them. Null: none.
  std::function<const model::Tuning*()> tuning{};
};

/// @param text  a value of option `policy`, in the form that `larklane info --options` shows
/// @errors kBadOption. Thread-safe.
Result<PolicyPointer> make_policy(std::string_view text, const PolicyInputs& inputs);

// One function for each row, in the file of the policy.
// @param argument  number, bytes or nanoseconds in the text; nullopt: none
#define LARKLANE_POLICY(name, form, doc) \
  PolicyPointer make_##name(std::optional<std::uint64_t> argument, const PolicyInputs& inputs);
#include "part/policy/policies.def"

}  // namespace larklane::part
