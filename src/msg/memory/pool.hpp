#pragma once
// Nodes of one size, carved from slabs. A lane's pool hands them out without atomics; they come
// back from any thread through a list that the pool takes as a whole.

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

/// The slabs of one pool, and the list by which nodes come back. It outlives its pool, until the
/// last node is back: lanes may end while queues still hold nodes of theirs.
// Thread safety: give_back() thread-safe; the others are its pool's.
// Invariants:
// 1. `returned_` is only ever taken as a whole, by the pool: no ABA.
// 2. Once the pool is gone, every node that was out is counted off `missing_` once: by the pool,
//    all of them, and by each that comes back. Whoever makes it 0 deletes the store.
class NodeStore {
 public:
  using Construct = Node& (*)(void* place);
  NodeStore(std::size_t node_bytes, Construct construct, std::uint32_t nodes_max) noexcept
      : node_bytes_(node_bytes), construct_(construct), nodes_max_(nodes_max) {}
  NodeStore(const NodeStore&) = delete;
  NodeStore& operator=(const NodeStore&) = delete;

  /// Of this store. Lock-free; touches nothing after the node is on the list.
  void give_back(Node& node) noexcept { give_back(node, node, 1); }
  /// Several, which `next` connects.
  void give_back(Node& first, Node& last, std::uint32_t count) noexcept {
    // relaxed: nothing is read through it.
    Node* youngest = returned_.load(std::memory_order_relaxed);
    do {
      if (youngest == retired()) [[unlikely]]
        return count_missing(-std::int64_t{count});
      last.next = youngest;
      // release: of the nodes' last use; pairs with take_slow()'s and retire()'s acquire.
    } while (!returned_.compare_exchange_weak(youngest, &first, std::memory_order_release,
                                              std::memory_order_relaxed));
  }

  /// All that came back; else new ones. Null: nodes_max are out, or there is no memory.
  Node* take_slow() noexcept;
  /// The pool is gone. @param free  what it has
  void retire(Node* free) noexcept;

 private:
  struct alignas(kLineBytes) Slab {
    Slab* next;
  };
  /// With its header 4 KiB of the smallest nodes.
  static constexpr std::uint32_t kSlabNodes = 63;
  /// Of large nodes as many as are about as long as so many bytes, at least one.
  static constexpr std::size_t kSlabBytes = 512u << 10;

  ~NodeStore();
  Node* grow() noexcept;
  void count_missing(std::int64_t change) noexcept;
  /// No node's address.
  static Node* retired() noexcept { return reinterpret_cast<Node*>(std::uintptr_t{1}); }

  const std::size_t node_bytes_;
  const Construct construct_;
  const std::uint32_t nodes_max_;
  std::uint32_t nodes_ = 0;
  Slab* slabs_ = nullptr;
  alignas(vci::kOwnLineBytes) std::atomic<Node*> returned_{nullptr};
  std::atomic<std::int64_t> missing_{0};
};

/// Nodes that go back together, by one exchange for those of one store. Thread safety:
/// single-owner. Whoever has put some in gives them back before long: pools lack them.
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

/// A lane's nodes of type T, which begins with a Node. They are made once: who gets one finds what
/// its last user left there.
// Thread safety: vci-serial. Nodes go back through their home from any thread.
// Invariants:
// 1. A node is in the pool, in its store's list, or out: with one owner.
// 2. No more than nodes_max are made.
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

  /// Null: nodes_max are out, or there is no memory.
  T* get() noexcept {
    if (free_ == nullptr) [[unlikely]] {
      free_ = store_->take_slow();
      if (free_ == nullptr) return nullptr;
    }
    Node* const node = free_;
    free_ = node->next;
    return static_cast<T*>(node);
  }
  /// One of any pool.
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
