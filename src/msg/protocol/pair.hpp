#pragma once
// One peer, for messages on lanes by tag: those without room wait in one queue for all lanes.
// (docs/design/protocols/ordinary_messages.md, "Lanes by tag", rule 7)

#include "msg/completion/node.hpp"
#include "msg/match/lane_sender.hpp"
#include "msg/protocol/connection.hpp"
#include "msg/protocol/operation.hpp"

namespace larklane::msg {

/// Thread safety: thread-safe.
class Pair {
 public:
  bool has_backlog() const noexcept { return backlog_.has_some(); }
  /// Pushes the operation's record, or puts it behind those that wait. @return has_backlog()
  bool send(Operation& operation) noexcept { return backlog_.send(operation, push); }
  /// @return true: none waits
  bool drain() noexcept { return backlog_.drain(push); }

 private:
  friend class Engine;

  static bool push(Node& node) noexcept {
    auto& operation = static_cast<Operation&>(node);
    return operation.connection->push_waiting(operation);
  }

  LaneBacklog<Node> backlog_;
  // Of the engine's list.
  Pair* next_ = nullptr;
  bool is_listed_ = false;
};

}  // namespace larklane::msg
