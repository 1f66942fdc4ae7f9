#include "part/protocol/layout.hpp"

#include <algorithm>
#include <bit>

namespace larklane::part {
namespace {

bool ascending_from_zero(std::span<const std::uint32_t> boundaries, std::uint32_t partitions) {
  if (boundaries.empty() || boundaries.front() != 0 || boundaries.back() >= partitions)
    return false;
  return std::adjacent_find(boundaries.begin(), boundaries.end(),
                            [](auto a, auto b) { return a >= b; }) == boundaries.end();
}

}  // namespace

Result<Layout> Layout::make(std::uint32_t partitions, std::span<const std::uint32_t> boundaries) {
  if (!ascending_from_zero(boundaries, partitions)) return Errc::kInvalidArgument;
  Layout layout;
  layout.cells_.resize(partitions);
  layout.has_groups_ = boundaries.size() < partitions;

  // Small groups share a word as long as they fit; only the last word may have room left.
  bool room = false;
  auto add_small = [&](Run group) {
    if (!room || layout.words_.back().count + group.count > kUnitsPerWord) {
      layout.words_.push_back({group.first, 0, kNoRoot, 0, 0});
      room = true;
    }
    Word& word = layout.words_.back();
    word.starts |= 1u << word.count;
    const std::uint32_t mask = low_mask(group.count) << word.count;
    for (std::uint32_t p = group.first; p < group.first + group.count; ++p)
      layout.cells_[p] = {static_cast<std::uint32_t>(layout.words_.size() - 1), mask,
                          1u << (p - word.first), 0};
    word.count += group.count;
  };
  auto add_large = [&](Run group) {
    room = false;
    const auto root = static_cast<std::uint32_t>(layout.roots_.size());
    const auto first_word = static_cast<std::uint32_t>(layout.words_.size());
    for (std::uint32_t done = 0; done < group.count; done += kUnitsPerWord) {
      const std::uint32_t count = std::min(kUnitsPerWord, group.count - done);
      const auto index = static_cast<std::uint32_t>(layout.words_.size());
      const std::uint32_t leaf_mask = 1u << done / kUnitsPerWord;
      layout.words_.push_back({group.first + done, count, root, done / kUnitsPerWord, 1});
      for (std::uint32_t i = 0; i < count; ++i)
        layout.cells_[group.first + done + i] = {index, low_mask(count), 1u << i, leaf_mask};
    }
    layout.roots_.push_back(
        {first_word, static_cast<std::uint32_t>(layout.words_.size()) - first_word});
  };

  for (std::size_t g = 0; g < boundaries.size(); ++g) {
    const std::uint32_t end = g + 1 < boundaries.size() ? boundaries[g + 1] : partitions;
    for (std::uint32_t first = boundaries[g]; first < end;) {
      const Run group{first, std::min(kGroupPartitionsMax, end - first)};
      group.count <= kUnitsPerWord ? add_small(group) : add_large(group);
      first += group.count;
    }
  }
  return layout;
}

std::uint32_t Word::complete_groups(std::uint32_t ready) const noexcept {
  std::uint32_t complete = 0;
  for (std::uint32_t left = ready; left != 0;) {
    const std::uint32_t up_to = left ^ (left - 1);  // its lowest bit, and the bits below
    const std::uint32_t begin = std::bit_floor(starts & up_to), after = starts & ~up_to;
    const std::uint32_t below_end = after != 0 ? (after & -after) - 1 : full_mask();
    const std::uint32_t group = below_end & ~(begin - 1);
    if ((ready & group) == group) complete |= group;
    left &= ~group;
  }
  return complete;
}

LayoutSize LayoutSize::most(std::uint32_t partitions, std::uint32_t groups) noexcept {
  // Words are emptiest if single partitions alternate with groups of 33: 34 partitions take three
  // words.
  const std::uint64_t s = partitions;
  const std::uint64_t words = std::min((3 * s + 33) / 34, s / kUnitsPerWord + groups);
  const std::uint64_t roots = std::min(s / (kUnitsPerWord + 1), s / kGroupPartitionsMax + groups);
  return {static_cast<std::uint32_t>(words), static_cast<std::uint32_t>(roots)};
}

}  // namespace larklane::part
