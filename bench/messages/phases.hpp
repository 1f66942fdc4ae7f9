#pragma once
// Messages between the threads of pairs of processes of one host. The sides work in turns: never
// more threads work than each side has.

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gate.hpp"
#include "in_turns.hpp"
#include "measure/clock.hpp"
#include "measure/options.hpp"
#include "measure/series.hpp"
#include "measure/session.hpp"
#include "measure/statistics.hpp"
#include "numbers.hpp"
#include "shape.hpp"
#include "suite/buffer.hpp"
#include "suite/team.hpp"

namespace larklane::bench {

/// Binds the calling thread to one of the cores that its process may use, while it lives. Nothing
/// is bound if there are fewer cores than workers.
class OnCore {
 public:
  OnCore(std::uint32_t worker, std::uint32_t workers) {
    CPU_ZERO(&before_);
    if (::sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    if (CPU_COUNT(&before_) < static_cast<int>(workers)) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    std::uint32_t index = 0;
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &before_) && index++ == worker) CPU_SET(core, &one);
    is_bound_ = ::sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~OnCore() {
    if (is_bound_) ::sched_setaffinity(0, sizeof before_, &before_);
  }
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;

 private:
  cpu_set_t before_;
  bool is_bound_ = false;
};

/// Measures ways in turns, over a World as Exchange. A turn has three phases: the receivers post a
/// window each; the senders send it and wait; the receivers wait. A phase lasts from the first
/// worker's begin to the last one's end. Sends that do not complete without the receivers would
/// hang. So after kPatienceMs the receivers wait beside the senders, and do so in all later rounds
/// of that way: `helped_turns` counts such turns. Thread safety: single-owner.
template <class World>
class Phases {
  using Way = typename World::Way;
  using End = typename World::End;

 public:
  Phases(const Options& options, std::uint64_t bytes, World& world, double timer_ns,
         const Watcher& watcher)
      : o_(options),
        yields_(options.yields),
        world_(world),
        timer_ns_(timer_ns),
        watcher_(watcher),
        pairs_(world.size() / 2),
        threads_(o_.threads_of_process()),
        workers_(static_cast<std::uint32_t>(pairs_) * threads_),
        stride_(stride_of(bytes)),
        out_(stride_ * threads_ * o_.window),
        in_(stride_ * threads_ * o_.window),
        shape_(shape_of(o_, world, bytes, threads_, out_.span(), in_.span())),
        numbers_(shape_, world.rank(), world.size()),
        gate_(world, workers_),
        team_(threads_),
        helped_(threads_),
        is_beside_(o_.ways.size()) {}

  Point run(double budget_ns) {
    Point point{shape_.bytes, 1, 1, 0, {}};
    std::vector<std::unique_ptr<Way>> ways;
    for (const std::string& name : o_.ways) {
      feed(name);
      ways.push_back(world_.make_way(name, shape_));
      point.series.push_back({.way = name});
    }
    measure_in_turns(
        o_, world_, watcher_, budget_ns, &point,
        [&](std::size_t w, Series& series, bool counts) { round(*ways[w], w, series, counts); });
    return point;
  }

 private:
  static constexpr std::uint32_t kPatienceMs = 500;

  struct alignas(64) Helped {
    double turns = 0;
  };

  void feed(const std::string& way) const {
    if (world_.rank() == 0) watcher_.before_round(way);
  }
  /// Among those of its side, in all processes.
  std::uint32_t worker(std::uint32_t thread) const {
    return static_cast<std::uint32_t>(world_.rank() % pairs_) * threads_ + thread;
  }

  template <class Work>
  void timed(Gate::Side side, std::uint32_t thread, std::uint32_t phase, Work&& work) {
    gate_.start_together(side);
    const double began_ns = now_ns();
    work();
    gate_.finish(side, worker(thread), phase, began_ns, now_ns());
  }

  void send(End& end, std::uint32_t thread, std::uint32_t phase) {
    gate_.await(phase + 1, 0);
    timed(Gate::senders, thread, phase + 1, [&] {
      for (std::uint32_t slot = 0; slot < o_.window; ++slot) {
        numbers_.stamp_next(thread, slot);
        end.post_send(slot);
      }
      end.wait_sends();
    });
  }
  void receive(End& end, std::uint32_t thread, std::uint32_t phase, bool is_first, bool is_beside) {
    gate_.await(phase, 0);
    if (!is_first) end.release();
    timed(Gate::receivers, thread, phase, [&] { end.post_receives(); });
    helped_[thread].turns += !is_beside && gate_.await(phase + 2, kPatienceMs) ? 0 : 1;
    timed(Gate::receivers, thread, phase + 2, [&] { end.wait_receives(); });
    for (std::uint32_t slot = 0; slot < o_.window; ++slot)
      numbers_.check(thread, end.message(slot));
  }

  /// @param w  index of the way
  void round(Way& way, std::size_t w, Series& series, bool counts) {
    feed(series.way);
    o_.yields = yields_ && is_beside_[w];  // else a waiting thread has its core to itself
    numbers_.begin_round(shape_.is_first, Numbers::is_mixed(o_.ways[w]));
    way.begin_round();
    (void)world_.gather(0);
    team_.run([&](std::uint32_t thread) {
      const OnCore core(worker(thread), workers_);
      End& end = way.end(thread);
      helped_[thread].turns = 0;
      end.enter();
      for (std::uint32_t turn = 0; turn < Gate::kTurns; ++turn)
        if (shape_.is_first)
          send(end, thread, phase_ + 3 * turn);
        else
          receive(end, thread, phase_ + 3 * turn, turn == 0, is_beside_[w]);
      end.leave();
    });
    std::uint64_t wrong = 0;
    if (!shape_.is_first) {
      wrong = numbers_.wrong(way);  // the last window is in place
      for (std::uint32_t thread = 0; thread < threads_; ++thread) way.end(thread).release();
    }
    way.end_round();
    series.wrong += sum_of_ranks(world_, static_cast<double>(wrong)) > 0;
    const double helped = sum_of_ranks(world_, std::ranges::max(helped_, {}, &Helped::turns).turns);
    if (counts) add_samples(helped, series);
    if (helped > 0) is_beside_[w] = true;
    phase_ += 3 * Gate::kTurns;
    (void)world_.gather(0);  // all have read the times
  }

  /// Medians of the turns' times, by message. Where phases overlap, their union counts.
  void add_samples(double helped, Series& series) const {
    const double messages = static_cast<double>(workers_) * o_.window;
    std::array<std::vector<double>, 4> times;
    for (std::uint32_t turn = 0; turn < Gate::kTurns; ++turn) {
      double sum_ns = 0, until_ns = 0;
      for (std::uint32_t phase = 0; phase < 3; ++phase) {
        const Gate::Times& span = gate_.span(phase_ + 3 * turn + phase);
        times[phase].push_back((span.ended_ns - span.began_ns - timer_ns_) / messages);
        sum_ns += std::max(span.ended_ns - std::max(span.began_ns, until_ns), 0.0) - timer_ns_;
        until_ns = std::max(until_ns, span.ended_ns);
      }
      times[3].push_back(sum_ns / messages);
    }
    const std::array<const char*, 4> names{"post_ns", "send_ns", "wait_ns", "message_ns"};
    for (std::size_t i = 0; i < names.size(); ++i)
      series.samples[names[i]].push_back(quantile(times[i], 0.5));
    series.samples["helped_turns"].push_back(helped);
  }

  Options o_;
  const bool yields_;
  World& world_;
  const double timer_ns_;
  const Watcher& watcher_;
  const int pairs_;
  const std::uint32_t threads_, workers_;
  const std::uint64_t stride_;
  Buffer out_, in_;
  const Shape shape_;
  Numbers numbers_;
  Gate gate_;
  Team team_;
  std::vector<Helped> helped_;
  std::vector<bool> is_beside_;  ///< by way: the receivers work while the senders do
  std::uint32_t phase_ = 0;
};

}  // namespace larklane::bench
