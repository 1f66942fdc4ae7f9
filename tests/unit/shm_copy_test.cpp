// Copies by typemap, within and between processes.

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <utility>
#include <vector>

#include "base/copy_small.hpp"
#include "net/loop/random.hpp"
#include "shm/copy.hpp"

namespace larklane::shm {
namespace {

constexpr std::size_t kArenaBytes = 8192;
constexpr std::size_t kOrigin = 4096;  // of element 0
constexpr std::uint64_t kElements = 24;

/// A typemap that keeps the blocks that it was made of.
struct Type : Typemap {
  Type(std::vector<TypeBlock> all, std::int64_t extent_bytes)
      : Typemap(all, extent_bytes), blocks(std::move(all)) {}
  static Type contiguous(std::uint64_t bytes) {
    return {{{0, bytes}}, static_cast<std::int64_t>(bytes)};
  }
  std::vector<TypeBlock> blocks;
};

/// Blocks of one element that never overlap, in any order; elements may be interleaved, and the
/// extent may be negative.
Type random_type(loop::Random& random, bool overlapping) {
  std::vector<TypeBlock> blocks;
  std::int64_t at = static_cast<std::int64_t>(random.below(40)) - 20;
  for (std::uint64_t left = 1 + random.below(5); left != 0; --left) {
    const std::uint64_t length = 1 + random.below(9);
    blocks.push_back({at, length});
    at += static_cast<std::int64_t>(length + random.below(4));
  }
  const std::int64_t span = at - blocks.front().offset_bytes;
  for (std::size_t i = blocks.size(); i > 1; --i) std::swap(blocks[i - 1], blocks[random.below(i)]);
  std::int64_t extent = span + static_cast<std::int64_t>(random.below(6));
  if (overlapping) extent = static_cast<std::int64_t>(random.below(8));
  if (random.one_in(4)) extent = -extent;
  return {std::move(blocks), extent};
}

/// Where packed byte `i` lies: by counting, byte by byte.
std::size_t place(const Type& type, std::uint64_t i) {
  std::uint64_t left = i % type.size_bytes();
  const auto element = static_cast<std::int64_t>(i / type.size_bytes());
  for (const TypeBlock& block : type.blocks) {
    if (left < block.length_bytes)
      return static_cast<std::size_t>(static_cast<std::int64_t>(kOrigin) +
                                      element * type.extent_bytes() + block.offset_bytes +
                                      static_cast<std::int64_t>(left));
    left -= block.length_bytes;
  }
  return 0;
}

std::vector<std::byte> random_bytes(loop::Random& random, std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  for (std::byte& b : all) b = std::byte(random.below(256));
  return all;
}

Buffer buffer_of(const Typemap& type, std::vector<std::byte>& arena) {
  return {&type, reinterpret_cast<std::uintptr_t>(arena.data()) + kOrigin};
}

TEST(ShmCopy, PackAndUnpackAreThoseOfTheModel) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    loop::Random random(seed);
    const Type type = random.one_in(8) ? Type::contiguous(1 + random.below(9))
                                       : random_type(random, random.one_in(3));
    const std::uint64_t total = kElements * type.size_bytes();
    const std::uint64_t offset = random.below(total);
    const std::uint64_t length = 1 + random.below(total - offset);
    auto arena = random_bytes(random, kArenaBytes);
    std::vector<std::byte> slot(length);
    pack(buffer_of(type, arena), offset, length, slot.data());
    for (std::uint64_t i = 0; i < length; ++i)
      ASSERT_EQ(slot[i], arena[place(type, offset + i)]) << "seed " << seed;

    slot = random_bytes(random, length);
    auto expected = arena;
    for (std::uint64_t i = 0; i < length; ++i) expected[place(type, offset + i)] = slot[i];
    unpack(buffer_of(type, arena), offset, length, slot.data());
    ASSERT_TRUE(arena == expected) << "seed " << seed;
  }
}

/// Two types of the same size: every byte has its place in both.
struct Two {
  Type from, to;
};
Two random_pair(loop::Random& random) {
  for (;;) {
    Type from = random.one_in(4) ? Type::contiguous(1 + random.below(20))
                                 : random_type(random, random.one_in(3));
    Type to = random.one_in(4) ? Type::contiguous(from.size_bytes()) : random_type(random, false);
    if (from.size_bytes() == to.size_bytes()) return {std::move(from), std::move(to)};
  }
}

/// A part of two buffers, and the second one after the part's copy.
struct Copied {
  Two types;
  std::uint64_t offset, length;
  std::vector<std::byte> from, to, expected;
};
Copied random_part(loop::Random& random) {
  Two types = random_pair(random);
  const std::uint64_t total = kElements * types.from.size_bytes();
  const std::uint64_t offset = random.below(total);
  const std::uint64_t length = 1 + random.below(total - offset);
  auto from = random_bytes(random, kArenaBytes);
  auto to = random_bytes(random, kArenaBytes);
  auto expected = to;
  for (std::uint64_t i = offset; i < offset + length; ++i)
    expected[place(types.to, i)] = from[place(types.from, i)];
  return {std::move(types), offset, length, std::move(from), std::move(to), std::move(expected)};
}

TEST(ShmCopy, CopyIsThatOfTheModel) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    loop::Random random(seed);
    auto [types, offset, length, from, to, expected] = random_part(random);
    copy(buffer_of(types.from, from), buffer_of(types.to, to), offset, length);
    ASSERT_TRUE(to == expected) << "seed " << seed;
  }
}

/// A child that only holds memory; shared, so that the test can look at it.
class Holder {
 public:
  explicit Holder(std::size_t bytes) : bytes_(bytes) {
    memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(memory_, MAP_FAILED);
    pid_ = ::fork();
    if (pid_ == 0)
      for (;;) ::pause();
  }
  ~Holder() {
    end();
    ::munmap(memory_, bytes_);
  }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  std::size_t bytes_;
  void* memory_;
  pid_t pid_;
};

bool attach_is_possible() {
  Holder child(4096);
  return attach_allowed(Direction::read, child.pid()) &&
         attach_allowed(Direction::write, child.pid());
}

TEST(ShmAttach, BothDirectionsAreThoseOfTheModel) {
  if (!attach_is_possible()) GTEST_SKIP() << "the kernel forbids attach";
  Holder child(kArenaBytes);
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    loop::Random random(seed);
    const auto [types, offset, length, from, to, expected] = random_part(random);
    const std::uintptr_t there = reinterpret_cast<std::uintptr_t>(child.data()) + kOrigin;

    std::copy(to.begin(), to.end(), child.data());
    auto ours = from;
    Piece pushed{offset, length};
    ASSERT_TRUE(attach_copy(Direction::write, child.pid(), buffer_of(types.from, ours),
                            {&types.to, there}, pushed)
                    .ok());
    ASSERT_EQ(pushed.length, 0u);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), child.data())) << "seed " << seed;

    std::copy(from.begin(), from.end(), child.data());
    ours = to;
    Piece pulled{offset, length};
    ASSERT_TRUE(attach_copy(Direction::read, child.pid(), buffer_of(types.to, ours),
                            {&types.from, there}, pulled)
                    .ok());
    ASSERT_TRUE(ours == expected) << "seed " << seed;
  }
}

TEST(ShmAttach, ErrorsCarryTheErrno) {
  if (!attach_is_possible()) GTEST_SKIP() << "the kernel forbids attach";
  const Typemap bytes = Typemap::contiguous(1);
  std::vector<std::byte> arena(kArenaBytes);
  Holder child(4096);
  Piece piece{0, 8};
  const Status fault =
      attach_copy(Direction::write, child.pid(), buffer_of(bytes, arena), {&bytes, 16}, piece);
  EXPECT_EQ(fault, Status(Errc::kTransfer, EFAULT));
  EXPECT_EQ(piece.length, 8u);
  const pid_t pid = child.pid();
  child.end();
  const Status gone =
      attach_copy(Direction::read, pid, buffer_of(bytes, arena), {&bytes, 16}, piece);
  EXPECT_EQ(gone, Status(Errc::kTransfer, ESRCH));
  EXPECT_FALSE(attach_allowed(Direction::read, pid));
  EXPECT_FALSE(attach_allowed(Direction::read, 0));
}

/// Runs in a child, because a filter can't be taken back. Exit status: the number of the failed
/// check.
int try_refused() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{4, code};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 1;
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 2;
  const Typemap bytes = Typemap::contiguous(1);
  std::byte from[8]{}, to[8]{};
  const Buffer ours{&bytes, reinterpret_cast<std::uintptr_t>(from)};
  const Buffer theirs{&bytes, reinterpret_cast<std::uintptr_t>(to)};
  if (attach_allowed(Direction::write, ::getpid())) return 3;
  if (!attach_allowed(Direction::read, ::getpid())) return 4;
  Piece piece{0, 8};
  if (attach_copy(Direction::write, ::getpid(), ours, theirs, piece) !=
      Status(Errc::kTransfer, EPERM))
    return 5;
  return attach_copy(Direction::read, ::getpid(), ours, theirs, piece).ok() ? 0 : 6;
}

TEST(ShmAttach, ARefusalIsOfOneDirection) {
  if (!attach_is_possible()) GTEST_SKIP() << "the kernel forbids attach";
  const pid_t child = ::fork();
  if (child == 0) ::_exit(try_refused());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

constexpr std::size_t kPage = 4096;

/// Pages of memory, the last of them without access. Thread safety: single-owner.
class Fenced {
 public:
  explicit Fenced(std::size_t pages, int protection) : bytes_(pages * kPage) {
    memory_ = static_cast<std::byte*>(
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(memory_, MAP_FAILED);
    fence(protection);
  }
  ~Fenced() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  Fenced(Fenced&& other) noexcept
      : bytes_(other.bytes_), memory_(std::exchange(other.memory_, nullptr)) {}
  Fenced& operator=(Fenced&&) = delete;
  void fence(int protection) { ::mprotect(memory_ + bytes_ - kPage, kPage, protection); }
  std::byte* data() const { return memory_; }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(memory_); }

 private:
  std::size_t bytes_;
  std::byte* memory_;
};

Fenced filled(std::size_t pages) {
  Fenced made(pages, PROT_READ | PROT_WRITE);
  for (std::size_t i = 0; i < pages * kPage; ++i) made.data()[i] = std::byte(i % 251);
  return made;
}

TEST(ShmCheckedCopy, IsThatOfTheModel) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    loop::Random random(seed);
    auto [types, offset, length, from, to, expected] = random_part(random);
    Piece piece{offset, length};
    ASSERT_TRUE(checked_copy(buffer_of(types.from, from), buffer_of(types.to, to), piece).ok());
    ASSERT_EQ(piece.length, 0u);
    ASSERT_TRUE(to == expected) << "seed " << seed;
  }
}

/// The last of 40 pages is closed: the rest goes on where the copy has stopped.
void expect_goes_on(int from_protection, int to_protection) {
  constexpr std::size_t kPages = 40;
  const Typemap bytes = Typemap::contiguous(1);
  Fenced from = filled(kPages), to(kPages, to_protection);
  from.fence(from_protection);
  Piece piece{5, kPages * kPage - 5};
  const Status status = checked_copy({&bytes, from.address()}, {&bytes, to.address()}, piece);
  EXPECT_EQ(status, Status(Errc::kTransfer, EFAULT));
  EXPECT_LT(piece.length, 17 * kPage);  // the capacity of a pipe, and the page
  EXPECT_GE(piece.length, kPage);
  from.fence(PROT_READ | PROT_WRITE);
  to.fence(PROT_READ | PROT_WRITE);
  EXPECT_TRUE(checked_copy({&bytes, from.address()}, {&bytes, to.address()}, piece).ok());
  EXPECT_TRUE(std::equal(from.data() + 5, from.data() + kPages * kPage, to.data() + 5));
  EXPECT_EQ(to.data()[4], std::byte{0});
}

TEST(ShmCheckedCopy, AClosedPageIsAnErrorAndTheRestGoesOn) {
  expect_goes_on(PROT_NONE, PROT_READ | PROT_WRITE);
  expect_goes_on(PROT_READ | PROT_WRITE, PROT_READ);
  expect_goes_on(PROT_NONE, PROT_NONE);
}

TEST(ShmAttach, AnErrorInTheMiddleLeavesTheRest) {
  if (!attach_is_possible()) GTEST_SKIP() << "the kernel forbids attach";
  constexpr std::size_t kPages = 600;
  const Typemap bytes = Typemap::contiguous(1);
  Fenced from = filled(kPages), to(kPages, PROT_READ);
  Piece piece{0, kPages * kPage};
  const Status status = attach_copy(Direction::write, ::getpid(), {&bytes, from.address()},
                                    {&bytes, to.address()}, piece);
  EXPECT_EQ(status, Status(Errc::kTransfer, EFAULT));
  EXPECT_EQ(piece.length, kPage);
  EXPECT_TRUE(std::equal(from.data(), from.data() + piece.offset, to.data()));
}

/// The handler of a program that opens its pages on access.
void open_page(int, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  (void)::mprotect(reinterpret_cast<void*>(at / kPage * kPage), kPage, PROT_READ | PROT_WRITE);
}

/// The last page of ours is closed, of the range that is read or written.
void expect_owner_opens(Direction direction) {
  constexpr std::size_t kPages = 40;
  const Typemap bytes = Typemap::contiguous(1);
  const bool is_write = direction == Direction::write;
  Fenced from(kPages, PROT_READ | PROT_WRITE), to(kPages, PROT_READ | PROT_WRITE);
  for (std::size_t i = 0; i < kPages * kPage; ++i) from.data()[i] = std::byte(i % 251);
  Fenced& ours = is_write ? from : to;
  ours.fence(PROT_NONE);
  const Buffer here{&bytes, ours.address()}, there{&bytes, (is_write ? to : from).address()};
  Piece piece{5, kPages * kPage - 5};
  EXPECT_EQ(attach_copy(direction, ::getpid(), here, there, piece),
            Status(Errc::kTransfer, EFAULT));
  EXPECT_GE(piece.length, kPage);
  EXPECT_TRUE(attach_copy_by_owner(direction, ::getpid(), ::getpid(), here, there, piece).ok());
  EXPECT_EQ(piece.length, 0u);
  EXPECT_TRUE(std::equal(from.data() + 5, from.data() + kPages * kPage, to.data() + 5));
  EXPECT_EQ(to.data()[4], std::byte{0});
}

TEST(ShmAttach, TheOwnerOpensItsPages) {
  if (!attach_is_possible()) GTEST_SKIP() << "the kernel forbids attach";
  struct sigaction action {
  }, before{};
  action.sa_sigaction = open_page;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(::sigaction(SIGSEGV, &action, &before), 0);
  expect_owner_opens(Direction::write);
  expect_owner_opens(Direction::read);
  ASSERT_EQ(::sigaction(SIGSEGV, &before, nullptr), 0);
}

TEST(ShmAttach, TheOwnerGetsTheOthersClosedPages) {
  if (!attach_is_possible()) GTEST_SKIP() << "the kernel forbids attach";
  constexpr std::size_t kPages = 40;
  const Typemap bytes = Typemap::contiguous(1);
  Fenced from = filled(kPages), to(kPages, PROT_READ);
  Piece piece{0, kPages * kPage};
  const Status status =
      attach_copy_by_owner(Direction::write, ::getpid(), ::getpid(), {&bytes, from.address()},
                           {&bytes, to.address()}, piece);
  EXPECT_EQ(status, Status(Errc::kTransfer, EFAULT));
  EXPECT_EQ(piece.length, kPage);
  EXPECT_TRUE(std::equal(from.data(), from.data() + piece.offset, to.data()));
}

/// A process whose first thread has ended is attached to by its helper. Exit status of a child.
int hold_without_first_thread(int told) {
  const auto helper = [](void* argument) -> void* {
    ::pthread_setname_np(::pthread_self(), "larklane");
    if (::write(*static_cast<int*>(argument), "", 1) != 1) ::_exit(1);  // it has its name
    for (;;) ::pause();
  };
  static int end = told;
  pthread_t thread{};
  if (::pthread_create(&thread, nullptr, helper, &end) != 0) return 1;
  ::syscall(SYS_exit, 0);  // this thread alone, and nothing is unwound
  return 1;
}

TEST(ShmAttach, AnEndedFirstThreadIsNoEndedProcess) {
  if (!attach_is_possible()) GTEST_SKIP() << "the kernel forbids attach";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::vector<std::byte> arena(8, std::byte{7});
  const pid_t child = ::fork();
  if (child == 0) ::_exit(hold_without_first_thread(ends[1]));
  char told = 0;
  ASSERT_EQ(::read(ends[0], &told, 1), 1);
  const auto deadline = ::time(nullptr) + 30;
  while (attach_allowed(Direction::read, child) && ::time(nullptr) < deadline) ::sched_yield();
  EXPECT_EQ(probe_attach(Direction::read, child).detail(), ESRCH);
  const pid_t thread = attach_thread(child);
  EXPECT_NE(thread, child);
  EXPECT_TRUE(attach_allowed_to(Direction::read, child));
  const Typemap bytes = Typemap::contiguous(1);
  const Buffer there{&bytes, reinterpret_cast<std::uintptr_t>(arena.data())};
  std::byte here[8]{};
  Piece piece{0, 8};
  EXPECT_TRUE(attach_copy(Direction::read, thread, {&bytes, reinterpret_cast<std::uintptr_t>(here)},
                          there, piece)
                  .ok());
  EXPECT_EQ(here[0], std::byte{7});
  const auto read_by = [&](pid_t process, pid_t by) {
    here[0] = std::byte{0};
    piece = {0, 8};
    return attach_copy(Direction::read, process, by,
                       {&bytes, reinterpret_cast<std::uintptr_t>(here)}, there, piece);
  };
  EXPECT_TRUE(read_by(child, thread).ok());
  EXPECT_EQ(here[0], std::byte{7});
  // As if the kernel had given the number of the helper, which has ended, to another process.
  const pid_t foreign = ::fork();
  if (foreign == 0)
    for (;;) ::pause();
  EXPECT_TRUE(attach_allowed(Direction::read, foreign));
  EXPECT_EQ(read_by(child, foreign), Status(Errc::kTransfer, ESRCH));
  EXPECT_EQ(here[0], std::byte{0});
  EXPECT_EQ(piece.length, 8U);
  ::kill(foreign, SIGKILL);
  ::waitpid(foreign, nullptr, 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(attach_thread(child), child);
  EXPECT_FALSE(attach_allowed_to(Direction::read, child));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
TEST(ShmCopy, SmallCopiesOfEveryLengthTouchNothingElse) {
  std::vector<std::byte> from(200), to(200 + 16);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = std::byte(1 + i % 250);
  for (std::size_t length = 0; length <= 200; ++length) {
    std::fill(to.begin(), to.end(), std::byte{0});
    copy_small(to.data() + 8, from.data(), length);
    for (std::size_t i = 0; i < to.size(); ++i) {
      const bool inside = i >= 8 && i < 8 + length;
      ASSERT_EQ(to[i], inside ? from[i - 8] : std::byte{0}) << length << " at " << i;
    }
  }
}

}  // namespace larklane::shm
