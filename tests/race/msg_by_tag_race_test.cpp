// Threads of two processes send, and cancel sends, on lanes by tag to threads of a third one, which
// receive, probe and cancel. An oracle of vector clocks checks that no match overtakes a message
// that happened before.

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "msg/protocol/by_tag.hpp"
#include "msg/protocol/communicator.hpp"
#include "net/shm/network_fabric.hpp"
#include "prop/msg_seeds.hpp"
#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint32_t kSources = 2, kTags = 8, kThreadsMost = 4, kSlots = 4;
constexpr std::size_t kBytesMax = 1200;
using Mode = Communicator::Mode;
using Clocks = std::array<std::array<std::uint32_t, kTags>, kThreadsMost>;

struct Case {
  std::uint64_t seed;
  std::uint32_t senders, receivers;  ///< threads of each process
  std::uint32_t messages;            ///< of each sender
};
struct Body {
  std::uint32_t source, thread, tag, nth, bytes;
  Clocks before;  ///< messages of each thread and tag of its source that happened before
};
static_assert(sizeof(Body) <= 160);

/// A receive that got a message, or a probe that showed one. Ticks count the calls.
struct Event {
  int from;
  std::int64_t tag;
  std::uint64_t begin, end;
  bool is_look;
  Body body;
};
struct Slot {
  int from = 0;
  std::int64_t tag = 0;
  std::uint64_t begin = 0, end = 0;
  Pending* pending = nullptr;
  bool is_passed_over = false;  // a younger receive has got a message that fits this one
  std::array<std::byte, kBytesMax> into;
};

Job::Options options_of() {
  Job::Options options;
  options.size = kSources + 1;
  options.lanes.count_max = 4;
  options.lanes_by_tag = true;
  options.lane = {{32, 8}, 256, 64};
  options.decorate = [](std::unique_ptr<net::Fabric>, int) {
    std::string reason;
    return std::move(shm::open_network({}, &reason)).value();
  };
  return options;
}

class Torture {
 public:
  explicit Torture(const Case& c) : case_(c), job_(options_of()) {
    job_.connect_all_lanes();
    std::array<int, kSources + 1> members;
    std::iota(members.begin(), members.end(), 0);
    Hints hints;
    hints.lanes_by_tag = Hints::LanesByTag::by_visibility;
    for (int rank = 0; rank <= int{kSources}; ++rank)
      all_.push_back(*job_.at(rank).engine->open({7, c.seed << 32}, members, rank, hints));
    job_.connect();
  }

  void run() {
    std::vector<std::thread> senders, receivers;
    events_.resize(case_.receivers);
    for (std::uint32_t s = 0; s < kSources; ++s)
      for (std::uint32_t t = 0; t < case_.senders; ++t)
        senders.emplace_back([this, s, t] { send_all(s, t); });
    for (std::uint32_t r = 0; r < case_.receivers; ++r)
      receivers.emplace_back([this, r] { receive(r); });
    for (std::thread& thread : senders) thread.join();
    for (std::thread& thread : receivers) thread.join();
    EXPECT_EQ(error_.load(std::memory_order_seq_cst), nullptr)
        << error_.load(std::memory_order_seq_cst);
    EXPECT_EQ(matched_.load(std::memory_order_seq_cst), total());
    if (!testing::Test::HasFailure()) check();
    for (Communicator* const one : all_) one->close();
    job_.settle();
  }

 private:
  std::uint64_t total() const { return std::uint64_t{kSources} * case_.senders * case_.messages; }
  void fail(const char* what) {
    const char* none = nullptr;
    error_.compare_exchange_strong(none, what, std::memory_order_seq_cst);
  }
  bool is_stopped() const {
    return error_.load(std::memory_order_relaxed) != nullptr ||
           matched_.load(std::memory_order_relaxed) == total();
  }
  std::uint64_t tick() { return tick_.fetch_add(1, std::memory_order_seq_cst); }
  static void jitter(loop::Random& random) {
    if (random.one_in(64)) ::sched_yield();
    if (random.one_in(16))
      for (std::uint64_t turns = random.below(300); turns != 0; --turns) asm volatile("");
  }

  // ---- senders
  struct Meeting {  // threads of a source tell each other the counts of sent messages
    std::mutex mutex;
    Clocks clocks{};
  };
  void meet(std::uint32_t s, Clocks& mine, loop::Random& random) {
    Meeting& meeting = meetings_[s][random.below(2)];
    const std::lock_guard guard(meeting.mutex);
    for (std::uint32_t t = 0; t < kThreadsMost; ++t)
      for (std::uint32_t a = 0; a < kTags; ++a)
        mine[t][a] = meeting.clocks[t][a] = std::max(mine[t][a], meeting.clocks[t][a]);
  }
  struct Sent {
    std::vector<std::byte> bytes;
    Pending* pending;
    Body body;
  };
  /// It is never received.
  void cancel_one(std::vector<Sent>& sent, std::vector<Body>& cancelled, loop::Random& random) {
    if (sent.empty()) return;
    const std::size_t at = random.below(sent.size());
    if (!Communicator::cancel(*sent[at].pending)) return;
    if (!outcome(*sent[at].pending).is_cancelled) fail("a cancelled send is not done");
    release(*sent[at].pending);
    cancelled.push_back(sent[at].body);
    sent.erase(sent.begin() + static_cast<std::ptrdiff_t>(at));
    matched_.fetch_add(1, std::memory_order_relaxed);
  }
  static void reap(std::vector<Sent>& sent) {
    std::erase_if(sent, [](const Sent& one) {
      if (!is_done(*one.pending)) return false;
      EXPECT_TRUE(outcome(*one.pending).status.ok());
      release(*one.pending);
      return true;
    });
  }
  void send_all(std::uint32_t s, std::uint32_t t) {
    loop::Random random(case_.seed * 64 + s * 8 + t);
    Communicator& communicator = *all_[s];
    Clocks mine{};
    std::vector<Sent> sent;
    for (std::uint64_t i = 0; i < case_.messages; ++i) {
      if (random.one_in(2)) meet(s, mine, random);
      const auto tag = static_cast<std::uint32_t>(random.below(kTags));
      const std::uint64_t kind = random.below(16);
      const std::size_t bytes = sizeof(Body) + (kind == 0  ? random.below(kBytesMax - sizeof(Body))
                                                : kind < 3 ? 100
                                                           : 0);
      std::vector<std::byte> message(bytes, static_cast<std::byte>(tag));
      const Body body{s, t, tag, mine[t][tag], static_cast<std::uint32_t>(bytes), mine};
      std::memcpy(message.data(), &body, sizeof body);
      jitter(random);
      auto posted = communicator.send(kSources, tag, {message.data(), bytes},
                                      random.one_in(8) ? Mode::synchronous : Mode::standard);
      if (!posted) return fail("a send fails");
      ++mine[t][tag];
      if (*posted != nullptr) sent.push_back({std::move(message), *posted, body});
      if (random.one_in(16)) cancel_one(sent, cancelled_[s][t], random);
      if (random.one_in(8)) (void)communicator.poll();
      while (i * case_.senders * kSources > matched_.load(std::memory_order_relaxed) + kWindow &&
             !is_stopped()) {
        (void)job_.at(static_cast<int>(s)).engine->progress_all();
        ::sched_yield();
      }
      reap(sent);
    }
    while (!is_stopped() || !sent.empty()) {
      if (error_.load(std::memory_order_relaxed) != nullptr) return;
      (void)job_.at(static_cast<int>(s)).engine->progress_all();
      reap(sent);
      ::sched_yield();
    }
  }

  // ---- receivers
  void note(std::uint32_t me, const Event& event) {
    events_[me].push_back(event);
    if (!event.is_look) matched_.fetch_add(1, std::memory_order_relaxed);
  }
  Body body_of(const std::byte* bytes, const Envelope& envelope) {
    Body body;
    std::memcpy(&body, bytes, sizeof body);
    if (envelope.tag != body.tag || envelope.bytes != body.bytes ||
        envelope.source != static_cast<int>(body.source))
      fail("an envelope does not fit its message");
    return body;
  }
  static bool fits(int from, std::int64_t tag, const Body& body) {
    return (from == kAnySource || from == static_cast<int>(body.source)) &&
           (tag == kAnyTag || tag == static_cast<std::int64_t>(body.tag));
  }
  void reap(std::uint32_t me, std::array<Slot, kSlots>& mine) {
    for (Slot& one : mine) {
      if (one.pending == nullptr || !is_done(*one.pending)) continue;
      const Outcome end = outcome(*one.pending);
      release(*std::exchange(one.pending, nullptr));
      if (end.is_cancelled) {
        if (one.is_passed_over) fail("an older receive is passed over");
        continue;
      }
      if (!end.status.ok()) return fail("a receive fails");
      const Body body = body_of(one.into.data(), end.envelope);
      for (Slot& other : mine)
        // A receive that is done has got a message, or was cancelled before this one got its own.
        if (other.pending != nullptr && !is_done(*other.pending) && other.end < one.begin &&
            fits(other.from, other.tag, body))
          other.is_passed_over = true;  // unless it gets one now
      note(me, {one.from, one.tag, one.begin, one.end, false, body});
    }
  }
  void post(Slot& one, int from, std::int64_t tag) {
    one.from = from;
    one.tag = tag;
    one.is_passed_over = false;
    one.begin = tick();
    auto posted = all_[kSources]->receive(from, tag, {one.into.data(), one.into.size()});
    one.end = tick();
    if (!posted) return fail("a receive is not posted");
    one.pending = *posted;
  }
  bool take(std::uint32_t me, int from, std::int64_t tag, Body* got) {
    Envelope seen{};
    const std::uint64_t begin = tick();
    Taken* const taken = all_[kSources]->take(from, tag, &seen);
    const std::uint64_t end = tick();
    if (taken == nullptr) return false;
    std::array<std::byte, kBytesMax> into;
    Pending& pending = **Communicator::receive(*taken, {into.data(), into.size()});
    while (!is_done(pending)) (void)poll(pending);
    release(pending);
    *got = body_of(into.data(), seen);
    note(me, {from, tag, begin, end, false, *got});
    return true;
  }
  /// A probe, then the receive of the source and tag that it has shown.
  void probe_then_receive(std::uint32_t me, int from, std::int64_t tag, loop::Random& random) {
    const std::unique_lock alone(alone_);
    Envelope shown{}, other{};
    const std::uint64_t begin = tick();
    if (!all_[kSources]->look(from, tag, &shown)) return;
    const std::uint64_t end = tick();
    for (std::uint64_t turns = random.below(3); turns != 0; --turns) (void)all_[kSources]->poll();
    if (random.one_in(2) && !all_[kSources]->look(shown.source, kAnyTag, &other))
      fail("a probe with a wildcard does not see a message that was shown before");
    Body got{};
    if (!take(me, shown.source, std::int64_t{shown.tag}, &got))
      return fail("a message that was shown is gone");
    if (got.bytes != shown.bytes) fail("a receive gets another message than the probe has shown");
    events_[me].push_back({from, tag, begin, end, true, got});
  }
  void act(std::uint32_t me, std::array<Slot, kSlots>& mine, std::uint64_t& phase,
           loop::Random& random) {
    if (random.one_in(200)) phase = random.below(3);  // no wildcard tags, some, many
    const std::int64_t tag =
        random.below(16) < phase * 4 ? kAnyTag : static_cast<std::int64_t>(random.below(kTags));
    const int from = random.one_in(2) ? kAnySource : static_cast<int>(random.below(kSources));
    const std::uint64_t choice = random.below(64);
    if (choice == 0) return probe_then_receive(me, from, tag, random);
    const std::shared_lock shared(alone_);
    Slot& one = mine[random.below(kSlots)];
    Body got;
    if (choice < 32) {
      if (one.pending == nullptr) post(one, from, tag);
    } else if (choice < 40) {
      (void)take(me, from, tag, &got);
    } else if (choice < 44) {
      if (one.pending != nullptr && random.one_in(4)) (void)Communicator::cancel(*one.pending);
    } else if (choice < 54) {
      (void)(one.pending == nullptr ? all_[kSources]->poll() : poll(*one.pending));
    } else {
      (void)job_.at(kSources).engine->progress_all();
    }
    jitter(random);
  }
  void receive(std::uint32_t me) {
    using Steady = std::chrono::steady_clock;
    loop::Random random(case_.seed * 64 + 48 + me);
    std::array<Slot, kSlots> mine;
    std::uint64_t phase = 1, before = 0, idle = 0;
    auto last = Steady::now();
    while (!is_stopped()) {
      act(me, mine, phase, random);
      reap(me, mine);
      const std::uint64_t now = matched_.load(std::memory_order_relaxed);
      if (now != before) {
        before = now;
        idle = 0;
        last = Steady::now();
      } else if (++idle % 256 == 0) {
        phase = random.below(3);
        const std::shared_lock shared(alone_);
        for (Slot& one : mine)
          if (one.pending != nullptr) (void)Communicator::cancel(*one.pending);
        if (Steady::now() - last > std::chrono::seconds(60)) fail("stuck");
      }
    }
    for (Slot& one : mine) {
      if (one.pending != nullptr) (void)Communicator::cancel(*one.pending);
      for (int i = 0; i < 100'000 && one.pending != nullptr && !is_done(*one.pending); ++i)
        (void)poll(*one.pending);
    }
    reap(me, mine);
  }

  // ---- oracle
  /// Of a message and one that happened before it, both fit for a receive or probe that got or
  /// showed the former: the latter went to a receive that was not posted later.
  void check() {
    std::vector<std::uint64_t> begins[kSources][kThreadsMost][kTags];
    for (auto& of_source : begins)
      for (auto& of_thread : of_source)
        for (auto& of_tag : of_thread) of_tag.resize(case_.messages);
    for (const auto& of_thread : events_)
      for (const Event& event : of_thread) {
        if (event.is_look) continue;
        const Body& body = event.body;
        std::uint64_t& begin = begins[body.source][body.thread][body.tag][body.nth];
        ASSERT_EQ(begin, 0u) << "a message is received twice";
        begin = event.begin;
      }
    for (const auto& of_source : cancelled_)
      for (const auto& of_thread : of_source)
        for (const Body& body : of_thread)
          ASSERT_EQ(begins[body.source][body.thread][body.tag][body.nth], 0u)
              << "a cancelled message is received";
    for (auto& of_source : begins)
      for (auto& of_thread : of_source)
        for (auto& of_tag : of_thread)
          std::partial_sum(of_tag.begin(), of_tag.end(), of_tag.begin(),
                           [](std::uint64_t a, std::uint64_t b) { return std::max(a, b); });
    for (const auto& of_thread : events_)
      for (const Event& event : of_thread)
        for (std::uint32_t t = 0; t < case_.senders; ++t)
          for (std::uint32_t a = 0; a < kTags; ++a) {
            const std::uint32_t count = event.body.before[t][a];
            if (count == 0 || (event.tag != kAnyTag && event.tag != std::int64_t{a})) continue;
            ASSERT_LT(begins[event.body.source][t][a][count - 1], event.end)
                << "overtaken: tag " << a << " of thread " << t << " by tag " << event.body.tag
                << " of thread " << event.body.thread << (event.is_look ? ", seen" : ", received");
          }
  }

  static constexpr std::uint64_t kWindow = 300;  // unmatched messages; bounds memory
  const Case case_;
  Job job_;
  std::vector<Communicator*> all_;
  std::array<std::array<Meeting, 2>, kSources> meetings_;
  std::array<std::array<std::vector<Body>, kThreadsMost>, kSources> cancelled_;
  std::vector<std::vector<Event>> events_;
  std::atomic<std::uint64_t> matched_{0}, tick_{1};
  std::atomic<const char*> error_{nullptr};
  std::shared_mutex alone_;
};

TEST(ByTagRace, NoMatchOvertakesAMessageThatHappenedBefore) {
  for_seeds(12, [](std::uint64_t seed) {
    Torture({.seed = seed,
             .senders = 1 + static_cast<std::uint32_t>(seed % 4),
             .receivers = 1 + static_cast<std::uint32_t>(seed % 3),
             .messages = 800})
        .run();
  });
}

}  // namespace
}  // namespace larklane::msg
