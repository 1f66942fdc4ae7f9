// A TypeBuilder's parts against a plain list of blocks: the same bytes in the same order, from any
// first byte, however few levels remain; and the cost of the levels.

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/type_builder.hpp"
#include "base/typemap.hpp"

namespace larklane {
namespace {

constexpr std::uintptr_t kBase = std::uintptr_t{1} << 40;
constexpr std::size_t kModelBytesMax = 600;

/// The address of every packed byte of a part, from the element's start.
using Model = std::vector<std::int64_t>;

/// A part and the model of it.
struct Both {
  TypePart part;
  Model model;
};

Model repeated(const Model& model, std::uint64_t count, std::int64_t stride) {
  Model all;
  for (std::uint64_t i = 0; i < count; ++i)
    for (const std::int64_t at : model) all.push_back(at + static_cast<std::int64_t>(i) * stride);
  return all;
}

/// The old flattening: all blocks one by one, adjacent ones merged.
std::uint64_t merged_blocks(const Model& model) {
  std::uint64_t blocks = 0;
  for (std::size_t i = 0; i < model.size(); ++i)
    if (i == 0 || model[i] != model[i - 1] + 1) ++blocks;
  return blocks;
}

Model walked(TypeCursor cursor, std::uint64_t limit_bytes) {
  Model all;
  for (;;) {
    const TypeCursor::Piece piece = cursor.next(limit_bytes);
    if (piece.length_bytes == 0) return all;
    EXPECT_LE(piece.length_bytes, limit_bytes);
    for (std::uint64_t i = 0; i < piece.length_bytes; ++i)
      all.push_back(static_cast<std::int64_t>(piece.address + i - kBase));
  }
}

void append_run(const TypeCursor::Run& run, Model* all) {
  for (std::uint64_t b = 0; b < run.count; ++b) {
    std::uint64_t bytes = run.block_bytes;
    std::uintptr_t address = run.address + b * run.stride;
    if (run.places != nullptr) address += static_cast<std::uintptr_t>(run.places[b]);
    if (run.entries != nullptr) {
      address += static_cast<std::uintptr_t>(run.entries[b].offset);
      bytes = run.entries[b + 1].start - run.entries[b].start;
    }
    EXPECT_NE(bytes, 0U);
    for (std::uint64_t i = 0; i < bytes; ++i)
      all->push_back(static_cast<std::int64_t>(address + i - kBase));
  }
}

Model walked_by_runs(TypeCursor cursor) {
  Model all;
  for (;;) {
    const TypeCursor::Run run = cursor.next_run();
    if (run.count == 0) return all;
    append_run(run, &all);
  }
}

/// Runs and pieces taken in turns.
Model walked_by_both(TypeCursor cursor, std::mt19937& random) {
  Model all;
  while (cursor.left_bytes() != 0) {
    if (random() % 2 == 0) {
      const TypeCursor::Piece piece = cursor.next(1 + random() % 7);
      for (std::uint64_t i = 0; i < piece.length_bytes; ++i)
        all.push_back(static_cast<std::int64_t>(piece.address + i - kBase));
    } else {
      append_run(cursor.next_run(), &all);
    }
  }
  return all;
}

/// From every byte of three elements to every later one, if there are few; else from random ones.
void expect_like_model(const Typemap& type, const Model& element, std::mt19937& random) {
  const Model model = repeated(element, 3, type.extent_bytes());
  ASSERT_EQ(type.size_bytes(), element.size());
  ASSERT_EQ(walked(TypeCursor(type, kBase, 0, model.size()), UINT64_MAX), model);
  const auto compare = [&](std::size_t first, std::size_t length) {
    const Model expected(model.begin() + static_cast<std::ptrdiff_t>(first),
                         model.begin() + static_cast<std::ptrdiff_t>(first + length));
    const TypeCursor cursor(type, kBase, first, length);
    ASSERT_EQ(walked(cursor, UINT64_MAX), expected) << first << " " << length;
    ASSERT_EQ(walked(cursor, 3), expected) << first << " " << length;
    ASSERT_EQ(walked_by_runs(cursor), expected) << first << " " << length;
    ASSERT_EQ(walked_by_both(cursor, random), expected) << first << " " << length;
  };
  if (model.size() <= 24) {
    for (std::size_t first = 0; first <= model.size(); ++first)
      for (std::size_t length = 0; first + length <= model.size(); ++length) compare(first, length);
    return;
  }
  for (int i = 0; i < 25; ++i) {
    const std::size_t first = random() % model.size();
    compare(first, random() % (model.size() - first + 1));
  }
}

std::vector<std::uint64_t> encoded(const Typemap& type) {
  std::vector<std::uint64_t> words(type.encoded_words());
  type.encode(words);
  return words;
}

/// Random nested parts, as MPI's constructors make them. Thread safety: single-owner.
class Maker {
 public:
  explicit Maker(std::uint32_t seed) : random_(seed) {}

  int draw(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1));
  }
  std::mt19937& random() { return random_; }

  Both make(int depth) {
    if (depth == 0) return dense();
    Both inner = make(draw(0, depth - 1));
    switch (draw(0, 5)) {
      case 0:
        return repeated_part(inner, draw(0, 4), draw(-40, 60));
      case 1:  // a vector: blocks of repetitions without a gap
        inner = repeated_part(inner, draw(1, 3), static_cast<int>(inner.model.size()));
        return repeated_part(inner, draw(1, 9), draw(-30, 90));
      case 2:
        return indexed(inner);
      case 3:
        return pattern(depth);
      case 4:
        return members(depth);
      default: {  // repetitions that touch each other
        const std::int64_t end =
            inner.model.empty() ? 4 : inner.model.back() + 1 - inner.model.front();
        return repeated_part(inner, draw(2, 5), static_cast<int>(end));
      }
    }
  }

  TypeBuilder& builder() { return builder_; }

 private:
  Both dense() {
    const int offset = draw(-9, 9), length = draw(0, 6);
    Both both{TypeBuilder::dense(offset, static_cast<std::uint64_t>(length)), {}};
    for (int i = 0; i < length; ++i) both.model.push_back(offset + i);
    return both;
  }
  Both repeated_part(const Both& inner, int count, int stride) {
    if (inner.model.size() * static_cast<std::size_t>(count) > kModelBytesMax) return inner;
    return {builder_.repeated(inner.part, static_cast<std::uint64_t>(count), stride),
            repeated(inner.model, static_cast<std::uint64_t>(count), stride)};
  }
  void add(const Both& both, int offset, std::vector<TypePart>* parts, Model* model) {
    TypeBuilder::append(builder_.shifted(both.part, offset), parts);
    for (const std::int64_t at : both.model) model->push_back(at + offset);
  }
  /// Some steps equal, some not.
  Both indexed(const Both& inner) {
    std::vector<TypePart> parts;
    Both both;
    int at = draw(-20, 20), step = draw(-8, 24);
    for (int left = draw(1, 12); left != 0; --left) {
      if (both.model.size() + inner.model.size() > kModelBytesMax) break;
      add(inner, at, &parts, &both.model);
      if (draw(0, 3) == 0) step = draw(-8, 24);
      at += step;
    }
    both.part = builder_.sequence(std::move(parts));
    return both;
  }
  /// A few parts again and again.
  Both pattern(int depth) {
    std::vector<Both> few;
    for (int left = draw(1, 3); left != 0; --left) few.push_back(make(draw(0, depth - 1)));
    std::vector<TypePart> parts;
    Both both;
    const int step = draw(10, 80), times = draw(1, 6);
    for (int i = 0; i < times * static_cast<int>(few.size()) + draw(0, 1); ++i) {
      const Both& one = few[static_cast<std::size_t>(i) % few.size()];
      if (both.model.size() + one.model.size() > kModelBytesMax) break;
      add(one, i / static_cast<int>(few.size()) * step + 7 * (i % static_cast<int>(few.size())),
          &parts, &both.model);
    }
    both.part = builder_.sequence(std::move(parts));
    return both;
  }
  Both members(int depth) {
    std::vector<TypePart> parts;
    Both both;
    for (int left = draw(1, 4); left != 0; --left) {
      const Both one = make(draw(0, depth - 1));
      if (both.model.size() + one.model.size() > kModelBytesMax) break;
      add(one, draw(-50, 50), &parts, &both.model);
    }
    both.part = builder_.sequence(std::move(parts));
    return both;
  }

  std::mt19937 random_;
  TypeBuilder builder_;
};

TEST(TypeBuilder, RandomNestedTypesWalkLikeTheModel) {
  for (std::uint32_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    Maker maker(seed);
    const Both both = maker.make(static_cast<int>(seed % 6));
    const std::int64_t extent = maker.draw(-20, 200);
    auto type = maker.builder().build(both.part, extent);
    ASSERT_TRUE(type.has_value());
    const Typemap& map = *type;
    ASSERT_NO_FATAL_FAILURE(expect_like_model(map, both.model, maker.random()));
    ASSERT_GE(map.block_count(), merged_blocks(both.model));
    if (!both.model.empty()) {
      EXPECT_EQ(map.low_bytes(), *std::min_element(both.model.begin(), both.model.end()));
      EXPECT_EQ(map.high_bytes(), *std::max_element(both.model.begin(), both.model.end()) + 1);
    }
    EXPECT_EQ(map.is_contiguous(),
              both.model.empty() || (merged_blocks(both.model) == 1 && both.model[0] == 0 &&
                                     static_cast<std::int64_t>(both.model.size()) == extent));
    auto again = Typemap::decode(encoded(map));
    ASSERT_TRUE(again.has_value());
    ASSERT_NO_FATAL_FAILURE(expect_like_model(*again, both.model, maker.random()));
    EXPECT_EQ(encoded(*again), encoded(map));
  }
}

/// All strides and counts of two levels over one block.
TEST(TypeBuilder, AllSmallVectorsOfVectorsWalkLikeTheModel) {
  std::mt19937 random(1);
  for (int outer = 0; outer <= 3; ++outer)
    for (int inner = 0; inner <= 3; ++inner)
      for (int outer_stride = -5; outer_stride <= 9; ++outer_stride)
        for (int inner_stride = -3; inner_stride <= 4; ++inner_stride) {
          TypeBuilder builder;
          const auto in = static_cast<std::uint64_t>(inner),
                     out = static_cast<std::uint64_t>(outer);
          const TypePart part = builder.repeated(
              builder.repeated(TypeBuilder::dense(0, 2), in, inner_stride), out, outer_stride);
          auto type = builder.build(part, 11);
          ASSERT_TRUE(type.has_value());
          ASSERT_NO_FATAL_FAILURE(expect_like_model(
              *type, repeated(repeated({0, 1}, in, inner_stride), out, outer_stride), random));
        }
}

struct Size {
  std::size_t nodes, listed;
};
Size size_of(const Typemap& type) {
  return {type.tables().nodes.size(), type.tables().places.size() + type.tables().entries.size()};
}

void expect_built(TypeBuilder& builder, std::vector<TypePart> parts, std::int64_t extent,
                  const Size& size) {
  auto type = builder.build(builder.sequence(std::move(parts)), extent);
  ASSERT_TRUE(type.has_value());
  EXPECT_EQ(size_of(*type).nodes, size.nodes);
  EXPECT_EQ(size_of(*type).listed, size.listed);
}

TEST(TypeBuilder, EqualStepsCostOneNodeALevel) {
  TypeBuilder builder;
  TypePart part = TypeBuilder::dense(0, 4);
  std::int64_t stride = 8;
  for (int level = 0; level < 20; ++level, stride = 4 * stride + 8)
    part = builder.repeated(part, 4, stride);
  auto type = builder.build(part, stride);
  ASSERT_TRUE(type.has_value());
  EXPECT_EQ(size_of(*type).nodes, 20U);
  EXPECT_EQ(size_of(*type).listed, 0U);
  EXPECT_EQ((*type).block_count(), std::uint64_t{1} << 40);
  // The last byte, by descent.
  TypeCursor cursor(*type, kBase, (std::uint64_t{4} << 40) - 1, 1);
  EXPECT_EQ(cursor.next(1).address, kBase + static_cast<std::uintptr_t>((*type).high_bytes()) - 1);
}

TEST(TypeBuilder, IndicesAtEqualStepsAreALoop) {
  TypeBuilder builder;
  std::vector<TypePart> parts;
  for (int i = 0; i < 1000; ++i) TypeBuilder::append(TypeBuilder::dense(12 * i, 4), &parts);
  expect_built(builder, std::move(parts), 12000, {1, 0});
}

TEST(TypeBuilder, IndicesOfAGridAreTwoLoops) {
  TypeBuilder builder;
  std::vector<TypePart> parts;
  for (int row = 0; row < 50; ++row)
    for (int i = 0; i < 20; ++i)
      TypeBuilder::append(TypeBuilder::dense(1000 * row + 12 * i, 4), &parts);
  expect_built(builder, std::move(parts), 50000, {2, 0});
}

TEST(TypeBuilder, APatternOfBlocksIsALoopOfAList) {
  TypeBuilder builder;
  std::vector<TypePart> parts;
  for (int i = 0; i < 1000; ++i) {
    TypeBuilder::append(TypeBuilder::dense(64 * i, 4), &parts);
    TypeBuilder::append(TypeBuilder::dense(64 * i + 20, 8), &parts);
    TypeBuilder::append(TypeBuilder::dense(64 * i + 50, 2), &parts);
  }
  expect_built(builder, std::move(parts), 64000, {2, 4});
}

TEST(TypeBuilder, UnequalStepsAreListedOnce) {
  std::mt19937 random(3);
  TypeBuilder builder;
  std::vector<TypePart> parts;
  const TypePart column = builder.repeated(TypeBuilder::dense(0, 4), 100, 8);
  std::int64_t at = 0;
  for (int i = 0; i < 1000; ++i, at += 1000 + static_cast<std::int64_t>(random() % 1000))
    TypeBuilder::append(builder.shifted(column, at), &parts);
  auto type = builder.build(builder.sequence(std::move(parts)), at);
  ASSERT_TRUE(type.has_value());
  EXPECT_EQ((*type).block_count(), 100'000U);
  EXPECT_EQ(size_of(*type).nodes, 2U);
  EXPECT_EQ(size_of(*type).listed, 1000U);
}

TEST(TypeBuilder, TouchingRepetitionsAreMerged) {
  TypeBuilder builder;
  std::vector<TypePart> parts;
  TypeBuilder::append(TypeBuilder::dense(0, 2), &parts);
  TypeBuilder::append(TypeBuilder::dense(4, 4), &parts);
  auto type = builder.build(builder.repeated(builder.sequence(std::move(parts)), 1000, 8), 8000);
  ASSERT_TRUE(type.has_value());
  EXPECT_EQ((*type).block_count(), 1001U);  // 2, 999 times 4 + 2, 4
}

TEST(TypeBuilder, SizesBeyond63BitsAreRefused) {
  TypeBuilder builder;
  TypePart part = TypeBuilder::dense(0, 4);
  for (int level = 0; level < 62; ++level) part = builder.repeated(part, 2, 8);
  EXPECT_FALSE(builder.build(part, 8).has_value());

  TypeBuilder far;
  const TypePart last = far.repeated(TypeBuilder::dense(0, 4), 3, std::int64_t{1} << 62);
  EXPECT_FALSE(far.build(last, 8).has_value());

  TypeBuilder shifting;
  EXPECT_FALSE(
      shifting.build(shifting.shifted(TypeBuilder::dense(INT64_MAX - 2, 4), 0), 8).has_value());
}

TEST(TypeBuilder, TheDeepestTypeCanBeWalked) {
  TypeBuilder builder;
  TypePart part = TypeBuilder::dense(0, 1);
  for (int level = 0; level < 60; ++level) part = builder.repeated(part, 2, 3 + level);
  auto type = builder.build(part, 1);
  ASSERT_TRUE(type.has_value());
  TypeCursor cursor(*type, kBase, (std::uint64_t{1} << 60) - 2, 4);
  std::uint64_t bytes = 0;
  while (const std::uint64_t length = cursor.next(UINT64_MAX).length_bytes) bytes += length;
  EXPECT_EQ(bytes, 4U);
}

}  // namespace
}  // namespace larklane
