#pragma once
// Reversal of a list whose nodes link to each other by `next`. Pure functions.

namespace larklane {

/// @return the last node of `list`, which now links to the one before it, and so on
template <class Node>
Node* reversed(Node* list) noexcept {
  Node* done = nullptr;
  while (list != nullptr) {
    Node* const rest = list->next;
    list->next = done;
    done = list;
    list = rest;
  }
  return done;
}

}  // namespace larklane
