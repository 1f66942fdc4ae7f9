#pragma once
// A peer on this host: an abstract unix socket, and a pidfd.

#include <atomic>

#include "control/local/socket.hpp"
#include "control/plane/queued_peer.hpp"

namespace larklane::control {

/// Thread safety: thread-safe, as QueuedPeer is.
class LocalPeer final : public QueuedPeer {
 public:
  LocalPeer(PeerHost& host, Address address)
      : QueuedPeer(host, std::move(address), 0, kRecordFdsMax) {}

  bool is_remote() const noexcept override { return false; }
  // relaxed: nothing is published through it
  pid_t pid() const noexcept override { return pid_.load(std::memory_order_relaxed); }
  bool same_process() const noexcept override;
  bool has_ended() override;
  /// Stores the process id, and from now on watches for the process's end.
  Status accepted(const Incoming& incoming) override;
  std::optional<Reason> on_outgoing(std::uint32_t events) override;
  /// Says how the connection ended.
  std::string end_text();

 private:
  Status open_locked() override;
  Status reopen_locked() override;
  void shut_locked() override;
  bool is_sent_away_locked() override;
  Status attach_locked(UniqueFd fd);
  Status watch_process_locked(int socket, const Credentials& credentials);
  bool is_over_locked() const noexcept;
  std::string end_text_locked() const;

  Source process_{SourceKind::process, this};
  std::atomic<pid_t> pid_{0};
  UniqueFd pidfd_;             // guarded by mutex_
  FdIdentity pidfd_identity_;  // of pidfd_
};

}  // namespace larklane::control
