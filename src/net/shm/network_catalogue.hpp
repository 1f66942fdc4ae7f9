#pragma once
// The memory that this process shows its peers: its registered memory, and library memory that they
// map. (docs/design/protocols/shm_network.md)

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/maker.hpp"
#include "base/status.hpp"
#include "net/shm/network_layout.hpp"
#include "shm/segment.hpp"

namespace larklane::shm {

// Thread safety: thread-safe.
// Invariants:
// 1. A key is given out once. A row says nothing of a key that was taken back.
// 2. Memory that was mapped stays memory of this catalogue until it ends: a late store of a peer
//    hits no other memory.
// 3. A segment holds pieces of one use, so a program's late put hits no ring and no queue.
class Catalogue {
 public:
  enum class Use : std::uint8_t { library, program };
  /// Part of a segment that peers map.
  struct Piece {
    std::byte* start;
    std::uint64_t bytes;
    Place place;
    Use use;
  };

  /// @errors kNoMemory; kSystem: no random numbers
  static Result<std::unique_ptr<Catalogue>> create();

  std::uint64_t nonce() const noexcept { return nonce_; }
  int fd() const noexcept { return segment_->fd(); }
  /// False in a forked child, which has the same memory: objects that it ends must not end here.
  bool is_owners() const noexcept { return maker_.is_this_process(); }

  /// @param place  where peers map it @return its key @errors kNoMemory: all rows are taken
  Result<std::uint64_t> add(const void* start, std::uint64_t bytes, Place place = {},
                            Use use = Use::library);
  void remove(std::uint64_t key) noexcept;

  /// Zeroed, of whole pages, a fifth more than wanted at most. @errors kNoMemory
  Result<Piece> allocate(std::uint64_t bytes, Use use = Use::library);
  void release(const Piece& piece);
  /// Never 0, never twice.
  std::uint64_t next_number() noexcept;

 private:
  explicit Catalogue(std::shared_ptr<Segment> segment, std::uint64_t nonce);
  Status add_segment_locked(std::uint64_t bytes);
  Status reserve_row_locked(std::uint32_t number);
  /// Pieces of one use.
  struct Pieces {
    static constexpr std::size_t kNone = SIZE_MAX;
    std::size_t open = kNone;  // of segments_: the one that pieces are cut from, from `offset` on
    std::uint64_t offset = 0;
    std::map<std::uint64_t, std::vector<Piece>> free;  // by size
  };
  Pieces& pieces_locked(Use use) noexcept { return pieces_[use == Use::program ? 1 : 0]; }
  std::uint64_t room_locked(const Pieces& pieces) const noexcept;
  CatalogueArea& area() const noexcept {
    return *reinterpret_cast<CatalogueArea*>(segment_->base());
  }

  const std::shared_ptr<Segment> segment_;
  const std::uint64_t nonce_;
  const Maker maker_{};

  std::mutex mutex_;
  std::uint64_t last_number_;  // of generations and endpoints
  std::vector<std::uint32_t> free_rows_;
  std::uint32_t used_rows_ = 0;
  std::vector<std::shared_ptr<Segment>> segments_;  // number 1 is the first
  Pieces pieces_[2];
};

}  // namespace larklane::shm
