#pragma once
// The inbox of one pair: a ring at the receiver. The peer writes records into it in any order; the
// inbox delivers them in the order of their positions.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "base/sanitized.hpp"
#include "base/status.hpp"
#include "msg/packet/packet_wire.hpp"
#include "net/provider.hpp"

namespace larklane::msg {

// Thread safety: vci-serial; freed(), credit() and is_peer_watching() are thread-safe.
// Invariants:
// 1. Records before the head are delivered, and their cells are the peer's again. The record at the
//    head is held, or its arrival is unknown. A mark notes the arrival of a record behind the head.
//    Marks lie in private memory, so no peer can set or clear one.
// 2. A record is checked once, at the head: its stamp and length, in a copy. No cell, stamp or
//    length leads outside of the ring. If a mark has no record, the stamp reveals it when the head
//    gets there. A record that came by the same write as its predecessor needs no mark: the
//    predecessor says so.
// 3. Where the first word of a record arrives last, the inbox checks that word and has no marks: an
//    immediate is only a hint. Cells return to the peer without payload in any cell where a record
//    may begin.
class PacketInbox final {
 public:
  /// @errors kInvalidArgument: shape; kNoMemory, and those of allocate_memory
  static Result<std::unique_ptr<PacketInbox>> create(net::Fabric& fabric, RingShape shape,
                                                     std::uint32_t generation);

  const RingShape& shape() const noexcept { return shape_; }
  std::uint32_t generation() const noexcept { return generation_; }
  net::RemoteMemory remote() const noexcept { return memory_->remote(); }

  /// The record that begins in `cell` has arrived. Calls deliver(const RecordHead&, std::span<const
  /// std::byte>) -> Result<bool>, in place, for each record that is now next in order. True: its
  /// cells are the peer's again. False: not now; resume() offers it again.
  /// @pre cell < shape().cells
  /// @errors kProtocol: a malformed record; those of `deliver`. The inbox is of no use then.
  template <class Deliver>
  Status arrive(std::uint32_t cell, Deliver&& deliver) {
    if (is_first_word_last_) return deliver_seen(shape_.cells, deliver);
    if (is_held_ || cell != index_of(head_)) return mark(cell);
    return deliver_all(deliver);
  }
  /// Writes the head of a record that arrived without one. @pre as arrive(), the caller's next
  /// call; the ring does not grow
  void write_head(std::uint32_t cell, const PacketHeader& header, std::uint32_t bytes) noexcept {
    const std::uint64_t position = head_ + shape_.index_of(cell - head_);
    write_record_head(reinterpret_cast<std::byte*>(&lines_[1 + cell]), bytes,
                      stamp_of(position, generation_), header);
  }
  /// The first word of a record arrives last.
  bool is_first_word_last() const noexcept { return is_first_word_last_; }
  /// Has the record at the head arrived, and is it not held? @pre is_first_word_last()
  bool has_seen() const noexcept { return is_at_head() && !is_held_; }
  /// Is there nothing at the head, neither new nor held? Thread-safe: a hint. acquire: pairs with
  /// deliver_head()'s release; the records before the head are where they were delivered to.
  /// @pre is_first_word_last()
  bool looks_empty() const noexcept {
#ifdef LARKLANE_TSAN
    return false;  // a head that has moved on since: the peer may be copying payload there
#endif
    const std::uint64_t head = freed_.load(std::memory_order_acquire);
    const std::uint64_t word =
        std::atomic_ref(lines_[1 + index_of(head)].words[0]).load(std::memory_order_relaxed);
    return static_cast<std::uint32_t>(word) != stamp_of(head, generation_);
  }
  /// As arrive(), for up to `most` records at the head that have arrived. @pre as has_seen()
  template <class Deliver>
  Status deliver_seen(std::uint32_t most, Deliver&& deliver) {
    while (most-- != 0 && has_seen()) {
      auto delivered = deliver_head(deliver);
      if (!delivered) return delivered.error();
      is_held_ = !*delivered;
    }
    return {};
  }
  /// Where the next record begins.
  const void* head_place() const noexcept { return &lines_[1 + index_of(head_)]; }
  /// Has `deliver` put off the record at the head?
  bool is_held() const noexcept { return is_held_; }
  /// @pre is_held() @errors as arrive()
  template <class Deliver>
  Status resume(Deliver&& deliver) {
    is_held_ = false;
    if (is_first_word_last_) return deliver_seen(shape_.cells, deliver);
    return deliver_all(deliver);
  }

  /// Records before this position are delivered; the peer may write one ring beyond it. acquire:
  /// pairs with deliver_head()'s release, after the delivered bytes have been read.
  std::uint64_t freed() const noexcept { return freed_.load(std::memory_order_acquire); }
  /// Most freed cells that may be unreported.
  std::uint32_t untold_max() const noexcept { return untold_max_; }
  /// Cells in use.
  std::uint32_t cells() const noexcept { return cells_.load(std::memory_order_relaxed); }
  /// The credit word: the peer has freed its ring up to there. acquire: pairs with the network's
  /// store, and so with the peer's reads before it.
  std::uint64_t credit() const noexcept {
    return std::atomic_ref(lines_[0].words[0]).load(std::memory_order_acquire);
  }
  /// Does the peer poll its ring? relaxed: it finds the posted records in either case.
  bool is_peer_watching() const noexcept {
    return std::atomic_ref(lines_[0].words[1]).load(std::memory_order_relaxed) == kWatched;
  }
  /// Do records of the peer wait for room in this ring? relaxed: a hint, read again and again.
  bool has_peer_backlog() const noexcept {
    return std::atomic_ref(lines_[0].words[2]).load(std::memory_order_relaxed) == kHasBacklog;
  }

 private:
  struct alignas(kCellBytes) Line {
    std::uint64_t words[kCellBytes / sizeof(std::uint64_t)];
  };

  PacketInbox(RingShape shape, std::uint32_t generation, bool is_first_word_last);

  std::uint32_t index_of(std::uint64_t position) const noexcept {
    return RingShape::index_in(cells(), position);
  }
  bool is_at_head() const noexcept {
    // acquire: of the record; pairs with the network's store of its first word.
    const std::uint64_t word =
        std::atomic_ref(lines_[1 + index_of(head_)].words[0]).load(std::memory_order_acquire);
    std::uint32_t stamp = 0;
    std::memcpy(&stamp, &word, sizeof stamp);
    return stamp == stamp_of(head_, generation_);
  }
  /// Clears the first words of the further cells of a record: later records may begin there, also
  /// behind the cells in use once the ring has grown, and payload must not look like one.
  void clear(std::uint32_t cells) noexcept {
    const std::uint32_t first = index_of(head_);
    for (std::uint32_t cell = 1; cell < cells && first + cell < shape_.cells; ++cell)
      // relaxed: the release of freed_ follows.
      std::atomic_ref(lines_[1 + first + cell].words[0]).store(0, std::memory_order_relaxed);
  }

  Status mark(std::uint32_t cell) noexcept {
    const std::uint64_t bit = std::uint64_t{1} << cell % 64;
    if ((marks_[cell / 64] & bit) != 0) return Errc::kProtocol;
    marks_[cell / 64] |= bit;
    return {};
  }
  bool take_mark(std::uint32_t cell) noexcept {
    const std::uint64_t bit = std::uint64_t{1} << cell % 64;
    if ((marks_[cell / 64] & bit) == 0) return false;
    marks_[cell / 64] &= ~bit;
    return true;
  }

  template <class Deliver>
  Status deliver_all(Deliver&& deliver) {
    std::uint64_t first = head_;
    do {
      // The peer can't have seen the credit of cells freed in this loop.
      if (head_ - first >= shape_.cells) return Errc::kProtocol;
      const std::uint32_t used = cells();
      auto delivered = deliver_head(deliver);
      if (cells() != used) first = head_;  // positions were left out
      if (!delivered) return delivered.error();
      if (!*delivered) {
        is_held_ = true;
        return {};
      }
    } while (is_followed_ || take_mark(index_of(head_)));
    return {};
  }

  template <class Deliver>
  Result<bool> deliver_head(Deliver&& deliver) {
    const auto* const record = reinterpret_cast<const std::byte*>(&lines_[1 + index_of(head_)]);
    RecordHead head;
    std::memcpy(&head, record, sizeof head);
    const std::uint32_t bytes = head.payload_bytes();
    // Prefetches the line of the next record, which may have arrived too.
    __builtin_prefetch(&lines_[1 + index_of(head_ + 1)]);
    if (head.stamp != stamp_of(head_, generation_) || bytes > shape_.payload_bytes_max())
        [[unlikely]]
      return grow_slow(head);
    Result<bool> delivered = deliver(head, std::span(record + sizeof head, bytes));
    if (!delivered || !*delivered) return delivered;
    const std::uint32_t cells = record_cells_of(bytes);
    if (is_first_word_last_ && cells > 1) clear(cells);
    head_ += cells;
    is_followed_ = head.is_followed();
    freed_.store(head_, std::memory_order_release);  // pairs with freed()
    return true;
  }

  /// A record that is none may be the mark. True: the ring has grown. @errors kProtocol
  Result<bool> grow_slow(const RecordHead& head) noexcept;

  const RingShape shape_;
  const std::uint32_t generation_;
  const bool is_first_word_last_;
  std::atomic<std::uint32_t> cells_;  // in use; relaxed: looks_empty() takes a hint of it
  std::uint32_t untold_max_;
  std::uint64_t head_;
  bool is_held_ = false;                    // the record at the head, which has no mark
  bool is_followed_ = false;                // the record before the head: one write brought both
  std::unique_ptr<std::uint64_t[]> marks_;  // a bit for each cell
  std::unique_ptr<net::AllocatedMemory> memory_;
  Line* lines_ = nullptr;                                 // in memory_
  alignas(kCellBytes) std::atomic<std::uint64_t> freed_;  // posters read it
};

}  // namespace larklane::msg
