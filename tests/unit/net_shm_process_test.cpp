// Provider shm between processes: packets, a peer that is killed, kernels that forbid attach.

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"
#include "net/shm/network_fabric.hpp"
#include "unit/msg_packet_pair.hpp"

namespace larklane::msg {
namespace {

constexpr PacketLane::Options kLane{64, 8};
constexpr std::uint32_t kCells = 64;

std::unique_ptr<net::Fabric> open_shm(bool is_attach_allowed = true) {
  std::string reason;
  net::FabricOptions options;
  options.is_attach_allowed = is_attach_allowed;
  auto fabric = shm::open_network(options, &reason);
  EXPECT_TRUE(fabric) << reason;
  return std::move(fabric).value();
}

/// One process's half of a pair.
struct Half {
  explicit Half(std::unique_ptr<net::Fabric> opened)
      : fabric(std::move(opened)), side(*fabric, kLane), end(side, kCells) {}
  Status connect(int socket) {
    const std::vector<std::byte> offer = end.link->offer();
    std::vector<std::byte> other(kPacketOfferBytesMax);
    EXPECT_GT(::send(socket, offer.data(), offer.size(), MSG_NOSIGNAL), 0);
    const ssize_t bytes = ::recv(socket, other.data(), other.size(), 0);
    EXPECT_GT(bytes, 0);
    other.resize(static_cast<std::size_t>(bytes));
    return end.link->connect(other);
  }
  std::unique_ptr<net::Fabric> fabric;
  PacketSide side;
  PacketEnd end;
};

/// A second process, which runs `body` and ends with 0 unless an expectation of it fails.
struct Child {
  explicit Child(const std::function<void(int socket)>& body) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    socket.reset(ends[0]);
    process = ::fork();
    if (process != 0) {
      ::close(ends[1]);
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(50);
    socket.reset();
    body(ends[1]);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int end() {
    int status = 0;
    EXPECT_EQ(::waitpid(process, &status, 0), process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void meet() const { meet_on(socket.get()); }
  static void meet_on(int fd) {
    char byte = 0;
    EXPECT_EQ(::send(fd, &byte, 1, MSG_NOSIGNAL), 1);
    EXPECT_EQ(::recv(fd, &byte, 1, 0), 1);
  }
  UniqueFd socket;
  pid_t process = -1;
};

constexpr std::uint32_t kRecords = 5'000;

/// Both send all records, of all lengths, and hear those of the other.
void exchange(Half& half) {
  std::uint32_t posted = 0, heard = 0;
  half.end.react = [&](const PacketHeader& header, std::span<const std::byte> payload) {
    ASSERT_EQ(header[0], heard++);
    expect_intact(header, payload);
  };
  const std::uint32_t most = half.end.link->payload_bytes_max();
  while (posted < kRecords || heard < kRecords || !half.end.link->is_quiet()) {
    ASSERT_TRUE(half.end.failures.empty());
    if (posted < kRecords && half.end.post(posted, posted * 37 % (most + 1)) == net::Post::done)
      ++posted;
    else if (half.side.vci->progress() == 0)
      std::this_thread::yield();
  }
}

TEST(ShmProcesses, RecordsAreIntactAndInOrderBothWays) {
  Child child([](int socket) {
    Half half(open_shm());
    EXPECT_TRUE(half.connect(socket).ok());
    Child::meet_on(socket);
    exchange(half);
    Child::meet_on(socket);
  });
  Half half(open_shm());
  ASSERT_TRUE(half.connect(child.socket.get()).ok());
  child.meet();
  exchange(half);
  child.meet();
  EXPECT_EQ(child.end(), 0);
}

/// The body of a peer that is connected, and then killed.
void connect_and_pause(int socket) {
  Half half(open_shm());
  EXPECT_TRUE(half.connect(socket).ok());
  Child::meet_on(socket);
  ::pause();
}

TEST(ShmProcesses, AKilledPeerIsNoticedWithAFullRing) {
  Child child(connect_and_pause);
  Half half(open_shm());
  ASSERT_TRUE(half.connect(child.socket.get()).ok());
  child.meet();
  std::uint32_t posted = 0;
  while (half.end.post(posted, 8) == net::Post::done) ASSERT_LE(++posted, kCells);
  EXPECT_EQ(posted, kCells);
  ::kill(child.process, SIGKILL);
  EXPECT_EQ(child.end(), 128 + SIGKILL);
  for (std::uint32_t i = 0; i <= PacketLink::kRefusalsOfAProbe; ++i)
    (void)half.end.link->post({}, {});
  EXPECT_EQ(half.end.link->post({}, {}).error().code(), Errc::kPeerDown);
  EXPECT_EQ(half.end.failures, std::vector<Status>{Status(Errc::kPeerDown, ESRCH)});
  EXPECT_TRUE(half.end.link->is_quiet());
}

TEST(ShmProcesses, AKilledPeerIsNoticedByPolls) {
  Child child(connect_and_pause);
  Half half(open_shm());
  ASSERT_TRUE(half.connect(child.socket.get()).ok());
  child.meet();
  ::kill(child.process, SIGKILL);
  EXPECT_EQ(child.end(), 128 + SIGKILL);
  for (int polls = 0; polls < 5'000; ++polls) (void)half.side.vci->progress();
  (void)half.end.link->post({}, {});
  EXPECT_EQ(half.end.failures, std::vector<Status>{Status(Errc::kPeerDown, ESRCH)});
}

// Its memory stays mapped here, and can be stored to and loaded from. What it had not mapped is
// found no more once its end is known.
TEST(ShmProcesses, MappedMemoryOutlivesItsProcess) {
  constexpr std::uint64_t kBytes = 3u << 20, kWord = 0x1122'3344'5566'7788;
  Child child([](int socket) {
    Half half(open_shm());
    EXPECT_TRUE(half.connect(socket).ok());
    auto memory = std::move(half.fabric->allocate_mapped(kBytes).value());
    *reinterpret_cast<std::uint64_t*>(memory->start()) = kWord;
    const net::RemoteMemory remote = memory->remote();
    EXPECT_EQ(::send(socket, &remote, sizeof remote, 0), ssize_t{sizeof remote});
    Child::meet_on(socket);
    ::pause();
  });
  Half half(open_shm());
  ASSERT_TRUE(half.connect(child.socket.get()).ok());
  net::RemoteMemory remote{};
  ASSERT_EQ(::recv(child.socket.get(), &remote, sizeof remote, 0), ssize_t{sizeof remote});
  child.meet();
  auto mapping = half.end.link->net_link().map(remote.key);
  ASSERT_TRUE(mapping);
  ASSERT_EQ(mapping->bytes, kBytes);
  ASSERT_EQ(mapping->address, remote.address);
  ::kill(child.process, SIGKILL);
  EXPECT_EQ(child.end(), 128 + SIGKILL);
  auto* const words = reinterpret_cast<std::uint64_t*>(mapping->start);
  EXPECT_EQ(words[0], kWord);
  for (std::uint64_t i = 1; i < kBytes / 8; ++i) words[i] = i;
  EXPECT_EQ(words[kBytes / 8 - 1], kBytes / 8 - 1);
  for (int polls = 0; polls < 5'000; ++polls) (void)half.side.vci->progress();
  EXPECT_EQ(half.end.link->net_link().map(remote.key).error().code(), Errc::kPeerDown);
}

// Its offer outlives it: no other process is taken for it.
TEST(ShmProcesses, AnOfferOfTheDeadIsRefused) {
  Child child([](int socket) {
    Half half(open_shm());
    const std::vector<std::byte> offer = half.end.link->offer();
    EXPECT_GT(::send(socket, offer.data(), offer.size(), 0), 0);
  });
  std::vector<std::byte> offer(kPacketOfferBytesMax);
  const ssize_t bytes = ::recv(child.socket.get(), offer.data(), offer.size(), 0);
  ASSERT_GT(bytes, 0);
  offer.resize(static_cast<std::size_t>(bytes));
  EXPECT_EQ(child.end(), 0);
  Half half(open_shm());
  EXPECT_EQ(half.end.link->connect(offer).code(), Errc::kPeerDown);
}

// In any stage of its end.
TEST(ShmProcesses, AnOfferOfAProcessThatIsEndingIsRefusedAsOfTheDead) {
  int refused = 0;
  for (int turn = 0; turn < 200; ++turn) {
    Child child([](int socket) {
      Half half(open_shm());
      const std::vector<std::byte> offer = half.end.link->offer();
      EXPECT_GT(::send(socket, offer.data(), offer.size(), 0), 0);
      ::pause();
    });
    std::vector<std::byte> offer(kPacketOfferBytesMax);
    const ssize_t bytes = ::recv(child.socket.get(), offer.data(), offer.size(), 0);
    ASSERT_GT(bytes, 0);
    offer.resize(static_cast<std::size_t>(bytes));
    Half half(open_shm());
    ::kill(child.process, SIGKILL);
    for (int wait = 0; wait < turn % 50; ++wait) ::sched_yield();
    if (const Status status = half.end.link->connect(offer); !status.ok()) {
      ++refused;
      EXPECT_EQ(status.code(), Errc::kPeerDown)
          << errc_name(status.code()) << " " << status.detail() << " in turn " << turn;
    }
    EXPECT_EQ(child.end(), 128 + SIGKILL);
  }
  EXPECT_GT(refused, 0);
}

void expect_unreachable(Half& half, int socket, int why) {
  const Status status = half.connect(socket);
  EXPECT_EQ(status, Status(Errc::kUnreachable, why));
  EXPECT_FALSE(half.fabric->explain(status).empty());
}

TEST(ShmProcesses, WithoutAttachNoPeerIsReached) {
  Child child([](int socket) {
    Half half(open_shm(false));
    expect_unreachable(half, socket, ECANCELED);
    Child::meet_on(socket);
  });
  Half half(open_shm(false));
  expect_unreachable(half, child.socket.get(), ECANCELED);
  child.meet();
  EXPECT_EQ(child.end(), 0);
}

/// As in a container: the calls are refused.
void forbid_attach() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{sizeof filter / sizeof filter[0], filter};
  EXPECT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  EXPECT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

TEST(ShmProcesses, WhereTheKernelForbidsAttachNoPeerIsReached) {
  Child child([](int socket) {
    forbid_attach();
    Half half(open_shm());
    expect_unreachable(half, socket, EPERM);
    Child::meet_on(socket);
  });
  Half half(open_shm());
  EXPECT_TRUE(half.connect(child.socket.get()).ok()) << "from here it is allowed";
  child.meet();
  EXPECT_EQ(child.end(), 0);
}

/// As static objects do when a child ends.
TEST(ShmProcesses, AForkedChildThatEndsItsCopyEndsNothingHere) {
  Half half(open_shm()), other(open_shm());
  ASSERT_TRUE(half.end.link->connect(other.end.link->offer()).ok());
  ASSERT_TRUE(other.end.link->connect(half.end.link->offer()).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    std::destroy_at(&half);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(other.end.post(1, 20), net::Post::done);
  for (int turn = 0; turn < 100; ++turn) (void)half.side.vci->progress();
  EXPECT_EQ(half.end.received.size(), 1u);
}

}  // namespace
}  // namespace larklane::msg
