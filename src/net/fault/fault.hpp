#pragma once
// A network on which things go wrong: decorates another one. For tests: the failures and the
// disorder that real networks cannot be made to produce.

#include <cstdint>
#include <memory>

#include "net/fault/plan.hpp"
#include "net/provider.hpp"

namespace larklane::fault {

class Score;

/// Thread safety: thread-safe; opened objects are as provider.hpp has it.
/// Invariants:
/// 1. An operation completes once, when the network below is done with it: its memory may go then.
/// 2. The same plan and the same calls of an endpoint give the same faults, independently of other
///    endpoints.
class Fabric final : public net::Fabric {
 public:
  Fabric(std::unique_ptr<net::Fabric> inner, Plan plan);
  ~Fabric() override;

  const net::Limits& limits() const noexcept override { return limits_; }
  Result<std::unique_ptr<net::Memory>> register_memory(void* start, std::uint64_t bytes) override;
  Result<std::unique_ptr<net::AllocatedMemory>> allocate_memory(std::uint64_t bytes) override;
  Result<std::unique_ptr<net::Endpoint>> open_endpoint(net::Receiver& receiver) override;
  std::string explain(Status error) const override { return inner_->explain(error); }
  void look() override { inner_->look(); }

  /// How often it has happened. @return  calls and operations that `what` hit
  std::uint64_t hits_count(What what) const noexcept;

 private:
  std::unique_ptr<net::Fabric> inner_;
  net::Limits limits_;
  std::shared_ptr<Score> score_;
};

}  // namespace larklane::fault
