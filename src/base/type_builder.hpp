#pragma once
// Makes typemaps: parts are repeated and put in sequence, and equal steps become levels.

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "base/typemap.hpp"

namespace larklane {

/// Thread safety: single-owner.
/// Invariants:
/// 1. A list of blocks or members is never a member of another list: it is spelled out there. So
/// each second level of a path repeats at least twice, and no path is longer than kTypeDepthMax.
/// 2. All bytes in one contiguous stretch are a dense part, however they were put together.
class TypeBuilder {
 public:
  static TypePart dense(std::int64_t offset_bytes, std::uint64_t length_bytes) {
    return {kDense, length_bytes, offset_bytes};
  }
  TypePart shifted(TypePart part, std::int64_t bytes);
  /// `count` times `part`, `stride_bytes` apart.
  TypePart repeated(TypePart part, std::uint64_t count, std::int64_t stride_bytes);

  /// Put `part` behind `parts`. Parts without bytes are left out, adjacent blocks are merged.
  static void append(TypePart part, std::vector<TypePart>* parts);
  /// All appended parts, in this order. O(parts).
  TypePart sequence(std::vector<TypePart> parts);

  /// The builder is used up.
  /// @errors kInvalidArgument: sizes or offsets need more than 63 bits
  Result<Typemap> build(TypePart root, std::int64_t extent_bytes);

 private:
  struct LoopHash {
    std::size_t operator()(const TypeNode& node) const noexcept;
  };
  struct LoopEqual {
    bool operator()(const TypeNode& a, const TypeNode& b) const noexcept;
  };

  std::uint32_t add(const TypeNode& node);
  bool open_seam(TypePart part, std::uint64_t count, std::int64_t stride_bytes, TypePart* opened);
  void spell_out(TypePart part, std::vector<TypePart>* parts) const;
  bool find_period(const std::vector<TypePart>& parts, TypePart* found);
  bool find_runs(std::vector<TypePart>& parts);
  TypePart places_of(const std::vector<TypePart>& parts);
  TypePart list_of(const std::vector<TypePart>& parts);
  TypeTables reachable_from(TypePart* root) const;

  TypeTables tables_;
  std::unordered_map<TypeNode, std::uint32_t, LoopHash, LoopEqual> loops_;  ///< equal ones are one
  bool is_too_large_ = false;
};

}  // namespace larklane
