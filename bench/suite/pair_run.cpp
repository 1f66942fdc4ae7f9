// All ways from one rank to its neighbours at one message size, round by round in turns. Payload
// and completion are verified in every round.

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>

#include "measure/noise.hpp"
#include "measure/trace.hpp"
#include "suite/benchmarks.hpp"
#include "suite/buffer.hpp"
#include "suite/cores.hpp"
#include "suite/device_counts.hpp"
#include "suite/payload.hpp"
#include "suite/team.hpp"
#include "suite/wait.hpp"
#include "suite/way.hpp"
#include "suite/work.hpp"

namespace larklane::bench {
namespace {

constexpr int kReportTag = 3;

/// The receiver's report to the sender after a round.
struct Told {
  double wrong;       ///< wrong words
  double claimed_ns;  ///< guard: when the receive claimed to be complete
};

class PairRun {
 public:
  /// @param is_exposed  threads write the partitions that they send, compute only if they are late,
  ///     and the receiver waits instead of polling
  PairRun(const Options& options, std::uint64_t size, const std::vector<Link>& links,
          double timer_ns, const Watcher& watcher, bool is_exposed)
      : o_(options),
        bytes_(options.bytes_of(size)),
        links_(links),
        timer_ns_(timer_ns),
        watcher_(watcher),
        is_exposed_(is_exposed) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    is_sender_ = rank_ == 0;
    for (std::size_t n = 0; n < links_.size(); ++n) buffers_.emplace_back(bytes_);
    std::string error;  // checked with the options
    noise_ = Noise::parse(o_.noise, o_.noise_percent, o_.seed, &error);
    if (is_sender_) {
      team_ = std::make_unique<Team>(o_.threads);
      scratch_.assign(o_.threads, scratch_memory());
      computed_ns_.resize(o_.threads);
    }
    if (o_.is_bound && is_sender_)
      team_->run([](std::uint32_t thread) { bind_to(static_cast<int>(thread)); });
    else if (o_.is_bound)
      bind_to(1);
    for (const std::string& name : o_.ways) {
      if (is_sender_) watcher_.before_round(name);
      Ways& ways = ways_.emplace_back();
      for (std::size_t n = 0; n < links_.size(); ++n)
        ways.push_back(
            make_way(name, {&o_, buffers_[n].data(), bytes_, is_sender_, links_[n].comm}));
    }
  }

  ~PairRun() {
    if (o_.is_bound) unbind();
  }
  PairRun(const PairRun&) = delete;
  PairRun& operator=(const PairRun&) = delete;

  Point run(double budget_ns) {
    Point point{bytes_, o_.send_partitions(), o_.receive_partitions(), 0, {}};
    long before = -1;
    take_turns(
        o_, budget_ns, &point, [&](std::size_t w, Series& series) { guard(ways_[w], series); },
        [&](std::size_t w, Series& series, std::uint32_t iteration, bool counts) {
          if (counts && before < 0 && !o_.count.empty()) before = counted(o_.count);
          RoundTrace trace;
          one_round(ways_[w], series, iteration, counts ? &trace : nullptr);
          if (!is_sender_ || !counts) return;
          add_metrics(trace, &series.samples);
          if (iteration < o_.traces) series.traces.push_back(std::move(trace));
        },
        [&](double share) {
          if (is_sender_) watcher_.progress(share);
        });
    if (before >= 0) add_count(before, point);
    return point;
  }

 private:
  using Ways = std::vector<std::unique_ptr<Way>>;  ///< of one name, by link

  /// Adds the device's requests per round, of both ranks. Subtracts those of as many rounds that
  /// have only the barrier and the report.
  void add_count(long before, Point& point) {
    const long after = counted(o_.count);
    const long rounds = static_cast<long>(point.rounds) * (o_.is_bare ? 1 : 2);
    for (long round = 0; round < rounds; ++round) {
      MPI_Barrier(MPI_COMM_WORLD);
      if (is_sender_)
        (void)hear(0, *ways_[0][0]);
      else
        tell(*ways_[0][0], {});
    }
    const long around = counted(o_.count) - after;
    for (Series& series : point.series)
      if (is_sender_)
        series.samples[o_.count].push_back(static_cast<double>(after - before - around) /
                                           static_cast<double>(rounds));
  }

  // One round.
  // @param noise_round  selects the round of the noise
  // @param trace  sender: filled, if wanted
  void one_round(Ways& ways, Series& series, std::uint32_t noise_round, RoundTrace* trace) {
    ++round_;
    if (is_sender_) {
      watcher_.before_round(series.way);
      if (!is_exposed_) fill_all();
      send(ways, [&](std::uint32_t thread) {
        if (is_exposed_)
          write_and_give(ways, thread);
        else
          compute_and_give(ways, thread, noise_round);
      });
      bool wrong = false;
      for (std::size_t n = 0; n < ways.size(); ++n)
        wrong |= hear(n, *ways[n]).wrong != 0 || is_too_early(n, *ways[n]);
      series.wrong += wrong;
      if (trace != nullptr) *trace = trace_of(ways);
    } else {
      receive(*ways[0]);
      tell(*ways[0], {static_cast<double>(wrong_words(buffers_[0].span(), 0, key(0, round_))), 0});
    }
  }

  /// Run by one thread: computes and marks its partitions, all at once or one by one.
  void compute_and_give(Ways& ways, std::uint32_t thread, std::uint32_t noise_round) {
    const std::vector<std::uint32_t> order = order_of(o_, thread, round_);
    const bool at_once = o_.compute_split == ComputeSplit::thread;
    const double piece_ns = noise_.compute_ns(o_.compute_ns, noise_round, thread, o_.threads) /
                            (at_once ? 1.0 : static_cast<double>(order.size()));
    for (const std::uint32_t partition : order) {
      const bool is_first = partition == order.front();
      if (is_first || !at_once) {
        compute_until((is_first ? go_ns_ : now_ns()) + piece_ns, scratch_[thread]);
        computed_ns_[thread] = now_ns();
      }
      give(ways, partition, thread, partition == order.back());
    }
  }

  /// Run by one thread, which has written its share itself. Bound threads begin together.
  void write_and_give(Ways& ways, std::uint32_t thread) {
    const std::uint64_t share = bytes_ / o_.threads, offset = thread * share;
    fill(buffers_[0].span().subspan(offset, share), offset, key(0, round_));
    if (o_.is_bound) {
      met_.fetch_add(1, std::memory_order_acq_rel);
      while (met_.load(std::memory_order_acquire) % o_.threads != 0) {
      }
    }
    if (thread == (o_.is_bound ? 0 : o_.threads - 1))
      compute_until(now_ns() + o_.late_ns, scratch_[thread]);
    computed_ns_[thread] = now_ns();
    const std::uint32_t end = (thread + 1) * o_.partitions_per_thread;
    for (std::uint32_t p = end - o_.partitions_per_thread; p < end; ++p)
      give(ways, p, thread, p + 1 == end);
  }

  static void give(Ways& ways, std::uint32_t partition, std::uint32_t thread, bool last) {
    for (auto& way : ways) way->ready(partition, thread, last);
  }

  /// Holds back the last partition, and writes it only just before its Pready. Until then no part
  /// that covers it may arrive, and no side may be complete. Arrived data must be in the buffer.
  void guard(Ways& ways, Series& series) {
    ++round_;
    if (is_sender_)
      guard_send(ways, series);
    else
      guard_receive(*ways[0]);
    int refused = series.refused.empty() ? 0 : 1;
    MPI_Bcast(&refused, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!is_sender_ && refused) series.refused = "on the other side";
  }

  void guard_receive(Way& way) {
    double claimed_ns = 0;
    std::uint64_t wrong = receive_watched(way, &claimed_ns);
    wrong += wrong_words(buffers_[0].span(), 0, key(0, round_));
    tell(way, {static_cast<double>(wrong), claimed_ns});
  }

  void guard_send(Ways& ways, Series& series) {
    watcher_.before_round(series.way);
    const std::uint32_t held = o_.send_partitions() - 1;
    double given_ns = 0;
    bool claims = false;
    fill_all();
    fill_part(held, round_ - 1);
    send(ways, [&](std::uint32_t thread) {
      computed_ns_[thread] = now_ns();
      const std::uint32_t end = (thread + 1) * o_.partitions_per_thread;
      for (std::uint32_t p = end - o_.partitions_per_thread; p < end; ++p) {
        if (p == held) {
          while_held([] {});
          for (auto& way : ways) claims |= way->claims_completion();
          fill_part(held, round_);
          given_ns = computed_ns_[thread] = now_ns();
        }
        give(ways, p, thread, p + 1 == end);
      }
    });
    if (claims) series.refused = "the send claims to be complete while a partition is held back";
    for (std::size_t n = 0; n < ways.size(); ++n) {
      const Told told = hear(n, *ways[n]);
      const auto is_early = [&](double seen_ns) {
        return seen_ns < given_ns + links_[n].clock.offset_ns - links_[n].clock.error_ns;
      };
      series.is_early |= is_early(ways[n]->arrived_ns().front());
      if (!series.refused.empty()) continue;
      if (told.claimed_ns != 0 && is_early(told.claimed_ns))
        series.refused = "the receive claims to be complete while a partition is held back";
      else if (is_too_early(n, *ways[n]))
        series.refused = "the partition that is held back arrives, it says";
      else if (told.wrong != 0)
        series.refused = "what has arrived, it says, is not in the buffer";
    }
  }

  void fill_all() {
    for (std::size_t n = 0; n < buffers_.size(); ++n) fill(buffers_[n].span(), 0, key(n, round_));
  }

  /// @param round  the round of the payload
  void fill_part(std::uint32_t partition, std::uint64_t round) {
    const std::uint64_t part = bytes_ / o_.send_partitions(), offset = partition * part;
    for (std::size_t n = 0; n < buffers_.size(); ++n)
      fill(buffers_[n].span().subspan(offset, part), offset, key(n, round));
  }

  template <class Job>
  void send(Ways& ways, Job&& job) {
    for (std::size_t n = 0; n < ways.size(); ++n) {
      if (o_.cold) flush(buffers_[n].span());
      ways[n]->start(round_);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    go_ns_ = now_ns();
    team_->run(job);
    for (auto& way : ways) way->joined();
    for (auto& way : ways) way->finish();
  }

  void begin_receive(Way& way) {
    if (o_.cold) flush(buffers_[0].span());
    way.start(round_);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void receive(Way& way) {
    begin_receive(way);
    if (is_exposed_)
      way.wait();
    else
      wait_until([&] { return way.poll(); });
    way.finish();
  }

  /// Guard: verifies the bytes of each part when it arrives.
  /// @return wrong words at that time
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
        wrong += wrong_words(buffers_[0].span().subspan(a * part, part), a * part, key(0, round_));
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
    const MPI_Comm comm = links_[0].comm;
    MPI_Send(&told, 2, MPI_DOUBLE, 0, kReportTag, comm);
    MPI_Send(way.arrived_ns().data(), static_cast<int>(way.arrived_ns().size()), MPI_DOUBLE, 0,
             kReportTag, comm);
  }

  Told hear(std::size_t neighbour, Way& way) {
    const MPI_Comm comm = links_[neighbour].comm;
    Told told{};
    MPI_Request request;
    MPI_Irecv(&told, 2, MPI_DOUBLE, 1, kReportTag, comm, &request);
    wait_for(&request);  // yields: the receiver may share this core
    MPI_Recv(way.arrived_ns().data(), static_cast<int>(way.arrived_ns().size()), MPI_DOUBLE, 1,
             kReportTag, comm, MPI_STATUS_IGNORE);
    return told;
  }

  /// True if a part arrived before it was ready, beyond the error of the clocks.
  bool is_too_early(std::size_t neighbour, Way& way) const {
    const Offset& clock = links_[neighbour].clock;
    return arrives_before_ready(way.begun_ns(), way.arrived_ns(), clock.offset_ns - clock.error_ns);
  }

  /// Times on the sender's clock, relative to the start of the threads, minus the cost of reading
  /// the clock.
  RoundTrace trace_of(Ways& ways) const {
    RoundTrace trace;
    trace.receivers = ways.size();
    trace.joined_ns = *std::ranges::max_element(computed_ns_) - go_ns_;
    for (std::size_t n = 0; n < ways.size(); ++n) {
      std::vector<double> begun = ways[n]->begun_ns(), arrived = ways[n]->arrived_ns();
      for (double& time : begun) time -= go_ns_;
      for (double& time : arrived) time -= links_[n].clock.offset_ns + timer_ns_ + go_ns_;
      for (const Transfer& transfer : transfers_of(begun, arrived, bytes_))
        trace.transfers.push_back(transfer);
      trace.arrivals_ns.insert(trace.arrivals_ns.end(), arrived.begin(), arrived.end());
    }
    return trace;
  }

  /// Unique for each neighbour's message of each round.
  /// @param link  of this rank
  std::uint64_t key(std::size_t link, std::uint64_t round) const {
    const std::uint64_t neighbour = is_sender_ ? link : static_cast<std::uint64_t>(rank_) - 1;
    return round * o_.neighbours + neighbour;
  }

  const Options& o_;
  const std::uint64_t bytes_;
  const std::vector<Link>& links_;  ///< sender: to each neighbour; receiver: to the sender
  const double timer_ns_;
  const Watcher& watcher_;
  const bool is_exposed_;
  std::deque<Buffer> buffers_;  ///< by link
  int rank_ = 0;
  bool is_sender_ = false;
  Noise noise_;
  std::unique_ptr<Team> team_;
  std::vector<std::vector<double>> scratch_;
  std::vector<double> computed_ns_;  ///< by thread
  std::vector<Ways> ways_;           ///< below the buffers, which they use
  std::uint64_t round_ = 0;
  double go_ns_ = 0;
  std::atomic<std::uint32_t> met_{0};  ///< threads that have written their share, over all rounds
};

}  // namespace

Point measure_pair(const Options& options, std::uint64_t size, const std::vector<Link>& links,
                   double timer_ns, double budget_ns, const Watcher& watcher) {
  return PairRun(options, size, links, timer_ns, watcher, false).run(budget_ns);
}

Point measure_exposed(const Options& options, std::uint64_t size, const std::vector<Link>& links,
                      double timer_ns, double budget_ns, const Watcher& watcher) {
  return PairRun(options, size, links, timer_ns, watcher, true).run(budget_ns);
}

}  // namespace larklane::bench
