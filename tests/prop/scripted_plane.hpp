#pragma once
// Control planes without a helper.

#include <cstdint>
#include <functional>
#include <vector>

#include "control/plane/plane.hpp"

namespace larklane::part {

/// Runs the helper's works at once. Thread safety: single-owner.
class ScriptedPlane final : public control::Plane {
 public:
  Result<control::Peer*> connect(const control::Address&) override { return Errc::kUnreachable; }
  void post(std::function<void()> work) override { work(); }
  void post_spare(std::function<void()> work) override { work(); }
  const control::Address& own_address() const noexcept override { return address_; }
  Status watch(control::Watched&) override { return {}; }
  void unwatch(control::Watched&) override {}
  void catch_up() override {}
  control::PlaneCounters counters() const noexcept override { return {}; }
  void look_at_descriptors() override {}

 private:
  const control::Address address_ = "scripted";
};

/// The helper's part of a plane: the test is the helper. Thread safety: single-owner.
class WatchingPlane final : public control::Plane {
 public:
  Result<control::Peer*> connect(const control::Address&) override { return Errc::kUnreachable; }
  void post(std::function<void()>) override {}
  void post_spare(std::function<void()>) override {}
  const control::Address& own_address() const noexcept override { return address_; }
  Status watch(control::Watched& watched) override {
    lanes.push_back(&watched);
    return {};
  }
  void unwatch(control::Watched&) override {}
  void catch_up() override {}
  control::PlaneCounters counters() const noexcept override { return {}; }
  void look_at_descriptors() override {}

  void at(std::uint64_t now_ns) {
    for (control::Watched* const lane : lanes)
      if (lane->next_time_ns() <= now_ns) lane->on_time(now_ns);
  }
  std::vector<control::Watched*> lanes;

 private:
  const control::Address address_ = "watching";
};

}  // namespace larklane::part
