#pragma once
// The connection in: bytes of an accepted socket become a hello and records.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/unique_fd.hpp"
#include "control/plane.hpp"
#include "control/socket.hpp"
#include "control/source.hpp"
#include "control/wire.hpp"

namespace larklane::control {

class LocalPeer;

/// Nothing that arrives is trusted: every length and count is checked before it is used.
/// Thread safety: single-owner (the helper).
class Incoming {
 public:
  Incoming(UniqueFd fd, const Credentials& credentials);

  enum class Read : std::uint8_t { data, nothing, end };
  /// Takes what the socket has, at most one buffer. Before, everything complete must have been
  /// parsed.
  Read read();

  enum class Parsed : std::uint8_t { incomplete, complete, broken };
  /// The first thing on a connection. Complete with another version: only version, pid and first
  /// address are valid.
  Parsed parse_hello(Hello* hello);
  /// The next record; valid until the next call of any function here.
  Parsed parse_record(Record* record);
  /// What made the last Parsed::broken.
  const char* complaint() const noexcept { return complaint_; }
  /// Bytes of something incomplete are waiting.
  bool has_rest() const noexcept { return begin_ != end_; }

  int fd() const noexcept { return fd_.get(); }
  const Credentials& credentials() const noexcept { return credentials_; }
  Source* source() noexcept { return &source_; }
  bool is_closed() const noexcept { return !fd_; }
  void close();

  LocalPeer* peer = nullptr;  ///< null before the hello

 private:
  Parsed broken(const char* complaint) noexcept;
  std::span<const std::byte> unparsed() const noexcept {
    return {buffer_.get() + begin_, end_ - begin_};
  }

  UniqueFd fd_;
  const Credentials credentials_;
  Source source_{SourceKind::incoming, this};
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;  // a multiple of kRecordAlign
  std::size_t end_ = 0;
  std::vector<UniqueFd> fds_;         // arrived, of records not parsed yet
  std::vector<UniqueFd> record_fds_;  // of the record parsed last
  bool fds_lost_ = false;
  const char* complaint_ = "";
};

}  // namespace larklane::control
