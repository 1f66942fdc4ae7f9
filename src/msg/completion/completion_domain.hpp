#pragma once
// The completion objects of one context, and who may still signal them.

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

// Thread safety: thread-safe. Locks: its mutex, taken for no callback of users.
// Invariants:
// 1. An object is deleted only when it has no number and its operations are all over: when, over
// all
//    ledgers, as many are over as were posted. Those that are over are read first, so none is
//    counted as over that is not counted as posted.
// 2. Numbers of ledgers that are gone are kept: an operation may begin on one and end on another.
// 3. An object that is destroyed while it is in use keeps nothing of what it is told afterwards,
// and
//    is deleted by the first adopt(), free() or destroy() that finds it unused.
class CompletionDomain {
 public:
  CompletionDomain() noexcept = default;
  ~CompletionDomain();  ///< its ledgers and the handles of its objects are gone
  CompletionDomain(const CompletionDomain&) = delete;
  CompletionDomain& operator=(const CompletionDomain&) = delete;

  /// @return of a peer's operation: counted as posted, until Ledger::signal(); vci-serial
  /// @param number  what the peer has sent: anything
  /// @errors kInvalidArgument: it names nothing, or nothing any more
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

  // Of completion.cpp: what the handles do.
  /// @errors kNoMemory: then it is deleted
  Status adopt(std::unique_ptr<msg::Object> object) noexcept;
  // These two do nothing in a forked child, where the mutex may have no owner that gives it back.
  Status free(msg::Object& object) noexcept;
  void destroy(msg::Object& object) noexcept;
  Result<RemoteCompletion> register_remote(msg::Object& object) noexcept;
  void deregister_remote(msg::Object& object) noexcept;

  // Of Ledger.
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
  msg::Counts gone_;                // of ledgers that are
  msg::Object* closing_ = nullptr;  // destroyed while in use
  const Maker maker_{};
};

}  // namespace larklane
