#pragma once
// A control plane without a helper.

#include <functional>

#include "control/plane.hpp"

namespace larklane::part {

/// It does at once what its helper is given. Thread safety: single-owner.
class ScriptedPlane final : public control::Plane {
 public:
  Result<control::Peer*> connect(const control::Address&) override { return Errc::kUnreachable; }
  void post(std::function<void()> work) override { work(); }
  const control::Address& own_address() const noexcept override { return address_; }
  Status watch(control::Watched&) override { return {}; }
  void unwatch(control::Watched&) override {}
  control::PlaneCounters counters() const noexcept override { return {}; }

 private:
  const control::Address address_ = "scripted";
};

}  // namespace larklane::part
