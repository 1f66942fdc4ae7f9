#pragma once
// Messages between the threads of pairs of processes, over any transport: measurement and checks. A
// `World` is Larklane (native.cpp), LCI (lci_exchange.hpp) or an MPI (suite/messages.cpp).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "in_turns.hpp"
#include "measure/clock.hpp"
#include "measure/options.hpp"
#include "measure/series.hpp"
#include "measure/session.hpp"
#include "numbers.hpp"
#include "shape.hpp"
#include "suite/buffer.hpp"
#include "suite/team.hpp"
#include "system_calls.hpp"

namespace larklane::bench {

/// Measures ways in turns, A B A', like the other benchmarks. World has
///   rank(), size(), gather(number): the number of each rank; collective,
///   make_way(name, shape): collective, in the same order on all ranks. A way has begin_round(),
///     end_round(), and an end(thread) for that thread alone:
///     enter(), leave(): called by the thread around its turns of a round
///     post_receives(): posts a window of receives; wait_receives(): until all are complete;
///     message(slot): a received message, valid until release();
///     release(): before post_receives() and at the end
///     post_send(slot); wait_sends(): until the send buffers may be reused
///     answer(), wait_answer(): a message of no bytes.
/// Thread safety: single-owner.
template <class World>
class Exchange {
  using Way = typename World::Way;
  using End = typename World::End;

 public:
  /// @param calls  counts this process's system calls; null: they are not counted
  Exchange(const Options& options, std::uint64_t bytes, World& world, double timer_ns,
           const Watcher& watcher, const SystemCalls* calls = nullptr)
      : o_(options),
        world_(world),
        timer_ns_(timer_ns),
        watcher_(watcher),
        calls_(calls),
        pairs_(world.size() / 2),
        threads_(options.threads_of_process()),
        stride_(stride_of(bytes)),
        out_(stride_ * threads_ * options.window),
        in_(stride_ * threads_ * options.window),
        shape_(shape_of(options, world, bytes, threads_, out_.span(), in_.span())),
        numbers_(shape_, world.rank(), world.size()),
        team_(threads_),
        of_thread_(threads_) {}

  Point run(double budget_ns) {
    Point point{shape_.bytes, 1, 1, 0, {}};
    std::vector<std::unique_ptr<Way>> ways;
    std::vector<std::uint64_t> turns;
    for (const std::string& name : o_.ways) {
      feed(name);
      ways.push_back(world_.make_way(name, shape_));
      point.series.push_back({.way = name});
    }
    for (std::size_t w = 0; w < ways.size(); ++w)
      turns.push_back(turns_of_round(*ways[w], w, point.series[w]));
    measure_in_turns(o_, world_, watcher_, budget_ns, &point,
                     [&](std::size_t w, Series& series, bool counts) {
                       round(*ways[w], w, turns[w], series, counts);
                     });
    return point;
  }

 private:
  static constexpr double kRoundNs = 5e6;  ///< long enough to hide the start of the threads
  static constexpr std::uint64_t kTurnsMax = 1u << 20;

  struct alignas(64) OfThread {
    double began_ns = 0, ended_ns = 0;
    std::uint64_t calls = 0;  ///< system calls of the process in this thread's turns
  };

  bool is_latency() const { return o_.benchmark == "message-latency"; }
  bool receives() const { return is_latency() || !shape_.is_first; }

  void feed(const std::string& way) const {
    if (world_.rank() == 0) watcher_.before_round(way);
  }

  void send(End& end, std::uint32_t thread) {
    for (std::uint32_t slot = 0; slot < o_.window; ++slot) {
      numbers_.stamp_next(thread, slot);
      end.post_send(slot);
    }
    end.wait_sends();
  }
  void receive(End& end, std::uint32_t thread) {
    end.wait_receives();
    for (std::uint32_t slot = 0; slot < o_.window; ++slot)
      numbers_.check(thread, end.message(slot));
  }
  void next_receives(End& end, bool is_last) {
    if (is_last) return;  // keep the last window: Numbers::wrong() checks all its bytes
    end.release();
    end.post_receives();
  }

  /// The receives of a turn are posted before the other side may send it.
  void take_turns(End& end, std::uint32_t thread, std::uint64_t turns) {
    for (std::uint64_t turn = 1; turn <= turns; ++turn) {
      if (shape_.is_first) {
        send(end, thread);
        if (is_latency()) {
          receive(end, thread);
          next_receives(end, turn == turns);
        } else {
          end.wait_answer();
        }
      } else {
        receive(end, thread);
        next_receives(end, turn == turns);
        if (is_latency())
          send(end, thread);
        else
          end.answer();
      }
    }
  }

  /// @param w  index of the way
  /// @return time on the side that begins: from the first thread's begin to the last thread's end,
  ///     the longest of all pairs
  double round(Way& way, std::size_t w, std::uint64_t turns, Series& series, bool counts) {
    feed(series.way);
    numbers_.begin_round(is_latency() || shape_.is_first, Numbers::is_mixed(o_.ways[w]));
    way.begin_round();
    if (receives())
      for (std::uint32_t thread = 0; thread < threads_; ++thread) way.end(thread).post_receives();
    (void)world_.gather(0);
    team_.run([&](std::uint32_t thread) {
      End& end = way.end(thread);
      end.enter();
      const std::uint64_t calls = calls_ != nullptr ? calls_->now() : 0;
      of_thread_[thread].began_ns = now_ns();
      take_turns(end, thread, turns);
      of_thread_[thread].ended_ns = now_ns();
      if (calls_ != nullptr) of_thread_[thread].calls = calls_->now() - calls;
      end.leave();
    });
    std::uint64_t wrong = 0;
    if (receives()) {
      wrong = numbers_.wrong(way);
      for (std::uint32_t thread = 0; thread < threads_; ++thread) way.end(thread).release();
    }
    way.end_round();
    const double mine_ns = shape_.is_first ? span_ns(of_thread_) - timer_ns_ : 0;
    const double took_ns = std::ranges::max(world_.gather(mine_ns));
    series.wrong += sum_of_ranks(world_, static_cast<double>(wrong)) > 0;
    if (counts) add_samples(took_ns, turns, series);
    return took_ns;
  }

  void add_samples(double took_ns, std::uint64_t turns, Series& series) {
    const auto windows = static_cast<double>(turns);
    if (calls_ != nullptr) add_calls(windows * o_.window * (is_latency() ? 2 : 1) * pairs_, series);
    if (is_latency()) {
      series.samples["half_round_trip_ns"].push_back(took_ns / (2 * windows));
      series.samples["message_ns"].push_back(took_ns / (2 * windows * o_.window));
    } else {
      const double messages = windows * o_.window * threads_ * pairs_;
      series.samples["rate_per_s"].push_back(messages / took_ns * 1e9);
      series.samples["message_ns"].push_back(took_ns * o_.threads / messages);
    }
    series.samples["round_ns"].push_back(took_ns);
  }

  /// Adds the system calls for a message: of the beginning side, the other side, and both.
  /// Collective.
  void add_calls(double messages, Series& series) {
    double first = 0, second = 0;
    const std::vector<double> of_ranks = world_.gather(static_cast<double>(of_thread_[0].calls));
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
      (rank < static_cast<std::size_t>(pairs_) ? first : second) += of_ranks[rank] / messages;
    series.samples["first_system_calls"].push_back(first);
    series.samples["second_system_calls"].push_back(second);
    series.samples["system_calls"].push_back(first + second);
  }

  /// Number of turns for which a round takes kRoundNs. Collective.
  std::uint64_t turns_of_round(Way& way, std::size_t w, Series& series) {
    std::uint64_t turns = 1;
    (void)round(way, w, turns, series, false);  // the first round connects the lanes
    for (;;) {
      const double took_ns = std::max(round(way, w, turns, series, false), 1.0);
      if (took_ns >= kRoundNs || turns >= kTurnsMax) return turns;
      const auto wanted =
          static_cast<std::uint64_t>(static_cast<double>(turns) * kRoundNs / took_ns * 1.2);
      turns = std::min(std::clamp(wanted, turns + 1, 8 * turns), kTurnsMax);
    }
  }

  const Options& o_;
  World& world_;
  const double timer_ns_;
  const Watcher& watcher_;
  const SystemCalls* const calls_;
  const int pairs_;
  const std::uint32_t threads_;
  const std::uint64_t stride_;
  Buffer out_, in_;
  const Shape shape_;
  Numbers numbers_;
  Team team_;
  std::vector<OfThread> of_thread_;
};

}  // namespace larklane::bench
