// The software cost of a short message over shared memory: instructions, atomics, system calls and
// allocations of each call, and lines of memory that two processes share. Both processes are in one
// here, with the same layout; the counts are of one side at a time.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bounds.hpp"
#include "shm_job.hpp"
#include "steps.hpp"

namespace larklane::cost {
namespace {

using msg::Job;
using msg::JobProcess;

/// Two processes that talk.
class Talk {
 public:
  /// Of the lanes: threads share them; there is but one thread; and it has declared itself the only
  /// one.
  enum class Use : std::uint8_t { shared, one_thread, own_thread };
  /// @param bounds  of the counted calls
  Talk(Use use, std::span<const Most> bounds) : bounds_(bounds), job_(over_shm()) {
    if (use == Use::own_thread)
      for (JobProcess* const side : {&here_side_, &there_})
        if (!side->vci->inside().vci().own()) ADD_FAILURE() << "no membarrier(2)";
    job_.connect_all();
    options_.completion = &told_;
    here_ = told_.register_remote().value();
    region_.emplace(there_.add_region(memory_, sizeof memory_));
    mapped_.emplace(*there_.engine->allocate_region(4096).value());
    if (use == Use::shared)
      std::thread([this] {
        if (!all_calls(kWarmup + kRepeats)) ADD_FAILURE() << "another thread's calls";
      }).join();
  }

  bool run() {
    return run_rounds(kWarmup, kRepeats, &counts_, [this](int round) { return all_calls(round); });
  }

 private:
  /// Stepping takes long: only for checked calls.
  bool is_looked_at(const std::string& name) const {
    return name == kNothing ||
           std::ranges::any_of(bounds_, [&](const Most& most) { return most.name == name; });
  }
  template <class Call>
  auto counted(const std::string& name, Call&& call) {
    const bool counts = counts_ && is_looked_at(name);
    if (counts) begin_steps(name.c_str());
    auto answer = call();
    if (counts) end_steps();
    return answer;
  }

  bool all_calls(int round) {
    sent_ = static_cast<std::uint64_t>(round) * 0x9e37'79b9'7f4a'7c15;
    (void)counted(kNothing, [] { return true; });
    return lookup() && awaited() && unexpected() && of_512_bytes() && signalled() &&
           active_message() && buffers() && packet() && put() && signal() && fetch_add() &&
           compare_swap() && accumulate() && get() && mapped();
  }

  template <class Call>
  bool posts(const std::string& name, Post wanted, Call&& call) {
    auto answer = counted(name, call);
    return answer && *answer == wanted;
  }
  /// This turn finds the arrived message. @param name  empty: not counted
  template <class Object>
  std::optional<Completion> arrival(const std::string& name, JobProcess& at, Object& object) {
    return counted(name, [&] {
      (void)at.vci->progress();
      return object.pop();
    });
  }
  bool send() {
    return posts("send: post", Post::done,
                 [&] { return post_send(*here_side_.vci, 1, 7, &sent_, sizeof sent_); });
  }
  /// Credit goes back now and then; and a turn after one that has found little backs off.
  void settle() {
    constexpr int kTurns = 10;
    for (int turn = 0; turn < kTurns; ++turn)
      for (JobProcess* const side : {&here_side_, &there_}) (void)side->vci->progress();
  }

  bool lookup() {
    msg::MessageLane& lane = here_side_.vci->inside();
    const bool has_lane =
        counted("lookup of a lane", [&] { return &here_side_.vci->inside().vci(); }) != nullptr;
    return counted("lookup of a connection", [&] { return lane.engine().connection(lane, 1); }) !=
               nullptr &&
           has_lane;
  }
  bool awaited() {
    if (!posts("receive: post", Post::posted, [&] {
          return post_recv(*there_.vci, 0, 7, &received_, sizeof received_, options_);
        }))
      return false;
    if (!send()) return false;
    const auto told = arrival("send: arrival, awaited", there_, told_);
    settle();
    return told && told->status.ok() && received_ == sent_;
  }
  bool unexpected() {
    if (!send()) return false;
    (void)counted("send: arrival, unexpected", [&] { return there_.vci->progress(); });
    Completion done;
    const bool is_done = posts("receive: of a message that is there", Post::done, [&] {
      return post_recv(*there_.vci, 0, 7, &received_, sizeof received_, options_, &done);
    });
    settle();
    return is_done && received_ == sent_;
  }
  /// More than lies in a record of the ring itself: by a packet.
  bool of_512_bytes() {
    std::memset(long_, static_cast<int>(sent_ >> 56), sizeof long_);
    std::memset(long_received_, 0, sizeof long_received_);
    if (!post_recv(*there_.vci, 0, 7, long_received_, sizeof long_received_, options_) ||
        !posts("send of 512 B: post", Post::done,
               [&] { return post_send(*here_side_.vci, 1, 7, long_, sizeof long_); }))
      return false;
    const auto told = arrival("send of 512 B: arrival, awaited", there_, told_);
    settle();
    return told && told->bytes == sizeof long_ &&
           std::memcmp(long_received_, long_, sizeof long_) == 0;
  }
  bool signalled() {
    PostOptions options = options_here_;
    options.signals_always = true;
    if (!post_recv(*there_.vci, 0, 7, &received_, sizeof received_, options_) ||
        !posts("send that signals: post", Post::posted,
               [&] { return post_send(*here_side_.vci, 1, 7, &sent_, sizeof sent_, options); }))
      return false;
    const auto told = arrival("send that signals: end", here_side_, told_here_);
    if (!told || !told->status.ok() || !arrival("", there_, told_)) return false;
    settle();
    return received_ == sent_;
  }
  bool active_message() {
    if (!posts("active message: post", Post::done,
               [&] { return post_am(*here_side_.vci, 1, here_, 3, &sent_, sizeof sent_); }))
      return false;
    const auto told = arrival("active message: arrival", there_, told_);
    settle();
    if (!told || std::memcmp(told->buffer, &sent_, sizeof sent_) != 0) return false;
    (void)counted("active message: free_buffer", [&] { return free_buffer(told->buffer), true; });
    return true;
  }
  /// As much as 3 buffers hold: 24 bytes together.
  bool buffers() {
    const std::uint64_t words[] = {sent_, sent_ + 1, sent_ + 2};
    const auto* const bytes = reinterpret_cast<const std::byte*>(words);
    const Buffer pieces[] = {{bytes, 8}, {bytes + 8, 3}, {bytes + 11, 13}};
    std::uint64_t into[3]{};
    if (!post_recv(*there_.vci, 0, 7, into, sizeof into, options_) ||
        !posts("send of 3 buffers: post", Post::done,
               [&] { return post_send(*here_side_.vci, 1, 7, pieces); }) ||
        !arrival("", there_, told_) || std::memcmp(into, words, sizeof into) != 0)
      return false;
    settle();
    if (!posts("active message of 3 buffers: post", Post::done,
               [&] { return post_am(*here_side_.vci, 1, here_, 3, pieces); }))
      return false;
    const auto told = arrival("", there_, told_);
    settle();
    if (!told || std::memcmp(told->buffer, words, sizeof words) != 0) return false;
    free_buffer(told->buffer);
    return true;
  }
  /// Written by the program itself.
  bool packet() {
    Packet taken = counted("packet: take", [&] { return take_packet(*here_side_.vci); });
    if (!taken) return false;
    std::memcpy(taken.start(), &sent_, sizeof sent_);
    if (!post_recv(*there_.vci, 0, 7, &received_, sizeof received_, options_) ||
        !posts("send of a packet: post", Post::done,
               [&] { return post_send(*here_side_.vci, 1, 7, taken, sizeof sent_); }) ||
        !arrival("", there_, told_) || received_ != sent_)
      return false;
    settle();
    taken = take_packet(*here_side_.vci);
    std::memcpy(taken.start(), &sent_, sizeof sent_);
    if (!posts("active message of a packet: post", Post::done,
               [&] { return post_am(*here_side_.vci, 1, here_, 3, taken, sizeof sent_); }))
      return false;
    const auto told = arrival("", there_, told_);
    settle();
    if (!told || std::memcmp(told->buffer, &sent_, sizeof sent_) != 0) return false;
    free_buffer(told->buffer);
    return true;
  }
  bool put() {
    auto answer = counted("put: post", [&] {
      return post_put(*here_side_.vci, region_->remote(), 8, &sent_, 8, options_here_);
    });
    settle();
    return answer && *answer != Post::retry && memory_[1] == sent_ &&
           (*answer == Post::done || told_here_.pop());
  }
  bool signal() {
    auto answer = counted("put with a signal: post", [&] {
      return post_put(*here_side_.vci, region_->remote(), 0, &sent_, 8, options_here_, here_, 5);
    });
    if (!answer || *answer == Post::retry) return false;
    const auto told = arrival("put with a signal: arrival", there_, told_);
    settle();
    return told && told->tag == 5 && memory_[0] == sent_ &&
           (*answer == Post::done || told_here_.pop());
  }
  /// The first post after it has to find the peer's ring again, which the link otherwise has at
  /// hand.
  bool get() {
    std::uint64_t got = 0;
    auto answer = counted("get: post", [&] {
      return post_get(*here_side_.vci, region_->remote(), 8, &got, sizeof got, options_here_);
    });
    settle();
    if (!answer || *answer == Post::retry || (*answer == Post::posted && !told_here_.pop()) ||
        got != memory_[1])
      return false;
    if (!post_recv(*there_.vci, 0, 7, &received_, sizeof received_, options_) ||
        !posts("send after a get: post", Post::done,
               [&] { return post_send(*here_side_.vci, 1, 7, &sent_, sizeof sent_); }))
      return false;
    const auto told = arrival("", there_, told_);
    settle();
    return told && received_ == sent_;
  }
  /// Of a region that the peer has allocated: no record, no lock, no operation.
  bool mapped() {
    const RemoteRegion remote = mapped_->remote();
    auto* const words = static_cast<std::uint64_t*>(mapped_->start());
    std::uint64_t got = 0;
    return posts("put of 8 B to a mapped region: post", Post::done,
                 [&] { return post_put(*here_side_.vci, remote, 8, &sent_, 8, options_here_); }) &&
           words[1] == sent_ &&
           posts("get of 8 B from a mapped region: post", Post::done,
                 [&] { return post_get(*here_side_.vci, remote, 8, &got, 8, options_here_); }) &&
           got == sent_ &&
           posts("send after a put to a mapped region: post", Post::done,
                 [&] { return post_send(*here_side_.vci, 1, 7, &sent_, sizeof sent_); }) &&
           mapped_is_over();
  }
  bool mapped_is_over() {
    Completion done;
    for (int turn = 0; turn < 10; ++turn) (void)there_.vci->progress();
    auto answer = post_recv(*there_.vci, 0, 7, &received_, sizeof received_, options_, &done);
    settle();
    return answer && *answer == Post::done && received_ == sent_;
  }
  /// An atomic that its owner carries out on arrival.
  template <class Call>
  bool atomic(const std::string& name, Call&& call) {
    if (!posts(name + ": post", Post::posted, call)) return false;
    (void)counted(name + ": arrival", [&] { return there_.vci->progress(); });
    const auto told = arrival(name + ": answer", here_side_, told_here_);
    settle();
    return told && told->status.ok();
  }
  bool fetch_add() {
    std::uint64_t before = 0;
    const std::uint64_t was = memory_[0];
    return atomic("fetch-and-add",
                  [&] {
                    return post_fetch_add(*here_side_.vci, region_->remote(), 0, 1, &before,
                                          options_here_);
                  }) &&
           before == was && memory_[0] == was + 1;
  }
  bool compare_swap() {
    std::uint64_t before = 0;
    const std::uint64_t was = memory_[0];
    return atomic("compare-and-swap",
                  [&] {
                    return post_compare_swap(*here_side_.vci, region_->remote(), 0, was, ~was,
                                             &before, options_here_);
                  }) &&
           before == was && memory_[0] == ~was;
  }
  bool accumulate() {
    const double value = 1;
    const auto was = std::bit_cast<double>(memory_[2]);
    return atomic("accumulate",
                  [&] {
                    return post_accumulate(*here_side_.vci, region_->remote(), 16, &value, 1,
                                           options_here_);
                  }) &&
           std::bit_cast<double>(memory_[2]) == was + value;
  }

  const std::span<const Most> bounds_;
  Job job_;
  JobProcess &here_side_ = job_.at(0), &there_ = job_.at(1);
  CompletionQueue told_ = CompletionQueue::create(there_.domain).value();
  CompletionQueue told_here_ = CompletionQueue::create(here_side_.domain).value();
  PostOptions options_, options_here_{.completion = &told_here_};
  RemoteCompletion here_ = 0;
  alignas(64) std::uint64_t memory_[8]{};
  std::optional<Region> region_, mapped_;
  bool counts_ = false;
  std::uint64_t sent_ = 0, received_ = 0;
  std::byte long_[512]{}, long_received_[512]{};
};

/// The additional instructions of the C library's copies of 512 B with vectors of 32 bytes, not 64.
std::uint64_t more_for_copies() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512vl") != 0 ? 0 : 40;
#else
  return 40;
#endif
}

/// docs/user/messages.md has the same numbers.
const Most kMost[] = {
    {"lookup of a lane", 11, 0, 0},
    {"lookup of a connection", 18, 0, 0},
    {"send: post", 400, 3, 1},
    {"send: arrival, awaited", 850, 7, 0},
    {"send: arrival, unexpected", 850, 5, 0},
    {"receive: post", 270, 2, 0},
    {"receive: of a message that is there", 350, 7, 0},
    {"send of 512 B: post", 600 + more_for_copies(), 5, 9},
    {"send of 512 B: arrival, awaited", 950, 7, 8},
    {"send that signals: post", 520, 6, 1},
    {"send that signals: end", 360, 5, 0},
    {"active message: post", 390, 3, 1},
    {"active message: arrival", 800, 7, 0},
    {"active message: free_buffer", 25, 1, 0},
    {"send of 3 buffers: post", 500, 3, 1},
    {"active message of 3 buffers: post", 500, 3, 1},
    {"packet: take", 60, 1, 0},
    {"send of a packet: post", 500, 4, 1},
    {"active message of a packet: post", 500, 4, 1},
    {"put: post", 780, 5, 0},
    {"put with a signal: post", 950, 7, 1},
    {"put with a signal: arrival", 800, 7, 0},
    {"fetch-and-add: post", 800, 5, 1},
    {"fetch-and-add: arrival", 1300, 11, 1},
    {"fetch-and-add: answer", 780, 8, 0},
    {"compare-and-swap: post", 800, 5, 1},
    {"compare-and-swap: arrival", 1300, 11, 1},
    {"compare-and-swap: answer", 780, 8, 0},
    {"accumulate: post", 960, 7, 1},
    {"accumulate: arrival", 1350, 11, 1},
    {"accumulate: answer", 780, 8, 0},
    {"get: post", 850, 5, 0},
    {"send after a get: post", 600, 5, 1},
    {"put of 8 B to a mapped region: post", 180, 0, 1},
    {"get of 8 B from a mapped region: post", 180, 0, 0},
    {"send after a put to a mapped region: post", 400, 3, 1},
};

/// Of a process of one thread: pools and matching need no lock.
constexpr Most kMostOfOne[] = {
    {"send: post", 400, 3, 1},
    {"send: arrival, awaited", 850, 6, 0},
    {"send: arrival, unexpected", 850, 3, 0},
    {"receive: post", 270, 0, 0},
    {"receive: of a message that is there", 350, 5, 0},
    {"put: post", 780, 4, 0},
};

/// Of a lane that is its thread's own.
constexpr Most kMostOfOwner[] = {
    {"send: post", 400, 1, 1},
    {"send: arrival, awaited", 850, 4, 0},
    {"send: arrival, unexpected", 850, 1, 0},
    {"send of 512 B: post", 700, 5, 9},
    {"active message: post", 390, 1, 1},
    {"active message: arrival", 800, 5, 0},
    {"send of a packet: post", 560, 4, 1},
    {"put: post", 800, 4, 0},
};

void expect_bounded(Talk::Use use, std::span<const Most> bounds) {
  expect_bounded(steps_of([use, bounds] {
                   Talk talk(use, bounds);
                   return talk.run() && !testing::Test::HasFailure();
                 }),
                 bounds, kRepeats);
}

TEST(Steps, ACopyWritesLinesThere) {
  const auto all = steps_of([] {
    const std::string text(512, 'x');
    std::string back(text.size(), ' ');
    void* const shared =
        ::mmap(nullptr, text.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return false;
    begin_steps("there");
    std::memcpy(shared, text.data(), text.size());
    end_steps();
    begin_steps("back");
    std::memcpy(back.data(), shared, back.size());
    end_steps();
    return back == text;
  });
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all.at("there")[0].lines_written.size(), 8u);
  EXPECT_EQ(all.at("there")[0].lines_read.size(), 0u);
  EXPECT_EQ(all.at("back")[0].lines_written.size(), 0u);
  EXPECT_EQ(all.at("back")[0].lines_read.size(), 8u);
}

TEST(MessageCost, OfEachCallIsBounded) { expect_bounded(Talk::Use::shared, kMost); }

TEST(MessageCost, OneThreadTakesOnlyTheLanesLock) {
  expect_bounded(Talk::Use::one_thread, kMostOfOne);
}

TEST(MessageCost, OwnerOfALaneTakesNoLock) { expect_bounded(Talk::Use::own_thread, kMostOfOwner); }

}  // namespace
}  // namespace larklane::cost
