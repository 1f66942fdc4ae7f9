// Typemap and TypeCursor against a plain list of addresses.

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/typemap.hpp"

namespace larklane {
namespace {

constexpr std::uintptr_t kBase = 1'000'000;

/// The plain model: the address of every packed byte, one by one.
std::vector<std::uintptr_t> byte_addresses(const std::vector<TypeBlock>& blocks,
                                           std::int64_t extent_bytes, std::int64_t elements) {
  std::vector<std::uintptr_t> all;
  for (std::int64_t e = 0; e < elements; ++e) {
    for (const TypeBlock& block : blocks) {
      for (std::uint64_t i = 0; i < block.length_bytes; ++i) {
        all.push_back(kBase + static_cast<std::uintptr_t>(e * extent_bytes + block.offset_bytes) +
                      i);
      }
    }
  }
  return all;
}

std::vector<std::uintptr_t> walk(TypeCursor cursor, std::uint64_t limit_bytes) {
  std::vector<std::uintptr_t> all;
  for (;;) {
    const std::uint64_t left = cursor.left_bytes();
    const TypeCursor::Piece piece = cursor.next(limit_bytes);
    if (piece.length_bytes == 0) return all;
    EXPECT_LE(piece.length_bytes, limit_bytes);
    EXPECT_EQ(cursor.left_bytes(), left - piece.length_bytes);
    for (std::uint64_t i = 0; i < piece.length_bytes; ++i) all.push_back(piece.address + i);
  }
}

/// Every range of a few elements, walked with pieces of several sizes.
void expect_like_model(const std::vector<TypeBlock>& blocks, std::int64_t extent_bytes) {
  const Typemap type(blocks, extent_bytes);
  const auto model = byte_addresses(blocks, extent_bytes, 3);
  ASSERT_EQ(type.size_bytes() * 3, model.size());
  for (std::size_t first = 0; first <= model.size(); ++first) {
    for (std::size_t length = 0; first + length <= model.size(); ++length) {
      const std::vector<std::uintptr_t> expected(
          model.begin() + static_cast<std::ptrdiff_t>(first),
          model.begin() + static_cast<std::ptrdiff_t>(first + length));
      for (const std::uint64_t limit : {std::uint64_t{1}, std::uint64_t{3}, UINT64_MAX}) {
        ASSERT_EQ(walk(TypeCursor(type, kBase, first, length), limit), expected)
            << "first " << first << " length " << length << " limit " << limit;
      }
    }
  }
}

TEST(Typemap, AdjacentBlocksAreMerged) {
  const Typemap type({{0, 4}, {4, 4}, {12, 0}, {16, 2}, {18, 6}}, 24);
  ASSERT_EQ(type.block_count(), 2U);
  TypeCursor cursor(type, kBase, 0, 16);
  const TypeCursor::Piece first = cursor.next(UINT64_MAX), second = cursor.next(UINT64_MAX);
  EXPECT_EQ(first.address, kBase);
  EXPECT_EQ(first.length_bytes, 8U);
  EXPECT_EQ(second.address, kBase + 16);
  EXPECT_EQ(second.length_bytes, 8U);
  EXPECT_EQ(type.size_bytes(), 16U);
  EXPECT_FALSE(type.is_contiguous());
}

TEST(Typemap, OrderIsKept) {
  // adjacent in memory but not in the order in which the bytes travel
  const Typemap type({{4, 4}, {0, 4}}, 8);
  EXPECT_EQ(type.block_count(), 2U);
  EXPECT_FALSE(type.is_contiguous());
}

TEST(Typemap, ContiguousMeansNoGapFromOffsetZero) {
  EXPECT_TRUE(Typemap::contiguous(8).is_contiguous());
  EXPECT_TRUE(Typemap({{0, 3}, {3, 5}}, 8).is_contiguous());
  EXPECT_FALSE(Typemap({{0, 8}}, 16).is_contiguous());
  EXPECT_FALSE(Typemap({{0, 8}}, 4).is_contiguous());
  EXPECT_FALSE(Typemap({{8, 8}}, 8).is_contiguous());
  EXPECT_FALSE(Typemap({{0, 8}}, -8).is_contiguous());
}

TEST(Typemap, BytesLieBetweenLowAndHigh) {
  const Typemap type({{8, 2}, {-6, 3}, {20, 4}}, 5);
  EXPECT_EQ(type.offset_bytes(), 8);
  EXPECT_EQ(type.low_bytes(), -6);
  EXPECT_EQ(type.high_bytes(), 24);
}

TEST(Typemap, NothingInIt) {
  for (const Typemap& type : {Typemap::contiguous(0), Typemap({}, 16), Typemap({{4, 0}}, 16)}) {
    EXPECT_EQ(type.size_bytes(), 0U);
    EXPECT_TRUE(type.is_contiguous());
    EXPECT_EQ(type.block_count(), 0U);
    EXPECT_TRUE(walk(TypeCursor(type, kBase, 0, 0), 8).empty());
    EXPECT_TRUE(walk(TypeCursor(type, kBase, 0, 5), 8).empty());
  }
}

TEST(TypeCursor, WalksLikeTheModel) {
  expect_like_model({{0, 5}}, 5);                   // contiguous
  expect_like_model({{0, 5}}, 9);                   // gap after each element
  expect_like_model({{3, 5}}, 5);                   // dense, but not from the start
  expect_like_model({{0, 2}, {4, 2}, {8, 1}}, 12);  // a vector
  expect_like_model({{-6, 2}, {0, 3}}, 8);          // negative offset
  expect_like_model({{8, 2}, {0, 3}, {3, 1}}, 12);  // order of travel is not order of addresses
  expect_like_model({{0, 2}, {6, 2}}, 3);           // elements interleave
  expect_like_model({{0, 4}}, -4);                  // backwards
  expect_like_model({{0, 4}, {6, 2}}, 0);           // one element over and over
}

TEST(TypeCursor, ContiguousRangeIsOnePiece) {
  const Typemap type = Typemap::contiguous(8);
  TypeCursor cursor(type, kBase, 20, 1'000'000);
  const TypeCursor::Piece piece = cursor.next(UINT64_MAX);
  EXPECT_EQ(piece.address, kBase + 20);
  EXPECT_EQ(piece.length_bytes, 1'000'000U);
}

TEST(TypeCursor, OffsetsBeyondFourGigabytes) {
  const Typemap type({{0, 8}, {16, 8}}, 1LL << 33);
  TypeCursor cursor(type, kBase, 16ULL * 5'000'000'000ULL + 9, 4);
  const TypeCursor::Piece piece = cursor.next(UINT64_MAX);
  EXPECT_EQ(piece.address, kBase + (5'000'000'000ULL << 33) + 17);
  EXPECT_EQ(piece.length_bytes, 4U);
}

TEST(TypeCursor, RandomTypesWalkLikeTheModel) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    std::mt19937 random(seed);
    const auto draw = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    std::vector<TypeBlock> blocks(static_cast<std::size_t>(draw(1, 5)));
    for (TypeBlock& block : blocks) {
      block = {draw(-20, 20), static_cast<std::uint64_t>(draw(0, 4))};
    }
    expect_like_model(blocks, draw(-5, 30));
  }
}

}  // namespace
}  // namespace larklane
