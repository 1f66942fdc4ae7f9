// Two threads of rank 0 post on one lane at the same moment, and then the process is idle: no
// thread makes progress, and the library's helper sleeps. Every post that was `done` arrives all
// the same, also one that a thread has left to the other, which had the lane's lock.
//
// (A post that a network refuses for the moment goes with the next turn: of so few it refuses none
// once both sides are connected.)
//
//   posters ROUNDS
//
// Exit status: of program.hpp; 1: a message is stranded, refused, comes twice, or is wrong.

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

constexpr std::size_t kPosters = 2, kEach = 50, kWordsMost = 6;
constexpr std::uint32_t kPidTag = 100;

/// The length of each message, and its number.
std::size_t words_of(std::uint64_t message) { return 1 + message % kWordsMost; }
std::uint64_t number_of(std::size_t poster, std::uint64_t message) {
  return message * kPosters + poster;
}

/// Nothing is lost, and no thread has to post again: there is room for a round.
void post_round(Vci& lane, std::size_t poster, RemoteCompletion there, std::uint64_t first) {
  std::array<std::uint64_t, kWordsMost> words{};
  for (std::uint64_t message = first; message < first + kEach; ++message) {
    const std::size_t count = words_of(message), bytes = count * sizeof words[0];
    fill(std::span(words).first(count), number_of(poster, message));
    const auto tag = static_cast<std::uint32_t>(poster);
    const Post answer = got(message % 2 == 0 ? post_send(lane, 1, tag, words.data(), bytes)
                                             : post_am(lane, 1, there, tag, words.data(), bytes),
                            "a post");
    if (answer != Post::done) fail(1, "a post is not done at once");
  }
}

void post_all(Context& context, RemoteCompletion there, std::uint64_t rounds) {
  Vci lane = got(context.create_vci(), "create_vci");
  const pid_t pid = ::getpid();
  (void)posted(lane, "room for a process number",
               [&] { return post_send(lane, 1, kPidTag, &pid, sizeof pid); });
  const sigset_t come = go_on_signal();
  constexpr timespec kPatience{120, 0}, kAtOnce{};
  wait_for(lane, "an answer", [&] { return ::sigtimedwait(&come, nullptr, &kAtOnce) == SIGUSR1; });

  std::barrier<> together(kPosters + 1);
  std::vector<std::thread> posters;
  for (std::size_t poster = 0; poster < kPosters; ++poster)
    posters.emplace_back([&, poster] {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        together.arrive_and_wait();
        post_round(lane, poster, there, round * kEach);
        together.arrive_and_wait();
      }
    });
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (int turn = 0; turn < 20; ++turn) (void)lane.progress();  // the room of the one before
    together.arrive_and_wait();
    together.arrive_and_wait();
    int signal = 0;
    do signal = ::sigtimedwait(&come, nullptr, &kPatience);
    while (signal < 0 && errno == EINTR);
    if (signal != SIGUSR1) fail(1, "round " + std::to_string(round) + " is stranded");
  }
  for (std::thread& poster : posters) poster.join();
  std::printf("posters: %llu rounds have come\n", static_cast<unsigned long long>(rounds));
}

void take_all(Context& context, CompletionQueue& mail, std::uint64_t rounds) {
  Vci lane = got(context.create_vci(), "create_vci");
  CompletionQueue told = got(CompletionQueue::create(context.completions()), "queue");
  PostOptions options;
  options.completion = &told;
  pid_t pid = 0;
  (void)got(post_recv(lane, 0, kPidTag, &pid, sizeof pid, options), "post_recv");
  wait_for(lane, "a process number", [&] { return told.pop().has_value(); });
  if (::kill(pid, SIGUSR1) != 0) fail(3, "kill");

  options.signals_always = true;
  std::array<std::array<std::uint64_t, kWordsMost>, kPosters * kEach> places;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    // Of each poster the even messages are sends, matched in their order.
    std::size_t place = 0, heard = 0;
    std::array<std::uint64_t, kPosters> next_send{}, next_am{};
    for (std::size_t poster = 0; poster < kPosters; ++poster) {
      next_send[poster] = (round * kEach + 1) / 2 * 2;
      next_am[poster] = round * kEach / 2 * 2 + 1;
      for (std::size_t i = 0; i < kEach / 2; ++i, ++place)
        (void)got(post_recv(lane, 0, static_cast<std::uint32_t>(poster), places[place].data(),
                            sizeof places[place], options),
                  "post_recv");
    }
    const auto take = [&](const Completion& completion, std::uint64_t& next) {
      const std::uint64_t message = std::exchange(next, next + 2);
      const std::span words(static_cast<const std::uint64_t*>(completion.buffer),
                            words_of(message));
      if (!completion.status.ok() || completion.bytes != words.size_bytes() ||
          !is_filled(words, number_of(completion.tag, message)))
        fail(1, "message " + std::to_string(message));
      ++heard;
    };
    wait_for(lane, "round " + std::to_string(round), [&] {
      while (const auto completion = told.pop()) take(*completion, next_send.at(completion->tag));
      while (const auto completion = mail.pop()) {
        take(*completion, next_am.at(completion->tag));
        free_buffer(completion->buffer);
      }
      return heard == kPosters * kEach;
    });
    if (::kill(pid, SIGUSR1) != 0) fail(3, "kill");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) fail(3, "posters ROUNDS");
  const std::uint64_t rounds = std::strtoull(argv[1], nullptr, 10);
  const sigset_t come = go_on_signal();
  ::pthread_sigmask(SIG_BLOCK, &come, nullptr);  // of the library's threads, too
  auto context = begin();
  {
    CompletionQueue mail = got(CompletionQueue::create(context->completions()), "queue");
    const RemoteCompletion there = got(mail.register_remote(), "register_remote");
    meet(*context);
    context->rank() == 0 ? post_all(*context, there, rounds) : take_all(*context, mail, rounds);
    meet(*context);
  }
  return 0;
}
