#pragma once
// A process of another host that speaks the protocol by hand, rightly or wrongly.

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <span>
#include <string>

#include "control/remote/remote_wire.hpp"
#include "control_fixture.hpp"

namespace larklane::control {

/// A TCP listener that no process serves.
struct RawListener {
  explicit RawListener(int backlog = 16) {
    fd.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Endpoint any = *endpoint_of("127.0.0.1", 0);
    EXPECT_EQ(::bind(fd.get(), any.get(), any.length), 0);
    EXPECT_EQ(::listen(fd.get(), backlog), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&any.name), &any.length), 0);
    sockaddr_in name;
    std::memcpy(&name, &any.name, sizeof name);
    address.hosts = {"127.0.0.1"};
    address.port = ntohs(name.sin_port);
    address.name = fresh_address();
  }
  UniqueFd accept() const {
    pollfd readable{fd.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&readable, 1, kPatienceMs), 1);
    return UniqueFd(::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  UniqueFd fd;
  RemoteAddress address;
};

template <class Message>
bool receive(int socket, Message* message) {
  timeval patience{kPatience.count(), 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return ::recv(socket, message, sizeof *message, MSG_WAITALL) ==
         static_cast<ssize_t>(sizeof *message);
}

/// A hello of the job, unless it is spoiled. Its own address is that of its listener.
class RawRemote {
 public:
  RawRemote() {
    const Address own = listener.address.text();
    hello.life = 4711;
    hello.nonce = {1, 2};
    hello.address_bytes = static_cast<std::uint32_t>(own.size());
    std::memcpy(hello.address.data(), own.data(), own.size());
  }
  bool connect(const Address& to) {
    const RemoteAddress address = RemoteAddress::parse(to).value();
    const Endpoint endpoint = address.endpoint(0);
    fd.reset(::socket(endpoint.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return ::connect(fd.get(), endpoint.get(), endpoint.length) == 0;
  }
  bool send(std::string_view bytes) const {
    return ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  bool send_record(std::uint16_t kind, std::string_view payload) const {
    return send(RawPeer::record(kind, payload));
  }
  std::string proven_hello(const Secret& secret = test_secret()) {
    hello.proof = proof_of(secret, challenge, hello);
    return {reinterpret_cast<const char*>(&hello), sizeof hello};
  }
  /// Everything up to the answer.
  bool introduce(const Address& to) {
    return connect(to) && receive(fd.get(), &challenge) && send(proven_hello()) &&
           receive(fd.get(), &answer);
  }
  bool is_cut_off() const {
    pollfd closed{fd.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&closed, 1, kPatienceMs) == 1 && ::read(fd.get(), &byte, 1) <= 0;
  }
  /// Takes the connection that a plane makes to this process, and all that belongs to it.
  UniqueFd accept_and_prove() const {
    UniqueFd connection = listener.accept();
    Challenge own;
    own.identity = identity_of(test_secret(), listener.address.text());
    own.nonce = {3, 4};
    RemoteHello theirs;
    EXPECT_EQ(::send(connection.get(), &own, sizeof own, MSG_NOSIGNAL), ssize_t{sizeof own});
    EXPECT_TRUE(receive(connection.get(), &theirs));
    EXPECT_EQ(theirs.proof, proof_of(test_secret(), own, theirs));
    Answer proof;
    proof.proof = answer_to(test_secret(), own, theirs);
    EXPECT_EQ(::send(connection.get(), &proof, sizeof proof, MSG_NOSIGNAL), ssize_t{sizeof proof});
    return connection;
  }

  RawListener listener;
  RemoteHello hello;
  Challenge challenge;
  Answer answer;
  UniqueFd fd;
};

}  // namespace larklane::control
