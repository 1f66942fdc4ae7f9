#pragma once
// Messages between two processes: time of one among many, or half a round trip, whatever moves
// them.
//
//   PROGRAM rate|half [--bytes N] [--window N] [--rounds N] [--way send|am] [--completion KIND]
//           [--more-follow]
//
// Every message carries its number, which is checked. Last line, of rank 0: {"samples": [ns ...],
// "wrong": N}, as bench/pair prints it.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace one_pair {

constexpr std::uint64_t kTurns = 200, kWarmup = 2;  // turns of a sample; samples before
constexpr std::uint32_t kData = 1, kAnswer = 2;     // tags

struct Options {
  std::string what = "rate", way = "send", completion = "queue";
  std::uint64_t bytes = 8, window = 64, rounds = 20;
  bool tells_more = false;
};

/// One of the two processes. A messenger moves messages between them, and makes progress:
///   int rank()
///   bool send(tag, buffer, bytes, do_more_follow), am(buffer, bytes, do_more_follow)
///                                                     false: the buffer is the caller's again
///   bool receive(tag, buffer, bytes)                  false: the message is there
///   bool wait_one()   for one of those that answered true; false: it has failed
///   void hear(take)   one active message: calls take(buffer, bytes)
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
      return;
    }
    std::uint64_t pending = 0;
    for (std::uint64_t i = 0; i < options_.window; ++i)
      pending += messenger_.receive(kData, &in_[i * stride_], options_.bytes);
    wait(pending);
    for (std::uint64_t i = 0; i < options_.window; ++i) check(&in_[i * stride_]);
  }
  void wait(std::uint64_t pending) {
    for (; pending != 0; --pending) wrong_ += !messenger_.wait_one();
  }
  std::uint64_t numbered() const { return std::min<std::uint64_t>(8, options_.bytes); }
  void check(const void* buffer) {
    wrong_ += numbered() != 0 && std::memcmp(buffer, &received_, numbered()) != 0;
    ++received_;
  }

  Messenger& messenger_;
  const Options options_;
  const std::uint64_t stride_;
  std::vector<std::byte> out_, in_;
  std::uint64_t sent_ = 0, received_ = 0, wrong_ = 0;
};

/// @return the exit status of a program that can't go on; 0: it can
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    return status == 0 ? -1 : status;
  }
  if (options->what == "half") options->window = 1;
  return 0;
}

inline void print(const std::vector<double>& samples, std::uint64_t wrong) {
  std::printf("{\"samples\": [");
  for (std::size_t i = 0; i < samples.size(); ++i)
    std::printf("%s%.1f", i == 0 ? "" : ", ", samples[i]);
  std::printf("], \"wrong\": %llu}\n", static_cast<unsigned long long>(wrong));
}

/// Measures, and prints on rank 0. @return how many messages were wrong here
template <class Messenger>
std::uint64_t measure(Messenger& messenger, const Options& options) {
  Side<Messenger> side(messenger, options);
  const std::uint64_t messages = kTurns * (options.what == "rate" ? options.window : 2);
  std::vector<double> samples;
  for (std::uint64_t sample = 0; sample < kWarmup + options.rounds; ++sample) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < kTurns; ++i) side.turn();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    if (sample >= kWarmup) samples.push_back(took.count() / static_cast<double>(messages));
  }
  if (messenger.rank() == 0) print(samples, side.wrong());
  return side.wrong();
}

}  // namespace one_pair
