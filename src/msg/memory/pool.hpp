#pragma once
// Pools of nodes of one size, carved from slabs. A lane takes nodes from its pool without atomics.
// Any thread returns nodes to a list, and the pool takes that list as a whole.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "base/status.hpp"
#include "msg/completion/node.hpp"
#include "vci/switches.hpp"

namespace larklane::msg {

/// The slabs of one pool, and the list of returned nodes. It outlives its pool until the last node
/// is back: a lane may end while queues still hold its nodes.
// Thread safety: give_back() is thread-safe; the pool calls the others.
// Invariants:
// 1. Only the pool removes nodes from `returned_`, all at once: no ABA.
// 2. After the pool is gone, `missing_` counts each node that was still out exactly once. The pool
//    adds their number, and each return subtracts its own. The thread that brings it to 0 deletes
//    the store.
class NodeStore {
 public:
  using Construct = Node& (*)(void* place);
  NodeStore(std::size_t node_bytes, Construct construct, std::uint32_t nodes_max) noexcept
      : node_bytes_(node_bytes), construct_(construct), nodes_max_(nodes_max) {}
  NodeStore(const NodeStore&) = delete;
  NodeStore& operator=(const NodeStore&) = delete;

  /// @pre `node` is of this store. Lock-free; touches nothing after the node is on the list.
  void give_back(Node& node) noexcept { give_back(node, node, 1); }
  /// A chain of `count` nodes, linked by `next`.
  void give_back(Node& first, Node& last, std::uint32_t count) noexcept {
    // relaxed: nothing is read through it.
    Node* youngest = returned_.load(std::memory_order_relaxed);
    do {
      if (youngest == retired()) [[unlikely]]
        return count_missing(-std::int64_t{count});
      last.next = youngest;
      // release: of the nodes' last use; pairs with the acquire of take_slow() and retire().
    } while (!returned_.compare_exchange_weak(youngest, &first, std::memory_order_release,
                                              std::memory_order_relaxed));
  }

  /// All returned nodes; without any, new ones. Null: nodes_max are out, or memory ran out.
  Node* take_slow() noexcept;
  /// The pool ends. @param free  its free nodes
  void retire(Node* free) noexcept;

 private:
  struct alignas(kLineBytes) Slab {
    Slab* next;
  };
  /// With the slab's header: 4 KiB of the smallest nodes.
  static constexpr std::uint32_t kSlabNodes = 63;
  /// A slab of large nodes has about this many bytes, but at least one node.
  static constexpr std::size_t kSlabBytes = 512u << 10;

  ~NodeStore();
  Node* grow() noexcept;
  void count_missing(std::int64_t change) noexcept;
  /// Marks the list of an ended pool; no node has this address.
  static Node* retired() noexcept { return reinterpret_cast<Node*>(std::uintptr_t{1}); }

  const std::size_t node_bytes_;
  const Construct construct_;
  const std::uint32_t nodes_max_;
  std::uint32_t nodes_ = 0;
  Slab* slabs_ = nullptr;
  alignas(vci::kOwnLineBytes) std::atomic<Node*> returned_{nullptr};
  std::atomic<std::int64_t> missing_{0};
};

/// Collects nodes and returns those of one store by one exchange. Thread safety: single-owner. The
/// owner calls give_back() soon after add(), since the pools lack these nodes.
class ReturningNodes {
 public:
  void add(Node& node) noexcept {
    if (count_ != 0 && first_->home != node.home) give_back();
    node.next = first_;
    first_ = &node;
    if (count_++ == 0) last_ = &node;
  }
  void give_back() noexcept {
    if (count_ != 0) first_->home->give_back(*first_, *last_, count_);
    first_ = nullptr;
    count_ = 0;
  }
  std::uint32_t count() const noexcept { return count_; }

 private:
  Node* first_ = nullptr;
  Node* last_ = nullptr;
  std::uint32_t count_ = 0;
};

/// A lane's nodes of type T, which begins with a Node. A node is constructed once: get() returns it
/// as its last user left it.
// Thread safety: vci-serial. Any thread may return a node through its home.
// Invariants:
// 1. A node is in the pool, in its store's list, or out with one owner.
// 2. The pool makes at most nodes_max nodes.
template <class T>
class Pool {
  static_assert(std::is_base_of_v<Node, T> && std::is_trivially_destructible_v<T>);

 public:
  /// @errors kNoMemory
  static Result<Pool> create(std::uint32_t nodes_max) noexcept {
    auto* const store = new (std::nothrow) NodeStore(sizeof(T), construct, nodes_max);
    if (store == nullptr) return Errc::kNoMemory;
    return Pool(*store);
  }
  Pool(Pool&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)), free_(std::exchange(other.free_, nullptr)) {}
  Pool& operator=(Pool&&) = delete;
  ~Pool() {
    if (store_ != nullptr) store_->retire(free_);
  }

  /// Null: nodes_max are out, or memory ran out.
  T* get() noexcept {
    if (free_ == nullptr) [[unlikely]] {
      free_ = store_->take_slow();
      if (free_ == nullptr) return nullptr;
    }
    Node* const node = free_;
    free_ = node->next;
    return static_cast<T*>(node);
  }
  /// @param node  of this or another pool
  void put(Node& node) noexcept {
    if (node.home != store_) [[unlikely]]
      return node.home->give_back(node);
    node.next = free_;
    free_ = &node;
  }

 private:
  explicit Pool(NodeStore& store) noexcept : store_(&store) {}
  static Node& construct(void* place) { return *new (place) T; }

  NodeStore* store_;
  Node* free_ = nullptr;
};

}  // namespace larklane::msg
