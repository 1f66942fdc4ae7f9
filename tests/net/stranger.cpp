// The process of the attacker: forks, changes the user, hands over the ports.

#include "stranger.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "side.hpp"

namespace larklane::provider_test {
namespace {

constexpr unsigned kSecondsMost = 100;

[[noreturn]] void run(const std::vector<std::uint16_t>& ports, std::size_t silent_count,
                      int result) {
  ::dup2(result, 3);
  ::close_range(4, ~0U, 0);
  become_stranger();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // after the change of the user, which takes it back
  ::alarm(kSecondsMost);
  Intruder intruder(silent_count);
  int found = Intrusion::kNone;
  for (const std::uint16_t port : ports) {
    sockaddr_in door{};
    door.sin_family = AF_INET;
    door.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    door.sin_port = htons(port);
    found = std::max(found, intruder.attack(door));
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

bool is_listening() {
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    const int number = std::stoi(entry->path().filename());
    int domain = 0, accepts = 0;
    socklen_t length = sizeof domain;
    if (::getsockopt(number, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_INET &&
        ::getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &length) == 0 && accepts != 0)
      return true;
  }
  return false;
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
