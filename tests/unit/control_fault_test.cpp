// Faults that peers bring to the control plane: they die, send malformed records, belong to another
// user, run another version.

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <random>

#include "control/local/socket.hpp"
#include "control/plane/plane.hpp"
#include "control_fixture.hpp"
#include "control_process.hpp"

namespace larklane::control {
namespace {

/// In a child: connects to `to`, sends numbered records until some are queued, and says how many
/// have left.
std::unique_ptr<Plane> send_many(const Address& own, const Address& to, Handler& handler,
                                 const Process::Tell& tell) {
  Result<std::unique_ptr<Plane>> plane = Plane::create(listeners({own}), handler);
  if (!plane) ::_exit(91);
  Result<Peer*> peer = (*plane)->connect(to);
  if (!peer) ::_exit(92);
  std::uint16_t count = 0;
  for (; (*plane)->counters().records_sent == count; ++count) {
    if (!(*peer)->send(count, bytes_of("payload")).ok()) ::_exit(93);
  }
  tell((*plane)->counters().records_sent);
  return std::move(*plane);
}

class FaultTest : public ControlTest {
 protected:
  const Address own_ = fresh_address();
  const Address other_ = fresh_address();
  Inbox in_;

  /// The body of a peer that accepts nothing.
  int listen_until_killed(const Process::Tell& tell) const {
    Result<Listener> listener = Listener::bind(other_);
    tell(listener ? 1 : 0);
    for (;;) ::pause();
    return 0;
  }

  /// The body of a peer that sends many records, and then waits for its end.
  std::function<int(const Process::Tell&)> sender() const {
    return [this](const Process::Tell& tell) {
      Inbox in;
      const auto plane = send_many(other_, own_, in, tell);
      for (;;) ::pause();
      return 0;
    };
  }
};

/// One more than `sent` is right too: the queued record, if there was room before the end.
void expect_all_then_down_once(Inbox& in, std::uint64_t sent) {
  const auto records = take_all_then_down_once(in, sent);
  EXPECT_LE(records.size(), sent + 1);
  for (const auto& record : records) EXPECT_EQ(record.from, in.down()[0].first);
}

TEST_F(FaultTest, AKilledPeersRecordsArriveBeforeItsEnd) {
  std::vector<Listener> own = listeners({own_});
  Process child(sender());
  const std::uint64_t sent = child.hear();
  EXPECT_GT(sent, 20U);
  in_.set_gate(false);
  const auto plane = make_plane(std::move(own), in_);
  Peer* const peer = must_connect(*plane, other_);
  EXPECT_FALSE(peer->same_process());
  EXPECT_TRUE(peer->send(0, {}).ok());
  const pid_t pid = child.pid();
  child.kill();
  in_.set_gate(true);
  expect_all_then_down_once(in_, sent);
  EXPECT_EQ(peer->pid(), pid);
  EXPECT_EQ(in_.down()[0].first, peer);
  EXPECT_EQ(plane->connect(other_).error(), Status(Errc::kUnreachable, ECONNREFUSED));
}

TEST_F(FaultTest, AReapedProcessHasEndedWithoutAnId) {
  std::vector<Listener> own = listeners({own_});
  Process child([&](const Process::Tell& tell) {
    RawPeer raw(other_);
    if (!raw.connect(own_)) return 1;
    tell(1);
    ::pause();
    return 0;
  });
  ASSERT_EQ(child.hear(), 1U);
  const UniqueFd accepted(::accept4(own.front().fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(accepted);
  Credentials hidden = peer_credentials(accepted.get());
  EXPECT_EQ(hidden.pid, child.pid());
  hidden.pid = 0;  // as of a process of another pid namespace
  Result<UniqueFd> pidfd = open_pidfd(accepted.get(), hidden);
  ASSERT_TRUE(pidfd);
  if (!*pidfd) GTEST_SKIP() << "no SO_PEERPIDFD here";
  EXPECT_FALSE(has_ended(accepted.get(), hidden));
  child.kill();
  EXPECT_TRUE(has_ended(accepted.get(), hidden));
}

TEST_F(FaultTest, APeerThatDiedBeforeThereWasAHelper) {
  std::vector<Listener> own = listeners({own_});
  Process child(sender());
  const std::uint64_t sent = child.hear();
  child.kill();
  const auto plane = make_plane(std::move(own), in_);
  expect_all_then_down_once(in_, sent);
}

TEST_F(FaultTest, APeerThatLeavesIsReportedToo) {
  std::vector<Listener> own = listeners({own_});
  Process child([&](const Process::Tell& tell) {
    Inbox in;
    send_many(other_, own_, in, tell).reset();
    return 0;
  });
  child.hear();
  const auto plane = make_plane(std::move(own), in_);
  ASSERT_TRUE(in_.wait_for_down());
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(in_.down().size(), 1U);
}

TEST_F(FaultTest, AForkedChildThatKeepsTheSocketsHidesNoDeath) {
  std::vector<Listener> own = listeners({own_});
  Process child([&](const Process::Tell& tell) {
    Inbox in;
    const auto plane = send_many(other_, own_, in, tell);
    leave_grandchild(tell);
    for (;;) ::pause();
    return 0;
  });
  const std::uint64_t sent = child.hear();
  const auto grandchild = static_cast<pid_t>(child.hear());
  const auto plane = make_plane(std::move(own), in_);
  Peer* const peer = must_connect(*plane, other_);
  EXPECT_EQ(in_.down().size(), 0U);
  child.kill();
  expect_all_then_down_once(in_, sent);
  EXPECT_EQ(in_.down()[0].first, peer);
  EXPECT_TRUE(runs(grandchild));  // its sockets are still open
  EXPECT_EQ(plane->connect(other_).error().code(), Errc::kUnreachable);
  ::kill(grandchild, SIGKILL);
}

TEST_F(FaultTest, APeerThatDiedInOurBacklogWhileTheHelperWasBusy) {
  // connection, hang-up and end of the process are all there at once when the helper looks again
  constexpr std::uint16_t kRecords = 50;
  const auto plane = make_plane(listeners({own_}), in_);
  in_.set_gate(false);
  ASSERT_TRUE(must_connect(*plane, own_)->send(1000, {}).ok());
  ASSERT_TRUE(in_.wait_at_gate(1));
  Process child([&](const Process::Tell& tell) {
    const Result<Listener> listener = Listener::bind(other_);
    RawPeer raw(other_);
    if (!listener || !raw.connect(own_) || !raw.send_hello()) return 1;
    for (std::uint16_t i = 0; i < kRecords; ++i) {
      if (!raw.send(bytes_of(RawPeer::record(i, "payload")))) return 2;
    }
    tell(1);
    for (;;) ::pause();
    return 0;
  });
  ASSERT_EQ(child.hear(), 1U);
  Peer* const peer = must_connect(*plane, other_);
  child.kill();
  in_.set_gate(true);
  ASSERT_TRUE(in_.wait_for_down());
  EXPECT_EQ(in_.down()[0], std::make_pair(peer, std::size_t{kRecords + 1}));
  for (const auto& record : in_.take()) EXPECT_TRUE(record.kind == 1000 || record.from == peer);
}

TEST_F(FaultTest, APeerThatDiesWithUsInItsBacklog) {
  Process child([&](const Process::Tell& tell) { return listen_until_killed(tell); });
  ASSERT_EQ(child.hear(), 1U);
  const auto plane = make_plane(listeners({own_}), in_);
  Peer* const peer = must_connect(*plane, other_);
  EXPECT_TRUE(peer->send(0, bytes_of("never read")).ok());
  child.kill();
  ASSERT_TRUE(in_.wait_for_down());
  EXPECT_EQ(in_.down()[0].first, peer);
}

TEST_F(FaultTest, AForkedChildMayEndWithoutHarm) {
  // a child of a process with a plane has no helper, and its exit must not disturb its parent's
  auto plane = make_plane(listeners({own_}), in_);
  Peer* const self = must_connect(*plane, own_);
  ASSERT_TRUE(self->send(1, {}).ok());
  ASSERT_TRUE(in_.wait_for_records(1));
  Process child([&](const Process::Tell&) {
    plane.reset();
    return 7;
  });
  EXPECT_EQ(child.wait(), 7);
  ASSERT_TRUE(self->send(2, {}).ok());
  EXPECT_TRUE(in_.wait_for_records(2));
  EXPECT_FALSE(self->is_down());
}

TEST_F(FaultTest, ForeignUsersAreRefusedOnBothSides) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::vector<Listener> own = listeners({own_});
  constexpr uid_t kNobody = 65534;
  Process child([&](const Process::Tell& tell) {
    if (::setuid(kNobody) != 0) return 1;
    set_log_sink([](LogLevel, std::string_view) {});
    Inbox in;
    const auto plane = make_plane(listeners({other_}), in);
    if (!plane) return 2;
    if (plane->connect(own_).error().code() != Errc::kForeignUser) return 3;
    RawPeer raw(other_);  // connects without a check of the peer
    if (!raw.connect(own_) || !raw.send_hello() || !raw.send(bytes_of(RawPeer::record(1, "x")))) {
      return 4;
    }
    tell(1);
    return raw.is_cut_off() ? 0 : 5;
  });
  if (child.hear() != 1) return;
  const auto plane = make_plane(std::move(own), in_);
  expect_warning({"process " + std::to_string(child.pid()), "user 65534", "refused"});
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(in_.take().empty());
  EXPECT_TRUE(in_.down().empty());
}

TEST_F(FaultTest, ForeignListenersAreNotConnectedTo) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Process child([&](const Process::Tell& tell) {
    if (::setuid(65534) != 0) return 1;
    return listen_until_killed(tell);
  });
  ASSERT_EQ(child.hear(), 1U);
  const auto plane = make_plane(listeners({own_}), in_);
  EXPECT_EQ(plane->connect(other_).error(), Status(Errc::kForeignUser));
  EXPECT_EQ(plane->connect(other_).error(), Status(Errc::kForeignUser));
  expect_warning({other_, "user 65534"});
}

TEST_F(FaultTest, AnotherVersionIsNamedAndDown) {
  const auto plane = make_plane(listeners({own_}), in_);
  const std::vector<Listener> others = listeners({other_});
  Peer* const peer = must_connect(*plane, other_);
  RawPeer raw(other_);
  raw.hello.version = kProtocolVersion + 41;
  ASSERT_TRUE(raw.connect(own_));
  // as much as every version promises, in two parts
  const auto hello = std::as_bytes(std::span(&raw.hello, 1)).first(kHelloPrefixBytes);
  ASSERT_TRUE(raw.send(hello.first(30)));
  ASSERT_TRUE(raw.send(hello.subspan(30)));
  ASSERT_TRUE(in_.wait_for_down());
  EXPECT_EQ(in_.down()[0].first, peer);
  EXPECT_EQ(peer->send(0, {}), Status(Errc::kVersion));
  expect_warning({other_, std::to_string(kProtocolVersion), std::to_string(kProtocolVersion + 41)});
}

TEST_F(FaultTest, AHelloInPiecesAndRecordsInPieces) {
  const auto plane = make_plane(listeners({own_}), in_);
  RawPeer raw(other_);
  ASSERT_TRUE(raw.connect(own_));
  const auto hello = std::as_bytes(std::span(&raw.hello, 1));
  std::string stream(reinterpret_cast<const char*>(hello.data()), hello.size());
  stream += RawPeer::record(1, "one") + RawPeer::record(2, "") + RawPeer::record(3, "three");
  for (const char& byte : stream) {
    ASSERT_TRUE(raw.send(std::as_bytes(std::span(&byte, 1))));
  }
  ASSERT_TRUE(in_.wait_for_records(3));
  const auto records = in_.take();
  EXPECT_EQ(records[0].payload, "one");
  EXPECT_EQ(records[1].payload, "");
  EXPECT_EQ(records[2].payload, "three");
  EXPECT_EQ(records[0].from->address(), other_);
  raw.fd.reset();
  EXPECT_TRUE(in_.wait_for_down());
}

TEST_F(FaultTest, GarbageInsteadOfAHelloIsDropped) {
  const auto plane = make_plane(listeners({own_}), in_);
  const auto refused = [&](const std::function<void(RawPeer&)>& spoil, const std::string& why) {
    RawPeer raw(other_);
    spoil(raw);
    ASSERT_TRUE(raw.connect(own_));
    ASSERT_TRUE(raw.send_hello());
    if (!why.empty()) expect_warning({why});
    EXPECT_TRUE(raw.is_cut_off());
  };
  const std::string kTheSame;  // complaint: it comes once
  refused([](RawPeer& raw) { raw.hello.magic ^= 1; }, "unknown magic");
  refused([](RawPeer& raw) { raw.hello.nonce = 0; }, "nonce");
  refused([](RawPeer& raw) { raw.hello.address_count = 0; }, "number of addresses");
  refused([](RawPeer& raw) { raw.hello.address_count = kAddressesMax + 1; }, kTheSame);
  refused([](RawPeer& raw) { raw.hello.addresses[0].fill('x'); }, "impossible address");
  refused([](RawPeer& raw) { raw.hello.addresses[0][0] = '\0'; }, kTheSame);
  refused([](RawPeer& raw) { raw.hello.addresses[0][0] = '\n'; }, kTheSame);
  refused([](RawPeer& raw) { raw.hello.address_count = 2; }, kTheSame);
  EXPECT_TRUE(in_.down().empty());
  EXPECT_TRUE(in_.take().empty());
}

TEST_F(FaultTest, NothingOfABuriedPeerIsRead) {
  const auto plane = make_plane(listeners({own_}), in_);
  RawPeer raw(other_);
  ASSERT_TRUE(raw.connect(own_) && raw.send_hello());
  ASSERT_TRUE(raw.send(bytes_of("0123456789abcdef")));
  ASSERT_TRUE(in_.wait_for_down());
  expect_warning({"unknown magic"});
  ASSERT_TRUE(raw.connect(own_) && raw.send_hello());
  raw.send(bytes_of(RawPeer::record(1, "good")));  // too late; may be refused already
  EXPECT_TRUE(raw.is_cut_off());
  EXPECT_TRUE(in_.take().empty());
  EXPECT_EQ(in_.down().size(), 1U);
}

struct Nonsense {
  const char* name;
  std::function<void(RawPeer&)> send;
  const char* why;
};

void send_header(RawPeer& raw, const std::function<void(RecordHeader&)>& spoil,
                 std::size_t fd_count = 0) {
  RecordHeader header;
  header.payload_bytes = 4;
  spoil(header);
  const std::vector<int> fds(fd_count, STDIN_FILENO);
  EXPECT_TRUE(raw.send(bytes_of(RawPeer::record(header, "abcd")), fds));
}

const Nonsense kNonsense[] = {
    {"magic", [](RawPeer& raw) { send_header(raw, [](auto& h) { h.magic = 0; }); },
     "unknown magic"},
    {"zero", [](RawPeer& raw) { send_header(raw, [](auto& h) { h.zero = 1; }); }, "unknown magic"},
    {"length",
     [](RawPeer& raw) { send_header(raw, [](auto& h) { h.payload_bytes = kRecordBytesMax + 1; }); },
     "impossible length"},
    {"huge length",
     [](RawPeer& raw) { send_header(raw, [](auto& h) { h.payload_bytes = 0xffff'fff0; }); },
     "impossible length"},
    {"too many descriptors",
     [](RawPeer& raw) { send_header(raw, [](auto& h) { h.fd_count = kRecordFdsMax + 1; }); },
     "impossible number of descriptors"},
    {"descriptors that don't come",
     [](RawPeer& raw) { send_header(raw, [](auto& h) { h.fd_count = 1; }); }, "fewer descriptors"},
    {"descriptors that nobody announced",
     [](RawPeer& raw) {
       send_header(
           raw, [](auto&) {}, 2);
     },
     "descriptors without a record"},
    {"more descriptors than a record can have",
     [](RawPeer& raw) {
       send_header(
           raw, [](auto& h) { h.fd_count = kRecordFdsMax; }, 9);
     },
     "descriptors lost"},
    {"end within a record",
     [](RawPeer& raw) {
       EXPECT_TRUE(raw.send(bytes_of(RawPeer::record(9, "abcdefgh")).first(20)));
       raw.fd.reset();
     },
     "ended within a record"},
    {"end within a header",
     [](RawPeer& raw) {
       EXPECT_TRUE(raw.send(bytes_of(RawPeer::record(9, "abcdefgh")).first(5)));
       raw.fd.reset();
     },
     "ended within a record"},
};

TEST_F(FaultTest, AMalformedRecordClosesTheConnection) {
  for (const Nonsense& nonsense : kNonsense) {
    SCOPED_TRACE(nonsense.name);
    Inbox in;
    const auto plane = make_plane(listeners({own_}), in);
    const std::vector<Listener> others = listeners({other_});
    Peer* const peer = must_connect(*plane, other_);
    RawPeer raw(other_);
    ASSERT_TRUE(raw.connect(own_));
    ASSERT_TRUE(raw.send_hello());
    ASSERT_TRUE(raw.send(bytes_of(RawPeer::record(1, "good"))));
    nonsense.send(raw);
    ASSERT_TRUE(in.wait_for_down());
    expect_warning({nonsense.why});
    EXPECT_EQ(in.down()[0].first, peer);
    EXPECT_EQ(in.take().at(0).payload, "good");
    const bool is_cut = std::string(nonsense.why).starts_with("ended");
    EXPECT_EQ(peer->send(0, {}), Status(is_cut ? Errc::kPeerDown : Errc::kProtocol));
  }
}

TEST_F(FaultTest, RandomlySpoiledStreamsNeverCrash) {
  set_log_sink([](LogLevel, std::string_view) {});
  const auto plane = make_plane(listeners({own_}), in_);
  constexpr std::uint32_t kStreams = 300;
  for (std::uint32_t seed = 1; seed <= kStreams; ++seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    std::mt19937 random(seed);
    RawPeer raw(other_ + std::to_string(seed));
    raw.hello.nonce = seed;
    const auto hello = std::as_bytes(std::span(&raw.hello, 1));
    std::string stream(reinterpret_cast<const char*>(hello.data()), hello.size());
    for (std::uint16_t i = 0; i < 20; ++i) {
      stream += RawPeer::record(i, std::string(random() % 300, 'x'));
    }
    for (std::uint32_t i = 0; i < 1 + random() % 8; ++i) {
      stream[random() % stream.size()] = static_cast<char>(random());
    }
    ASSERT_TRUE(raw.connect(own_));
    // refused halfway is as good as read to the end
    std::size_t sent = 0;
    while (sent < stream.size()) {
      const std::size_t length = std::min<std::size_t>(1 + random() % 2000, stream.size() - sent);
      if (!raw.send(bytes_of(stream).subspan(sent, length))) break;
      sent += length;
    }
  }
  // and the plane still serves
  Peer* const self = must_connect(*plane, own_);
  ASSERT_NE(self, nullptr);
  Inbox honest_in;
  const auto honest = make_plane(listeners({fresh_address()}), honest_in);
  ASSERT_TRUE(must_connect(*honest, own_)->send(12345, bytes_of("still there")).ok());
  bool is_served = false;
  for (std::size_t i = 1; !is_served && in_.wait_for_records(i); ++i) {
    for (const auto& record : in_.take()) is_served = is_served || record.payload == "still there";
    i = 0;
  }
  EXPECT_TRUE(is_served);
}

TEST_F(FaultTest, AnotherProcessWithTheSameNameIsAnotherPeer) {
  const auto plane = make_plane(listeners({own_}), in_);
  RawPeer first(other_);
  ASSERT_TRUE(first.connect(own_) && first.send_hello());
  ASSERT_TRUE(first.send(bytes_of(RawPeer::record(1, "first"))));
  ASSERT_TRUE(in_.wait_for_records(1));
  RawPeer second(other_);
  second.hello.nonce = 1234;
  ASSERT_TRUE(second.connect(own_) && second.send_hello());
  ASSERT_TRUE(second.send(bytes_of(RawPeer::record(2, "second"))));
  ASSERT_TRUE(in_.wait_for_records(2));
  ASSERT_TRUE(in_.wait_for_down());
  const auto records = in_.take();
  EXPECT_EQ(in_.down()[0].first, records[0].from);
  EXPECT_NE(records[0].from, records[1].from);
  EXPECT_FALSE(records[1].from->is_down());
  second.fd.reset();
  EXPECT_TRUE(in_.wait_for_down(2));
}

TEST_F(FaultTest, TheServerOfAnInheritedListenerIsThePeer) {
  auto inherited = listeners({other_});
  Process child([&](const Process::Tell& tell) {
    Inbox in;
    const auto plane = Plane::create(std::move(inherited), in);
    tell(plane ? 1 : 0);
    ::pause();
    return 0;
  });
  ASSERT_EQ(child.hear(), 1U);
  const auto plane = make_plane(listeners({own_}), in_);
  Peer* const peer = must_connect(*plane, other_);
  EXPECT_EQ(peer->pid(), child.pid());
  child.kill();
  ASSERT_TRUE(in_.wait_for_down());
}

TEST_F(FaultTest, DownIsNotTheEndOfTheProcess) {
  auto own = listeners({own_});
  Process child([&](const Process::Tell& tell) {
    const Result<Listener> listener = Listener::bind(other_);
    RawPeer raw(other_);
    tell(listener && raw.connect(own_) && raw.send_hello() &&
         raw.send(bytes_of("nonsense instead of it")));
    ::pause();
    return 0;
  });
  ASSERT_EQ(child.hear(), 1U);
  const auto plane = make_plane(std::move(own), in_);
  expect_warning({"unknown magic"});
  ASSERT_TRUE(in_.wait_for_down());
  Peer* const peer = in_.down()[0].first;
  EXPECT_TRUE(peer->is_down());
  EXPECT_FALSE(peer->has_ended());
  child.kill();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!peer->has_ended() && std::chrono::steady_clock::now() < deadline) ::usleep(1000);
  EXPECT_TRUE(peer->has_ended());
}

TEST_F(FaultTest, NoRecordIsLostWhenDescriptorsAreShort) {
  const auto plane = make_plane(listeners({own_}), in_);
  Inbox other_in;
  const auto other = make_plane(listeners({other_}), other_in);
  ASSERT_TRUE(must_connect(*other, own_)->send(1, bytes_of("hello")).ok());
  ASSERT_TRUE(in_.wait_for_records(1));
  Peer* const peer = in_.take()[0].from;  // not connected to from here so far
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former), 0);
  const rlimit none{0, former.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status sent = peer->send(2, bytes_of("kept"));
  const Result<Peer*> third = plane->connect(other_);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &former), 0);
  EXPECT_TRUE(sent.ok()) << errc_name(sent.code()) << " " << sent.detail();
  EXPECT_TRUE(third.has_value());
  expect_warning({"no connection to", "Too many open files"});
  ASSERT_TRUE(other_in.wait_for_records(1));
  EXPECT_EQ(other_in.take()[0].payload, "kept");
}

TEST_F(FaultTest, NoThreadIsAnErrorNotACrash) {
  Process child([&](const Process::Tell&) {
    constexpr auto kNumber = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
    };
    const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 77;
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) return 77;
    Inbox in;
    const Result<std::unique_ptr<Plane>> plane = Plane::create(listeners({own_}), in);
    return !plane && plane.error() == Status(Errc::kNoThread, EAGAIN) ? 0 : 1;
  });
  const int status = child.wait();
  if (status == 77) GTEST_SKIP() << "seccomp filters are not to be had here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace larklane::control
