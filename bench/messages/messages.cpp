// Messages between two native processes: time of one among many, or half a round trip.
//
//   larklane launch -n 2 messages rate|half [--bytes N] [--window N] [--rounds N] [--way send|am]
//
// Every message carries its number, which is checked. Last line, of rank 0: {"samples": [ns ...],
// "wrong": N}, as bench/pair prints it.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "larklane/context.hpp"
#include "larklane/message.hpp"

namespace {

using larklane::Completion;
using larklane::CompletionQueue;
using larklane::Context;
using larklane::Post;
using larklane::PostOptions;
using larklane::RemoteCompletion;
using larklane::Vci;

constexpr std::uint64_t kTurns = 200, kWarmup = 2;  // turns of a sample; samples before
constexpr std::uint32_t kData = 1, kAnswer = 2, kNumber = 3;

struct Options {
  std::string what = "rate", way = "send";
  std::uint64_t bytes = 8, window = 64, rounds = 20;
};

template <class T>
T got(larklane::Result<T> result, const char* what) {
  if (!result) {
    std::fprintf(stderr, "messages: %s: %s\n", what, larklane::errc_name(result.error().code()));
    std::exit(3);
  }
  return std::move(result).value();
}

/// One of the two processes.
class Side {
 public:
  Side(Context& context, const Options& options)
      : options_(options),
        peer_(1 - context.rank()),
        vci_(got(context.create_vci(), "create_vci")),
        told_(got(CompletionQueue::create(context.completions()), "queue")),
        heard_(got(CompletionQueue::create(context.completions()), "queue")),
        out_(std::max<std::uint64_t>(options.bytes, 8)),
        in_(options.window * out_.size()) {
    // Its number for the peer, who needs it for active messages.
    const RemoteCompletion mine = got(heard_.register_remote(), "register_remote");
    std::uint32_t theirs = 0;
    receive(kNumber, &theirs, sizeof theirs, nullptr);
    send(kNumber, &mine, sizeof mine);
    wait_one();
    there_ = theirs;
  }

  void send_window() {
    for (std::uint64_t i = 0; i < options_.window; ++i) send_next();
  }
  void receive_window() {
    if (options_.way == "am") {
      for (std::uint64_t i = 0; i < options_.window; ++i) hear_next();
      return;
    }
    for (std::uint64_t i = 0; i < options_.window; ++i)
      receive(kData, &in_[i * out_.size()], options_.bytes, nullptr);
    for (std::uint64_t i = 0; i < options_.window; ++i) wait_one();
    for (std::uint64_t i = 0; i < options_.window; ++i) check(&in_[i * out_.size()]);
  }
  void answer() { send(kAnswer, nullptr, 0); }
  void wait_answer() {
    receive(kAnswer, nullptr, 0, nullptr);
    wait_one();
  }
  void send_next() {
    std::memcpy(out_.data(), &sent_, std::min<std::uint64_t>(8, options_.bytes));
    ++sent_;
    if (options_.way == "send") return send(kData, out_.data(), options_.bytes);
    while (got(larklane::post_am(vci_, peer_, there_, 0, out_.data(), options_.bytes, busy()),
               "post_am") == Post::retry)
      (void)vci_.progress();
  }
  std::uint64_t wrong() const { return wrong_; }

 private:
  void hear_next() {
    while (true) {
      if (auto completion = heard_.pop()) {
        if (completion->bytes != options_.bytes) ++wrong_;
        check(completion->buffer);
        return larklane::free_buffer(completion->buffer);
      }
      (void)vci_.progress();
    }
  }
  PostOptions busy() {
    PostOptions options;
    options.completion = &told_;
    return options;
  }
  void send(std::uint32_t tag, const void* buffer, std::uint64_t bytes) {
    while (true) {
      const Post post =
          got(larklane::post_send(vci_, peer_, tag, buffer, bytes, busy()), "post_send");
      if (post == Post::done) return;
      if (post == Post::posted) return wait_one();
      (void)vci_.progress();
    }
  }
  void receive(std::uint32_t tag, void* buffer, std::uint64_t bytes, Completion* done) {
    while (got(larklane::post_recv(vci_, peer_, tag, buffer, bytes, busy(), done), "post_recv") ==
           Post::retry)
      (void)vci_.progress();
  }
  void wait_one() {
    while (true) {
      if (auto completion = told_.pop()) {
        if (!completion->status.ok()) ++wrong_;
        return;
      }
      (void)vci_.progress();
    }
  }
  void check(const void* buffer) {
    const std::uint64_t bytes = std::min<std::uint64_t>(8, options_.bytes);
    wrong_ += bytes != 0 && std::memcmp(buffer, &received_, bytes) != 0;
    ++received_;
  }

  const Options options_;
  const int peer_;
  Vci vci_;
  CompletionQueue told_, heard_;
  RemoteCompletion there_ = 0;
  std::vector<std::byte> out_, in_;
  std::uint64_t sent_ = 0, received_ = 0, wrong_ = 0;
};

void round(Side& side, int rank, const Options& options) {
  if (options.what == "rate") {
    if (rank == 0) {
      side.send_window();
      side.wait_answer();
    } else {
      side.receive_window();
      side.answer();
    }
    return;
  }
  if (rank == 0) side.send_next();
  side.receive_window();
  if (rank == 1) side.send_next();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Messages between two native processes: time of one among many, or half a round trip.");
  app.add_option("what", options.what)->required()->check(CLI::IsMember({"rate", "half"}));
  app.add_option("--bytes", options.bytes, "of a message")->check(CLI::Range(0u, 1u << 26));
  app.add_option("--window", options.window, "messages of `rate` before an answer")
      ->check(CLI::Range(1u, 65536u));
  app.add_option("--rounds", options.rounds, "samples");
  app.add_option("--way", options.way)->check(CLI::IsMember({"send", "am"}));
  CLI11_PARSE(app, argc, argv);
  if (options.what == "half") options.window = 1;
  std::string problem;
  auto context = Context::create(&problem);
  if (!context) {
    std::fprintf(stderr, "messages: %s\n", problem.c_str());
    return 3;
  }
  if ((*context)->size() != 2) {
    std::fprintf(stderr, "messages: 2 processes are needed, not %d\n", (*context)->size());
    return 2;
  }
  const int rank = (*context)->rank();
  std::vector<double> samples;
  std::uint64_t wrong = 0;
  {
    Side side(**context, options);
    const double messages = options.what == "rate" ? static_cast<double>(kTurns * options.window)
                                                   : static_cast<double>(2 * kTurns);
    for (std::uint64_t sample = 0; sample < kWarmup + options.rounds; ++sample) {
      const auto begin = std::chrono::steady_clock::now();
      for (std::uint64_t i = 0; i < kTurns; ++i) round(side, rank, options);
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - begin;
      if (sample >= kWarmup) samples.push_back(took.count() / messages);
    }
    wrong = side.wrong();
  }
  if (!(*context)->fence(&problem).ok()) std::fprintf(stderr, "messages: %s\n", problem.c_str());
  if (rank != 0) return wrong == 0 ? 0 : 1;
  std::printf("{\"samples\": [");
  for (std::size_t i = 0; i < samples.size(); ++i)
    std::printf("%s%.1f", i == 0 ? "" : ", ", samples[i]);
  std::printf("], \"wrong\": %llu}\n", static_cast<unsigned long long>(wrong));
  return wrong == 0 ? 0 : 1;
}
