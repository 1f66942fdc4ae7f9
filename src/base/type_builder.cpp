#include "base/type_builder.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace larklane {
namespace {

/// Fewer parts at equal steps are not worth a node among others.
constexpr std::size_t kRunPartsMin = 4;
/// Longest pattern of different parts that is looked for, and spelled out again at a seam.
constexpr std::size_t kPeriodMax = 16;

bool are_alike(const TypePart& a, const TypePart& b) noexcept {
  return a.node == b.node && a.bytes == b.bytes;
}

/// Distances may wrap; Typemap::make checks the offsets that they lead to.
std::int64_t distance(const TypePart& from, const TypePart& to) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(to.offset) -
                                   static_cast<std::uint64_t>(from.offset));
}

std::int64_t end_of(const TypePart& dense) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(dense.offset) + dense.bytes);
}

}  // namespace

std::size_t TypeBuilder::LoopHash::operator()(const TypeNode& node) const noexcept {
  std::uint64_t hash = node.child;
  for (const std::uint64_t word : {node.count, node.bytes, static_cast<std::uint64_t>(node.stride)})
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u + (hash >> 29);
  return hash;
}

bool TypeBuilder::LoopEqual::operator()(const TypeNode& a, const TypeNode& b) const noexcept {
  return a.child == b.child && a.count == b.count && a.bytes == b.bytes && a.stride == b.stride;
}

std::uint32_t TypeBuilder::add(const TypeNode& node) {
  const auto index = static_cast<std::uint32_t>(tables_.nodes.size());
  if (index == kDense) {
    is_too_large_ = true;
    return 0;
  }
  if (node.kind == TypeNode::Kind::loop) {
    const auto [known, is_new] = loops_.emplace(node, index);
    if (!is_new) return known->second;
  }
  tables_.nodes.push_back(node);
  return index;
}

TypePart TypeBuilder::shifted(TypePart part, std::int64_t bytes) {
  if (part.bytes != 0 && __builtin_add_overflow(part.offset, bytes, &part.offset))
    is_too_large_ = true;
  return part;
}

TypePart TypeBuilder::repeated(TypePart part, std::uint64_t count, std::int64_t stride_bytes) {
  if (count == 0 || part.bytes == 0) return {};
  if (count == 1) return part;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(part.bytes, count, &bytes) ||
      bytes > std::numeric_limits<std::int64_t>::max()) {
    is_too_large_ = true;
    return {};
  }
  if (part.node == kDense && static_cast<std::int64_t>(part.bytes) == stride_bytes)
    return {kDense, bytes, part.offset};
  if (part.node != kDense) {
    TypeNode node = tables_.nodes[part.node];
    std::int64_t span = 0;
    if (node.kind == TypeNode::Kind::loop &&
        !__builtin_mul_overflow(node.stride, node.count, &span) && span == stride_bytes) {
      node.count *= count;  // the steps go on
      return {add(node), bytes, part.offset};
    }
    if (TypePart opened; open_seam(part, count, stride_bytes, &opened)) return opened;
  }
  return {add({TypeNode::Kind::loop, part.node, count, part.bytes, stride_bytes, 0}), bytes,
          part.offset};
}

/// The last block of each repetition and the first one of the next are adjacent, so they become
/// one: (a b c)(a b c)(a b c) is a (b ca)(b ca) b c.
bool TypeBuilder::open_seam(TypePart part, std::uint64_t count, std::int64_t stride_bytes,
                            TypePart* opened) {
  const TypeNode& node = tables_.nodes[part.node];
  const bool is_pair = node.kind == TypeNode::Kind::loop && node.child == kDense && node.count == 2;
  if (!is_pair && (node.kind != TypeNode::Kind::blocks || node.count > kPeriodMax)) return false;
  std::vector<TypePart> blocks;
  spell_out({part.node, part.bytes, 0}, &blocks);
  if (end_of(blocks.back()) != stride_bytes) return false;
  std::vector<TypePart> middle(blocks.begin() + 1, blocks.end());
  middle.back().bytes += blocks.front().bytes;
  std::vector<TypePart> all{blocks.front()};
  append(repeated(sequence(middle), count - 1, stride_bytes), &all);
  std::int64_t last = 0;
  if (__builtin_mul_overflow(stride_bytes, static_cast<std::int64_t>(count - 1), &last))
    return false;
  for (std::size_t i = 1; i < blocks.size(); ++i) append(shifted(blocks[i], last), &all);
  *opened = shifted(sequence(std::move(all)), part.offset);
  return true;
}

void TypeBuilder::append(TypePart part, std::vector<TypePart>* parts) {
  if (part.bytes == 0) return;
  if (!parts->empty() && part.node == kDense && parts->back().node == kDense &&
      end_of(parts->back()) == part.offset &&
      part.bytes <= std::numeric_limits<std::int64_t>::max() - parts->back().bytes)
    parts->back().bytes += part.bytes;
  else
    parts->push_back(part);
}

/// A list's blocks or members, or a short loop's repetitions; anything else as it is.
void TypeBuilder::spell_out(TypePart part, std::vector<TypePart>* parts) const {
  if (part.node == kDense) return append(part, parts);
  const TypeNode& node = tables_.nodes[part.node];
  const auto at = [&](std::int64_t offset) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(part.offset) +
                                     static_cast<std::uint64_t>(offset));
  };
  const bool is_list = node.kind == TypeNode::Kind::blocks || node.kind == TypeNode::Kind::members;
  if (is_list) {
    for (std::uint64_t i = 0; i < node.count; ++i) {
      const TypeEntry& entry = tables_.entries[node.first + i];
      const bool is_member = node.kind == TypeNode::Kind::members;
      append({is_member ? tables_.members[node.child + i] : kDense,
              tables_.entries[node.first + i + 1].start - entry.start, at(entry.offset)},
             parts);
    }
  } else if (node.kind == TypeNode::Kind::loop && node.count == 2) {
    append({node.child, node.bytes, part.offset}, parts);
    append({node.child, node.bytes, at(node.stride)}, parts);
  } else {
    append(part, parts);
  }
}

/// Are they a pattern of a few parts, again and again at equal steps?
bool TypeBuilder::find_period(const std::vector<TypePart>& parts, TypePart* found) {
  for (std::size_t period = 1; period <= kPeriodMax && 2 * period <= parts.size(); ++period) {
    const std::int64_t step = distance(parts[0], parts[period]);
    std::size_t i = 0;
    while (i + period < parts.size() && are_alike(parts[i], parts[i + period]) &&
           distance(parts[i], parts[i + period]) == step)
      ++i;
    // The remainder at the end is not a whole pattern.
    if (i + period < parts.size()) continue;
    const std::size_t left = parts.size() % period;
    if (left != 0 && parts.size() < kRunPartsMin * period) continue;
    const auto end_of_first = parts.begin() + static_cast<std::ptrdiff_t>(period);
    const std::vector<TypePart> pattern(parts.begin(), end_of_first);
    const TypePart whole = period == 1 ? pattern[0] : sequence(pattern);
    *found = repeated(whole, parts.size() / period, step);
    if (left == 0) return true;
    std::vector<TypePart> all{*found};
    all.insert(all.end(), parts.end() - static_cast<std::ptrdiff_t>(left), parts.end());
    *found = list_of(all);
    return true;
  }
  return false;
}

/// Replace neighbours that are alike and at equal steps by loops. Only where that halves the parts:
/// a list of blocks is walked faster than a list of loops.
bool TypeBuilder::find_runs(std::vector<TypePart>& parts) {
  struct Steps {
    std::size_t first, count;
  };
  const std::size_t all = parts.size();
  std::vector<Steps> found;
  for (std::size_t i = 0; i < all;) {
    std::size_t end = i + 1;
    while (end < all && are_alike(parts[i], parts[end]) &&
           distance(parts[end - 1], parts[end]) == distance(parts[i], parts[i + 1]))
      ++end;
    if (const bool is_run = end - i >= kRunPartsMin; is_run || end == i + 1) {
      found.push_back({i, end - i});
      i = end;
    } else {  // the last of them may begin a longer run
      for (; i + 1 < end; ++i) found.push_back({i, 1});
    }
    if (2 * found.size() > all) return false;
  }
  std::vector<TypePart> shorter;
  shorter.reserve(found.size());
  for (const Steps& steps : found) {
    const TypePart& part = parts[steps.first];
    shorter.push_back(steps.count == 1
                          ? part
                          : repeated(part, steps.count, distance(part, parts[steps.first + 1])));
  }
  parts = std::move(shorter);
  return true;
}

TypePart TypeBuilder::sequence(std::vector<TypePart> parts) {
  for (;;) {
    if (parts.empty()) return {};
    if (parts.size() == 1) return parts[0];
    if (TypePart found; find_period(parts, &found)) return found;
    if (!find_runs(parts)) break;
  }
  const bool all_alike = std::all_of(
      parts.begin(), parts.end(), [&](const TypePart& part) { return are_alike(part, parts[0]); });
  return all_alike ? places_of(parts) : list_of(parts);
}

TypePart TypeBuilder::places_of(const std::vector<TypePart>& parts) {
  const TypeNode node{TypeNode::Kind::places, parts[0].node, parts.size(), parts[0].bytes, 0,
                      tables_.places.size()};
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(node.bytes, node.count, &bytes)) is_too_large_ = true;
  for (const TypePart& part : parts) tables_.places.push_back(distance(parts[0], part));
  return {add(node), bytes, parts[0].offset};
}

TypePart TypeBuilder::list_of(const std::vector<TypePart>& parts) {
  std::vector<TypePart> flat;
  flat.reserve(parts.size());
  bool has_members = false;
  for (const TypePart& part : parts) {
    const bool is_loop =
        part.node != kDense && tables_.nodes[part.node].kind == TypeNode::Kind::loop;
    is_loop ? flat.push_back(part) : spell_out(part, &flat);
  }
  if (flat.size() == 1) return flat[0];
  for (const TypePart& part : flat) has_members |= part.node != kDense;
  TypeNode node{has_members ? TypeNode::Kind::members : TypeNode::Kind::blocks,
                has_members ? static_cast<std::uint32_t>(tables_.members.size()) : kDense,
                flat.size(),
                0,
                0,
                tables_.entries.size()};
  if (tables_.members.size() + flat.size() >= kDense) is_too_large_ = true;
  for (const TypePart& part : flat) {
    tables_.entries.push_back({distance(flat[0], part), node.bytes});
    if (has_members) tables_.members.push_back(part.node);
    if (__builtin_add_overflow(node.bytes, part.bytes, &node.bytes)) is_too_large_ = true;
  }
  tables_.entries.push_back({0, node.bytes});
  return {add(node), node.bytes, flat[0].offset};
}

/// Without the intermediate tables.
TypeTables TypeBuilder::reachable_from(TypePart* root) const {
  TypeTables kept;
  if (root->node == kDense) return kept;
  std::vector<std::uint32_t> number(tables_.nodes.size(), kDense);  // kDense: not reached
  number[root->node] = 0;
  for (std::size_t i = root->node + std::size_t{1}; i-- > 0;) {
    if (number[i] == kDense) continue;
    const TypeNode& node = tables_.nodes[i];
    const auto reach = [&](std::uint32_t child) {
      if (child != kDense) number[child] = 0;
    };
    if (node.kind == TypeNode::Kind::members)
      std::for_each_n(tables_.members.begin() + node.child, node.count, reach);
    else if (node.kind != TypeNode::Kind::blocks)
      reach(node.child);
  }
  const auto renumbered = [&](std::uint32_t child) {
    return child == kDense ? kDense : number[child];
  };
  for (std::size_t i = 0; i <= root->node; ++i) {
    if (number[i] == kDense) continue;
    TypeNode node = tables_.nodes[i];
    if (node.kind == TypeNode::Kind::members) {
      const auto begin = tables_.members.begin() + node.child;
      node.child = static_cast<std::uint32_t>(kept.members.size());
      std::transform(begin, begin + static_cast<std::ptrdiff_t>(node.count),
                     std::back_inserter(kept.members), renumbered);
    } else {
      node.child = renumbered(node.child);
    }
    if (node.kind == TypeNode::Kind::places) {
      const auto begin = tables_.places.begin() + static_cast<std::ptrdiff_t>(node.first);
      node.first = kept.places.size();
      kept.places.insert(kept.places.end(), begin, begin + static_cast<std::ptrdiff_t>(node.count));
    } else if (node.kind != TypeNode::Kind::loop) {
      const auto begin = tables_.entries.begin() + static_cast<std::ptrdiff_t>(node.first);
      node.first = kept.entries.size();
      kept.entries.insert(kept.entries.end(), begin,
                          begin + static_cast<std::ptrdiff_t>(node.count + 1));
    }
    number[i] = static_cast<std::uint32_t>(kept.nodes.size());
    kept.nodes.push_back(node);
  }
  root->node = number[root->node];
  return kept;
}

Result<Typemap> TypeBuilder::build(TypePart root, std::int64_t extent_bytes) {
  if (is_too_large_) return Errc::kInvalidArgument;
  TypeTables kept = reachable_from(&root);
  tables_ = {};
  loops_.clear();
  if (root.bytes == 0) root = {};
  return Typemap::make(std::move(kept), root, extent_bytes);
}

}  // namespace larklane
