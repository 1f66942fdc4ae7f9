#pragma once
// The exchange of members between two worlds that connect, and from each root to its own side. It
// uses sockets of ours alone, so a process without Larklane disturbs nothing: it only sends
// nothing. No MPI call, no thread.

#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "base/unproven.hpp"
#include "mpi/world/member.hpp"

namespace larklane::mpi {

/// Longest waits. Each is for a process that has shown that it runs under Larklane and is about to
/// write. A wait times out only after a death, or for a client other than the accepted one.
inline constexpr std::chrono::milliseconds kDoneWait{5000};    // of the accepting root
inline constexpr std::chrono::milliseconds kAnswerWait{8000};  // of the connecting root
inline constexpr std::chrono::milliseconds kNewsWait{10000};   // of the others

/// Longest text_of() a side in bytes, so that it fits into one packet.
inline constexpr std::size_t kSideBytesMax = 100 * 1024;

/// The accepting side of a port. Thread safety: thread-safe; one accept at a time.
// A client sends hello before it calls the MPI, and done after the MPI has connected it. Accepts of
// one port are serialised, so a `done` between the k-th accept and the next belongs to the k-th.
class Port {
 public:
  /// @param name  as MPI_Open_port gave it
  /// @return null if the socket can't be bound
  static std::unique_ptr<Port> open(const std::string& name);

  /// Hold it over the MPI's accept and over accepted(). The MPI's error handler runs under it, and
  /// may call MPI_Comm_accept itself: hence the recursion.
  std::recursive_mutex& mutex() noexcept { return mutex_; }
  /// Call after the MPI's accept: finds the members of the accepted side, and answers its client.
  /// @param own   the answer; null: the own side is not known
  /// @param size  number of processes of the other side.
  /// @return empty if the other side does not run under Larklane
  std::optional<std::vector<Member>> accepted(const Meeting* own, std::size_t size);

 private:
  struct Client {
    UniqueFd socket;
    std::optional<std::vector<Member>> members;  ///< from its hello
  };
  explicit Port(UniqueFd listener) noexcept : listener_(std::move(listener)) {}
  void take_hellos();
  void take_hello(Client& client, const std::string& text);
  void drop(Client& client);
  Client* find_done();

  std::recursive_mutex mutex_;
  UniqueFd listener_;
  std::list<Client> clients_;
  Unproven<Client> silent_;  // of clients_, without a hello
};

/// The connecting root. Thread safety: single-owner.
class Caller {
 public:
  /// Call before the MPI's connect: sends hello. @param own  the own side, in order
  Caller(const std::string& port_name, std::span<const Member> own);
  /// Call after it has succeeded: sends done. @return empty if the other side does not run under
  /// Larklane
  std::optional<Meeting> connected();

 private:
  UniqueFd socket_;  // none: no port listens
};

/// Carries a meeting from the root of a collective call to the other processes of its communicator.
/// Each process makes one before the MPI's call. Thread safety: single-owner.
class Mailbox {
 public:
  /// @param key  known to all members, different for each call
  Mailbox(const ContextId& key, int rank);
  /// At the root; a process without a mailbox gets nothing.
  void send(int size, const std::optional<Meeting>& news) const;
  /// At the others, after the MPI's call. @return empty if the root knows no meeting
  std::optional<Meeting> receive(int root) const;

 private:
  ContextId box(int rank) const;

  ContextId key_;
  int rank_;
  UniqueFd socket_;
};

}  // namespace larklane::mpi
