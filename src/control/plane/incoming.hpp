#pragma once
// The connection in: bytes of an accepted socket become a hello and records.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd_identity.hpp"
#include "base/unique_fd.hpp"
#include "control/helper/source.hpp"
#include "control/local/socket.hpp"
#include "control/plane/plane.hpp"
#include "control/plane/wire.hpp"

namespace larklane::control {

class QueuedPeer;

/// What a hello says, on one host and between hosts.
struct Introduction {
  std::uint32_t version = 0;
  std::uint64_t nonce = 0;         ///< of this life of the process's plane
  std::vector<Address> addresses;  ///< all valid, and of the connection's kind
  bool is_gone = false;            ///< it has left its addresses: what it sent before still counts
};

/// Nothing that arrives is trusted: every length and count is checked before it is used.
/// Thread safety: single-owner (the helper).
class Incoming {
 public:
  Incoming(UniqueFd fd, const Credentials& credentials);
  virtual ~Incoming() = default;

  enum class Read : std::uint8_t { data, nothing, end };
  /// Takes what the socket has, at most one buffer: before the hello a small one. Before,
  /// everything complete must have been parsed.
  Read read();
  /// The hello has been believed: room for records.
  void grow();

  enum class Parsed : std::uint8_t { incomplete, complete, broken };
  /// The first thing on a connection. Complete with another version: there is the first address
  /// only, or none.
  virtual Parsed parse_hello(Introduction* introduction) = 0;
  /// The next record; valid until the next call of any function here.
  Parsed parse_record(Record* record);
  /// The next record is here as a whole, whatever it is.
  bool has_record() const noexcept;
  /// What made the last Parsed::broken.
  const char* complaint() const noexcept { return complaint_; }
  /// Bytes of something incomplete are waiting.
  bool has_rest() const noexcept { return begin_ != end_; }

  int fd() const noexcept { return fd_.get(); }
  /// Of a local one.
  const Credentials& credentials() const noexcept { return credentials_; }
  virtual bool is_remote() const noexcept = 0;
  /// Who is at the other end, for messages.
  virtual std::string origin() const = 0;
  Source* source() noexcept { return &source_; }
  bool is_closed() const noexcept { return !fd_; }
  /// The program has closed the descriptor. A system call.
  bool is_robbed() const noexcept { return fd_ && !identity_.is_at(fd_.get()); }
  void close();

  /// errno of Read::end; 0: the other end has closed it.
  int end_error() const noexcept { return end_error_; }

  QueuedPeer* peer = nullptr;  ///< null before the hello has been believed
  /// A hello of which it can't be told yet whether it may be believed.
  std::optional<Introduction> claim;
  std::uint64_t claim_since_ns = 0;  ///< of the first claim; 0: none so far
  /// No process listened at an address of the hello, and its own had not ended; 0: never so.
  std::uint64_t unreachable_since_ns = 0;
  bool is_sent_away = false;  ///< its end is not the peer's

 protected:
  Parsed broken(const char* complaint) noexcept;
  std::span<const std::byte> unparsed() const noexcept {
    return {buffer_.get() + begin_, end_ - begin_};
  }
  void skip(std::size_t bytes) noexcept { begin_ += bytes; }

 private:
  UniqueFd fd_;
  const FdIdentity identity_;  // of fd_
  const Credentials credentials_;
  Source source_{SourceKind::incoming, this};
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t buffer_bytes_;
  std::size_t begin_ = 0;  // a multiple of kRecordAlign
  std::size_t end_ = 0;
  std::vector<UniqueFd> fds_;         // arrived, of records not parsed yet
  std::vector<UniqueFd> record_fds_;  // of the record parsed last
  bool fds_lost_ = false;
  int end_error_ = 0;
  const char* complaint_ = "";
};

/// From a process of this host: who it is tells the kernel. Thread safety: single-owner.
class LocalIncoming final : public Incoming {
 public:
  using Incoming::Incoming;
  Parsed parse_hello(Introduction* introduction) override;
  bool is_remote() const noexcept override { return false; }
  std::string origin() const override { return "process " + std::to_string(credentials().pid); }
};

}  // namespace larklane::control
