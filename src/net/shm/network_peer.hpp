#pragma once
// The process at the other end of links, as far as its memory is mapped here.
// (docs/design/protocols/shm_network.md)

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "net/provider.hpp"
#include "net/shm/network_layout.hpp"
#include "net/shm/network_offer.hpp"
#include "shm/segment.hpp"

namespace larklane::shm {

/// The memory behind a key, copied and checked. Its peer stays. Thread safety: immutable.
class RemoteRegion {
 public:
  RemoteRegion() noexcept = default;
  RemoteRegion(const MemoryRow& row, std::uint64_t key, std::uint64_t base, std::uint64_t bytes,
               std::byte* mapped) noexcept
      : row_(&row), key_(key), base_(base), bytes_(bytes), mapped_(mapped) {}

  /// Does it hold [to, to + bytes), and is it still registered?
  bool holds(net::RemoteMemory to, std::uint64_t bytes) const noexcept {
    const std::uint64_t offset = to.address - base_;
    // acquire: pairs with Catalogue::remove(); best effort, it may go in the next moment.
    return to.key == key_ && row_ != nullptr && offset <= bytes_ && bytes <= bytes_ - offset &&
           row_->generation.load(std::memory_order_acquire) == key_ >> MemoryRow::kRowBits;
  }
  /// All of it. `start` is null: not mapped.
  net::Mapping mapping() const noexcept {
    return {mapped_, base_, bytes_, &row_->generation, key_ >> MemoryRow::kRowBits};
  }
  /// Null: not mapped. @pre holds()
  std::byte* at(net::RemoteMemory to) const noexcept {
    return mapped_ == nullptr ? nullptr : mapped_ + (to.address - base_);
  }

 private:
  const MemoryRow* row_ = nullptr;
  std::uint64_t key_ = 0, base_ = 0, bytes_ = 0;
  std::byte* mapped_ = nullptr;
};

// Thread safety: thread-safe.
// Invariants:
// 1. A mapped segment was opened through the process that the offer names, belongs to our user,
//    cannot shrink, and says the offer's nonce.
// 2. Nothing outside of mapped segments is read or written, even if they hold nonsense.
class Peer {
 public:
  /// @errors kUnreachable: another host or name space (EXDEV), or the kernel does not let us look
  ///   (errno); kForeignUser; kPeerDown; kProtocol; kNoMemory
  static Result<std::shared_ptr<Peer>> open(const NetworkOffer& offer, const ProcessIdentity& own);

  pid_t process() const noexcept { return process_; }
  /// By which it is attached to.
  pid_t thread() const noexcept {
    return thread_.load(std::memory_order_relaxed);  // relaxed: one that has ended is found out
  }
  /// That one has ended. False: there is no other.
  bool find_other_thread() noexcept;
  bool is_own_process() const noexcept { return is_own_process_; }
  /// Not ok: it is dead. A system call.
  Status look();

  /// @errors kTransfer: no such memory (EACCES), or nonsense (EFAULT); those of mapping
  Result<RemoteRegion> find(std::uint64_t key);
  /// @errors kProtocol: there is none; those of mapping
  Result<QueueArea*> queue(Place place);

 private:
  Peer(const NetworkOffer& offer, bool is_own_process, UniqueFd pidfd, pid_t thread,
       std::shared_ptr<Segment> catalogue) noexcept;
  /// @errors kProtocol: it is not there
  Result<std::byte*> map(Place place, std::uint64_t bytes);
  Result<std::shared_ptr<Segment>> open_segment(int fd, std::uint64_t bytes) noexcept;
  CatalogueArea& area() const noexcept {
    return *reinterpret_cast<CatalogueArea*>(catalogue_->base());
  }

  const pid_t process_;
  std::atomic<pid_t> thread_;
  const std::uint64_t start_, nonce_;
  const bool is_own_process_;
  const UniqueFd pidfd_;  // of the process, where the kernel has such descriptors
  const std::shared_ptr<Segment> catalogue_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Segment>> segments_;  // the first ones; guarded by mutex_
};

/// Those of one fabric: each is mapped once, until its last link is gone. Thread safety:
/// thread-safe.
class Peers {
 public:
  explicit Peers(const ProcessIdentity& own) noexcept : own_(own) {}
  const ProcessIdentity& own() const noexcept { return own_; }
  /// As Peer::open().
  Result<std::shared_ptr<Peer>> get(const NetworkOffer& offer);

 private:
  using Key = std::pair<std::int32_t, std::uint64_t>;  // process, nonce
  const ProcessIdentity own_;
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<Peer>> peers_;
};

}  // namespace larklane::shm
