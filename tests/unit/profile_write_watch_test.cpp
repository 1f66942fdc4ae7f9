// WriteWatch: the thread that first writes each page.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "profile/write_watch.hpp"

namespace larklane::profile {
namespace {

const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

/// Memory of whole pages, each written once.
class Pages {
 public:
  explicit Pages(std::size_t count)
      : bytes_(count * kPage),
        memory_(static_cast<char*>(
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    std::memset(memory_, 1, bytes_);
  }
  ~Pages() { ::munmap(memory_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  char* at(std::size_t page) const { return memory_ + page * kPage; }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(memory_); }
  std::size_t bytes() const { return bytes_; }
  std::size_t index(std::uintptr_t page) const { return (page - address()) / kPage; }

 private:
  const std::size_t bytes_;
  char* const memory_;
};

class WriteWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = WriteWatch::create();
    if (!made) GTEST_SKIP() << std::strerror(made.error().detail()) << ": " << WriteWatch::kRemedy;
    watch_ = std::move(*made);
  }
  std::vector<WriteWatch::Write> taken() {
    std::vector<WriteWatch::Write> writes;
    watch_->take([&](const WriteWatch::Write& write) { writes.push_back(write); });
    return writes;
  }
  std::unique_ptr<WriteWatch> watch_;
};

TEST_F(WriteWatchTest, NamesTheThreadThatWritesEachPageFirst) {
  constexpr std::size_t kThreads = 4, kEach = 4;
  const Pages pages(kThreads * kEach);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(watch_->watch(pages.address(), pages.bytes()).ok());
    const std::uint64_t begin_ns = now_ns();
    int ids[kThreads];
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        ids[i] = ::gettid();
        std::memset(pages.at(i * kEach), round, kEach * kPage);
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::memset(pages.at(0), 7, pages.bytes());  // not the first write
    std::map<std::size_t, int> by_page;
    for (const WriteWatch::Write& write : taken()) {
      EXPECT_TRUE(by_page.emplace(pages.index(write.page), write.thread).second);
      EXPECT_TRUE(write.time_ns >= begin_ns && write.time_ns <= now_ns());
    }
    ASSERT_EQ(by_page.size(), kThreads * kEach);
    for (const auto& [page, thread] : by_page) EXPECT_EQ(thread, ids[page / kEach]) << page;
  }
}

TEST_F(WriteWatchTest, TheKernelWritesAsWithoutIt) {
  const Pages pages(2), source(2);
  ASSERT_TRUE(watch_->watch(pages.address(), pages.bytes()).ok());
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  ASSERT_EQ(::write(pipes[1], source.at(0), source.bytes()), static_cast<ssize_t>(source.bytes()));
  EXPECT_EQ(::read(pipes[0], pages.at(0), pages.bytes()), static_cast<ssize_t>(pages.bytes()));
  ::close(pipes[0]);
  ::close(pipes[1]);
  EXPECT_EQ(std::memcmp(pages.at(0), source.at(0), pages.bytes()), 0);
  const auto writes = taken();
  ASSERT_EQ(writes.size(), 2u);
  EXPECT_EQ(writes[0].thread, ::gettid());
}

TEST_F(WriteWatchTest, LeavesOutPagesThatHoldSomethingElse) {
  const Pages pages(4);
  ASSERT_TRUE(watch_->watch(pages.address() + 1, 3 * kPage).ok());
  ASSERT_TRUE(watch_->watch(pages.address() + 1, 10).ok());
  for (std::size_t i = 0; i < 4; ++i) *pages.at(i) = 2;
  std::vector<std::size_t> found;
  for (const WriteWatch::Write& write : taken()) found.push_back(pages.index(write.page));
  EXPECT_EQ(found, (std::vector<std::size_t>{1, 2}));
}

TEST_F(WriteWatchTest, WatchesMemoryThatHasComeBack) {
  for (int round = 0; round < 2; ++round) {
    const Pages pages(2);  // the same addresses, as a rule
    ASSERT_TRUE(watch_->watch(pages.address(), pages.bytes()).ok());
    *pages.at(1) = 2;
    EXPECT_EQ(taken().size(), 1u);
  }
}

TEST_F(WriteWatchTest, ItsEndLetsEveryThreadWrite) {
  const Pages pages(2);
  ASSERT_TRUE(watch_->watch(pages.address(), pages.bytes()).ok());
  watch_.reset();
  *pages.at(0) = 2;
  EXPECT_EQ(*pages.at(0), 2);
}

TEST_F(WriteWatchTest, ReportsMemoryThatItCanNotWatch) {
  const int file = ::open("/proc/self/exe", O_RDONLY);
  void* const mapped = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(watch_->watch(reinterpret_cast<std::uintptr_t>(mapped), kPage),
            Status(Errc::kSystem, EINVAL));
  *static_cast<char*>(mapped) = 1;
  ::munmap(mapped, kPage);
  ::close(file);
}

TEST_F(WriteWatchTest, TakesSoManyBuffersOnly) {
  const Pages pages(2 * 4097);
  for (std::size_t i = 0; i < 4096; ++i)
    ASSERT_TRUE(watch_->watch(pages.address() + 2 * i * kPage, kPage).ok()) << i;
  EXPECT_EQ(watch_->watch(pages.address() + 2 * 4096 * kPage, kPage),
            Status(Errc::kSystem, ENOBUFS));
  EXPECT_TRUE(watch_->watch(pages.address(), kPage).ok());
}

TEST_F(WriteWatchTest, CountsUntakenPages) {
  const Pages pages(1);
  for (int i = 0; i < 65536 + 3; ++i) {
    ASSERT_TRUE(watch_->watch(pages.address(), kPage).ok());
    *pages.at(0) = static_cast<char>(i);
  }
  EXPECT_EQ(taken().size(), 65536u);
  EXPECT_EQ(watch_->dropped_count(), 3u);
}

}  // namespace
}  // namespace larklane::profile
