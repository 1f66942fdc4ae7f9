// mark_run(): marks a run of bytes and no other.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "part/protocol/mark_run.hpp"

namespace larklane::part {
namespace {

/// A byte of another type: the simulation's.
struct OtherByte {
  void store(std::uint8_t byte, std::memory_order) { value = byte; }
  std::uint8_t load(std::memory_order) const { return value; }
  std::uint8_t value = 0;
};

template <class Atomic8>
class MarkRun : public testing::Test {};
using Bytes = testing::Types<std::atomic<std::uint8_t>, OtherByte>;
TYPED_TEST_SUITE(MarkRun, Bytes);

TYPED_TEST(MarkRun, MarksItsRunAndNoOther) {
  constexpr std::uint32_t kMarks = 64;
  for (std::uint32_t first = 0; first < kMarks; ++first)
    for (std::uint32_t end = first; end <= kMarks; ++end) {
      alignas(64) std::array<TypeParam, kMarks> marks{};
      mark_run(marks.data() + first, marks.data() + end, std::uint8_t{0xa5});
      for (std::uint32_t i = 0; i < kMarks; ++i)
        ASSERT_EQ(marks[i].load(std::memory_order_relaxed), first <= i && i < end ? 0xa5 : 0)
            << i << " of " << first << " to " << end;
    }
}

}  // namespace
}  // namespace larklane::part
