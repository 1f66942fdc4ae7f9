#pragma once
// Shared parts of the programs of this folder. Exit status: 0; 1 a result is wrong; 3 a call has
// failed.

#include <errno.h>
#include <sched.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "larklane/context.hpp"
#include "larklane/message.hpp"

namespace larklane::program {

using Clock = std::chrono::steady_clock;

[[noreturn]] inline void fail(int status, const std::string& text) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, text.c_str());
  std::_Exit(status);
}
template <class T>
T got(Result<T> result, const char* what) {
  if (!result) fail(3, std::string(what) + ": " + errc_name(result.error().code()));
  return std::move(result).value();
}
inline std::unique_ptr<Context> begin() {
  std::string problem;
  auto context = Context::create(&problem);
  if (!context) fail(3, problem);
  return std::move(context).value();
}

inline Vci vci_of(Context& context) { return got(context.create_vci(), "create_vci"); }
inline CompletionQueue queue_of(Context& context) {
  return got(CompletionQueue::create(context.completions()), "queue");
}

/// The signal by which one process here makes another one of its host go on.
inline sigset_t go_on_signal() {
  sigset_t signal;
  sigemptyset(&signal);
  sigaddset(&signal, SIGUSR1);
  return signal;
}
inline void meet(Context& context) {
  std::string problem;
  if (!context.fence(&problem).ok()) fail(3, problem);
}

/// Until it is so: `turn` runs meanwhile.
template <class IsSo, class Turn>
void wait_until(const std::string& what, IsSo&& is_so, Turn&& turn) {
  const auto deadline = Clock::now() + std::chrono::seconds(240);
  while (!is_so()) {
    if (Clock::now() > deadline) fail(1, what + " does not come");
    turn();
  }
}
/// By a thread that makes progress.
template <class IsSo>
void wait_for(Vci& vci, const std::string& what, IsSo&& is_so) {
  wait_until(what, is_so, [&] {
    if (vci.progress() == 0) ::sched_yield();
  });
}
/// The result of `call`, which is repeated until it is accepted.
template <class Call>
Post posted(Vci& vci, const std::string& what, Call&& call) {
  Post post = Post::retry;
  wait_for(vci, what, [&] { return (post = got(call(), what.c_str())) != Post::retry; });
  return post;
}

/// Words that follow from a number, other ones for each.
inline void fill(std::span<std::uint64_t> words, std::uint64_t number) {
  for (std::uint64_t& word : words)
    word = (number += 0x9e37'79b9'7f4a'7c15u) * 0xbf58'476d'1ce4'e5b9u;
}
inline bool is_filled(std::span<const std::uint64_t> words, std::uint64_t number) {
  for (const std::uint64_t word : words)
    if (word != (number += 0x9e37'79b9'7f4a'7c15u) * 0xbf58'476d'1ce4'e5b9u) return false;
  return true;
}

}  // namespace larklane::program
