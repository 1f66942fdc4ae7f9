#pragma once
// The ring of one pair at its receiving side: peers write records into it in any order, and they
// are delivered in the order of their positions.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "base/status.hpp"
#include "msg/packet/packet_wire.hpp"
#include "net/provider.hpp"

namespace larklane::msg {

// Thread safety: vci-serial, but freed() and credit(): thread-safe.
// Invariants:
// 1. What lies before the head has been delivered and is the peer's again; the record at the head
//    has not been heard of, or it is held. A mark says so of one behind the head: marks are in our
//    own memory, so that no peer can set or clear any.
// 2. A record is believed when it is at the head, once: its stamp and length are checked in a copy.
//    No cell, stamp or length leads outside of the ring. A mark that no record has set is found by
//    the stamp when the head comes to it. A record that has come with the one before it needs none:
//    that one says so.
// 3. Where the first word of a record arrives last, that is what is looked at, and there are no
//    marks: an immediate says only that there may be something. No cell that a record may begin in
//    holds a payload when it is the peer's again.
class PacketInbox final {
 public:
  /// @errors kInvalidArgument: shape; kNoMemory, and what register_memory says
  static Result<std::unique_ptr<PacketInbox>> create(net::Fabric& fabric, RingShape shape,
                                                     std::uint32_t generation);

  const RingShape& shape() const noexcept { return shape_; }
  std::uint32_t generation() const noexcept { return generation_; }
  net::RemoteMemory remote() const noexcept { return memory_->remote(); }

  /// The bytes of a record that begins in `cell` are there: deliver(const RecordHead&,
  /// std::span<const std::byte>) -> Result<bool> is called for each record whose turn it is now. In
  /// place: the cells are the peer's when it returns true. False: not now; resume() asks again.
  /// @pre cell < shape().cells
  /// @errors kProtocol: what makes no sense; deliver's. Then this is of no use any more.
  template <class Deliver>
  Status arrive(std::uint32_t cell, Deliver&& deliver) {
    if (is_first_word_last_) return deliver_seen(shape_.cells, deliver);
    if (is_held_ || cell != shape_.index_of(head_)) return mark(cell);
    return deliver_all(deliver);
  }
  /// Of a record without a head, the bytes of which are there. @pre as arrive(), which follows
  void write_head(std::uint32_t cell, const PacketHeader& header, std::uint32_t bytes) noexcept {
    const std::uint64_t position = head_ + shape_.index_of(cell - head_);
    write_record_head(reinterpret_cast<std::byte*>(&lines_[1 + cell]), bytes,
                      stamp_of(position, generation_), header);
  }
  /// The first word of a record arrives last.
  bool is_first_word_last() const noexcept { return is_first_word_last_; }
  /// Is there something at the head that was not heard of? @pre is_first_word_last()
  bool has_seen() const noexcept { return is_at_head() && !is_held_; }
  /// The same as arrive(), of up to `most` records that can be seen. @pre as has_seen()
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
  const void* head_place() const noexcept { return &lines_[1 + shape_.index_of(head_)]; }
  /// Is the record at the head there, but not wanted yet?
  bool is_held() const noexcept { return is_held_; }
  /// @pre is_held() @errors as arrive()
  template <class Deliver>
  Status resume(Deliver&& deliver) {
    is_held_ = false;
    if (is_first_word_last_) return deliver_seen(shape_.cells, deliver);
    return deliver_all(deliver);
  }

  /// Positions before it are the peer's. acquire: pairs with deliver_head()'s release; what was
  /// delivered has been read.
  std::uint64_t freed() const noexcept { return freed_.load(std::memory_order_acquire); }
  /// The credit word: how far the peer has freed its ring. acquire: pairs with the network's store,
  /// and with what the peer did before it.
  std::uint64_t credit() const noexcept {
    return std::atomic_ref(lines_[0].words[0]).load(std::memory_order_acquire);
  }
  /// The peer looks at its ring. relaxed: either way it finds what is posted.
  bool is_peer_watching() const noexcept {
    return std::atomic_ref(lines_[0].words[1]).load(std::memory_order_relaxed) == kWatched;
  }

 private:
  struct alignas(kCellBytes) Line {
    std::uint64_t words[kCellBytes / sizeof(std::uint64_t)];
  };

  PacketInbox(RingShape shape, std::uint32_t generation, bool is_first_word_last);

  bool is_at_head() const noexcept {
    // acquire: of the record; pairs with the network's store of its first word.
    const std::uint64_t word = std::atomic_ref(lines_[1 + shape_.index_of(head_)].words[0])
                                   .load(std::memory_order_acquire);
    std::uint32_t stamp = 0;
    std::memcpy(&stamp, &word, sizeof stamp);
    return stamp == stamp_of(head_, generation_);
  }
  /// Of a record of several cells: what its payload has left where others will begin.
  void clear(std::uint32_t cells) noexcept {
    const std::uint32_t first = shape_.index_of(head_);
    for (std::uint32_t cell = 1; cell < cells && first + cell < shape_.cells; ++cell)
      // relaxed: freed_ follows.
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
    const std::uint64_t first = head_;
    do {
      // The peer can't know of what has been freed meanwhile.
      if (head_ - first >= shape_.cells) return Errc::kProtocol;
      auto delivered = deliver_head(deliver);
      if (!delivered) return delivered.error();
      if (!*delivered) {
        is_held_ = true;
        return {};
      }
    } while (is_followed_ || take_mark(shape_.index_of(head_)));
    return {};
  }

  template <class Deliver>
  Result<bool> deliver_head(Deliver&& deliver) {
    const auto* const record =
        reinterpret_cast<const std::byte*>(&lines_[1 + shape_.index_of(head_)]);
    RecordHead head;
    std::memcpy(&head, record, sizeof head);
    const std::uint32_t bytes = head.payload_bytes();
    // Where the next one may be there, too: its line comes meanwhile.
    __builtin_prefetch(&lines_[1 + shape_.index_of(head_ + 1)]);
    if (head.stamp != stamp_of(head_, generation_) || bytes > shape_.payload_bytes_max())
      return Errc::kProtocol;
    Result<bool> delivered = deliver(head, std::span(record + sizeof head, bytes));
    if (!delivered || !*delivered) return delivered;
    const std::uint32_t cells = record_cells_of(bytes);
    if (is_first_word_last_ && cells > 1) clear(cells);
    head_ += cells;
    is_followed_ = head.is_followed();
    freed_.store(head_, std::memory_order_release);  // pairs with freed()
    return true;
  }

  const RingShape shape_;
  const std::uint32_t generation_;
  const bool is_first_word_last_;
  std::uint64_t head_;
  bool is_held_ = false;                    // the record at the head: it has no mark
  bool is_followed_ = false;                // the record before the head: it has brought the head's
  std::unique_ptr<std::uint64_t[]> marks_;  // a bit a cell
  std::unique_ptr<net::AllocatedMemory> memory_;
  Line* lines_ = nullptr;                                 // in memory_
  alignas(kCellBytes) std::atomic<std::uint64_t> freed_;  // posters read it
};

}  // namespace larklane::msg
