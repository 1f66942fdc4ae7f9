// All threads of all processes but rank 0 send to one thread of rank 0, as fast as they can, each
// over a place of its own: none starves.
//
//   incast THREADS WINDOW SHARE    of WINDOW messages, counted from the first message of every
//   thread on, each has at least 1/SHARE of an equal share
//
// Exit status: of program.hpp; 1: a thread has less, or a message is wrong or out of order.

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

constexpr std::uint32_t kStop = 1000;  // and a thread's number: tags
constexpr std::size_t kWords = 4;
using Words = std::array<std::uint64_t, kWords>;

std::uint64_t number_of(std::uint64_t sender, std::uint64_t which) { return sender << 40 | which; }

void send_until_stopped(Context& context, std::uint32_t thread, std::uint32_t threads) {
  Vci vci = got(context.create_vci(), "create_vci");
  Synchronizer stopped = got(Synchronizer::create(context.completions(), 1), "synchronizer");
  PostOptions options;
  options.completion = &stopped;
  if (got(post_recv(vci, 0, kStop + thread, nullptr, 0, options), "post_recv") != Post::posted)
    fail(1, "a receive is not posted");
  const std::uint64_t self = static_cast<std::uint64_t>(context.rank() - 1) * threads + thread;
  std::uint64_t sent = 0;
  Words words;
  const auto post = [&](bool is_last) {
    words[0] = is_last ? ~std::uint64_t{0} : sent;
    fill(std::span(words).subspan(1), number_of(self, sent));
    return post_send(vci, 0, static_cast<std::uint32_t>(self), words.data(), sizeof words, {},
                     Match::none);
  };
  while (!stopped.test()) {
    // The library does not choose the threads on a core: each has short turns.
    for (int turn = 0; turn < 64 && got(post(false), "post_send") != Post::retry; ++turn) ++sent;
    (void)vci.progress();
    ::sched_yield();
  }
  (void)posted(vci, "the last send", [&] { return post(true); });
}

class Sink {
 public:
  Sink(Context& context, std::size_t senders)
      : vci_(got(context.create_vci(), "create_vci")),
        told_(got(CompletionQueue::create(context.completions()), "queue")),
        heard_(senders),
        is_over_(senders) {
    options_.completion = &told_;
    for (Words& words : places_) receive(words);
  }

  /// Until `is_so`: messages are counted, and their places are free for the next.
  template <class IsSo>
  void hear(const char* what, IsSo&& is_so) {
    wait_for(vci_, what, [&] {
      while (const auto completion = told_.pop()) take(*completion);
      return is_so();
    });
  }
  std::uint64_t all() const { return all_; }
  const std::vector<std::uint64_t>& heard() const { return heard_; }
  bool are_over() const {
    return std::ranges::all_of(is_over_, [](bool is) { return is; });
  }

  void stop(int ranks, std::uint32_t threads) {
    for (int rank = 1; rank < ranks; ++rank)
      for (std::uint32_t thread = 0; thread < threads; ++thread)
        (void)posted(vci_, "a stop",
                     [&] { return post_send(vci_, rank, kStop + thread, nullptr, 0); });
  }

 private:
  void receive(Words& words) {
    options_.user_context = &words;
    if (got(post_recv(vci_, 0, 0, words.data(), sizeof words, options_, nullptr, Match::none),
            "post_recv") != Post::posted)
      fail(1, "a receive is not posted");
  }
  void take(const Completion& completion) {
    Words& words = *static_cast<Words*>(completion.user_context);
    const auto sender = completion.tag;
    if (!completion.status.ok() || completion.bytes != sizeof words || sender >= heard_.size())
      fail(1, "a message makes no sense");
    std::uint64_t& heard = heard_[sender];
    const bool is_last = words[0] == ~std::uint64_t{0};
    if ((!is_last && words[0] != heard) || is_over_[sender] ||
        !is_filled(std::span(words).subspan(1), number_of(sender, heard)))
      fail(1, "message " + std::to_string(heard) + " of thread " + std::to_string(sender));
    is_over_[sender] = is_last;
    ++heard;
    ++all_;
    receive(words);
  }

  Vci vci_;
  CompletionQueue told_;
  PostOptions options_;
  std::array<Words, 64> places_;
  std::vector<std::uint64_t> heard_;
  std::vector<bool> is_over_;
  std::uint64_t all_ = 0;
};

void receive_all(Context& context, std::uint32_t threads, std::uint64_t window, double share) {
  const auto senders = static_cast<std::size_t>(context.size() - 1) * threads;
  Sink sink(context, senders);
  sink.hear("a message of each thread", [&] {
    return std::ranges::all_of(sink.heard(), [](auto heard) { return heard != 0; });
  });
  const std::vector<std::uint64_t> before = sink.heard();
  const std::uint64_t end = sink.all() + window;
  const auto begun = Clock::now();
  sink.hear("the window", [&] { return sink.all() >= end; });
  const std::chrono::duration<double> seconds = Clock::now() - begun;
  std::vector<std::uint64_t> of;
  for (std::size_t i = 0; i < senders; ++i) of.push_back(sink.heard()[i] - before[i]);
  sink.stop(context.size(), threads);
  sink.hear("the last message of each thread", [&] { return sink.are_over(); });
  const auto [least, most] = std::ranges::minmax(of);
  const double equal = static_cast<double>(window) / static_cast<double>(senders);
  std::printf(
      "incast: of %zu threads the least has %.3f, the most %.3f of an equal share, %.0f/s\n",
      senders, static_cast<double>(least) / equal, static_cast<double>(most) / equal,
      static_cast<double>(window) / seconds.count());
  if (static_cast<double>(least) * share < equal) fail(1, "a thread starves");
}

/// A core for the receiver, and the others for the senders: the system gives a sender beside a
/// thread that is never idle only the rest.
void take_core(bool is_receiver) {
  cpu_set_t all, mine;
  if (::sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) return;
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  mine = all;
  if (is_receiver) {
    CPU_ZERO(&mine);
    CPU_SET(first, &mine);
  } else {
    CPU_CLR(first, &mine);
  }
  if (::sched_setaffinity(0, sizeof mine, &mine) != 0) fail(3, "sched_setaffinity");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) fail(3, "incast THREADS WINDOW SHARE");
  const auto threads = static_cast<std::uint32_t>(std::strtoul(argv[1], nullptr, 10));
  auto context = begin();
  take_core(context->rank() == 0);
  if (context->rank() == 0) {
    receive_all(*context, threads, std::strtoull(argv[2], nullptr, 10),
                std::strtod(argv[3], nullptr));
  } else {
    std::vector<std::thread> running;
    for (std::uint32_t thread = 0; thread < threads; ++thread)
      running.emplace_back([&, thread] { send_until_stopped(*context, thread, threads); });
    for (std::thread& thread : running) thread.join();
  }
  meet(*context);
  return 0;
}
