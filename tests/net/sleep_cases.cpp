// A process that sleeps on the descriptor, and does nothing else, serves its peers.

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/clock.hpp"
#include "cases.hpp"

namespace larklane::provider_test {
namespace {

constexpr std::uint32_t kRounds = 200;
constexpr std::uint32_t kOver = 0xffffffff;

/// As Linux has it in the third word of /proc/PID/stat. Of a thread of any name.
bool is_asleep(pid_t process) {
  FILE* file = std::fopen(("/proc/" + std::to_string(process) + "/stat").c_str(), "re");
  if (file == nullptr) return false;
  char text[512]{};
  const std::size_t length = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  const std::string_view stat(text, length);
  const std::size_t name_ends = stat.rfind(')');
  return name_ends != std::string_view::npos && name_ends + 2 < length &&
         stat[name_ends + 2] == 'S';
}

void sleep_and_serve(Side& side, Node& node) {
  std::uint32_t sleeps = 0;
  while (node.heard.empty() || node.heard.back() != kOver) {
    if (node.endpoint->arm(net::Wake::needed)) {
      pollfd look{node.endpoint->wait_fd(), POLLIN, 0};
      CHECK(::poll(&look, 1, static_cast<int>(kLimitNs / 1'000'000)) == 1);
      ++sleeps;
    }
    while (node.poll() > 0) continue;
  }
  CHECK(node.heard.size() == 2 * kRounds + 1);
  std::printf("  slept %u times in %u rounds\n", sleeps, kRounds);
  CHECK(sleeps >= kRounds / 2);
  side.meet();
}

void sleeper(Side& side) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  Node& node = side.open_node();
  if (side.swap(static_cast<std::uint8_t>(node.endpoint->wait_fd() >= 0)) == 0) {
    if (side.rank == 0) std::printf("  no descriptor to sleep on\n");
    return;
  }
  const auto link = side.open_link(node);
  std::vector<std::byte> bytes(kBytes);
  const auto memory = side.share(bytes);
  const auto remote = side.swap(memory->remote());
  const pid_t other = side.swap(::getpid());
  if (side.rank == 1) fill(bytes, 5);
  side.meet();
  if (side.rank == 1) return sleep_and_serve(side, node);
  const auto ring = [&](std::uint32_t immediate) {
    side.wait("the other side to fall asleep", [&] { return is_asleep(other); });
    side.complete([&](net::Operation& operation) {
      return link->write_small_immediate({}, remote, immediate, operation);
    });
  };
  for (std::uint32_t i = 0; i < kRounds; ++i) {
    ring(2 * i);
    side.wait("the other side to fall asleep", [&] { return is_asleep(other); });
    const std::size_t length = i % 2 == 0 ? 8 : kBytes;
    side.complete([&](net::Operation& operation) {
      return link->read({bytes.data(), memory.get(), remote, length}, operation);
    });
    CHECK(first_wrong(std::span(bytes).first(length), 5) == -1);
    ring(2 * i + 1);
  }
  ring(kOver);
  side.meet();
}

constexpr Case kCases[] = {{"sleeper", sleeper}};

}  // namespace

std::span<const Case> sleep_cases() { return kCases; }

}  // namespace larklane::provider_test
