#pragma once
// Shared memory without names: sealed memfds, passed over the control socket, allocated before use
// so that a full machine is an error here and not a SIGBUS later.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace larklane::shm {

/// When a segment's memory is allocated.
enum class Allocate : std::uint8_t {
  at_once,
  on_reserve,  ///< a large one, where memory is plentiful: by reserve(); others at once
  on_use,      ///< page by page, unless the kernel promises no more memory than there is
};

/// One mapped memfd, ours or a peer's. Thread safety: immutable, but for reserve(): callers take
/// turns.
class Segment {
 public:
  /// @errors kNoMemory (detail: errno; ENOMEM, too, where the kernel would rather kill a process,
  /// EFBIG over the limit of file sizes); kSystem: a call that it needs is refused
  static Result<std::shared_ptr<Segment>> create(std::uint64_t bytes,
                                                 Allocate when = Allocate::at_once);
  /// Map a peer's segment; one that this process has created is not mapped twice. @errors kProtocol
  /// (not sealed, or not of that size), kNoMemory, kSystem
  static Result<std::shared_ptr<Segment>> map(UniqueFd fd, std::uint64_t bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  /// Allocate the pages of [offset, offset + length). Nothing is written there before.
  /// @errors as create()
  Status reserve(std::uint64_t offset, std::uint64_t length);
  /// Nothing is left to reserve(). False may be said of one that is.
  bool is_allocated() const noexcept { return promised_ == 0; }

  std::byte* base() const noexcept { return base_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  int fd() const noexcept { return fd_.get(); }
  /// It will be sent to no further process: the mapping stays, and descriptors are few.
  void close_fd() noexcept { fd_.reset(); }

 private:
  Segment(UniqueFd fd, std::byte* base, std::uint64_t bytes) noexcept
      : fd_(std::move(fd)), base_(base), bytes_(bytes) {}
  UniqueFd fd_;
  std::byte* base_;
  std::uint64_t bytes_;
  std::uint64_t promised_ = 0;  ///< bytes, about, that reserve() will take
};

/// A piece of one of our segments. The memory outlives every channel that ever used it;
/// `generation` tells its uses apart.
struct Block {
  std::shared_ptr<Segment> segment;
  std::uint32_t segment_id = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< as allocated: a power of two, or whole granules of 64 KiB
  std::uint64_t generation = 0;

  std::byte* base() const noexcept { return segment->base() + offset; }
  /// As Segment::reserve(), of bytes of the block.
  Status reserve(std::uint64_t from, std::uint64_t length) const {
    return segment->reserve(offset + from, length);
  }
};

/// Blocks of channels. Small ones share segments that live as long as the pool; a large one has a
/// segment of its own, given back with it. Thread safety: thread-safe.
class BlockPool {
 public:
  /// @errors those of Segment::create
  Result<Block> allocate(std::uint64_t bytes, Allocate when = Allocate::at_once);
  /// Both sides have closed the channel.
  void release(Block block);
  std::uint64_t bytes_in_use() const;

 private:
  struct FreeBlock {
    std::uint32_t segment_id;
    std::uint64_t offset;
    std::uint64_t generation;
  };
  Result<std::uint32_t> add_segment(std::uint64_t bytes, Allocate when);

  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<Segment>> segments_;
  std::map<std::uint64_t, std::vector<FreeBlock>> free_;  // by size
  std::uint32_t next_id_ = 0;
  std::uint32_t open_segment_ = 0;  // small blocks are cut from this one
  std::uint64_t open_offset_ = 0;
  std::uint64_t bytes_in_use_ = 0;
};

}  // namespace larklane::shm
