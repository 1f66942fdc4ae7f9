// The software cost of an ordinary message of 8 bytes over shared memory, beside that of the native
// calls: as message_cost_test.cpp counts it.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "bounds.hpp"
#include "msg/protocol/communicator.hpp"
#include "shm_job.hpp"
#include "steps.hpp"

namespace larklane::cost {
namespace {

using msg::Communicator;
using msg::Job;
using msg::JobProcess;
using msg::Pending;
using msg::UserBytes;

/// Two processes with a communicator.
class Talk {
 public:
  /// Threads share the lanes, or there is but one thread.
  enum class Use : std::uint8_t { shared, one_thread };
  explicit Talk(Use use) : job_(over_shm()) {
    job_.connect_all();
    options_.completion = &told_;
    constexpr std::array members{0, 1};
    for (int rank = 0; rank < 2; ++rank)
      communicators_[static_cast<std::size_t>(rank)] =
          *job_.at(rank).engine->open({1, 1}, members, rank, {});
    if (use == Use::shared)
      std::thread([this] {
        if (!all_calls(kWarmup + kRepeats)) ADD_FAILURE() << "another thread's calls";
      }).join();
  }
  ~Talk() {
    for (Communicator* const one : communicators_) one->close();
  }

  bool run() {
    return run_rounds(kWarmup, kRepeats, &counts_, [this](int round) { return all_calls(round); });
  }

 private:
  template <class Call>
  auto counted(const char* name, Call&& call) {
    if (counts_) begin_steps(name);
    auto answer = call();
    if (counts_) end_steps();
    return answer;
  }
  Communicator& here() { return *communicators_[0]; }
  Communicator& there() { return *communicators_[1]; }
  UserBytes sent() { return {reinterpret_cast<std::byte*>(&sent_), sizeof sent_}; }
  UserBytes received() { return {reinterpret_cast<std::byte*>(&received_), sizeof received_}; }
  void settle() {
    constexpr int kTurns = 10;
    for (int turn = 0; turn < kTurns; ++turn)
      for (JobProcess* const side : {&here_side_, &there_}) (void)side->vci->progress();
  }

  bool all_calls(int round) {
    sent_ = static_cast<std::uint64_t>(round) * 0x9e37'79b9'7f4a'7c15;
    (void)counted(kNothing, [] { return true; });
    return native() && awaited() && unexpected() && synchronous() && misses();
  }
  bool native() {
    auto posted = counted("native receive: post", [&] {
      return post_recv(*there_.vci, 0, 7, &received_, sizeof received_, options_);
    });
    if (!posted || !native_send()) return false;
    const auto told = counted("native send: arrival, awaited", [&] {
      (void)there_.vci->progress();
      return told_.pop();
    });
    settle();
    if (!told || received_ != sent_ || !native_send()) return false;
    (void)counted("native send: arrival, unexpected", [&] { return there_.vci->progress(); });
    Completion done;
    auto there = counted("native receive: of a message that is there", [&] {
      return post_recv(*there_.vci, 0, 7, &received_, sizeof received_, options_, &done);
    });
    settle();
    return there && *there == Post::done && received_ == sent_;
  }
  bool native_send() {
    auto answer = counted("native send: post",
                          [&] { return post_send(*here_side_.vci, 1, 7, &sent_, sizeof sent_); });
    return answer && *answer == Post::done;
  }
  bool send() {
    auto answer =
        counted("send", [&] { return here().send(1, 7, sent(), Communicator::Mode::standard); });
    return answer && *answer == nullptr;
  }
  /// As a wait does once the receive is done.
  bool end(Pending* pending) {
    if (!is_done(*pending)) return false;
    const bool is_ok = counted("is_done, outcome, release", [&] {
      if (!is_done(*pending)) return false;
      const msg::Outcome end = outcome(*pending);
      release(*pending);
      return end.status.ok() && end.envelope.bytes == sizeof sent_;
    });
    settle();
    return is_ok && received_ == sent_;
  }
  bool awaited() {
    received_ = ~sent_;
    auto posted = counted("receive: post", [&] { return there().receive(0, 7, received()); });
    if (!posted || !send()) return false;
    (void)counted("poll: arrival, awaited", [&] { return poll(**posted); });
    return end(*posted);
  }
  bool unexpected() {
    received_ = ~sent_;
    if (!send()) return false;
    (void)counted("poll: arrival, unexpected", [&] { return there().poll(); });
    msg::Envelope seen{};
    if (!counted("look: finds it", [&] { return there().look(0, 7, &seen); })) return false;
    auto posted = counted("receive: of a message that is there",
                          [&] { return there().receive(0, 7, received()); });
    return posted && end(*posted);
  }
  bool synchronous() {
    received_ = ~sent_;
    auto posted = there().receive(0, 7, received());
    auto answer = counted("synchronous send", [&] {
      return here().send(1, 7, sent(), Communicator::Mode::synchronous);
    });
    if (!posted || !answer) return false;
    settle();
    if (!is_done(**answer)) return false;
    release(**answer);
    return end(*posted);
  }
  /// Nothing has come.
  bool misses() {
    msg::Envelope seen{};
    Pending& posted = **there().receive(0, 9, received());
    settle();
    for (const char* const name : {"look: nothing, for the first time", "look: nothing, again"})
      if (counted(name, [&] { return there().look(0, 8, &seen); })) return false;
    const bool is_over = counted("poll: nothing", [&] {
      (void)poll(posted);
      return is_done(posted);
    });
    const bool is_cancelled =
        counted("cancel of a receive", [&] { return Communicator::cancel(posted); });
    if (!is_cancelled) return false;
    release(posted);
    return !is_over;
  }

  Job job_;
  JobProcess &here_side_ = job_.at(0), &there_ = job_.at(1);
  CompletionQueue told_ = CompletionQueue::create(there_.domain).value();
  PostOptions options_;
  std::array<Communicator*, 2> communicators_{};
  bool counts_ = false;
  std::uint64_t sent_ = 0, received_ = 0;
};

constexpr Most kMost[] = {
    {"native send: post", 400, 3, 1},
    {"send", 316, 3, 1},
    {"native receive: post", 270, 2, 0},
    {"receive: post", 275, 2, 0},
    {"native send: arrival, awaited", 850, 7, 0},
    {"poll: arrival, awaited", 710, 3, 0},
    {"is_done, outcome, release", 23, 1, 0},
    {"native send: arrival, unexpected", 850, 5, 0},
    {"poll: arrival, unexpected", 950, 5, 0},
    {"native receive: of a message that is there", 350, 7, 0},
    {"receive: of a message that is there", 375, 4, 0},
    {"look: finds it", 345, 2, 0},
    {"look: nothing, for the first time", 325, 1, 0},
    {"look: nothing, again", 180, 0, 0},
    {"poll: nothing", 112, 0, 0},
    {"synchronous send", 880, 7, 2},
    {"cancel of a receive", 185, 2, 0},
};

/// At most so many more instructions than the native API's call.
struct More {
  const char *name, *native;
  std::uint64_t instructions;
};
constexpr More kMore[] = {
    {"send", "native send: post", 40},
    {"receive: post", "native receive: post", 25},
    {"receive: of a message that is there", "native receive: of a message that is there", 45},
};

AllSteps steps(Talk::Use use) {
  return steps_of([use] {
    Talk talk(use);
    return talk.run() && !testing::Test::HasFailure();
  });
}

void expect_all_bounded(Talk::Use use) {
  const AllSteps all = steps(use);
  expect_bounded(all, kMost, kRepeats);
  for (const More& more : kMore) {
    SCOPED_TRACE(more.name);
    EXPECT_LE(instructions_of(all, more.name),
              instructions_of(all, more.native) + more.instructions);
  }
}

TEST(CommunicatorCost, OfEachCallIsBounded) { expect_all_bounded(Talk::Use::shared); }
TEST(CommunicatorCost, OfEachCallOfTheOnlyThreadIsBounded) {
  expect_all_bounded(Talk::Use::one_thread);
}

}  // namespace
}  // namespace larklane::cost
