#include "net/shm/network_catalogue.hpp"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "net/provider.hpp"

namespace larklane::shm {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
/// More than there is, and offsets have room for it.
constexpr std::uint64_t kPieceBytesMax = std::uint64_t{1} << 46;
/// Of the first segments: some rings and a queue.
constexpr std::uint64_t kSegmentBytesMin = std::uint64_t{2} << 20;
/// After so many they are twice as large, so that there is no end.
constexpr std::uint32_t kSegmentsOfASize = 32;
/// Pieces of up to so many bytes are rings, which use the first bytes alone until they grow.
constexpr std::uint64_t kRingBytesMax = std::uint64_t{768} << 10;
constexpr std::uint64_t kFirstBytes = 4096;
/// Generations fit behind a row's number,
/// but for the bit of mapped memory.
constexpr std::uint64_t kProgramBit = net::Mapping::kKeyBit >> MemoryRow::kRowBits;
constexpr std::uint64_t kNumberMask = kProgramBit - 1;

/// Four sizes between a power of two and the next: pieces are used again by others of about their
/// size, and no more than a fifth of one is lost.
std::uint64_t piece_size(std::uint64_t bytes) noexcept {
  const std::uint64_t step = std::max(std::bit_floor(bytes) / 4, kPageBytes);
  return (std::max(bytes, std::uint64_t{1}) + step - 1) / step * step;
}

std::uint64_t whole_pages(std::uint64_t bytes) noexcept {
  return (std::max(bytes, std::uint64_t{1}) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

Catalogue::Catalogue(std::shared_ptr<Segment> segment, std::uint64_t nonce)
    // Any number: so that a key of another process is hardly ever one of ours.
    : segment_(std::move(segment)), nonce_(nonce), last_number_(nonce >> 32) {}

Result<std::unique_ptr<Catalogue>> Catalogue::create() {
  std::uint64_t nonce = 0;
  if (::getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) return Status(Errc::kSystem, errno);
  auto segment = Segment::create(whole_pages(sizeof(CatalogueArea)), Allocate::on_use);
  if (!segment) return segment.error();
  LARKLANE_TRY((*segment)->reserve(0, offsetof(CatalogueArea, rows)));
  // Zeroed memory is an area without rows. Constructing one would touch half a megabyte.
  new ((*segment)->base()) SegmentHead{nonce, 0};
  return std::unique_ptr<Catalogue>(new Catalogue(std::move(segment).value(), nonce));
}

std::uint64_t Catalogue::next_number() noexcept {
  const std::scoped_lock lock(mutex_);
  return ++last_number_ & kNumberMask;
}

Result<std::uint64_t> Catalogue::add(const void* start, std::uint64_t bytes, Place place, Use use) {
  const std::uint64_t generation = next_number() | (use == Use::program ? kProgramBit : 0);
  std::uint32_t number = 0;
  {
    const std::scoped_lock lock(mutex_);
    const std::uint32_t most =
        CatalogueArea::kRows - (place.segment == 0 ? CatalogueArea::kPieceRows : 0);
    if (used_rows_ - free_rows_.size() >= most) return Status(Errc::kNoMemory, ENOSPC);
    if (!free_rows_.empty()) {
      number = free_rows_.back();
      free_rows_.pop_back();
    } else {
      LARKLANE_TRY(reserve_row_locked(used_rows_));
      number = used_rows_++;
    }
  }
  MemoryRow& row = area().rows[number];
  // release, all: a reader that sees one of them (acquire) sees also that the generation before is
  // gone.
  row.base.store(reinterpret_cast<std::uintptr_t>(start), std::memory_order_release);
  row.bytes.store(bytes, std::memory_order_release);
  row.place.store(place.word(), std::memory_order_release);
  row.generation.store(generation, std::memory_order_release);
  return generation << MemoryRow::kRowBits | number;
}

/// Rows are used in their order, so the first row of a page allocates the page.
Status Catalogue::reserve_row_locked(std::uint32_t number) {
  const std::uint64_t offset = offsetof(CatalogueArea, rows) + number * sizeof(MemoryRow);
  if (number != 0 && offset % kPageBytes >= sizeof(MemoryRow)) return {};
  return segment_->reserve(offset, sizeof(MemoryRow));
}

void Catalogue::remove(std::uint64_t key) noexcept {
  if (!is_owners()) return;
  const std::uint32_t number = static_cast<std::uint32_t>(key) & (CatalogueArea::kRows - 1);
  area().rows[number].generation.store(0, std::memory_order_release);  // pairs with Peer::find()
  const std::scoped_lock lock(mutex_);
  free_rows_.push_back(number);
}

Status Catalogue::add_segment_locked(std::uint64_t bytes) {
  const auto count = static_cast<std::uint32_t>(segments_.size());
  if (count == CatalogueArea::kSegments) return Status(Errc::kNoMemory, ENOSPC);
  const std::uint64_t least = kSegmentBytesMin << count / kSegmentsOfASize;
  auto segment = Segment::create(std::max(least, bytes + kPageBytes), Allocate::on_use);
  if (!segment) return segment.error();
  new ((*segment)->base()) SegmentHead{nonce_, count + 1};
  SegmentRow& row = area().segments[count];
  row.fd.store((*segment)->fd(), std::memory_order_relaxed);
  row.bytes.store((*segment)->bytes(), std::memory_order_release);  // pairs with Peer's acquire
  segments_.push_back(std::move(segment).value());
  return {};
}

std::uint64_t Catalogue::room_locked(const Pieces& pieces) const noexcept {
  return pieces.open == Pieces::kNone ? 0 : segments_[pieces.open]->bytes() - pieces.offset;
}

Result<Catalogue::Piece> Catalogue::allocate(std::uint64_t bytes, Use use) {
  if (bytes > kPieceBytesMax) return Errc::kNoMemory;
  const std::uint64_t size = piece_size(bytes);
  const std::scoped_lock lock(mutex_);
  Pieces& pieces = pieces_locked(use);
  if (auto& free = pieces.free[size]; !free.empty()) {
    const Piece piece = free.back();
    free.pop_back();
    std::memset(piece.start, 0, piece.bytes);
    return piece;
  }
  std::size_t index = pieces.open;
  std::uint64_t offset = pieces.offset;
  const std::uint64_t room = room_locked(pieces);
  if (room < size) {
    LARKLANE_TRY(add_segment_locked(size));
    index = segments_.size() - 1;
    offset = kPageBytes;
  }
  Segment& segment = *segments_[index];
  LARKLANE_TRY(
      segment.reserve(offset, use == Use::program || size > kRingBytesMax ? size : kFirstBytes));
  // The one with more room stays open: a long piece fills a segment of its own.
  if (index == pieces.open || segment.bytes() - offset - size > room) {
    pieces.open = index;
    pieces.offset = offset + size;
  }
  return Piece{segment.base() + offset, size, {static_cast<std::uint32_t>(index + 1), offset}, use};
}

void Catalogue::release(const Piece& piece) {
  if (!is_owners()) return;
  const std::scoped_lock lock(mutex_);
  pieces_locked(piece.use).free[piece.bytes].push_back(piece);
}

}  // namespace larklane::shm
