#include "base/typemap.hpp"

#include <algorithm>
#include <utility>

namespace larklane {
namespace {

/// One block as long as the extent: the pieces of all elements follow each other without a gap.
bool is_dense(const Typemap& type) noexcept {
  return type.blocks().size() == 1 && type.extent_bytes() > 0 &&
         type.blocks()[0].length_bytes == static_cast<std::uint64_t>(type.extent_bytes());
}

/// Addresses are computed modulo 2^64, so that negative offsets and extents need no case of their
/// own.
std::uintptr_t shifted(std::uintptr_t address, std::int64_t offset_bytes) noexcept {
  return address + static_cast<std::uintptr_t>(offset_bytes);
}

}  // namespace

Typemap Typemap::contiguous(std::uint64_t size_bytes) {
  return Typemap({{0, size_bytes}}, static_cast<std::int64_t>(size_bytes));
}

Typemap::Typemap(std::vector<TypeBlock> blocks, std::int64_t extent_bytes)
    : extent_bytes_(extent_bytes) {
  blocks_.reserve(blocks.size());
  starts_.reserve(blocks.size());
  for (const TypeBlock& block : blocks) {
    if (block.length_bytes == 0) continue;
    const bool adjacent =
        !blocks_.empty() &&
        blocks_.back().offset_bytes + static_cast<std::int64_t>(blocks_.back().length_bytes) ==
            block.offset_bytes;
    if (adjacent) {
      blocks_.back().length_bytes += block.length_bytes;
    } else {
      blocks_.push_back(block);
      starts_.push_back(size_bytes_);
    }
    size_bytes_ += block.length_bytes;
  }
  contiguous_ = size_bytes_ == 0 || (is_dense(*this) && blocks_[0].offset_bytes == 0);
}

TypeCursor::TypeCursor(const Typemap& type, std::uintptr_t base, std::uint64_t first_packed,
                       std::uint64_t length_bytes) noexcept
    : type_(&type), element_(base), left_bytes_(type.size_bytes() == 0 ? 0 : length_bytes) {
  if (left_bytes_ == 0) return;
  const std::uint64_t index = first_packed / type.size_bytes();
  const std::uint64_t packed = first_packed % type.size_bytes();
  element_ =
      base + static_cast<std::uintptr_t>(index) * static_cast<std::uintptr_t>(type.extent_bytes());
  const auto after = std::upper_bound(type.starts().begin(), type.starts().end(), packed);
  block_ = static_cast<std::size_t>(after - type.starts().begin()) - 1;
  in_block_ = packed - type.starts()[block_];
}

TypeCursor::Piece TypeCursor::next(std::uint64_t limit_bytes) noexcept {
  if (left_bytes_ == 0) return {0, 0};
  const TypeBlock& block = type_->blocks()[block_];
  const std::uintptr_t address = shifted(element_, block.offset_bytes) + in_block_;
  std::uint64_t length = std::min(limit_bytes, left_bytes_);
  if (is_dense(*type_)) {
    in_block_ += length;  // runs on through the elements
  } else {
    length = std::min(length, block.length_bytes - in_block_);
    in_block_ += length;
    if (in_block_ == block.length_bytes) {
      in_block_ = 0;
      if (++block_ == type_->blocks().size()) {
        block_ = 0;
        element_ = shifted(element_, type_->extent_bytes());
      }
    }
  }
  left_bytes_ -= length;
  return {address, length};
}

}  // namespace larklane
