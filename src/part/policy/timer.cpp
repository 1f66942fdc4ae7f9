// Policy `timer`: groups of one word each, with deadlines (deadline.hpp).

#include "part/policy/deadline.hpp"
#include "part/policy/registry.hpp"

namespace larklane::part {
namespace {

/// Gathers all but late threads (Temucin et al., CLUSTER'23, figure 12).
constexpr std::uint64_t kDeadlineNs = 35'000;

class Timer final : public Policy {
 public:
  explicit Timer(std::uint64_t deadline_ns) : deadline_ns_(deadline_ns) {}
  std::vector<std::uint32_t> groups(std::uint32_t partitions, std::uint64_t) const override {
    return equal_groups(partitions, words_of(partitions));
  }
  PolicyNeeds needs() const noexcept override { return {.deadline_ns = deadline_ns_}; }

 private:
  const std::uint64_t deadline_ns_;
};

}  // namespace

PolicyPointer make_timer(std::optional<std::uint64_t> argument, const PolicyInputs&) {
  return std::make_shared<Timer>(argument.value_or(kDeadlineNs));
}

}  // namespace larklane::part
