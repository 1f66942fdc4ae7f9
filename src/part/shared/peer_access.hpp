#pragma once
// The copies of one side of a channel on one host.

#include <atomic>
#include <cstdint>
#include <memory>

#include "part/counters.hpp"
#include "part/peer_state.hpp"
#include "part/protocol/shared_copy.hpp"
#include "shm/copy.hpp"
#include "shm/segment.hpp"

namespace larklane::part {

/// Moves bytes between this side's buffer and the peer's, where the kernel or a mapping permits.
/// Thread safety: thread-safe after construction.
class PeerAccess {
 public:
  PeerAccess(PeerState& peer, shm::Direction direction) noexcept;
  /// @param piece  on return the bytes that are left
  Status transfer(const shm::Buffer& ours, const shm::Buffer& theirs, Piece& piece,
                  MovedBy by) noexcept;
  /// The peer's buffer is mapped here, at `offset` in `region`. Once, at any time.
  void map(std::shared_ptr<shm::Segment> region, std::uint64_t offset) noexcept;
  /// relaxed: for map()'s caller, or for a thread that only attaches once more.
  bool is_mapped() const noexcept { return mapped_.load(std::memory_order_relaxed) != 0; }
  bool usable() const noexcept {
    // relaxed: a late reader of `true` only pays for one more refused call.
    return same_process_ || is_mapped() || allowed_.load(std::memory_order_relaxed);
  }
  /// Memory of this side that the program can access, but not the kernel. relaxed: a hint
  bool needs_owner() const noexcept { return needs_owner_.load(std::memory_order_relaxed); }
  void note_owner() noexcept { needs_owner_.store(true, std::memory_order_relaxed); }
  /// Is the peer's buffer in this address space? Then only this side's memory can fail a copy.
  bool is_direct() const noexcept {
    // acquire: pairs with map()'s release.
    return same_process_ || mapped_.load(std::memory_order_acquire) != 0;
  }

 private:
  Status attach(const shm::Buffer& ours, const shm::Buffer& theirs, Piece& piece,
                MovedBy by) noexcept;

  PeerState& peer_;  // the channel's, which outlives it
  shm::Direction direction_;
  bool same_process_;
  std::atomic<bool> allowed_;
  std::atomic<bool> needs_owner_{false};
  std::shared_ptr<shm::Segment> region_;
  std::atomic<std::uintptr_t> mapped_{0};
};

}  // namespace larklane::part
