#pragma once
// A datatype's typemap: where the bytes of one element lie, as levels of equal steps.
// Thread safety: immutable after construction.
// Invariants (checked by Typemap::make, so by decode too):
// 1. A node's child comes before it: there are no cycles, and one pass sees children first.
// 2. A node has two repetitions or entries, or more, and no child of size 0.
// 3. No path has more than kTypeDepthMax nodes; offsets and sizes fit in 63 bits.
// 4. The nodes together have no more places, entries or members than the tables.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/status.hpp"

namespace larklane {

/// One contiguous piece of an element.
struct TypeBlock {
  std::int64_t offset_bytes;   ///< from the element's start; may be negative
  std::uint64_t length_bytes;  ///< > 0
};

/// In place of a node: one contiguous block.
inline constexpr std::uint32_t kDense = std::numeric_limits<std::uint32_t>::max();
/// Each second level at least doubles the size (base/type_builder.hpp), which has 63 bits.
inline constexpr std::uint32_t kTypeDepthMax = 128;

/// One level: the repeated part, and its places. Offsets count from the node's origin, where its
/// first byte in typemap order lies. Fixed widths: it crosses process boundaries.
struct TypeNode {
  enum class Kind : std::uint32_t {
    loop = 1,     ///< `child` `count` times, `stride` bytes apart
    places = 2,   ///< `child` at each of `count` places
    blocks = 3,   ///< `count` contiguous blocks
    members = 4,  ///< `count` different parts; the first one's node is members[child]
  };
  Kind kind;
  std::uint32_t child;  ///< a node before this one, or kDense
  std::uint64_t count;
  std::uint64_t bytes;  ///< loop, places: of one repetition; else: of all
  std::int64_t stride;  ///< loop
  std::uint64_t first;  ///< places: of its places; blocks, members: of its entries
};
static_assert(sizeof(TypeNode) == 40);

/// Where one block or member begins. After the last one of a node: its size as `start`.
struct TypeEntry {
  std::int64_t offset;
  std::uint64_t start;  ///< bytes of the node before it
};

/// Nodes, and the tables that they point into.
struct TypeTables {
  std::vector<TypeNode> nodes;
  std::vector<std::int64_t> places;
  std::vector<TypeEntry> entries;
  std::vector<std::uint32_t> members;
};

/// A block or a node somewhere in an element.
struct TypePart {
  std::uint32_t node = kDense;
  std::uint64_t bytes = 0;
  std::int64_t offset = 0;  ///< of its first byte in typemap order
};

/// Bytes of one element in typemap order. Elements follow each other at `extent_bytes`.
class Typemap {
 public:
  /// A contiguous element of `size_bytes` (MPI_BYTE is contiguous(1)).
  static Typemap contiguous(std::uint64_t size_bytes);

  /// @param blocks        in typemap order (in which bytes travel); adjacent ones are merged
  /// @param extent_bytes  distance between two elements, may be smaller than the span
  Typemap(const std::vector<TypeBlock>& blocks, std::int64_t extent_bytes);

  /// @errors kInvalidArgument: an invariant does not hold
  static Result<Typemap> make(TypeTables tables, TypePart root, std::int64_t extent_bytes);

  std::uint64_t size_bytes() const noexcept { return root_.bytes; }
  std::int64_t extent_bytes() const noexcept { return extent_bytes_; }
  /// Elements follow each other without a gap, from offset 0.
  bool is_contiguous() const noexcept { return contiguous_; }
  /// Elements follow each other without a gap.
  bool is_dense() const noexcept {
    return root_.node == kDense && static_cast<std::int64_t>(root_.bytes) == extent_bytes_;
  }
  /// Of the first byte in typemap order.
  std::int64_t offset_bytes() const noexcept { return root_.offset; }
  /// The bytes of an element lie in [low_bytes, high_bytes).
  std::int64_t low_bytes() const noexcept { return low_bytes_; }
  std::int64_t high_bytes() const noexcept { return high_bytes_; }
  /// Contiguous blocks of an element, 2^64 - 1 at most.
  std::uint64_t block_count() const noexcept { return block_count_; }

  const TypePart& root() const noexcept { return root_; }
  const TypeTables& tables() const noexcept { return tables_; }

  /// The wire form: docs/design/protocols/partitioned.md.
  std::uint64_t encoded_words() const noexcept;
  /// @param[out] words  encoded_words() of them
  void encode(std::span<std::uint64_t> words) const noexcept;
  /// @errors kProtocol: another version, cut off, or an invariant does not hold
  static Result<Typemap> decode(std::span<const std::uint64_t> words);

 private:
  Typemap() = default;

  TypeTables tables_;
  TypePart root_;
  std::int64_t extent_bytes_ = 0;
  std::int64_t low_bytes_ = 0, high_bytes_ = 0;
  std::uint64_t block_count_ = 0;
  bool contiguous_ = true;
};

/// Walks a range of packed bytes of a buffer and yields the contiguous pieces behind it.
/// Thread safety: single-owner.
class TypeCursor {
 public:
  /// O(levels), and O(log n) in a list of n places.
  /// @param base          address of element 0
  /// @param first_packed  packed bytes before the range, counted from element 0
  /// @param length_bytes  packed bytes in the range
  TypeCursor(const Typemap& type, std::uintptr_t base, std::uint64_t first_packed,
             std::uint64_t length_bytes) noexcept;

  struct Piece {
    std::uintptr_t address;
    std::uint64_t length_bytes;
  };
  /// The next piece, at most `limit_bytes` long; length 0 when the range is used up.
  Piece next(std::uint64_t limit_bytes) noexcept {
    const std::uint64_t length = std::min({limit_bytes, left_bytes_, block_bytes_ - in_block_});
    const Piece piece{block_ + in_block_, length};
    left_bytes_ -= length;
    in_block_ += length;
    if (in_block_ == block_bytes_ && left_bytes_ != 0) leave_blocks(1);
    return piece;
  }

  /// `count` blocks. Block i lies at `address` + i * `stride`, + `places[i]` or
  /// + `entries[i].offset`, if there are some; the latter say its length, too.
  struct Run {
    std::uintptr_t address;
    std::uint64_t block_bytes;
    std::uint64_t count;
    std::uint64_t stride;  ///< modulo 2^64
    const std::int64_t* places = nullptr;
    const TypeEntry* entries = nullptr;
  };
  /// The next blocks of one node; count 0 when the range is used up. A part of a block is a run of
  /// one.
  Run next_run() noexcept {
    if (in_block_ == 0 && left_bytes_ > block_bytes_) {
      if (run_left_ != 0) return next_whole_run();
      if (list_ != nullptr) return next_list_run();
    }
    const Piece piece = next(left_bytes_);
    return {piece.address, piece.length_bytes, piece.length_bytes == 0 ? 0u : 1u, 0};
  }
  std::uint64_t left_bytes() const noexcept { return left_bytes_; }

 private:
  /// A node above the current run.
  struct Level {
    const TypeNode* node;
    std::uint64_t index;     ///< of the current repetition or entry
    std::uintptr_t address;  ///< loop: of the repetition; else: of the node's origin
  };

  Run next_whole_run() noexcept;
  Run next_list_run() noexcept;
  /// `count` blocks of the run are used up.
  void leave_blocks(std::uint64_t count) noexcept {
    in_block_ = 0;
    if (run_left_ >= count) {
      run_left_ -= count;
      block_ += stride_ * count;
    } else {
      advance();
    }
  }
  void advance() noexcept;
  void seek(std::uint64_t packed) noexcept;
  void enter(std::uint32_t node, std::uintptr_t origin, std::uint64_t bytes) noexcept;
  void enter_block(std::uintptr_t address, std::uint64_t bytes,
                   const TypeNode* list = nullptr) noexcept {
    block_ = address;
    block_bytes_ = bytes;
    run_left_ = 0;
    list_ = list;
  }
  void enter_listed(const TypeNode& list, std::uintptr_t origin, std::uint64_t index) noexcept;
  void enter_loop(const TypeNode& node, std::uintptr_t origin, std::uint64_t index) noexcept;

  const Typemap* type_;
  std::uintptr_t element_;         // address of the current element's first byte
  std::uintptr_t block_ = 0;       // the current block
  std::uint64_t block_bytes_ = 0;  // its length
  std::uint64_t in_block_ = 0;     // bytes of it already used
  std::uint64_t stride_ = 0;       // to the next block of the run
  std::uint64_t run_left_ = 0;     // blocks of the run after this one
  std::uint64_t left_bytes_;
  const TypeNode* list_ = nullptr;  // the last level, if the block is one of its places or blocks
  std::uint32_t depth_ = 0;
  Level levels_[kTypeDepthMax];  // [0, depth_) are in use
};

}  // namespace larklane
