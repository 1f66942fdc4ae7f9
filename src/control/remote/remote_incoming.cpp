#include "control/remote/remote_incoming.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/random.hpp"
#include "base/tcp.hpp"
#include "control/remote/remote_wire.hpp"

namespace larklane::control {
namespace {

static_assert(sizeof(RemoteHello) % kRecordAlign == 0);

/// The smallest socket buffer has room for all messages before the first record.
template <class Message>
Status send_message(int socket, const Message& message) noexcept {
  const ssize_t sent = ::send(socket, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(sizeof message)) return Status(Errc::kSystem, errno);
  return {};
}

}  // namespace

RemoteIncoming::RemoteIncoming(UniqueFd fd, const RemoteTerms& terms)
    : Incoming(std::move(fd), Credentials{}),
      terms_(terms),
      host_(peer_host(this->fd())),
      port_(peer_port(this->fd())) {}

Status RemoteIncoming::challenge() {
  tune(fd(), terms_.silence_ns);
  challenge_.identity = identity_of(terms_.secret, terms_.own);
  LARKLANE_TRY(fill_random(std::as_writable_bytes(std::span(challenge_.nonce))));
  return send_message(fd(), challenge_);
}

Incoming::Parsed RemoteIncoming::parse_hello(Introduction* introduction) {
  const auto bytes = unparsed();
  RemoteHello hello;
  // magic and version first: another program may never send as many bytes as a hello
  constexpr std::size_t kPrefixBytes = offsetof(RemoteHello, life);
  if (bytes.size() < sizeof hello.magic) return Parsed::incomplete;
  std::memcpy(&hello.magic, bytes.data(), sizeof hello.magic);
  if (hello.magic != kWireMagic) return broken("unknown magic in the hello");
  if (bytes.size() < kPrefixBytes) return Parsed::incomplete;
  std::memcpy(static_cast<void*>(&hello), bytes.data(), kPrefixBytes);
  *introduction = {hello.version, 0, {}, false};
  if (hello.version != kProtocolVersion) return Parsed::complete;
  if (bytes.size() < sizeof hello) return Parsed::incomplete;
  std::memcpy(&hello, bytes.data(), sizeof hello);
  skip(sizeof hello);
  if (hello.proof != proof_of(terms_.secret, challenge_, hello)) {
    return broken("it has not proven that it belongs to this job");
  }
  if (hello.life == 0) return broken("hello without a nonce");
  const std::string_view address(hello.address.data(),
                                 std::min<std::size_t>(hello.address_bytes, hello.address.size()));
  if (address.size() != hello.address_bytes || !RemoteAddress::parse(address)) {
    return broken("hello with an impossible address");
  }
  introduction->nonce = hello.life;
  introduction->addresses.emplace_back(address);
  Answer answer;
  answer.proof = answer_to(terms_.secret, challenge_, hello);
  // if the peer has gone by now, the next read finds the end
  (void)send_message(fd(), answer);
  return Parsed::complete;
}

}  // namespace larklane::control
