// Connections that belong to no peer: many, silent, malformed, under a peer's own name. And a
// program that closes the descriptors of this process.

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/sanitized.hpp"
#include "base/unproven.hpp"
#include "control/local/socket.hpp"
#include "control_fixture.hpp"
#include "control_process.hpp"
#include "control_remote.hpp"

namespace larklane::control {
namespace {

constexpr int kStrangers = 600, kSeeds = 1000;

std::ptrdiff_t open_count() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

std::size_t resident_bytes() {
  std::size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

class StrangerTest : public ControlTest, public testing::WithParamInterface<Net> {
 protected:
  void SetUp() override {
    ControlTest::SetUp();
    allow_warning("as will be others");
    rlimit files{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  }
  /// @param count  more than the 8 that the plane and its peer need
  static bool wait_until_open(std::ptrdiff_t most) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (open_count() > most && std::chrono::steady_clock::now() < deadline)
      ::poll(nullptr, 0, 10);
    return open_count() <= most;
  }
  UniqueFd silent(const Address& address) const {
    if (GetParam() == Net::local) {
      RawPeer raw(fresh_address());
      EXPECT_TRUE(raw.connect(address));
      return std::move(raw.fd);
    }
    const RemoteAddress remote = RemoteAddress::parse(address).value();
    const Endpoint endpoint = remote.endpoint(0);
    UniqueFd fd(::socket(endpoint.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), endpoint.get(), endpoint.length), 0);
    return fd;
  }
  Inbox in_;
};

INSTANTIATE_TEST_SUITE_P(Nets, StrangerTest, testing::Values(Net::local, Net::remote),
                         [](const auto& net) {
                           return net.param == Net::local ? "local" : "remote";
                         });

TEST_P(StrangerTest, ManyCostFewDescriptorsAndAPeerGetsIn) {
  Place own = fresh_place(GetParam());
  const Address address = own.address;
  const auto plane = make_plane(std::move(own), in_);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < kStrangers; ++i) strangers.push_back(silent(address));
  const std::ptrdiff_t before = open_count();
  Inbox peer_in;
  const auto peer = make_plane(fresh_place(GetParam()), peer_in);
  ASSERT_TRUE(must_connect(*peer, address)->send(7, bytes_of("real")).ok());
  ASSERT_TRUE(in_.wait_for_records(1));
  EXPECT_EQ(in_.take()[0].payload, "real");
  EXPECT_TRUE(in_.down().empty());
  constexpr std::ptrdiff_t kOfPeer = 16;
  EXPECT_LE(open_count() - before, std::ptrdiff_t{Unproven<int>::kMost} + kOfPeer);
  for (UniqueFd& stranger : strangers) stranger.reset();
  EXPECT_TRUE(wait_until_open(before - kStrangers + kOfPeer));
}

TEST_P(StrangerTest, ThousandSpoiledHellosLeaveNothing) {
  Place own = fresh_place(GetParam());
  const Address address = own.address;
  const auto plane = make_plane(std::move(own), in_);
  const std::ptrdiff_t before = open_count();
  [[maybe_unused]] std::size_t warm_bytes = 0;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937 random(seed);
    std::string hello;
    UniqueFd fd;
    if (GetParam() == Net::local) {
      RawPeer raw(fresh_address());
      raw.hello.nonce = seed;
      hello.assign(reinterpret_cast<const char*>(&raw.hello), sizeof raw.hello);
      ASSERT_TRUE(raw.connect(address));
      fd = std::move(raw.fd);
    } else {
      RawRemote raw;
      ASSERT_TRUE(raw.connect(address));
      if (seed % 2 == 0) {
        ASSERT_TRUE(receive(raw.fd.get(), &raw.challenge));
      }
      hello = raw.proven_hello();
      fd = std::move(raw.fd);
    }
    // in the magic: it never is a peer's
    hello[random() % 4] ^= static_cast<char>(1 + random() % 255);
    for (unsigned i = random() % 8; i > 0; --i) hello[random() % hello.size()] ^= 0x55;
    hello.resize(random() % 3 == 0 ? random() % hello.size() : hello.size());
    hello.append(random() % 4 == 0 ? random() % 3000 : 0, 'x');
    (void)::send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (seed == kSeeds / 4) warm_bytes = resident_bytes();
  }
  constexpr std::ptrdiff_t kSlack = 4;
  EXPECT_TRUE(wait_until_open(before + kSlack));
#ifndef LARKLANE_SANITIZED  // sanitizers keep freed memory
  constexpr std::size_t kGrowthMax = std::size_t{4} << 20;
  EXPECT_LE(resident_bytes(), warm_bytes + kGrowthMax);
#endif
  Inbox peer_in;
  const auto peer = make_plane(fresh_place(GetParam()), peer_in);
  ASSERT_TRUE(must_connect(*peer, address)->send(7, bytes_of("real")).ok());
  EXPECT_TRUE(in_.wait_for_records(1));
  EXPECT_TRUE(in_.down().empty());
}

using NameTest = ControlTest;

/// The records that one connection brings until its end, after a hello.
struct Brought {
  bool has_hello = false;
  std::vector<std::uint16_t> kinds;
};
Brought read_to_end(int socket, std::size_t most = ~std::size_t{0}) {
  std::string bytes(std::size_t{1} << 20, '\0');
  std::size_t had = 0;
  for (ssize_t got = 1; got > 0 && had < most;
       had += static_cast<std::size_t>(std::max<ssize_t>(got, 0)))
    got =
        ::recv(socket, bytes.data() + had, std::min(bytes.size() - had, most - had), MSG_DONTWAIT);
  Brought brought;
  std::size_t at = sizeof(Hello);
  brought.has_hello = had >= at;
  RecordHeader header;
  while (at + sizeof header <= had) {
    std::memcpy(&header, bytes.data() + at, sizeof header);
    if (at + record_bytes(header.payload_bytes) > had) break;
    brought.kinds.push_back(header.kind);
    at += record_bytes(header.payload_bytes);
  }
  return brought;
}

/// @param fill  sends more than the socket takes, of records of 4000 bytes; @return their number
void send_away_and_count(
    const std::function<std::uint16_t(Plane&, Peer&, std::string_view payload)>& fill) {
  Inbox in;
  const Address other = fresh_address();
  std::vector<Listener> others = listeners({other});
  const auto plane = Plane::create(listeners({fresh_address()}), in).value();
  Peer* const peer = plane->connect(other).value();
  const auto accepted = [&] {
    pollfd readable{others[0].fd.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&readable, 1, 20'000), 1);
    return UniqueFd(::accept4(others[0].fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  };
  const std::string payload(4000, 'x');
  std::uint16_t count = fill(*plane, *peer, payload);
  const UniqueFd first = accepted();
  ASSERT_EQ(::send(first.get(), &kComeAgain, sizeof kComeAgain, MSG_NOSIGNAL),
            ssize_t{sizeof kComeAgain});
  ASSERT_EQ(::shutdown(first.get(), SHUT_RD), 0);
  Brought one = read_to_end(first.get());
  EXPECT_TRUE(one.has_hello);
  ASSERT_TRUE(peer->send(count++, bytes_of("last")).ok());
  const UniqueFd second = accepted();
  Brought two;
  std::string stream;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const std::size_t wanted = count - one.kinds.size();
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd readable{second.get(), POLLIN, 0};
    std::array<char, 65536> space;
    if (::poll(&readable, 1, 100) != 1) break;
    const ssize_t got = ::recv(second.get(), space.data(), space.size(), 0);
    if (got <= 0) break;
    stream.append(space.data(), static_cast<std::size_t>(got));
    if (stream.size() >= sizeof(Hello) + (wanted - 1) * record_bytes(4000) + record_bytes(4)) break;
  }
  ASSERT_GE(stream.size(), sizeof(Hello));
  for (std::size_t at = sizeof(Hello); at + sizeof(RecordHeader) <= stream.size();) {
    RecordHeader header;
    std::memcpy(&header, stream.data() + at, sizeof header);
    ASSERT_EQ(header.magic, kWireMagic);
    two.kinds.push_back(header.kind);
    at += record_bytes(header.payload_bytes);
  }
  std::vector<std::uint16_t> all = one.kinds;
  all.insert(all.end(), two.kinds.begin(), two.kinds.end());
  ASSERT_EQ(all.size(), count);
  for (std::uint16_t i = 0; i < count; ++i) EXPECT_EQ(all[i], i);
  EXPECT_FALSE(peer->is_down());
}

TEST_F(NameTest, ATurnedAwayPeerReconnectsAndLosesNothing) {
  send_away_and_count([](Plane& plane, Peer& peer, std::string_view payload) {
    std::uint16_t count = 0;
    for (; plane.counters().records_sent == count; ++count)
      EXPECT_TRUE(peer.send(count, bytes_of(payload)).ok());
    return count;
  });
}

TEST_F(NameTest, RecordsThatLeftTogetherComeAgainFromTheFirstThatWasNotTaken) {
  send_away_and_count([](Plane&, Peer& peer, std::string_view payload) {
    constexpr std::uint16_t kCount = 100;  // the socket takes a part of the first 66, which gather
    for (std::uint16_t i = 0; i < kCount; ++i)
      EXPECT_TRUE(peer.send_later(i, bytes_of(payload)).ok());
    peer.flush_later();
    return kCount;
  });
}

/// A process that sends a hello while the backlog of its own listener is full: no peer can check
/// whether it listens at its address before let_in().
class ClaimTest : public ControlTest {
 protected:
  const Address own_ = fresh_address(), other_ = fresh_address();
  std::vector<Listener> own_listeners_ = listeners({own_});
  Inbox in_;
  UniqueFd go_read_, go_write_;

  void SetUp() override {
    ControlTest::SetUp();
    std::array<int, 2> go{};
    ASSERT_EQ(::pipe2(go.data(), O_CLOEXEC), 0);
    go_read_.reset(go[0]);
    go_write_.reset(go[1]);
  }
  /// It ends its connection, and lives on, if `hangs_up`. Exit status 0: its connection ended.
  std::unique_ptr<Process> claimer(bool hangs_up = false) {
    return std::make_unique<Process>([this, hangs_up](const Process::Tell& tell) {
      Result<Listener> listener = Listener::bind(other_);
      RawPeer filler(fresh_address()), raw(other_);
      if (!listener || ::listen(listener->fd.get(), 0) != 0 || !filler.connect(other_)) return 1;
      if (!raw.connect(own_) || !raw.send_hello()) return 2;
      if (!raw.send(bytes_of(RawPeer::record(1, "claimed")))) return 3;
      if (hangs_up) raw.fd.reset();
      go_write_.reset();  // else it would never see the end of the pipe
      tell(1);
      char byte = 0;
      if (::read(go_read_.get(), &byte, 1) != 1) return raw.is_cut_off() ? 0 : 4;
      const UniqueFd accepted(::accept(listener->fd.get(), nullptr, nullptr));
      for (;;) ::pause();
    });
  }
  void let_in() { ASSERT_EQ(::write(go_write_.get(), "g", 1), 1); }
};

TEST_F(ClaimTest, StrangersPushOutNoClaim) {
  const auto peer = claimer();
  ASSERT_EQ(peer->hear(), 1U);
  const auto plane = make_plane(std::move(own_listeners_), in_);
  std::vector<RawPeer> strangers;
  for (std::size_t i = 0; i < Unproven<int>::kMost + 8; ++i) {
    strangers.emplace_back(fresh_address());
    ASSERT_TRUE(strangers.back().connect(own_));
  }
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) {  // the claim is older than any of these
    pollfd readable{strangers[i].fd.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&readable, 1, kPatienceMs), 1);
    ASSERT_EQ(::recv(strangers[i].fd.get(), &word, sizeof word, 0), ssize_t{sizeof word});
    EXPECT_EQ(word, kComeAgain);
  }
  EXPECT_TRUE(in_.take().empty());
  let_in();
  ASSERT_TRUE(in_.wait_for_records(1));
  EXPECT_EQ(in_.take()[0].payload, "claimed");
  EXPECT_TRUE(in_.down().empty());
}

TEST_F(ClaimTest, AClaimThatHungUpWakesNoHelper) {
  const auto peer = claimer(/*hangs_up=*/true);
  ASSERT_EQ(peer->hear(), 1U);
  const auto plane = make_plane(std::move(own_listeners_), in_);
  constexpr int kMs = 300;
  ::poll(nullptr, 0, kMs);
  constexpr std::uint64_t kWakeupsMax = kMs;  // it retries every 5 ms
  EXPECT_LT(plane->counters().helper_wakeups, kWakeupsMax);
}

TEST_F(ClaimTest, AClaimHasALimitOfItsOwn) {
  allow_warning("could not be checked in time");
  const auto peer = claimer();
  ASSERT_EQ(peer->hear(), 1U);
  go_write_.reset();  // the peer waits for its end
  constexpr std::uint64_t kAcceptNs = 300'000'000;
  const auto plane = Plane::create(std::move(own_listeners_), in_, std::nullopt, kAcceptNs);
  ASSERT_TRUE(plane);
  EXPECT_EQ(peer->wait(), 0);
  EXPECT_TRUE(in_.take().empty());
}

TEST_F(ClaimTest, BothConnectionsOfAProcessThatHasEndedAreServed) {
  Process peer([this](const Process::Tell&) {
    RawPeer first(other_), second(other_);
    for (RawPeer* const raw : {&first, &second})
      if (!raw->connect(own_) || !raw->send_hello()) return 1;
    return first.send(bytes_of(RawPeer::record(1, "first"))) &&
                   second.send(bytes_of(RawPeer::record(2, "second")))
               ? 0
               : 2;
  });
  ASSERT_EQ(peer.wait(), 0);
  const auto plane = make_plane(std::move(own_listeners_), in_);
  ASSERT_TRUE(in_.wait_for_records(2));
  const auto records = in_.take();
  EXPECT_EQ(records[0].payload, "first");
  EXPECT_EQ(records[1].payload, "second");
  EXPECT_EQ(records[0].from, records[1].from);
  EXPECT_TRUE(in_.wait_for_down());
  EXPECT_EQ(in_.down().size(), 1U);
}

TEST_F(ClaimTest, AProcessThatHasEndedAndLeftNoRecordIsNoPeer) {
  allow_warning("another Larklane is installed there");
  constexpr int kProcesses = 100;
  for (int i = 0; i < kProcesses; ++i) {
    Process peer([&](const Process::Tell&) {
      RawPeer raw(other_);
      raw.hello.nonce = static_cast<std::uint64_t>(100 + i);
      if (i % 10 == 0) raw.hello.version = kProtocolVersion + 1;
      if (!raw.connect(own_) || !raw.send_hello()) return 1;
      if (i % 3 == 0) raw.send(bytes_of("nonsense, at length"));
      return 0;
    });
    ASSERT_EQ(peer.wait(), 0);
  }
  Process last([this](const Process::Tell&) {
    RawPeer raw(other_);
    return raw.connect(own_) && raw.send_hello() && raw.send(bytes_of(RawPeer::record(1, "last")))
               ? 0
               : 1;
  });
  ASSERT_EQ(last.wait(), 0);
  const auto plane = make_plane(std::move(own_listeners_), in_);
  ASSERT_TRUE(in_.wait_for_records(1));
  ASSERT_TRUE(in_.wait_for_down());
  EXPECT_EQ(in_.down().size(), 1U);
  EXPECT_EQ(in_.take()[0].payload, "last");
}

TEST_F(NameTest, ATurnedAwayDialIsMadeAgain) {
  Inbox in;
  const RawRemote raw;
  const auto plane = make_plane(fresh_place(Net::remote), in);
  Peer* const peer = must_connect(*plane, raw.listener.address.text());
  ASSERT_TRUE(peer->send(3, bytes_of("kept")).ok());
  for (int turn = 0; turn < 3; ++turn) {
    const UniqueFd dial = raw.listener.accept();
    Challenge challenge;
    challenge.identity = identity_of(test_secret(), raw.listener.address.text());
    ASSERT_EQ(::send(dial.get(), &challenge, sizeof challenge, 0), ssize_t{sizeof challenge});
    RemoteHello hello;
    ASSERT_TRUE(receive(dial.get(), &hello));
  }
  const UniqueFd last = raw.accept_and_prove();
  RecordHeader header;
  ASSERT_TRUE(receive(last.get(), &header));
  EXPECT_EQ(header.kind, 3);
  EXPECT_FALSE(peer->is_down());
}

TEST_F(NameTest, AHelloUnderAPeersNameNeitherEndsItNorIsIt) {
  allow_warning("does not listen at the address");
  Inbox in;
  const Address own = fresh_address(), other = fresh_address();
  auto own_listeners = listeners({own});
  std::array<int, 2> go{};
  ASSERT_EQ(::pipe(go.data()), 0);
  Process peer([&](const Process::Tell& tell) {
    Inbox peer_in;
    auto plane = Plane::create(listeners({other}), peer_in);
    if (!plane || !(*(*plane)->connect(own))->send(1, bytes_of("before")).ok()) return 1;
    tell(1);
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) return 2;
    if (!(*(*plane)->connect(own))->send(2, bytes_of("after")).ok()) return 3;
    for (;;) ::pause();
  });
  ASSERT_EQ(peer.hear(), 1U);
  Process stranger([&](const Process::Tell& tell) {
    tell(0);
    for (std::uint64_t nonce = 100; nonce < 110; ++nonce) {
      RawPeer raw(other);
      raw.hello.nonce = nonce;
      if (nonce == 109) raw.hello.version = kProtocolVersion + 1;
      if (!raw.connect(own) || !raw.send_hello()) return 1;
      raw.send(bytes_of(RawPeer::record(77, "not of the peer")));
      raw.send(bytes_of("nonsense, at length"));
      if (!raw.is_cut_off()) return 2;
    }
    return 0;
  });
  (void)stranger.hear();
  const auto plane = make_plane(std::move(own_listeners), in);
  EXPECT_EQ(stranger.wait(), 0);
  ASSERT_EQ(::write(go[1], "g", 1), 1);
  ASSERT_TRUE(in.wait_for_records(2));
  const auto records = in.take();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].payload, "before");
  EXPECT_EQ(records[1].payload, "after");
  EXPECT_EQ(records[0].from, records[1].from);
  EXPECT_TRUE(in.down().empty());
  EXPECT_FALSE(must_connect(*plane, other)->is_down());
  EXPECT_EQ(must_connect(*plane, other), records[0].from);
  ::close(go[0]);
  ::close(go[1]);
}

TEST_F(NameTest, APeerOfAnotherPidNamespaceIsBelieved) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a pid namespace";
  const Address own = fresh_address(), inner = fresh_address();
  auto own_listeners = listeners({own});
  Process outer([&](const Process::Tell& tell) {
    if (::unshare(CLONE_NEWPID) != 0) {
      tell(77);
      return 0;
    }
    const pid_t child = ::fork();
    if (child == 0) {
      Inbox in;
      const auto plane = Plane::create(listeners({inner}), in);
      tell(plane ? 1 : 0);
      if (!in.wait_for_records(1)) ::_exit(1);
      Peer* const from = in.take()[0].from;
      ::_exit(from->pid() == 0 && !from->is_down() && from->send(5, bytes_of("back")).ok() ? 0 : 2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    tell(static_cast<std::uint64_t>(WEXITSTATUS(status)));
    return 0;
  });
  const std::uint64_t there = outer.hear();
  if (there == 77) GTEST_SKIP() << "no pid namespace can be made";
  ASSERT_EQ(there, 1U);
  Inbox in;
  const auto plane = make_plane(std::move(own_listeners), in);
  ASSERT_TRUE(must_connect(*plane, inner)->send(4, bytes_of("there")).ok());
  EXPECT_EQ(outer.hear(), 0U);
  EXPECT_TRUE(in.wait_for_records(1));
}

/// The peer of a program that closes descriptors of its plane.
class CloserTest : public ControlTest {
 protected:
  /// @param process_stays  of the program
  static void answer_until_closed(std::vector<Listener> own, bool process_stays) {
    Inbox in;
    const auto plane = make_plane(std::move(own), in);
    ASSERT_TRUE(in.wait_for_records(1));
    Peer* const peer = in.take()[0].from;
    ASSERT_TRUE(peer->send(9, bytes_of("answer")).ok());
    ASSERT_TRUE(in.wait_for_down());
    EXPECT_NE(peer->down_reason().find("closed its connection"), std::string::npos)
        << peer->down_reason();
    if (process_stays) {
      EXPECT_FALSE(peer->has_ended());
    }
  }
};

/// Its peer answers by closing, too, and is not at fault.
TEST_F(CloserTest, AProgramThatClosesOneConnectionIsNamedAsTheCause) {
  const Address own = fresh_address(), other = fresh_address();
  auto own_listeners = listeners({own});
  Process closer([&](const Process::Tell&) {
    set_log_sink([](LogLevel, std::string_view) {});
    Inbox in;
    auto made = Plane::create(listeners({other}), in);
    if (!made) return 1;
    const std::unique_ptr<Plane> plane = std::move(*made);
    Peer* const peer = *plane->connect(own);
    if (!peer->send(1, bytes_of("before")).ok() || !in.wait_for_records(1)) return 2;
    const SocketName name(own);
    int closed = 0;
    for (int fd = 3; fd < 256; ++fd) {
      sockaddr_un there{};
      socklen_t length = sizeof there;
      if (::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &length) != 0) continue;
      if (length != name.length || std::memcmp(&there, name.get(), length) != 0) continue;
      // by the system call: as in the test below
      if (::syscall(SYS_close, fd) == 0) ++closed;
    }
    if (closed != 1) return 3;
    if (!in.wait_for_down()) return 4;
    return peer->down_reason().find("this process has closed descriptors") != std::string::npos ? 0
                                                                                                : 5;
  });
  answer_until_closed(std::move(own_listeners), /*process_stays=*/false);
  EXPECT_EQ(closer.wait(), 0);
}

TEST_F(CloserTest, AProgramThatClosesOurDescriptorsEndsItsPeersAndKeepsItsFiles) {
  const Address own = fresh_address(), other = fresh_address();
  auto own_listeners = listeners({own});
  Process closer([&](const Process::Tell& tell) {
    set_log_sink([](LogLevel, std::string_view) {});
    Inbox in;
    auto made = Plane::create(listeners({other}), in);
    if (!made) return 1;
    std::unique_ptr<Plane> plane = std::move(*made);
    Peer* const peer = *plane->connect(own);
    if (!peer->send(1, bytes_of("before")).ok() || !in.wait_for_records(1)) return 2;
    ::poll(nullptr, 0, 50);                                         // the helper is asleep
    const int out = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 1000);  // not one of the plane's
    // by system calls: ThreadSanitizer reports descriptors that are closed or replaced under their
    // users
    for (int fd = 3; fd < 256; ++fd) (void)::syscall(SYS_close, fd);
    std::vector<int> files;
    for (int i = 0; i < 60; ++i) {
      std::array<int, 2> ends{};
      if (::syscall(SYS_pipe2, ends.data(), O_NONBLOCK) != 0) return 3;
      files.insert(files.end(), ends.begin(), ends.end());
    }
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!peer->is_down() && std::chrono::steady_clock::now() < deadline) {
      plane->look_at_descriptors();
      ::poll(nullptr, 0, 5);
    }
    if (peer->down_reason().find("this process has closed descriptors") == std::string::npos)
      return 4;
    if (peer->send(2, bytes_of("after")).ok() || plane->connect(own).has_value()) return 5;
    plane.reset();
    for (std::size_t i = 0; i < files.size(); i += 2) {
      char byte = 0;
      if (::read(files[i], &byte, 1) != -1 || errno != EAGAIN) return 6;  // nothing was written
      if (::write(files[i + 1], "x", 1) != 1 || ::read(files[i], &byte, 1) != 1) return 7;
    }
    (void)tell;
    (void)out;
    return 0;
  });
  answer_until_closed(std::move(own_listeners), /*process_stays=*/true);
  EXPECT_EQ(closer.wait(), 0);
}

}  // namespace
}  // namespace larklane::control
