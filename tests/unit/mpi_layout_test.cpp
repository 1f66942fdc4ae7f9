#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "mpi/layout.hpp"

namespace larklane::mpi {
namespace {

using Pairs = std::vector<std::pair<std::int64_t, std::uint64_t>>;

Pairs pairs(const Blocks& blocks) {
  Pairs found;
  for (const TypeBlock& block : blocks) found.emplace_back(block.offset_bytes, block.length_bytes);
  return found;
}

const Element kDouble{{{0, 8}}, 8};
const Element kHole{{{0, 2}, {4, 4}}, 8};  // like MPI_SHORT_INT

TEST(MpiLayout, CopiesWithoutAGapAreOneBlock) {
  Blocks blocks;
  append_repeated(kDouble.blocks, 0, std::size_t{1} << 40, 8, &blocks);
  EXPECT_EQ(pairs(blocks), (Pairs{{0, std::uint64_t{8} << 40}}));
}

TEST(MpiLayout, CopiesWithGapsStayApart) {
  Blocks blocks;
  append_repeated(kDouble.blocks, 100, 3, 24, &blocks);
  EXPECT_EQ(pairs(blocks), (Pairs{{100, 8}, {124, 8}, {148, 8}}));
}

TEST(MpiLayout, NeighboursAreMergedAcrossElements) {
  Blocks blocks;
  append_repeated(kHole.blocks, 0, 2, 8, &blocks);
  EXPECT_EQ(pairs(blocks), (Pairs{{0, 2}, {4, 6}, {12, 4}}));
}

TEST(MpiLayout, NoCopyIsNothing) {
  Blocks blocks;
  append_repeated(kDouble.blocks, 0, 0, 8, &blocks);
  EXPECT_TRUE(blocks.empty());
}

TEST(MpiLayout, NegativeStridesKeepTheirOrder) {
  Blocks blocks;
  append_repeated(kDouble.blocks, 0, 3, -16, &blocks);
  EXPECT_EQ(pairs(blocks), (Pairs{{0, 8}, {-16, 8}, {-32, 8}}));
}

TEST(MpiLayout, SubarrayInBothOrders) {
  Blocks c_order, fortran_order;
  append_subarray({{4, 6}, {2, 3}, {1, 2}, true}, kDouble, &c_order);
  EXPECT_EQ(pairs(c_order), (Pairs{{64, 24}, {112, 24}}));  // rows 1 and 2, columns 2 to 4
  append_subarray({{4, 6}, {2, 3}, {1, 2}, false}, kDouble, &fortran_order);
  EXPECT_EQ(pairs(fortran_order), (Pairs{{72, 16}, {104, 16}, {136, 16}}));
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
  Blocks blocks;
  append_darray(array, kDouble, &blocks);
  EXPECT_EQ(pairs(blocks), (Pairs{{8, 8}, {24, 8}, {40, 8}, {56, 8}, {72, 8}, {88, 8}}));
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
      Blocks blocks;
      append_darray(array, kDouble, &blocks);
      for (const TypeBlock& block : blocks) {
        for (std::uint64_t at = 0; at < block.length_bytes; at += 8) {
          ++owners.at((static_cast<std::uint64_t>(block.offset_bytes) + at) / 8);
        }
      }
    }
    EXPECT_EQ(owners, std::vector<int>(owners.size(), 1));
  }
}

}  // namespace
}  // namespace larklane::mpi
