#pragma once
// What a lane has in flight for each completion object: so that nobody frees one that will still be
// signalled, and no operation has to touch a line that other lanes touch, to say so.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "msg/completion/object.hpp"

namespace larklane::msg {

/// Objects of one domain.
inline constexpr std::uint32_t kObjectsMax = 1u << 16;

/// How many operations were posted and are over, by object. Numbers wrap.
// Thread safety: add_found(), add_over(), posted() and over() thread-safe; those that end in
// serially(): as they say; the others under the domain's mutex.
class Counts {
 public:
  /// Room for an object. @pre nobody has heard of it yet @errors kNoMemory
  Status cover(std::uint32_t index) noexcept;
  /// Room for all that `other` has room for. @errors kNoMemory
  Status cover_all(const Counts& other) noexcept;
  /// @pre all that `other` has room for is covered; nobody uses it any more
  void absorb(const Counts& other) noexcept;

  /// By one thread at a time. relaxed: what is posted before free() is called happens before it.
  void add_posted_serially(std::uint32_t index) noexcept {
    add_serially(at(index).posted_serially, std::memory_order_relaxed);
  }
  /// For who has found the object by its number: seq_cst, before he looks at the number again.
  /// Pairs with CompletionDomain::in_flight_locked(), which looks after the number was withdrawn.
  void add_found(std::uint32_t index) noexcept {
    at(index).posted.fetch_add(1, std::memory_order_seq_cst);
  }
  void add_over(std::uint32_t index, std::uint32_t count) noexcept {
    // release: of the last touch of the object; pairs with over()'s acquire.
    at(index).over.fetch_add(count, std::memory_order_release);
  }
  /// The same, by one thread at a time.
  void add_over_serially(std::uint32_t index) noexcept {
    add_serially(at(index).over_serially, std::memory_order_release);
  }
  std::uint32_t posted(std::uint32_t index) const noexcept {
    // seq_cst: pairs with add_found(). relaxed: as add_posted_serially().
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

/// A lane's counts, and what its operations do to completion objects.
// Thread safety: thread-safe, but post(): by one thread at a time. An operation that one lane has
// posted may be signalled on another.
// Invariants:
// 1. The object of an operation lives from post(), or CompletionDomain::find(), to the end of its
//    one signal().
// 2. Neither allocates, blocks or can fail.
class Ledger {
 public:
  /// @param domain  outlives it @errors kNoMemory
  static Result<std::unique_ptr<Ledger>> create(CompletionDomain& domain) noexcept;
  ~Ledger();  ///< what it has posted may be signalled on others
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// An operation that will signal `object` begins.
  void post(const Object& object) noexcept { counts_.add_posted_serially(object.index); }

  /// It has not begun after all.
  void take_back(const Object& object) noexcept { counts_.add_over(object.index, 1); }

  /// It is over, as `node.completion` tells. Runs handlers, so no lock is held.
  /// @param object  may be gone when it returns
  /// @return is the node still the caller's? Otherwise it travels in a queue
  /// @param is_serial  by one thread at a time, of all that say so
  [[nodiscard]] bool signal(Object& object, Node& node, bool is_serial = false) noexcept {
    const std::uint32_t index = object.index;
    // relaxed: functions; they are there.
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
  Ledger* next_ = nullptr;  // of the domain's
  bool is_attached_ = false;
  Counts counts_;
};

}  // namespace larklane::msg
