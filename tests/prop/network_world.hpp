#pragma once
// Channels over a network: two processes' engines in one thread, and every possible step (programs,
// helpers, control connection, network) in a seeded order. Against a plain model: which bytes are
// in which buffer, when, and which request may complete.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/loop/random.hpp"
#include "network_side.hpp"

namespace larklane::part {

/// A wait ends, without news, after so many turns and so much time. A thread may stand still for
/// longer than any wait on a busy machine, so time alone proves nothing. Thread safety:
/// single-owner.
class Patience {
 public:
  Patience(std::uint64_t turns, std::uint64_t ns) : turns_(turns), ns_(ns) {}
  /// There is news.
  void begin(std::uint64_t now_ns) { turn_ = 0, began_ns_ = now_ns; }
  /// After each turn without any.
  bool is_over(std::uint64_t now_ns) { return ++turn_ >= turns_ && now_ns - began_ns_ >= ns_; }

 private:
  const std::uint64_t turns_, ns_;
  std::uint64_t turn_ = 0, began_ns_ = 0;
};

/// The parts of a network that a World needs. Thread safety: single-owner.
class Medium {
 public:
  /// Of a pair of programs.
  struct Sizes {
    std::uint64_t unit_bytes_max;
    std::uint64_t bytes_max;     ///< of a buffer
    std::uint64_t channels = 1;  ///< one after the other, under one key
  };

  virtual ~Medium() = default;  ///< the fabrics that it opened are gone
  virtual Sizes sizes() const = 0;
  /// The network as one more process has it.
  virtual std::unique_ptr<net::Fabric> for_process() = 0;
  /// Make up to `most` steps.
  virtual void turn(std::uint64_t most) = 0;
  /// Make all possible steps.
  virtual void settle() = 0;
  /// Nothing travels, if that can be known; true: it is not.
  virtual bool is_quiet() = 0;
  /// When it is quiet posted operations arrive by then, with turns of helpers alone.
  virtual Patience patience() const = 0;
  /// Receivers are far behind their senders.
  virtual bool are_receivers_slow() const { return false; }
  /// A program has got further.
  virtual void on_news() {}
  /// A world that has not come to its end by this step never does. Asked before each.
  virtual bool has_waited(std::uint64_t steps) = 0;
};

/// The rounds of one pair of programs: each in the same way, at its own pace.
struct Pair {
  std::uint64_t number = 0;
  std::int32_t send_partitions = 1, recv_partitions = 1;
  std::uint64_t bytes = 0, rounds = 1;  ///< rounds of a channel
  std::uint64_t channels = 1;
  std::vector<std::uint32_t> groups;
  GroupRules rules{};
  bool receiver_sits = false;  ///< it asks only when nothing else can happen
  bool is_answered = false;    ///< ready partitions have to arrive before more get ready
  bool is_prepared = false;    ///< the sender knows that the receiver's buffer is ready
  std::vector<std::byte> from, to;
  SendRequest* send = nullptr;
  RecvRequest* recv = nullptr;
  std::uint64_t send_round = 0, recv_round = 0;  ///< of all channels
  std::vector<std::int32_t> unready;
  std::int32_t last_ready = -1;
  std::vector<bool> seen;  ///< by receive partition, in the receiver's round
  std::uint64_t sends_freed = 0, recvs_freed = 0;

  bool is_over() const { return sends_freed == channels && recvs_freed == channels; }
  /// As the sender's program writes it.
  std::byte byte_at(std::uint64_t round, std::uint64_t index) const {
    return std::byte(1 + (index * 7 + round * 41 + number * 19) % 230);
  }
};

/// Thread safety: single-owner.
class World {
 public:
  using MakeMedium = std::function<std::unique_ptr<Medium>(loop::Random&)>;

  World(std::uint64_t seed, const MakeMedium& make_medium);
  void run();

 protected:
  void take_step();
  /// A record of process `from` reaches the other.
  void deliver(std::uint64_t from) { (void)sides_[from]->deliver_to(*sides_[1 - from]); }
  std::string text() const;

  loop::Random random_;
  const std::unique_ptr<Medium> medium_;
  std::vector<Pair> pairs_;
  std::unique_ptr<Side> sides_[2];  // sender, receiver
  std::uint64_t steps_ = 0;         // of run()
  bool prepares_ = false;           // each sender waits for the receiver's buffer first

 private:
  vci::VciPool::Options lanes();
  Pair make_pair(std::uint64_t number);
  void choose_rules(Pair& p);
  void turn_lane(Side& side);
  void turn_all_lanes();
  void sender_step(Pair& p);
  void prepare(Pair& p);
  void make_ready(Pair& p);
  void receiver_step(Pair& p);
  bool is_quiet();
  void expect_early(Pair& p);
  bool arrives(Pair& p, std::int32_t partition);
  void ask(Pair& p);
  void end();
};

/// run(seed), for LARKLANE_SEED, or for `count` seeds from `first` on while none has failed.
template <class Run>
void for_seeds(std::uint64_t first, std::uint64_t count, Run&& run) {
  const auto one = [&](std::uint64_t seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    run(seed);
  };
  if (const char* const given = std::getenv("LARKLANE_SEED"))
    return one(std::strtoull(given, nullptr, 10));
  for (std::uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed)
    one(seed);
}

}  // namespace larklane::part
