// Channels over a network that keeps no order: two processes' engines in one thread, and every step
// that anybody can take (programs, helpers, control connection, network) in a seeded order. Against
// a plain model: whose bytes are in which buffer, when, and who may complete.
// LARKLANE_SEED=N repeats one run.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "net/loop/fabric.hpp"
#include "net/loop/random.hpp"
#include "network_side.hpp"
#include "part/net_cells.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LARKLANE_PROP_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LARKLANE_PROP_SANITIZED 1
#endif
#endif

namespace larklane::part {
namespace {

#ifdef LARKLANE_PROP_SANITIZED
constexpr std::uint64_t kSeeds = 200;
#else
constexpr std::uint64_t kSeeds = 4000;
#endif
constexpr std::byte kCanary{0xEE};
constexpr int kStepsMost = 5'000'000;

std::byte byte_of(std::uint64_t channel, std::uint64_t round, std::uint64_t index) {
  return std::byte(1 + (index * 7 + round * 41 + channel * 19) % 230);
}

/// What one pair of programs does: each round in the same way, at its own pace.
struct Pair {
  std::uint64_t number = 0;
  std::int32_t send_partitions = 1, recv_partitions = 1;
  std::uint64_t bytes = 0, rounds = 1;
  std::vector<std::uint32_t> groups;
  GroupRules rules{};
  bool receiver_sits = false;  ///< it asks only when nothing else can happen
  bool is_answered = false;    ///< what was ready before has to be seen, before more gets ready
  std::vector<std::byte> from, to;
  SendRequest* send = nullptr;
  RecvRequest* recv = nullptr;
  std::uint64_t send_round = 0, recv_round = 0;
  std::vector<std::int32_t> unready;
  std::int32_t last_ready = -1;
  std::vector<bool> seen;  ///< by receive partition, in the receiver's round
  bool send_freed = false, recv_freed = false;

  bool is_over() const { return send_freed && recv_freed; }
};

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed), wire_(options(seed)) {
    sides_[0] = std::make_unique<Side>(wire_.for_process(), lanes(), "receiver");
    sides_[1] = std::make_unique<Side>(wire_.for_process(), lanes(), "sender");
    const std::uint64_t count = 1 + random_.below(3);
    for (std::uint64_t n = 0; n < count; ++n) pairs_.push_back(make_pair(n));
  }

  /// One process ends at any time; the other one's programs hear of it, or have what they need.
  void run_until_one_dies() {
    const std::uint64_t dead = random_.below(2), steps = random_.below(4000);
    for (std::uint64_t step = 0; step < steps && !testing::Test::HasFailure(); ++step) take_step();
    survive(dead);
  }

  void run() {
    for (int step = 0; step < kStepsMost && !testing::Test::HasFailure(); ++step) {
      if (std::all_of(pairs_.begin(), pairs_.end(), [](const Pair& p) { return p.is_over(); }))
        return end();
      take_step();
    }
    if (!testing::Test::HasFailure()) ADD_FAILURE() << "somebody waits for ever: " << text();
  }

 private:
  loop::Fabric::Options options(std::uint64_t seed) {
    loop::Fabric::Options o;
    o.seed = seed;
    o.turns_per_poll = 0;
    o.queue_depth = random_.one_in(3) ? 2 : 64;
    o.limits.is_progress_manual = random_.one_in(2);
    is_cut_ = random_.one_in(3);
    if (is_cut_) o.limits.write_bytes_max = o.limits.read_bytes_max = 64;
    if (random_.one_in(3)) o.limits.immediates_max = 0;
    if (random_.one_in(3)) o.limits.channel_partitions_max = net::paper::kPartitionsMax;
    return o;
  }

  /// The sides need not have as many.
  vci::VciPool::Options lanes() {
    constexpr vci::Mapping kMappings[] = {vci::Mapping::spread, vci::Mapping::thread,
                                          vci::Mapping::communicator};
    return {1u << random_.below(3), kMappings[random_.below(3)],
            static_cast<std::uint32_t>(1 + random_.below(4))};
  }

  /// A turn of one of its lanes.
  void turn_lane(Side& side) {
    std::uint64_t skip = random_.below(side.network->lanes().count_max());
    side.network->lanes().for_each([&](vci::Vci& lane) {
      if (skip-- == 0) (void)lane.progress();
    });
  }

  void survive(std::uint64_t dead) {
    Side& side = *sides_[1 - dead];
    // Its control connection has been read to its end before anybody hears that it is gone.
    while (!sides_[dead]->other.sent.empty()) deliver(dead);
    wire_.kill_process(static_cast<std::uint32_t>(dead + 1));
    side.other.is_dead = true;
    side.state->down.store(true, std::memory_order_release);
    side.network->on_peer_down(side.other);
    for (Pair& p : pairs_) {
      Request* const request = dead == 0 ? static_cast<Request*>(p.recv) : p.send;
      if (request == nullptr || (dead == 0 ? p.recv_freed : p.send_freed)) continue;
      end_round(p, *request);
      ASSERT_TRUE(side.network->free(request).ok()) << "active after its peer has died";
    }
    for (int turn = 0; turn < 100; ++turn) {
      (void)wire_.settle();
      (void)side.network->lanes().progress_all();
    }
    side.network->settle();
    for (auto& one : sides_) one->network.reset();
    (void)wire_.take_violations();  // of the dead process
  }

  /// A round that is open when the peer dies is complete, and then its bytes are right, or fails.
  void end_round(Pair& p, Request& request) {
    Completion completion = request.active() ? request.poll() : Completion::complete;
    for (int poll = 0; poll < 10'000 && completion == Completion::pending; ++poll) {
      (void)wire_.turn(3);
      completion = request.poll();
    }
    ASSERT_NE(completion, Completion::pending) << "waits for a dead process" << text();
    if (!request.active()) return;
    if (completion == Completion::failed) {
      EXPECT_FALSE(request.error().ok());
      EXPECT_NE(request.error_text(), "");
    } else if (&request == p.recv) {
      for (std::uint64_t i = 0; i < p.bytes; ++i)
        ASSERT_EQ(p.to[i], byte_of(p.number, p.recv_round, i)) << "said to be complete";
    }
    request.finish();
  }

  Pair make_pair(std::uint64_t number) {
    Pair p;
    p.number = number;
    const std::uint64_t unit = random_.below(4) == 0 ? 0 : 1 + random_.below(is_cut_ ? 4 : 40);
    const auto s = 1 + random_.below(random_.one_in(4) ? 300 : 12);
    const auto r = 1 + random_.below(12);
    p.send_partitions = static_cast<std::int32_t>(s);
    p.recv_partitions = static_cast<std::int32_t>(r);
    p.bytes = unit * std::lcm(s, r);
    p.rounds = 1 + random_.below(5);
    p.groups = {0};
    for (std::uint32_t b = 1; b < s; ++b)
      if (random_.one_in(1 + random_.below(4))) p.groups.push_back(b);
    p.receiver_sits = random_.one_in(2);
    choose_rules(p);
    p.from.assign(p.bytes, std::byte{0});
    p.to.assign(p.bytes, kCanary);
    return p;
  }

  /// Deadlines that are over at once, or never: the schedule alone decides.
  void choose_rules(Pair& p) {
    constexpr std::uint64_t kHour = 3'600'000'000'000;
    if (random_.one_in(2)) return;
    p.is_answered = p.send_partitions <= 12 && random_.one_in(2);
    p.rules.demand_after_ns = p.is_answered || random_.one_in(2) ? 0 : kHour;
    p.rules.is_learned = random_.one_in(2);
    if (!p.rules.is_learned) p.rules.deadline_ns = random_.one_in(2) ? 1 : kHour;
    if (p.is_answered) p.recv_partitions = p.send_partitions;
  }

  InitArgs args(const Pair& p, bool is_send) {
    InitArgs a;
    a.context = {1, 2 + p.number};
    a.tag = static_cast<std::int32_t>(random_tag_of(p));
    a.peer = is_send ? "receiver" : "sender";
    a.buffer = const_cast<std::byte*>(is_send ? p.from.data() : p.to.data());
    a.partitions = is_send ? p.send_partitions : p.recv_partitions;
    a.count = p.bytes / static_cast<std::uint64_t>(a.partitions);
    a.type = std::make_shared<const Typemap>(Typemap::contiguous(1));
    return a;
  }
  static std::uint64_t random_tag_of(const Pair& p) { return p.number; }

  void take_step() {
    const std::uint64_t what = random_.below(10);
    if (what < 2) return deliver(random_.below(2));
    if (what < 4) return turn_lane(*sides_[random_.below(2)]);
    if (what < 7) return (void)wire_.turn(1 + random_.below(3));
    Pair& p = pairs_[random_.below(pairs_.size())];
    what == 7 ? receiver_step(p) : sender_step(p);
  }

  /// A record of process `from` reaches the other.
  void deliver(std::uint64_t from) { (void)sides_[from]->deliver_to(*sides_[1 - from]); }

  void sender_step(Pair& p) {
    if (p.send_freed) return;
    Network& network = *sides_[0]->network;
    if (p.send == nullptr) {
      auto made = network.send_init(args(p, true), sides_[0]->state, p.groups, p.rules);
      ASSERT_TRUE(made.has_value()) << errc_name(made.error().code());
      p.send = *made;
    } else if (!p.send->active()) {
      if (p.send_round == p.rounds) {
        ASSERT_TRUE(network.free(p.send).ok());
        p.send_freed = true;
        return;
      }
      ++p.send_round;
      for (std::uint64_t i = 0; i < p.bytes; ++i) p.from[i] = byte_of(p.number, p.send_round, i);
      ASSERT_TRUE(p.send->start().ok());
      p.unready.resize(static_cast<std::size_t>(p.send_partitions));
      std::iota(p.unready.begin(), p.unready.end(), 0);
      p.last_ready = -1;
    } else if (!p.unready.empty()) {
      if (p.is_answered && p.last_ready >= 0 &&
          (p.recv_round != p.send_round || !p.seen[static_cast<std::size_t>(p.last_ready)]))
        return;
      const std::size_t at = random_.below(p.unready.size());
      p.last_ready = p.unready[at];
      ASSERT_TRUE(p.send->pready(p.last_ready).ok());
      p.unready.erase(p.unready.begin() + static_cast<std::ptrdiff_t>(at));
      if (!p.unready.empty() && random_.one_in(8)) {
        EXPECT_EQ(p.send->poll(), Completion::pending) << "complete before it is ready";
      }
    } else if (p.send->poll() == Completion::complete) {
      p.send->finish();
      std::fill(p.from.begin(), p.from.end(), std::byte{0});  // the program's again
    }
  }

  void receiver_step(Pair& p) {
    if (p.recv_freed) return;
    Network& network = *sides_[1]->network;
    if (p.recv == nullptr) {
      auto made = network.recv_init(args(p, false), sides_[1]->state);
      ASSERT_TRUE(made.has_value()) << errc_name(made.error().code());
      p.recv = *made;
    } else if (!p.recv->active()) {
      for (const std::byte b : p.to) ASSERT_EQ(b, kCanary) << "written outside of a round";
      if (p.recv_round == p.rounds) {
        ASSERT_TRUE(network.free(p.recv).ok());
        p.recv_freed = true;
        return;
      }
      ++p.recv_round;
      p.seen.assign(static_cast<std::size_t>(p.recv_partitions), false);
      ASSERT_TRUE(p.recv->start().ok());
    } else if (!p.receiver_sits || is_quiet()) {
      if (p.receiver_sits && !p.rules.take_demands()) expect_early(p);
      ask(p);
      if (p.recv->poll() != Completion::complete) return;
      p.recv->finish();
      for (std::uint64_t i = 0; i < p.bytes; ++i)
        ASSERT_EQ(p.to[i], byte_of(p.number, p.recv_round, i))
            << "round " << p.recv_round << " i " << i << " of " << p.number << text();
      std::fill(p.to.begin(), p.to.end(), kCanary);
    }
  }

  /// Nothing is on its way but what the programs have to do: helpers have had their turns.
  bool is_quiet() {
    for (auto& side : sides_) (void)side->network->lanes().progress_all();
    return sides_[0]->other.sent.empty() && sides_[1]->other.sent.empty() &&
           wire_.under_way_count() == 0;
  }

  /// What was ready has arrived, although its receiver has not asked, and others are not ready.
  void expect_early(Pair& p) {
    if (p.send == nullptr || !p.send->active() || p.send_round != p.recv_round) return;
    const auto s = static_cast<std::uint32_t>(p.send_partitions);
    const auto groups = cell_boundaries(s, p.groups);
    std::vector<bool> travels(s, true);
    for (const std::int32_t unready : p.unready) {
      const auto next = std::upper_bound(groups.begin(), groups.end(), std::uint32_t(unready));
      std::fill(travels.begin() + *(next - 1),
                next == groups.end() ? travels.end() : travels.begin() + *next, false);
    }
    for (std::int32_t j = 0; j < p.recv_partitions; ++j) {
      const Run under =
          overlap(static_cast<std::uint32_t>(j), static_cast<std::uint32_t>(p.recv_partitions), s);
      if (!std::all_of(travels.begin() + under.first, travels.begin() + under.first + under.count,
                       [](bool one) { return one; }))
        continue;
      bool arrived = false;
      ASSERT_TRUE(p.recv->parrived(j, &arrived).ok());
      EXPECT_TRUE(arrived) << "partition " << j << " is ready, and not there" << text();
    }
  }

  void ask(Pair& p) {
    const auto partition =
        static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(p.recv_partitions)));
    bool arrived = false;
    ASSERT_TRUE(p.recv->parrived(partition, &arrived).ok());
    if (!arrived) return;
    p.seen[static_cast<std::size_t>(partition)] = true;
    const std::uint64_t share = p.bytes / static_cast<std::uint64_t>(p.recv_partitions);
    const std::uint64_t begin = static_cast<std::uint64_t>(partition) * share;
    for (std::uint64_t i = begin; i < begin + share; ++i)
      ASSERT_EQ(p.to[i], byte_of(p.number, p.recv_round, i)) << "said to have arrived";
  }

  /// All has been freed: nothing is left.
  void end() {
    for (int turn = 0; turn < 1000; ++turn) {
      deliver(0);
      deliver(1);
      (void)wire_.settle();
      for (auto& side : sides_) (void)side->network->lanes().progress_all();
    }
    for (auto& side : sides_) side->network->settle();
    for (auto& side : sides_) side->network.reset();
    for (const loop::Violation& violation : wire_.take_violations())
      ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
  }

  std::string text() const {
    std::string all;
    for (const Pair& p : pairs_)
      all += "\n learned " + std::to_string(p.rules.is_learned) + " dl " +
             std::to_string(p.rules.deadline_ns) + " groups " + std::to_string(p.groups.size()) +
             " S " + std::to_string(p.send_partitions) + " R " + std::to_string(p.recv_partitions) +
             " bytes " + std::to_string(p.bytes) + " send round " + std::to_string(p.send_round) +
             " receive round " + std::to_string(p.recv_round) + " of " + std::to_string(p.rounds);
    return all;
  }

  loop::Random random_;
  bool is_cut_ = false;  ///< what is longer than 64 bytes
  loop::Fabric wire_;
  std::unique_ptr<Side> sides_[2];  // sender, receiver
  std::vector<Pair> pairs_;
};

template <class Run>
void for_seeds(std::uint64_t count, Run&& run) {
  const auto one = [&](std::uint64_t seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    World world(seed);
    run(world);
  };
  if (const char* const given = std::getenv("LARKLANE_SEED"))
    return one(std::strtoull(given, nullptr, 10));
  for (std::uint64_t seed = 1; seed <= count && !testing::Test::HasFailure(); ++seed) one(seed);
}

TEST(NetworkProperty, EveryScheduleMovesEveryByteOnceAndNobodyWaitsForEver) {
  for_seeds(kSeeds, [](World& world) { world.run(); });
}

TEST(NetworkProperty, WhoeverDiesTheOtherOneHearsOfIt) {
  for_seeds(kSeeds / 2, [](World& world) { world.run_until_one_dies(); });
}

}  // namespace
}  // namespace larklane::part
