// The sender's view of a round's slots.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "part/protocol/slots.hpp"

namespace larklane::part {
namespace {

struct Message {
  std::uint32_t partitions;
  std::uint64_t partition_bytes;
};

class SlotWindowOf : public testing::TestWithParam<Message> {};

// Lines are asked for before they are written, but none behind the last slot: they are another's.
TEST_P(SlotWindowOf, AsksForNothingBehindItsOwnSlots) {
  const auto [partitions, partition_bytes] = GetParam();
  const BlockShape shape{.mode = Mode::slots,
                         .partitions = partitions,
                         .groups_max = 1,
                         .words_max = 0,
                         .roots_max = 0,
                         .type_words = 0,
                         .partition_bytes = partition_bytes};
  std::vector<std::byte> memory(BlockOffsets::of(shape).end + kLineBytes);
  auto* const base = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(memory.data()) + kLineBytes - 1) / kLineBytes * kLineBytes);
  const BlockView<RealPlatform> block(base, shape);
  block.construct(shape, 1);
  SlotWriter<RealPlatform> writer(block, shape);
  writer.own_first(1);
  const SlotWindow<RealPlatform> window = writer.window(1);
  EXPECT_GE(window.ahead, 1U);
  EXPECT_EQ(window.ahead_end + window.ahead, partitions);
  EXPECT_LE((window.ahead - 1) * partition_bytes, 1024U);
  for (std::uint32_t p = 0; p < partitions; ++p) {
    const auto fill = [&](std::byte* slot, std::uint64_t offset, std::uint64_t length) {
      EXPECT_EQ(slot, block.slot(1, offset));
      std::memset(slot, static_cast<int>(p), length);
    };
    EXPECT_TRUE(window.mark_one(p, fill).ok());
    EXPECT_EQ(window.mark_one(p, fill).code(), Errc::kAlreadyReady);
  }
  EXPECT_TRUE(writer.all_ready(1));
}

INSTANTIATE_TEST_SUITE_P(Messages, SlotWindowOf,
                         testing::Values(Message{1, 8}, Message{1, 0}, Message{7, 0},
                                         Message{16, 8}, Message{128, 8}, Message{129, 8},
                                         Message{4096, 8}, Message{300, 24}, Message{40, 1000},
                                         Message{3, 65536}));

}  // namespace
}  // namespace larklane::part
