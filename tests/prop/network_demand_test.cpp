// Groups over a network that may be broken up: demands, deadlines, and learned groups. Two
// processes in one thread on the simulated network, and their posts, counted exactly.

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "net/loop/fabric.hpp"
#include "network_side.hpp"
#include "part/policy/registry.hpp"
#include "scripted_plane.hpp"

namespace larklane::part {
namespace {

using Kind = vci::Work::Kind;
constexpr std::uint64_t kHour = 3'600'000'000'000;
constexpr GroupRules kAtOnce{.has_planner = true, .is_on_demand = true};
constexpr GroupRules kNever{.has_planner = true, .is_on_demand = true, .demand_after_ns = kHour};

/// The posts of both sides.
struct Posted {
  std::uint64_t runs = 0, demands = 0, heard = 0;
  friend bool operator==(const Posted&, const Posted&) = default;
};
std::ostream& operator<<(std::ostream& out, const Posted& p) {
  return out << p.runs << " runs, " << p.demands << " demands, " << p.heard << " heard";
}

PolicyPointer learned() { return must(make_policy("learned", {.min_bytes = 16 << 10})); }

/// One channel, as many receive partitions as send partitions. Thread safety: single-owner.
class World {
 public:
  World(std::int32_t partitions, std::vector<std::uint32_t> groups, GroupRules rules,
        const PlanSource& plans = {})
      : partitions_(partitions),
        from_(static_cast<std::size_t>(partitions) * kBytes),
        to_(from_.size()) {
    send_ = must(sides[0].network->send_init(args_of("receiver", 3, from_, partitions),
                                             sides[0].state, groups, rules, plans));
    receive_ =
        must(sides[1].network->recv_init(args_of("sender", 3, to_, partitions), sides[1].state));
  }
  ~World() {
    if (send_ != nullptr) free_send();
    EXPECT_TRUE(sides[1].network->free(receive_).ok());
    settle();
    for (Side& side : sides) side.network->settle();
    for (Side& side : sides) side.network.reset();
    for (const loop::Violation& violation : wire_.take_violations())
      ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// All that helpers and network do by themselves. @param hands_over  control records, too
  void settle(bool hands_over = true) {
    for (bool moved = true; moved;) {
      moved = wire_.settle() != 0;
      moved |= hands_over && sides[0].deliver_to(sides[1]);
      moved |= hands_over && sides[1].deliver_to(sides[0]);
      if (!is_sender_deaf) moved |= sides[0].progress() != 0;
      moved |= sides[1].progress() != 0;
      moved |= !is_sender_deaf && wire_.under_way_count() != 0;
    }
  }
  void start_send() {
    ++round_;
    for (std::size_t i = 0; i < from_.size(); ++i)
      from_[i] = static_cast<std::byte>(round_ * 41 + i * 7);
    ASSERT_TRUE(send_->start().ok());
  }
  void start_receive() { ASSERT_TRUE(receive_->start().ok()); }
  void start() {
    start_receive();
    start_send();
    settle();
  }
  void ready(std::int32_t first, std::int32_t count = 1) {
    ASSERT_TRUE((count == 1 ? send_->pready(first) : send_->pready(first, count)).ok());
    settle();
  }
  /// One after the other, but for `but`.
  void ready_each(std::int32_t but = -1) {
    for (std::int32_t p = 0; p < partitions_; ++p) ASSERT_TRUE(p == but || send_->pready(p).ok());
    settle();
  }
  /// Posted operations move, and only the sender polls.
  void reach_sender() {
    while (wire_.settle() != 0 || sides[0].progress() != 0) {
    }
  }
  /// While another thread has the lane: arrivals since then are not seen.
  bool arrives_unseen(std::int32_t partition) {
    bool arrived = false;
    sides[1].network->lanes().at(0).value()->exclusively([&] {
      for (int asked = 0; asked < 3; ++asked)
        EXPECT_TRUE(receive_->parrived(partition, &arrived).ok());
    });
    return arrived;
  }
  void free_send() { EXPECT_TRUE(sides[0].network->free(std::exchange(send_, nullptr)).ok()); }
  /// @return has it come, of several times that the receiver asks?
  bool arrives(std::int32_t partition, bool hands_over = true) {
    bool arrived = false;
    for (int asked = 0; asked < 5 && !arrived; ++asked) {
      EXPECT_TRUE(receive_->parrived(partition, &arrived).ok());
      settle(hands_over);
    }
    EXPECT_TRUE(receive_->parrived(partition, &arrived).ok());
    return arrived;
  }
  SendRequest& send() { return *send_; }
  Completion poll_send() { return send_->poll(); }
  Completion poll_receive() { return receive_->poll(); }
  void finish_receive() {
    ASSERT_EQ(receive_->poll(), Completion::complete);
    receive_->finish();
  }
  void finish_send() {
    ASSERT_EQ(send_->poll(), Completion::complete);
    send_->finish();
  }
  /// After all partitions but one are ready, too.
  void finish_but(std::int32_t early, std::int32_t partitions) {
    ready(0, early);
    ready(early + 1, partitions - early - 1);
    finish();
  }
  void finish() {
    settle();
    finish_send();
    finish_receive();
    EXPECT_EQ(from_, to_) << "round " << round_;
  }
  /// Since it was asked last.
  Posted posted() {
    const vci::VciCounts sender = sides[0].counts(), receiver = sides[1].counts();
    const Posted all{
        sender.operations_of(Kind::write_immediate) + sender.operations_of(Kind::small_immediate),
        receiver.operations_of(Kind::small_immediate), sender.operations_of(Kind::small)};
    const Posted before = std::exchange(last_, all);
    return {all.runs - before.runs, all.demands - before.demands, all.heard - before.heard};
  }

  static constexpr std::size_t kBytes = 8;
  bool is_sender_deaf = false;  ///< neither its program nor its helper polls

 private:
  static loop::Fabric::Options options() {
    loop::Fabric::Options o;
    o.turns_per_poll = 0;
    o.limits.immediates_max = 4096;
    return o;
  }
  loop::Fabric wire_{options()};

 public:
  Side sides[2] = {{wire_.for_process(), "receiver"}, {wire_.for_process(), "sender"}};

 private:
  const std::int32_t partitions_;
  std::vector<std::byte> from_, to_;
  std::uint64_t round_ = 0;
  Posted last_{};
  SendRequest* send_ = nullptr;
  RecvRequest* receive_ = nullptr;
};

TEST(Silence, LastsFromTheFirstAskOfARoundAndRestartsAtEachArrival) {
  Silence silence;
  constexpr std::uint64_t kAfter = 5;
  silence.begin();
  EXPECT_FALSE(silence.lasts(0, 1, kAfter));
  EXPECT_FALSE(silence.lasts(0, 5, kAfter));
  EXPECT_TRUE(silence.lasts(0, 6, kAfter));
  EXPECT_FALSE(silence.lasts(3, 7, kAfter)) << "something has come";
  EXPECT_TRUE(silence.lasts(3, 12, kAfter));
  silence.begin();
  EXPECT_FALSE(silence.lasts(8, 20, kAfter));
  EXPECT_TRUE(silence.lasts(8, 25, kAfter)) << "what came before Start breaks no silence";
}

TEST(Demand, IsDueOnceTheLastIsReceivedAndFreeAsksAreUsed) {
  EXPECT_FALSE(is_called_for(9, 8, 7)) << "the last one has not been heard";
  EXPECT_TRUE(is_called_for(9, 8, 8));
  EXPECT_FALSE(is_called_for(9, 8, 9));
  EXPECT_FALSE(is_called_for(72, 8, 72));
  EXPECT_TRUE(is_called_for(73, 8, 72));
  for (const std::uint64_t far : {1ull << 31, (1ull << 31) + 1, 1ull << 32, (1ull << 32) + 8})
    EXPECT_TRUE(is_called_for(8 + far, 8, 8)) << far;
  constexpr std::uint64_t kWrapped = (1ull << 32) + 3;
  EXPECT_TRUE(is_called_for(kWrapped, kWrapped - 5, 0xffff'fffe));
  EXPECT_FALSE(is_called_for(kWrapped, kWrapped - 5, 3));
  EXPECT_FALSE(is_called_for(kWrapped, kWrapped - 5, 0xffff'fffd));
}

TEST(AskingHabit, ThreeRoundsMakeOneAndItIsDoubtedEverMoreRarely) {
  AskingHabit habit;
  for (int round = 0; round < 10; ++round) {
    EXPECT_FALSE(habit.see(true));
    EXPECT_FALSE(habit.see(true));
    EXPECT_FALSE(habit.see(false)) << "not one after the other";
  }
  for (std::uint32_t rounds : {64u, 128u, 256u, 512u, 1024u, 2048u, 4096u, 4096u}) {
    EXPECT_FALSE(habit.see(true));
    EXPECT_FALSE(habit.see(true));
    std::uint32_t lasted = 0;
    while (habit.see(lasted == 0)) ++lasted;
    EXPECT_EQ(lasted, rounds);
  }
}

TEST(NetworkDemand, ReadyPartitionsComeAtOnceAndEachLaterOneByItself) {
  World world(8, {0}, kAtOnce);
  world.settle();
  for (int round = 0; round < 3; ++round) {
    world.start();
    for (const std::int32_t p : {3, 4, 0}) world.ready(p);
    EXPECT_EQ(world.posted(), Posted{});
    EXPECT_FALSE(world.arrives(7)) << "not ready";
    EXPECT_TRUE(world.arrives(3) && world.arrives(4) && world.arrives(0));
    EXPECT_EQ(world.posted(), (Posted{2, 1, 1})) << "3 and 4 are one run";
    world.ready(7);
    EXPECT_TRUE(world.arrives(7));
    EXPECT_FALSE(world.arrives(6));
    world.ready(5, 2);
    EXPECT_EQ(world.posted(), (Posted{2, 0, 0}));
    world.ready(1, 2);
    world.finish();
    world.posted();
  }
  world.start();  // the next one has its group again
  world.ready(0, 8);
  world.finish();
  EXPECT_EQ(world.posted(), (Posted{1, 0, 0}));
}

TEST(NetworkDemand, AReceiverThatOnlyWaitsOrAsksBrieflyDemandsNothing) {
  const auto demands = [](GroupRules rules, bool asks) {
    World world(8, {0}, rules);
    world.settle();
    world.start();
    world.ready(0, 7);
    for (int turn = 0; turn < 20; ++turn) {
      EXPECT_EQ(world.poll_receive(), Completion::pending);
      EXPECT_FALSE(asks && world.arrives(0));
    }
    EXPECT_EQ(world.posted(), Posted{});
    world.ready(7);
    world.finish();
    EXPECT_EQ(world.posted(), (Posted{1, 0, 0}));
  };
  demands(kAtOnce, false);
  demands(kNever, true);
  demands({}, true);  // of a policy with the program's groups
}

TEST(NetworkDemand, NoDemandFollowsBeforeTheLastIsReceived) {
  World world(8, {0}, kAtOnce);
  world.settle();
  world.start();
  world.ready(0, 7);
  world.is_sender_deaf = true;
  EXPECT_FALSE(world.arrives(0));
  world.ready(7);  // now the group goes as it is
  world.finish_receive();
  EXPECT_EQ(world.posted(), (Posted{1, 1, 0}));
  world.start_receive();
  EXPECT_FALSE(world.arrives(3));
  EXPECT_EQ(world.posted(), Posted{}) << "the sender has reserved one receive";
  world.is_sender_deaf = false;
  world.settle();
  world.finish_send();
  world.start_send();
  world.ready(3);
  EXPECT_EQ(world.posted(), (Posted{0, 0, 1})) << "that was for the round before";
  EXPECT_TRUE(world.arrives(3));
  EXPECT_EQ(world.posted(), (Posted{1, 1, 1}));
  world.ready(0, 3);
  world.ready(4, 4);
  world.finish();
}

TEST(NetworkDemand, ADemandBeforeTheSendersStartHoldsForThatRound) {
  for (const std::int32_t partitions : {8, 100}) {  // a word; leaves
    World world(partitions, {0}, kAtOnce);
    world.settle();
    world.start();
    world.ready(0, partitions);
    world.finish();
    world.posted();
    world.start_receive();
    EXPECT_FALSE(world.arrives(5));
    EXPECT_EQ(world.posted(), (Posted{0, 1, 1}));
    world.start_send();
    world.ready(5);
    EXPECT_TRUE(world.arrives(5));
    EXPECT_EQ(world.posted(), (Posted{1, 0, 0}));
    world.finish_but(5, partitions);
  }
}

TEST(NetworkDemand, ADemandBeforeTheAcceptanceIsAnsweredThen) {
  for (const std::int32_t partitions : {8, 100})
    for (const bool is_started : {false, true}) {
      World world(partitions, {0}, kAtOnce);
      while (world.sides[0].deliver_to(world.sides[1]) || world.sides[1].other.sent.size() > 1) {
        if (world.sides[1].other.sent.size() > 1) world.sides[1].deliver_to(world.sides[0]);
      }
      ASSERT_EQ(world.sides[1].other.sent.size(), 1u) << "the acceptance";
      world.start_receive();
      if (is_started) world.start_send();
      EXPECT_FALSE(world.arrives(5, false));
      EXPECT_EQ(world.posted(), (Posted{0, 1, 0})) << "where it could be answered is not known";
      world.settle();
      if (!is_started) world.start_send();
      world.ready(5);
      EXPECT_TRUE(world.arrives(5));
      EXPECT_EQ(world.posted(), (Posted{1, 0, 1}));
      world.finish_but(5, partitions);
    }
}

TEST(NetworkDemand, APreparedGroupIsNotSentForAPartOfIt) {
  for (const std::int32_t partitions : {8, 40, 100, 600, 1 << 16}) {
    World world(partitions, {0}, kAtOnce);
    world.settle();
    const std::uint64_t groups = partitions > 1024 ? static_cast<unsigned>(partitions) / 1024 : 1;
    const std::int32_t last = partitions - 1;
    for (int round = 0; round < 9; ++round) {
      world.start();
      if (round % 3 != 2) {
        world.ready_each();
        EXPECT_EQ(world.posted(), (Posted{groups, 0, 0})) << partitions << " round " << round;
      } else {  // in the next one of these in another order
        world.ready_each(last);
        EXPECT_TRUE(world.arrives(round == 2 ? 0 : last / 2));
        EXPECT_FALSE(world.arrives(last));
        world.ready(last);
        EXPECT_TRUE(world.arrives(last));
        EXPECT_EQ(world.posted(), (Posted{groups + 1, 1, 1})) << partitions << " round " << round;
      }
      world.finish();
    }
    world.start();
    EXPECT_FALSE(world.arrives(0)) << "before anything is ready";
    world.ready_each();
    EXPECT_TRUE(world.arrives(last));
    world.finish();
  }
}

TEST(NetworkDemand, ADemandAfterTheFreeOfTheSendIsNotAnswered) {
  World world(8, {0}, kAtOnce);
  world.settle();
  world.start();
  world.posted();
  EXPECT_TRUE(world.send().pready(0, 8).ok());
  world.reach_sender();
  world.finish_send();
  world.free_send();
  EXPECT_FALSE(world.arrives_unseen(3));
  world.settle();
  EXPECT_EQ(world.posted(), (Posted{1, 1, 0})) << "by whom would it be?";
  world.finish_receive();
}

TEST(NetworkDemand, OfManyPartitionsACellTravels) {
  World world(600, {0, 300}, kAtOnce);  // 256 cells
  world.settle();
  world.start();
  world.ready(4);
  world.ready(6);
  EXPECT_FALSE(world.arrives(4));
  world.ready(5);
  world.ready(7);
  EXPECT_TRUE(world.arrives(4) && world.arrives(5)) << "a cell is 4 and 5, or 4 to 6";
  EXPECT_EQ(world.posted().demands, 1u);
  world.ready(0, 4);
  world.ready(8, 592);
  world.finish();
}

TEST(NetworkDemand, WhereTheSenderHasNoReceiveForOneNothingWaits) {
  loop::Fabric::Options o;
  o.turns_per_poll = 0;
  o.limits.immediates_max = 64;
  loop::Fabric wire(o);
  Side sender(wire.for_process(), "receiver"), receiver(wire.for_process(), "sender");
  ASSERT_TRUE(sender.network->lanes().at(0).value()->reserve_immediates(64).ok());
  std::vector<std::byte> from(8), to(8);
  SendRequest* const send =
      must(sender.network->send_init(args_of("receiver", 3, from, 8), sender.state, {0}, kAtOnce));
  RecvRequest* const receive =
      must(receiver.network->recv_init(args_of("sender", 3, to, 8), receiver.state));
  const auto settle = [&] {
    for (bool moved = true; moved;) {
      moved = wire.settle() != 0;
      moved |= sender.deliver_to(receiver) || receiver.deliver_to(sender);
      moved |= (sender.progress() | receiver.progress()) != 0;
    }
  };
  settle();
  EXPECT_TRUE(receive->start().ok() && send->start().ok());
  settle();
  for (std::int32_t p = 0; p < 8; ++p) {
    EXPECT_TRUE(send->pready(p).ok());
    settle();
    bool arrived = false;
    EXPECT_TRUE(receive->parrived(p, &arrived).ok());
    EXPECT_TRUE(arrived);
  }
  EXPECT_EQ(send->poll(), Completion::complete);
  EXPECT_EQ(receive->poll(), Completion::complete);
  send->finish();
  receive->finish();
  EXPECT_TRUE(sender.network->free(send).ok() && receiver.network->free(receive).ok());
  settle();
  sender.network.reset();
  receiver.network.reset();
}

TEST(NetworkDeadline, TheNextMarkOrWaitOrAskSeesIt) {
  World world(8, {0}, {.deadline_ns = 1, .demand_after_ns = 0});
  world.settle();
  world.start();
  world.ready(0);
  EXPECT_EQ(world.posted(), Posted{});
  world.ready(1);
  EXPECT_EQ(world.posted(), (Posted{1, 0, 0})) << "both in one";
  world.ready(3);
  EXPECT_EQ(world.posted(), (Posted{1, 0, 0}));
  world.ready(2);
  world.ready(4, 4);
  world.finish();
  world.posted();
  world.start();
  world.ready(6);
  EXPECT_EQ(world.poll_send(), Completion::pending);
  world.settle();
  EXPECT_EQ(world.posted(), (Posted{1, 0, 0}));
  world.ready(0, 6);
  world.ready(7);
  world.finish();
  world.posted();
  world.start();
  world.ready(6);
  EXPECT_TRUE(world.arrives(6));
  EXPECT_EQ(world.posted(), (Posted{1, 1, 1}));
  world.ready(0, 6);
  world.ready(7);
  world.finish();
}

TEST(NetworkDeadline, BeforeItAGroupWaits) {
  World world(8, {0}, {.deadline_ns = kHour, .demand_after_ns = kHour});
  world.settle();
  for (int round = 0; round < 5; ++round) {
    world.start();
    for (std::int32_t p = 0; p < 7; ++p) world.ready(p);
    EXPECT_EQ(world.poll_send(), Completion::pending);
    EXPECT_FALSE(world.arrives(0));
    world.ready(7);
    world.finish();
    EXPECT_EQ(world.posted(), (Posted{1, 0, 0}));
  }
}

TEST(NetworkLearned, GroupsChangeFromRoundToRoundAndEveryByteArrives) {
  for (const std::int32_t partitions : {16, 300, 1500}) {
    ScriptedPlane plane;
    World world(partitions, {0}, kNever, {learned(), &plane});
    world.settle();
    std::set<std::uint64_t> runs;
    for (int round = 1; round <= 24; ++round) {
      world.start();
      for (std::int32_t p = 0; p < partitions; ++p) world.ready((p * 7 + 3) % partitions);
      world.finish();
      const Posted posted = world.posted();
      runs.insert(posted.runs);
      EXPECT_TRUE(round > 3 || posted.runs == (partitions > 1024 ? 2u : 1u)) << "the base";
      EXPECT_EQ(posted.demands, 0u);
    }
    EXPECT_GT(runs.size(), 1u) << "no other groups have been tried";
  }
}

TEST(NetworkLearned, ADemandBreaksUpAnyGroups) {
  ScriptedPlane plane;
  World world(16, {0}, kAtOnce, {learned(), &plane});
  world.settle();
  for (int round = 1; round <= 24; ++round) {
    world.start();
    for (std::int32_t p = 0; p < 16; ++p) {
      world.ready((p * 7 + 3) % 16);
      EXPECT_TRUE(world.arrives((p * 7 + 3) % 16)) << "round " << round;
    }
    EXPECT_LE(world.posted().demands, 1u);
    world.finish();
  }
}

TEST(NetworkLearned, AReceiverThatAsksInEveryRoundNeedsNotAskAnyMore) {
  ScriptedPlane plane;
  World world(16, {0}, kAtOnce, {learned(), &plane});
  world.settle();
  constexpr int kRounds = 200;
  int demanded = 0, asked_for_nothing = 0;
  for (int round = 1; round <= kRounds; ++round) {
    world.start();
    world.ready(5);
    EXPECT_TRUE(world.arrives(5)) << "round " << round;
    const Posted posted = world.posted();
    demanded += posted.demands == 1;
    asked_for_nothing += posted == Posted{1, 0, 0};
    world.ready(0, 5);
    world.ready(6, 10);
    world.finish();
    world.posted();
  }
  EXPECT_EQ(demanded + asked_for_nothing, kRounds);
  EXPECT_GE(demanded, 6) << "groups are tried again";
  EXPECT_LE(demanded, 16);
}

TEST(NetworkLearned, AnAskInVainGetsTheTimeWithoutHeldPartitions) {
  ScriptedPlane plane;
  World world(16, {0}, kAtOnce, {learned(), &plane});
  world.settle();
  std::uint64_t demands = 0;
  for (int round = 1; round <= 200; ++round) {
    world.start();
    EXPECT_FALSE(world.arrives(5)) << "round " << round;
    demands += world.posted().demands;
    world.ready(5);
    EXPECT_TRUE(world.arrives(5)) << "round " << round;
    demands += world.posted().demands;
    world.ready(0, 5);
    world.ready(6, 10);
    world.finish();
    world.posted();
  }
  EXPECT_GE(demands, 6u) << "groups are tried again";
  EXPECT_LE(demands, 16u);
}

}  // namespace
}  // namespace larklane::part
