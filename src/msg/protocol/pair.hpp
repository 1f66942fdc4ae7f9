#pragma once
// One peer, for messages on lanes by tag: those without room wait in one queue for all lanes.
// (docs/design/protocols/ordinary_messages.md, "Lanes by tag", rule 7)

#include <utility>

#include "base/spin_lock.hpp"
#include "base/thread_safety.hpp"
#include "msg/completion/node.hpp"
#include "msg/match/lane_sender.hpp"
#include "msg/protocol/connection.hpp"
#include "msg/protocol/operation.hpp"

namespace larklane::msg {

// Thread safety: thread-safe. Lock order: `telling_`, then a connection's backlog lock.
// Invariant: after each call of tell() the peer's flag of `told_over_` agrees with has_backlog(),
// if a link of the pair's backlog is open, or another thread's tell() follows.
class Pair {
 public:
  bool has_backlog() const noexcept { return backlog_.has_some(); }
  /// Pushes the operation's record, or puts it behind those that wait. @return has_backlog()
  bool send(Operation& operation) noexcept { return backlog_.send(operation, push); }
  /// @return true: none waits
  bool drain() noexcept { return backlog_.drain(push); }
  /// `by` takes the operation's place. False: it does not wait here.
  bool replace(Operation& operation, Operation& by) noexcept {
    return backlog_.replace(operation, by);
  }
  /// After the backlog may have begun or ended: tells the peer, over one link.
  /// @param over  a connection that may have a link; null: none is new
  void tell(Connection* over) noexcept {
    Connection* told = nullptr;
    {
      const SpinGuard guard(telling_);
      const bool has = has_backlog();
      if (has == (told_over_ != nullptr)) return;
      told = has ? over : std::exchange(told_over_, nullptr);
      if (told == nullptr || !told->set_pair_backlog(has)) return;
      if (has) told_over_ = told;
    }
    told->tell_pair_backlog();
  }

 private:
  friend class Engine;

  static bool push(Node& node) noexcept {
    auto& operation = static_cast<Operation&>(node);
    return operation.connection->push_waiting(operation);
  }

  LaneBacklog<Node> backlog_;
  SpinLock telling_;
  Connection* told_over_ LARKLANE_GUARDED_BY(telling_) = nullptr;  // the peer knows of the backlog
  // Of the engine's list.
  Pair* next_ = nullptr;
  bool is_listed_ = false;
};

}  // namespace larklane::msg
