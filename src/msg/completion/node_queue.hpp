#pragma once
// Nodes from any number of threads to any number of threads. Who pushes adds to a list, by one
// compare-and-swap; who pops takes that list as a whole, turns it round, and leaves what he does
// not want to the next one. (docs/design/memory_model.md)

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

// Thread safety: thread-safe. push() is lock-free and can't fail; pop() never waits for anybody.
// Invariants:
// 1. A node that was pushed is returned by exactly one pop(); of two that one thread has pushed, or
//    that were pushed one after the other, the first one first.
// 2. `ready_` is kTaken while a pop() is at the lists, and then only that one stores there. So pops
//    don't meet, and one that is stopped in the middle keeps the others from nothing but the nodes.
// 3. pop() says that there is nothing only if there was nothing, or if another pop() was at it
//    meanwhile.
// 4. A node is touched by who has it alone: by its pusher until the compare-and-swap, by the pop()
//    of invariant 2 while it is in a list, by who popped it. So it may be used again, or its memory
//    be freed, as soon as it was popped. push() compares addresses only, and whatever is the
//    youngest when it succeeds is what it has put behind its own: no ABA.
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
      // release: of the node; pairs with the acquire of who takes the list.
    } while (!incoming_.compare_exchange_weak(youngest, &node, std::memory_order_release,
                                              std::memory_order_relaxed));
  }

  /// Null: there is nothing now.
  Node* pop() noexcept {
    Node* popped = nullptr;
    (void)pop([&](Node& node, bool) { popped = &node; });
    return popped;
  }
  /// relaxed: a hint; who polls an empty queue shall not take the lines from those who use it.
  bool looks_empty() const noexcept {
    return ready_.load(std::memory_order_relaxed) == nullptr &&
           incoming_.load(std::memory_order_relaxed) == nullptr;
  }
  /// use(Node&, bool is_last), of what pop() would return, while the others are kept out. is_last:
  /// nothing was behind it. False: there is nothing now.
  template <class Use>
  bool pop(Use&& use) noexcept {
    // relaxed: hints; who polls an empty queue shall not take the lines from those who use it.
    Node* oldest = ready_.load(std::memory_order_relaxed);
    if (oldest == taken() ||
        (oldest == nullptr && incoming_.load(std::memory_order_relaxed) == nullptr))
      return false;
    // acquire: pairs with the release of the pop() before.
    oldest = ready_.exchange(taken(), std::memory_order_acquire);
    if (oldest == taken()) return false;
    // acquire: pairs with push()'s release of each of them (a release sequence).
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
  /// No node's address.
  static Node* taken() noexcept { return reinterpret_cast<Node*>(std::uintptr_t{1}); }

  alignas(kLineBytes) typename P::template Atomic<Node*> incoming_{nullptr};  // the youngest first
  alignas(kLineBytes)
      typename P::template Atomic<Node*> ready_{nullptr};  // the oldest first; older than those
};

}  // namespace larklane::msg
