#pragma once
// Ledgers: each lane counts its operations in flight for each completion object. So the domain
// never frees an object with a signal to come, and operations of different lanes share no line for
// that.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "msg/completion/object.hpp"

namespace larklane::msg {

/// Most objects of one domain.
inline constexpr std::uint32_t kObjectsMax = 1u << 16;

/// Numbers of posted and of completed operations for each object; they wrap.
// Thread safety: add_found(), add_over(), posted() and over() are thread-safe. One thread at a time
// may call the functions that end in serially(). The domain's mutex guards the others.
class Counts {
 public:
  /// Makes room for an object. @pre no operation uses the object yet @errors kNoMemory
  Status cover(std::uint32_t index) noexcept;
  /// Makes room for the objects that `other` has room for. @errors kNoMemory
  Status cover_all(const Counts& other) noexcept;
  /// Adds the counts of `other`. @pre cover_all(other) has succeeded; no thread uses `other` any
  /// more
  void absorb(const Counts& other) noexcept;

  /// By one thread at a time. relaxed: a post that precedes the call of free() happens before it.
  void add_posted_serially(std::uint32_t index) noexcept {
    add_serially(at(index).posted_serially, std::memory_order_relaxed);
  }
  /// For an object found by its number. seq_cst: before Registry::is_still() checks the number
  /// again. Pairs with CompletionDomain::in_flight_locked(), which reads after the number's
  /// removal.
  void add_found(std::uint32_t index) noexcept {
    at(index).posted.fetch_add(1, std::memory_order_seq_cst);
  }
  void add_over(std::uint32_t index, std::uint32_t count) noexcept {
    // release: of the last touch of the object; pairs with over()'s acquire.
    at(index).over.fetch_add(count, std::memory_order_release);
  }
  /// As add_over(), by one thread at a time.
  void add_over_serially(std::uint32_t index) noexcept {
    add_serially(at(index).over_serially, std::memory_order_release);
  }
  std::uint32_t posted(std::uint32_t index) const noexcept {
    // seq_cst: pairs with add_found(). relaxed: as in add_posted_serially().
    return at(index).posted.load(std::memory_order_seq_cst) +
           at(index).posted_serially.load(std::memory_order_relaxed);
  }
  std::uint32_t over(std::uint32_t index) const noexcept {
    // acquire: pairs with add_over() and add_over_serially().
    return at(index).over.load(std::memory_order_acquire) +
           at(index).over_serially.load(std::memory_order_acquire);
  }

 private:
  struct Entry {
    std::atomic<std::uint32_t> posted{0}, over{0}, posted_serially{0}, over_serially{0};
  };
  static constexpr std::uint32_t kPageEntries = 512;
  using Page = std::array<Entry, kPageEntries>;

  static void add_serially(std::atomic<std::uint32_t>& count, std::memory_order order) noexcept {
    count.store(count.load(std::memory_order_relaxed) + 1, order);
  }
  Entry& at(std::uint32_t index) const noexcept {
    return (*pages_[index / kPageEntries])[index % kPageEntries];
  }

  std::array<std::unique_ptr<Page>, kObjectsMax / kPageEntries> pages_;
};

/// A lane's counts of operations, and their signals to completion objects.
// Thread safety: thread-safe, but one thread at a time may call post(). One lane may post an
// operation and another signal it.
// Invariants:
// 1. The object of an operation lives from post(), or CompletionDomain::find(), to the end of the
//    operation's one signal().
// 2. These calls never allocate, block or fail.
class Ledger {
 public:
  /// @param domain  outlives the ledger @errors kNoMemory
  static Result<std::unique_ptr<Ledger>> create(CompletionDomain& domain) noexcept;
  ~Ledger();  ///< other ledgers may signal its operations later
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// An operation begins that will signal `object`.
  void post(const Object& object) noexcept { counts_.add_posted_serially(object.index); }

  /// Undoes post(): the operation did not begin.
  void take_back(const Object& object) noexcept { counts_.add_over(object.index, 1); }

  /// The operation is complete: passes `node.completion` to the object. May run handlers, so the
  /// caller holds no lock.
  /// @param object  may be deleted on return
  /// @return true: the node is still the caller's; false: a queue has it
  /// @param is_serial  one thread at a time passes true
  [[nodiscard]] bool signal(Object& object, Node& node, bool is_serial = false) noexcept {
    const std::uint32_t index = object.index;
    // relaxed: function pointers to static functions.
    const bool is_callers = object.deliver.load(std::memory_order_relaxed)(object, node);
    if (is_serial)
      counts_.add_over_serially(index);
    else
      counts_.add_over(index, 1);
    return is_callers;
  }

 private:
  friend class larklane::CompletionDomain;
  explicit Ledger(CompletionDomain& domain) noexcept : domain_(domain) {}

  CompletionDomain& domain_;
  Ledger* next_ = nullptr;  // in the domain's list
  bool is_attached_ = false;
  Counts counts_;
};

}  // namespace larklane::msg
