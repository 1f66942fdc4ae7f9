#pragma once
// A registered range. Thread safety: immutable.

#include <cstdint>

#include "net/provider.hpp"
#include "net/verbs/handles.hpp"

namespace larklane::verbs {

class Memory final : public net::Memory {
 public:
  /// @param registration  null: no bytes, nothing to be registered
  Memory(std::uint64_t address, Registration registration)
      : address_(address),
        local_key_(registration ? registration->lkey : 0),
        registration_(std::move(registration)) {}
  net::RemoteMemory remote() const noexcept override {
    return {address_, registration_ ? registration_->rkey : 0};
  }
  std::uint32_t local_key() const noexcept { return local_key_; }

 private:
  std::uint64_t address_;
  std::uint32_t local_key_;
  Registration registration_;
};

}  // namespace larklane::verbs
