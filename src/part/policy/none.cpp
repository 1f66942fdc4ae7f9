// Policy `none`: each partition travels by itself.

#include "part/policy/registry.hpp"

namespace larklane::part {
namespace {

class None final : public Policy {
 public:
  std::vector<std::uint32_t> groups(std::uint32_t partitions, std::uint64_t) const override {
    return equal_groups(partitions, partitions);
  }
};

}  // namespace

PolicyPointer make_none(std::optional<std::uint64_t>, const PolicyInputs&) {
  return std::make_shared<None>();
}

}  // namespace larklane::part
