// Deadlines of a round's partitions.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "part/policy/deadline.hpp"
#include "part/protocol/side.hpp"

namespace larklane::part {
namespace {

constexpr std::uint64_t kAfter = 1000;

/// One channel with its partitions in one word, and the runs that were moved. Thread safety:
/// single-owner.
class TimedWord {
 public:
  explicit TimedWord(std::uint32_t partitions)
      : shape_{Mode::direct, partitions, 1, 1, 0, 0, 8},
        memory_(BlockOffsets::of(shape_).end + kLineBytes),
        view_(aligned(), shape_),
        send_(view_, shape_),
        recv_(view_, shape_, partitions),
        marks_(view_, 1, kAfter),
        watch_(view_, 1, kAfter) {
    view_.construct(shape_, 1);
    EXPECT_TRUE(send_.choose(std::vector<std::uint32_t>{0}).ok());
  }

  /// Both sides.
  void begin() {
    start();
    open();
  }
  void start() {
    EXPECT_EQ(moved_count_, round_ * shape_.partitions);
    ++round_;
    marks_.start(round_);
    watch_.start();
    send_.start(round_);
  }
  /// @return the runs that the receiver's Start moves
  std::vector<Run> open() {
    runs_.clear();
    EXPECT_TRUE(recv_.open(round_, *this).ok());
    return runs_;
  }
  /// @return the runs that the mark moves
  std::vector<Run> mark(std::uint32_t partition, std::uint64_t now, std::uint64_t busy = 0) {
    runs_.clear();
    EXPECT_TRUE(marks_
                    .mark(send_.last_comer(), round_, {partition, 1}, now, busy,
                          [this](Run run) { move(run); })
                    .ok());
    return runs_;
  }
  /// @return the runs that a waiting receiver moves
  std::vector<Run> look(std::uint64_t now) {
    runs_.clear();
    watch_.look(recv_.last_comer(), round_, now, [this](Run run) { move(run); });
    return runs_;
  }
  /// All but the last in time, the last one late. @return by partition, how many its mark moved
  std::vector<std::uint32_t> round_with_a_laggard() {
    start();
    open();
    std::vector<std::uint32_t> moved;
    const std::uint64_t now = round_ * 1'000'000;
    for (std::uint32_t p = 0; p < shape_.partitions; ++p) {
      const bool is_late = p + 1 == shape_.partitions;
      std::uint32_t count = 0;
      for (const Run run : mark(p, is_late ? now + 5 * kAfter : now + p)) count += run.count;
      moved.push_back(count);
    }
    return moved;
  }

  bool has_expired() const {
    return (view_.word(round_, 0).state.load(std::memory_order_relaxed) & word_state::kExpired) !=
           0;
  }

  void move(Run run) {
    runs_.push_back(run);
    moved_count_ += run.count;
    publish_moved(view_, round_, run);
  }
  void fill(std::byte*, std::uint64_t, std::uint64_t) {}
  void empty(const std::byte*, std::uint64_t, std::uint64_t) {}

 private:
  std::byte* aligned() {
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (kLineBytes - at % kLineBytes) % kLineBytes;
  }

  const BlockShape shape_;
  std::vector<std::byte> memory_;
  BlockView<RealPlatform> view_;
  SendSide<RealPlatform> send_;
  RecvSide<RealPlatform> recv_;
  TimedMarks<RealPlatform> marks_;
  DeadlineWatch<RealPlatform> watch_;
  std::uint64_t round_ = 0, moved_count_ = 0;
  std::vector<Run> runs_;
};

using Runs = std::vector<Run>;

TEST(PartDeadline, PartitionsInTimeGoTogether) {
  TimedWord word(4);
  word.begin();
  EXPECT_EQ(word.mark(0, 100), Runs{});
  EXPECT_EQ(word.mark(2, 1099), Runs{});
  EXPECT_EQ(word.mark(1, 200), Runs{});
  EXPECT_EQ(word.mark(3, 300), (Runs{{0, 4}}));
}

TEST(PartDeadline, TheFirstMarkAfterItMovesAllThatIsReady) {
  TimedWord word(6);
  word.begin();
  EXPECT_EQ(word.mark(0, 100), Runs{});
  EXPECT_EQ(word.mark(1, 101), Runs{});
  EXPECT_EQ(word.mark(3, 1100), (Runs{{0, 2}, {3, 1}}));
  EXPECT_EQ(word.mark(5, 1101), (Runs{{5, 1}}));
  EXPECT_EQ(word.mark(2, 1102), (Runs{{2, 1}}));
  EXPECT_EQ(word.mark(4, 1103), (Runs{{4, 1}}));
}

TEST(PartDeadline, AReceiverThatWaitsSeesItAndMoves) {
  TimedWord word(4);
  word.start();
  EXPECT_EQ(word.look(50), Runs{}) << "the receiver's Start is not over";
  word.open();
  EXPECT_EQ(word.mark(0, 100), Runs{});
  EXPECT_EQ(word.mark(1, 600), Runs{});
  EXPECT_EQ(word.look(1099), Runs{});
  EXPECT_EQ(word.look(1100), Runs{}) << "it has looked just now, and takes a line each time";
  EXPECT_EQ(word.look(1400), (Runs{{0, 2}}));
  EXPECT_EQ(word.look(1700), Runs{});
  EXPECT_EQ(word.mark(3, 2000), (Runs{{3, 1}}));
  EXPECT_EQ(word.mark(2, 2000), (Runs{{2, 1}}));
  EXPECT_EQ(word.look(9000), Runs{});
}

TEST(PartDeadline, BeforeTheFirstMarkThereIsNone) {
  TimedWord word(2);
  for (std::uint64_t now = 10'000; now < 100'000; now += 10'000) {
    word.start();
    word.open();
    EXPECT_EQ(word.look(now + 5000), Runs{});
    EXPECT_EQ(word.mark(0, now + 6000), Runs{});
    EXPECT_EQ(word.mark(1, now + 6001), (Runs{{0, 2}}));
  }
}

TEST(PartDeadline, AReceiverThatStartsLateTakesExpiredPartitions) {
  TimedWord word(3);
  word.start();
  EXPECT_EQ(word.mark(0, 100), Runs{});
  EXPECT_EQ(word.mark(1, 1100), Runs{});
  EXPECT_EQ(word.open(), (Runs{{0, 2}}));
  EXPECT_EQ(word.mark(2, 1101), (Runs{{2, 1}}));
}

// From the fourth round on the third mark is expected to be the last in time.
TEST(PartDeadline, AChronicLaggardIsNotWaitedFor) {
  TimedWord word(4);
  for (int round = 0; round < 3; ++round)
    EXPECT_EQ(word.round_with_a_laggard(), (std::vector<std::uint32_t>{0, 0, 0, 4}));
  for (int round = 0; round < 8; ++round)
    EXPECT_EQ(word.round_with_a_laggard(), (std::vector<std::uint32_t>{0, 0, 3, 1}));
}

// One thread marks all: the third copy delays the fourth mark, which is not late for that.
TEST(PartDeadline, CopiesOfAThreadMakeItsNextMarksNoLater) {
  TimedWord word(4);
  for (int round = 0; round < 3; ++round) word.round_with_a_laggard();
  std::vector<std::uint32_t> last_moves;
  for (std::uint64_t now = 10'000'000; now < 100'000'000; now += 10'000'000) {
    word.start();
    word.open();
    for (std::uint32_t p = 0; p < 3; ++p) (void)word.mark(p, now + p);
    const std::uint64_t copied = word.has_expired() ? 5 * kAfter : 0;
    last_moves.push_back(word.mark(3, now + 3 + copied, copied).front().count);
  }
  EXPECT_EQ(last_moves, (std::vector<std::uint32_t>{1, 1, 1, 4, 4, 4, 4, 4, 4}));
}

// Numbers are taken before marks: the one with the last number may not be the last to mark.
TEST(PartDeadline, WhereAllAreInTimeOnlyCompletionMoves) {
  TimedWord word(32);
  for (std::uint64_t now = 10'000; now < 100'000; now += 10'000) {
    word.start();
    word.open();
    for (std::uint32_t p = 0; p < 31; ++p) EXPECT_EQ(word.mark(p, now + p), Runs{});
    EXPECT_EQ(word.mark(31, now + 31), (Runs{{0, 32}}));
    EXPECT_FALSE(word.has_expired());
  }
}

TEST(PartDeadline, TheMedianOfFiveRoundsIsTheExpectedCount) {
  TimedWord word(4);
  const auto all_in_time = [&] {
    word.start();
    word.open();
    std::uint32_t last = 0;
    for (std::uint32_t p = 0; p < 4; ++p) {
      const Runs runs = word.mark(p, 1'000'000 + p);
      last = runs.empty() ? 0 : runs.front().count;
    }
    return last;
  };
  for (int round = 0; round < 5; ++round) word.round_with_a_laggard();
  EXPECT_EQ(all_in_time(), 1u);  // three are expected
  EXPECT_EQ(all_in_time(), 1u);
  EXPECT_EQ(word.round_with_a_laggard(), (std::vector<std::uint32_t>{0, 0, 3, 1}));
  EXPECT_EQ(all_in_time(), 1u);
  EXPECT_EQ(all_in_time(), 4u);  // all are, as in three of the last five
}

}  // namespace
}  // namespace larklane::part
