#pragma once
// The other end of a control plane that has none: a test hands its records on, when it likes.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "control/plane/plane.hpp"

namespace larklane::part {

/// The other process as one process sees it: records keep their order, and come when the test
/// delivers them.
class ScriptedPeer final : public control::Peer {
 public:
  explicit ScriptedPeer(std::string name) : name_(std::move(name)) {}
  const control::Address& address() const noexcept override { return name_; }
  pid_t pid() const noexcept override { return 0; }
  bool same_process() const noexcept override { return false; }
  bool is_remote() const noexcept override { return false; }
  bool is_down() const noexcept override { return is_dead; }
  std::string down_reason() override { return {}; }
  bool has_ended() override { return has_been_ended; }
  Status send(std::uint16_t kind, std::span<const std::byte> payload,
              std::span<const int>) override {
    sent.emplace_back(kind, std::vector(payload.begin(), payload.end()));
    return {};
  }
  std::deque<std::pair<std::uint16_t, std::vector<std::byte>>> sent;
  bool is_dead = false, has_been_ended = false;

 private:
  const control::Address name_;
};

}  // namespace larklane::part
