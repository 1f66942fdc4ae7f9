// Encodings of runs of partitions in immediates.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/sanitized.hpp"
#include "net/immediate.hpp"

namespace larklane::net {
namespace {

/// Does `immediate` decode to the run that it encodes, or to nothing?
bool is_run_or_nothing(std::uint32_t immediate) {
  const std::uint32_t first = immediate >> 16, count = immediate & 0xffff;
  const auto run = paper::decode(immediate);
  return run.has_value() == (count >= 1 && first + count <= paper::kPartitionsMax) &&
         (!run || paper::encode(*run) == immediate);
}

TEST(PaperImmediate, EveryValueIsARunOrNothing) {
#ifdef LARKLANE_SANITIZED
  constexpr std::uint64_t kStep = 257;  // prime to 2^32
#else
  constexpr std::uint64_t kStep = 1;
#endif
  std::uint64_t wrong = 0, runs = 0;
  for (std::uint64_t value = 0; value <= 0xffffffff; value += kStep) {
    wrong += is_run_or_nothing(static_cast<std::uint32_t>(value)) ? 0 : 1;
    runs += paper::decode(static_cast<std::uint32_t>(value)).has_value() ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_GE(runs, 2'147'450'880u / kStep);  // 65,535 * 65,536 / 2
}

TEST(PaperImmediate, TheEnds) {
  EXPECT_EQ(paper::encode({3, 5}), 0x0003'0005u);
  EXPECT_EQ(paper::decode(0x0000'ffff), (net::Run{0, 65535}));
  EXPECT_EQ(paper::decode(0xfffe'0001), (net::Run{65534, 1}));
  EXPECT_FALSE(paper::decode(0xffff'0001));
  EXPECT_FALSE(paper::decode(0x0001'0000));
}

TEST(RunToken, EveryRunHasATokenOfItsOwnAndComesBack) {
  std::vector<bool> seen(0x10000);
  for (std::uint32_t first = 0; first < kCellsMax; ++first) {
    for (std::uint32_t count = 1; first + count <= kCellsMax; ++count) {
      const net::Run run{first, count};
      const std::uint16_t token = run_token(run);
      ASSERT_FALSE(seen[token]) << first << "+" << count;
      seen[token] = true;
      ASSERT_EQ(decode_token(token), (Token{run, false})) << first << "+" << count;
    }
  }
}

TEST(RunToken, EveryTokenIsARunANoticeOrNothing) {
  std::uint32_t runs = 0, notices = 0, nothing = 0;
  for (std::uint32_t value = 0; value <= 0xffff; ++value) {
    const auto token = decode_token(static_cast<std::uint16_t>(value));
    if (!token) {
      ++nothing;
    } else if (token->is_notice) {
      ++notices;
      ASSERT_EQ(token->run.count, 0u);
      ASSERT_LT(token->run.first, kCellsMax);
      ASSERT_EQ(notice_token(token->run.first), value);
    } else {
      ++runs;
      ASSERT_GE(token->run.count, 1u);
      ASSERT_LE(token->run.first + token->run.count, kCellsMax);
      ASSERT_EQ(run_token(token->run), value);
    }
  }
  EXPECT_EQ(runs, 32896u);
  EXPECT_EQ(notices, 256u);
  EXPECT_EQ(nothing, 65536u - 32896u - 256u);
}

TEST(Immediate, CarriesSlotAndToken) {
  constexpr std::uint32_t immediate = make_immediate(0xabcd, 0x1234);
  static_assert(immediate == 0xabcd'1234 && channel_slot_of(immediate) == 0xabcd &&
                token_of(immediate) == 0x1234);
  static_assert(decode_token(run_token({200, 56})) == Token{{200, 56}, false});
}

TEST(Cells, CoverEveryPartitionOnceInOrder) {
  for (std::uint32_t partitions = 1; partitions <= 65536; ++partitions) {
    const Cells cells(partitions);
    ASSERT_EQ(cells.count(), std::min(partitions, 256u));
    ASSERT_EQ(cells.begin(0), 0u);
    ASSERT_EQ(cells.begin(cells.count()), partitions);
    const std::uint32_t floor = partitions / cells.count();
    for (std::uint32_t cell = 0; cell < cells.count(); ++cell) {
      const std::uint32_t length = cells.begin(cell + 1) - cells.begin(cell);
      ASSERT_GE(length, floor) << partitions << " cell " << cell;
      ASSERT_LE(length, floor + 1) << partitions << " cell " << cell;
    }
  }
}

// The formula is monotone, so a property of a cell's ends holds between them.
TEST(Cells, APartitionsCellHoldsIt) {
  for (std::uint32_t partitions = 1; partitions <= 65536; ++partitions) {
    const Cells cells(partitions);
    for (std::uint32_t cell = 0; cell < cells.count(); ++cell)
      for (const std::uint32_t p : {cells.begin(cell), cells.begin(cell + 1) - 1})
        ASSERT_EQ(cells.cell_of(p), cell) << p << " of " << partitions;
  }
  const Cells whole(1000);
  EXPECT_EQ(whole.partitions({0, 256}), (net::Run{0, 1000}));
  EXPECT_EQ(whole.partitions({1, 2}), (net::Run{3, 8}));  // 1000 / 256: cells begin at 0, 3, 7, 11
}

// Every run of every number of cells has an immediate in the paper's encoding. Of more partitions
// than cells only the begins differ: each cell as a run's first and as its last.
TEST(PaperImmediate, TokensGoThereAndComeBack) {
  for (std::uint32_t partitions = 1; partitions <= paper::kPartitionsMax; ++partitions) {
    const Cells cells(partitions);
    const auto comes_back = [&](std::uint16_t token, std::uint32_t immediate) {
      return paper::of_token(token, cells) == immediate &&
             paper::to_token(immediate, cells) == token;
    };
    const auto run_comes_back = [&](std::uint32_t first, std::uint32_t last) {
      const net::Run run{first, last - first + 1};
      return comes_back(run_token(run), paper::encode(cells.partitions(run)));
    };
    ASSERT_TRUE(comes_back(kDemandToken, 0xffff'0000u));
    const std::uint32_t end = cells.count() - 1;
    for (std::uint32_t cell = 0; cell <= end; ++cell) {
      ASSERT_TRUE(comes_back(notice_token(cell), cells.begin(cell) << 16)) << partitions;
      ASSERT_TRUE(run_comes_back(cell, cell) && run_comes_back(0, cell) &&
                  run_comes_back(cell, end))
          << cell << " of " << partitions;
    }
    if (partitions > 300 && partitions % 6521 != 0) continue;
    for (std::uint32_t first = 0; first <= end; ++first)
      for (std::uint32_t last = first; last <= end; ++last)
        ASSERT_TRUE(run_comes_back(first, last)) << first << "-" << last << " of " << partitions;
  }
}

TEST(PaperImmediate, ARunThatEndsInNoCellIsNothing) {
  for (const std::uint32_t partitions : {1u, 2u, 7u, 255u, 256u, 257u, 600u}) {
    const Cells cells(partitions);
    std::uint32_t valid = 0;
    for (std::uint32_t first = 0; first < partitions + 3; ++first)
      for (std::uint32_t count = 0; count < partitions + 3; ++count)
        valid += paper::to_token(first << 16 | count, cells) != kNoToken ? 1 : 0;
    EXPECT_EQ(valid, cells.count() * (cells.count() + 1) / 2 + cells.count()) << partitions;
    for (const std::uint32_t immediate : {0xffff'0001u, 0xffff'ffffu, 0xfffe'0001u, 0x0000'ffffu})
      EXPECT_EQ(paper::to_token(immediate, cells), kNoToken);
  }
  EXPECT_EQ(paper::to_token(0x0000'ffff, Cells(paper::kPartitionsMax)), run_token({0, 256}));
}

TEST(Cells, PartitionNumbersNearTheLimitOf32Bits) {
  const Cells cells(0xffffffff);
  EXPECT_EQ(cells.begin(256), 0xffffffffu);
  EXPECT_EQ(cells.cell_of(0xfffffffe), 255u);
  EXPECT_EQ(cells.cell_of(0), 0u);
}

}  // namespace
}  // namespace larklane::net
