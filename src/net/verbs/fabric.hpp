#pragma once
// A port of an RDMA device, on which memory and endpoints are made.

#include <memory>
#include <string>

#include "net/provider.hpp"
#include "net/verbs/device.hpp"
#include "net/verbs/handles.hpp"

namespace larklane::verbs {

/// Thread safety: thread-safe.
class Fabric final : public net::Fabric {
 public:
  /// An endpoint and a link are made once and thrown away, so that a missing permission or resource
  /// is known now and with its reason.
  static Result<std::unique_ptr<net::Fabric>> open(const net::FabricOptions& options,
                                                   std::string* reason);

  const net::Limits& limits() const noexcept override { return limits_; }
  Result<std::unique_ptr<net::Memory>> register_memory(void* start, std::uint64_t bytes) override;
  Result<std::unique_ptr<net::Endpoint>> open_endpoint(net::Receiver& receiver) override;
  std::string explain(Status error) const override;
  void look() override;

 private:
  Fabric(Device device, ProtectionDomain domain);

  Device device_;
  ProtectionDomain domain_;
  net::Limits limits_;
};

}  // namespace larklane::verbs
