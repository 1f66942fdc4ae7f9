// The memory and time that a process takes: docs/user/messages.md has the figures, which are the
// limits here.
//
//   footprint used shm|tcp|verbs LANES ROUNDS    in a job of 4: resources in use, and, in ROUNDS
//   more of messages, that they are used again
//   footprint unused shm|tcp|verbs               of a job of any size, alone: unused resources
//   footprint times                              alone: to begin and to end, with any number of
//   lanes
//
// Exit status: of program.hpp; 1: it takes more than that.

#include <malloc.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

constexpr const char* kUsage = "footprint used PROVIDER LANES ROUNDS | unused PROVIDER | times";

/// Thread safety: immutable.
struct Bytes {
  std::int64_t heap;     ///< allocated, used or not
  std::int64_t touched;  ///< pages of heap and stacks that are there
  std::int64_t shared;   ///< pages that this process has made for its peers

  static Bytes now() {
    const struct mallinfo2 info = ::mallinfo2();
    Bytes bytes{static_cast<std::int64_t>(info.uordblks + info.hblkhd), 0, 0};
    std::ifstream pages("/proc/self/smaps_rollup");
    for (std::string word; pages >> word;)
      if (std::int64_t kib = 0; word == "Anonymous:" && pages >> kib) bytes.touched = kib * 1024;
    for (const auto& open : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      struct stat file {};
      if (std::filesystem::read_symlink(open, gone).string().starts_with("/memfd:larklane") &&
          ::stat(open.path().c_str(), &file) == 0)
        bytes.shared += file.st_blocks * 512;
    }
    return bytes;
  }
  Bytes operator-(const Bytes& other) const {
    return {heap - other.heap, touched - other.touched, shared - other.shared};
  }
  Bytes operator/(std::int64_t count) const {
    return {heap / count, touched / count, shared / count};
  }
  bool is_within(const Bytes& most) const {
    return heap <= most.heap && touched <= most.touched && shared <= most.shared;
  }
};

constexpr std::int64_t kKib = 1024, kMib = 1024 * kKib;
/// More and more of the allocated memory is touched: that has an end.
constexpr std::int64_t kUntold = std::int64_t{1} << 40;
constexpr Bytes kNothing{4 * kKib, 16 * kKib, 0}, kNoneLeft{256 * kKib, kUntold, 0};

struct Limits {
  Bytes context, lane, first_use, peer, first_long, receive, unexpected, long_send;
};
constexpr Limits kShm{
    .context = {256 * kKib, 320 * kKib, 16 * kKib},
    .lane = {2200 * kKib, 96 * kKib, 1300 * kKib},
    .first_use = {192 * kKib, 224 * kKib, 8 * kKib},
    .peer = {32 * kKib, 48 * kKib, 8 * kKib},
    .first_long = {16 * kKib, 64 * kKib, 2112 * kKib},
    .receive = {976, 976, 0},
    .unexpected = {1304, 1364, 0},
    .long_send = {100, 200, 32},  // its row in the catalogue
};
/// Of libfabric 1.17 with FI_OFI_RXM_MSG_RX_SIZE=64.
constexpr Limits kTcp{
    .context = {512 * kKib, 1 * kMib, 0},
    .lane = {34 * kMib, 20 * kMib, 0},
    .first_use = {20 * kMib, 20 * kMib, 0},
    .peer = {352 * kKib, 352 * kKib, 0},
    .first_long = {16 * kKib, 64 * kKib, 0},
    .receive = {976, 976, 0},
    .unexpected = {1304, 1464, 0},
    .long_send = {700, 800, 0},
};

/// Without the memory of the kernel and the device.
constexpr Limits kVerbs{
    .context = {384 * kKib, 1 * kMib, 0},
    .lane = {2200 * kKib, 2200 * kKib, 0},
    .first_use = {256 * kKib, 256 * kKib, 0},
    .peer = {112 * kKib, 112 * kKib, 0},
    .first_long = {16 * kKib, 64 * kKib, 0},
    .receive = {976, 976, 0},
    .unexpected = {1304, 1364, 0},
    .long_send = {160, 300, 0},
};
const Limits& limits_of(std::string_view provider) {
  if (provider == "shm") return kShm;
  if (provider == "tcp") return kTcp;
  if (provider == "verbs") return kVerbs;
  fail(3, "shm, tcp or verbs");
}

std::string text(const Bytes& bytes) {
  return "heap " + std::to_string(bytes.heap) + ", touched " + std::to_string(bytes.touched) +
         ", shared " + std::to_string(bytes.shared);
}
void expect(const Bytes& bytes, const Bytes& most, const std::string& what, bool is_told) {
  const std::string line = what + ": " + text(bytes);
  if (!bytes.is_within(most)) fail(1, line + "; at most: " + text(most));
  if (is_told) std::printf("footprint: %s\n", line.c_str());
}
/// While no process of the job does anything.
Bytes rest(Context& context) {
  meet(context);
  const Bytes bytes = Bytes::now();
  meet(context);
  return bytes;
}
/// Prints the share of each of `count` in all memory since `before`, and checks it.
Bytes account(Context& context, const char* what, std::int64_t count, const Bytes& before,
              const Bytes& most) {
  const Bytes now = rest(context);
  expect((now - before) / count, most, what, context.rank() == 0);
  return now;
}

/// Messages between two processes that do the same.
class Exchange {
 public:
  static constexpr std::size_t kEach = 1000, kShortBytes = 64, kLongBytes = 9000;

  Exchange(Context& context, Vci& vci)
      : context_(context),
        vci_(vci),
        told_(got(CompletionQueue::create(context.completions()), "queue")),
        from_(kEach * kLongBytes),
        to_(kEach * kLongBytes) {
    options_.completion = &told_;
    options_.signals_always = options_.queues = true;
    std::memset(from_.data(), 1, from_.size());
    std::memset(to_.data(), 2, to_.size());
  }
  void receive(int from, std::uint32_t tag, std::size_t place, std::size_t bytes) {
    (void)got(post_recv(vci_, from, tag, &to_[place * bytes], bytes, options_), "post_recv");
  }
  void send(int to, std::uint32_t tag, std::size_t place, std::size_t bytes) {
    (void)got(post_send(vci_, to, tag, &from_[place * bytes], bytes, options_), "post_send");
  }
  void wait(std::size_t ends) {
    for (; ends != 0; --ends) {
      std::optional<Completion> end;
      wait_for(vci_, "an end", [&] { return (end = told_.pop()).has_value(); });
      if (!end->status.ok()) fail(1, errc_name(end->status.code()));
    }
  }
  void meet_one(int peer) {
    receive(peer, kWord, 0, kShortBytes);
    meet(context_);  // it is there when the word comes
    send(peer, kWord, 0, kShortBytes);
    wait(2);
  }
  void exchange_long(int peer) {
    receive(peer, kLong, 0, kLongBytes);
    meet(context_);  // no process gets an unexpected message: that has a row of its own
    send(peer, kLong, 0, kLongBytes);
    wait(2);
  }
  /// kEach wait, in one way after the other: tell(what, before, most) prints the share of each.
  template <class Tell>
  void round(int peer, const Limits& limits, Tell&& tell) {
    Bytes before = rest(context_);
    for (std::size_t i = 0; i < kEach; ++i) receive(peer, kExpected, i, kShortBytes);
    tell("a receive that waits", before, limits.receive);
    for (std::size_t i = 0; i < kEach; ++i) send(peer, kExpected, i, kShortBytes);
    wait(2 * kEach);

    before = rest(context_);
    for (std::size_t i = 0; i < kEach; ++i) send(peer, kUnexpected, i, kShortBytes);
    wait(kEach);
    meet_one(peer);  // so all have come
    tell("a message that nobody has received", before, limits.unexpected);
    for (std::size_t i = 0; i < kEach; ++i) receive(peer, kUnexpected, i, kShortBytes);
    wait(kEach);

    std::memset(to_.data(), 2, to_.size());
    before = rest(context_);
    for (std::size_t i = 0; i < kEach; ++i) send(peer, kLong, i, kLongBytes);
    meet_one(peer);
    tell("a long message on its way", before, limits.long_send);
    for (std::size_t i = 0; i < kEach; ++i) receive(peer, kLong, i, kLongBytes);
    wait(2 * kEach);
    if (to_ != from_) fail(1, "payload");
  }

 private:
  enum : std::uint32_t { kWord, kExpected, kUnexpected, kLong };

  Context& context_;
  Vci& vci_;
  CompletionQueue told_;
  PostOptions options_;
  std::vector<std::byte> from_, to_;
};

void use(const Limits& limits, std::size_t lanes, int rounds) {
  const Bytes at_first = Bytes::now();
  {
    const auto made = begin();
    Context& context = *made;
    Bytes before = account(context, "a context", 1, at_first, limits.context);

    std::vector<Vci> all;
    all.reserve(lanes);
    for (std::size_t i = 0; i < lanes; ++i) all.push_back(got(context.create_vci(), "create_vci"));
    before = account(context, "a lane", static_cast<std::int64_t>(lanes), before, limits.lane);
    for (int i = 0; i < 100; ++i) {
      all.pop_back();
      all.push_back(got(context.create_vci(), "create_vci"));
    }
    (void)account(context, "a lane that is used again", 1, before, kNothing);

    Exchange exchange(context, all[0]);
    before = rest(context);
    exchange.meet_one(context.rank() ^ 1);
    before = account(context, "a lane's first message", 1, before, limits.first_use);
    for (const int next : {2, 3}) exchange.meet_one(context.rank() ^ next);
    before = account(context, "a peer", 2, before, limits.peer);
    exchange.exchange_long(context.rank() ^ 1);
    (void)account(context, "a lane's first long message", 1, before, limits.first_long);

    const auto round = [&](auto&& tell) { exchange.round(context.rank() ^ 1, limits, tell); };
    const auto tell_nothing = [&](const char*, const Bytes&, const Bytes&) { meet(context); };
    round([&](const char* what, const Bytes& since, const Bytes& most) {
      (void)account(context, what, Exchange::kEach, since, most);
    });
    round(tell_nothing);
    before = rest(context);
    for (int i = 0; i < rounds; ++i) round(tell_nothing);
    (void)account(context, "rounds more", 1, before, kNoneLeft);
  }
  expect(Bytes::now() - at_first, kNoneLeft, "in the end", false);
}

/// Of a job of many; no process but this one is there.
void use_nothing(const Limits& limits) {
  const Bytes at_first = Bytes::now();
  const auto context = begin();
  expect(Bytes::now() - at_first, limits.context,
         "a context, one of " + std::to_string(context->size()), true);
}

using Microseconds = std::chrono::duration<double, std::micro>;
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}
template <class Call>
double time_of(Call&& call) {
  const auto begun = Clock::now();
  call();
  return Microseconds(Clock::now() - begun).count();
}

std::unique_ptr<Context> begin_alone() {
  std::string problem;
  auto context = Context::create({0, 1,
                                  [](const void* own, std::size_t bytes, void* all) {
                                    std::memcpy(all, own, bytes);
                                    return true;
                                  }},
                                 &problem);
  if (!context) fail(3, problem);
  return std::move(context).value();
}

/// The longest of `medians` takes no more than some times as long as the shortest.
void expect_flat(const char* what, std::span<const double> medians) {
  constexpr double kTimes = 3;
  std::printf("footprint: %s:", what);
  for (const double each : medians) std::printf(" %.0f", each);
  std::printf(" us\n");
  const auto [least, most] = std::ranges::minmax(medians);
  if (most > kTimes * least) fail(1, std::string(what) + ": not flat");
}

void time_all() {
  static constexpr std::array kLanes{1, 8, 64};
  constexpr int kTurns = 15;
  std::array<std::vector<double>, kLanes.size()> begins, firsts, ends;
  for (int turn = 0; turn < kTurns; ++turn)
    for (std::size_t i = 0; i < kLanes.size(); ++i) {
      ::setenv("LARKLANE_VCI_COUNT_MAX", std::to_string(kLanes[i]).c_str(), 1);
      std::unique_ptr<Context> context;
      begins[i].push_back(time_of([&] { context = begin_alone(); }));
      std::optional<Vci> vci;
      firsts[i].push_back(time_of([&] { vci = got(context->create_vci(), "create_vci"); }));
      vci.reset();
      ends[i].push_back(time_of([&] { context.reset(); }));
    }
  const auto medians = [](const auto& all) {
    std::array<double, kLanes.size()> values;
    std::ranges::transform(all, values.begin(), median);
    return values;
  };
  expect_flat("to begin, where 1, 8, 64 lanes may be", medians(begins));
  expect_flat("to make one of 1, 8, 64 lanes", medians(firsts));
  expect_flat("to end with one of 1, 8, 64 lanes", medians(ends));

  // Thirds: a lane may get its memory from malloc's blocks for the two before it.
  constexpr int kThird = 21, kJobs = 5;
  std::array<std::vector<double>, 3> thirds;
  for (int job = 0; job < kJobs; ++job) {
    ::malloc_trim(0);  // as in a process that begins
    const auto context = begin_alone();
    std::vector<Vci> lanes;
    for (auto& times : thirds)
      times.push_back(time_of([&] {
                        for (int i = 0; i < kThird; ++i)
                          lanes.push_back(got(context->create_vci(), "create_vci"));
                      }) /
                      kThird);
    lanes.clear();
  }
  expect_flat("to make one of the first, second, third 21", medians(thirds));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc < 2 ? "" : argv[1];
  if (what == "times" && argc == 2) return time_all(), 0;
  if (argc < 3) fail(3, kUsage);
  ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);  // a touched page is one small page
  const Limits& limits = limits_of(argv[2]);
  if (what == "unused") return use_nothing(limits), 0;
  if (what != "used" || argc != 5) fail(3, kUsage);
  use(limits, std::strtoul(argv[3], nullptr, 10),
      static_cast<int>(std::strtol(argv[4], nullptr, 10)));
  return 0;
}
