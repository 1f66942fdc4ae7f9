#pragma once
// The completion objects of one context, and the operations in flight that may signal each.

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/maker.hpp"
#include "base/status.hpp"
#include "msg/completion/ledger.hpp"
#include "msg/completion/object.hpp"
#include "msg/completion/registry.hpp"

namespace larklane {

// Thread safety: thread-safe. It holds its mutex during no user callback.
// Invariants:
// 1. An object is deleted only once it has no number and none of its operations is in flight. That
//    holds when its posted and its completed operations, over all ledgers, are equal in number. The
//    completed ones are read first, so each of them is also counted as posted.
// 2. The domain keeps the counts of detached ledgers: an operation may begin on one ledger and
//    complete on another.
// 3. An object that is destroyed while in use discards later signals. The first adopt(), free() or
//    destroy() that finds it unused deletes it.
class CompletionDomain {
 public:
  CompletionDomain() noexcept = default;
  ~CompletionDomain();  ///< its ledgers and the handles of its objects are gone
  CompletionDomain(const CompletionDomain&) = delete;
  CompletionDomain& operator=(const CompletionDomain&) = delete;

  /// @return object of a peer's operation, which counts as posted until Ledger::signal();
  ///   vci-serial
  /// @param number  as a peer sent it: any value
  /// @errors kInvalidArgument: no object has this number, or no longer
  Result<msg::Object*> find(msg::Ledger& ledger, RemoteCompletion number) noexcept {
    const msg::Registry::Seen seen = registry_.look(number);
    if (seen.word == 0) [[unlikely]]
      return Errc::kInvalidArgument;
    ledger.counts_.add_found(seen.index());
    if (registry_.is_still(number, seen)) [[likely]]
      return seen.object;
    ledger.counts_.add_over(seen.index(), 1);
    return Errc::kInvalidArgument;
  }

  // For the handles of completion.cpp.
  /// @errors kNoMemory: `object` is deleted
  Status adopt(std::unique_ptr<msg::Object> object) noexcept;
  // These two do nothing in a forked child: a thread that holds the mutex may not exist there.
  Status free(msg::Object& object) noexcept;
  void destroy(msg::Object& object) noexcept;
  Result<RemoteCompletion> register_remote(msg::Object& object) noexcept;
  void deregister_remote(msg::Object& object) noexcept;

  // For Ledger.
  Status attach(msg::Ledger& ledger) noexcept;
  void detach(msg::Ledger& ledger) noexcept;

 private:
  static constexpr std::uint32_t kWordBits = 64;

  Result<std::uint32_t> take_index_locked() noexcept;
  std::uint32_t in_flight_locked(std::uint32_t index) const noexcept;
  void withdraw_locked(msg::Object& object) noexcept;
  bool delete_if_unused_locked(msg::Object& object) noexcept;
  void delete_closing_locked() noexcept;

  msg::Registry registry_;
  std::mutex mutex_;
  std::array<std::uint64_t, msg::kObjectsMax / kWordBits> taken_{};  // indexes, a bit each
  msg::Ledger* ledgers_ = nullptr;
  msg::Counts gone_;                // of detached ledgers
  msg::Object* closing_ = nullptr;  // destroyed while in use
  const Maker maker_{};
};

}  // namespace larklane
