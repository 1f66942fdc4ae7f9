#include "injection.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "exchange.hpp"
#include "in_turns.hpp"
#include "measure/clock.hpp"
#include "msg/protocol/message_lane.hpp"
#include "suite/team.hpp"

namespace larklane::bench {
namespace {

constexpr double kRoundNs = 5e6;

/// One thread's part. Thread safety: single-owner.
class Injector {
 public:
  Injector(NativeWorld& world, const Shape& shape, std::uint32_t thread, double timer_ns)
      : shape_(shape),
        thread_(thread),
        timer_ns_(timer_ns),
        told_(must(CompletionQueue::create(world.context().completions()), "completion queue")) {
    of_receive_.completion = &told_;
    of_receive_.signals_always = true;
  }

  /// @return ns to post a message, mean of `turns` windows
  double round(Vci& vci, std::uint64_t turns) {
    Waiter waiter(vci, shape_.options->yields, true);
    double spent_ns = 0;
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      const std::uint64_t first = number_;
      for_each_slot([&](std::uint32_t slot) {
        waiter.post(
            [&] {
              return post_recv(vci, 0, thread_, shape_.in_of(thread_, slot), shape_.bytes,
                               of_receive_);
            },
            "post_recv");
        stamp(shape_.out_of(thread_, slot), shape_.bytes, ++number_);
      });
      const double began_ns = now_ns();
      for_each_slot([&](std::uint32_t slot) {
        waiter.post(
            [&] { return post_send(vci, 0, thread_, shape_.out_of(thread_, slot), shape_.bytes); },
            "post_send");
      });
      spent_ns += now_ns() - began_ns - timer_ns_;
      take_in(waiter, first);
    }
    return spent_ns / static_cast<double>(turns * shape_.options->window);
  }
  std::uint64_t wrong() const noexcept { return wrong_; }

 private:
  template <class Each>
  void for_each_slot(Each&& each) const {
    for (std::uint32_t slot = 0; slot < shape_.options->window; ++slot) each(slot);
  }
  void take_in(Waiter& waiter, std::uint64_t number) {
    for (std::uint32_t heard = 0; heard < shape_.options->window;)
      waiter.until([&] {
        const auto told = told_.pop();
        if (told && !told->status.ok()) give_up("post_recv", told->status);
        heard += told.has_value();
        return told.has_value();
      });
    for_each_slot([&](std::uint32_t slot) {
      wrong_ += !has_stamp(shape_.in_of(thread_, slot), shape_.bytes, ++number);
    });
  }

  const Shape& shape_;
  const std::uint32_t thread_;
  const double timer_ns_;
  CompletionQueue told_;
  PostOptions of_receive_;
  std::uint64_t number_ = 0, wrong_ = 0;
};

/// Thread safety: single-owner.
class Injection {
 public:
  Injection(const Options& options, std::uint64_t bytes, NativeWorld& world, double timer_ns)
      : o_(options),
        world_(world),
        stride_((bytes + 63) / 64 * 64),
        out_(stride_ * o_.threads * o_.window),
        in_(stride_ * o_.threads * o_.window),
        shape_{&o_, bytes, stride_, o_.threads, 0, true, out_.span(), in_.span()},
        team_(o_.threads),
        ns_(o_.threads) {
    for (std::uint32_t thread = 0; thread < o_.threads; ++thread)
      injectors_.push_back(std::make_unique<Injector>(world, shape_, thread, timer_ns));
  }

  void round(const std::string& way, Series& series, std::uint64_t turns, bool counts) {
    const std::uint32_t lanes = shape_.lanes(way);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) (void)world_.lane(lane);
    world_.before_round(way);
    const std::uint64_t wrong_before = wrong();
    const Uses before = uses(lanes);
    team_.run([&](std::uint32_t thread) {
      Vci& vci = world_.lane(thread % lanes);
      world_.enter(way, vci);
      ns_[thread].value = injectors_[thread]->round(vci, turns);
      world_.leave(way, vci);
    });
    series.wrong += wrong() != wrong_before;
    if (counts) {
      double rate = 0;
      for (const OfThread& mine : ns_) rate += 1e9 / mine.value;
      series.samples["rate_per_s"].push_back(rate);
      series.samples["message_ns"].push_back(o_.threads * 1e9 / rate);
      const Uses after = uses(lanes);
      series.samples["held_share"].push_back((after.held - before.held) / (after.all - before.all));
    }
  }
  /// Number of turns for which a round takes kRoundNs.
  std::uint64_t turns_of_round(Series& series) {
    round(series.way, series, 1, false);  // the first round connects the lanes
    for (std::uint64_t turns = 1;; turns *= 2) {
      const double began_ns = now_ns();
      round(series.way, series, turns, false);
      if (now_ns() - began_ns >= kRoundNs) return turns;
    }
  }

 private:
  struct alignas(64) OfThread {
    double value = 0;
  };
  struct Uses {
    double all = 0, held = 0;
  };
  Uses uses(std::uint32_t lanes) {
    Uses sum;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      const vci::VciCounts counts = world_.lane(lane).inside().vci().counts();
      sum.all += static_cast<double>(counts.posts + counts.polls + counts.contended);
      sum.held += static_cast<double>(counts.queued + counts.contended);
    }
    return sum;
  }
  std::uint64_t wrong() const {
    std::uint64_t all = 0;
    for (const auto& injector : injectors_) all += injector->wrong();
    return all;
  }

  const Options& o_;
  NativeWorld& world_;
  const std::uint64_t stride_;
  Buffer out_, in_;
  const Shape shape_;
  Team team_;
  std::vector<OfThread> ns_;
  std::vector<std::unique_ptr<Injector>> injectors_;
};

}  // namespace

Point measure_injection(const Record& record, std::uint64_t bytes, double budget_ns,
                        const Watcher& watcher, NativeWorld& world) {
  const Options& o = record.options;
  Injection injection(o, bytes, world, record.environment.timer_ns);
  Point point{bytes, 1, 1, 0, {}};
  std::vector<std::uint64_t> turns;
  for (const std::string& way : o.ways) {
    watcher.before_round(way);
    point.series.push_back({.way = way});
    turns.push_back(injection.turns_of_round(point.series.back()));
  }
  measure_in_turns(o, world, watcher, budget_ns, &point,
                   [&](std::size_t w, Series& series, bool counts) {
                     watcher.before_round(series.way);
                     injection.round(o.ways[w], series, turns[w], counts);
                   });
  return point;
}

}  // namespace larklane::bench
