#pragma once
// How two worlds that connect learn who the other is, and how the root tells its own side. By
// sockets of ours alone, so that a process without Larklane on any side is only not heard of: no
// MPI call, no thread.

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

/// Longest waits. Each is for somebody who has shown that it runs under Larklane and is about to
/// write; only a death or a client that was not the accepted one makes it pass.
inline constexpr std::chrono::milliseconds kDoneWait{5000};    // of the accepting root
inline constexpr std::chrono::milliseconds kAnswerWait{8000};  // of the connecting root
inline constexpr std::chrono::milliseconds kNewsWait{10000};   // of the others

/// text_of() a side may have so many bytes: what one packet carries.
inline constexpr std::size_t kSideBytesMax = 100 * 1024;

/// The accepting side of a port. Thread safety: thread-safe; one accept at a time.
// A client says hello before it calls the MPI, and done after the MPI has connected it. Accepts of
// one port are one after the other, so a `done` that arrives after the k-th accept and before the
// next belongs to the k-th.
class Port {
 public:
  /// @param name  as MPI_Open_port gave it
  /// @return null if the socket can't be bound
  static std::unique_ptr<Port> open(const std::string& name);

  /// To be held over the MPI's accept and what follows. The MPI's error handler runs in there: it
  /// may call MPI_Comm_accept itself.
  std::recursive_mutex& mutex() noexcept { return mutex_; }
  /// After the MPI's accept: who was it? The answer goes to that client.
  /// @param own   what to tell it; null: the own side is not known
  /// @param size  number of processes of the other side
  /// @return nothing if it does not run under Larklane
  std::optional<std::vector<Member>> accepted(const Meeting* own, std::size_t size);

 private:
  struct Client {
    UniqueFd socket;
    std::optional<std::vector<Member>> members;  ///< what its hello said
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
  /// Before the MPI's connect: say hello. @param own  the own side, in order
  Caller(const std::string& port_name, std::span<const Member> own);
  /// After it succeeded: done. @return nothing if the other side does not run under Larklane
  std::optional<Meeting> connected();

 private:
  UniqueFd socket_;  // none: nobody listens
};

/// How the root of a collective call tells the others of its communicator what it has learnt. Each
/// makes one before the MPI's call. Thread safety: single-owner.
class Mailbox {
 public:
  /// @param key  known to all members, different for each call
  Mailbox(const part::ContextId& key, int rank);
  /// At the root; whoever has no mailbox gets nothing.
  void send(int size, const std::optional<Meeting>& news) const;
  /// At the others, after the MPI's call. @return nothing if the root has learnt nothing
  std::optional<Meeting> receive(int root) const;

 private:
  part::ContextId box(int rank) const;

  part::ContextId key_;
  int rank_;
  UniqueFd socket_;
};

}  // namespace larklane::mpi
