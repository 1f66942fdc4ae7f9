// Rank 0 sends to rank 1, which takes nothing for a while: rank 0 gets `retry`, and neither's
// memory grows; then all comes.
//
//   pressure asleep|unreceived SECONDS    asleep: rank 1 makes no progress; unreceived: it does,
//   but posts no receive, and frees no active message
//
// Exit status: of program.hpp; 1: memory grows, a post is not refused, or a message is wrong.

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <set>
#include <string_view>
#include <vector>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

constexpr std::uint32_t kPidTag = 100, kCountsTag = 101;
constexpr std::size_t kShortWords = 100, kLongWords = 1100, kStarts = 1u << 16;
constexpr std::uint64_t kMore = 2000;  // of each flow, when rank 1 takes again
constexpr std::uint64_t kUnfreed = 1000;
constexpr std::int64_t kGrowthMaxKib = 1024;
/// 2 x 4,096 of 2.7 KiB, 65,536 of 0.7, kUnfreed of 10; as much again is left to libfabric.
constexpr std::int64_t kKeptMaxKib = 200 * 1024;

/// Each flow has a lane of its own.
enum Kind : std::size_t { sends, long_sends, messages, long_messages, kKinds };
bool is_send(Kind kind) { return kind == sends || kind == long_sends; }
std::size_t words_of(Kind kind) {
  return kind == sends || kind == messages ? kShortWords : kLongWords;
}
/// Of an active message: those that are fetched may come in any order.
std::uint32_t tag_of(Kind kind, std::uint64_t which) {
  return static_cast<std::uint32_t>(which * kKinds + kind);
}
/// All payload lies in here; the place where it begins is the message's number.
const std::vector<std::uint64_t>& payload() {
  static const std::vector<std::uint64_t> words = [] {
    std::vector<std::uint64_t> made(kStarts + kLongWords);
    fill(made, 0);
    return made;
  }();
  return words;
}
void check(Kind kind, std::uint64_t which, const void* bytes, std::size_t count) {
  const std::size_t wanted = words_of(kind) * sizeof(std::uint64_t);
  if (count != wanted || std::memcmp(bytes, &payload()[which % kStarts], wanted) != 0)
    fail(1, "message " + std::to_string(which) + " of kind " + std::to_string(kind));
}

std::int64_t memory_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::int64_t kib = 0; word == "VmRSS:" && status >> kib) return kib;
  fail(3, "no VmRSS");
}
void check_growth(std::int64_t before_kib) {
  const std::int64_t growth = memory_kib() - before_kib;
  if (growth > kGrowthMaxKib) fail(1, std::to_string(growth) + " KiB more memory");
}

std::vector<Vci> make_lanes(Context& context) {
  std::vector<Vci> lanes;
  for (std::size_t kind = 0; kind < kKinds; ++kind)
    lanes.push_back(got(context.create_vci(), "create_vci"));
  return lanes;
}

struct Flow {
  std::uint64_t accepted = 0, refused = 0;
};

class Sender {
 public:
  Sender(Context& context, RemoteCompletion there, bool is_asleep)
      : is_asleep_(is_asleep),
        lanes_(make_lanes(context)),
        there_(there),
        over_(got(Counter::create(context.completions()), "counter")) {}

  /// A post of each kind. @return whether one was accepted
  bool turn() {
    bool is_accepted = false;
    for (std::size_t kind = 0; kind < kKinds; ++kind)
      if (!may_end(Kind{kind}) || flows_[kind].accepted < kUnfreed) is_accepted |= post(Kind{kind});
    return is_accepted;
  }
  /// The peer allocates memory for a long active message: nothing but their number bounds that.
  bool may_end(Kind kind) const { return kind == long_messages && !is_asleep_; }
  bool post(Kind kind) {
    Flow& flow = flows_[kind];
    const std::uint64_t* const from = &payload()[flow.accepted % kStarts];
    const std::size_t bytes = words_of(kind) * sizeof *from;
    PostOptions options;
    options.completion = &over_;
    options.queues = kind == long_messages;
    Vci& lane = lanes_[kind];
    const Post post = got(
        is_send(kind) ? post_send(lane, 1, kind, from, bytes, options)
                      : post_am(lane, 1, there_, tag_of(kind, flow.accepted), from, bytes, options),
        "a post");
    (void)lane.progress();
    if (post == Post::posted) ++posted_;
    ++(post == Post::retry ? flow.refused : flow.accepted);
    return post != Post::retry;
  }
  void refuse_none() {
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      flows_[kind].refused = 0;
      reasons_before_[kind] = all_reasons(Kind{kind});
    }
  }
  /// Since then.
  std::uint64_t reasons(Kind kind) const { return all_reasons(kind) - reasons_before_[kind]; }
  const std::array<Flow, kKinds>& flows() const { return flows_; }
  Vci& lane() { return lanes_[0]; }

  void end() {
    for (std::size_t kind = 0; kind < kKinds; ++kind)
      for (std::uint64_t more = 0; more < kMore; ++more)
        wait_until(
            "room for a post", [&] { return post(Kind{kind}); }, [] { ::sched_yield(); });
    std::array<std::uint64_t, kKinds> counts;
    for (std::size_t kind = 0; kind < kKinds; ++kind) counts[kind] = flows_[kind].accepted;
    (void)posted(lane(), "the counts",
                 [&] { return post_send(lane(), 1, kCountsTag, counts.data(), sizeof counts); });
    wait_for(lane(), "the end of all posts", [&] { return over_.completed() == posted_; });
    if (over_.failed() != 0) fail(1, "a post has failed");
  }

 private:
  std::uint64_t all_reasons(Kind kind) const {
    const RetryCounts why = lanes_[kind].retry_counts();
    return why.not_connected + why.no_room + why.no_packet + why.no_operation + why.no_memory +
           why.behind;
  }

  const bool is_asleep_;
  std::vector<Vci> lanes_;
  const RemoteCompletion there_;
  Counter over_;
  std::array<Flow, kKinds> flows_{};
  std::array<std::uint64_t, kKinds> reasons_before_{};
  std::uint64_t posted_ = 0;
};

void send_all(Context& context, RemoteCompletion there, bool is_asleep,
              std::chrono::seconds patience) {
  Sender sender(context, there, is_asleep);
  pid_t pid = 0;
  CompletionQueue told = got(CompletionQueue::create(context.completions()), "queue");
  PostOptions options;
  options.completion = &told;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    (void)got(post_recv(sender.lane(), 1, kPidTag, &pid, sizeof pid, options), "post_recv");
    wait_for(sender.lane(), "a process number", [&] { return told.pop().has_value(); });
  }
  meet(context);

  // Until all is full.
  auto last = Clock::now();
  for (const auto begun = last; Clock::now() - last < std::chrono::milliseconds(300);) {
    if (sender.turn()) last = Clock::now();
    if (last - begun > std::chrono::seconds(120)) fail(1, "no end of posts that are accepted");
  }
  const std::int64_t full_kib = memory_kib();
  sender.refuse_none();
  for (const auto end = Clock::now() + patience; Clock::now() < end;)
    if (!sender.turn()) ::sched_yield();
  check_growth(full_kib);
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    const Flow& flow = sender.flows()[kind];
    if (flow.refused == 0 && !sender.may_end(Kind{kind})) fail(1, "nothing is refused");
    // Of those that the lane keeps each attempt of its own may count, too.
    if (kind != long_messages && sender.reasons(Kind{kind}) < flow.refused)
      fail(1, "something is refused without a reason");
    std::printf("pressure: kind %zu: %llu accepted, %llu refused\n", kind,
                static_cast<unsigned long long>(flow.accepted),
                static_cast<unsigned long long>(flow.refused));
  }
  std::printf("pressure: sent: %lld KiB\n", static_cast<long long>(full_kib));
  if (::kill(pid, SIGUSR1) != 0) fail(3, "kill");
  sender.end();
}

/// Until rank 0 signals it.
void take_nothing(std::vector<Vci>& lanes, bool is_asleep) {
  const sigset_t wake = go_on_signal();
  const timespec at_once{};
  if (is_asleep) {
    if (::sigwaitinfo(&wake, nullptr) != SIGUSR1) fail(3, "sigwaitinfo");
    return;
  }
  constexpr std::size_t kTenths = 10;
  std::vector<std::int64_t> each_tenth_kib;
  auto next = Clock::now();
  while (::sigtimedwait(&wake, nullptr, &at_once) != SIGUSR1) {
    for (Vci& lane : lanes) (void)lane.progress();
    ::sched_yield();
    if (Clock::now() < next) continue;
    next += std::chrono::milliseconds(100);
    each_tenth_kib.push_back(memory_kib());
  }
  // Rank 0 was patient for more than a second after all was full.
  if (each_tenth_kib.size() <= kTenths) fail(3, "less than a second");
  check_growth(*(each_tenth_kib.end() - 1 - kTenths));
  const std::int64_t kept_kib = each_tenth_kib.back() - each_tenth_kib.front();
  std::printf("pressure: unreceived: %lld KiB\n", static_cast<long long>(kept_kib));
  if (kept_kib > kKeptMaxKib) fail(1, "more is kept than may be");
}

class Receiver {
 public:
  Receiver(Context& context, std::vector<Vci>& lanes, CompletionQueue& mail)
      : lanes_(lanes),
        mail_(mail),
        told_(got(CompletionQueue::create(context.completions()), "queue")),
        places_(2 * kPlaces) {}

  void take_all() {
    receive(kCountsTag, counts_.data(), sizeof counts_, nullptr);
    for (std::size_t i = 0; i < places_.size(); ++i)
      receive(i % 2 == 0 ? sends : long_sends, places_[i]);
    wait_until(
        "all that was sent", [&] { return is_counted_ && taken_ == counts_; },
        [&] {
          for (Vci& lane : lanes_) (void)lane.progress();
          while (const auto completion = told_.pop()) take_send(*completion);
          while (const auto completion = mail_.pop()) take_message(*completion);
        });
  }

 private:
  static constexpr std::size_t kPlaces = 32;
  struct Place {
    std::uint64_t which;
    std::array<std::uint64_t, kLongWords> words;
  };

  void receive(std::uint32_t tag, void* to, std::size_t bytes, Place* place) {
    PostOptions options;
    options.completion = &told_;
    options.user_context = place;
    (void)got(post_recv(lanes_[0], 0, tag, to, bytes, options), "post_recv");
  }
  /// Messages get their receives in the order of both.
  void receive(Kind kind, Place& place) {
    place.which = posted_[kind]++;
    receive(kind, place.words.data(), sizeof place.words, &place);
  }
  void take_send(const Completion& completion) {
    if (!completion.status.ok()) fail(1, "a receive has failed");
    if (completion.tag == kCountsTag) {
      is_counted_ = true;
      return;
    }
    const Kind kind{completion.tag};
    Place& place = *static_cast<Place*>(completion.user_context);
    check(kind, place.which, completion.buffer, completion.bytes);
    ++taken_[kind];
    receive(kind, place);
  }
  void take_message(const Completion& completion) {
    if (!completion.status.ok()) fail(1, "an active message has failed");
    const Kind kind{completion.tag % kKinds};
    const std::uint64_t which = completion.tag / kKinds;
    check(kind, which, completion.buffer, completion.bytes);
    if (!seen_[kind].insert(which).second) fail(1, "an active message comes twice");
    ++taken_[kind];
    free_buffer(completion.buffer);
  }

  std::vector<Vci>& lanes_;
  CompletionQueue& mail_;
  CompletionQueue told_;
  std::vector<Place> places_;
  std::array<std::set<std::uint64_t>, kKinds> seen_;
  std::array<std::uint64_t, kKinds> posted_{}, taken_{}, counts_{};
  bool is_counted_ = false;
};

void receive_all(Context& context, CompletionQueue& mail, bool is_asleep) {
  std::vector<Vci> lanes = make_lanes(context);
  const pid_t pid = ::getpid();
  // Over each lane, so that all are connected: a sleeping process accepts no connection.
  for (Vci& lane : lanes)
    (void)posted(lane, "room for a process number",
                 [&] { return post_send(lane, 0, kPidTag, &pid, sizeof pid); });
  meet(context);
  take_nothing(lanes, is_asleep);
  Receiver(context, lanes, mail).take_all();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) fail(3, "pressure asleep|unreceived SECONDS");
  const sigset_t wake = go_on_signal();
  ::pthread_sigmask(SIG_BLOCK, &wake, nullptr);  // of the library's threads, too
  auto context = begin();
  {
    CompletionQueue mail = got(CompletionQueue::create(context->completions()), "queue");
    const RemoteCompletion there = got(mail.register_remote(), "register_remote");
    const bool is_asleep = std::string_view(argv[1]) == "asleep";
    if (context->rank() == 0)
      send_all(*context, there, is_asleep, std::chrono::seconds(std::strtol(argv[2], nullptr, 10)));
    else
      receive_all(*context, mail, is_asleep);
    meet(*context);
  }
  return 0;
}
