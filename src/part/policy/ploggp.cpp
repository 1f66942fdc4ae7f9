// Policy `ploggp`: the number of groups that PLogGP computes from measurements of `larklane tune`.

#include "model/groups.hpp"
#include "part/policy/registry.hpp"

namespace larklane::part {
namespace {

/// Delay of the last thread (Temucin et al., CLUSTER'23, figure 3).
constexpr std::uint64_t kDelayNs = 4'000'000;

class Ploggp final : public Policy {
 public:
  Ploggp(const model::Tuning* tuning, std::uint64_t delay_ns)
      : tuning_(tuning), delay_ns_(static_cast<double>(delay_ns)) {}
  std::vector<std::uint32_t> groups(std::uint32_t partitions,
                                    std::uint64_t partition_bytes) const override {
    return equal_groups(partitions,
                        model::modelled_groups(tuning_, partitions, partition_bytes, delay_ns_));
  }

 private:
  const model::Tuning* const tuning_;
  const double delay_ns_;
};

}  // namespace

PolicyPointer make_ploggp(std::optional<std::uint64_t> argument, const PolicyInputs& inputs) {
  return std::make_shared<Ploggp>(inputs.tuning ? inputs.tuning() : nullptr,
                                  argument.value_or(kDelayNs));
}

}  // namespace larklane::part
