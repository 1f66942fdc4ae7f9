#include "sim/sweep.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/loop/random.hpp"
#include "net/loop/simulation.hpp"
#include "sim/path.hpp"
#include "sim/payload.hpp"

namespace larklane::sim {
namespace {

using loop::Simulation;

constexpr std::uint64_t kPausePs = 1'000'000;
/// Neighbours have even and odd places, so that of all that touch a message no two have one core's
/// bit, up to this many threads.
constexpr std::uint32_t kCoresOfRank = 32;
/// Of the thread that starts rounds; no other's.
constexpr std::uint32_t kStartCore = kCoresOfRank - 1;

/// Into which the wave of a corner goes, in the benchmark's order.
struct Direction {
  bool is_right, is_down;
};
constexpr std::array<Direction, 4> kCorners{
    {{true, true}, {false, true}, {false, false}, {true, false}}};

/// Calls visit(rank, inflow, outflow) in the order of the wave: ranks are numbered by rows; those
/// of both neighbours before and after it, -1 where the plane ends.
template <class Visit>
void for_each_rank(const Sweep& sweep, Direction to, Visit&& visit) {
  const auto columns = static_cast<int>(sweep.columns), rows = static_cast<int>(sweep.rows);
  const auto number = [&](int x, int y) {
    return x < 0 || y < 0 || x >= columns || y >= rows ? -1 : y * columns + x;
  };
  const int dx = to.is_right ? 1 : -1, dy = to.is_down ? 1 : -1;
  for (int j = 0; j < rows; ++j)
    for (int i = 0; i < columns; ++i) {
      const int x = to.is_right ? i : columns - 1 - i, y = to.is_down ? j : rows - 1 - j;
      visit(static_cast<std::size_t>(number(x, y)),
            std::array{number(x - dx, y), number(x, y - dy)},
            std::array{number(x + dx, y), number(x, y + dy)});
    }
}

/// To one neighbour, from one corner.
struct Message {
  std::unique_ptr<Payload> payload;
  std::unique_ptr<Path> path;
};

/// The work of a rank for one block from one corner.
struct Turn {
  std::vector<Message*> inflow, outflow;
};

struct Rank {
  std::optional<loop::Link> out, back;
  std::vector<Turn> turns;  // by corner and block
  Simulation::Event completion;
  Simulation::Event arrival;
  Simulation::Event join;
  std::uint64_t joined = 0;  // threads, at all joins so far
};

/// All ranks.
class Plane {
 public:
  explicit Plane(const Sweep& sweep)
      : sweep_(sweep),
        channel_(sweep.channel),
        simulation_({.seed = channel_.seed,
                     .deadline_ps = std::numeric_limits<std::uint64_t>::max(),
                     .costs = channel_.processor}),
        random_(channel_.seed),
        free_ps_(steps(sweep) * sweep.compute_ps),
        ranks_(std::size_t{sweep.columns} * sweep.rows) {
    for (Rank& rank : ranks_) {
      rank.out.emplace(simulation_, link_costs(channel_), "a host's network");
      if (channel_.two_sided) rank.back.emplace(simulation_, link_costs(channel_), "its requests");
      rank.turns.resize(turns());
    }
    for (std::uint32_t turn = 0; turn < turns(); ++turn) connect(turn);
    for (std::size_t r = 0; r < ranks_.size(); ++r) spawn(r);
    simulation_.spawn(
        "the start", [this] { lead(); }, kStartCore);
  }

  Outcome run() {
    outcome_.failure = simulation_.run();
    if (outcome_.failure.empty() && outcome_.rounds.size() != channel_.ready_ps.size())
      outcome_.failure = "a thread sleeps for what never comes";
    return std::move(outcome_);
  }

 private:
  std::uint32_t turns() const { return sweep_.corners * sweep_.blocks; }
  void connect(std::uint32_t turn) {
    for_each_rank(sweep_, kCorners[turn / sweep_.blocks],
                  [&](std::size_t r, auto, const auto& outflow) {
                    for (const int to : outflow)
                      if (to >= 0) connect(ranks_[r], ranks_[static_cast<std::size_t>(to)], turn);
                  });
  }
  void connect(Rank& from, Rank& to, std::uint32_t turn) {
    auto message = std::make_unique<Message>();
    message->payload = std::make_unique<Payload>(channel_.partitions, channel_.partition_bytes);
    message->path = make_path(simulation_, channel_, *message->payload, *from.out,
                              to.back ? &*to.back : nullptr);
    message->path->announce_to(to.completion);
    from.turns[turn].outflow.push_back(message.get());
    to.turns[turn].inflow.push_back(message.get());
    messages_.push_back(std::move(message));
  }

  void spawn(std::size_t r) {
    const std::size_t place = r % sweep_.columns + r / sweep_.columns;
    const auto core = static_cast<std::uint32_t>(place % 2 * kCoresOfRank);
    const std::string name = "rank " + std::to_string(r);
    for (std::uint32_t t = 0; t < channel_.threads; ++t)
      simulation_.spawn(
          name + ", thread " + std::to_string(t), [this, r, t] { work(ranks_[r], r, t); },
          core + t);
    simulation_.spawn(
        name + ", progress", [this, r] { progress(ranks_[r]); }, core + channel_.threads);
  }

  // --- virtual threads ---

  void work(Rank& rank, std::size_t r, std::uint32_t thread) {
    for (std::uint64_t sweep = 1; sweep <= channel_.ready_ps.size(); ++sweep) {
      await_begin(sweep);
      const std::uint32_t share = channel_.partitions / channel_.threads, first = thread * share;
      for (std::uint32_t turn = 0; turn < turns(); ++turn) {
        const auto& late_ps = channel_.ready_ps[drawn_[r * turns() + turn]];
        for (std::uint32_t p = first; p < first + share; ++p)
          compute(rank, rank.turns[turn], sweep, p, late_ps[p]);
        if ((turn + 1) % sweep_.blocks == 0) join(rank);
      }
      finish();
    }
  }

  void compute(Rank& rank, const Turn& turn, std::uint64_t sweep, std::uint32_t partition,
               std::uint64_t late_ps) {
    for (Message* message : turn.inflow) await(rank, *message->path, sweep, partition);
    simulation_.spend(sweep_.compute_ps + late_ps);
    for (Message* message : turn.outflow) {
      message->payload->fill(sweep, partition);
      if (!message->path->ready(sweep, partition)) simulation_.fail("Pready failed");
    }
  }

  void await(Rank& rank, Path& path, std::uint64_t sweep, std::uint32_t partition) {
    // No time passes between the last look and the sleep.
    while (!path.arrived(sweep, partition)) {
      simulation_.sleep(rank.arrival, "a partition");
      simulation_.spend(simulation_.costs().poll_ps);
    }
  }

  /// Costs nothing.
  void join(Rank& rank) {
    const std::uint64_t all = (rank.joined++ / channel_.threads + 1) * channel_.threads;
    if (rank.joined == all) return simulation_.wake(rank.join);
    while (rank.joined < all) simulation_.sleep(rank.join, "the other threads");
  }

  void progress(Rank& rank) {
    for (std::uint64_t sweep = 1; sweep <= channel_.ready_ps.size(); ++sweep) {
      await_begin(sweep);
      std::vector<Path*> open;
      for (const Turn& turn : rank.turns)
        for (const Message* message : turn.inflow) open.push_back(message->path.get());
      while (!open.empty()) {
        if (take(rank, open, sweep)) continue;
        simulation_.sleep(rank.completion, "a completion");
        simulation_.spend(simulation_.costs().poll_ps);
      }
      finish();
    }
  }

  /// One completion of each that has one. @return false: there was none, and no time has passed
  bool take(Rank& rank, std::vector<Path*>& open, std::uint64_t sweep) {
    bool found = false;
    std::erase_if(open, [&](Path* path) {
      if (!path->take(sweep)) return false;
      found = true;
      simulation_.wake(rank.arrival);
      return path->is_over(sweep);
    });
    return found;
  }

  void lead() {
    for (std::uint64_t sweep = 1; sweep <= channel_.ready_ps.size(); ++sweep) {
      std::uint32_t transfers = 0;
      for (const auto& message : messages_) {
        message->payload->clear();
        message->path->start(sweep);
      }
      draw();
      finished_ = 0;
      begin_ps_ = simulation_.now_ps() + kPausePs;
      sweep_number_ = sweep;
      simulation_.wake(begin_);
      while (finished_ != ranks_.size() * (channel_.threads + 1))
        simulation_.sleep(end_, "the sweep's end");
      for (const auto& message : messages_) {
        if (!message->payload->has_arrived(sweep)) simulation_.fail("a byte is not what was sent");
        transfers += message->path->transfers();
      }
      const std::uint64_t total_ps = simulation_.now_ps() - begin_ps_;
      outcome_.rounds.push_back({total_ps, total_ps - free_ps_, transfers});
    }
  }

  void draw() {
    drawn_.resize(ranks_.size() * turns());
    for (std::uint32_t& round : drawn_)
      round = static_cast<std::uint32_t>(random_.below(channel_.ready_ps.size()));
  }

  void await_begin(std::uint64_t sweep) {
    if (sweep_number_ < sweep) simulation_.sleep(begin_, "the sweep's begin");
    simulation_.spend(begin_ps_ - simulation_.now_ps());
  }
  void finish() {
    ++finished_;
    simulation_.wake(end_);
  }

  const Sweep& sweep_;
  const Scenario& channel_;
  Simulation simulation_;
  loop::Random random_;
  const std::uint64_t free_ps_;  // the sweep's time where communication is free
  std::vector<Rank> ranks_;      // of the row above first
  std::vector<std::unique_ptr<Message>> messages_;
  std::vector<std::uint32_t> drawn_;  // round of `ready_ps`, by rank and turn
  Simulation::Event begin_, end_;
  std::uint64_t sweep_number_ = 0, begin_ps_ = 0;
  std::uint64_t finished_ = 0;  // threads, of this sweep
  Outcome outcome_;
};

bool is_possible(const Sweep& sweep) {
  const Scenario& channel = sweep.channel;
  return sweep.columns != 0 && sweep.rows != 0 && sweep.corners >= 1 &&
         sweep.corners <= kCorners.size() && sweep.blocks >= 1 && channel.policy.empty() &&
         !channel.is_receiver_late && !channel.copying && channel.threads >= 1 &&
         channel.partitions % channel.threads == 0 && is_possible(channel);
}

}  // namespace

std::uint64_t steps(const Sweep& sweep) {
  // Of one thread; the threads of a rank are alike. `ready`: by rank, of each partition and block.
  const std::size_t each =
      std::size_t{sweep.channel.partitions / sweep.channel.threads} * sweep.blocks;
  std::vector<std::uint64_t> done(std::size_t{sweep.columns} * sweep.rows, 0),
      ready(done.size() * each);
  for (std::uint32_t corner = 0; corner < sweep.corners; ++corner)
    for_each_rank(sweep, kCorners[corner], [&](std::size_t r, const auto& inflow, auto) {
      for (std::size_t i = 0; i < each; ++i) {
        for (const int from : inflow)
          if (from >= 0)
            done[r] = std::max(done[r], ready[static_cast<std::size_t>(from) * each + i]);
        ready[r * each + i] = ++done[r];
      }
    });
  return done.empty() ? 0 : std::ranges::max(done);
}

Result<Outcome> simulate(const Sweep& sweep) {
  if (!is_possible(sweep)) return Status(Errc::kInvalidArgument);
  return Plane(sweep).run();
}

}  // namespace larklane::sim
