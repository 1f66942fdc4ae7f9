#include "base/typemap.hpp"

#include <cstring>
#include <utility>

#include "base/type_builder.hpp"

namespace larklane {
namespace {

__extension__ using Wide = __int128;

constexpr std::uint64_t kBytesMax = std::numeric_limits<std::int64_t>::max();

bool fits(Wide value) noexcept {
  return value >= std::numeric_limits<std::int64_t>::min() &&
         value <= std::numeric_limits<std::int64_t>::max();
}

/// Figures of a node and all below it.
struct Measure {
  std::uint64_t bytes = 0;
  std::int64_t low = 0, high = 0;  ///< of its bytes, from its origin
  std::uint64_t blocks = 1;
  std::uint32_t depth = 0;
};

std::uint64_t product_at_most(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? ~std::uint64_t{0} : product;
}

/// Measures the nodes in order, and finds each violation of an invariant. Thread safety:
/// single-owner.
class Measurer {
 public:
  explicit Measurer(const TypeTables& tables) : tables_(tables) {
    known_.reserve(tables.nodes.size());
  }

  bool all() {
    for (const TypeNode& node : tables_.nodes) {
      Measure measure;
      if (!of_node(node, measure)) return false;
      known_.push_back(measure);
    }
    return true;
  }

  /// Of a child with `bytes`; false: there is none such.
  bool of_child(std::uint32_t node, std::uint64_t bytes, Measure& found) const {
    if (bytes == 0 || bytes > kBytesMax) return false;
    if (node == kDense) {
      found = {bytes, 0, static_cast<std::int64_t>(bytes), 1, 0};
      return true;
    }
    if (node >= known_.size() || known_[node].bytes != bytes) return false;
    found = known_[node];
    return true;
  }

 private:
  bool of_node(const TypeNode& node, Measure& measure) {
    if (node.count < 2) return false;
    switch (node.kind) {
      case TypeNode::Kind::loop:
      case TypeNode::Kind::places:
        return of_repeated(node, measure);
      case TypeNode::Kind::blocks:
      case TypeNode::Kind::members:
        return of_list(node, measure);
    }
    return false;
  }

  bool of_repeated(const TypeNode& node, Measure& measure) {
    Measure child;
    if (!of_child(node.child, node.bytes, child)) return false;
    if (__builtin_mul_overflow(node.bytes, node.count, &measure.bytes) || measure.bytes > kBytesMax)
      return false;
    Wide first = 0, last = 0;
    if (node.kind == TypeNode::Kind::loop) {
      const Wide end = static_cast<Wide>(node.count - 1) * node.stride;
      first = std::min<Wide>(0, end);
      last = std::max<Wide>(0, end);
    } else {
      if (!takes(node.first, node.count, tables_.places.size(), places_taken_)) return false;
      const auto begin = tables_.places.begin() + static_cast<std::ptrdiff_t>(node.first);
      const auto [least, most] =
          std::minmax_element(begin, begin + static_cast<std::ptrdiff_t>(node.count));
      first = *least;
      last = *most;
    }
    measure.blocks = product_at_most(child.blocks, node.count);
    return finish(measure, first + child.low, last + child.high, child.depth);
  }

  bool of_list(const TypeNode& node, Measure& measure) {
    const bool has_members = node.kind == TypeNode::Kind::members;
    if (node.count == ~std::uint64_t{0}) return false;
    // One more entry says where the last one ends.
    if (!takes(node.first, node.count + 1, tables_.entries.size(), entries_taken_)) return false;
    if (has_members && !takes(node.child, node.count, tables_.members.size(), members_taken_))
      return false;
    const TypeEntry* const entries = tables_.entries.data() + node.first;
    if (entries[0].start != 0 || entries[node.count].start != node.bytes) return false;
    Wide low = entries[0].offset, high = low;
    std::uint32_t depth = 0;
    measure.blocks = 0;
    for (std::uint64_t i = 0; i < node.count; ++i) {
      Measure child;
      if (entries[i + 1].start <= entries[i].start ||
          !of_child(has_members ? tables_.members[node.child + i] : kDense,
                    entries[i + 1].start - entries[i].start, child))
        return false;
      low = std::min(low, static_cast<Wide>(entries[i].offset) + child.low);
      high = std::max(high, static_cast<Wide>(entries[i].offset) + child.high);
      depth = std::max(depth, child.depth);
      if (__builtin_add_overflow(measure.blocks, child.blocks, &measure.blocks))
        measure.blocks = ~std::uint64_t{0};
    }
    measure.bytes = node.bytes;
    return finish(measure, low, high, depth);
  }

  /// Each node takes rows of its own: nodes that share rows would cost more time than they have
  /// words. @return `count` rows from `first` are in the table, and as many are left
  static bool takes(std::uint64_t first, std::uint64_t count, std::size_t rows,
                    std::uint64_t& taken) noexcept {
    if (first > rows || count > rows - first || count > rows - taken) return false;
    taken += count;
    return true;
  }

  static bool finish(Measure& measure, Wide low, Wide high, std::uint32_t child_depth) {
    if (!fits(low) || !fits(high) || child_depth >= kTypeDepthMax || measure.bytes > kBytesMax)
      return false;
    measure.low = static_cast<std::int64_t>(low);
    measure.high = static_cast<std::int64_t>(high);
    measure.depth = child_depth + 1;
    return true;
  }

  const TypeTables& tables_;
  std::vector<Measure> known_;
  std::uint64_t places_taken_ = 0, entries_taken_ = 0, members_taken_ = 0;
};

}  // namespace

Typemap Typemap::contiguous(std::uint64_t size_bytes) {
  Typemap type;
  type.root_.bytes = size_bytes;
  type.extent_bytes_ = type.high_bytes_ = static_cast<std::int64_t>(size_bytes);
  type.block_count_ = size_bytes == 0 ? 0 : 1;
  return type;
}

Typemap::Typemap(const std::vector<TypeBlock>& blocks, std::int64_t extent_bytes) {
  TypeBuilder builder;
  std::vector<TypePart> parts;
  for (const TypeBlock& block : blocks)
    TypeBuilder::append(TypeBuilder::dense(block.offset_bytes, block.length_bytes), &parts);
  auto made = builder.build(builder.sequence(std::move(parts)), extent_bytes);
  if (made) *this = std::move(made).value();
}

Result<Typemap> Typemap::make(TypeTables tables, TypePart root, std::int64_t extent_bytes) {
  Typemap type;
  type.extent_bytes_ = extent_bytes;
  type.root_ = root;
  if (root.bytes == 0) {
    if (root.node != kDense || !tables.nodes.empty()) return Errc::kInvalidArgument;
    return type;
  }
  Measurer measurer(tables);
  Measure measure;
  if (!measurer.all() || !measurer.of_child(root.node, root.bytes, measure))
    return Errc::kInvalidArgument;
  const Wide low = Wide{root.offset} + measure.low, high = Wide{root.offset} + measure.high;
  if (!fits(low) || !fits(high)) return Errc::kInvalidArgument;
  type.low_bytes_ = static_cast<std::int64_t>(low);
  type.high_bytes_ = static_cast<std::int64_t>(high);
  type.block_count_ = measure.blocks;
  type.tables_ = std::move(tables);
  type.contiguous_ = type.is_dense() && root.offset == 0;
  return type;
}

namespace {

bool is_listed(const TypeNode& node) noexcept {
  return node.kind == TypeNode::Kind::blocks ||
         (node.kind == TypeNode::Kind::places && node.child == kDense);
}

}  // namespace

TypeCursor::TypeCursor(const Typemap& type, std::uintptr_t base, std::uint64_t first_packed,
                       std::uint64_t length_bytes) noexcept
    : type_(&type),
      element_(base + static_cast<std::uintptr_t>(type.offset_bytes())),
      left_bytes_(type.size_bytes() == 0 ? 0 : length_bytes) {
  if (left_bytes_ == 0) return;
  if (type.is_dense()) {
    enter_block(element_ + first_packed, left_bytes_);
    return;
  }
  const std::uint64_t size = type.size_bytes();
  const std::uint64_t index = first_packed < size ? 0 : first_packed / size;
  // Addresses are computed modulo 2^64, so that negative offsets and extents need no case of their
  // own.
  element_ += index * static_cast<std::uintptr_t>(type.extent_bytes());
  seek(first_packed - index * size);
}

void TypeCursor::enter_loop(const TypeNode& node, std::uintptr_t origin,
                            std::uint64_t index) noexcept {
  stride_ = static_cast<std::uint64_t>(node.stride);
  block_ = origin + index * stride_;
  block_bytes_ = node.bytes;
  run_left_ = node.count - 1 - index;
  list_ = nullptr;
}

/// One of the places or blocks of a node of contiguous blocks.
void TypeCursor::enter_listed(const TypeNode& list, std::uintptr_t origin,
                              std::uint64_t index) noexcept {
  const TypeTables& tables = type_->tables();
  if (list.kind == TypeNode::Kind::places) {
    const std::int64_t place = tables.places[list.first + index];
    return enter_block(origin + static_cast<std::uintptr_t>(place), list.bytes, &list);
  }
  const TypeEntry* const entry = tables.entries.data() + list.first + index;
  enter_block(origin + static_cast<std::uintptr_t>(entry->offset), entry[1].start - entry->start,
              &list);
}

/// Go down to the block of the element's byte `packed`.
void TypeCursor::seek(std::uint64_t packed) noexcept {
  const TypeTables& tables = type_->tables();
  std::uint32_t at = type_->root().node;
  std::uint64_t bytes = type_->root().bytes;
  std::uintptr_t origin = element_;
  const TypeNode* list = nullptr;
  while (at != kDense) {
    const TypeNode& node = tables.nodes[at];
    Level level{&node, 0, origin};
    list = is_listed(node) ? &node : nullptr;
    at = node.child;
    switch (node.kind) {
      case TypeNode::Kind::loop:
      case TypeNode::Kind::places:
        level.index = packed < node.bytes ? 0 : packed / node.bytes;
        packed -= level.index * node.bytes;
        bytes = node.bytes;
        if (node.kind == TypeNode::Kind::places) {
          origin += static_cast<std::uintptr_t>(tables.places[node.first + level.index]);
        } else if (node.child == kDense) {
          enter_loop(node, origin, level.index);
          in_block_ = packed;
          return;
        } else {
          level.address = origin += level.index * static_cast<std::uintptr_t>(node.stride);
        }
        break;
      case TypeNode::Kind::blocks:
      case TypeNode::Kind::members: {
        const TypeEntry* const entries = tables.entries.data() + node.first;
        const auto after = std::upper_bound(
            entries, entries + node.count, packed,
            [](std::uint64_t value, const TypeEntry& entry) { return value < entry.start; });
        level.index = static_cast<std::uint64_t>(after - entries) - 1;
        const TypeEntry& entry = entries[level.index];
        bytes = after->start - entry.start;
        packed -= entry.start;
        origin += static_cast<std::uintptr_t>(entry.offset);
        at =
            node.kind == TypeNode::Kind::blocks ? kDense : tables.members[node.child + level.index];
        break;
      }
    }
    levels_[depth_++] = level;
  }
  enter_block(origin, bytes, list);
  in_block_ = packed;
  if (depth_ == 0) {  // one block an element: the elements are the run
    stride_ = static_cast<std::uint64_t>(type_->extent_bytes());
    run_left_ = ~std::uint64_t{0};
  }
}

/// Go down to the first block of a node.
void TypeCursor::enter(std::uint32_t at, std::uintptr_t origin, std::uint64_t bytes) noexcept {
  const TypeTables& tables = type_->tables();
  while (at != kDense) {
    const TypeNode& node = tables.nodes[at];
    if (node.kind == TypeNode::Kind::loop && node.child == kDense)
      return enter_loop(node, origin, 0);
    levels_[depth_++] = {&node, 0, origin};
    if (is_listed(node)) return enter_listed(node, origin, 0);
    at = node.child;
    bytes = node.bytes;
    if (node.kind == TypeNode::Kind::places) {
      origin += static_cast<std::uintptr_t>(tables.places[node.first]);
    } else if (node.kind != TypeNode::Kind::loop) {
      const TypeEntry* const entry = tables.entries.data() + node.first;
      origin += static_cast<std::uintptr_t>(entry->offset);
      bytes = entry[1].start;
      at = tables.members[node.child];
    }
  }
  enter_block(origin, bytes);
}

/// The run is used up: go to the next one.
void TypeCursor::advance() noexcept {
  const TypeTables& tables = type_->tables();
  for (; depth_ != 0; --depth_) {
    Level& level = levels_[depth_ - 1];
    const TypeNode& node = *level.node;
    if (++level.index == node.count) continue;
    if (is_listed(node)) return enter_listed(node, level.address, level.index);
    switch (node.kind) {
      case TypeNode::Kind::loop:
        level.address += static_cast<std::uintptr_t>(node.stride);
        return enter(node.child, level.address, node.bytes);
      case TypeNode::Kind::places:
        return enter(
            node.child,
            level.address + static_cast<std::uintptr_t>(tables.places[node.first + level.index]),
            node.bytes);
      case TypeNode::Kind::blocks:
      case TypeNode::Kind::members: {
        const TypeEntry* const entry = tables.entries.data() + node.first + level.index;
        return enter(tables.members[node.child + level.index],
                     level.address + static_cast<std::uintptr_t>(entry->offset),
                     entry[1].start - entry->start);
      }
    }
  }
  element_ += static_cast<std::uintptr_t>(type_->extent_bytes());
  enter(type_->root().node, element_, type_->root().bytes);
}

TypeCursor::Run TypeCursor::next_whole_run() noexcept {
  Run run{block_, block_bytes_, run_left_ + 1, stride_};
  std::uint64_t bytes = 0;
  // Elements as a run have no last one: their count wraps to 0.
  if (run.count == 0 || __builtin_mul_overflow(run.count, block_bytes_, &bytes) ||
      bytes > left_bytes_) {
    run.count = left_bytes_ / block_bytes_;
    bytes = run.count * block_bytes_;
  }
  left_bytes_ -= bytes;
  if (left_bytes_ != 0) leave_blocks(run.count);
  return run;
}

/// The range has more than the current block of the list.
TypeCursor::Run TypeCursor::next_list_run() noexcept {
  const TypeNode& list = *list_;
  Level& level = levels_[depth_ - 1];
  Run run{level.address, block_bytes_, list.count - level.index, 0};
  std::uint64_t bytes = 0;
  if (list.kind == TypeNode::Kind::places) {
    run.places = type_->tables().places.data() + list.first + level.index;
    if (bytes = run.count * block_bytes_; bytes > left_bytes_) {
      run.count = left_bytes_ / block_bytes_;
      bytes = run.count * block_bytes_;
    }
  } else {
    const TypeEntry* const entries = type_->tables().entries.data() + list.first + level.index;
    run.entries = entries;
    if (bytes = entries[run.count].start - entries[0].start; bytes > left_bytes_) {
      const auto after = std::upper_bound(
          entries, entries + run.count, entries[0].start + left_bytes_,
          [](std::uint64_t value, const TypeEntry& entry) { return value < entry.start; });
      run.count = static_cast<std::uint64_t>(after - entries) - 1;
      bytes = entries[run.count].start - entries[0].start;
    }
  }
  level.index += run.count - 1;
  left_bytes_ -= bytes;
  if (left_bytes_ == 0) return run;
  if (depth_ == 1 && level.index + 1 == list.count) {  // the next element begins with the same list
    element_ += static_cast<std::uintptr_t>(type_->extent_bytes());
    level = {&list, 0, element_};
    enter_listed(list, element_, 0);
  } else {
    advance();
  }
  return run;
}

}  // namespace larklane
