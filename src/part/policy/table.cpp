// Policy `table`: the numbers of groups and queue pairs that `larklane tune --search` has found.

#include "model/groups.hpp"
#include "part/policy/registry.hpp"

namespace larklane::part {
namespace {

class Table final : public Policy {
 public:
  explicit Table(const model::Tuning* tuning) : tuning_(tuning) {}
  std::vector<std::uint32_t> groups(std::uint32_t partitions,
                                    std::uint64_t partition_bytes) const override {
    return equal_groups(partitions, model::tabled_groups(tuning_, partitions, partition_bytes));
  }
  std::uint32_t queues(std::uint32_t partitions, std::uint64_t partition_bytes) const override {
    return model::tabled_queues(tuning_, partitions, partition_bytes);
  }

 private:
  const model::Tuning* const tuning_;
};

}  // namespace

PolicyPointer make_table(std::optional<std::uint64_t>, const PolicyInputs& inputs) {
  return std::make_shared<Table>(inputs.tuning ? inputs.tuning() : nullptr);
}

}  // namespace larklane::part
