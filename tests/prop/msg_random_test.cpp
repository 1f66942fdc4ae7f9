// Random messages of two processes against MPI's rules: threads send, receive, probe and cancel on
// communicators that are opened and closed; every byte, envelope and order is checked.
//
//   msg_random_test [--seed N] [--messages N] [--threads N]    (LARKLANE_SEED: the seed)

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "msg/protocol/communicator.hpp"
#include "race/together.hpp"
#include "unit/communicator_job.hpp"

namespace larklane::msg {
namespace {

std::uint64_t first_seed = 1, message_count = 40'000;
std::uint32_t thread_count = 4;

constexpr std::uint32_t kTags = 4;
constexpr std::size_t kWord = sizeof(std::uint64_t);

std::uint64_t word_at(std::uint64_t name, std::size_t position) {
  return (name + position) * 0x9e37'79b9'7f4a'7c15u ^ position << 32;
}
void fill(std::byte* to, std::size_t bytes, std::uint64_t name) {
  for (std::size_t at = 0; at < bytes; at += kWord) {
    const std::uint64_t word = at == 0 ? name : word_at(name, at);
    std::memcpy(to + at, &word, std::min(kWord, bytes - at));
  }
}
bool is_filled(const std::byte* from, std::size_t bytes, std::uint64_t name) {
  for (std::size_t at = 0; at < bytes; at += kWord) {
    const std::uint64_t word = at == 0 ? name : word_at(name, at);
    if (std::memcmp(from + at, &word, std::min(kWord, bytes - at)) != 0) return false;
  }
  return true;
}

/// A message, by its sender. Its first word, if it has one, names it.
struct Sent {
  std::uint32_t communicator = 0, tag = 0;
  int to = 0;
  std::size_t bytes = 0;
  std::unique_ptr<std::byte[]> data;
  Pending* pending = nullptr;
  bool needs_match = false, is_cancelled = false, was_done = false, is_left_over = false;
  int received = 0;
};
/// A receive, or a message that a probe has taken, in the order of its communicator's receiver.
struct Received {
  enum class State : std::uint8_t { waits, cancelled, matched };
  int from = kAnySource;
  std::int64_t tag = kAnyTag;
  std::size_t room = 0;
  std::unique_ptr<std::byte[]> into;
  Pending* pending = nullptr;
  State state = State::waits;
  int source = 0;
  std::uint32_t message_tag = 0;
  std::optional<Envelope> shown;  // by a probe
  std::optional<std::pair<std::uint32_t, std::uint32_t>>
      message;  // thread and index; if it is known

  bool fits(int a_source, std::uint32_t a_tag) const {
    return (from == kAnySource || from == a_source) &&
           (tag == kAnyTag || tag == static_cast<std::int64_t>(a_tag));
  }
};
struct Thread {
  std::deque<Sent> sent;
};
/// One process's end of a communicator: one thread receives there.
struct End {
  Communicator* communicator = nullptr;
  std::deque<Received> received;
};

class World {
 public:
  World(Job::Options options, bool has_cancel, std::uint64_t seed)
      : job_(std::move(options)),
        has_cancel_(has_cancel),
        seed_(seed),
        threads_(thread_count),
        ends_{std::vector<End>(thread_count), std::vector<End>(thread_count)} {
    job_.connect_all_lanes();
  }

  void run() {
    for (std::uint64_t round = 1; sent_ < message_count && !testing::Test::HasFailure(); ++round) {
      SCOPED_TRACE("seed " + std::to_string(seed_) + ", round " + std::to_string(round));
      play(round);
    }
  }

 private:
  Engine& engine(int rank) { return *job_.at(rank).engine; }
  static int rank_of(std::uint32_t thread) { return static_cast<int>(thread % 2); }
  End& end_of(int rank, std::uint32_t communicator) {
    return ends_[static_cast<std::size_t>(rank)][communicator];
  }
  /// The communicators that a thread receives on.
  std::uint32_t one_of_own(std::uint32_t thread, loop::Random& random) const {
    const std::uint32_t each = thread_count / 2, slot = thread / 2;
    return slot + each * static_cast<std::uint32_t>(random.below(thread_count / each));
  }

  void play(std::uint64_t round) {
    loop::Random random(seed_ * 1'000'003 + round);
    const std::uint64_t kind = random.below(50);
    size_max_ = kind == 0 ? 8u << 20 : kind < 8 ? 70'000 : kind < 25 ? 4096 : 200;
    has_wildcards_ = !random.one_in(3);
    is_drained_ = !has_cancel_ || random.one_in(2);
    Hints hints{.no_any_source = !has_wildcards_, .no_any_tag = !has_wildcards_};
    if (job_.options.lanes_by_tag) hints = {.lanes_by_tag = Hints::LanesByTag::by_visibility};
    open(round, hints);
    const int steps = kind == 0 ? 8 : 150;
    together(thread_count, [&](std::uint32_t thread) {
      loop::Random own(seed_ * 7'919 + round * 64 + thread);
      for (int step = 0; step < steps; ++step) act(thread, own);
    });
    settle();
    for (Thread& thread : threads_)
      for (Sent& sent : thread.sent)
        sent.was_done = sent.pending == nullptr || is_done(*sent.pending);
    if (is_drained_) take_the_rest();
    settle();
    finish();
    check();
    for (Thread& thread : threads_) {
      sent_ += thread.sent.size();
      thread.sent.clear();
    }
    for (auto& of_rank : ends_)
      for (End& end : of_rank) end.received.clear();
  }
  /// The second process opens them while messages come, and the first one closes others.
  void open(std::uint64_t round, const Hints& hints) {
    constexpr std::array members{0, 1};
    const std::optional<Creation> creation(engine(1));
    for (int rank = 0; rank < 2; ++rank)
      for (std::uint32_t number = 0; number < thread_count; ++number) {
        const ContextId id{round, (round * 64 + number) * 0x9e37'79b9'7f4a'7c15u};
        auto opened = engine(rank).open(id, members, rank, hints);
        ASSERT_TRUE(opened);
        end_of(rank, number).communicator = *opened;
        loop::Random random(round + number);
        if (rank == 0)
          for (int i = 0; i < 3; ++i) send(0, number, random);
        if (rank == 0 && number % 2 == 0) job_.step();
      }
  }

  void act(std::uint32_t thread, loop::Random& random) {
    const auto any = static_cast<std::uint32_t>(random.below(thread_count));
    const std::uint32_t own = one_of_own(thread, random);
    const std::uint64_t what = random.below(100);
    End& end = end_of(rank_of(thread), own);
    if (what < 40) return send(thread, any, random);
    if (what < 75) return receive(end, random);
    if (what < 85) return probe(end, random);
    if (what < 89) return cancel_one(end, random);
    if (what < 93) return cancel_one(threads_[thread], random);
    for (Received& one : end.received) reap(one);
    (void)end.communicator->poll();
  }
  std::size_t a_length(loop::Random& random) const {
    const std::uint64_t kind = random.below(8);
    return kind == 0 ? 0 : kind < 6 ? random.below(64) : random.below(size_max_ + 1);
  }
  static std::uint64_t name_of(std::uint32_t thread, std::size_t index) {
    return std::uint64_t{0xabcd} << 48 | std::uint64_t{thread} << 32 | index;
  }
  void send(std::uint32_t thread, std::uint32_t communicator, loop::Random& random) {
    Thread& mine = threads_[thread];
    Sent& sent = mine.sent.emplace_back();
    sent.communicator = communicator;
    sent.to = static_cast<int>(random.below(2));
    sent.tag = static_cast<std::uint32_t>(random.below(kTags));
    sent.bytes = a_length(random);
    sent.data.reset(new std::byte[sent.bytes]);
    fill(sent.data.get(), sent.bytes, name_of(thread, mine.sent.size() - 1));
    auto posted = end_of(rank_of(thread), communicator)
                      .communicator->send(sent.to, sent.tag, {sent.data.get(), sent.bytes},
                                          random.one_in(5) ? Mode::synchronous : Mode::standard);
    ASSERT_TRUE(posted);
    sent.pending = *posted;
    sent.needs_match = sent.pending != nullptr;
    if (!sent.needs_match) std::fill_n(sent.data.get(), sent.bytes, std::byte{});
  }
  void choose(Received& one, loop::Random& random) const {
    if (!has_wildcards_ || !random.one_in(4)) one.from = static_cast<int>(random.below(2));
    if (!has_wildcards_ || !random.one_in(4)) one.tag = static_cast<int>(random.below(kTags));
  }
  static void make_room(Received& one, std::size_t bytes) {
    one.room = bytes;
    one.into.reset(new std::byte[bytes]);
    if (bytes != 0) one.into[0] = std::byte{};
  }
  void receive(End& end, loop::Random& random) {
    Received& one = end.received.emplace_back();
    choose(one, random);
    make_room(one, random.one_in(10) ? random.below(64) : std::max<std::size_t>(size_max_, 64));
    auto posted = end.communicator->receive(one.from, one.tag, {one.into.get(), one.room});
    ASSERT_TRUE(posted);
    one.pending = *posted;
  }
  /// The next receive gets the message that a probe shows.
  void probe(End& end, loop::Random& random) {
    Received one;
    choose(one, random);
    Envelope seen{}, taken_as{};
    if (!end.communicator->look(one.from, one.tag, &seen)) return;
    EXPECT_TRUE(one.fits(seen.source, seen.tag));
    if (is_drained_ && random.one_in(3)) return;  // else it could be neither received nor cancelled
    EXPECT_TRUE(take(end, one, random.one_in(2), &taken_as));
    EXPECT_EQ(seen.source, taken_as.source);
    EXPECT_EQ(seen.tag, taken_as.tag);
    EXPECT_EQ(seen.bytes, taken_as.bytes);
  }
  bool take(End& end, const Received& asked, bool by_take, Envelope* shown) {
    Taken* taken = nullptr;
    if (by_take) {
      taken = end.communicator->take(asked.from, asked.tag, shown);
      if (taken == nullptr) return false;
    } else if (!end.communicator->look(asked.from, asked.tag, shown)) {
      return false;
    }
    Received& one = end.received.emplace_back();
    one.from = asked.from;
    one.tag = asked.tag;
    make_room(one, shown->bytes);
    const UserBytes to{one.into.get(), one.room};
    auto posted = by_take ? Communicator::receive(*taken, to)
                          : end.communicator->receive(asked.from, asked.tag, to);
    EXPECT_TRUE(posted);
    one.pending = *posted;
    one.shown = *shown;
    return true;
  }
  void cancel_one(End& end, loop::Random& random) {
    if (end.received.empty()) return;
    Received& one = end.received[random.below(end.received.size())];
    if (one.pending == nullptr || !Communicator::cancel(*one.pending)) return;
    EXPECT_TRUE(is_done(*one.pending));
    reap(one);
    EXPECT_EQ(one.state, Received::State::cancelled);
  }
  static void cancel_one(Thread& mine, loop::Random& random) {
    const std::size_t last = std::min<std::size_t>(mine.sent.size(), 20);
    if (last == 0) return;
    cancel(mine.sent[mine.sent.size() - 1 - random.below(last)]);
  }
  /// No byte is read after it.
  static bool cancel(Sent& sent) {
    if (sent.pending == nullptr || !Communicator::cancel(*sent.pending)) return false;
    EXPECT_TRUE(is_done(*sent.pending));
    EXPECT_TRUE(outcome(*sent.pending).is_cancelled);
    release(*std::exchange(sent.pending, nullptr));
    std::fill_n(sent.data.get(), sent.bytes, std::byte{});
    return sent.is_cancelled = true;
  }
  /// Notes the outcome of a receive that is done.
  static void reap(Received& one) {
    if (one.pending == nullptr || !is_done(*one.pending)) return;
    const Outcome out = outcome(*one.pending);
    release(*std::exchange(one.pending, nullptr));
    one.state = out.is_cancelled ? Received::State::cancelled : Received::State::matched;
    if (out.is_cancelled) return;
    one.source = out.envelope.source;
    one.message_tag = out.envelope.tag;
    ASSERT_TRUE(one.fits(one.source, one.message_tag));
    if (one.shown) {
      ASSERT_EQ(one.shown->source, one.source);
      ASSERT_EQ(one.shown->tag, one.message_tag);
      ASSERT_EQ(one.shown->bytes, out.envelope.bytes);
    }
    if (out.envelope.bytes > one.room) {
      ASSERT_EQ(out.status.code(), Errc::kSizeMismatch);
      return;
    }
    ASSERT_TRUE(out.status.ok());
    if (out.envelope.bytes < kWord) return;
    std::uint64_t name = 0;
    std::memcpy(&name, one.into.get(), sizeof name);
    const auto thread = static_cast<std::uint32_t>(name >> 32 & 0xffff);
    const auto index = static_cast<std::uint32_t>(name);
    ASSERT_EQ(name >> 48, 0xabcdu);
    ASSERT_LT(thread, thread_count);
    ASSERT_EQ(rank_of(thread), one.source);
    ASSERT_TRUE(is_filled(one.into.get(), out.envelope.bytes, name));
    one.message.emplace(thread, index);
    one.room = out.envelope.bytes;
    one.into.reset();
  }
  void settle() {
    for (int quiet = 0; quiet < 30;) {
      job_.step();
      quiet = engine(0).is_quiet() && engine(1).is_quiet() ? quiet + 1 : 0;
    }
    for (auto& of_rank : ends_)
      for (End& end : of_rank)
        for (Received& one : end.received) reap(one);
  }
  /// All has arrived: no message that is left fits a receive that is.
  void take_the_rest() {
    for (int rank = 0; rank < 2; ++rank)
      for (End& end : ends_[static_cast<std::size_t>(rank)]) {
        const std::size_t before = end.received.size();
        Envelope shown{};
        for (int source = 0; source < 2; ++source)
          for (std::int64_t tag = 0; tag < kTags; ++tag) {
            Received all;
            all.from = source;
            all.tag = tag;
            while (take(end, all, true, &shown)) {
            }
          }
        rest_.push_back({&end, before});
      }
  }
  /// Ends the operations in flight, and the communicators.
  void finish() {
    for (const auto& [end, first] : std::exchange(rest_, {}))
      for (std::size_t i = first; i < end->received.size(); ++i) {
        const auto& message = end->received[i].message;
        if (message) threads_[message->first].sent[message->second].is_left_over = true;
      }
    for (auto& of_rank : ends_)
      for (End& end : of_rank)
        for (Received& one : end.received)
          if (one.pending != nullptr) {
            EXPECT_TRUE(Communicator::cancel(*one.pending));
            release(*std::exchange(one.pending, nullptr));
          }
    for (Thread& thread : threads_)
      for (Sent& sent : thread.sent)
        if (sent.pending != nullptr && (is_done(*sent.pending) || !cancel(sent))) {
          EXPECT_TRUE(is_done(*sent.pending));
          EXPECT_TRUE(outcome(*sent.pending).status.ok());
          release(*std::exchange(sent.pending, nullptr));
        }
    for (std::uint32_t number = 0; number < thread_count; ++number) {
      end_of(number % 2, number).communicator->close();
      if (number % 3 == 0) job_.step();
      end_of(1 - number % 2, number).communicator->close();
    }
    settle();
    for (int rank = 0; rank < 2; ++rank)
      for (std::uint32_t lane = 0; lane < job_.options.lanes.count_max; ++lane)
        EXPECT_EQ(engine(rank).lane_of(lane).value()->awaited().count(), 0u);
  }

  void check() {
    for (int rank = 0; rank < 2; ++rank)
      for (std::uint32_t number = 0; number < thread_count; ++number) {
        End& end = end_of(rank, number);
        for (const Received& one : end.received) {
          if (!one.message) continue;
          ASSERT_LT(one.message->second, threads_[one.message->first].sent.size());
          Sent& sent = threads_[one.message->first].sent[one.message->second];
          ++sent.received;
          ASSERT_EQ(sent.communicator, number);
          ASSERT_EQ(sent.to, rank);
          ASSERT_EQ(sent.tag, one.message_tag);
          ASSERT_EQ(sent.bytes, one.room);
        }
        check_order(end);
        const auto matched =
            std::ranges::count(end.received, Received::State::matched, &Received::state);
        std::ptrdiff_t sent = 0;
        for (std::uint32_t thread = 0; thread < thread_count; ++thread)
          sent += std::ranges::count_if(threads_[thread].sent, [&](const Sent& one) {
            return one.communicator == number && one.to == rank && !one.is_cancelled;
          });
        if (is_drained_) {
          ASSERT_EQ(matched, sent);
        }
      }
    for (const Thread& thread : threads_)
      for (const Sent& sent : thread.sent) {
        ASSERT_LE(sent.received, sent.is_cancelled ? 0 : 1);
        if (sent.needs_match && sent.received != 0) {
          ASSERT_EQ(sent.was_done, !sent.is_left_over);
        }
      }
  }
  /// Of two receives, the earlier one got the earlier one of the messages that fit both; and none
  /// that waited to the end fits a message of a later one.
  void check_order(const End& end) const {
    using State = Received::State;
    for (std::size_t a = 0; a < end.received.size(); ++a)
      for (std::size_t b = a + 1; b < end.received.size(); ++b) {
        const Received &earlier = end.received[a], &later = end.received[b];
        if (later.state != State::matched || earlier.state == State::cancelled) continue;
        if (!earlier.fits(later.source, later.message_tag)) continue;
        ASSERT_EQ(earlier.state, State::matched) << "receives " << a << " and " << b;
        if (earlier.message && later.message && earlier.message->first == later.message->first) {
          ASSERT_LT(earlier.message->second, later.message->second)
              << "receives " << a << " and " << b;
        }
      }
  }

  Job job_;
  const bool has_cancel_;
  const std::uint64_t seed_;
  std::uint64_t sent_ = 0, size_max_ = 0;
  bool has_wildcards_ = false, is_drained_ = false;
  std::vector<Thread> threads_;
  std::array<std::vector<End>, 2> ends_;
  std::vector<std::pair<End*, std::size_t>> rest_;
};

Job::Options with_lanes(std::uint32_t lanes, Job::Options options) {
  options.lanes.count_max = lanes;
  return options;
}
TEST(RandomMessages, OverASimulatedNetwork) { World(with_lanes(2, {}), false, first_seed).run(); }
TEST(RandomMessages, OverSharedMemory) { World(with_lanes(2, over_shm()), true, first_seed).run(); }
TEST(RandomMessages, OnLanesByTag) { World(options_of(Lanes::by_tag), true, first_seed).run(); }

}  // namespace
}  // namespace larklane::msg

int main(int argc, char** argv) {
  using namespace larklane::msg;
  testing::InitGoogleTest(&argc, argv);
  if (const char* const given = std::getenv("LARKLANE_SEED"))
    first_seed = std::strtoull(given, nullptr, 10);
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--seed")
      first_seed = value;
    else if (name == "--messages")
      message_count = value;
    else if (name == "--threads" && value >= 2 && value % 2 == 0 && value <= 64)
      thread_count = static_cast<std::uint32_t>(value);
    else
      return std::fprintf(stderr, "usage: [--seed N] [--messages N] [--threads EVEN]\n"), 2;
  }
  return RUN_ALL_TESTS();
}
