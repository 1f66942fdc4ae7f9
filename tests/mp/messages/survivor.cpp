// Rank 1 is killed by SIGKILL while all kinds of operations to it are posted, and long messages
// from it. Each of rank 0's ends, once, with an error where it is not complete, and then nothing
// more is written into its memory; later posts are refused. Rank 2 does not notice, whether
// messages to it are posted before rank 0 detects that end, or later.
//
//   survivor running|stopped|silent SECONDS
//
//   stopped   when they are posted rank 1 does not run any more
//   silent    ... it is not in the library any more, and sends nothing
//   SECONDS   from the kill to the last end, at most
//
// Exit status: of program.hpp; 1: an operation does not end in time, ends twice or without an
// error, or a payload is wrong.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

constexpr std::size_t kLongWords = 4000, kShortWords = 20, kEach = 300;
constexpr std::size_t kHugeWords = 1u << 18, kHuge = 12;
constexpr std::uint32_t kIntroduction = 50, kTag = 1, kNever = 2, kHugeTag = 3;
constexpr std::uint64_t kMine = 0x6d69'6e65;

struct Introduction {
  pid_t pid;
  RemoteRegion region;
};

enum Kind : std::uint32_t { send, message, put, kKinds };

/// The memory and lanes of a process.
class Place {
 public:
  explicit Place(Context& context)
      : rank_(context.rank()),
        vci_(got(context.create_vci(), "create_vci")),
        told_(got(CompletionQueue::create(context.completions()), "queue")),
        told_apart_(got(CompletionQueue::create(context.completions()), "queue")),
        mail_(got(CompletionQueue::create(context.completions()), "queue")),
        there_(got(mail_.register_remote(), "register_remote")),
        exposed_(kLongWords),
        region_(got(context.register_region(exposed_.data(), kLongWords * sizeof exposed_[0]),
                    "register_region")) {}

  PostOptions telling(std::uint64_t which) {
    PostOptions options;
    options.completion = &told_;
    options.user_context = reinterpret_cast<void*>(which);
    options.signals_always = options.queues = true;
    return options;
  }
  Result<Post> post(Kind kind, const Introduction& to, int rank,
                    std::span<const std::uint64_t> words, const PostOptions& options) {
    switch (kind) {
      case send:
        return post_send(vci_, rank, kTag, words.data(), words.size_bytes(), options);
      case message:
        return post_am(vci_, rank, there_, kTag, words.data(), words.size_bytes(), options);
      default:
        return post_put(vci_, to.region, 0, words.data(), words.size_bytes(), options, there_,
                        kTag);
    }
  }
  Completion next_told() { return next(told_, "a completion"); }
  Completion next_mail() { return next(mail_, "a signal"); }

  void introduce(int to) {
    const Introduction mine{::getpid(), region_.remote()};
    (void)got(post_send(vci_, to, kIntroduction, &mine, sizeof mine, telling(0)), "post_send");
    (void)next_told();
  }
  Introduction introduced(int by) {
    Introduction theirs{};
    (void)got(post_recv(vci_, by, kIntroduction, &theirs, sizeof theirs, telling(0)), "post_recv");
    (void)next_told();
    return theirs;
  }
  /// One of each kind, long and short, arrives intact, even if other operations end meanwhile.
  void send_some(const Introduction& to, int rank) {
    std::vector<std::uint64_t> words(kLongWords);
    PostOptions options = telling(0);
    options.completion = &told_apart_;
    for (const std::size_t count : {kShortWords, kLongWords})
      for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
        fill(words, number(rank_, Kind{kind}, count));
        (void)got(post(Kind{kind}, to, rank, std::span(words).first(count), options), "a post");
        const Status status = next(told_apart_, "a completion").status;
        if (!status.ok())
          fail(1, std::string("an operation has failed: ") + errc_name(status.code()));
      }
  }
  void receive_some(int from) {
    std::vector<std::uint64_t> words(kLongWords);
    for (const std::size_t count : {kShortWords, kLongWords})
      for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
        if (kind == send)
          (void)got(
              post_recv(vci_, from, kTag, words.data(), kLongWords * sizeof words[0], telling(0)),
              "post_recv");
        const Completion completion = kind == send ? next_told() : next_mail();
        const void* const bytes = kind == put ? exposed_.data() : completion.buffer;
        std::vector<std::uint64_t> came(count);
        if (!completion.status.ok() || completion.rank != from ||
            completion.bytes != count * sizeof came[0])
          fail(1, "what came is not what was sent");
        std::memcpy(came.data(), bytes, completion.bytes);
        if (!is_filled(came, number(from, Kind{kind}, count))) fail(1, "payload");
        if (kind == message) free_buffer(completion.buffer);
      }
  }
  [[noreturn]] void send_huge(int to) {
    std::vector<std::uint64_t> words(kHugeWords);
    fill(words, kHugeTag);
    for (std::size_t i = 0; i < kHuge; ++i)
      (void)got(
          post_send(vci_, to, kHugeTag, words.data(), words.size() * sizeof words[0], telling(0)),
          "post_send");
    while (true)
      if (vci_.progress() == 0) ::sched_yield();
  }
  [[noreturn]] void fall_silent() {
    introduce(0);
    while (true) ::pause();
  }
  Vci& vci() { return vci_; }
  CompletionQueue& told() { return told_; }

 private:
  static std::uint64_t number(int from, Kind kind, std::size_t count) {
    return count << 16 | static_cast<std::uint64_t>(from) << 8 | kind;
  }
  Completion next(CompletionQueue& queue, const char* what) {
    std::optional<Completion> completion;
    wait_for(vci_, what, [&] { return (completion = queue.pop()).has_value(); });
    return *completion;
  }

  const int rank_;
  Vci vci_;
  CompletionQueue told_, told_apart_, mail_;
  const RemoteCompletion there_;
  std::vector<std::uint64_t> exposed_;
  Region region_;
};

/// Any status of the peer's end. Over verbs the kernel may take a dying process's memory before its
/// queue pairs: then reads and writes of it are refused.
bool is_end_of_peer(Status status) {
  static const char* const provider = std::getenv("LARKLANE_MESSAGE_PROVIDER");
  static const bool is_verbs =
      provider != nullptr && std::string_view(provider).starts_with("verbs");
  return status.code() == Errc::kPeerDown || (is_verbs && status.code() == Errc::kTransfer);
}

/// Operations that have to end once each.
class UnderWay {
 public:
  explicit UnderWay(Place& place) : place_(place) {}

  template <class Call>
  void add(bool must_fail, Call&& call) {
    ends_.push_back({must_fail, false, {}});
    const Post post = got(call(place_.telling(ends_.size() - 1)), "a post");
    if (post != Post::posted) fail(1, "a post is not posted");
  }
  void add_huge() {
    ends_.push_back({false, false, std::vector<std::uint64_t>(kHugeWords)});
    std::vector<std::uint64_t>& into = ends_.back().huge;
    (void)got(post_recv(place_.vci(), 1, kHugeTag, into.data(), into.size() * sizeof into[0],
                        place_.telling(ends_.size() - 1)),
              "post_recv");
  }
  /// Is the memory of failed operations still as its owner has filled it?
  void expect_untouched() const {
    for (const End& end : ends_)
      if (!end.huge.empty() && end.has_failed && !std::ranges::all_of(end.huge, is_mine))
        fail(1, "memory of an operation that is over was written");
  }
  /// @return operations that have failed
  std::size_t end() {
    std::size_t failed = 0;
    for (std::size_t ended = 0; ended < ends_.size(); ++ended) {
      const Completion completion = place_.next_told();
      End& end = ends_[reinterpret_cast<std::uintptr_t>(completion.user_context)];
      if (std::exchange(end.is_there, true)) fail(1, "an operation ends twice");
      if (completion.status.ok() ? end.must_fail : !is_end_of_peer(completion.status))
        fail(1, std::string("an operation ends with ") + errc_name(completion.status.code()));
      if (completion.rank != 1) fail(1, "a completion of another rank");
      end.has_failed = !completion.status.ok();
      failed += end.has_failed;
      if (end.has_failed)
        std::ranges::fill(end.huge, kMine);
      else if (!end.huge.empty() && !is_filled(end.huge, kHugeTag))
        fail(1, "payload of a long message");
    }
    return failed;
  }
  std::size_t count() const { return ends_.size(); }

 private:
  struct End {
    bool must_fail, is_there;
    std::vector<std::uint64_t> huge;  // its receive buffer, if that is watched
    bool has_failed = false;
  };
  static bool is_mine(std::uint64_t word) { return word == kMine; }
  Place& place_;
  std::deque<End> ends_;
};

enum class How : std::uint8_t { running, stopped, silent };

How how_of(std::string_view word) {
  return word == "stopped" ? How::stopped : word == "silent" ? How::silent : How::running;
}

void wait_for_state(pid_t pid, std::string_view wanted) {
  wait_until(
      "rank 1's standing still",
      [&] {
        std::string number, name, state;
        std::ifstream("/proc/" + std::to_string(pid) + "/stat") >> number >> name >> state;
        return state == wanted;
      },
      [] { ::sched_yield(); });
}

void wait_until_still(Place& place, pid_t pid, How how) {
  switch (how) {
    case How::running:
      return;
    case How::stopped:
      if (::kill(pid, SIGSTOP) != 0) fail(3, "kill");
      return wait_for_state(pid, "T");
    case How::silent:
      (void)place.introduced(1);  // and does nothing else any more
      return wait_for_state(pid, "S");
  }
}

void survive(Place& place, How how, double seconds_max) {
  const Introduction peer = place.introduced(1), other = place.introduced(2);
  for (const int rank : {1, 2}) place.send_some(rank == 1 ? peer : other, rank);
  (void)place.introduced(2);  // and has checked the puts
  UnderWay operations(place);
  for (std::size_t i = 0; i < kHuge; ++i) operations.add_huge();
  wait_until_still(place, peer.pid, how);
  const bool is_still = how != How::running;

  std::vector<std::uint64_t> words(kLongWords), to(kLongWords);
  operations.add(true, [&](const PostOptions& options) {
    return post_recv(place.vci(), 1, kNever, to.data(), sizeof to[0], options);
  });
  operations.add(is_still, [&](const PostOptions& options) {
    return post_fetch_add(place.vci(), peer.region, 0, 1, &to[0], options);
  });
  for (std::size_t i = 0; i < kEach; ++i)
    for (std::uint32_t kind = 0; kind < kKinds; ++kind)
      for (const std::size_t count : {kShortWords, kLongWords})
        operations.add(
            is_still && count == kLongWords && kind != put, [&](const PostOptions& options) {
              return place.post(Kind{kind}, peer, 1, std::span(words).first(count), options);
            });

  const auto killed = Clock::now();
  if (::kill(peer.pid, SIGKILL) != 0) fail(3, "kill");
  place.send_some(other, 2);
  const std::size_t failed = operations.end();
  for (std::uint32_t kind = 0; kind < kKinds; ++kind)
    wait_for(place.vci(), "the refusal of a post", [&] {
      return is_end_of_peer(
          place.post(Kind{kind}, peer, 1, std::span(words).first(kShortWords), {}).error());
    });
  const std::chrono::duration<double> seconds = Clock::now() - killed;
  std::printf("survivor: %zu of %zu operations have failed, the last after %.3f s\n", failed,
              operations.count(), seconds.count());
  if (seconds.count() > seconds_max) fail(1, "later than it has to be");
  if (place.told().pop()) fail(1, "an operation ends twice");
  (void)place.introduced(2);
  place.send_some(other, 2);
  operations.expect_untouched();
}

int run(How how, double seconds_max) {
  auto context = begin();
  Place place(*context);
  switch (context->rank()) {
    case 0:
      survive(place, how, seconds_max);
      break;
    case 1:
      place.introduce(0);
      place.receive_some(0);
      if (how == How::silent) place.fall_silent();
      place.send_huge(0);
    default:
      for (int times = 0; times < 3; ++times) {
        place.introduce(0);
        place.receive_some(0);
      }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) fail(3, "survivor running|stopped|silent SECONDS");
  // The launcher would end all ranks when one is killed, so the victim is a child of the rank.
  const pid_t child = ::fork();
  if (child == 0) return run(how_of(argv[1]), std::strtod(argv[2], nullptr));
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) fail(3, "no child");
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const char* const rank = std::getenv("LARKLANE_RANK");
  const bool is_meant = WTERMSIG(status) == SIGKILL && rank != nullptr && rank == std::string("1");
  if (!is_meant) fail(1, std::string("ended by signal ") + std::to_string(WTERMSIG(status)));
  return 0;
}
