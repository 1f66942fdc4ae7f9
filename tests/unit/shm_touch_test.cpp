// Pages that the program's SIGSEGV handler opens, opened by a thread that is in no call of ours.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <semaphore>
#include <thread>

#include "shm/program_touch.hpp"

namespace larklane::shm {
namespace {

constexpr std::size_t kPage = 4096, kPages = 16;

std::byte* area;
// relaxed, all: touch_by_program() orders the handler before its return.
std::array<std::atomic<int>, kPages> faults;
std::atomic<pid_t> fault_thread;

void open_page(int /*number*/, siginfo_t* info, void* /*context*/) {
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(info->si_addr) - area);
  if (offset >= kPages * kPage) ::_exit(3);
  faults[offset / kPage].fetch_add(1, std::memory_order_relaxed);
  fault_thread.store(::gettid(), std::memory_order_relaxed);
  ::mprotect(area + offset / kPage * kPage, kPage, PROT_READ | PROT_WRITE);
}

/// A thread of the program that blocks in a call of its own until the test ends.
class Blocked {
 public:
  explicit Blocked(const std::function<void()>& first = [] {}) {
    thread_ = std::thread([this, first] {
      first();
      id = ::gettid();
      ready_.release();
      end_.acquire();
    });
    ready_.acquire();
  }
  ~Blocked() {
    end_.release();
    thread_.join();
  }
  pid_t id = 0;

 private:
  std::binary_semaphore ready_{0}, end_{0};
  std::thread thread_;
};

void block_faults() {
  sigset_t faults_only;
  ::sigemptyset(&faults_only);
  ::sigaddset(&faults_only, SIGSEGV);
  ::pthread_sigmask(SIG_BLOCK, &faults_only, nullptr);
}

class TouchTest : public testing::Test {
 protected:
  void SetUp() override {
    area = static_cast<std::byte*>(::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(area, MAP_FAILED);
    for (auto& count : faults) count.store(0, std::memory_order_relaxed);
    struct sigaction action {};
    action.sa_sigaction = open_page;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ASSERT_EQ(::sigaction(SIGSEGV, &action, &former_), 0);
    // The test's own threads are none of the program's.
    sigset_t all;
    ::sigfillset(&all);
    ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, &all, &mask_), 0);
  }
  void TearDown() override {
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
    ::sigaction(SIGSEGV, &former_, nullptr);
    ::munmap(area, kPages * kPage);
  }
  void let_program_run() { ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr); }
  void become_library() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  }
  /// A new thread inherits the mask of its maker.
  std::unique_ptr<Blocked> program_thread(const std::function<void()>& first = [] {}) {
    let_program_run();
    auto thread = std::make_unique<Blocked>(first);
    become_library();
    return thread;
  }
  static Buffer bytes() {
    static const Typemap plain = Typemap::contiguous(1);
    return {&plain, reinterpret_cast<std::uintptr_t>(area)};
  }
  static std::span<const pid_t> of(const Blocked& thread) { return {&thread.id, 1}; }
  struct sigaction former_ {};
  sigset_t mask_{};
};

TEST_F(TouchTest, AThreadInACallOfItsOwnOpensThePages) {
  const auto blocked = program_thread();
  std::memset(area, 7, kPages * kPage);
  for (const Access access : {Access::read, Access::write}) {
    ::mprotect(area, kPages * kPage, access == Access::read ? PROT_NONE : PROT_READ);
    for (auto& count : faults) count.store(0, std::memory_order_relaxed);
    ASSERT_TRUE(touch_by_program(of(*blocked), bytes(), {kPage + 5, 3 * kPage}, access).ok());
    for (std::size_t page = 0; page < kPages; ++page)
      EXPECT_EQ(faults[page].load(std::memory_order_relaxed), page >= 1 && page <= 4 ? 1 : 0)
          << page;
    EXPECT_EQ(fault_thread.load(std::memory_order_relaxed), blocked->id);
  }
  ::mprotect(area, kPages * kPage, PROT_READ);
  for (std::size_t i = 0; i < kPages * kPage; ++i) ASSERT_EQ(area[i], std::byte{7}) << i;
}

TEST_F(TouchTest, OnlyPagesOfTheDatatypeAreTouched) {
  const auto blocked = program_thread();
  ::mprotect(area, kPages * kPage, PROT_NONE);
  // 8 bytes in each third page, across its end in the last
  const Typemap sparse({{0, 8}}, 3 * kPage);
  const Buffer buffer{&sparse, reinterpret_cast<std::uintptr_t>(area) + kPage - 4};
  ASSERT_TRUE(
      touch_by_program(of(*blocked), buffer, {4, 12}, Access::write).ok());  // half of 0, all of 1
  for (std::size_t page = 0; page < kPages; ++page)
    EXPECT_EQ(faults[page].load(std::memory_order_relaxed),
              page == 1 || page == 3 || page == 4 ? 1 : 0)
        << page;
}

TEST_F(TouchTest, AThreadThatBlocksFaultsIsLeftAlone) {
  const auto blocked = program_thread(block_faults);
  ::mprotect(area, kPages * kPage, PROT_NONE);
  EXPECT_EQ(touch_by_program(of(*blocked), bytes(), {0, kPage}, Access::read).code(),
            Errc::kNoThread);
  EXPECT_EQ(faults[0].load(std::memory_order_relaxed), 0);
  const auto other = program_thread();
  const std::array<pid_t, 3> threads{-1, blocked->id, other->id};  // the first has ended
  EXPECT_TRUE(touch_by_program(threads, bytes(), {0, kPage}, Access::read).ok());
  EXPECT_EQ(fault_thread.load(std::memory_order_relaxed), other->id);
}

TEST_F(TouchTest, AProgramThatHandlesTheSignalKeepsIt) {
  struct sigaction own {
  }, former{};
  own.sa_handler = [](int) { ::_exit(4); };
  ASSERT_EQ(::sigaction(SIGURG, &own, &former), 0);
  const auto blocked = program_thread();
  ::mprotect(area, kPages * kPage, PROT_NONE);
  EXPECT_TRUE(touch_by_program(of(*blocked), bytes(), {0, kPages * kPage}, Access::read).ok());
  EXPECT_EQ(faults[kPages - 1].load(std::memory_order_relaxed), 1);
  struct sigaction now {};
  ASSERT_EQ(::sigaction(SIGURG, &former, &now), 0);
  EXPECT_EQ(now.sa_handler, own.sa_handler);
}

TEST_F(TouchTest, BytesThatAnotherThreadWritesKeepItsValues) {
  const auto blocked = program_thread();
  std::atomic<bool> ends{false};
  auto* const counter = reinterpret_cast<std::atomic<unsigned char>*>(area);
  std::thread writer([&] {
    for (unsigned char next = 1; !ends.load(std::memory_order_relaxed); ++next) {
      counter->store(next, std::memory_order_relaxed);
      if (counter->load(std::memory_order_relaxed) != next) ::_exit(5);
    }
  });
  for (int i = 0; i < 200; ++i)
    ASSERT_TRUE(touch_by_program(of(*blocked), bytes(), {0, kPage}, Access::write).ok());
  ends.store(true, std::memory_order_relaxed);
  writer.join();
}

TEST_F(TouchTest, ManyRequestersTakeTurns) {
  const auto one = program_thread(), two = program_thread();
  const std::array<pid_t, 2> both{one->id, two->id};
  std::array<std::thread, 3> requesters;
  for (std::size_t r = 0; r < requesters.size(); ++r)
    requesters[r] = std::thread([r, both] {
      for (int i = 0; i < 50; ++i) {
        ::mprotect(area + r * kPage, kPage, PROT_NONE);
        const int before = faults[r].load(std::memory_order_relaxed);
        if (!touch_by_program(both, bytes(), {r * kPage, kPage}, Access::read).ok()) ::_exit(6);
        if (faults[r].load(std::memory_order_relaxed) != before + 1) ::_exit(7);
      }
    });
  for (std::thread& requester : requesters) requester.join();
}

}  // namespace
}  // namespace larklane::shm
