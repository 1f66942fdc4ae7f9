// Policy `single`: all partitions travel together.

#include "part/policy/registry.hpp"

namespace larklane::part {
namespace {

class Single final : public Policy {
 public:
  std::vector<std::uint32_t> groups(std::uint32_t partitions, std::uint64_t) const override {
    return equal_groups(partitions, 1);
  }
};

}  // namespace

PolicyPointer make_single(std::optional<std::uint64_t>, const PolicyInputs&) {
  return std::make_shared<Single>();
}

}  // namespace larklane::part
