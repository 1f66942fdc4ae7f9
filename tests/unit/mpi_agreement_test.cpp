// The agreement of a world's ranks, simulated: orders of events, and faults, drawn by seed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mpi/p2p/agreement.hpp"

namespace larklane::mpi::p2p {
namespace {

using Outcome = Agreement::Outcome;

enum class Fault : std::uint8_t {
  none,
  absent,           // runs without Larklane
  other_options,    // of a rank
  objects,          // a rank, at once
  late,             // a rank starts late: deadlines may pass anywhere
  no_communicator,  // MPI_Comm_dup fails on a rank
  killed,           // at any event
  cut,              // a connection is lost with the records on it
};

/// Ranks of one world on a simulated network. Each step is one event of one rank.
class SimulatedWorld {
 public:
  SimulatedWorld(int size, Fault fault, std::uint32_t seed, int rounds)
      : size_(size),
        fault_(fault),
        seed_(seed),
        rounds_(rounds),
        random_(seed),
        victim_(draw(size)) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(*this, rank));
      if (is_present(rank)) {
        const Terms terms{.options = fault == Fault::other_options && rank == victim_ ? 2U : 1U};
        ranks_.back()->agreement =
            std::make_unique<Agreement>(rank, size, terms, *ranks_.back(), rounds);
      }
    }
    fault_after_ = draw(size * 8);
  }

  /// Until no event is left, or the job is aborted.
  void run() {
    for (int step = 0;; ++step) {
      ASSERT_LT(step, 10'000) << "events without end";
      if (step == fault_after_) strike();
      std::vector<Event> events = possible();
      if (events.empty()) {
        if (step < fault_after_) continue;
        if (std::exchange(has_waited_, true)) break;
        for (const auto& rank : ranks_)  // the deadline, while nothing else happens
          if (is_live(rank->rank) && fault_ == Fault::killed) rank->agreement->expire();
        continue;
      }
      carry_out(events[static_cast<std::size_t>(draw(static_cast<int>(events.size())))]);
      check_agreement();
      if (is_aborted_ || testing::Test::HasFailure()) return;
    }
    check_ends();
  }

  bool is_aborted() const { return is_aborted_; }
  bool all_say(int round, Outcome outcome) const {
    return std::ranges::all_of(ranks_, [&](const auto& rank) {
      return rank->agreement == nullptr || rank->is_dead ||
             rank->agreement->outcome(round) == outcome;
    });
  }
  /// Each rank leaves out one bit now and then.
  std::uint8_t offers_of(int rank) const {
    constexpr unsigned kAll = 0xff, kSpread = 37;
    const unsigned one = (seed_ * kSpread + static_cast<unsigned>(rank) * 101) % 16;
    return static_cast<std::uint8_t>(one < 8 ? kAll & ~(1u << one) : kAll);
  }
  std::uint8_t offers_of_all() const {
    unsigned all = 0xff;
    for (int rank = 0; rank < size_; ++rank) all &= offers_of(rank);
    return static_cast<std::uint8_t>(all);
  }
  Reason reason_of(int rank) const { return ranks_[index(rank)]->agreement->reason(); }
  int victim() const { return victim_; }
  bool is_live(int rank) const {
    return ranks_[index(rank)]->agreement != nullptr && !ranks_[index(rank)]->is_dead;
  }

 private:
  struct Rank final : Lines {
    Rank(SimulatedWorld& its_world, int its_rank) : world(its_world), rank(its_rank) {}
    Objection absence(int other) override {
      return world.is_present(other) ? Objection::none : Objection::without_larklane;
    }
    bool connect(int other) override { return world.connect(rank, other); }
    Objection obstacle(int) override { return Objection::none; }
    void send(int to, BallotKind kind, const Ballot& ballot) override {
      world.send(rank, to, kind, ballot);
    }

    SimulatedWorld& world;
    const int rank;
    std::unique_ptr<Agreement> agreement;
    enum class Call : std::uint8_t { before, voted, inside_dup, voted_again } call = Call::before;
    bool is_dead = false;
  };
  /// A ballot, or the end of the connection.
  using Arrival = std::optional<std::pair<BallotKind, Ballot>>;
  using Way = std::pair<int, int>;  // from, to
  struct Event {
    enum class Kind : std::uint8_t { call, arrival, expire } kind;
    Way way;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  int draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  bool is_present(int rank) const { return fault_ != Fault::absent || rank != victim_; }
  static Way link_of(int a, int b) { return {std::min(a, b), std::max(a, b)}; }

  bool connect(int from, int to) {
    if (!is_live(to)) return false;
    links_.insert(link_of(from, to));
    return true;
  }
  void send(int from, int to, BallotKind kind, const Ballot& ballot) {
    if (links_.contains(link_of(from, to)))
      arrivals_[{from, to}].emplace_back(std::pair{kind, ballot});
  }

  std::vector<Event> possible() {
    std::vector<Event> events;
    for (const auto& [way, queue] : arrivals_)
      if (!queue.empty() && is_live(way.second)) events.push_back({Event::Kind::arrival, way});
    for (int rank = 0; rank < size_; ++rank) {
      if (is_live(rank) && can_call(*ranks_[index(rank)]))
        events.push_back({Event::Kind::call, {rank, rank}});
      if (fault_ == Fault::late && is_live(rank) && !expired_.contains(rank))
        events.push_back({Event::Kind::expire, {rank, rank}});
    }
    return events;
  }
  bool can_call(const Rank& rank) const {
    switch (rank.call) {
      case Rank::Call::before:
        return fault_ != Fault::late || rank.rank != victim_ || is_struck_;
      case Rank::Call::voted:
        return rounds_ > 1 && rank.agreement->outcome(1) == Outcome::yes;
      case Rank::Call::inside_dup: {
        int entered = 0;
        for (const auto& other : ranks_)
          entered += other->is_dead || other->call >= Rank::Call::inside_dup;
        return entered == size_;
      }
      case Rank::Call::voted_again:
        return false;
    }
    return false;
  }
  void carry_out(const Event& event) {
    Rank& rank = *ranks_[index(event.way.second)];
    if (event.kind == Event::Kind::expire) {
      expired_.insert(rank.rank);
      return rank.agreement->expire();
    }
    if (event.kind == Event::Kind::arrival) {
      std::deque<Arrival>& queue = arrivals_[event.way];
      const Arrival arrival = queue.front();
      queue.pop_front();
      if (arrival)
        rank.agreement->on_ballot(arrival->first, arrival->second);
      else
        rank.agreement->on_ended(event.way.first);
      return;
    }
    call(rank);
  }
  void call(Rank& rank) {
    switch (rank.call) {
      case Rank::Call::before:
        rank.call = Rank::Call::voted;
        if (fault_ == Fault::objects && rank.rank == victim_)
          rank.agreement->object({Objection::several_hosts, rank.rank});
        else
          rank.agreement->agree(1, offers_of(rank.rank));
        return;
      case Rank::Call::voted:
        rank.call = Rank::Call::inside_dup;
        return;
      default:
        rank.call = Rank::Call::voted_again;
        if (fault_ == Fault::no_communicator && rank.rank == victim_)
          rank.agreement->object({Objection::no_communicator, rank.rank});
        else
          rank.agreement->agree(2);
    }
  }
  void strike() {
    is_struck_ = true;
    if (fault_ == Fault::killed && is_live(victim_)) {
      ranks_[index(victim_)]->is_dead = true;
      for (auto link = links_.begin(); link != links_.end();) {
        if (link->first != victim_ && link->second != victim_) {
          ++link;
          continue;
        }
        const int other = link->first == victim_ ? link->second : link->first;
        arrivals_[{victim_, other}].emplace_back(std::nullopt);
        link = links_.erase(link);
      }
    }
    if (fault_ == Fault::cut && !links_.empty()) {
      const auto link = std::next(
          links_.begin(), static_cast<std::ptrdiff_t>(draw(static_cast<int>(links_.size()))));
      for (const Way& way : {Way(*link), Way(link->second, link->first)}) {
        arrivals_[way].clear();
        arrivals_[way].emplace_back(std::nullopt);
      }
      links_.erase(link);
    }
  }

  /// No two ranks, the dead included, decide a round differently. The job is aborted only if the
  /// root has ended.
  void check_agreement() {
    for (int round = 1; round <= rounds_; ++round) {
      std::optional<Outcome> all;
      for (const auto& rank : ranks_) {
        if (rank->agreement == nullptr) continue;
        const Outcome one = rank->agreement->outcome(round);
        if (one == Outcome::aborted) {
          is_aborted_ = true;
          EXPECT_TRUE(fault_ == Fault::killed && victim_ == 0 && is_struck_);
        }
        // A no of the first round is one of the second, too.
        if (one != Outcome::yes && one != Outcome::no) continue;
        EXPECT_EQ(all.value_or(one), one) << "round " << round << ", rank " << rank->rank;
        all = one;
        if (round == 1 && one == Outcome::yes) {
          EXPECT_EQ(rank->agreement->offers(), offers_of_all()) << "rank " << rank->rank;
        }
      }
      EXPECT_TRUE(fault_ != Fault::none || all != Outcome::no);
    }
  }
  void check_ends() const {
    for (const auto& rank : ranks_) {
      if (rank->agreement == nullptr || rank->is_dead) continue;
      EXPECT_NE(rank->agreement->outcome(rounds_), Outcome::open)
          << "rank " << rank->rank << " waits";
    }
  }

  const int size_;
  const Fault fault_;
  const std::uint32_t seed_;
  const int rounds_;
  std::minstd_rand random_;
  const int victim_;
  int fault_after_ = 0;
  bool is_struck_ = false, is_aborted_ = false, has_waited_ = false;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::set<Way> links_;
  std::map<Way, std::deque<Arrival>> arrivals_;
  std::set<int> expired_;
};

/// Calls check(world) after each of `runs` runs, with 1 to 8 ranks in turn.
template <class Check>
void run_all(Fault fault, int runs, Check&& check, int rounds = Agreement::kRoundsMax) {
  for (int seed = 1; seed <= runs; ++seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    SimulatedWorld world(1 + seed % 8, fault, static_cast<std::uint32_t>(seed), rounds);
    world.run();
    if (testing::Test::HasFailure()) return;
    check(world, 1 + seed % 8);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Agreement, AllRanksOwnTheWorldWithoutAFault) {
  run_all(Fault::none, 2000, [](const SimulatedWorld& world, int) {
    EXPECT_TRUE(world.all_say(1, Outcome::yes));
    EXPECT_TRUE(world.all_say(2, Outcome::yes));
  });
}

TEST(Agreement, ARankWithoutLarklaneKeepsAllRanksNative) {
  run_all(Fault::absent, 4000, [](const SimulatedWorld& world, int size) {
    EXPECT_TRUE(world.all_say(1, Outcome::no));
    for (int rank = 0; rank < size; ++rank) {
      if (rank == world.victim()) continue;
      EXPECT_EQ(world.reason_of(rank).objection, Objection::without_larklane);
      EXPECT_EQ(world.reason_of(rank).rank, world.victim());
    }
  });
}

TEST(Agreement, OtherOptionsKeepAllRanksNative) {
  run_all(Fault::other_options, 4000, [](const SimulatedWorld& world, int size) {
    if (size == 1) return;
    EXPECT_TRUE(world.all_say(1, Outcome::no));
    EXPECT_EQ(world.reason_of(0).objection, Objection::options);
  });
}

TEST(Agreement, AnObjectionReachesAllRanks) {
  run_all(Fault::objects, 4000, [](const SimulatedWorld& world, int size) {
    EXPECT_TRUE(world.all_say(1, Outcome::no));
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(world.reason_of(rank).rank, world.victim());
  });
}

TEST(Agreement, ADeadlineNeverDividesTheRanks) {
  int owned = 0, native = 0;
  run_all(Fault::late, 8000, [&](const SimulatedWorld& world, int) {
    ++(world.all_say(2, Outcome::yes) ? owned : native);
  });
  EXPECT_GT(owned, 50);
  EXPECT_GT(native, 100);
}

TEST(Agreement, AFailedCommunicatorKeepsAllRanksNative) {
  run_all(Fault::no_communicator, 4000, [](const SimulatedWorld& world, int) {
    EXPECT_TRUE(world.all_say(1, Outcome::yes));
    EXPECT_TRUE(world.all_say(2, Outcome::no));
    EXPECT_EQ(world.reason_of(0).objection, Objection::no_communicator);
  });
}

TEST(Agreement, ADeathNeverDividesTheRanks) {
  int aborted = 0, owned = 0, native = 0;
  run_all(Fault::killed, 20'000, [&](const SimulatedWorld& world, int) {
    ++(world.is_aborted() ? aborted : world.all_say(2, Outcome::yes) ? owned : native);
  });
  EXPECT_GT(aborted, 100);
  EXPECT_GT(owned, 100);
  EXPECT_GT(native, 100);
}

TEST(Agreement, ALostConnectionNeverDividesTheRanks) {
  run_all(Fault::cut, 20'000, [](const SimulatedWorld&, int) {});
}

TEST(Agreement, OneRoundIsFinal) {
  constexpr int kRounds = 1;
  int owned = 0;
  for (const Fault fault : {Fault::none, Fault::absent, Fault::other_options, Fault::objects,
                            Fault::late, Fault::killed, Fault::cut})
    run_all(
        fault, 4000,
        [&](const SimulatedWorld& world, int) { owned += world.all_say(1, Outcome::yes) ? 1 : 0; },
        kRounds);
  EXPECT_GT(owned, 4000);
}

TEST(Agreement, ReasonsNameTheRankAndTheRemedy) {
  EXPECT_NE(text_of({Objection::without_larklane, 3}, 0).find("rank 3 runs without this Larklane"),
            std::string::npos);
  EXPECT_NE(text_of({Objection::late, 2}, 10'000'000'000).find("rank 2 has not come within 10s"),
            std::string::npos);
}

TEST(Agreement, RankObjectsBeforeItsYesIfMemoryCantBeRead) {
  struct Walls final : Lines {
    explicit Walls(int its_walled) : walled(its_walled) {}
    Objection absence(int) override { return Objection::none; }
    bool connect(int) override { return true; }
    Objection obstacle(int rank) override {
      return rank == walled ? Objection::unreadable : Objection::none;
    }
    void send(int to, BallotKind kind, const Ballot& ballot) override {
      sent.emplace_back(to, kind, ballot);
    }
    const int walled;
    std::vector<std::tuple<int, BallotKind, Ballot>> sent;
  };
  for (const int walled : {0, 1}) {  // the root, and the parent, of rank 3
    Walls lines(walled);
    Agreement leaf(3, 5, {}, lines, Agreement::kRoundsMax);
    leaf.agree(1);
    EXPECT_EQ(leaf.outcome(1), Agreement::Outcome::no);
    EXPECT_EQ(leaf.reason().objection, Objection::unreadable);
    EXPECT_EQ(leaf.reason().rank, walled);
    ASSERT_EQ(lines.sent.size(), 1u);  // a no to the parent
    EXPECT_EQ(std::get<2>(lines.sent[0]).is_yes, 0);
  }
  Walls lines(2);
  Agreement root(0, 3, {}, lines, Agreement::kRoundsMax);
  root.agree(1);
  root.on_ballot(BallotKind::vote, {.terms = {},
                                    .from = 2,
                                    .objector = -1,
                                    .round = 1,
                                    .is_yes = 1,
                                    .objection = 0,
                                    .offers = 0});
  EXPECT_EQ(root.outcome(1), Agreement::Outcome::no);
  EXPECT_EQ(root.reason().rank, 2);
}

TEST(Agreement, ParentReportsAnEndThatOthersRelyOn) {
  struct NoLines final : Lines {
    Objection absence(int) override { return Objection::none; }
    bool connect(int) override { return true; }
    Objection obstacle(int) override { return Objection::none; }
    void send(int, BallotKind, const Ballot&) override {}
  };
  for (int votes = 0; votes <= 4; ++votes) {  // of both children, in two rounds
    NoLines lines;
    Agreement root(0, 3, {}, lines, Agreement::kRoundsMax);
    root.agree(1);
    for (int vote = 0; vote < votes; ++vote) {
      if (vote == 2) root.agree(2);
      root.on_ballot(BallotKind::vote, {.terms = {},
                                        .from = 1 + vote % 2,
                                        .objector = -1,
                                        .round = static_cast<std::uint8_t>(1 + vote / 2),
                                        .is_yes = 1,
                                        .objection = 0,
                                        .offers = 0});
    }
    EXPECT_EQ(root.on_ended(1), votes >= 1 && votes <= 3) << votes;
  }
}

}  // namespace
}  // namespace larklane::mpi::p2p
