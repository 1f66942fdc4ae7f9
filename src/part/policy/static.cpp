// Policy `static:N`: N groups.

#include "part/policy/registry.hpp"

namespace larklane::part {
namespace {

class Static final : public Policy {
 public:
  explicit Static(std::uint64_t count) : count_(count) {}
  std::vector<std::uint32_t> groups(std::uint32_t partitions, std::uint64_t) const override {
    return equal_groups(partitions, count_);
  }

 private:
  const std::uint64_t count_;
};

}  // namespace

PolicyPointer make_static(std::optional<std::uint64_t> argument, const PolicyInputs&) {
  return std::make_shared<Static>(*argument);
}

}  // namespace larklane::part
