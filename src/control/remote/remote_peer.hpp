#pragma once
// A peer on another host: TCP.

#include <atomic>

#include "control/plane/queued_peer.hpp"
#include "control/remote/remote_dial.hpp"

namespace larklane::control {

/// Thread safety: thread-safe, as QueuedPeer is.
class RemotePeer final : public QueuedPeer {
 public:
  /// @param address  a valid remote one
  RemotePeer(PeerHost& host, const Address& address);

  bool is_remote() const noexcept override { return true; }
  pid_t pid() const noexcept override { return 0; }
  bool same_process() const noexcept override { return false; }
  bool has_ended() override { return is_down(); }
  Status accepted(const Incoming&) override { return {}; }

  // Helper only. @return the reason if the peer is down.
  std::optional<Reason> on_outgoing(std::uint32_t events) override;
  std::optional<Reason> dial() { return after(dial_.begin()); }
  std::optional<Reason> on_time(std::uint64_t now_ns) { return after(dial_.on_time(now_ns)); }
  /// When on_time() is due; 0: never.
  std::uint64_t deadline_ns() const noexcept { return dial_.deadline_ns(); }
  bool is_dialing();
  /// The reason for a connection that has ended with `error`. Its status has a detail if the host
  /// is gone: then no more bytes of the peer are on their way.
  static Reason reason_of(int error);

 private:
  Status open_locked() override;
  Status reopen_locked() override;
  void shut_locked() override { dial_.stop(); }
  std::optional<Reason> after(RemoteDial::Step step);
  std::optional<Reason> hang_up_reason();

  RemoteDial dial_;  // used by the helper only
};

}  // namespace larklane::control
