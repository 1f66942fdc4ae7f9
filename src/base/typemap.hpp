#pragma once
// A datatype flattened once: where the bytes of one element lie.
// Thread safety: immutable after construction.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace larklane {

/// One contiguous piece of an element.
struct TypeBlock {
  std::int64_t offset_bytes;   ///< from the element's start; may be negative
  std::uint64_t length_bytes;  ///< > 0
};

/// Bytes of one element in typemap order. Elements follow each other at `extent_bytes`.
class Typemap {
 public:
  /// A contiguous element of `size_bytes` (MPI_BYTE is contiguous(1)).
  static Typemap contiguous(std::uint64_t size_bytes);

  /// @param blocks        in typemap order (in which bytes travel); adjacent ones are merged
  /// @param extent_bytes  distance between two elements, may be smaller than the span
  Typemap(std::vector<TypeBlock> blocks, std::int64_t extent_bytes);

  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  std::int64_t extent_bytes() const noexcept { return extent_bytes_; }
  /// Elements follow each other without a gap, from offset 0.
  bool is_contiguous() const noexcept { return contiguous_; }
  const std::vector<TypeBlock>& blocks() const noexcept { return blocks_; }
  /// Packed offset at which each block starts; same length as blocks().
  const std::vector<std::uint64_t>& starts() const noexcept { return starts_; }

 private:
  std::vector<TypeBlock> blocks_;
  std::vector<std::uint64_t> starts_;
  std::uint64_t size_bytes_ = 0;
  std::int64_t extent_bytes_ = 0;
  bool contiguous_ = true;
};

/// Walks a range of packed bytes of a buffer and yields the contiguous pieces behind it.
/// Thread safety: single-owner.
class TypeCursor {
 public:
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
  Piece next(std::uint64_t limit_bytes) noexcept;
  std::uint64_t left_bytes() const noexcept { return left_bytes_; }

 private:
  const Typemap* type_;
  std::uintptr_t element_;      // address of the current element
  std::size_t block_ = 0;       // block within it
  std::uint64_t in_block_ = 0;  // bytes of the block already used
  std::uint64_t left_bytes_;
};

}  // namespace larklane
