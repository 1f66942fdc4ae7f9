#pragma once
// Dials a peer on another host. It tries host after host, each until it connects, refuses or its
// share of the time is over. Then both sides prove their identity.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "control/helper/source.hpp"
#include "control/remote/remote_wire.hpp"

namespace larklane::control {

/// The terms that all connections of a plane to other hosts share. Thread safety: immutable.
struct RemoteTerms {
  Secret secret;
  std::uint64_t connect_ns;
  std::uint64_t silence_ns;
  Address own;
  std::uint64_t life;  ///< RemoteHello::life of this plane
};

/// Thread safety: single-owner (the helper).
class RemoteDial {
 public:
  /// @param source  of the socket's events; the caller passes them to on_event()
  RemoteDial(const RemoteTerms& terms, const Address& to, int epoll, Source* source);

  enum class Step : std::uint8_t {
    waiting,
    open,    ///< take() the connection
    failed,  ///< see status() and text()
    later,   ///< a shortage: status(). Then begin() again
  };
  Step begin();
  Step on_event(std::uint32_t events);
  Step on_time(std::uint64_t now_ns);
  /// When on_time() is due; 0: never.
  std::uint64_t deadline_ns() const noexcept { return deadline_ns_; }

  /// The connection stays in the epoll set.
  UniqueFd take() noexcept { return std::move(fd_); }
  void stop() noexcept;
  Status status() const noexcept { return status_; }
  const std::string& text() const noexcept { return text_; }

 private:
  Step try_next();
  Step fail_host(int error, const std::string& why);
  Step fail(Status status, const std::string& why);
  Step redial();
  Step on_connected();
  Step on_bytes();
  Step on_challenge();
  Step on_answer();
  /// True: the next message is complete. False: see `step`.
  bool receive(std::span<std::byte> wanted, Step* step);

  const RemoteTerms& terms_;
  const RemoteAddress to_;
  const Address address_;
  const int epoll_;
  Source* const source_;

  enum class Phase : std::uint8_t { connecting, challenge, answer, pausing };
  Phase phase_ = Phase::connecting;
  UniqueFd fd_;
  std::size_t next_host_ = 0;
  std::uint32_t redials_ = 0;
  std::uint64_t deadline_ns_ = 0;        // of this host, or of the pause
  std::uint64_t total_deadline_ns_ = 0;  // of all hosts; 0: not begun
  std::size_t received_bytes_ = 0;       // of the next message
  Challenge challenge_;
  RemoteHello hello_;
  Answer answer_;
  Status status_;
  std::string text_;
};

}  // namespace larklane::control
