// The sender's view of a round's words.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "part/protocol/word_window.hpp"

namespace larklane::part {
namespace {

constexpr std::uint64_t kRound = 5;

/// Marks every partition in order. @return the partitions whose mark looked further
std::vector<std::uint32_t> looked_further(const Layout& layout, std::uint64_t flags) {
  std::array<WordLine<RealPlatform>, 4> words;
  for (auto& line : words)
    line.state.store(word_state::fresh(kRound) | flags, std::memory_order_relaxed);
  const WordWindow<RealPlatform> window{layout.cells().data(), words.data()};
  std::vector<std::uint32_t> looked;
  for (std::uint32_t p = 0; p < layout.partitions(); ++p)
    EXPECT_TRUE(window.mark_one(p, [&](const Cell&, std::uint64_t) { looked.push_back(p); }).ok());
  return looked;
}

Layout groups_of_four(std::uint32_t partitions) {
  std::vector<std::uint32_t> boundaries;
  for (std::uint32_t p = 0; p < partitions; p += 4) boundaries.push_back(p);
  return std::move(Layout::make(partitions, boundaries)).value();
}

// Once a mark is in, the receiver's Start may move the group and complete the round, and another
// thread of the sender may free the request. A marking thread with nothing to move must not touch
// it again.
TEST(WordWindow, MarkBeforeStartIsTheLastTouch) {
  EXPECT_EQ(looked_further(groups_of_four(12), 0), std::vector<std::uint32_t>{});
}

TEST(WordWindow, LastOfAnOpenGroupMovesIt) {
  EXPECT_EQ(looked_further(groups_of_four(12), word_state::kOpen),
            (std::vector<std::uint32_t>{3, 7, 11}));
}

TEST(WordWindow, AfterExpiryEveryMarkMoves) {
  EXPECT_EQ(looked_further(groups_of_four(4), word_state::kExpired | word_state::kOpen),
            (std::vector<std::uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(looked_further(groups_of_four(4), word_state::kExpired), std::vector<std::uint32_t>{});
}

TEST(WordWindow, LastOfALeafMarksItsRoot) {
  constexpr std::uint32_t kLeaf = 32;
  const Layout layout = std::move(Layout::make(2 * kLeaf, std::vector<std::uint32_t>{0})).value();
  EXPECT_EQ(looked_further(layout, 0), (std::vector<std::uint32_t>{kLeaf - 1, 2 * kLeaf - 1}));
}

TEST(WordWindow, SecondMarkIsReported) {
  const Layout layout = groups_of_four(4);
  WordLine<RealPlatform> word;
  word.state.store(word_state::fresh(kRound) | 2, std::memory_order_relaxed);
  const WordWindow<RealPlatform> window{layout.cells().data(), &word};
  const auto none = [](const Cell&, std::uint64_t) { ADD_FAILURE() << "it moves"; };
  EXPECT_EQ(window.mark_one(1, none).code(), Errc::kAlreadyReady);
}

}  // namespace
}  // namespace larklane::part
