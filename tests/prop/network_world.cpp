// The steps of two processes over a network, and the checks between them.

#include "network_world.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/clock.hpp"
#include "part/network/cells.hpp"

namespace larklane::part {
namespace {

constexpr std::byte kCanary{0xEE};
constexpr std::uint64_t kSlowness = 20;

InitArgs args(const Pair& p, bool is_send) {
  InitArgs a;
  a.context = {1, 2 + p.number};
  a.tag = static_cast<std::int32_t>(p.number);
  a.peer = is_send ? "receiver" : "sender";
  a.buffer = const_cast<std::byte*>(is_send ? p.from.data() : p.to.data());
  a.partitions = is_send ? p.send_partitions : p.recv_partitions;
  a.count = p.bytes / static_cast<std::uint64_t>(a.partitions);
  a.type = std::make_shared<const Typemap>(Typemap::contiguous(1));
  return a;
}

}  // namespace

World::World(std::uint64_t seed, const MakeMedium& make_medium)
    : random_(seed), medium_(make_medium(random_)) {
  sides_[0] = std::make_unique<Side>(medium_->for_process(), lanes(), "receiver");
  sides_[1] = std::make_unique<Side>(medium_->for_process(), lanes(), "sender");
  const std::uint64_t count = 1 + random_.below(3);
  for (std::uint64_t n = 0; n < count; ++n) pairs_.push_back(make_pair(n));
  prepares_ = random_.one_in(3);
}

void World::run() {
  for (; !medium_->has_waited(steps_) && !testing::Test::HasFailure(); ++steps_) {
    if (std::all_of(pairs_.begin(), pairs_.end(), [](const Pair& p) { return p.is_over(); }))
      return end();
    take_step();
  }
  if (!testing::Test::HasFailure()) ADD_FAILURE() << "a program waits for ever: " << text();
}

/// The sides need not have as many.
vci::VciPool::Options World::lanes() {
  constexpr vci::Mapping kMappings[] = {vci::Mapping::spread, vci::Mapping::thread,
                                        vci::Mapping::communicator};
  return {1u << random_.below(3), kMappings[random_.below(3)],
          static_cast<std::uint32_t>(1 + random_.below(4))};
}

Pair World::make_pair(std::uint64_t number) {
  Pair p;
  p.number = number;
  const Medium::Sizes sizes = medium_->sizes();
  const std::uint64_t unit = random_.below(4) == 0 ? 0 : 1 + random_.below(sizes.unit_bytes_max);
  const auto s = 1 + random_.below(random_.one_in(4) ? 300 : 12);
  const auto r = 1 + random_.below(12);
  p.send_partitions = static_cast<std::int32_t>(s);
  p.recv_partitions = static_cast<std::int32_t>(r);
  p.bytes = std::min(unit, sizes.bytes_max / std::lcm(s, r)) * std::lcm(s, r);
  p.rounds = 1 + random_.below(5);
  p.channels = sizes.channels;
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
void World::choose_rules(Pair& p) {
  constexpr std::uint64_t kHour = 3'600'000'000'000;
  if (random_.one_in(2)) return;
  p.is_answered = p.send_partitions <= 12 && random_.one_in(2);
  p.rules.demand_after_ns = p.is_answered || random_.one_in(2) ? 0 : kHour;
  p.rules.has_planner = p.rules.is_on_demand = random_.one_in(2);
  if (!p.rules.has_planner) p.rules.deadline_ns = random_.one_in(2) ? 1 : kHour;
  if (p.is_answered) p.recv_partitions = p.send_partitions;
}

void World::take_step() {
  const std::uint64_t what = random_.below(10);
  if (what < 2) return deliver(random_.below(2));
  if (what < 4) return turn_lane(*sides_[random_.below(2)]);
  if (what < 7) return medium_->turn(1 + random_.below(3));
  Pair& p = pairs_[random_.below(pairs_.size())];
  if (what != 7)
    sender_step(p);
  else if (!medium_->are_receivers_slow() || random_.one_in(kSlowness))
    receiver_step(p);
}

/// A turn of one of its lanes.
void World::turn_lane(Side& side) {
  std::uint64_t skip = random_.below(side.network->lanes().count_max());
  side.network->lanes().for_each([&](vci::Vci& lane) {
    if (skip-- == 0) (void)lane.progress();
  });
}

void World::turn_all_lanes() {
  for (auto& side : sides_) (void)side->network->lanes().progress_all();
}

/// Frees a request that has made its rounds.
template <class Request, class Count>
bool has_freed(NetworkTransport& network, Request*& request, Count round, Count rounds,
               Count& freed) {
  if (round != (freed + 1) * rounds) return false;
  EXPECT_TRUE(network.free(std::exchange(request, nullptr)).ok());
  ++freed;
  return true;
}

void World::sender_step(Pair& p) {
  if (p.sends_freed == p.channels) return;
  NetworkTransport& network = *sides_[0]->network;
  if (p.send == nullptr) {
    auto made = network.send_init(args(p, true), sides_[0]->state, p.groups, p.rules);
    ASSERT_TRUE(made.has_value()) << errc_name(made.error().code());
    p.send = *made;
    medium_->on_news();
  } else if (!p.send->active()) {
    if (has_freed(network, p.send, p.send_round, p.rounds, p.sends_freed)) return;
    ++p.send_round;
    medium_->on_news();
    ASSERT_TRUE(p.send->start().ok());
    p.unready.resize(static_cast<std::size_t>(p.send_partitions));
    std::iota(p.unready.begin(), p.unready.end(), 0);
    p.last_ready = -1;
    p.is_prepared = false;
  } else if (prepares_ && !p.is_prepared) {
    prepare(p);
  } else if (!p.unready.empty()) {
    if (p.is_answered && p.last_ready >= 0 &&
        (p.recv_round != p.send_round || !p.seen[static_cast<std::size_t>(p.last_ready)]))
      return;
    make_ready(p);
  } else {
    const Completion completion = p.send->poll();
    ASSERT_NE(completion, Completion::failed) << p.send->error_text() << text();
    if (completion == Completion::pending) return;
    p.send->finish();
    medium_->on_news();
    std::fill(p.from.begin(), p.from.end(), std::byte{0});  // the program's again
  }
}

/// A step of the wait: after it the receiver has started, and no mark of the round asks.
void World::prepare(Pair& p) {
  ASSERT_TRUE(p.send->look_for_receiver(&p.is_prepared).ok()) << p.send->error_text() << text();
  if (!p.is_prepared) return;
  medium_->on_news();
  EXPECT_EQ(p.recv_round, p.send_round) << "ready before the receiver's Start" << text();
}

/// One more partition, which the program has only now written.
void World::make_ready(Pair& p) {
  const std::size_t at = random_.below(p.unready.size());
  p.last_ready = p.unready[at];
  const std::uint64_t share = p.bytes / static_cast<std::uint64_t>(p.send_partitions);
  const std::uint64_t begin = static_cast<std::uint64_t>(p.last_ready) * share;
  for (std::uint64_t i = begin; i < begin + share; ++i) p.from[i] = p.byte_at(p.send_round, i);
  ASSERT_TRUE(p.send->pready(p.last_ready).ok());
  medium_->on_news();
  p.unready.erase(p.unready.begin() + static_cast<std::ptrdiff_t>(at));
  if (!p.unready.empty() && random_.one_in(8)) {
    EXPECT_EQ(p.send->poll(), Completion::pending) << "complete before it is ready";
  }
}

void World::receiver_step(Pair& p) {
  if (p.recvs_freed == p.channels) return;
  NetworkTransport& network = *sides_[1]->network;
  if (p.recv == nullptr) {
    auto made = network.recv_init(args(p, false), sides_[1]->state);
    ASSERT_TRUE(made.has_value()) << errc_name(made.error().code());
    p.recv = *made;
    medium_->on_news();
  } else if (!p.recv->active()) {
    for (const std::byte b : p.to) ASSERT_EQ(b, kCanary) << "written outside of a round";
    if (has_freed(network, p.recv, p.recv_round, p.rounds, p.recvs_freed)) return;
    ++p.recv_round;
    medium_->on_news();
    p.seen.assign(static_cast<std::size_t>(p.recv_partitions), false);
    ASSERT_TRUE(p.recv->start().ok());
  } else if (!p.receiver_sits || is_quiet()) {
    if (p.receiver_sits && !p.rules.take_demands()) expect_early(p);
    ask(p);
    const Completion completion = p.recv->poll();
    ASSERT_NE(completion, Completion::failed) << p.recv->error_text() << text();
    if (completion == Completion::pending) return;
    p.recv->finish();
    medium_->on_news();
    for (std::uint64_t i = 0; i < p.bytes; ++i)
      ASSERT_EQ(p.to[i], p.byte_at(p.recv_round, i))
          << "round " << p.recv_round << " i " << i << " of " << p.number << text();
    std::fill(p.to.begin(), p.to.end(), kCanary);
  }
}

/// Nothing travels but the programs' own steps: helpers have had their turns.
bool World::is_quiet() {
  turn_all_lanes();
  return sides_[0]->other.sent.empty() && sides_[1]->other.sent.empty() && medium_->is_quiet();
}

/// Ready partitions have arrived, although their receiver has not asked, and others are not ready.
void World::expect_early(Pair& p) {
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
    ASSERT_TRUE(arrives(p, j)) << "partition " << j << " is ready, and not there" << text();
  }
}

bool World::arrives(Pair& p, std::int32_t partition) {
  bool arrived = false;
  Patience patience = medium_->patience();
  patience.begin(now_ns());
  while (true) {
    EXPECT_TRUE(p.recv->parrived(partition, &arrived).ok());
    if (arrived || patience.is_over(now_ns())) return arrived;
    medium_->turn(1);
    turn_all_lanes();
    deliver(0);  // records that completions have caused
    deliver(1);
  }
}

void World::ask(Pair& p) {
  const auto partition =
      static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(p.recv_partitions)));
  bool arrived = false;
  ASSERT_TRUE(p.recv->parrived(partition, &arrived).ok());
  if (!arrived) return;
  if (!p.seen[static_cast<std::size_t>(partition)]) medium_->on_news();
  p.seen[static_cast<std::size_t>(partition)] = true;
  const std::uint64_t share = p.bytes / static_cast<std::uint64_t>(p.recv_partitions);
  const std::uint64_t begin = static_cast<std::uint64_t>(partition) * share;
  for (std::uint64_t i = begin; i < begin + share; ++i)
    ASSERT_EQ(p.to[i], p.byte_at(p.recv_round, i)) << "said to have arrived" << text();
}

/// All has been freed: nothing is left.
void World::end() {
  for (int turn = 0; turn < 1000; ++turn) {
    deliver(0);
    deliver(1);
    medium_->settle();
    turn_all_lanes();
  }
  // Each side notifies the other when none of its own operations is posted.
  for (int turn = 0; turn < 2; ++turn) {
    for (auto& side : sides_) side->network->settle();
    while (sides_[0]->deliver_to(*sides_[1]) || sides_[1]->deliver_to(*sides_[0])) {
    }
  }
  if (prepares_) {
    std::uint64_t asked = 0;
    sides_[0]->network->lanes().for_each([&](vci::Vci& lane) {
      asked += lane.counts().operations_of(vci::Work::Kind::small_immediate);
    });
    EXPECT_EQ(asked, 0u) << "notices of rounds that were prepared" << text();
  }
  for (auto& side : sides_) side->network.reset();
}

std::string World::text() const {
  std::string all = " after " + std::to_string(steps_) + " steps";
  for (const Pair& p : pairs_)
    all += "\n learned " + std::to_string(p.rules.has_planner) + " dl " +
           std::to_string(p.rules.deadline_ns) + " groups " + std::to_string(p.groups.size()) +
           " S " + std::to_string(p.send_partitions) + " R " + std::to_string(p.recv_partitions) +
           " bytes " + std::to_string(p.bytes) + " send round " + std::to_string(p.send_round) +
           " receive round " + std::to_string(p.recv_round) + " of " + std::to_string(p.channels) +
           " times " + std::to_string(p.rounds);
  return all;
}

}  // namespace larklane::part
