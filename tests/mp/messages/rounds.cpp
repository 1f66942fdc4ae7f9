// Messages to and fro between two ranks.
//
//   rounds FILE     until FILE is there, each compared; then prints "rank R: N rounds right"
//   rounds close    rank 1 closes all its descriptors after some, and opens others: both ranks'
//                   messages fail in time; prints "rank R: peer down" and "rank R is over"
//
// Exit status: of program.hpp.

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

constexpr std::size_t kWords = 700;

/// A round: both send, both receive. @return the first error
Status round_of(Context& context, Vci& vci, std::uint64_t number, bool is_last, bool* heard_last) {
  std::array<std::uint64_t, kWords> out{}, in{};
  const int me = context.rank(), peer = 1 - me;
  fill(out, 2 * number + static_cast<std::uint64_t>(me));
  out[0] = is_last ? 1 : 0;
  auto over = got(Synchronizer::create(context.completions(), 2), "synchronizer");
  PostOptions options;
  options.completion = &over;
  options.signals_always = true;
  Status status;
  const auto post = [&](auto&& call) {
    wait_for(vci, "a post", [&] {
      auto posted = call();
      if (posted) return *posted != Post::retry;
      status = posted.error();
      return true;
    });
  };
  post([&] { return post_recv(vci, peer, 5, in.data(), sizeof in, options); });
  if (!status.ok()) return status;
  post([&] { return post_send(vci, peer, 5, out.data(), sizeof out, options); });
  if (!status.ok()) return status;
  wait_for(vci, "a round", [&] { return over.test(); });
  for (const Completion& one : over.completions())
    if (!one.status.ok()) return one.status;
  *heard_last = in[0] == 1;
  std::array<std::uint64_t, kWords> wanted{};
  fill(wanted, 2 * number + static_cast<std::uint64_t>(peer));
  wanted[0] = in[0];
  if (in != wanted) fail(1, "a message is not what was sent");
  return {};
}

void run_rounds(Context& context, Vci& vci, const char* file) {
  std::uint64_t number = 0;
  for (bool last = false; !last; ++number) {
    bool heard = false;
    const bool mine = context.rank() == 0 && ::access(file, F_OK) == 0;
    const Status status = round_of(context, vci, number, mine, &heard);
    if (!status.ok()) fail(3, std::string("a round: ") + errc_name(status.code()));
    last = mine || heard;
    if (number == 30) {
      std::printf("rank %d has begun, pid %d\n", context.rank(), static_cast<int>(::getpid()));
      std::fflush(stdout);
    }
  }
  std::printf("rank %d: %llu rounds right\n", context.rank(),
              static_cast<unsigned long long>(number));
}

void run_close(Context& context, Vci& vci) {
  bool heard = false;
  for (std::uint64_t number = 0; number < 50; ++number)
    if (!round_of(context, vci, number, false, &heard).ok()) fail(3, "a round before");
  if (context.rank() == 1) {
    ::usleep(50'000);  // the helper is asleep
    for (int fd = 3; fd < 1024; ++fd) ::close(fd);
    for (int i = 0; i < 100; ++i) (void)!::open("/dev/null", O_RDWR);
  }
  Status status;
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  for (std::uint64_t number = 50; status.ok() && Clock::now() < deadline; ++number)
    status = round_of(context, vci, number, false, &heard);
  std::printf("rank %d: %s\nrank %d is over\n", context.rank(), errc_name(status.code()),
              context.rank());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) fail(3, "rounds FILE|close");
  auto context = begin();
  const bool closes = std::strcmp(argv[1], "close") == 0;
  {
    Vci vci = got(context->create_vci(), "create_vci");
    closes ? run_close(*context, vci) : run_rounds(*context, vci, argv[1]);
    if (!closes) meet(*context);
  }
  return 0;
}
