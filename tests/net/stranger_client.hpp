#pragma once
// The attack of another user's process on a TCP socket of a job. It knows all but the secret:
// libfabric's protocols, and the layout of the messages. It tries to read, to write, and to deliver
// immediates, and floods.

#include <netinet/in.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"

namespace larklane::provider_test {

/// The outcome.
struct Intrusion {
  static constexpr int kNone = 0;
  static constexpr int kConnected = 10;  ///< a port has taken its request
  static constexpr int kRead = 11;       ///< it has been given memory
};

/// Another user, if the caller is root; as many descriptors as there may be.
void become_stranger();

/// Thread safety: single-owner.
class Intruder {
 public:
  /// @param silent_count  silent connections to each door, which stay
  explicit Intruder(std::size_t silent_count) noexcept : silent_count_(silent_count) {}
  /// @return Intrusion
  int attack(const sockaddr_in& door);

 private:
  const std::size_t silent_count_;
  std::vector<UniqueFd> silent_;
};

}  // namespace larklane::provider_test
