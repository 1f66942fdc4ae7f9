// All ways between two ranks at one message size, round by round in turns, payload and completion
// verified in every round.

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <memory>

#include "measure/noise.hpp"
#include "suite/benchmarks.hpp"
#include "suite/buffer.hpp"
#include "suite/payload.hpp"
#include "suite/team.hpp"
#include "suite/wait.hpp"
#include "suite/way.hpp"
#include "suite/work.hpp"

namespace larklane::bench {
namespace {

constexpr int kReportTag = 3;

/// What the receiver tells the sender after a round.
struct Told {
  double wrong;       ///< words
  double claimed_ns;  ///< guard: when the receive said that it was complete
};

class PairRun {
 public:
  PairRun(const Options& options, std::uint64_t size, Offset clock, double timer_ns,
          const Watcher& watcher)
      : o_(options),
        bytes_(options.bytes_of(size)),
        clock_(clock),
        timer_ns_(timer_ns),
        watcher_(watcher),
        buffer_(bytes_) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    is_sender_ = rank == 0;
    std::string error;  // checked with the options
    noise_ = Noise::parse(o_.noise, o_.noise_percent, o_.seed, &error);
    if (is_sender_) {
      team_ = std::make_unique<Team>(o_.threads);
      scratch_.assign(o_.threads, scratch_memory());
      computed_ns_.resize(o_.threads);
    }
    for (const std::string& name : o_.ways)
      ways_.push_back(make_way(name, {&o_, buffer_.data(), bytes_, is_sender_}));
  }

  Point run(double budget_ns) {
    Point point{bytes_, o_.send_partitions(), o_.receive_partitions(), 0, {}};
    take_turns(
        o_, budget_ns, &point, [&](std::size_t w, Series& series) { guard(*ways_[w], series); },
        [&](std::size_t w, Series& series, std::uint32_t iteration, bool counts) {
          RoundTrace trace;
          one_round(*ways_[w], series, iteration, counts ? &trace : nullptr);
          if (!is_sender_ || !counts) return;
          add_metrics(trace, &series.samples);
          if (iteration < o_.traces) series.traces.push_back(std::move(trace));
        },
        [&](double share) {
          if (is_sender_) watcher_.progress(share);
        });
    return point;
  }

 private:
  // One round. @param noise_round  which round's noise; @param trace  sender: filled, if wanted
  void one_round(Way& way, Series& series, std::uint32_t noise_round, RoundTrace* trace) {
    ++round_;
    if (is_sender_) {
      watcher_.before_round(series.way);
      send(way, [&](std::uint32_t thread) {
        const double end =
            go_ns_ + noise_.compute_ns(o_.compute_ns, noise_round, thread, o_.threads);
        compute_until(end, scratch_[thread]);
        computed_ns_[thread] = now_ns();
        give(way, thread, [](std::uint32_t) {});
      });
      const Told told = hear(way);
      series.wrong += told.wrong != 0;
      if (trace != nullptr) *trace = trace_of(way);
    } else {
      receive(way);
      tell(way, {static_cast<double>(wrong_words(buffer_.span(), 0, round_)), 0});
    }
  }

  /// The last partition is held back. Whatever covers it must not arrive, and nothing be complete,
  /// before it is given; what arrives must be in the buffer.
  void guard(Way& way, Series& series) {
    ++round_;
    const std::uint32_t held = o_.send_partitions() - 1;
    if (!is_sender_) {
      double claimed_ns = 0;
      std::uint64_t wrong = receive_watched(way, &claimed_ns);
      wrong += wrong_words(buffer_.span(), 0, round_);
      tell(way, {static_cast<double>(wrong), claimed_ns});
      share_verdict(series);
      return;
    }
    watcher_.before_round(series.way);
    double given_ns = 0;
    bool claims = false;
    Options ascending = o_;
    ascending.order = Order::ascending;
    send(way, [&](std::uint32_t thread) {
      computed_ns_[thread] = now_ns();
      give(way, thread, ascending, [&](std::uint32_t partition) {
        if (partition != held) return;
        while_held([] {});
        claims = way.claims_completion();
        given_ns = computed_ns_[thread] = now_ns();
      });
    });
    const Told told = hear(way);
    const double margin = clock_.error_ns;
    const std::vector<double>& arrived = way.arrived_ns();
    if (claims)
      series.refused = "the send claims to be complete while a partition is held back";
    else if (told.wrong != 0)
      series.refused = "what has arrived, it says, is not in the buffer";
    else if (told.claimed_ns != 0 && told.claimed_ns - clock_.offset_ns < given_ns - margin)
      series.refused = "the receive claims to be complete while a partition is held back";
    else if (arrived.back() - clock_.offset_ns < given_ns - margin)
      series.refused = "the partition that is held back arrives, it says";
    series.is_early = arrived.front() - clock_.offset_ns < given_ns - margin;
    share_verdict(series);
  }

  void share_verdict(Series& series) {
    int refused = series.refused.empty() ? 0 : 1;
    MPI_Bcast(&refused, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!is_sender_ && refused) series.refused = "on the other side";
  }

  template <class Before>
  void give(Way& way, std::uint32_t thread, const Options& o, Before&& before) {
    const std::vector<std::uint32_t> order = order_of(o, thread, round_);
    for (const std::uint32_t partition : order) {
      before(partition);
      way.ready(partition, thread, partition == order.back());
    }
  }
  template <class Before>
  void give(Way& way, std::uint32_t thread, Before&& before) {
    give(way, thread, o_, before);
  }

  template <class Job>
  void send(Way& way, Job&& job) {
    fill(buffer_.span(), 0, round_);
    if (o_.cold) flush(buffer_.span());
    way.start(round_);
    MPI_Barrier(MPI_COMM_WORLD);
    go_ns_ = now_ns();
    team_->run(job);
    way.joined();
    way.finish();
  }

  void begin_receive(Way& way) {
    if (o_.cold) flush(buffer_.span());
    way.start(round_);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void receive(Way& way) {
    begin_receive(way);
    wait_until([&] { return way.poll(); });
    way.finish();
  }

  /// Guard: look at the bytes of each part as it arrives. @return words that are wrong then
  std::uint64_t receive_watched(Way& way, double* claimed_ns) {
    std::vector<double>& arrived = way.arrived_ns();
    std::ranges::fill(arrived, 0);
    std::vector<char> looked(arrived.size());
    const std::uint64_t part = bytes_ / arrived.size();
    std::uint64_t wrong = 0;
    begin_receive(way);
    for (bool all = false; !all;) {
      all = way.poll();
      for (std::size_t a = 0; a < arrived.size(); ++a) {
        if (looked[a] || arrived[a] == 0) continue;
        looked[a] = true;
        wrong += wrong_words(buffer_.span().subspan(a * part, part), a * part, round_);
      }
      if (!all && *claimed_ns == 0 && way.claims_completion()) {
        *claimed_ns = now_ns();
        all = true;
        for (double& time : arrived)
          if (time == 0) time = *claimed_ns;
      }
      sched_yield();
    }
    way.finish();
    return wrong;
  }

  void tell(Way& way, Told told) {
    MPI_Send(&told, 2, MPI_DOUBLE, 0, kReportTag, MPI_COMM_WORLD);
    MPI_Send(way.arrived_ns().data(), static_cast<int>(way.arrived_ns().size()), MPI_DOUBLE, 0,
             kReportTag, MPI_COMM_WORLD);
  }

  Told hear(Way& way) {
    Told told{};
    MPI_Recv(&told, 2, MPI_DOUBLE, 1, kReportTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(way.arrived_ns().data(), static_cast<int>(way.arrived_ns().size()), MPI_DOUBLE, 1,
             kReportTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return told;
  }

  /// On the sender's clock, from the moment when the threads were let go, less what reading the
  /// clock costs.
  RoundTrace trace_of(Way& way) const {
    RoundTrace trace;
    std::vector<double> begun = way.begun_ns();
    for (double& time : begun) time -= go_ns_;
    trace.arrivals_ns = way.arrived_ns();
    for (double& time : trace.arrivals_ns) time -= clock_.offset_ns + timer_ns_ + go_ns_;
    trace.transfers = transfers_of(begun, trace.arrivals_ns, bytes_);
    trace.joined_ns = *std::ranges::max_element(computed_ns_) - go_ns_;
    return trace;
  }

  const Options& o_;
  const std::uint64_t bytes_;
  const Offset clock_;
  const double timer_ns_;
  const Watcher& watcher_;
  Buffer buffer_;
  bool is_sender_ = false;
  Noise noise_;
  std::unique_ptr<Team> team_;
  std::vector<std::vector<double>> scratch_;
  std::vector<double> computed_ns_;  ///< by thread
  std::vector<std::unique_ptr<Way>> ways_;
  std::uint64_t round_ = 0;
  double go_ns_ = 0;
};

}  // namespace

Point measure_pair(const Options& options, std::uint64_t size, Offset clock, double timer_ns,
                   double budget_ns, const Watcher& watcher) {
  return PairRun(options, size, clock, timer_ns, watcher).run(budget_ns);
}

}  // namespace larklane::bench
