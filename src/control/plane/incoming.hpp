#pragma once
// A connection in: turns the bytes of an accepted socket into a hello and records.

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

/// The content of a hello, on one host and between hosts.
struct Introduction {
  std::uint32_t version = 0;
  std::uint64_t nonce = 0;         ///< of this life of the process's plane
  std::vector<Address> addresses;  ///< all valid, and of the connection's kind
  bool is_gone = false;            ///< it has left its addresses: earlier records still count
};

/// Trusts no received byte: checks every length and count before it uses it.
/// Thread safety: single-owner (the helper).
class Incoming {
 public:
  Incoming(UniqueFd fd, const Credentials& credentials);
  virtual ~Incoming() = default;

  enum class Read : std::uint8_t { data, nothing, end };
  /// Takes the bytes that the socket has, at most one buffer; before the hello a small one. Before
  /// this call, the caller has parsed every complete message.
  Read read();
  /// The plane believes the hello: makes room for records.
  void grow();

  enum class Parsed : std::uint8_t { incomplete, complete, broken };
  /// Parses the first message on a connection. Complete with another version: it holds the first
  /// address only, or none.
  virtual Parsed parse_hello(Introduction* introduction) = 0;
  /// The next record; valid until the next call of any function here.
  Parsed parse_record(Record* record);
  /// The next record has arrived completely; it may be invalid.
  bool has_record() const noexcept;
  /// The reason for the last Parsed::broken.
  const char* complaint() const noexcept { return complaint_; }
  /// Bytes of an incomplete message are waiting.
  bool has_rest() const noexcept { return begin_ != end_; }

  int fd() const noexcept { return fd_.get(); }
  /// Of a local connection only.
  const Credentials& credentials() const noexcept { return credentials_; }
  virtual bool is_remote() const noexcept = 0;
  /// The process at the other end, for messages.
  virtual std::string origin() const = 0;
  Source* source() noexcept { return &source_; }
  bool is_closed() const noexcept { return !fd_; }
  /// The program has closed the descriptor. Makes a system call.
  bool is_robbed() const noexcept { return fd_ && !identity_.is_at(fd_.get()); }
  void close();

  /// errno of Read::end; 0: the other end has closed it.
  int end_error() const noexcept { return end_error_; }

  QueuedPeer* peer = nullptr;  ///< null before the hello has been believed
  /// A hello that the plane can't judge yet.
  std::optional<Introduction> claim;
  std::uint64_t claim_since_ns = 0;  ///< of the first claim; 0: none so far
  /// Since then no process listens at an address of the hello, although its own has not ended; 0:
  /// never so.
  std::uint64_t unreachable_since_ns = 0;
  bool is_sent_away = false;  ///< the end of this connection is not the peer's end

 protected:
  Parsed broken(const char* complaint) noexcept;
  std::span<const std::byte> unparsed() const noexcept {
    return {buffer_.get() + begin_, end_ - begin_};
  }
  void skip(std::size_t bytes) noexcept { begin_ += bytes; }

 private:
  void grow_to(std::size_t bytes);

  UniqueFd fd_;
  const FdIdentity identity_;  // of fd_
  const Credentials credentials_;
  Source source_{SourceKind::incoming, this};
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t buffer_bytes_;
  std::size_t begin_ = 0;  // a multiple of kRecordAlign
  std::size_t end_ = 0;
  bool was_filled_ = false;           // by the last read
  std::vector<UniqueFd> fds_;         // arrived, of records not parsed yet
  std::vector<UniqueFd> record_fds_;  // of the record parsed last
  bool fds_lost_ = false;
  int end_error_ = 0;
  const char* complaint_ = "";
};

/// A connection from a process of this host: the kernel identifies the process. Thread safety:
/// single-owner.
class LocalIncoming final : public Incoming {
 public:
  using Incoming::Incoming;
  Parsed parse_hello(Introduction* introduction) override;
  bool is_remote() const noexcept override { return false; }
  std::string origin() const override { return "process " + std::to_string(credentials().pid); }
};

}  // namespace larklane::control
