#pragma once
// In what a completion travels from the lane that signals it to who pops it.

#include <cstddef>

#include "larklane/completion.hpp"

namespace larklane::msg {

inline constexpr std::size_t kLineBytes = 64;

class NodeStore;

/// An operation has one from post to signal; a queue, or what is made of larger types that begin
/// with it, has it after that, and gives it back where it belongs. Thread safety: single-owner.
struct alignas(kLineBytes) Node {
  Node* next = nullptr;       ///< of whoever has it
  NodeStore* home = nullptr;  ///< where it belongs
  Completion completion;
};
static_assert(sizeof(Node) == kLineBytes);

}  // namespace larklane::msg
