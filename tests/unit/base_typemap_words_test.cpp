// The wire form of a typemap from a broken or hostile peer: it is refused, or the typemap can be
// walked.

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/type_builder.hpp"
#include "base/typemap.hpp"

namespace larklane {
namespace {

using Words = std::vector<std::uint64_t>;

Words encoded(const Typemap& type) {
  Words words(type.encoded_words());
  type.encode(words);
  return words;
}

/// Every kind of node: places of a list of a loop and a block, and a loop over them.
Typemap every_kind() {
  TypeBuilder builder;
  std::vector<TypePart> parts;
  TypeBuilder::append(builder.repeated(TypeBuilder::dense(0, 4), 5, 12), &parts);
  TypeBuilder::append(TypeBuilder::dense(80, 3), &parts);
  const TypePart members = builder.sequence(std::move(parts));
  std::vector<TypePart> apart;
  for (const int at : {0, 100, 230}) TypeBuilder::append(builder.shifted(members, at), &apart);
  const TypePart places = builder.sequence(std::move(apart));
  std::vector<TypePart> all;
  TypeBuilder::append(builder.repeated(places, 3, 1000), &all);
  std::vector<TypePart> blocks;
  TypeBuilder::append(TypeBuilder::dense(0, 1), &blocks);
  TypeBuilder::append(TypeBuilder::dense(5, 2), &blocks);
  TypeBuilder::append(
      builder.shifted(builder.repeated(builder.sequence(std::move(blocks)), 4, 11), -50), &all);
  return std::move(builder.build(builder.sequence(std::move(all)), 4096)).value();
}

/// A walk of any accepted typemap ends, and every byte lies within the bounds that the typemap
/// states.
void expect_walkable(const Typemap& type, std::mt19937& random) {
  if (type.size_bytes() == 0) return;
  const std::uint64_t first = random() % type.size_bytes();
  TypeCursor cursor(type, 0, first, std::min<std::uint64_t>(type.size_bytes() - first, 200));
  int pieces = 0;
  while (cursor.left_bytes() != 0) {
    const TypeCursor::Piece piece = cursor.next(UINT64_MAX);
    ASSERT_NE(piece.length_bytes, 0U);
    ASSERT_LE(++pieces, 200);
    const auto at = static_cast<std::int64_t>(piece.address);
    ASSERT_GE(at, type.low_bytes());
    ASSERT_LE(at + static_cast<std::int64_t>(piece.length_bytes), type.high_bytes());
  }
}

TEST(TypemapWords, EveryKindComesBack) {
  const Typemap type = every_kind();
  auto again = Typemap::decode(encoded(type));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(encoded(*again), encoded(type));
  EXPECT_EQ((*again).block_count(), type.block_count());
  EXPECT_EQ((*again).size_bytes(), type.size_bytes());
}

TEST(TypemapWords, CutOffOrContinuedIsRefused) {
  const Words whole = encoded(every_kind());
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(Typemap::decode(std::span(whole).first(length)).has_value()) << length;
  Words longer = whole;
  longer.push_back(0);
  EXPECT_FALSE(Typemap::decode(longer).has_value());
}

TEST(TypemapWords, AnotherVersionIsRefused) {
  Words words = encoded(every_kind());
  ++words[0];
  EXPECT_FALSE(Typemap::decode(words).has_value());
}

TEST(TypemapWords, GarbledWordsAreRefusedOrWalkable) {
  const Words whole = encoded(every_kind());
  std::uint64_t refused = 0;
  const std::uint64_t odd[] = {0,
                               1,
                               2,
                               0xffffffff,
                               std::uint64_t{1} << 32,
                               std::uint64_t{1} << 61,
                               std::uint64_t{1} << 62,
                               std::uint64_t{1} << 63,
                               ~std::uint64_t{0},
                               ~std::uint64_t{0} - 7};
  std::mt19937 random(7);
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const std::uint64_t value : odd) {
      Words words = whole;
      words[at] = value;
      auto type = Typemap::decode(words);
      if (type) {
        ASSERT_NO_FATAL_FAILURE(expect_walkable(*type, random)) << at;
      } else {
        ++refused;
      }
    }
  EXPECT_GT(refused, whole.size());
  for (std::uint32_t seed = 1; seed <= 20'000; ++seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    random.seed(seed);
    Words words = whole;
    for (auto flips = 1 + random() % 3; flips != 0; --flips)
      words[random() % words.size()] ^= std::uint64_t{1} << (random() % 64);
    auto type = Typemap::decode(words);
    if (type) {
      ASSERT_NO_FATAL_FAILURE(expect_walkable(*type, random));
    }
  }
}

// A typemap of nodes that no builder makes.
Result<Typemap> made(std::vector<TypeNode> nodes, TypePart root) {
  return Typemap::make({std::move(nodes), {0, 8, 32}, {{0, 0}, {8, 4}, {0, 12}}, {0, kDense}}, root,
                       64);
}
using Kind = TypeNode::Kind;
constexpr TypeNode kLoop{Kind::loop, kDense, 3, 4, 8, 0};

TEST(TypemapWords, NodesThatBreakAnInvariantAreRefused) {
  EXPECT_TRUE(made({kLoop}, {0, 12, 0}).has_value());
  EXPECT_FALSE(made({kLoop}, {0, 13, 0}).has_value());  // another size
  EXPECT_FALSE(made({kLoop}, {1, 12, 0}).has_value());  // no such node
  EXPECT_FALSE(made({{Kind::loop, kDense, 1, 4, 8, 0}}, {0, 4, 0}).has_value());
  EXPECT_FALSE(made({{Kind::loop, kDense, 0, 4, 8, 0}}, {0, 0, 0}).has_value());
  EXPECT_FALSE(made({{Kind::loop, kDense, 3, 0, 8, 0}}, {0, 0, 0}).has_value());
  EXPECT_FALSE(made({{Kind::loop, 0, 3, 12, 8, 0}}, {0, 36, 0}).has_value());  // its own child
  EXPECT_FALSE(made({{Kind::loop, 1, 3, 12, 8, 0}, kLoop}, {0, 36, 0}).has_value());
  EXPECT_FALSE(made({{static_cast<Kind>(5), kDense, 3, 4, 8, 0}}, {0, 12, 0}).has_value());
  EXPECT_FALSE(
      made({{Kind::loop, kDense, std::uint64_t{1} << 62, 4, 8, 0}}, {0, 0, 0}).has_value());
  EXPECT_FALSE(
      made({{Kind::loop, kDense, 3, 4, std::int64_t{1} << 62, 0}}, {0, 12, 0}).has_value());
  EXPECT_FALSE(made({kLoop}, {0, 12, INT64_MAX}).has_value());
  EXPECT_TRUE(made({{Kind::places, kDense, 3, 4, 0, 0}}, {0, 12, 0}).has_value());
  EXPECT_FALSE(made({{Kind::places, kDense, 3, 4, 0, 1}}, {0, 12, 0}).has_value());
  EXPECT_FALSE(made({{Kind::places, kDense, 3, 4, 0, ~std::uint64_t{0}}}, {0, 12, 0}).has_value());
  EXPECT_TRUE(made({{Kind::blocks, kDense, 2, 12, 0, 0}}, {0, 12, 0}).has_value());
  EXPECT_FALSE(made({{Kind::blocks, kDense, 3, 12, 0, 0}}, {0, 12, 0}).has_value());
  EXPECT_FALSE(made({{Kind::blocks, kDense, 2, 12, 0, 1}}, {0, 12, 0}).has_value());
  EXPECT_FALSE(made({{Kind::blocks, kDense, 2, 13, 0, 0}}, {0, 13, 0}).has_value());
  EXPECT_FALSE(made({kLoop, {Kind::members, 0, 2, 12, 0, 0}}, {1, 12, 0}).has_value());
}

TEST(TypemapWords, NodesThatShareRowsOfATableAreRefused) {
  constexpr TypeNode kPlaces{Kind::places, kDense, 3, 4, 0, 0};
  constexpr TypeNode kBlocks{Kind::blocks, kDense, 2, 12, 0, 0};
  constexpr TypeNode kMembers{Kind::members, 0, 2, 16, 0, 0};
  EXPECT_TRUE(made({kPlaces, kBlocks}, {1, 12, 0}).has_value());
  EXPECT_FALSE(made({kPlaces, kPlaces}, {1, 12, 0}).has_value());
  EXPECT_FALSE(made({kPlaces, {Kind::places, kDense, 2, 4, 0, 1}}, {1, 8, 0}).has_value());
  EXPECT_FALSE(made({kBlocks, kBlocks}, {1, 12, 0}).has_value());
  // Two lists of the same members: with entries of their own they are refused, too.
  const std::vector<TypeEntry> entries{{0, 0}, {32, 12}, {0, 16}, {0, 0}, {32, 12}, {0, 16}};
  TypeNode other = kMembers;
  other.first = 3;
  EXPECT_TRUE(Typemap::make({{kLoop, kMembers}, {}, entries, {0, kDense}}, {1, 16, 0}, 64));
  EXPECT_FALSE(Typemap::make({{kLoop, kMembers, other}, {}, entries, {0, kDense}}, {2, 16, 0}, 64));
}

TEST(TypemapWords, AChainDeeperThanAllowedIsRefused) {
  TypeTables tables;  // lists in lists, each a byte longer than the one before
  std::uint64_t bytes = 1;
  for (std::uint32_t i = 0; i < kTypeDepthMax + 1; ++i) {
    tables.nodes.push_back({Kind::members, 2 * i, 2, bytes + 1, 0, 3 * std::uint64_t{i}});
    tables.members.insert(tables.members.end(), {i == 0 ? kDense : i - 1, kDense});
    tables.entries.insert(tables.entries.end(), {{0, 0}, {1000, bytes}, {0, bytes + 1}});
    ++bytes;
    EXPECT_EQ(Typemap::make(tables, {i, bytes, 0}, 8).has_value(), i < kTypeDepthMax) << i;
  }
}

TEST(TypemapWords, CountsThatOverflowAreRefused) {
  for (int at = 1; at <= 4; ++at)
    for (const std::uint64_t count :
         {std::uint64_t{1} << 61, ~std::uint64_t{0} / 8, ~std::uint64_t{0} / 40 + 1}) {
      Words words = encoded(every_kind());
      words[static_cast<std::size_t>(at)] = count;
      EXPECT_FALSE(Typemap::decode(words).has_value());
    }
}

}  // namespace
}  // namespace larklane
