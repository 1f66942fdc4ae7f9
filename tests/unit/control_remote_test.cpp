// Peers on other hosts: which are accepted, how they are reached, how they end.

#include "control_remote.hpp"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <random>

#include "control_process.hpp"

namespace larklane::control {
namespace {

class RemoteTest : public ControlTest {
 protected:
  static Place fresh_place() { return control::fresh_place(Net::remote); }
  /// Waits for the end of a peer to which no connection can be made.
  void expect_unreachable(Peer& peer, int error, const std::string& why) {
    ASSERT_TRUE(in_.wait_for_down());
    EXPECT_EQ(in_.down()[0], std::make_pair(&peer, std::size_t{0}));
    EXPECT_TRUE(peer.is_down());
    EXPECT_TRUE(peer.has_ended());
    EXPECT_EQ(peer.send(1, {}), Status(Errc::kUnreachable, error));
    for (const char* part : {"127.0.0.1 port ", why.c_str(), "LARKLANE_CONTROL_INTERFACE"}) {
      EXPECT_NE(peer.down_reason().find(part), std::string::npos) << peer.down_reason();
    }
    EXPECT_EQ(in_.down().size(), 1U);
  }
  /// The record is lost; it is refused if the helper has noticed by now that no connection can be
  /// made.
  static void send_in_vain(Peer& peer, int error) {
    const Status sent = peer.send(1, bytes_of("lost"));
    EXPECT_TRUE(sent.ok() || sent == Status(Errc::kUnreachable, error)) << errc_name(sent.code());
  }
  struct Named {
    std::unique_ptr<Plane> plane;
    Address address;
  };
  Named impatient_plane(std::uint64_t silence_ns) {
    Place own = fresh_place();
    own.remote->silence_ns = silence_ns;
    Address address = own.address;
    return {make_plane(std::move(own), in_), std::move(address)};
  }
  Inbox in_;
};

TEST_F(RemoteTest, DescriptorsAreRefused) {
  Place other = fresh_place();
  const auto plane = make_plane(fresh_place(), in_);
  const int fds[] = {STDIN_FILENO};
  Peer* const peer = must_connect(*plane, other.address);
  EXPECT_EQ(peer->send(1, {}, fds), Status(Errc::kInvalidArgument));
  EXPECT_TRUE(peer->send(1, {}).ok());
}

TEST_F(RemoteTest, APlaneWithoutANetworkHasNoRemotePeers) {
  const auto plane = make_plane(control::fresh_place(Net::local), in_);
  EXPECT_EQ(plane->connect("tcp://127.0.0.1:1/x").error(), Status(Errc::kInvalidArgument));
  const auto remote = make_plane(fresh_place(), in_);
  EXPECT_EQ(remote->connect("tcp://127.0.0.1:0/x").error(), Status(Errc::kInvalidArgument));
}

TEST_F(RemoteTest, AnAddressWithoutAListenerIsUnreachable) {
  allow_warning("no connection to");
  Address address;
  {
    const RawListener gone;
    address = gone.address.text();
  }
  const auto plane = make_plane(fresh_place(), in_);
  Peer* const peer = must_connect(*plane, address);
  expect_unreachable(*peer, ECONNREFUSED, std::strerror(ECONNREFUSED));
  // and again: it is another peer
  EXPECT_NE(must_connect(*plane, address), peer);
  EXPECT_TRUE(in_.wait_for_down(2));
}

TEST_F(RemoteTest, AHostThatDoesNotAnswerIsGivenUp) {
  allow_warning("no connection to");
  const RawListener full(0);  // takes one connection; the kernel drops later ones
  RawRemote fillers[2];
  ASSERT_TRUE(fillers[0].connect(full.address.text()));
  Place own = fresh_place();
  own.remote->connect_ns = 300'000'000;
  const auto plane = make_plane(std::move(own), in_);
  Peer* const peer = must_connect(*plane, full.address.text());
  send_in_vain(*peer, ETIMEDOUT);
  expect_unreachable(*peer, ETIMEDOUT, "no answer");
  EXPECT_EQ(plane->counters().records_sent, 0U);
}

TEST_F(RemoteTest, HostsAreTriedInOrder) {
  Place other = fresh_place();
  RemoteAddress address = RemoteAddress::parse(other.address).value();
  address.hosts = {"127.0.0.2", "::1", "127.0.0.1"};  // no process listens at the first two
  other.address = other.remote->listener.address = address.text();
  Inbox other_in;
  const auto there = make_plane(std::move(other), other_in);
  const auto plane = make_plane(fresh_place(), in_);
  Peer* const peer = must_connect(*plane, address.text());
  ASSERT_TRUE(peer->send(7, bytes_of("found")).ok());
  ASSERT_TRUE(other_in.wait_for_records(1));
  EXPECT_FALSE(peer->is_down());
}

TEST_F(RemoteTest, AnotherProcessAtTheAddressIsNotThePeer) {
  allow_warning("no connection to");
  Place other = fresh_place();
  Address wrong = other.address + "x";
  Inbox other_in;
  const auto there = make_plane(std::move(other), other_in);
  const auto plane = make_plane(fresh_place(), in_);
  Peer* const peer = must_connect(*plane, wrong);
  expect_unreachable(*peer, EACCES, "another process listens there");
  EXPECT_TRUE(other_in.take().empty());
}

TEST_F(RemoteTest, AnotherJobIsNotConnectedTo) {
  allow_warning("no connection to");
  Place other = fresh_place();
  other.remote->secret[15] = std::byte{1};
  const Address address = other.address;
  Inbox other_in;
  const auto there = make_plane(std::move(other), other_in);
  const auto plane = make_plane(fresh_place(), in_);
  Peer* const peer = must_connect(*plane, address);
  send_in_vain(*peer, EACCES);
  expect_unreachable(*peer, EACCES, "another job's secret");
  EXPECT_TRUE(other_in.take().empty());
  EXPECT_TRUE(other_in.down().empty());
}

TEST_F(RemoteTest, NothingIsSentToAnUnprovenPeer) {
  allow_warning("no connection to");
  const RawRemote impostor;
  const auto plane = make_plane(fresh_place(), in_);
  Peer* const peer = must_connect(*plane, impostor.listener.address.text());
  EXPECT_TRUE(peer->send(1, bytes_of("secret")).ok());
  const UniqueFd connection = impostor.listener.accept();
  Challenge challenge;  // as overheard: the identity is no secret
  challenge.identity = identity_of(test_secret(), impostor.listener.address.text());
  ASSERT_EQ(::send(connection.get(), &challenge, sizeof challenge, 0), ssize_t{sizeof challenge});
  RemoteHello hello;
  ASSERT_TRUE(receive(connection.get(), &hello));
  Answer answer;
  answer.proof = hello.proof;
  ASSERT_EQ(::send(connection.get(), &answer, sizeof answer, 0), ssize_t{sizeof answer});
  expect_unreachable(*peer, EACCES, "has not proven");
  char byte = 0;
  EXPECT_LE(::recv(connection.get(), &byte, 1, 0), 0);  // not a byte of the record
}

TEST_F(RemoteTest, AStrangerIsRefusedWithOneWarning) {
  Place own = fresh_place();
  const Address address = own.address;
  const auto plane = make_plane(std::move(own), in_);
  const auto expect_refused = [&](const std::function<std::string(RawRemote&)>& hello) {
    RawRemote raw;
    ASSERT_TRUE(raw.connect(address) && receive(raw.fd.get(), &raw.challenge));
    ASSERT_TRUE(raw.send(hello(raw)));
    raw.send_record(1, "too early");
    EXPECT_TRUE(raw.is_cut_off());
  };
  const auto wrong_secret = [](RawRemote& raw) { return raw.proven_hello(Secret{}); };
  expect_refused(wrong_secret);
  expect_warning({"127.0.0.1 port ", "not proven", "refused"});
  expect_refused(wrong_secret);
  expect_refused([](RawRemote& raw) {  // overheard: proven to another process
    raw.challenge.nonce[0] ^= 1;
    return raw.proven_hello();
  });
  expect_refused([](RawRemote& raw) {  // changed on the way
    std::string hello = raw.proven_hello();
    hello[60] ^= 1;
    return hello;
  });
  expect_refused([](RawRemote&) { return "GET / HTTP/1.1\r\n\r\n" + std::string(600, 'x'); });
  expect_warning({"127.0.0.1 port ", "unknown magic", "refused"});
  expect_refused([](RawRemote& raw) {
    raw.hello.life = 0;
    return raw.proven_hello();
  });
  expect_warning({"without a nonce"});
  expect_refused([](RawRemote& raw) {
    raw.hello.address_bytes = kRemoteAddressBytes + 1;
    return raw.proven_hello();
  });
  expect_warning({"impossible address"});
  expect_refused([](RawRemote& raw) {
    raw.hello.address[0] = 'T';  // a local name, of a host that is not this one
    return raw.proven_hello();
  });
  EXPECT_TRUE(in_.take().empty());
  EXPECT_TRUE(in_.down().empty());
}

TEST_F(RemoteTest, AnotherVersionIsNamedOnBothSides) {
  Place own = fresh_place();
  const Address address = own.address;
  const auto plane = make_plane(std::move(own), in_);
  RawRemote raw;
  raw.hello.version = kProtocolVersion + 41;
  ASSERT_TRUE(raw.connect(address) && receive(raw.fd.get(), &raw.challenge));
  // as much as every version promises
  ASSERT_TRUE(raw.send(raw.proven_hello().substr(0, 8)));
  EXPECT_TRUE(raw.is_cut_off());
  expect_warning({"127.0.0.1 port ", "version " + std::to_string(kProtocolVersion + 41)});

  allow_warning("no connection to");
  Peer* const peer = must_connect(*plane, raw.listener.address.text());
  const UniqueFd connection = raw.listener.accept();
  Challenge challenge;
  challenge.version = kProtocolVersion + 41;
  ASSERT_EQ(::send(connection.get(), &challenge, sizeof challenge, 0), ssize_t{sizeof challenge});
  ASSERT_TRUE(in_.wait_for_down());
  EXPECT_EQ(peer->send(0, {}), Status(Errc::kVersion));
  EXPECT_NE(peer->down_reason().find(std::to_string(kProtocolVersion + 41)), std::string::npos);
}

TEST_F(RemoteTest, SomethingElseListens) {
  allow_warning("no connection to");
  const RawRemote web_server;
  const auto plane = make_plane(fresh_place(), in_);
  Peer* const peer = must_connect(*plane, web_server.listener.address.text());
  const UniqueFd connection = web_server.listener.accept();
  const std::string greeting = "220 mail.example.org ESMTP, what can I do for you?";
  ASSERT_GT(::send(connection.get(), greeting.data(), greeting.size(), 0), 0);
  expect_unreachable(*peer, EPROTO, "something else listens");
}

TEST_F(RemoteTest, ASilentConnectionIsDropped) {
  const auto [plane, address] = impatient_plane(200'000'000);
  RawRemote silent;
  RawRemote halfway;
  ASSERT_TRUE(silent.connect(address));
  ASSERT_TRUE(halfway.connect(address) && receive(halfway.fd.get(), &halfway.challenge));
  ASSERT_TRUE(halfway.send(halfway.proven_hello().substr(0, 100)));
  expect_warning({"127.0.0.1 port ", "not said who it is"});
  EXPECT_TRUE(halfway.is_cut_off());
  ASSERT_TRUE(receive(silent.fd.get(), &silent.challenge));
  EXPECT_TRUE(silent.is_cut_off());
  const auto wakeups = plane->counters().helper_wakeups;
  ::poll(nullptr, 0, 500);
  EXPECT_EQ(plane->counters().helper_wakeups, wakeups);  // nothing is timed any more
}

TEST_F(RemoteTest, AHelloInPiecesAndRecordsInPieces) {
  Place own = fresh_place();
  const Address address = own.address;
  const auto plane = make_plane(std::move(own), in_);
  RawRemote raw;
  ASSERT_TRUE(raw.connect(address) && receive(raw.fd.get(), &raw.challenge));
  const auto send_bytewise = [&](const std::string& bytes) {
    for (const char& byte : bytes) ASSERT_TRUE(raw.send({&byte, 1}));
  };
  send_bytewise(raw.proven_hello());
  ASSERT_TRUE(receive(raw.fd.get(), &raw.answer));
  EXPECT_EQ(raw.answer.proof, answer_to(test_secret(), raw.challenge, raw.hello));
  send_bytewise(RawPeer::record(1, "one") + RawPeer::record(2, "") + RawPeer::record(3, "three"));
  ASSERT_TRUE(in_.wait_for_records(3));
  const auto records = in_.take();
  EXPECT_EQ(records[0].payload, "one");
  EXPECT_EQ(records[2].payload, "three");
  EXPECT_EQ(records[0].from->address(), raw.listener.address.text());
  EXPECT_TRUE(records[0].from->is_remote());
  raw.fd.reset();
  EXPECT_TRUE(in_.wait_for_down());
}

TEST_F(RemoteTest, ASpoiledRecordEndsThePeer) {
  const auto expect_end = [&](const std::string& bytes, const std::string& why) {
    SCOPED_TRACE(why);
    Inbox in;
    Place own = fresh_place();
    const Address address = own.address;
    const auto plane = make_plane(std::move(own), in);
    RawRemote raw;
    ASSERT_TRUE(raw.introduce(address));
    ASSERT_TRUE(raw.send_record(1, "good") && raw.send(bytes));
    if (why == "ended within a record") raw.fd.reset();
    ASSERT_TRUE(in.wait_for_down());
    expect_warning({why, "127.0.0.1 port "});
    EXPECT_EQ(in.take().at(0).payload, "good");
  };
  RecordHeader header;
  header.magic = 0;
  expect_end(RawPeer::record(header, "abcd"), "unknown magic");
  header = {};
  header.payload_bytes = kRecordBytesMax + 1;
  expect_end(RawPeer::record(header, "abcd"), "impossible length");
  header = {};
  header.payload_bytes = 4;
  header.fd_count = 1;
  expect_end(RawPeer::record(header, "abcd"), "fewer descriptors");
  expect_end(RawPeer::record(9, "abcdefgh").substr(0, 20), "ended within a record");
}

TEST_F(RemoteTest, RandomlySpoiledStreamsNeverCrash) {
  set_log_sink([](LogLevel, std::string_view) {});
  Place own = fresh_place();
  const Address address = own.address;
  const auto plane = make_plane(std::move(own), in_);
  constexpr std::uint32_t kStreams = 200;
  for (std::uint32_t seed = 1; seed <= kStreams; ++seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    std::mt19937 random(seed);
    RawRemote raw;
    raw.hello.life = seed;
    ASSERT_TRUE(raw.connect(address) && receive(raw.fd.get(), &raw.challenge));
    const bool spoils_hello = seed % 3 == 0;
    const bool spoils_before_proof = seed % 3 == 1;
    const auto spoil = [&](std::string& bytes) { bytes[random() % bytes.size()] = char(random()); };
    if (spoils_before_proof) {  // the members are proven, and make no sense
      auto* const bytes = reinterpret_cast<char*>(&raw.hello);
      bytes[8 + random() % (sizeof raw.hello - 16)] = char(random());
    }
    std::string stream = raw.proven_hello();
    if (spoils_hello) spoil(stream);
    std::string records;
    for (std::uint16_t i = 0; i < 20; ++i) {
      records += RawPeer::record(i, std::string(random() % 300, 'x'));
    }
    for (std::uint32_t i = 0; i < random() % 8; ++i) spoil(records);
    stream += records;
    // refused halfway is as good as read to the end
    for (std::size_t sent = 0; sent < stream.size();) {
      const std::size_t length = std::min<std::size_t>(1 + random() % 2000, stream.size() - sent);
      if (!raw.send(std::string_view(stream).substr(sent, length))) break;
      sent += length;
    }
  }
  Inbox honest_in;
  const auto honest = make_plane(fresh_place(), honest_in);
  ASSERT_TRUE(must_connect(*honest, address)->send(12345, bytes_of("still there")).ok());
  bool is_served = false;
  while (!is_served && in_.wait_for_records(1)) {
    for (const auto& record : in_.take()) is_served = is_served || record.payload == "still there";
  }
  EXPECT_TRUE(is_served);
}

TEST_F(RemoteTest, SentRecordsAreDeliveredBeforeTheEnd) {
  // On the network the end of one connection may be here before the last records of the other.
  Place own = fresh_place();
  const Address address = own.address;
  const auto plane = make_plane(std::move(own), in_);
  RawRemote raw;
  ASSERT_TRUE(raw.introduce(address) && raw.send_record(0, "first"));
  ASSERT_TRUE(in_.wait_for_records(1));
  Peer* const peer = must_connect(*plane, raw.listener.address.text());
  ASSERT_TRUE(peer->send(1, {}).ok());
  UniqueFd connection = raw.accept_and_prove();
  char byte = 0;
  ASSERT_EQ(::recv(connection.get(), &byte, 1, 0), 1);
  connection.reset();
  Status sent;
  for (int i = 0; i < 20'000 && sent.ok(); ++i) {  // until the end is here
    sent = peer->send(2, {});
    ::poll(nullptr, 0, 1);
  }
  EXPECT_EQ(sent.code(), Errc::kPeerDown);
  EXPECT_FALSE(peer->is_down());
  for (std::uint16_t i = 1; i < 100; ++i) ASSERT_TRUE(raw.send_record(i, "late"));
  ASSERT_TRUE(in_.wait_for_records(100));
  EXPECT_TRUE(in_.down().empty());
  raw.fd.reset();
  ASSERT_TRUE(in_.wait_for_down());
  EXPECT_EQ(in_.down()[0], std::make_pair(peer, std::size_t{100}));
}

TEST_F(RemoteTest, AHalfClosedPeerIsNotWaitedForForEver) {
  const auto [plane, address] = impatient_plane(300'000'000);
  RawRemote raw;
  ASSERT_TRUE(raw.introduce(address) && raw.send_record(0, "first"));
  Peer* const peer = must_connect(*plane, raw.listener.address.text());
  // A peer that has introduced itself is connected to at the first send.
  ASSERT_TRUE(peer->send(0, {}).ok());
  raw.accept_and_prove().reset();
  ASSERT_TRUE(in_.wait_for_down());
  EXPECT_EQ(in_.down()[0], std::make_pair(peer, std::size_t{1}));
  EXPECT_TRUE(raw.is_cut_off());
}

/// In a child: a plane that sends numbered records until some are queued.
std::unique_ptr<Plane> send_many(const Address& to, Handler& handler, const Process::Tell& tell) {
  Place own = fresh_place(Net::remote);
  Result<std::unique_ptr<Plane>> plane =
      Plane::create(std::move(own.own), handler, std::move(own.remote));
  if (!plane) ::_exit(91);
  Result<Peer*> peer = (*plane)->connect(to);
  if (!peer || !(*peer)->send(0, bytes_of("payload")).ok()) ::_exit(92);
  while ((*plane)->counters().records_sent == 0) ::poll(nullptr, 0, 1);  // connected
  const std::string payload(2000, 'x');
  std::uint16_t count = 1;
  for (; (*plane)->counters().records_sent == count; ++count) {
    if (!(*peer)->send(count, bytes_of(payload)).ok()) ::_exit(93);
  }
  tell((*plane)->counters().records_sent);
  return std::move(*plane);
}

/// The last record of the socket's buffer may be a partly sent one, which never comes.
void expect_all_then_down_once(Inbox& in, std::uint64_t sent) {
  (void)take_all_then_down_once(in, sent);
  for (const auto& down : in.down()) EXPECT_TRUE(down.first->has_ended());
}

TEST_F(RemoteTest, AKilledPeersRecordsArriveBeforeItsEnd) {
  allow_warning("ended within a record");
  Place own = fresh_place();
  const Address address = own.address;
  Process child([&](const Process::Tell& tell) {
    own = {};  // the parent's
    Inbox in;
    const auto plane = send_many(address, in, tell);
    for (;;) ::pause();
    return 0;
  });
  in_.set_gate(false);
  const auto plane = make_plane(std::move(own), in_);
  const std::uint64_t sent = child.hear();
  EXPECT_GT(sent, 20U);
  child.kill();
  in_.set_gate(true);
  expect_all_then_down_once(in_, sent);
}

TEST_F(RemoteTest, AForkedChildThatKeepsTheSocketsHidesNoDeath) {
  allow_warning("ended within a record");
  Place own = fresh_place();
  const Address address = own.address;
  Process child([&](const Process::Tell& tell) {
    own = {};
    Inbox in;
    const auto plane = send_many(address, in, tell);
    leave_grandchild(tell);
    for (;;) ::pause();
    return 0;
  });
  const auto plane = make_plane(std::move(own), in_);
  const std::uint64_t sent = child.hear();
  const auto grandchild = static_cast<pid_t>(child.hear());
  EXPECT_EQ(in_.down().size(), 0U);
  child.kill();
  expect_all_then_down_once(in_, sent);
  EXPECT_TRUE(runs(grandchild));
  ::kill(grandchild, SIGKILL);
}

TEST_F(RemoteTest, APeerThatLeavesIsReportedToo) {
  Place own = fresh_place();
  const Address address = own.address;
  Process child([&](const Process::Tell& tell) {
    own = {};
    Inbox in;
    send_many(address, in, tell).reset();
    return 0;
  });
  const auto plane = make_plane(std::move(own), in_);
  child.hear();
  ASSERT_TRUE(in_.wait_for_down());
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(in_.down().size(), 1U);
  EXPECT_NE(in_.down()[0].first->down_reason().find("its process has ended"), std::string::npos);
}

/// Loopback of this process's own network, up or down.
bool set_loopback(bool up) {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = up ? IFF_UP | IFF_RUNNING : 0;
  return ::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
}

TEST_F(RemoteTest, ANetworkThatFailsIsNoticed) {
  Process child([&](const Process::Tell&) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWNET) != 0) return 77;
    if (!set_loopback(true)) return 77;
    constexpr std::uint64_t kSilenceNs = 2'000'000'000;
    Inbox a_in;
    Inbox b_in;
    Place a_place = fresh_place();
    Place b_place = fresh_place();
    a_place.remote->silence_ns = b_place.remote->silence_ns = kSilenceNs;
    const Address b_name = b_place.address;
    const auto a = make_plane(std::move(a_place), a_in);
    const auto b = make_plane(std::move(b_place), b_in);
    Peer* const to_b = must_connect(*a, b_name);
    if (!to_b->send(1, {}).ok() || !b_in.wait_for_records(1)) return 1;
    ::poll(nullptr, 0, 3000);  // longer than the time of silence: probes are answered
    if (!a_in.down().empty() || !b_in.down().empty()) return 2;
    if (!set_loopback(false)) return 3;
    // one side sends, the other one only receives
    if (!to_b->send(2, {}).ok()) return 4;
    if (!a_in.wait_for_down() || !b_in.wait_for_down()) return 5;
    if (to_b->down_reason().find("LARKLANE_CONTROL_SILENCE_NS") == std::string::npos) return 6;
    return to_b->send(3, {}).code() == Errc::kPeerDown ? 0 : 7;
  });
  const int status = child.wait();
  if (status == 77) GTEST_SKIP() << "no network namespace is to be had here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace larklane::control
