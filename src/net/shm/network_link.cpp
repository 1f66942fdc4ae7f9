// Posts of provider shm: each copies at once, and an immediate goes to the peer's queue. Thread
// safety: vci-serial. A peer's death shows in look_at_peer_slow(); kPostsPerLook sets how often.

#include "net/shm/network_link.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/copy_small.hpp"
#include "base/log.hpp"
#include "base/typemap.hpp"

namespace larklane::shm {
namespace {

/// One of so many posts looks whether the peer's process lives; of the posts that find no room in
/// its queue, one of the smaller number.
constexpr std::uint32_t kPostsPerLook = 1u << 16;
constexpr std::uint32_t kRefusalsPerLook = 256;
/// Small records soon follow the written bytes: a write fetches the line so many bytes behind its
/// end.
constexpr std::uint64_t kFetchAheadBytes = 256;

/// Never destroyed, as other objects of the process.
const Typemap& plain_bytes() {
  static const Typemap& type = *new Typemap(Typemap::contiguous(1));
  return type;
}

/// The first word last, and as a whole (Limits::first_word_last_bytes_max). Short ranges are stored
/// by words: they were written just now, by words, and wider loads would wait for those stores.
void store(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kWord = sizeof(std::uint64_t), kShort = 64;
  if (bytes < kWord || reinterpret_cast<std::uintptr_t>(to) % kWord != 0) {
    copy_small(to, from, bytes);
    return;
  }
  const auto store_word = [&](std::uint64_t at, std::memory_order order) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + at, sizeof word);
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to + at)).store(word, order);
  };
  if (bytes <= kShort && bytes % kWord == 0)
    for (std::uint64_t at = bytes - kWord; at != 0; at -= kWord)
      store_word(at, std::memory_order_relaxed);  // the first one follows
  else
    copy_small(to + kWord, from + kWord, bytes - kWord);
  // release: of the others, and of this process's earlier writes; pairs with the reader's acquire.
  store_word(0, std::memory_order_release);
}

}  // namespace

NetworkLink::NetworkLink(NetworkEndpoint& endpoint) : endpoint_(endpoint) { endpoint_.add(*this); }

NetworkLink::~NetworkLink() { endpoint_.remove(*this); }

Status NetworkLink::connect(std::span<const std::byte> peer_offer) {
  auto offer = parse_network_offer(peer_offer);
  if (!offer) return offer.error();
  const Status status = connect_to(*offer);
  if (status.ok() || status.detail() == EXDEV) return status;
  // A process that ends has first no memory, then no files, and then no number: it no longer
  // matches its offer.
  const Status there = probe_attach(Direction::read, attach_thread(offer->identity.process));
  return there.detail() == ESRCH ? Status(Errc::kPeerDown, ESRCH) : status;
}

Status NetworkLink::connect_to(const NetworkOffer& offer) {
  auto peer = endpoint_.domain().peers.get(offer);
  if (!peer) return peer.error();
  if (!(*peer)->is_own_process()) {
    if (!endpoint_.domain().is_attach_allowed) return Status(Errc::kUnreachable, ECANCELED);
    for (const Direction direction : {Direction::read, Direction::write})
      if (!attach_allowed(direction, (*peer)->thread())) return Status(Errc::kUnreachable, EPERM);
  }
  auto queue = (*peer)->queue(Place::of(offer.queue));
  if (!queue) return queue.error();
  sender_ = QueueSender(**queue, offer.endpoint);
  if (!sender_.is_open()) return Status(Errc::kPeerDown, ENOTCONN);
  peer_ = std::move(peer).value();
  failure_ = {};
  return {};
}

void NetworkLink::look_at_peer_slow() {
  if (!failure_.ok()) return;
  if (Status status = peer_->look(); !status.ok()) fail(status);
}

/// The first check of every post.
inline Status NetworkLink::ready_to_post() noexcept {
  if (!failure_.ok()) [[unlikely]]
    return failure_;
  if (++posts_ % kPostsPerLook == 0) [[unlikely]]
    look_at_peer_slow();
  if (!sender_.is_open()) [[unlikely]]
    fail(Status(Errc::kPeerDown, ENOTCONN));
  return failure_;
}

Status NetworkLink::find_slow(RemoteRegion& region, net::RemoteMemory remote, std::uint64_t bytes) {
  auto found = peer_->find(remote.key);
  if (!found) return found.error();
  region = *found;
  return region.holds(remote, bytes) ? Status() : Status(Errc::kTransfer, EFAULT);
}

/// In a region that peers can't map.
Status NetworkLink::move_slow(Direction direction, std::byte* local, net::RemoteMemory remote,
                              std::uint64_t bytes) {
  if (peer_->is_own_process()) {
    auto* const there = reinterpret_cast<std::byte*>(remote.address);
    if (direction == Direction::write)
      store(there, local, bytes);
    else
      std::memmove(local, there, bytes);
    return {};
  }
  LARKLANE_TRY(peer_->look());  // another process may have its number
  const Buffer ours{&plain_bytes(), reinterpret_cast<std::uintptr_t>(local)};
  const Buffer theirs{&plain_bytes(), static_cast<std::uintptr_t>(remote.address)};
  Piece left{0, bytes};
  const pid_t process = peer_->process();
  const Status moved = attach_copy(direction, process, peer_->thread(), ours, theirs, left);
  if (moved.detail() != ESRCH || !peer_->look().ok() || !peer_->find_other_thread()) return moved;
  return attach_copy(direction, process, peer_->thread(), ours, theirs, left);
}

namespace {

/// A passing lack of descriptors or of address space to map more of the peer's memory: the post is
/// repeated.
bool is_shortage(Status status) noexcept {
  return status.detail() == EMFILE || status.detail() == ENFILE || status.detail() == ENOMEM;
}

Result<net::Post> answer_to(Status moved) noexcept {
  if (moved.ok()) [[likely]]
    return net::Post::done;
  if (!is_shortage(moved)) return moved;
  log_warn_once("shm shortage",
                "shm: a peer's memory can't be mapped now: %s; what is posted to it waits. Remedy: "
                "more open files (ulimit -n) or less memory in use",
                std::strerror(moved.detail()));
  return net::Post::retry;
}

}  // namespace

inline Status NetworkLink::move(Direction direction, std::byte* local, net::RemoteMemory remote,
                                std::uint64_t bytes) {
  if (bytes == 0) return {};
  RemoteRegion& region = direction == Direction::read ? read_region_ : written_region_;
  if (!region.holds(remote, bytes)) [[unlikely]] {
    if (Status status = find_slow(region, remote, bytes); !status.ok()) {
      if (!is_shortage(status)) fail_if_gone(status);
      return status;
    }
  }
  std::byte* const there = region.at(remote);
  if (there == nullptr) {
    const Status status = move_slow(direction, local, remote, bytes);
    if (!status.ok()) fail_if_gone(status);
    return status;
  }
  if (direction == Direction::read) {
    std::memcpy(local, there, bytes);
  } else {
    store(there, local, bytes);
    fetch_for_write(there + bytes + kFetchAheadBytes);
  }
  return {};
}

Result<net::Post> NetworkLink::refused_slow() {
  if (posts_ % kRefusalsPerLook == 0) look_at_peer_slow();
  if (!failure_.ok()) return failure_;
  return net::Post::retry;
}

inline Result<net::Post> NetworkLink::with_immediate(std::byte* local, net::RemoteMemory to,
                                                     std::uint64_t bytes, std::uint32_t immediate) {
  LARKLANE_TRY(ready_to_post());
  if (!sender_.has_room()) [[unlikely]]
    return refused_slow();
  sender_.prepare_slot();
  if (const Status moved = move(Direction::write, local, to, bytes); !moved.ok()) [[unlikely]]
    return answer_to(moved);
  // Others may have filled the queue meanwhile: then the same bytes are written again.
  if (!sender_.push(immediate)) [[unlikely]]
    return refused_slow();
  return net::Post::done;
}

Result<net::Post> NetworkLink::write(const net::Transfer& transfer, net::Operation&) {
  LARKLANE_TRY(ready_to_post());
  return answer_to(move(Direction::write, transfer.local, transfer.remote, transfer.bytes));
}

Result<net::Post> NetworkLink::write_immediate(const net::Transfer& transfer,
                                               std::uint32_t immediate, net::Operation&) {
  return with_immediate(transfer.local, transfer.remote, transfer.bytes, immediate);
}

[[gnu::flatten]] Result<net::Post> NetworkLink::write_small(std::span<const std::byte> bytes,
                                                            net::RemoteMemory to, net::Operation&) {
  LARKLANE_TRY(ready_to_post());
  return answer_to(
      move(Direction::write, const_cast<std::byte*>(bytes.data()), to, bytes.size()));  // is read
}

[[gnu::flatten]] Result<net::Post> NetworkLink::write_small_immediate(
    std::span<const std::byte> bytes, net::RemoteMemory to, std::uint32_t immediate,
    net::Operation&) {
  return with_immediate(const_cast<std::byte*>(bytes.data()), to, bytes.size(), immediate);
}

Result<net::Post> NetworkLink::read(const net::Transfer& transfer, net::Operation&) {
  LARKLANE_TRY(ready_to_post());
  return answer_to(move(Direction::read, transfer.local, transfer.remote, transfer.bytes));
}

Result<net::Mapping> NetworkLink::map(std::uint64_t key) {
  LARKLANE_TRY(ready_to_post());
  auto found = peer_->find(key);
  if (!found) return found.error();
  return found->mapping();
}

Result<net::Post> NetworkLink::probe(net::Operation&) {
  look_at_peer_slow();
  LARKLANE_TRY(ready_to_post());
  return net::Post::done;
}

}  // namespace larklane::shm
