#pragma once
// Messages between two processes over any transport: time of one among many, or half a round trip.
//
//   PROGRAM rate|half [--bytes N] [--window N] [--rounds N] [--way send|am] [--completion KIND]
//           [--threads N] [--lanes own|shared] [--more-follow] [--calls first|second|both]
//
// The receiver checks the number in every message. Last line, of rank 0: {"samples": [ns ...],
// "wrong": N}. Each thread has a partner thread in the peer. With several threads, a sample is the
// time per message of each. It runs from a barrier of all threads to the next, so it includes
// waking the waiting threads. With --calls the samples are system calls per message. The process
// that makes them prints them; `both`: rank 0 prints the sum.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "system_calls.hpp"

namespace one_pair {

constexpr std::uint64_t kTurns = 200, kWarmup = 2;  // turns of a sample; samples of the warm-up
/// Tags of a thread. Of the tags below 8, the messenger itself uses 0 and 4 to 7.
enum Tag : std::uint32_t { kData = 1, kAnswer = 2, kSamples = 3, kTags = 8 };

struct Options {
  std::string what = "rate", way = "send", completion = "queue", lanes = "own";
  std::uint64_t bytes = 8, window = 64, rounds = 20;
  std::uint32_t threads = 1;
  bool tells_more = false;
  std::string calls{};                   // process whose system calls count; empty: measures time
  std::optional<SystemCalls> counter{};  // counts from before any setup
};

/// A thread of one of the two processes. Its messenger moves messages to and from its partner
/// thread, and makes progress:
///   kKeepsOrder    true if a thread's messages match in order, even if others use its lane, too
///   int rank()
///   bool send(tag, buffer, bytes, do_more_follow), am(buffer, bytes, do_more_follow)
///                                                     false: the caller may reuse the buffer
///   bool receive(tag, buffer, bytes)                  false: the message has arrived
///   bool wait_one()   waits for one call that returned true; false: it failed
///   void hear(take)   waits for an active message and calls take(buffer, bytes)
template <class Messenger>
class Side {
 public:
  Side(Messenger& messenger, const Options& options)
      : messenger_(messenger),
        options_(options),
        stride_(std::max<std::uint64_t>(options.bytes, 8)),
        out_(options.window * stride_),
        in_(options.window * stride_) {}

  void turn() {
    const bool is_first = messenger_.rank() == 0;
    if (options_.what == "rate") return is_first ? send_and_wait() : receive_and_answer();
    if (is_first) send_window();
    receive_window();
    if (!is_first) send_window();
  }
  std::uint64_t wrong() const { return wrong_; }

 private:
  void send_and_wait() {
    send_window();
    wait(messenger_.receive(kAnswer, nullptr, 0));
  }
  void receive_and_answer() {
    receive_window();
    wait(messenger_.send(kAnswer, nullptr, 0, false));
  }
  void send_window() {
    std::uint64_t pending = 0;
    for (std::uint64_t i = 0; i < options_.window; ++i)
      pending += send_next(&out_[i * stride_], options_.tells_more && i + 1 < options_.window);
    wait(pending);
  }
  bool send_next(std::byte* buffer, bool do_more_follow) {
    std::memcpy(buffer, &sent_, numbered());
    ++sent_;
    if (options_.way == "am") return messenger_.am(buffer, options_.bytes, do_more_follow);
    return messenger_.send(kData, buffer, options_.bytes, do_more_follow);
  }
  void receive_window() {
    if (options_.way == "am") {
      for (std::uint64_t i = 0; i < options_.window; ++i)
        messenger_.hear([this](const void* buffer, std::uint64_t bytes) {
          if (bytes != options_.bytes) ++wrong_;
          check(buffer);
        });
      return end_window();
    }
    std::uint64_t pending = 0;
    for (std::uint64_t i = 0; i < options_.window; ++i)
      pending += messenger_.receive(kData, &in_[i * stride_], options_.bytes);
    wait(pending);
    for (std::uint64_t i = 0; i < options_.window; ++i) check(&in_[i * stride_]);
    end_window();
  }
  void wait(std::uint64_t pending) {
    for (; pending != 0; --pending) wrong_ += !messenger_.wait_one();
  }
  std::uint64_t numbered() const { return std::min<std::uint64_t>(8, options_.bytes); }
  void check(const void* buffer) {
    if (Messenger::kKeepsOrder || options_.threads == 1)
      wrong_ += numbered() != 0 && std::memcmp(buffer, &received_, numbered()) != 0;
    else
      sum_ += number_in(buffer);
    ++received_;
  }
  /// Messages may arrive in any order: the sum of their numbers must be right.
  void end_window() {
    if (Messenger::kKeepsOrder || options_.threads == 1) return;
    for (std::uint64_t number = received_ - options_.window; number != received_; ++number)
      sum_ -= number_in(&number);
    wrong_ += std::exchange(sum_, 0) != 0;
  }
  std::uint64_t number_in(const void* buffer) const {
    std::uint64_t number = 0;
    std::memcpy(&number, buffer, numbered());
    return number;
  }

  Messenger& messenger_;
  const Options& options_;
  const std::uint64_t stride_;
  std::vector<std::byte> out_, in_;
  std::uint64_t sent_ = 0, received_ = 0, sum_ = 0, wrong_ = 0;
};

/// @return 0 if the program can run, otherwise its exit status
inline int parse(int argc, char** argv, Options* options) {
  CLI::App app("Messages between two processes: time of one among many, or half a round trip.");
  app.add_option("what", options->what)->required()->check(CLI::IsMember({"rate", "half"}));
  app.add_option("--bytes", options->bytes, "of a message")->check(CLI::Range(0u, 1u << 26));
  app.add_option("--window", options->window, "messages of `rate` before an answer")
      ->check(CLI::Range(1u, 65536u));
  app.add_option("--rounds", options->rounds, "samples");
  app.add_flag("--more-follow", options->tells_more,
               "each post of a window but the last says that more follow");
  app.add_option("--way", options->way)->check(CLI::IsMember({"send", "am"}));
  app.add_option("--completion", options->completion, "what hears of sends and receives")
      ->check(CLI::IsMember({"queue", "counter"}));
  app.add_option("--threads", options->threads, "of each process, each with its like at the peer")
      ->check(CLI::Range(1u, 64u));
  app.add_option("--lanes", options->lanes, "a lane (a device) a thread, or one for all")
      ->check(CLI::IsMember({"own", "shared"}));
  app.add_option("--calls", options->calls, "system calls for a message instead of times, by whom")
      ->check(CLI::IsMember({"first", "second", "both"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    return status == 0 ? -1 : status;
  }
  if (options->what == "half") options->window = 1;
  if (options->calls.empty()) return 0;
  if (options->threads != 1) {
    std::fprintf(stderr, "--calls: of one thread, not of %u\n", options->threads);
    return 2;
  }
  std::string problem;
  options->counter = SystemCalls::count(&problem);
  if (!options->counter) std::fprintf(stderr, "--calls: %s\n", problem.c_str());
  return options->counter ? 0 : 2;
}

inline void print(const std::vector<double>& samples, std::uint64_t wrong) {
  std::printf("{\"samples\": [");
  for (std::size_t i = 0; i < samples.size(); ++i)
    std::printf("%s%.6g", i == 0 ? "" : ", ", samples[i]);
  std::printf("], \"wrong\": %llu}\n", static_cast<unsigned long long>(wrong));
}

template <class Messenger>
void add_those_of_second(Messenger& messenger, std::vector<double>* samples) {
  const std::size_t bytes = samples->size() * sizeof(double);
  if (messenger.rank() == 1) {
    if (messenger.send(kSamples, samples->data(), bytes, false)) (void)messenger.wait_one();
    return;
  }
  std::vector<double> seconds(samples->size());
  if (messenger.receive(kSamples, seconds.data(), bytes)) (void)messenger.wait_one();
  for (std::size_t i = 0; i < seconds.size(); ++i) (*samples)[i] += seconds[i];
}

/// Measures, and prints on the rank that the options select.
/// @return the number of wrong messages in this process
/// @param make  make(thread) returns a messenger in a std::unique_ptr. Each thread calls it in
///     turn, in the same order in both processes, and destroys its messenger in this order.
template <class Make>
std::uint64_t measure(Make&& make, const Options& options) {
  using Messenger = typename std::invoke_result_t<Make, std::uint32_t>::element_type;
  const auto now = [&options]() -> double {
    if (options.counter) return static_cast<double>(options.counter->now());
    const std::chrono::duration<double, std::nano> since_start =
        std::chrono::steady_clock::now().time_since_epoch();
    return since_start.count();
  };
  const std::uint64_t messages = kTurns * (options.what == "rate" ? options.window : 2);
  std::vector<double> marks;  // when all threads met: before and after each sample
  marks.reserve(2 * (kWarmup + options.rounds));
  std::barrier marked(options.threads, [&]() noexcept { marks.push_back(now()); });
  std::barrier<> together(options.threads);
  const auto in_turn = [&](std::uint32_t thread, auto&& call) {
    for (std::uint32_t turn = 0; turn < thread; ++turn) together.arrive_and_wait();
    call();
    for (std::uint32_t turn = thread; turn < options.threads; ++turn) together.arrive_and_wait();
  };
  std::atomic<std::uint64_t> wrong{0};
  const auto run = [&](std::uint32_t thread) {
    std::unique_ptr<Messenger> messenger;
    in_turn(thread, [&] { messenger = make(thread); });
    Side<Messenger> side(*messenger, options);
    for (std::uint64_t sample = 0; sample < kWarmup + options.rounds; ++sample) {
      marked.arrive_and_wait();
      for (std::uint64_t i = 0; i < kTurns; ++i) side.turn();
      marked.arrive_and_wait();
    }
    wrong.fetch_add(side.wrong(), std::memory_order_relaxed);  // the barrier, or join, orders it
    together.arrive_and_wait();
    if (thread == 0) {
      std::vector<double> samples;
      for (std::size_t i = 2 * kWarmup; i < marks.size(); i += 2)
        samples.push_back((marks[i + 1] - marks[i]) / static_cast<double>(messages));
      if (options.calls == "both") add_those_of_second(*messenger, &samples);
      if (messenger->rank() == (options.calls == "second" ? 1 : 0))
        print(samples, wrong.load(std::memory_order_relaxed));
    }
    in_turn(thread, [&] { messenger.reset(); });
  };
  std::vector<std::thread> others;
  for (std::uint32_t thread = 1; thread < options.threads; ++thread)
    others.emplace_back(run, thread);
  run(0);
  for (std::thread& other : others) other.join();
  return wrong.load(std::memory_order_relaxed);
}

}  // namespace one_pair
