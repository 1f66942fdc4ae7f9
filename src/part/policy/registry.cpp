#include "part/policy/registry.hpp"

#include <algorithm>

#include "base/choice.hpp"
#include "model/plan.hpp"

namespace larklane::part {
namespace {

using Make = PolicyPointer (*)(std::optional<std::uint64_t>, const PolicyInputs&);
constexpr Make kMakers[] = {
#define LARKLANE_POLICY(name, argument, doc) &make_##name,
#include "part/policy/policies.def"
};
/// In the order of kMakers.
constexpr std::string_view kForms =
#define LARKLANE_POLICY(name, argument, doc) #name argument "|"
#include "part/policy/policies.def"
    ;

}  // namespace

Result<PolicyPointer> make_policy(std::string_view text, const PolicyInputs& inputs) {
  const auto choice = read_choice(text, kForms);
  if (!choice) return Errc::kBadOption;
  return kMakers[choice->index](choice->argument, inputs);
}

std::vector<std::uint32_t> Policy::equal_groups(std::uint32_t partitions, std::uint64_t count) {
  return model::equal_groups(
      partitions, static_cast<std::uint32_t>(std::clamp<std::uint64_t>(count, 1, partitions)));
}

}  // namespace larklane::part
