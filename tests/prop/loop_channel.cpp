// Rounds of a channel on the simulation, and the judge of their bytes.

#include "loop_channel.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <span>

#include "net/loop/atomic.hpp"
#include "net/loop/simulation.hpp"
#include "part/policy/deadline.hpp"
#include "part/protocol/side.hpp"

namespace larklane::part::prop {
namespace {

using loop::Platform;
using loop::Simulation;
using std::memory_order_relaxed;

constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kPoison{0xa5};   // the receiver's, outside of its rounds
constexpr std::byte kGarbage{0xc3};  // the sender's, outside of Pready to completion

/// Never poison, never garbage; another one in each round.
std::byte byte_of(std::uint64_t round, std::uint64_t index) {
  return std::byte(1 + (index * 7 + round * 41) % 127);
}

/// A buffer between two guards.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::byte value)
      : bytes_(bytes), all_(bytes + 2 * kGuardBytes, value) {}
  std::byte* data() { return all_.data() + kGuardBytes; }
  std::span<std::byte> bytes() { return {data(), bytes_}; }
  bool guards_hold(std::byte value) const {
    auto is = [value](std::byte b) { return b == value; };
    return std::all_of(all_.begin(), all_.begin() + kGuardBytes, is) &&
           std::all_of(all_.end() - kGuardBytes, all_.end(), is);
  }

 private:
  std::size_t bytes_;
  std::vector<std::byte> all_;
};

/// Zeroed memory for a control block.
class BlockMemory {
 public:
  explicit BlockMemory(std::size_t bytes)
      : base_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kLineBytes}))) {
    std::fill_n(base_, bytes, std::byte{0});
  }
  ~BlockMemory() { ::operator delete (base_, std::align_val_t{kLineBytes}); }
  BlockMemory(const BlockMemory&) = delete;
  BlockMemory& operator=(const BlockMemory&) = delete;
  std::byte* base() const { return base_; }

 private:
  std::byte* base_;
};

/// The steps of the application in one round, and its state so far.
struct Round {
  std::size_t plan = 0;
  std::vector<std::vector<Run>> marks;  // by marker, in its order
  std::vector<bool> held;               // by partition: ready only when `required` has been seen
  std::vector<bool> required;           // by receive partition: arrives without those
  std::uint32_t required_left = 0;
  std::vector<bool> filled;          // by partition: it may travel
  std::vector<std::uint32_t> moved;  // by partition: how often
  std::vector<bool> seen;            // by receive partition
  std::uint32_t pollers_done = 0;
};

class World {
 public:
  World(const Case& c, std::uint64_t seed);
  std::string run();

 private:
  struct Mover {
    World& world;
    std::uint64_t round;
    void move(Run run) { world.move(round, run); }
    void fill(std::byte* slot, std::uint64_t offset, std::uint64_t length) {
      world.simulation_.copy(slot, world.send_buffer_.data() + offset, length);
    }
    void empty(const std::byte* slot, std::uint64_t offset, std::uint64_t length) {
      world.must(world.receiver_round_ == round,
                 "read from a slot outside of the receiver's round");
      world.simulation_.copy(world.recv_buffer_.data() + offset, slot, length);
    }
  };

  static BlockShape shape_of(const Case& c);
  Round plan_round();
  std::vector<bool> moving_together(std::size_t plan, const std::vector<bool>& ready) const;
  std::vector<std::uint32_t> sources(std::uint32_t recv_partition) const;
  std::uint64_t below(std::uint64_t bound) { return simulation_.random().below(bound); }
  void dawdle();
  void must(bool holds, const char* what);
  void move(std::uint64_t round, Run run);
  void check_partition(std::uint64_t round, std::uint32_t partition);
  bool all_bytes_are(std::span<std::byte> bytes, std::byte value);

  void time_words();
  Status mark(std::uint64_t round, Run run, Mover& mover);
  void look_for_deadlines(std::uint64_t round);
  void sender();
  template <class Started>
  Round& await_round(std::uint64_t r, const char* what, const Started& started);
  void marker(std::size_t index);
  void receiver();
  void poller(std::size_t index);
  bool arrives(std::uint64_t round, std::uint32_t partition, Mover& mover);
  void straggler();
  void expirer();

  const Case& case_;
  Simulation simulation_;
  const BlockShape shape_;
  std::size_t words_ = 0;  ///< of the first round
  BlockMemory memory_;
  BlockView<Platform> view_;
  SendSide<Platform> send_;
  RecvSide<Platform> recv_;
  Guarded send_buffer_;
  Guarded recv_buffer_;
  std::size_t markers_, pollers_;
  bool main_waits_for_pollers_, announces_before_open_;
  bool asks_;  ///< pollers do not only look
  /// Policy `timer`.
  struct Timed {
    TimedMarks<Platform> marks;
    DeadlineWatch<Platform> watch;  // the receiver's
  };
  std::unique_ptr<Timed> timed_;
  std::vector<Round> rounds_;               // [0] is not used
  std::vector<std::vector<bool>> watched_;  // by poller and receive partition
  // Words between the application's threads.
  loop::Atomic<std::uint64_t> send_started_{0};
  loop::Atomic<std::uint64_t> recv_started_{0};
  std::uint64_t receiver_round_ = 0;  // its active round
};

std::uint64_t total_bytes(const Case& c) {
  return c.unit_bytes *
         std::lcm(std::uint64_t{c.send_partitions}, std::uint64_t{c.recv_partitions});
}

BlockShape World::shape_of(const Case& c) {
  std::size_t groups = 0;
  for (const auto& boundaries : c.plans) groups = std::max(groups, boundaries.size());
  const auto groups_max = static_cast<std::uint32_t>(groups);
  const LayoutSize most = LayoutSize::most(c.send_partitions, groups_max);
  const std::uint64_t partition_bytes = total_bytes(c) / c.send_partitions;
  return {c.mode, c.send_partitions, groups_max, most.words, most.roots, 0, partition_bytes};
}

World::World(const Case& c, std::uint64_t seed)
    : case_(c),
      simulation_({.seed = seed, .explore = true}),
      shape_(shape_of(c)),
      memory_(BlockOffsets::of(shape_).end),
      view_(memory_.base(), shape_),
      send_(view_, shape_),
      recv_(view_, shape_, c.recv_partitions),
      send_buffer_(total_bytes(c), kGarbage),
      recv_buffer_(total_bytes(c), kPoison),
      markers_(1 + below(3)),
      pollers_(below(3)),
      main_waits_for_pollers_(pollers_ != 0 && below(2) == 0),
      announces_before_open_(below(2) == 0),
      asks_(c.mode == Mode::direct && below(2) == 0) {
  view_.construct(shape_, 1);
  watched_.assign(pollers_, std::vector<bool>(c.recv_partitions, false));
  for (std::uint32_t j = 0; j < c.recv_partitions && pollers_ != 0; ++j) {
    watched_[below(pollers_)][j] = true;
    watched_[below(pollers_)][j] = true;
  }
  rounds_.resize(1);
  for (std::uint64_t r = 1; r <= case_.rounds; ++r) rounds_.push_back(plan_round());
  if (c.mode == Mode::slots) return;
  const Layout layout =
      std::move(Layout::make(c.send_partitions, c.plans[rounds_[1].plan])).value();
  words_ = layout.words().size();
  if (c.plans.size() == 1 && layout.roots().empty() && below(3) == 0) time_words();
  if (!send_.choose(c.plans[rounds_[1].plan]).ok()) std::abort();
}

void World::time_words() {
  const std::uint64_t after = 1 + below(40) * simulation_.costs().line_transfer_ps;
  const auto words = static_cast<std::uint32_t>(words_);
  timed_.reset(new Timed{{view_, words, after}, {recv_.block(), words, after}});
}

/// As a waiting thread of the receiver does it.
void World::look_for_deadlines(std::uint64_t round) {
  if (!timed_) return;
  Mover mover{*this, round};
  timed_->watch.look(recv_.last_comer(), round, simulation_.now_ps() + 1,
                     [&](Run run) { mover.move(run); });
}

/// Send partitions with a byte in `recv_partition`; by count where there are no bytes.
std::vector<std::uint32_t> World::sources(std::uint32_t recv_partition) const {
  const std::uint64_t scale = std::lcm(case_.send_partitions, case_.recv_partitions);
  const std::uint64_t send_size = scale / case_.send_partitions;
  const std::uint64_t recv_size = scale / case_.recv_partitions;
  std::vector<std::uint32_t> found;
  for (std::uint32_t p = 0; p < case_.send_partitions; ++p)
    if (p * send_size < (recv_partition + 1) * recv_size &&
        recv_partition * recv_size < (p + 1) * send_size)
      found.push_back(p);
  return found;
}

/// The partitions that move, or can be asked for, when `ready` are marked and the receiver has
/// started.
std::vector<bool> World::moving_together(std::size_t plan, const std::vector<bool>& ready) const {
  if (case_.mode == Mode::slots || asks_) return ready;
  const std::vector<std::uint32_t>& boundaries = case_.plans[plan];
  std::vector<bool> moving(ready.size(), false);
  for (std::size_t g = 0; g < boundaries.size(); ++g) {
    const std::uint32_t end = g + 1 < boundaries.size() ? boundaries[g + 1] : case_.send_partitions;
    for (std::uint32_t first = boundaries[g]; first < end; first += kGroupPartitionsMax) {
      const std::uint32_t stop = std::min(end, first + kGroupPartitionsMax);
      bool whole = true;
      for (std::uint32_t p = first; p < stop; ++p) whole = whole && ready[p];
      for (std::uint32_t p = first; p < stop; ++p) moving[p] = whole;
    }
  }
  return moving;
}

Round World::plan_round() {
  Round round;
  round.plan = case_.plans.size() < 2 ? 0 : below(case_.plans.size());
  round.held.assign(case_.send_partitions, false);
  round.filled.assign(case_.send_partitions, false);
  round.moved.assign(case_.send_partitions, 0);
  round.required.assign(case_.recv_partitions, false);
  round.seen.assign(case_.recv_partitions, false);
  round.marks.resize(markers_);

  std::vector<Run> runs;
  const std::uint64_t longest = 1 + below(below(2) == 0 ? 3 : case_.send_partitions);
  for (std::uint32_t p = 0; p < case_.send_partitions;) {
    const auto count = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(1 + below(longest), case_.send_partitions - p));
    runs.push_back({p, count});
    p += count;
  }
  for (std::size_t i = runs.size(); i > 1; --i) std::swap(runs[i - 1], runs[below(i)]);
  // The last ones in this order are held back: every marker comes to its own at the end.
  const std::size_t free = pollers_ == 0 ? runs.size() : below(runs.size() + 1);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    round.marks[below(markers_)].push_back(runs[i]);
    for (std::uint32_t p = runs[i].first; i >= free && p < runs[i].first + runs[i].count; ++p)
      round.held[p] = true;
  }
  std::vector<bool> ready(case_.send_partitions);
  std::transform(round.held.begin(), round.held.end(), ready.begin(), std::logical_not<>());
  const std::vector<bool> moving = moving_together(round.plan, ready);
  for (std::uint32_t j = 0; j < case_.recv_partitions && pollers_ != 0; ++j) {
    const auto from = sources(j);
    round.required[j] = std::all_of(from.begin(), from.end(), [&](auto p) { return moving[p]; });
    round.required_left += round.required[j] ? 1 : 0;
  }
  return round;
}

void World::dawdle() {
  for (std::uint64_t turns = below(2) == 0 ? 0 : below(30); turns != 0; --turns)
    simulation_.spend(1000);
}

void World::must(bool holds, const char* what) {
  if (!holds) simulation_.fail(what);
}

bool World::all_bytes_are(std::span<std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte b) { return b == value; });
}

void World::move(std::uint64_t round, Run run) {
  must(receiver_round_ == round, "moved outside of the receiver's round");
  const std::uint64_t bytes = shape_.partition_bytes;
  for (std::uint32_t p = run.first; p < run.first + run.count; ++p) {
    must(rounds_[round].filled[p], "moved before its Pready");
    must(++rounds_[round].moved[p] == 1, "moved twice");
  }
  simulation_.copy(recv_buffer_.data() + run.first * bytes, send_buffer_.data() + run.first * bytes,
                   run.count * bytes);
  publish_moved(view_, round, run);
}

void World::check_partition(std::uint64_t round, std::uint32_t partition) {
  for (const std::uint32_t p : sources(partition))
    must(rounds_[round].filled[p], "arrived before a Pready under it");
  const std::uint64_t bytes = total_bytes(case_) / case_.recv_partitions;
  for (std::uint64_t i = partition * bytes; i < (partition + 1) * bytes; ++i)
    must(recv_buffer_.data()[i] == byte_of(round, i), "arrived with a wrong byte");
}

void World::sender() {
  for (std::uint64_t r = 1; r <= case_.rounds; ++r) {
    std::fill(send_buffer_.bytes().begin(), send_buffer_.bytes().end(), kGarbage);
    dawdle();
    const std::size_t next = r < case_.rounds ? rounds_[r + 1].plan : 0;
    if (case_.mode == Mode::direct && next != rounds_[r].plan)
      must(send_.choose(case_.plans[next]).ok(), "the plan is refused");
    if (timed_) timed_->marks.start(r);
    send_.start(r);
    must(!send_.complete(r), "the send is complete before any Pready");
    send_started_.store(r, memory_order_relaxed);
    simulation_.wait("the send's completion", [&] { return send_.complete(r); });
    const auto& filled = rounds_[r].filled;
    must(std::all_of(filled.begin(), filled.end(), [](bool f) { return f; }),
         "the send is complete before its last Pready");
  }
}

/// As SendChannel does it: a single partition has a way of its own.
Status World::mark(std::uint64_t round, Run run, Mover& mover) {
  if (timed_)
    return timed_->marks.mark(send_.last_comer(), round, run, simulation_.now_ps() + 1, 0,
                              [&](Run moved) { mover.move(moved); });
  if (run.count != 1) return send_.mark(round, run, mover);
  if (case_.mode == Mode::direct)
    return send_.word_window(round).mark_one(run.first, [&](const Cell& cell, std::uint64_t old) {
      send_.last_comer().mark_further(round, cell, old, [&](Run moved) { mover.move(moved); });
    });
  auto& slots = send_.slots();
  if (slots.is_open(round) && !slots.is_ready(round, run.first) && below(3) == 0) {
    const std::uint64_t bytes = shape_.partition_bytes;
    must(receiver_round_ == round, "pushed outside of the receiver's round");
    simulation_.copy(recv_buffer_.data() + run.first * bytes,
                     send_buffer_.data() + run.first * bytes, bytes);
    slots.pushed(round, run.first);
    return {};
  }
  return send_.slot_window(round).mark_one(run.first, [&](auto... where) { mover.fill(where...); });
}

template <class Started>
Round& World::await_round(std::uint64_t r, const char* what, const Started& started) {
  simulation_.wait(what, [&] { return started.load(memory_order_relaxed) >= r; });
  return rounds_[r];
}

void World::marker(std::size_t index) {
  for (std::uint64_t r = 1; r <= case_.rounds; ++r) {
    Round& round = await_round(r, "the sender's Start", send_started_);
    Mover mover{*this, r};
    for (const Run run : round.marks[index]) {
      if (round.held[run.first])
        simulation_.wait("arrivals that need no other Pready",
                         [&] { return round.required_left == 0; });
      dawdle();
      const std::uint64_t bytes = shape_.partition_bytes;
      for (std::uint64_t i = run.first * bytes; i < (run.first + run.count) * bytes; ++i)
        send_buffer_.data()[i] = byte_of(r, i);
      for (std::uint32_t p = run.first; p < run.first + run.count; ++p) round.filled[p] = true;
      must(mark(r, run, mover).ok(), "Pready failed");
    }
  }
}

void World::receiver() {
  for (std::uint64_t r = 1; r <= case_.rounds; ++r) {
    dawdle();
    must(all_bytes_are(recv_buffer_.bytes(), kPoison), "written outside of the receiver's rounds");
    Mover mover{*this, r};
    receiver_round_ = r;
    if (announces_before_open_) recv_started_.store(r, memory_order_relaxed);
    must(recv_.open(r, mover).ok(), "the plan makes no sense");
    recv_started_.store(r, memory_order_relaxed);
    if (main_waits_for_pollers_)
      simulation_.wait("its pollers", [&] { return rounds_[r].pollers_done == pollers_; });
    simulation_.wait("the receive's completion", [&] {
      if (recv_.complete(r, mover)) return true;
      look_for_deadlines(r);
      return recv_.complete(r, mover);
    });
    for (std::uint32_t j = 0; j < case_.recv_partitions; ++j) {
      must(recv_.arrived(r, j, mover), "the receive is complete, a partition has not arrived");
      check_partition(r, j);
    }
    simulation_.wait("its pollers", [&] { return rounds_[r].pollers_done == pollers_; });
    receiver_round_ = 0;
    std::fill(recv_buffer_.bytes().begin(), recv_buffer_.bytes().end(), kPoison);
  }
}

void World::poller(std::size_t index) {
  for (std::uint64_t r = 1; r <= case_.rounds; ++r) {
    Round& round = await_round(r, "the receiver's Start", recv_started_);
    Mover mover{*this, r};
    std::vector<std::uint32_t> missing;
    for (std::uint32_t j = 0; j < case_.recv_partitions; ++j)
      if (watched_[index][j]) missing.push_back(j);
    while (!missing.empty()) {
      std::size_t found = 0;
      simulation_.wait("an arrival", [&] {
        for (found = below(missing.size()); found < missing.size(); ++found)
          if (recv_.arrived(r, missing[found], mover)) return true;
        for (found = 0; found < missing.size(); ++found)
          if (arrives(r, missing[found], mover)) return true;
        look_for_deadlines(r);
        return false;
      });
      const std::uint32_t j = missing[found];
      check_partition(r, j);
      if (!round.seen[j] && round.required[j]) --round.required_left;
      round.seen[j] = true;
      missing.erase(missing.begin() + static_cast<std::ptrdiff_t>(found));
    }
    ++round.pollers_done;
  }
}

/// Parrived.
bool World::arrives(std::uint64_t round, std::uint32_t partition, Mover& mover) {
  if (recv_.arrived(round, partition, mover)) return true;
  if (!asks_) return false;
  recv_.ask(round, partition, mover);
  return recv_.arrived(round, partition, mover);
}

/// A Parrived that may stall while the application goes on to later rounds.
void World::straggler() {
  for (int i = 0; i < 12; ++i) {
    dawdle();
    const std::uint64_t r = recv_started_.load(memory_order_relaxed);
    if (r == 0) continue;
    Mover mover{*this, r};
    (void)arrives(r, static_cast<std::uint32_t>(below(case_.recv_partitions)), mover);
    look_for_deadlines(r);
  }
}

/// Words that expire at any moment, some of them too late.
void World::expirer() {
  for (std::uint64_t r = 1; r <= case_.rounds; ++r) {
    simulation_.wait("the sender's Start",
                     [&] { return send_started_.load(memory_order_relaxed) >= r; });
    for (std::uint64_t times = below(4); times != 0; --times) {
      dawdle();
      Mover mover{*this, r};
      send_.last_comer().expire(r, static_cast<std::uint32_t>(below(shape_.words_max)),
                                [&](Run run) { mover.move(run); });
    }
  }
}

std::string World::run() {
  simulation_.spawn("sender", [this] { sender(); });
  simulation_.spawn("receiver", [this] { receiver(); });
  for (std::size_t i = 0; i < markers_; ++i)
    simulation_.spawn("marker " + std::to_string(i), [this, i] { marker(i); });
  for (std::size_t i = 0; i < pollers_; ++i)
    simulation_.spawn("poller " + std::to_string(i), [this, i] { poller(i); });
  if (below(2) == 0) simulation_.spawn("straggler", [this] { straggler(); });
  if (case_.mode == Mode::direct && below(2) == 0)
    simulation_.spawn("expirer", [this] { expirer(); });
  std::string why = simulation_.run();
  if (!why.empty()) return why;
  if (!all_bytes_are(recv_buffer_.bytes(), kPoison)) return "written after the last round";
  if (!recv_buffer_.guards_hold(kPoison)) return "written outside of the receive buffer";
  if (!send_buffer_.guards_hold(kGarbage)) return "written outside of the send buffer";
  return {};
}

}  // namespace

std::string Case::text() const {
  std::string groups;
  for (const auto& boundaries : plans) {
    groups += " [";
    for (const std::uint32_t b : boundaries) groups += " " + std::to_string(b);
    groups += " ]";
  }
  return std::to_string(send_partitions) + " to " + std::to_string(recv_partitions) +
         " partitions, unit " + std::to_string(unit_bytes) + ", " +
         (mode == Mode::slots ? "slots" : "direct, groups from" + groups);
}

std::string run_case(const Case& c, std::uint64_t seed) {
  return std::make_unique<World>(c, seed)->run();
}

}  // namespace larklane::part::prop
