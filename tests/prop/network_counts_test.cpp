// The posted operations, counted exactly, for any counts, groups, order of arrival and limits. A
// round that is opened in time takes one data write per run (more if it is longer than the network
// takes) and a credit; early data take a notice, a read and a FIN per run. And a receiver that
// never polls never runs out of room. LARKLANE_SEED=N repeats one run.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "net/loop/fabric.hpp"
#include "net/loop/random.hpp"
#include "network_side.hpp"
#include "part/network/cells.hpp"

namespace larklane::part {
namespace {

using Kind = vci::Work::Kind;

struct Posted {
  std::uint64_t writes = 0, smalls = 0, notices = 0, reads = 0;
  friend bool operator==(const Posted&, const Posted&) = default;
};
std::ostream& operator<<(std::ostream& out, const Posted& p) {
  return out << p.writes << " data writes, " << p.smalls << " words, " << p.notices << " notices, "
             << p.reads << " reads";
}

Posted posted_by(Side& side) {
  const vci::VciCounts c = side.counts();
  return {c.operations_of(Kind::write) + c.operations_of(Kind::write_immediate),
          c.operations_of(Kind::small), c.operations_of(Kind::small_immediate),
          c.operations_of(Kind::read)};
}
Posted operator-(const Posted& a, const Posted& b) {
  return {a.writes - b.writes, a.smalls - b.smalls, a.notices - b.notices, a.reads - b.reads};
}

/// A pair of processes and one channel. Thread safety: single-owner.
class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed), wire_(options(seed)) {
    send_partitions_ = static_cast<std::int32_t>(1 + random_.below(random_.one_in(4) ? 600 : 40));
    const auto recv_partitions = static_cast<std::int32_t>(1 + random_.below(20));
    partition_bytes_ = random_.one_in(6) ? 0 : 1 + random_.below(50);
    partition_bytes_ *= static_cast<std::uint64_t>(recv_partitions);
    from_.resize(partition_bytes_ * static_cast<std::uint64_t>(send_partitions_));
    to_.resize(from_.size());
    std::vector<std::uint32_t> wanted{0};
    const std::uint64_t often = 1 + random_.below(30);
    for (std::uint32_t b = 1; b < static_cast<std::uint32_t>(send_partitions_); ++b)
      if (random_.one_in(often)) wanted.push_back(b);
    groups_ = cell_boundaries(static_cast<std::uint32_t>(send_partitions_), wanted);
    auto send = sides_[0].network->send_init(args_of("receiver", 3, from_, send_partitions_),
                                             sides_[0].state, wanted);
    auto receive =
        sides_[1].network->recv_init(args_of("sender", 3, to_, recv_partitions), sides_[1].state);
    EXPECT_TRUE(send && receive);
    send_ = *send;
    receive_ = *receive;
    settle();
  }
  ~World() {
    EXPECT_TRUE(sides_[0].network->free(send_).ok() && sides_[1].network->free(receive_).ok());
    send_ = nullptr;
    settle();
    for (Side& side : sides_) side.network.reset();
    for (const loop::Violation& violation : wire_.take_violations())
      ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void round(std::uint64_t number) {
    for (std::size_t i = 0; i < from_.size(); ++i)
      from_[i] = static_cast<std::byte>(number * 41 + i * 7);
    std::vector<std::int32_t> unready(static_cast<std::size_t>(send_partitions_));
    std::iota(unready.begin(), unready.end(), 0);
    for (std::size_t i = unready.size(); i > 1; --i)
      std::swap(unready[i - 1], unready[random_.below(i)]);
    // How many are ready before the receiver opens the round: none, all, or some.
    const std::uint64_t what = random_.below(3);
    const std::size_t early = what == 0   ? 0
                              : what == 1 ? unready.size()
                                          : random_.below(unready.size() + 1);
    const Posted before[] = {posted_by(sides_[0]), posted_by(sides_[1])};
    Posted sender, receiver;
    receiver.smalls = 1;  // the credit
    ready_.assign(unready.size(), false);
    ASSERT_TRUE(send_->start().ok());
    mark(unready, 0, early, read_most_, [&](std::uint64_t operations) {
      ++sender.notices;
      receiver.reads += operations;
      ++receiver.smalls;  // the FIN
    });
    settle();
    ASSERT_TRUE(receive_->start().ok());
    settle();
    mark(unready, early, unready.size(), write_most_,
         [&](std::uint64_t operations) { sender.writes += operations; });
    settle();
    ASSERT_TRUE(have_finished(*send_, *receive_));
    ASSERT_EQ(from_, to_);
    settle();
    EXPECT_EQ(posted_by(sides_[0]) - before[0], sender) << "the sender, " << early << " early";
    EXPECT_EQ(posted_by(sides_[1]) - before[1], receiver) << "the receiver, " << early << " early";
  }

  /// The sender waits for the receiver's buffer before it marks: one word travels beside the data.
  void prepared_round(std::uint64_t number) {
    for (std::size_t i = 0; i < from_.size(); ++i)
      from_[i] = static_cast<std::byte>(number * 41 + i * 7);
    const Posted before[] = {posted_by(sides_[0]), posted_by(sides_[1])};
    ASSERT_TRUE(send_->start().ok());
    bool is_ready = true;
    if (random_.one_in(2)) {
      settle();
      ASSERT_TRUE(send_->look_for_receiver(&is_ready).ok());
      ASSERT_FALSE(is_ready) << "before the receiver's Start";
    }
    ASSERT_TRUE(receive_->start().ok());
    settle();
    ASSERT_TRUE(send_->look_for_receiver(&is_ready).ok());
    ASSERT_TRUE(is_ready);
    ASSERT_TRUE(send_->pready(0, send_partitions_).ok());
    ASSERT_TRUE(send_->look_for_receiver(&is_ready).ok());
    ASSERT_TRUE(is_ready) << "not until the round's end";
    settle();
    ASSERT_EQ(receive_->poll(), Completion::complete);
    receive_->finish();
    // The receiver may be one round ahead.
    if (random_.one_in(2)) {
      ASSERT_TRUE(receive_->start().ok());
      settle();
      ASSERT_TRUE(send_->look_for_receiver(&is_ready).ok());
      ASSERT_TRUE(is_ready) << "not while the receiver is ahead";
      ASSERT_EQ(send_->poll(), Completion::complete);
      send_->finish();
      ASSERT_TRUE(send_->start().ok() && send_->look_for_receiver(&is_ready).ok());
      ASSERT_TRUE(is_ready) << "the receiver has started before";
      ASSERT_TRUE(send_->pready(0, send_partitions_).ok());
      settle();
      ASSERT_EQ(receive_->poll(), Completion::complete);
      receive_->finish();
    }
    ASSERT_EQ(send_->poll(), Completion::complete);
    send_->finish();
    EXPECT_EQ(send_->look_for_receiver(&is_ready).code(), Errc::kNotActive);
    ASSERT_EQ(from_, to_);
    settle();
    const Posted sender = posted_by(sides_[0]) - before[0];
    const Posted receiver = posted_by(sides_[1]) - before[1];
    EXPECT_EQ(sender.notices + sender.smalls + receiver.notices + receiver.reads, 0u)
        << sender << "; " << receiver;
    EXPECT_LE(receiver.smalls, 2u) << "more than a credit a round";
  }

 private:
  loop::Fabric::Options options(std::uint64_t seed) {
    loop::Fabric::Options o;
    o.seed = seed;
    o.turns_per_poll = 0;
    o.queue_depth = random_.one_in(3) ? 2 : 64;
    o.limits.is_progress_manual = random_.one_in(2);
    if (random_.one_in(2)) o.limits.write_bytes_max = 1 + random_.below(500);
    if (random_.one_in(2)) o.limits.read_bytes_max = 1 + random_.below(500);
    write_most_ = o.limits.write_bytes_max;
    read_most_ = o.limits.read_bytes_max;
    return o;
  }

  /// Marks, one by one or neighbours together. sent(operations of at most `most` bytes): for each
  /// run that one call sends.
  template <class Sent>
  void mark(const std::vector<std::int32_t>& order, std::size_t begin, std::size_t end,
            std::uint64_t most, Sent&& sent) {
    for (std::size_t at = begin; at < end; ++at) {
      const std::int32_t first = order[at];
      if (ready_[static_cast<std::size_t>(first)]) continue;
      std::int32_t count = 1;
      if (random_.one_in(3)) {
        // Neighbours that belong to the same half.
        const auto in_half = [&](std::int32_t p) {
          const auto found = std::find(order.begin(), order.end(), p) - order.begin();
          return found >= static_cast<std::ptrdiff_t>(begin) &&
                 found < static_cast<std::ptrdiff_t>(end) && !ready_[static_cast<std::size_t>(p)];
        };
        while (first + count < send_partitions_ && count < 50 && in_half(first + count)) ++count;
      }
      std::vector<bool> was = complete_groups();
      for (std::int32_t p = first; p < first + count; ++p)
        ready_[static_cast<std::size_t>(p)] = true;
      ASSERT_TRUE(count == 1 && random_.one_in(2) ? send_->pready(first).ok()
                                                  : send_->pready(first, count).ok());
      const std::vector<bool> now = complete_groups();
      for (std::size_t g = 0; g < now.size(); ++g) {
        if (!now[g] || was[g]) continue;
        std::size_t last = g;  // neighbours that the same call completes travel together
        while (last + 1 < now.size() && now[last + 1] && !was[last + 1]) ++last;
        const std::uint64_t bytes = (group_end(last) - groups_[g]) * partition_bytes_;
        sent(std::max<std::uint64_t>(1, (bytes + most - 1) / most));
        g = last;
      }
      if (random_.one_in(4)) settle();
    }
  }
  std::uint64_t group_end(std::size_t group) const {
    return group + 1 < groups_.size() ? groups_[group + 1]
                                      : static_cast<std::uint64_t>(send_partitions_);
  }
  std::vector<bool> complete_groups() const {
    std::vector<bool> complete(groups_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g)
      complete[g] = std::all_of(ready_.begin() + groups_[g],
                                ready_.begin() + static_cast<std::ptrdiff_t>(group_end(g)),
                                [](bool one) { return one; });
    return complete;
  }

  void settle() {
    for (bool moved = true; moved;) {
      moved = wire_.settle() != 0;
      moved |= sides_[0].deliver_to(sides_[1]);
      moved |= sides_[1].deliver_to(sides_[0]);
      for (Side& side : sides_) moved |= side.progress() != 0;
      if (send_ != nullptr && send_->active()) (void)send_->poll();  // it polls for FINs
      moved |= wire_.under_way_count() != 0;
    }
  }

  loop::Random random_;
  std::uint64_t write_most_ = 0, read_most_ = 0;
  loop::Fabric wire_;
  Side sides_[2] = {{wire_.for_process(), "receiver"}, {wire_.for_process(), "sender"}};
  std::int32_t send_partitions_ = 1;
  std::uint64_t partition_bytes_ = 0;
  std::vector<std::uint32_t> groups_;
  std::vector<std::byte> from_, to_;
  std::vector<bool> ready_;
  SendRequest* send_ = nullptr;
  RecvRequest* receive_ = nullptr;
};

TEST(NetworkCounts, ARoundPostsTheLeastOperations) {
  constexpr std::uint64_t kSeeds = 300;
  const auto one = [](std::uint64_t seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    World world(seed);
    for (std::uint64_t round = 1; round <= 6 && !testing::Test::HasFatalFailure(); ++round)
      world.round(round);
  };
  if (const char* const given = std::getenv("LARKLANE_SEED"))
    return one(std::strtoull(given, nullptr, 10));
  for (std::uint64_t seed = 1; seed <= kSeeds && !testing::Test::HasFailure(); ++seed) one(seed);
}

TEST(NetworkCounts, APreparedRoundAsksForNothing) {
  constexpr std::uint64_t kSeeds = 300;
  for (std::uint64_t seed = 1; seed <= kSeeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    for (std::uint64_t round = 1; round <= 6 && !testing::Test::HasFatalFailure(); ++round)
      world.prepared_round(round);
  }
}

/// 1,000 channels; their receivers poll when all has been sent, and not before.
void crowd(bool is_started) {
  constexpr std::int32_t kChannels = 1000, kPartitions = 8;
  loop::Fabric::Options o;
  o.turns_per_poll = 0;
  o.limits.immediates_max = 16384;
  loop::Fabric wire(o);
  Side sender(wire.for_process(), "receiver"), receiver(wire.for_process(), "sender");
  std::vector<std::vector<std::byte>> from(kChannels), to(kChannels);
  std::vector<SendRequest*> sends;
  std::vector<RecvRequest*> receives;
  std::vector<std::uint32_t> groups(kPartitions);
  std::iota(groups.begin(), groups.end(), 0u);
  for (std::int32_t n = 0; n < kChannels; ++n) {
    from[static_cast<std::size_t>(n)].assign(64, static_cast<std::byte>(n));
    to[static_cast<std::size_t>(n)].resize(64);
    sends.push_back(must(sender.network->send_init(
        args_of("receiver", n, from[static_cast<std::size_t>(n)], kPartitions), sender.state,
        groups)));
    receives.push_back(must(receiver.network->recv_init(
        args_of("sender", n, to[static_cast<std::size_t>(n)], kPartitions), receiver.state)));
  }
  while (sender.deliver_to(receiver) || receiver.deliver_to(sender)) {
  }
  const auto start_all = [&] {
    for (RecvRequest* const receive : receives) EXPECT_TRUE(receive->start().ok());
  };
  if (is_started) start_all();
  const auto let_happen = [&](bool receiver_looks) {
    for (int idle = 0; idle < 3;) {
      const std::uint64_t turned = wire.settle();
      const std::uint32_t served = sender.progress() + (receiver_looks ? receiver.progress() : 0);
      idle = turned + served == 0 ? idle + 1 : 0;
    }
  };
  for (int turn = 0; is_started && turn < 200; ++turn) {  // credits go out; nothing comes in
    receiver.progress();
    let_happen(false);
  }
  for (SendRequest* const send : sends) {
    ASSERT_TRUE(send->start().ok());
    for (std::int32_t p = 0; p < kPartitions; ++p) ASSERT_TRUE(send->pready(p).ok());
  }
  const std::uint64_t polls = receiver.counts().polls;
  let_happen(false);
  EXPECT_EQ(receiver.counts().polls, polls) << "the receiver has looked";
  EXPECT_EQ(posted_by(sender).writes + posted_by(sender).notices, kChannels * kPartitions * 1u);
  for (const loop::Violation& violation : wire.take_violations())
    ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
  if (!is_started) start_all();
  let_happen(true);
  for (std::size_t n = 0; n < sends.size(); ++n) {
    ASSERT_EQ(receives[n]->poll(), Completion::complete);
    ASSERT_EQ(sends[n]->poll(), Completion::complete);
    receives[n]->finish();
    sends[n]->finish();
    ASSERT_EQ(from[n], to[n]);
    ASSERT_TRUE(sender.network->free(sends[n]).ok() && receiver.network->free(receives[n]).ok());
  }
  while (sender.deliver_to(receiver) || receiver.deliver_to(sender)) {
  }
  sender.network.reset();
  receiver.network.reset();
}

TEST(NetworkCounts, AThousandChannelsWithoutPollsMeetNoReceiverThatIsNotReady) {
  crowd(false);
  crowd(true);
}

/// Rounds of one message each. @param in_two  each 256th, from the first on, in two
void many_rounds(bool in_two) {
  constexpr std::int32_t kSends = 8, kReceives = 2;
  constexpr std::uint64_t kMarks = 256;  // so many rounds have marks of their own
  loop::Fabric::Options o;
  o.turns_per_poll = 0;
  loop::Fabric wire(o);
  Side sender(wire.for_process(), "receiver"), receiver(wire.for_process(), "sender");
  std::vector<std::byte> from(64), to(64);
  SendRequest* const send = must(sender.network->send_init(args_of("receiver", 3, from, kSends),
                                                           sender.state, {0, kSends / kReceives}));
  RecvRequest* const receive =
      must(receiver.network->recv_init(args_of("sender", 3, to, kReceives), receiver.state));
  const auto settle = [&] {
    for (bool moved = true; moved;) {
      moved = wire.settle() != 0 || sender.deliver_to(receiver) || receiver.deliver_to(sender);
      moved |= sender.progress() + receiver.progress() != 0 || wire.under_way_count() != 0;
    }
  };
  const auto has_arrived = [&](std::int32_t partition) {
    bool arrived = false;
    EXPECT_TRUE(receive->parrived(partition, &arrived).ok());
    return arrived;
  };
  settle();
  for (std::uint64_t round = 1; round <= 3 * kMarks + 2; ++round) {
    SCOPED_TRACE(round);
    std::fill(from.begin(), from.end(), static_cast<std::byte>(round));
    ASSERT_TRUE(send->start().ok() && receive->start().ok());
    settle();
    if (in_two && round % kMarks == 1) {  // the later half first
      ASSERT_TRUE(send->pready(kSends / 2, kSends / 2).ok());
      settle();
      ASSERT_TRUE(has_arrived(1));
      ASSERT_FALSE(has_arrived(0));
      ASSERT_TRUE(send->pready(0, kSends / 2).ok());
    } else {
      ASSERT_FALSE(has_arrived(0) || has_arrived(1));
      ASSERT_TRUE(send->pready(0, kSends).ok());
    }
    settle();
    ASSERT_TRUE(has_arrived(0) && has_arrived(1));
    ASSERT_EQ(receive->poll(), Completion::complete);
    ASSERT_EQ(send->poll(), Completion::complete);
    receive->finish();
    send->finish();
    ASSERT_EQ(from, to);
  }
  ASSERT_TRUE(sender.network->free(send).ok() && receiver.network->free(receive).ok());
  settle();
}

TEST(NetworkCounts, MarksOfAnOldRoundAreNotTakenForThisRounds) {
  many_rounds(false);
  many_rounds(true);
}

}  // namespace
}  // namespace larklane::part
