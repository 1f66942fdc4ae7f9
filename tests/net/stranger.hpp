#pragma once
// A process of another user that knows all of this one but its secrets: its ports, libfabric's
// protocols, the layout of what it sends. It tries to read, to write, and to be heard.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace larklane::provider_test {

/// The ports of this process's sockets over TCP.
std::vector<std::uint16_t> own_ports();

/// What it came to, as the exit status of the stranger.
struct Intrusion {
  static constexpr int kNone = 0;
  static constexpr int kConnected = 10;  ///< a port has taken its request
  static constexpr int kRead = 11;       ///< it has been given memory
};

/// Thread safety: single-owner.
class Stranger {
 public:
  /// @param ports  to be tried  @param silent_count  connections to each that say nothing, and stay
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
