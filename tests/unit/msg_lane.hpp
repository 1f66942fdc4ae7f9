#pragma once
// An engine's lane as completions need it, and the way in which it uses them.

#include <cstdint>
#include <utility>

#include "msg/completion/completion_domain.hpp"
#include "msg/completion/ledger.hpp"
#include "msg/memory/pool.hpp"

namespace larklane::msg {

/// Thread safety: vci-serial.
struct Lane {
  explicit Lane(CompletionDomain& domain, std::uint32_t nodes_max = 1024)
      : pool(std::move(Pool<Node>::create(nodes_max)).value()),
        ledger(std::move(Ledger::create(domain)).value()) {}

  /// Null: the pool is at its limit.
  Node* post(CompletionObject& object) {
    Node* const node = pool.get();
    if (node != nullptr) ledger->post(*object.inside());
    return node;
  }
  void signal(Object& object, Node& node, const Completion& completion) {
    node.completion = completion;
    if (ledger->signal(object, node)) pool.put(node);
  }
  void signal(CompletionObject& object, Node& node, const Completion& completion) {
    signal(*object.inside(), node, completion);
  }
  /// An operation that is over at once. False: as post().
  bool operate(CompletionObject& object, const Completion& completion) {
    Node* const node = post(object);
    if (node != nullptr) signal(object, *node, completion);
    return node != nullptr;
  }

  Pool<Node> pool;
  std::unique_ptr<Ledger> ledger;
};

/// A completion with a number of its own. @param status  of a failed one
inline Completion numbered(std::uint64_t number, Status status = {}) {
  return {.status = status,
          .rank = static_cast<std::int32_t>(number % 97),
          .tag = number,
          .buffer = nullptr,
          .bytes = number * 3,
          .user_context = nullptr};
}

}  // namespace larklane::msg
