// Blocks of MPI's subarrays and distributed arrays.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "mpi/types/layout.hpp"

namespace larklane::mpi {
namespace {

using Pairs = std::vector<std::pair<std::int64_t, std::uint64_t>>;

/// The blocks of one element.
Pairs pairs(TypeBuilder& builder, TypePart part) {
  Pairs found;
  auto type = builder.build(part, 0);
  if (!type) return found;
  TypeCursor cursor(*type, 0, 0, (*type).size_bytes());
  while (cursor.left_bytes() != 0) {
    const auto piece = cursor.next(UINT64_MAX);
    found.emplace_back(static_cast<std::int64_t>(piece.address), piece.length_bytes);
  }
  return found;
}

const Element kDouble{TypeBuilder::dense(0, 8), 8};

TEST(MpiLayout, SubarrayInBothOrders) {
  TypeBuilder builder;
  const Subarray c_order{{4, 6}, {2, 3}, {1, 2}, true};
  EXPECT_EQ(pairs(builder, subarray_part(c_order, kDouble, builder)),
            (Pairs{{64, 24}, {112, 24}}));  // rows 1 and 2, columns 2 to 4
  const Subarray fortran_order{{4, 6}, {2, 3}, {1, 2}, false};
  EXPECT_EQ(pairs(builder, subarray_part(fortran_order, kDouble, builder)),
            (Pairs{{72, 16}, {104, 16}, {136, 16}}));
}

TEST(MpiLayout, DarrayShares) {
  // 5 x 4 doubles on a 2 x 2 grid: rows in blocks of 3, columns cyclic by 1. Process 1 is at (0,
  // 1).
  Darray array;
  array.sizes = {5, 4};
  array.arguments = {0, 0};
  array.processes = {2, 2};
  array.cyclic = {false, true};
  array.whole = {false, false};
  array.rank = 1;
  TypeBuilder builder;
  EXPECT_EQ(pairs(builder, darray_part(array, kDouble, builder)),
            (Pairs{{8, 8}, {24, 8}, {40, 8}, {56, 8}, {72, 8}, {88, 8}}));
}

TEST(MpiLayout, DarraySharesCoverTheArrayOnce) {
  for (const bool row_major : {true, false}) {
    std::vector<int> owners(7 * 5 * 3, 0);
    for (int rank = 0; rank < 6; ++rank) {
      Darray array;
      array.sizes = {7, 5, 3};
      array.arguments = {2, 0, 0};
      array.processes = {3, 2, 1};
      array.cyclic = {true, false, false};
      array.whole = {false, false, true};
      array.rank = rank;
      array.row_major = row_major;
      TypeBuilder builder;
      for (const auto& [offset, length] : pairs(builder, darray_part(array, kDouble, builder))) {
        for (std::uint64_t at = 0; at < length; at += 8)
          ++owners.at((static_cast<std::uint64_t>(offset) + at) / 8);
      }
    }
    EXPECT_EQ(owners, std::vector<int>(owners.size(), 1));
  }
}

/// All distributions of up to 13 elements on up to 4 processes.
TEST(MpiLayout, EveryCyclicShareIsThatOfTheModel) {
  for (std::int64_t size = 1; size <= 13; ++size)
    for (int processes = 1; processes <= 4; ++processes)
      for (int argument = 0; argument <= 4; ++argument)
        for (int rank = 0; rank < processes; ++rank) {
          Darray array;
          array.sizes = {size};
          array.arguments = {argument};
          array.processes = {processes};
          array.cyclic = {true};
          array.whole = {false};
          array.rank = rank;
          const int length = std::max(argument, 1);
          std::vector<std::int64_t> expected, found;
          for (std::int64_t i = 0; i < size; ++i)
            if (i / length % processes == rank) expected.push_back(8 * i);
          TypeBuilder builder;
          for (const auto& [offset, bytes] : pairs(builder, darray_part(array, kDouble, builder)))
            for (std::uint64_t at = 0; at < bytes; at += 8)
              found.push_back(offset + static_cast<std::int64_t>(at));
          ASSERT_EQ(found, expected) << size << " " << processes << " " << argument << " " << rank;
        }
}

TEST(MpiLayout, AShareOfManyElementsIsAFewNodes) {
  Darray array;
  array.sizes = {1 << 30, 7};
  array.arguments = {3, 0};
  array.processes = {2, 1};
  array.cyclic = {true, false};
  array.whole = {false, true};
  array.rank = 1;
  array.row_major = false;
  TypeBuilder builder;
  auto type = builder.build(darray_part(array, kDouble, builder), 8);
  ASSERT_TRUE(type.has_value());
  EXPECT_LE((*type).tables().nodes.size(), 3U);
  EXPECT_LE((*type).tables().entries.size(), 3U);
  EXPECT_GT((*type).block_count(), 1'000'000'000U);
}

}  // namespace
}  // namespace larklane::mpi
