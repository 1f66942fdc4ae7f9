#pragma once
// A process that attacks the ports of this one, as stranger_client.hpp states.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stranger_client.hpp"

namespace larklane::provider_test {

/// The ports of this process's sockets over TCP.
std::vector<std::uint16_t> own_ports();
/// Whether one of them accepts connections.
bool is_listening();

/// Thread safety: single-owner.
class Stranger {
 public:
  /// @param ports  to be tried  @param silent_count  silent connections to each, which stay
  Stranger(const std::vector<std::uint16_t>& ports, std::size_t silent_count);
  ~Stranger();
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  /// It has tried all, and holds its silent connections until it is destroyed.
  bool has_tried_all();
  int intrusion() const noexcept { return intrusion_; }

 private:
  pid_t process_ = -1;
  int result_ = -1;  ///< a pipe
  int intrusion_ = -1;
};

}  // namespace larklane::provider_test
