#pragma once
// The communicators of one engine: opened by the program, or sighted in a peer's announcement.
// (docs/design/protocols/ordinary_messages.md, "Communicators"; model: tests/protocol/closing.pml)

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "base/context_id.hpp"
#include "base/status.hpp"
#include "msg/protocol/communicator.hpp"

namespace larklane::msg {

// Thread safety: thread-safe. Lock order: lane, then mutex_.
// Invariants:
// 1. `known_` holds the program's use of each communicator in it: those that are open, those that
//    are sighted, and the closed ones that still have posted receives. A record of a closed
//    communicator that is not in it is dropped, unless its number already names the communicator.
// 2. A sighted communicator is one that no call has opened yet. It is closed when all creations
//    that were running at its first sight have returned.
class Communicators {
 public:
  explicit Communicators(Engine& engine) noexcept : engine_(engine) {}
  ~Communicators();  ///< no number names any of them
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// As Engine::open().
  Result<Communicator*> open(const ContextId& id, std::span<const int> members, int own_rank,
                             const Hints& hints) noexcept;
  void close(Communicator& communicator) noexcept;

  /// The communicator of an announcement, with a use of it. Null: its messages are dropped.
  /// @errors kNoMemory
  /// @errors kProtocol: this side, or another peer, has said otherwise of its lanes
  Result<Communicator*> sight(const ContextId& id, bool is_by_tag) noexcept;
  /// Ends a use. The last one deletes the communicator.
  static void end_use(Communicator& communicator) noexcept;

  std::uint64_t begin_creation() noexcept;
  void end_creation(std::uint64_t number) noexcept;

  /// `rank` is lost: finishes the receives that only it could match.
  void lose(int rank, Status status) noexcept;

  /// Of all communicators so far. relaxed: statistics
  struct Totals {
    std::uint64_t unexpected;     ///< messages that came before their receive
    std::uint64_t longest_chain;  ///< as MatchCounts's
  };
  Totals totals() noexcept;

 private:
  struct Sighted {
    Communicator* communicator;
    std::uint64_t before;  ///< creations with a lower number may open it
  };
  void drop_messages(Communicator& communicator) noexcept;
  void forget_idle_locked() noexcept;

  Engine& engine_;
  std::mutex mutex_;  // guards the members below
  std::map<ContextId, Communicator*> known_;
  std::vector<Sighted> sighted_;
  std::vector<Communicator*> closed_;  // of known_
  std::set<std::uint64_t> running_;    // creations
  std::uint64_t next_creation_ = 1;
  // Of those that are deleted. relaxed: statistics
  std::atomic<std::uint64_t> ended_unexpected_{0}, ended_longest_{0};
};

}  // namespace larklane::msg
