#include "shm/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>

#include "base/kernel_calls.hpp"
#include "shm/memory_room.hpp"

namespace larklane::shm {
namespace {

constexpr std::uint64_t kBlockBytesMin = 1024;
constexpr std::uint64_t kSharedSegmentBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kSharedBlockBytesMax = kSharedSegmentBytes / 4;
constexpr std::uint64_t kLargeGranuleBytes = std::uint64_t{1} << 16;
/// Segments from here on are compared with the memory that there is.
constexpr std::uint64_t kRoomLookBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kReserveBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kPageBytes = 4096;
/// The share of available memory that this process may leave to reserve(): other processes count on
/// the rest.
constexpr std::uint64_t kPromisedShare = 8;
#ifdef MADV_POPULATE_WRITE
constexpr int kPopulateWrite = MADV_POPULATE_WRITE;
#else
constexpr int kPopulateWrite = 23;
#endif
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/// The segments that this process has created, by the file behind them. Thread safety: thread-safe.
class Created {
 public:
  using File = std::pair<dev_t, ino_t>;

  void add(const File& file, const std::shared_ptr<Segment>& segment) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(segments_, [](const auto& entry) { return entry.second.expired(); });
    segments_.insert_or_assign(file, segment);
  }
  std::shared_ptr<Segment> find(const File& file) {
    const std::scoped_lock lock(mutex_);
    const auto found = segments_.find(file);
    return found == segments_.end() ? nullptr : found->second.lock();
  }

 private:
  std::mutex mutex_;
  std::map<File, std::weak_ptr<Segment>> segments_;
};

/// Never destroyed: the helper and static objects of the program use it while the process exits.
Created& created() {
  static Created& all = *new Created;
  return all;
}

/// Bytes that all segments of this process have left to reserve(). relaxed: an estimate.
std::atomic<std::uint64_t> promised_bytes{0};

/// Allocate the whole file. @return errno
int allocate_all(int fd, std::uint64_t bytes) {
  // A signal undoes the call that it interrupts, and a profiler's timer comes again and again: so a
  // little at a time.
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t end = std::min(bytes, done + kReserveBytes);
    const int error = allocate_file(fd, static_cast<off_t>(done), static_cast<off_t>(end));
    if (error == EINTR) continue;
    if (error != 0) return error;
    done = end;
  }
  return 0;
}

/// Allocate these pages of a mapping, and map them: unlike a store to a page that can't be had
/// (SIGBUS), madvise(2) returns the error. @return errno
int allocate_mapped(std::byte* from, std::uint64_t bytes) noexcept {
  while (bytes != 0) {
    const std::uint64_t step = std::min(bytes, kReserveBytes);
    if (::madvise(from, step, kPopulateWrite) != 0) {
      if (errno == EINTR) continue;
      return errno == EFAULT ? ENOMEM : errno;  // EFAULT: the SIGBUS
    }
    from += step;
    bytes -= step;
  }
  return 0;
}

/// A page of shared memory that is not there yet can be had on access, as one of the heap can.
bool does_kernel_overcommit() noexcept {
  static const bool does = [] {
    char mode = '2';
    const UniqueFd file(::open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC));
    return file && ::read(file.get(), &mode, 1) == 1 && mode != '2';
  }();
  return does;
}

/// A shortage of memory is told apart from calls that the kernel or a filter refuses.
Status refused(int error) noexcept {
  const bool is_memory = error == ENOMEM || error == ENOSPC || error == EFBIG;
  return {is_memory ? Errc::kNoMemory : Errc::kSystem, error};
}

Result<std::byte*> map_fd(int fd, std::uint64_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return refused(errno);
  return static_cast<std::byte*>(base);
}

}  // namespace

Result<std::shared_ptr<Segment>> Segment::create(std::uint64_t bytes, Allocate when) {
  // A file over the limit would not only be refused: SIGXFSZ ends the program.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) return refused(EFBIG);
  // The kernel promises memory that it does not have, and then kills a process.
  const std::uint64_t room = bytes >= kRoomLookBytes ? memory_room_bytes() : 0;
  if (bytes >= kRoomLookBytes && bytes > room) return refused(ENOMEM);
  UniqueFd fd(::memfd_create("larklane", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return refused(errno);
  const std::uint64_t promised = bytes + promised_bytes.load(std::memory_order_relaxed);
  const bool may_be_later = when == Allocate::on_use
                                ? does_kernel_overcommit()
                                : when == Allocate::on_reserve && bytes >= kRoomLookBytes &&
                                      promised <= room / kPromisedShare;
  bool is_later = may_be_later && ::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0;
  if (const int error = is_later ? 0 : allocate_all(fd.get(), bytes); error != 0)
    return refused(error);
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return refused(errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return refused(errno);
  auto base = map_fd(fd.get(), bytes);
  if (!base) return base.error();
  std::shared_ptr<Segment> segment(new Segment(std::move(fd), *base, bytes));
  // Kernels before 5.14 can't.
  if (is_later && allocate_mapped(*base, kPageBytes) != 0) {
    is_later = false;
    if (const int error = allocate_all(segment->fd(), bytes); error != 0) return refused(error);
  }
  if (is_later) {
    segment->promised_ = bytes - kPageBytes;
    promised_bytes.fetch_add(segment->promised_, std::memory_order_relaxed);
  }
  created().add({info.st_dev, info.st_ino}, segment);
  return segment;
}

Status Segment::reserve(std::uint64_t offset, std::uint64_t length) {
  if (is_allocated() || length == 0) return {};
  const std::uint64_t begin = offset / kPageBytes * kPageBytes;
  const std::uint64_t end =
      std::min((offset + length + kPageBytes - 1) / kPageBytes * kPageBytes, bytes_);
  if (length >= kRoomLookBytes && length > memory_room_bytes()) return refused(ENOMEM);
  if (const int error = allocate_mapped(base_ + begin, end - begin); error != 0)
    return refused(error);
  const std::uint64_t taken = std::min(promised_, length);
  promised_ -= taken;
  promised_bytes.fetch_sub(taken, std::memory_order_relaxed);
  return {};
}

Result<std::shared_ptr<Segment>> Segment::map(UniqueFd fd, std::uint64_t bytes) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status(Errc::kProtocol, errno);
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || info.st_size != static_cast<off_t>(bytes))
    return Errc::kProtocol;
  // A self channel: the thread sanitizer, too, then sees that both ends synchronise on one address.
  if (auto own = created().find({info.st_dev, info.st_ino})) return own;
  auto base = map_fd(fd.get(), bytes);
  if (!base) return base.error();
  return std::shared_ptr<Segment>(new Segment(UniqueFd(), *base, bytes));
}

Segment::~Segment() {
  promised_bytes.fetch_sub(promised_, std::memory_order_relaxed);
  ::munmap(base_, bytes_);
}

Result<std::uint32_t> BlockPool::add_segment(std::uint64_t bytes, Allocate when) {
  auto segment = Segment::create(bytes, when);
  if (!segment) return segment.error();
  segments_.emplace(++next_id_, *segment);
  return next_id_;
}

Result<Block> BlockPool::allocate(std::uint64_t bytes, Allocate when) {
  const std::uint64_t size =
      bytes > kSharedBlockBytesMax
          ? (bytes + kLargeGranuleBytes - 1) / kLargeGranuleBytes * kLargeGranuleBytes
          : std::bit_ceil(std::max(bytes, kBlockBytesMin));
  const std::scoped_lock lock(mutex_);
  FreeBlock found{};
  if (auto& free = free_[size]; !free.empty()) {
    found = free.back();
    free.pop_back();
  } else if (size > kSharedBlockBytesMax) {
    auto id = add_segment(size, when);
    if (!id) return id.error();
    found = {*id, 0, 0};
  } else {
    if (open_segment_ == 0 || open_offset_ + size > kSharedSegmentBytes) {
      auto id = add_segment(kSharedSegmentBytes, Allocate::at_once);
      if (!id) return id.error();
      open_segment_ = *id;
      open_offset_ = 0;
    }
    found = {open_segment_, open_offset_, 0};
    open_offset_ += size;
  }
  bytes_in_use_ += size;
  return Block{segments_.at(found.segment_id), found.segment_id, found.offset, size,
               found.generation + 1};
}

void BlockPool::release(Block block) {
  const std::scoped_lock lock(mutex_);
  bytes_in_use_ -= block.bytes;
  if (block.bytes > kSharedBlockBytesMax)
    segments_.erase(block.segment_id);
  else
    free_[block.bytes].push_back({block.segment_id, block.offset, block.generation});
}

std::uint64_t BlockPool::bytes_in_use() const {
  const std::scoped_lock lock(mutex_);
  return bytes_in_use_;
}

}  // namespace larklane::shm
