#pragma once
// Layout of send partitions in groups and group words. Pure functions.
// Thread safety: immutable after construction.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "net/immediate.hpp"

namespace larklane::part {

inline constexpr std::uint32_t kUnitsPerWord = 32;
/// A group has one root word over at most 32 leaf words; larger groups are split.
inline constexpr std::uint32_t kGroupPartitionsMax = kUnitsPerWord * kUnitsPerWord;
inline constexpr std::uint32_t kNoRoot = std::numeric_limits<std::uint32_t>::max();

/// Mask of the lowest `count` bits, count <= 32.
constexpr std::uint32_t low_mask(std::uint32_t count) noexcept {
  return count >= 32 ? ~0u : (1u << count) - 1u;
}

using net::Run;  ///< of partitions

/// Call `visit(Run)` for each maximal run of set bits, `base` being the partition of bit 0.
template <class Visit>
void for_each_run(std::uint32_t bits, std::uint32_t base, Visit&& visit) {
  while (bits != 0) {
    const auto first = static_cast<std::uint32_t>(__builtin_ctz(bits));
    const std::uint32_t shifted = bits >> first;
    const auto count = shifted == ~0u ? 32u : static_cast<std::uint32_t>(__builtin_ctz(~shifted));
    visit(Run{base + first, count});
    bits &= ~(low_mask(count) << first);
  }
}

/// A word covers up to 32 partitions: several whole groups, or a leaf of one larger group.
struct Word {
  std::uint32_t first;  ///< partition of bit 0
  std::uint32_t count;
  std::uint32_t root;    ///< the root of the larger group that this leaf belongs to, or kNoRoot
  std::uint32_t unit;    ///< this leaf's bit in the root
  std::uint32_t starts;  ///< first bit of each group; for a leaf: bit 0

  std::uint32_t full_mask() const noexcept { return low_mask(count); }
  /// All bits of the groups that are complete in `ready`. Not for leaves.
  std::uint32_t complete_groups(std::uint32_t ready) const noexcept;
};

/// The root of a group that is larger than a word: one bit per leaf.
struct Root {
  std::uint32_t first_word;
  std::uint32_t word_count;
};

/// Place of a partition's mark.
struct Cell {
  std::uint32_t word;
  std::uint32_t group_mask;  ///< bits of its group within the word; for a leaf: all bits of the
                             ///< leaf
  std::uint32_t bit_mask;    ///< its own bit
  std::uint32_t leaf_mask;   ///< bit of the leaf in the root; 0: the word is no leaf
};

/// Upper bound for the words and roots of any layout.
struct LayoutSize {
  std::uint32_t words, roots;
  /// For at most `groups` groups. @param partitions, groups  >= 1
  static LayoutSize most(std::uint32_t partitions, std::uint32_t groups) noexcept;
};

/// Groups and words of one round. Both sides derive the same ones from the boundaries.
class Layout {
 public:
  /// @param boundaries  first partition of every group, ascending, boundaries[0] == 0, all <
  /// partitions
  /// @errors kInvalidArgument
  static Result<Layout> make(std::uint32_t partitions, std::span<const std::uint32_t> boundaries);

  std::uint32_t partitions() const noexcept { return static_cast<std::uint32_t>(cells_.size()); }
  const std::vector<Word>& words() const noexcept { return words_; }
  const std::vector<Root>& roots() const noexcept { return roots_; }
  const std::vector<Cell>& cells() const noexcept { return cells_; }
  /// Does any partition wait for another one?
  bool has_groups() const noexcept { return has_groups_; }

 private:
  bool has_groups_ = false;
  std::vector<Word> words_;
  std::vector<Root> roots_;
  std::vector<Cell> cells_;
};

/// The send partitions that share bytes with one receive partition: floor(j * S / R) to ceil((j +
/// 1) * S / R) - 1. Counted in partitions, so that empty ones count too. Exact for all int
/// partition counts.
constexpr Run overlap(std::uint32_t recv_partition, std::uint32_t recv_partitions,
                      std::uint32_t send_partitions) noexcept {
  const std::uint64_t s = send_partitions;
  const std::uint64_t r = recv_partitions;
  const std::uint64_t first = recv_partition * s / r;
  const std::uint64_t end = ((recv_partition + std::uint64_t{1}) * s + r - 1) / r;
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end - first)};
}

}  // namespace larklane::part
