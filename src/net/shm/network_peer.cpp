#include "net/shm/network_peer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "shm/copy.hpp"

namespace larklane::shm {
namespace {

/// A descriptor of the process of `thread`, which may be of anything by now.
/// Of a process, by one of its threads: a number that is another process's by now finds nothing.
Result<std::shared_ptr<Segment>> open_segment_of(pid_t process, pid_t thread, int fd,
                                                 std::uint64_t bytes) {
  const std::string path = "/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) +
                           "/fd/" + std::to_string(fd);  // its, not ours
  // O_PATH first: to open a file that is no segment may have effects.
  const UniqueFd seen(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!seen) return Status(errno == ENOENT ? Errc::kProtocol : Errc::kUnreachable, errno);
  struct stat info {};
  if (::fstat(seen.get(), &info) != 0) return Status(Errc::kUnreachable, errno);
  if (!S_ISREG(info.st_mode)) return Errc::kProtocol;
  if (info.st_uid != ::geteuid()) return Errc::kForeignUser;
  const std::string again = "/proc/thread-self/fd/" + std::to_string(seen.get());
  UniqueFd file(::open(again.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return Status(Errc::kUnreachable, errno);
  return Segment::map(std::move(file), bytes);
}

/// The process that had the number then is still there.
Status expect_process(pid_t process, std::uint64_t start) {
  auto now = process_start(process);
  if (!now) return now.error();
  return *now == start ? Status() : Status(Errc::kPeerDown, ESRCH);
}

constexpr std::uint64_t kCatalogueBytes = (sizeof(CatalogueArea) + 4095) / 4096 * 4096;

bool is_head(const Segment& segment, std::uint64_t nonce, std::uint32_t number) noexcept {
  const auto& head = *reinterpret_cast<const SegmentHead*>(segment.base());
  return head.nonce == nonce && head.number == number;
}

}  // namespace

Peer::Peer(const NetworkOffer& offer, bool is_own_process, UniqueFd pidfd, pid_t thread,
           std::shared_ptr<Segment> catalogue) noexcept
    : process_(offer.identity.process),
      thread_(thread),
      start_(offer.identity.start),
      nonce_(offer.nonce),
      is_own_process_(is_own_process),
      pidfd_(std::move(pidfd)),
      catalogue_(std::move(catalogue)) {}

Result<std::shared_ptr<Peer>> Peer::open(const NetworkOffer& offer, const ProcessIdentity& own) {
  const ProcessIdentity& its = offer.identity;
  if (its.process <= 0 || offer.catalogue_fd < 0) return Errc::kProtocol;
  if (its.host != own.host || its.namespace_ != own.namespace_)
    return Status(Errc::kUnreachable, EXDEV);
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, its.process, 0)));
  // After that: the descriptor is of the process that started then.
  LARKLANE_TRY(expect_process(its.process, its.start));
  const pid_t thread = its == own ? ::gettid() : attach_thread(its.process);
  auto catalogue = open_segment_of(its.process, thread, offer.catalogue_fd, kCatalogueBytes);
  if (!catalogue) return catalogue.error();
  if (!is_head(**catalogue, offer.nonce, 0)) return Errc::kProtocol;
  return std::shared_ptr<Peer>(
      new Peer(offer, its == own, std::move(pidfd), thread, std::move(catalogue).value()));
}

bool Peer::find_other_thread() noexcept {
  const pid_t other = is_own_process_ ? ::gettid() : attach_thread(process_);
  return thread_.exchange(other, std::memory_order_relaxed) != other;  // relaxed: see thread()
}

/// Of one that has ended nothing can be opened.
Result<std::shared_ptr<Segment>> Peer::open_segment(int fd, std::uint64_t bytes) noexcept {
  auto opened = open_segment_of(process_, thread(), fd, bytes);
  return opened || !find_other_thread() ? opened : open_segment_of(process_, thread(), fd, bytes);
}

Status Peer::look() {
  if (is_own_process_) return {};
  if (!pidfd_) {
    const Status status = expect_process(process_, start_);
    return status.code() == Errc::kPeerDown ? status : Status();  // or it can't be told now
  }
  pollfd look{pidfd_.get(), POLLIN, 0};
  return ::poll(&look, 1, 0) == 1 ? Status(Errc::kPeerDown, ESRCH) : Status();
}

Result<std::byte*> Peer::map(Place place, std::uint64_t bytes) {
  if (place.segment == 0 || place.segment > CatalogueArea::kSegments) return Errc::kProtocol;
  const std::uint32_t index = place.segment - 1;
  const std::scoped_lock lock(mutex_);
  if (index >= segments_.size()) segments_.resize(index + 1);
  std::shared_ptr<Segment>& segment = segments_[index];
  if (segment == nullptr) {
    const SegmentRow& row = area().segments[index];
    // acquire: pairs with Catalogue's release.
    const std::uint64_t segment_bytes = row.bytes.load(std::memory_order_acquire);
    const std::int32_t fd = row.fd.load(std::memory_order_relaxed);
    if (segment_bytes < sizeof(SegmentHead) || fd < 0) return Errc::kProtocol;
    LARKLANE_TRY(look());
    auto opened = open_segment(fd, segment_bytes);
    if (!opened) return opened.error();
    if (!is_head(**opened, nonce_, place.segment)) return Errc::kProtocol;
    segment = std::move(opened).value();
  }
  if (place.offset > segment->bytes() || bytes > segment->bytes() - place.offset)
    return Errc::kProtocol;
  return segment->base() + place.offset;
}

Result<RemoteRegion> Peer::find(std::uint64_t key) {
  constexpr Status kNoSuch{Errc::kTransfer, EACCES}, kNonsense{Errc::kTransfer, EFAULT};
  const auto number = static_cast<std::uint32_t>(key & ((1u << MemoryRow::kRowBits) - 1));
  const std::uint64_t generation = key >> MemoryRow::kRowBits;
  if (number >= CatalogueArea::kRows || generation == 0) return kNoSuch;
  const MemoryRow& row = area().rows[number];
  // acquire, all but the last: pair with Catalogue's releases, so that the last one is not earlier.
  if (row.generation.load(std::memory_order_acquire) != generation) return kNoSuch;
  const std::uint64_t base = row.base.load(std::memory_order_acquire);
  const std::uint64_t bytes = row.bytes.load(std::memory_order_acquire);
  const Place place = Place::of(row.place.load(std::memory_order_acquire));
  if (row.generation.load(std::memory_order_relaxed) != generation) return kNoSuch;
  if (bytes > ~base) return kNonsense;
  if (place.segment == 0) return RemoteRegion(row, key, base, bytes, nullptr);
  auto mapped = map(place, bytes);
  if (!mapped) return mapped.error();
  return RemoteRegion(row, key, base, bytes, *mapped);
}

Result<QueueArea*> Peer::queue(Place place) {
  if (place.offset % alignof(QueueArea) != 0) return Errc::kProtocol;
  auto mapped = map(place, sizeof(QueueArea));
  if (!mapped) return mapped.error();
  return reinterpret_cast<QueueArea*>(*mapped);
}

Result<std::shared_ptr<Peer>> Peers::get(const NetworkOffer& offer) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(peers_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Peer>& known = peers_[{offer.identity.process, offer.nonce}];
  if (auto peer = known.lock()) return peer;
  auto opened = Peer::open(offer, own_);
  if (!opened) return opened.error();
  known = *opened;
  return opened;
}

}  // namespace larklane::shm
