#pragma once
// The node that carries a completion from the lane that signals it to the thread that pops it.

#include <cstddef>

#include "larklane/completion.hpp"

namespace larklane::msg {

inline constexpr std::size_t kLineBytes = 64;

class NodeStore;

/// An operation owns its node from post to signal. Then a completion queue may own it, and returns
/// it to its home. Larger types begin with a Node. Thread safety: single-owner.
struct alignas(kLineBytes) Node {
  Node* next = nullptr;       ///< for the node's owner
  NodeStore* home = nullptr;  ///< store that the node returns to
  Completion completion;
};
static_assert(sizeof(Node) == kLineBytes);

}  // namespace larklane::msg
