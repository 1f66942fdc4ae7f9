// Policy `min_bytes`: as many groups as have at least so many bytes each.

#include <algorithm>

#include "part/policy/registry.hpp"

namespace larklane::part {
namespace {

class MinBytes final : public Policy {
 public:
  explicit MinBytes(std::uint64_t least_bytes) : least_bytes_(least_bytes) {}
  std::vector<std::uint32_t> groups(std::uint32_t partitions,
                                    std::uint64_t partition_bytes) const override {
    // A group takes whole partitions: as many as reach the least size.
    const std::uint64_t per_group =
        partition_bytes == 0 ? partitions : (least_bytes_ + partition_bytes - 1) / partition_bytes;
    return equal_groups(partitions, partitions / std::max<std::uint64_t>(per_group, 1));
  }

 private:
  const std::uint64_t least_bytes_;
};

}  // namespace

PolicyPointer make_min_bytes(std::optional<std::uint64_t> argument, const PolicyInputs& inputs) {
  return std::make_shared<MinBytes>(argument.value_or(inputs.min_bytes));
}

}  // namespace larklane::part
