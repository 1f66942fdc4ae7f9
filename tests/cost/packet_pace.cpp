// packet_pace [--provider NAME[:DEVICE]] [--folder DIR] [--messages N] [--rounds N] [--repeats N]
//
// Packets of 8 bytes between two processes of one host, one thread each: how many a second go one
// way, and half a round trip. Each record's number and payload are checked. Text: the median of the
// repeats, the least and the greatest. Exit status: 0, 1 something was wrong, 2 wrong use, 77 there
// is no such provider here.

#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/config.hpp"
#include "msg/packet/packet_lane.hpp"
#include "msg/packet/packet_link.hpp"
#include "net/registry.hpp"
#include "vci/vci.hpp"

namespace larklane::cost {
namespace {

constexpr unsigned kSecondsMost = 300;

struct Wanted {
  std::string provider = "shm", folder;
  std::uint32_t messages = 2'000'000, rounds = 200'000, repeats = 7;
};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "packet_pace: %s\n", why.c_str());
  std::fflush(nullptr);
  ::_exit(1);
}
template <class T>
T must(Result<T> result, const char* what) {
  if (!result) fail(std::string(what) + ": " + errc_name(result.error().code()));
  return std::move(result).value();
}

/// The payload of the `number`-th record.
std::uint64_t payload_of(std::uint64_t number) noexcept { return number * 0x9e37'79b9'7f4a'7c15; }

/// One of the two processes. Thread safety: single-owner.
class End final : msg::PacketListener {
 public:
  End(int rank, int socket, const Wanted& wanted) : rank_(rank), socket_(socket) {
    pin();
    std::string reason;
    auto opened = net::open_fabric_named(Config(), wanted.provider, &reason, wanted.folder);
    if (!opened) {
      std::fprintf(stderr, "skipped: %s\n", reason.c_str());
      ::_exit(77);
    }
    fabric_ = std::move(opened).value();
    lane_ = must(msg::PacketLane::create(*fabric_, {}), "a lane");
    vci_ = must(vci::Vci::create(*fabric_, *lane_), "an endpoint");
    lane_->begin(*vci_);
    link_ = must(msg::PacketLink::open(*lane_, *this), "a link");
    const std::vector<std::byte> offer = link_->offer();
    std::vector<std::byte> others(msg::kPacketOfferBytesMax);
    if (::send(socket_, offer.data(), offer.size(), 0) < 0) fail("send");
    const ssize_t bytes = ::recv(socket_, others.data(), others.size(), 0);
    if (bytes <= 0) fail("recv");
    others.resize(static_cast<std::size_t>(bytes));
    if (const Status status = link_->connect(others); !status.ok())
      fail(std::string("connect: ") + errc_name(status.code()) + ", " + fabric_->explain(status));
    meet();
  }
  ~End() override {
    meet();
    while (!link_->is_quiet()) (void)vci_->progress();
    meet();
    link_.reset();
  }

  /// @return nanoseconds of `count` records from process 0 to process 1, and an answer
  std::uint64_t stream(std::uint64_t count) {
    const std::uint64_t start = now_ns();
    if (rank_ == 0) {
      for (std::uint64_t i = 0; i < count; ++i) post();
      await(heard_ + 1);
    } else {
      await(heard_ + count);
      post();
    }
    return now_ns() - start;
  }
  std::uint64_t ping_pong(std::uint64_t rounds) {
    const std::uint64_t start = now_ns();
    for (std::uint64_t i = 0; i < rounds; ++i) {
      if (rank_ == 0) post();
      await(heard_ + 1);
      if (rank_ == 1) post();
    }
    return now_ns() - start;
  }
  int rank() const noexcept { return rank_; }
  std::string name() const { return fabric_->limits().provider; }
  msg::PacketCounts counts() const { return lane_->counts(); }

 private:
  Result<bool> on_packet(msg::PacketLink&, const msg::PacketHeader& header,
                         std::span<const std::byte> payload) override {
    std::uint64_t word = 0;
    if (payload.size() == sizeof word) std::memcpy(&word, payload.data(), sizeof word);
    if (header[0] != static_cast<std::uint32_t>(heard_) || word != payload_of(heard_))
      fail("wrong record " + std::to_string(heard_));
    ++heard_;
    return true;
  }
  void on_failure(msg::PacketLink&, Status status) override { fail(errc_name(status.code())); }

  void post() {
    const std::uint64_t word = payload_of(posted_);
    const msg::PacketHeader header{static_cast<std::uint32_t>(posted_), 0, 0};
    while (true) {
      const auto answer = must(link_->post(header, std::as_bytes(std::span(&word, 1))), "post");
      if (answer == net::Post::done) break;
      (void)vci_->progress();
    }
    ++posted_;
  }
  void await(std::uint64_t count) {
    while (heard_ < count) (void)vci_->progress();
  }
  void meet() {
    char byte = 0;
    if (::send(socket_, &byte, 1, 0) != 1 || ::recv(socket_, &byte, 1, 0) != 1) fail("meet");
  }
  /// Each on a core of its own, if there are two.
  void pin() const {
    cpu_set_t all, one;
    if (::sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) return;
    CPU_ZERO(&one);
    for (std::size_t cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &all) && seen++ == static_cast<std::size_t>(rank_)) CPU_SET(cpu, &one);
    (void)::sched_setaffinity(0, sizeof one, &one);  // without it the figures are worse
  }

  const int rank_;
  const int socket_;
  std::unique_ptr<net::Fabric> fabric_;
  std::unique_ptr<msg::PacketLane> lane_;
  std::unique_ptr<vci::Vci> vci_;
  std::unique_ptr<msg::PacketLink> link_;
  std::uint64_t posted_ = 0, heard_ = 0;
};

void print(const char* what, std::vector<double> values) {
  std::ranges::sort(values);
  std::printf("%-28s median %10.2f, least %10.2f, greatest %10.2f, of %zu\n", what,
              values[values.size() / 2], values.front(), values.back(), values.size());
}

void measure(End& end, const Wanted& wanted) {
  (void)end.stream(wanted.messages / 10);
  (void)end.ping_pong(wanted.rounds / 10);
  std::vector<double> millions, half_ns;
  for (std::uint32_t i = 0; i < wanted.repeats; ++i) {
    millions.push_back(1e3 * wanted.messages / static_cast<double>(end.stream(wanted.messages)));
    half_ns.push_back(static_cast<double>(end.ping_pong(wanted.rounds)) / 2 / wanted.rounds);
  }
  if (end.rank() != 0) return;
  std::printf("%s\n", end.name().c_str());
  print("8 B, million a second", millions);
  print("8 B, half round trip, ns", half_ns);
}

bool parse(int argc, char** argv, Wanted* wanted) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string word = argv[i], value = argv[i + 1];
    const auto number = static_cast<std::uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    if (word == "--provider")
      wanted->provider = value;
    else if (word == "--folder")
      wanted->folder = value;
    else if (word == "--messages")
      wanted->messages = number;
    else if (word == "--rounds")
      wanted->rounds = number;
    else if (word == "--repeats")
      wanted->repeats = number;
    else
      return false;
  }
  return argc % 2 == 1 && wanted->messages != 0 && wanted->rounds != 0 && wanted->repeats != 0;
}

int run(const Wanted& wanted) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return 1;
  pid_t processes[2];
  for (int rank = 0; rank < 2; ++rank) {
    processes[rank] = ::fork();
    if (processes[rank] != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(kSecondsMost);
    ::close(ends[1 - rank]);
    {
      End end(rank, ends[rank], wanted);
      measure(end, wanted);
    }
    std::fflush(nullptr);
    ::_exit(0);
  }
  ::close(ends[0]);
  ::close(ends[1]);
  int worst = 0;
  for (const pid_t process : processes) {
    int status = 0;
    if (::waitpid(process, &status, 0) != process || !WIFEXITED(status)) return 1;
    worst = std::max(worst, WEXITSTATUS(status));
  }
  return worst;
}

}  // namespace
}  // namespace larklane::cost

int main(int argc, char** argv) {
  larklane::cost::Wanted wanted;
  if (!larklane::cost::parse(argc, argv, &wanted)) {
    std::fprintf(stderr,
                 "usage: packet_pace [--provider NAME[:DEVICE]] [--folder DIR] [--messages N] "
                 "[--rounds N] [--repeats N]\n");
    return 2;
  }
  return larklane::cost::run(wanted);
}
