#pragma once
// Lock-free queue of nodes, with any number of producers and consumers. A producer adds to a list
// by one compare-and-swap. A consumer takes that list as a whole, reverses it, and leaves the rest
// to the next consumer. (docs/design/memory_model.md)

#include <atomic>
#include <cstdint>

#include "base/reversed.hpp"
#include "msg/completion/node.hpp"

namespace larklane::msg {

/// Atomics of the real machine. The simulation has its own.
struct RealPlatform {
  template <class T>
  using Atomic = std::atomic<T>;
};

// Thread safety: thread-safe. push() is lock-free and can't fail; pop() never waits for another
// thread.
// Invariants:
// 1. Exactly one pop() returns each pushed node. Of two nodes that one thread has pushed, or that
//    were pushed one after the other, the first is popped first.
// 2. `ready_` is taken() while a pop() uses the lists, and only that pop() stores there then. So
//    pops exclude each other. A thread that stops within pop() delays no other thread; only the
//    queued nodes wait.
// 3. pop() reports an empty queue only if it was empty, or if another pop() ran meanwhile.
// 4. Only the owner of a node touches it: its producer until the compare-and-swap, then the pop()
//    of invariant 2, then the consumer. So the consumer may reuse or free a popped node at once.
//    push() compares addresses only, and on success its node links to the youngest of that moment:
//    no ABA.
template <class P>
class NodeQueue {
 public:
  NodeQueue() noexcept = default;
  NodeQueue(const NodeQueue&) = delete;
  NodeQueue& operator=(const NodeQueue&) = delete;

  void push(Node& node) noexcept {
    // relaxed: nothing is read through it.
    Node* youngest = incoming_.load(std::memory_order_relaxed);
    do {
      node.next = youngest;
      // release: of the node; pairs with pop()'s acquire of the list.
    } while (!incoming_.compare_exchange_weak(youngest, &node, std::memory_order_release,
                                              std::memory_order_relaxed));
  }

  /// Null: the queue is empty.
  Node* pop() noexcept {
    Node* popped = nullptr;
    (void)pop([&](Node& node, bool) { popped = &node; });
    return popped;
  }
  /// relaxed: a hint. A thread that polls an empty queue leaves the lines to its users.
  bool looks_empty() const noexcept {
    return ready_.load(std::memory_order_relaxed) == nullptr &&
           incoming_.load(std::memory_order_relaxed) == nullptr;
  }
  /// Calls use(Node&, bool is_last) on the node that pop() would return, while other pops are
  /// excluded. is_last: no node was behind it. False: the queue is empty.
  template <class Use>
  bool pop(Use&& use) noexcept {
    // relaxed: hints. A thread that polls an empty queue leaves the lines to its users.
    Node* oldest = ready_.load(std::memory_order_relaxed);
    if (oldest == taken() ||
        (oldest == nullptr && incoming_.load(std::memory_order_relaxed) == nullptr))
      return false;
    // acquire: pairs with the release of the previous pop().
    oldest = ready_.exchange(taken(), std::memory_order_acquire);
    if (oldest == taken()) return false;
    // acquire: pairs with the release of each push() (a release sequence).
    if (oldest == nullptr)
      oldest = reversed(incoming_.exchange(nullptr, std::memory_order_acquire));
    Node* const rest = oldest == nullptr ? nullptr : oldest->next;
    if (oldest != nullptr)  // relaxed: a hint
      use(*oldest, rest == nullptr && incoming_.load(std::memory_order_relaxed) == nullptr);
    // release: of the list; pairs with the acquire of the next pop().
    ready_.store(rest, std::memory_order_release);
    return oldest != nullptr;
  }

 private:
  /// Marks `ready_` during a pop(); no node has this address.
  static Node* taken() noexcept { return reinterpret_cast<Node*>(std::uintptr_t{1}); }

  alignas(kLineBytes) typename P::template Atomic<Node*> incoming_{nullptr};  // the youngest first
  alignas(kLineBytes)
      // The oldest first; all older than `incoming_`
      typename P::template Atomic<Node*> ready_{nullptr};
};

}  // namespace larklane::msg
