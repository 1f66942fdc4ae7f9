// The attack on a socket, by libfabric's protocols.

#include "stranger_client.hpp"

#include <arpa/inet.h>
#include <grp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace larklane::provider_test {
namespace {

constexpr uid_t kOtherUser = 65534;
constexpr int kAnswerMs = 3000;
constexpr std::uint32_t kSlots = 1u << 16;
constexpr std::uint64_t kKeys = 32;

// libfabric 1.17, prov/tcp/src/tcpx.h and prov/rxm/src/rxm.h.
struct ControlHeader {
  std::uint8_t version = 3;
  std::uint8_t type = 0;  ///< 0: a request, 1: it is taken
  std::uint16_t bytes;    ///< big endian
  std::uint32_t segment = 0;
  std::uint64_t connection = 0, message = 0, byte_order = 1;
};
struct RxmRequest {
  std::uint8_t version = 1, byte_order = 2, control_version = 4, operation_version = 3;
  std::uint16_t port = 1;
  std::uint8_t flow_control = 0, padding = 0;
  std::uint32_t eager_limit = 16384, receives = 64;
  std::uint64_t connection = 0;
};
struct Request {
  ControlHeader header;
  RxmRequest rxm;
};
struct OperationHeader {
  std::uint8_t version = 3;
  std::uint8_t operation;
  std::uint16_t flags = 0;
  std::uint8_t data = 0, places, bytes, id = 0;
  std::uint64_t size;
};
struct Place {
  std::uint64_t address, bytes, key;
};
struct ReadRequest {
  OperationHeader header;
  Place place;
};
struct Immediate {  // a write to no place at all
  OperationHeader header;
  std::uint64_t data;
};
struct ImmediateTo {
  OperationHeader header;
  std::uint64_t data;
  Place place;
};
struct WriteRequest {
  OperationHeader header;
  Place place;
  std::uint64_t bytes;
};
static_assert(sizeof(Request) == 56 && sizeof(ReadRequest) == 40 && sizeof(Immediate) == 24 &&
              sizeof(WriteRequest) == 48);
constexpr std::uint8_t kMessage = 0, kReadRequest = 2, kReadAnswer = 3, kWrite = 4;
constexpr std::uint16_t kHasData = 1;

UniqueFd connect_to(const sockaddr_in& door) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{kAnswerMs / 1000, 0};  // the door's process may read nothing
  if (!socket ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0 ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&door), sizeof door) != 0)
    return {};
  return socket;
}

template <class T>
bool say(const UniqueFd& socket, const T& value) {
  return ::send(socket.get(), &value, sizeof value, MSG_NOSIGNAL) == sizeof value;
}
template <class T>
bool hear(const UniqueFd& socket, T* value) {
  std::size_t heard = 0;
  while (heard < sizeof *value) {
    pollfd look{socket.get(), POLLIN, 0};
    if (::poll(&look, 1, kAnswerMs) != 1) return false;
    const ssize_t count =
        ::recv(socket.get(), reinterpret_cast<std::byte*>(value) + heard, sizeof *value - heard, 0);
    if (count <= 0) return false;
    heard += static_cast<std::size_t>(count);
  }
  return true;
}

/// Whether the port has taken it. Some ports answer only when their process polls.
bool request(const UniqueFd& socket) {
  Request wanted{};
  wanted.header.bytes = htons(sizeof wanted.rxm);
  ControlHeader answer{};
  std::array<std::byte, 16> rest;
  return say(socket, wanted) && hear(socket, &answer) && answer.type == 1 && hear(socket, &rest);
}

/// @return Intrusion
int try_reads(const sockaddr_in& door) {
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const UniqueFd socket = connect_to(door);
    if (!socket || !request(socket)) return key == 0 ? Intrusion::kNone : Intrusion::kConnected;
    const ReadRequest read{{3, kReadRequest, 0, 0, 1, sizeof(ReadRequest), 0, sizeof(ReadRequest)},
                           {0, 8, key}};
    OperationHeader answer{};
    if (say(socket, read) && hear(socket, &answer) && answer.operation == kReadAnswer)
      return Intrusion::kRead;
  }
  return Intrusion::kConnected;
}

/// Ignores the port's answers. Immediates of channels, from first to last, of none, and of
/// messages.
void try_to_be_heard(const sockaddr_in& door) {
  const UniqueFd socket = connect_to(door);
  if (!socket) return;
  (void)request(socket);
  const Immediate nowhere{{3, kWrite, kHasData, 0, 0, sizeof(Immediate), 0, sizeof(Immediate)}, 0};
  std::vector<Immediate> all(kSlots, nowhere);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) all[slot].data = slot << 16;
  (void)::send(socket.get(), all.data(), all.size() * sizeof all[0], MSG_NOSIGNAL);
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const UniqueFd other = connect_to(door);
    if (!other || !request(other)) return;
    const ImmediateTo nothing{
        {3, kWrite, kHasData, 0, 1, sizeof(ImmediateTo), 0, sizeof(ImmediateTo)}, 7, {0, 0, key}};
    (void)say(other, nothing);
    const WriteRequest write{
        {3, kWrite, 0, 0, 1, sizeof(ReadRequest), 0, sizeof(WriteRequest)}, {0, 8, key}, ~key};
    (void)say(other, write);
    const OperationHeader message{3, kMessage, 0, 0, 0, sizeof message, 0, sizeof message};
    for (int i = 0; i < 1000 && say(other, message); ++i) continue;
  }
}

}  // namespace

void become_stranger() {
  rlimit most{};
  if (::getrlimit(RLIMIT_NOFILE, &most) == 0) {
    most.rlim_cur = most.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &most);
  }
  if (::geteuid() != 0) return;
  if (::setgroups(0, nullptr) != 0 || ::setresgid(kOtherUser, kOtherUser, kOtherUser) != 0 ||
      ::setresuid(kOtherUser, kOtherUser, kOtherUser) != 0)
    ::_exit(1);
}

int Intruder::attack(const sockaddr_in& door) {
  const int found = try_reads(door);
  try_to_be_heard(door);
  for (std::size_t i = 0; i < silent_count_; ++i) {
    UniqueFd socket = connect_to(door);
    if (!socket) break;
    silent_.push_back(std::move(socket));
  }
  return found;
}

}  // namespace larklane::provider_test
