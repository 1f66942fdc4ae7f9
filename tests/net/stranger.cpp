#include "stranger.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>

#include "base/unique_fd.hpp"
#include "side.hpp"

namespace larklane::provider_test {
namespace {

constexpr uid_t kOtherUser = 65534;
constexpr int kAnswerMs = 3000;
constexpr unsigned kSecondsMost = 100;
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
static_assert(sizeof(Request) == 56 && sizeof(ReadRequest) == 40 && sizeof(Immediate) == 24);
constexpr std::uint8_t kMessage = 0, kReadRequest = 2, kReadAnswer = 3, kWrite = 4;
constexpr std::uint16_t kHasData = 1;

UniqueFd connect_to(std::uint16_t port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  name.sin_port = htons(port);
  if (!socket || ::connect(socket.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) != 0)
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
int try_reads(std::uint16_t port) {
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const UniqueFd socket = connect_to(port);
    if (!socket || !request(socket)) return key == 0 ? Intrusion::kNone : Intrusion::kConnected;
    const ReadRequest read{{3, kReadRequest, 0, 0, 1, sizeof(ReadRequest), 0, sizeof(ReadRequest)},
                           {0, 8, key}};
    OperationHeader answer{};
    if (say(socket, read) && hear(socket, &answer) && answer.operation == kReadAnswer)
      return Intrusion::kRead;
  }
  return Intrusion::kConnected;
}

/// Whatever the port says: of channels, from first to last, of none, and of messages.
void try_to_be_heard(std::uint16_t port) {
  const UniqueFd socket = connect_to(port);
  if (!socket) return;
  (void)request(socket);
  const Immediate nowhere{{3, kWrite, kHasData, 0, 0, sizeof(Immediate), 0, sizeof(Immediate)}, 0};
  std::vector<Immediate> all(kSlots, nowhere);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) all[slot].data = slot << 16;
  (void)::send(socket.get(), all.data(), all.size() * sizeof all[0], MSG_NOSIGNAL);
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const UniqueFd other = connect_to(port);
    if (!other || !request(other)) return;
    const ImmediateTo nothing{
        {3, kWrite, kHasData, 0, 1, sizeof(ImmediateTo), 0, sizeof(ImmediateTo)}, 7, {0, 0, key}};
    (void)say(other, nothing);
    const OperationHeader message{3, kMessage, 0, 0, 0, sizeof message, 0, sizeof message};
    for (int i = 0; i < 1000 && say(other, message); ++i) continue;
  }
}

void become_another_user() {
  if (::geteuid() != 0) return;
  if (::setgroups(0, nullptr) != 0 || ::setresgid(kOtherUser, kOtherUser, kOtherUser) != 0 ||
      ::setresuid(kOtherUser, kOtherUser, kOtherUser) != 0)
    ::_exit(1);
}

[[noreturn]] void run(const std::vector<std::uint16_t>& ports, std::size_t silent_count,
                      int result) {
  ::dup2(result, 3);
  ::close_range(4, ~0U, 0);
  rlimit most{};
  if (::getrlimit(RLIMIT_NOFILE, &most) == 0) {
    most.rlim_cur = most.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &most);
  }
  become_another_user();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // which a change of the user takes back
  ::alarm(kSecondsMost);
  std::vector<UniqueFd> silent;
  int found = Intrusion::kNone;
  for (const std::uint16_t port : ports) {
    found = std::max(found, try_reads(port));
    try_to_be_heard(port);
    for (std::size_t i = 0; i < silent_count; ++i) {
      UniqueFd socket = connect_to(port);
      if (!socket) break;
      silent.push_back(std::move(socket));
    }
  }
  const auto word = static_cast<std::uint8_t>(found);
  if (::write(3, &word, 1) != 1) ::_exit(1);
  while (true) ::pause();
}

}  // namespace

std::vector<std::uint16_t> own_ports() {
  std::vector<std::uint16_t> ports;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    sockaddr_in name{};
    socklen_t length = sizeof name;
    const int number = std::stoi(entry->path().filename());
    if (::getsockname(number, reinterpret_cast<sockaddr*>(&name), &length) == 0 &&
        name.sin_family == AF_INET && name.sin_port != 0)
      ports.push_back(ntohs(name.sin_port));
  }
  std::ranges::sort(ports);
  const auto same = std::ranges::unique(ports);
  ports.erase(same.begin(), same.end());
  return ports;
}

Stranger::Stranger(const std::vector<std::uint16_t>& ports, std::size_t silent_count) {
  int ends[2];
  CHECK(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  result_ = ends[0];
  process_ = ::fork();
  if (process_ == 0) run(ports, silent_count, ends[1]);
  ::close(ends[1]);
  CHECK(process_ > 0);
}

Stranger::~Stranger() {
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  ::close(result_);
}

bool Stranger::has_tried_all() {
  if (intrusion_ >= 0) return true;
  std::uint8_t word = 0;
  const ssize_t count = ::read(result_, &word, 1);
  CHECK(count != 0);  // it has died
  if (count == 1) intrusion_ = word;
  return count == 1;
}

}  // namespace larklane::provider_test
