#include "part/shared/peer_access.hpp"

#include <cerrno>
#include <utility>

namespace larklane::part {

PeerAccess::PeerAccess(PeerState& peer, shm::Direction direction) noexcept
    : peer_(peer),
      direction_(direction),
      same_process_(peer.peer->same_process()),
      allowed_(direction == shm::Direction::write ? peer.push_allowed : peer.pull_allowed) {}

void PeerAccess::map(std::shared_ptr<shm::Segment> region, std::uint64_t offset) noexcept {
  region_ = std::move(region);
  // release: pairs with transfer()'s acquire.
  mapped_.store(reinterpret_cast<std::uintptr_t>(region_->base()) + offset,
                std::memory_order_release);
}

Status PeerAccess::transfer(const shm::Buffer& ours, const shm::Buffer& theirs, Piece& piece,
                            MovedBy by) noexcept {
  if (piece.length == 0) return {};
  if (is_direct()) {
    // relaxed: is_direct() has acquired it.
    const std::uintptr_t mapped = mapped_.load(std::memory_order_relaxed);
    const shm::Buffer here{theirs.type, mapped != 0 ? mapped : theirs.address};
    const bool is_push = direction_ == shm::Direction::write;
    const shm::Buffer& from = is_push ? ours : here;
    const shm::Buffer& to = is_push ? here : ours;
    if (by != MovedBy::helper) {
      shm::copy(from, to, piece.offset, piece.length);
      piece.length = 0;
      return {};
    }
    const Status status = shm::checked_copy(from, to, piece);
    return status.ok() ? status : Status(Errc::kUnreachable, status.detail());
  }
  if (!usable()) return Errc::kUnreachable;
  // acquire: pairs with on_peer_down's release. The kernel may have given the process id to a
  // foreign program by now: this process must not touch its memory.
  if (peer_.down.load(std::memory_order_acquire)) return Errc::kPeerDown;
  const Status status = attach(ours, theirs, piece, by);
  if (status.ok()) return status;
  // The kernel refuses later copies, too, except after a lack of memory. On EFAULT the helper can't
  // tell which side's memory failed. relaxed: see usable()
  const bool may_pass =
      status.detail() == ENOMEM || (status.detail() == EFAULT && by == MovedBy::helper);
  if (!may_pass) allowed_.store(false, std::memory_order_relaxed);
  return Status(Errc::kUnreachable, status.detail());
}

/// An ended thread is no dead process: the copy goes on by another of its threads. If the kernel
/// can't access memory of this side, the program's own thread may be able to open it.
Status PeerAccess::attach(const shm::Buffer& ours, const shm::Buffer& theirs, Piece& piece,
                          MovedBy by) noexcept {
  // relaxed, both: see PeerState.
  const pid_t process = peer_.peer->pid(), thread = peer_.thread.load(std::memory_order_relaxed);
  const Status status = shm::attach_copy(direction_, process, thread, ours, theirs, piece);
  if (status.detail() == EFAULT && by != MovedBy::helper) {
    const Status copied =
        shm::attach_copy_by_owner(direction_, process, thread, ours, theirs, piece);
    if (copied.ok()) note_owner();
    return copied;
  }
  if (status.detail() != ESRCH || peer_.peer->has_ended()) return status;
  const pid_t other = shm::attach_thread(process);
  if (other == thread) return status;
  peer_.thread.store(other, std::memory_order_relaxed);
  return attach(ours, theirs, piece, by);
}

}  // namespace larklane::part
