// Shared segments, the memory left for them, and their block pools.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "part/protocol/block.hpp"
#include "shm/memory_room.hpp"
#include "shm/segment.hpp"

namespace larklane::shm {
namespace {

TEST(ShmSegment, IsSealedZeroedAndOfItsSize) {
  auto segment = Segment::create(12'288);
  ASSERT_TRUE(segment.has_value());
  EXPECT_EQ((*segment)->bytes(), 12'288u);
  for (std::size_t i = 0; i < 12'288; ++i) ASSERT_EQ((*segment)->base()[i], std::byte{0});
  EXPECT_NE(::ftruncate((*segment)->fd(), 4096), 0);
  EXPECT_NE(::ftruncate((*segment)->fd(), 1 << 20), 0);
  EXPECT_NE(::fcntl((*segment)->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(ShmSegment, APeersSegmentMustBeSealedAndOfTheStatedSize) {
  auto segment = Segment::create(8192);
  ASSERT_TRUE(segment.has_value());
  auto again = [&](std::uint64_t bytes) {
    return Segment::map(UniqueFd(::dup((*segment)->fd())), bytes);
  };
  EXPECT_EQ(again(4096).error().code(), Errc::kProtocol);
  EXPECT_EQ(again(16'384).error().code(), Errc::kProtocol);
  auto own = again(8192);
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ((*own)->base(), (*segment)->base()) << "mapped twice";

  UniqueFd loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(loose.get(), 8192), 0);
  EXPECT_EQ(Segment::map(UniqueFd(::dup(loose.get())), 8192).error().code(), Errc::kProtocol);
  ASSERT_EQ(::fcntl(loose.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_TRUE(Segment::map(std::move(loose), 8192).has_value());
  EXPECT_EQ(Segment::map(UniqueFd(), 8192).error().code(), Errc::kProtocol);
}

TEST(ShmSegment, OneLargerThanTheMachinesMemoryIsAnErrorAtOnce) {
  const std::uint64_t room = memory_room_bytes();
  if (room == std::numeric_limits<std::uint64_t>::max()) GTEST_SKIP() << "the system does not tell";
  const auto segment = Segment::create(room * 2 + (std::uint64_t{1} << 30));
  EXPECT_EQ(segment.error(), Status(Errc::kNoMemory, ENOMEM));
}

std::uint64_t allocated_bytes(const Segment& segment) {
  struct stat info {};
  return ::fstat(segment.fd(), &info) == 0 ? static_cast<std::uint64_t>(info.st_blocks) * 512 : 0;
}

/// As MADV_POPULATE_WRITE, which kernels before 5.14 do not have.
bool can_allocate_mapped() {
  void* const page =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const bool can = ::madvise(page, 4096, 23) == 0;
  ::munmap(page, 4096);
  return can;
}

TEST(ShmSegment, AllocatedOnReserveItTakesItsMemoryOnReserve) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kBytes = 64 * kMiB;
  if (!can_allocate_mapped()) GTEST_SKIP() << "the kernel can't";
  if (memory_room_bytes() < 16 * kBytes) GTEST_SKIP() << "memory is short here";
  auto segment = Segment::create(kBytes, Allocate::on_reserve);
  ASSERT_TRUE(segment.has_value());
  EXPECT_FALSE((*segment)->is_allocated());
  EXPECT_LT(allocated_bytes(**segment), kMiB);
  EXPECT_TRUE((*segment)->reserve(8 * kMiB + 100, 2 * kMiB).ok());
  EXPECT_GE(allocated_bytes(**segment), 2 * kMiB);
  EXPECT_LT(allocated_bytes(**segment), 4 * kMiB);
  EXPECT_TRUE((*segment)->reserve(0, kBytes).ok());
  EXPECT_EQ(allocated_bytes(**segment), kBytes);
}

TEST(ShmSegment, AllocatedOnReserveASmallOneTakesItsMemoryAtOnce) {
  auto segment = Segment::create(std::uint64_t{1} << 20, Allocate::on_reserve);
  ASSERT_TRUE(segment.has_value());
  EXPECT_TRUE((*segment)->is_allocated());
  EXPECT_EQ(allocated_bytes(**segment), std::uint64_t{1} << 20);
}

TEST(ShmSegment, AllocatedOnUseItTakesPagesOnceTheyAreUsed) {
  std::ifstream file("/proc/sys/vm/overcommit_memory");
  int mode = 2;
  file >> mode;
  if (mode == 2 || !can_allocate_mapped()) GTEST_SKIP() << "the kernel does not";
  constexpr std::uint64_t kBytes = std::uint64_t{2} << 20;
  auto segment = Segment::create(kBytes, Allocate::on_use);
  ASSERT_TRUE(segment.has_value());
  EXPECT_EQ(allocated_bytes(**segment), 4096u);  // one page was tried
  EXPECT_TRUE((*segment)->reserve(64 << 10, 8 << 10).ok());
  EXPECT_EQ(allocated_bytes(**segment), 12288u);
  (*segment)->base()[kBytes - 1] = std::byte{1};
  EXPECT_EQ(allocated_bytes(**segment), 16384u);
}

TEST(ShmSegment, ATimerThatNeverStopsDoesNotRefuseMemory) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction former {};
  ASSERT_EQ(::sigaction(SIGALRM, &action, &former), 0);
  const itimerval often{{0, 500}, {0, 500}};
  const itimerval never{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  const auto segment = Segment::create(std::uint64_t{48} << 20);
  EXPECT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
  EXPECT_EQ(::sigaction(SIGALRM, &former, nullptr), 0);
  EXPECT_TRUE(segment.has_value()) << segment.error().detail();
}

/// A procfs and control groups as a test wants them. Thread safety: single-owner.
class MemoryRoomTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "larklane-room-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    write("proc/meminfo",
          "MemTotal: 900 kB\nMemFree: 5 kB\nMemAvailable: 100 kB\nSwapFree: 20 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::uint64_t room_kib() const {
    return memory_room_bytes((root_ / "proc").string(), (root_ / "groups").string()) / 1024;
  }

 private:
  std::filesystem::path root_;
};

TEST_F(MemoryRoomTest, IsTheMachinesMemory) {
  EXPECT_EQ(room_kib(), 120u);
  write("proc/self/cgroup", "0::/a/b\n");
  write("groups/a/b/memory.max", "max\n");
  EXPECT_EQ(room_kib(), 120u);
}

TEST_F(MemoryRoomTest, IsTheRestOfTheTightestGroup) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("groups/a/b/memory.max", "max\n");
  write("groups/a/memory.max", "81920\n");
  write("groups/a/memory.current", "61440\n");
  write("groups/a/memory.swap.max", "0\n");
  EXPECT_EQ(room_kib(), 20u);
  write("groups/a/memory.stat", "anon 1024\nactive_file 2048\ninactive_file 8192\n");
  EXPECT_EQ(room_kib(), 30u);
  write("groups/a/memory.swap.max", "max\n");
  EXPECT_EQ(room_kib(), 50u);
}

TEST_F(MemoryRoomTest, ReadsTheOldGroupsToo) {
  write("proc/self/cgroup", "9:name=systemd:/x\n5:cpu,memory:/of/another/namespace\n");
  write("groups/memory/memory.limit_in_bytes", "10240\n");
  write("groups/memory/memory.usage_in_bytes", "8192\n");
  EXPECT_EQ(room_kib(), 2u);
}

TEST_F(MemoryRoomTest, IsUnlimitedWithoutAStatedLimit) {
  write("proc/meminfo", "");
  EXPECT_EQ(room_kib(), std::numeric_limits<std::uint64_t>::max() / 1024);
}

TEST(ShmBlockPool, BlocksDoNotOverlapAndComeAgainWithANewGeneration) {
  BlockPool pool;
  std::vector<Block> blocks;
  for (const std::uint64_t bytes : {1u, 64u, 1024u, 1025u, 5000u, 262'144u, 262'145u, 3'000'000u})
    for (int i = 0; i < 5; ++i) {
      auto block = pool.allocate(bytes);
      ASSERT_TRUE(block.has_value());
      EXPECT_GE(block->bytes, bytes);
      EXPECT_EQ(block->generation, 1u);
      ASSERT_LE(block->offset + block->bytes, block->segment->bytes());
      for (const Block& other : blocks)
        ASSERT_TRUE(other.segment_id != block->segment_id ||
                    other.offset + other.bytes <= block->offset ||
                    block->offset + block->bytes <= other.offset);
      blocks.push_back(*block);
    }
  const Block small = blocks[0];
  pool.release(small);
  auto again = pool.allocate(700);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->base(), small.base());
  EXPECT_EQ(again->generation, 2u);
  pool.release(*again);
  for (std::size_t i = 1; i < blocks.size(); ++i) pool.release(blocks[i]);
  EXPECT_EQ(pool.bytes_in_use(), 0u);
}

TEST(ShmBlockPool, ReuseTakesNoNewMemory) {
  BlockPool pool;
  std::set<std::byte*> places;
  for (int i = 0; i < 10'000; ++i) {
    auto block = pool.allocate(3000);
    ASSERT_TRUE(block.has_value());
    places.insert(block->base());
    pool.release(*block);
  }
  EXPECT_EQ(places.size(), 1u);
}

TEST(ShmBlockPool, AFileSizeLimitIsAnError) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{4096, 4096};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    BlockPool pool;
    const auto block = pool.allocate(100);
    ::_exit(block.error().code() == Errc::kNoMemory && block.error().detail() == EFBIG ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(PartBlock, ConstructMakesReusedMemoryFresh) {
  using part::BlockOffsets;
  using part::BlockShape;
  using part::Mode;
  const BlockShape shape{Mode::slots, 70, 0, 3, 2, 0, 10};
  BlockPool pool;
  auto block = pool.allocate(BlockOffsets::of(shape).end);
  ASSERT_TRUE(block.has_value());
  std::fill_n(block->base(), block->bytes, std::byte{0xee});
  const part::BlockView<part::RealPlatform> view(block->base(), shape);
  view.construct(shape, 9);
  EXPECT_EQ(view.header().generation, 9u);
  EXPECT_EQ(view.header().moved_count.load(std::memory_order_relaxed), 0u);
  EXPECT_EQ(view.header().opened_round.load(std::memory_order_relaxed), 0u);
  EXPECT_EQ(view.header().pushed_count.load(std::memory_order_relaxed), 0u);
  EXPECT_EQ(view.header().shared_copies.open_jobs.load(std::memory_order_relaxed), 0u);
  for (const std::uint64_t round : {1u, 2u}) {
    for (std::uint32_t w = 0; w < 3; ++w)
      EXPECT_EQ(view.word(round, w).state.load(std::memory_order_relaxed),
                part::word_state::fresh(round));
    for (std::uint32_t r = 0; r < 2; ++r)
      EXPECT_EQ(view.root(round, r).state.load(std::memory_order_relaxed),
                part::word_state::fresh(round));
  }
  for (std::uint32_t p = 0; p < shape.partitions; ++p) {
    EXPECT_EQ(view.arrived()[p].load(std::memory_order_relaxed), 0u);
    EXPECT_EQ(view.marks(1)[p].load(std::memory_order_relaxed), part::kNeverMarked);
    EXPECT_EQ(view.marks(2)[p].load(std::memory_order_relaxed), part::kNeverMarked);
  }
}

}  // namespace
}  // namespace larklane::shm
