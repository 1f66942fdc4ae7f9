#include "mpi/world/meeting.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/kernel_calls.hpp"
#include "control/local/socket.hpp"
#include "mpi/world/context_id.hpp"
#include "mpi/world/identity.hpp"

namespace larklane::mpi {
namespace {

constexpr std::size_t kTextBytesMax = 128 * 1024;
constexpr std::string_view kDone = "done";
constexpr int kBacklog = 128;

using Clock = std::chrono::steady_clock;
using control::SocketName;

int left_ms(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<decltype(left)>(left, 0));
}

SocketName name_of(const char* kind, const ContextId& id) {
  return SocketName(address_named(std::string(kind) + "." + text_of(id)));
}

SocketName name_of_port(const std::string& port_name) {
  return name_of("port", ContextHash(Origin::meeting).add(std::string_view(port_name)).id());
}

UniqueFd make_socket(int type) {
  return UniqueFd(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

bool send_text(int socket, std::string_view text) {
  return ::send(socket, text.data(), text.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(text.size());
}

/// Receives one packet of this user. @return nullopt: no packet yet; empty text: the other end has
/// closed, or sent an empty packet
std::optional<std::string> receive_text(int socket) {
  std::string text(kTextBytesMax, '\0');
  iovec space{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
  msghdr message{};
  message.msg_iov = &space;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t length = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  // Only mail carries credentials; those of a connection were checked before.
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_CREDENTIALS) {
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
    if (sender.uid != ::geteuid()) return std::nullopt;
  }
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  return text;
}

bool wait_readable(int socket, Clock::time_point deadline) {
  pollfd polled{socket, POLLIN, 0};
  int count = 0;
  do {
    count = ::poll(&polled, 1, left_ms(deadline));
  } while (count < 0 && errno == EINTR);
  return count > 0;
}

}  // namespace

std::unique_ptr<Port> Port::open(const std::string& name) {
  UniqueFd socket = make_socket(SOCK_SEQPACKET);
  const SocketName own = name_of_port(name);
  if (!socket || ::bind(socket.get(), own.get(), own.length) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return nullptr;
  }
  return std::unique_ptr<Port>(new Port(std::move(socket)));
}

/// Accepts clients. `silent_` bounds those without a hello: another process of this user may
/// connect any number of times and send none.
void Port::take_hellos() {
  for (int taken = 0; taken < kBacklog; ++taken) {
    UniqueFd socket(accept_connection(listener_.get()));
    if (!socket) return;
    if (!control::is_own_user(control::peer_credentials(socket.get()))) continue;
    const auto room = silent_.room(now_ns(), /*grace_ns=*/0);
    if (room.pushed_out != nullptr) drop(*room.pushed_out);
    Client& client = clients_.emplace_back(Client{std::move(socket), std::nullopt});
    silent_.add(client, now_ns());
    if (auto text = receive_text(client.socket.get())) take_hello(client, *text);
  }
}

void Port::take_hello(Client& client, const std::string& text) {
  client.members = members_of_text(text);
  if (!client.members || client.members->empty()) return drop(client);
  silent_.remove(client);
}

void Port::drop(Client& client) {
  silent_.remove(client);
  clients_.remove_if([&](const Client& one) { return &one == &client; });
}

Port::Client* Port::find_done() {
  for (auto next = clients_.begin(); next != clients_.end();) {
    Client& client = *next++;
    auto text = receive_text(client.socket.get());
    if (text && !client.members) {
      take_hello(client, *text);
      continue;
    }
    if (text && *text == kDone) return &client;
    if (text) drop(client);
  }
  return nullptr;
}

std::optional<std::vector<Member>> Port::accepted(const Meeting* own, std::size_t size) {
  const auto deadline = Clock::now() + kDoneWait;
  take_hellos();
  Client* done = find_done();
  // A client sends hello before the MPI connects it, so the accepted client's hello is already
  // here.
  while (done == nullptr && left_ms(deadline) > 0) {
    std::vector<pollfd> polled;
    for (const Client& client : clients_)
      if (client.members) polled.push_back({client.socket.get(), POLLIN, 0});
    if (polled.empty()) break;
    ::poll(polled.data(), polled.size(), left_ms(deadline));
    done = find_done();
  }
  if (done == nullptr) {
    // A client that is late must not count as the next accepted one.
    silent_ = Unproven<Client>();
    clients_.clear();
    return std::nullopt;
  }
  std::optional<std::vector<Member>> members;
  if (own != nullptr && done->members->size() == size &&
      send_text(done->socket.get(), own->text())) {
    members = std::move(done->members);
  }
  drop(*done);
  return members;
}

Caller::Caller(const std::string& port_name, std::span<const Member> own) {
  UniqueFd socket = make_socket(SOCK_SEQPACKET);
  const SocketName port = name_of_port(port_name);
  if (socket && ::connect(socket.get(), port.get(), port.length) == 0 &&
      control::is_own_user(control::peer_credentials(socket.get())) &&
      send_text(socket.get(), text_of(own))) {
    socket_ = std::move(socket);
  }
}

std::optional<Meeting> Caller::connected() {
  if (!socket_ || !send_text(socket_.get(), kDone)) return std::nullopt;
  const auto deadline = Clock::now() + kAnswerWait;
  while (wait_readable(socket_.get(), deadline)) {
    if (const auto text = receive_text(socket_.get())) return Meeting::of_text(*text);
  }
  return std::nullopt;
}

Mailbox::Mailbox(const ContextId& key, int rank) : key_(key), rank_(rank) {
  UniqueFd socket = make_socket(SOCK_DGRAM);
  const SocketName own = name_of("mail", box(rank));
  const int on = 1;
  if (socket && ::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 &&
      ::bind(socket.get(), own.get(), own.length) == 0) {
    socket_ = std::move(socket);
  }
}

ContextId Mailbox::box(int rank) const {
  return ContextHash(Origin::meeting).add(key_).add(static_cast<std::uint64_t>(rank)).id();
}

void Mailbox::send(int size, const std::optional<Meeting>& news) const {
  if (!socket_) return;
  const std::string text = news ? news->text() : std::string();
  for (int rank = 0; rank < size; ++rank) {
    if (rank == rank_) continue;
    const SocketName to = name_of("mail", box(rank));
    ::sendto(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL, to.get(), to.length);
  }
}

std::optional<Meeting> Mailbox::receive(int root) const {
  if (!socket_) return std::nullopt;
  const SocketName from = name_of("mail", box(root));
  // A root without a mailbox has either written and closed it, or never had one.
  const UniqueFd probe = make_socket(SOCK_DGRAM);
  const bool is_coming = probe && ::connect(probe.get(), from.get(), from.length) == 0;
  const auto deadline = Clock::now() + (is_coming ? kNewsWait : std::chrono::milliseconds(0));
  while (wait_readable(socket_.get(), deadline)) {
    if (const auto text = receive_text(socket_.get())) return Meeting::of_text(*text);
  }
  return std::nullopt;
}

}  // namespace larklane::mpi
