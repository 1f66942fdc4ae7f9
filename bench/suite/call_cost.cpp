// Cost of each call of partitioned communication. One thread calls, and nothing else runs
// meanwhile.

#include <mpi.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <vector>

#include "benchmarks.hpp"
#include "buffer.hpp"
#include "partitioned.hpp"
#include "payload.hpp"
#include "turns.hpp"
#include "wait.hpp"

namespace larklane::bench {
namespace {

constexpr int kTag = 11;
/// A call may take less time than reading the clock, so the calls of kRequests requests are timed
/// together. Each Parrived is repeated kQuestions times. A sample is the mean.
constexpr std::size_t kRequests = 32, kQuestions = 8;
/// Rounds between the first one and the one that counts as steady.
constexpr int kSettlingRounds = 2;

enum Call : std::size_t {
  kEmpty,
  kPsendInit,
  kPrecvInit,
  kFirstRound,
  kStartSend,
  kStartRecv,
  kPready,
  kParrivedMiss,
  kParrivedHit,
  kWaitSend,
  kWaitRecv,
  kFreeSend,
  kFreeRecv,
  kEmptyAgain,
  kCalls
};
constexpr std::array<const char*, kCalls> kNames{
    "empty",      "psend_init", "precv_init",    "first_round",  "start_send",
    "start_recv", "pready",     "parrived_miss", "parrived_hit", "wait_send",
    "wait_recv",  "free_send",  "free_recv",     "empty'"};

class CallRun {
 public:
  CallRun(const Options& options, std::uint64_t size, double timer_ns, const Watcher& watcher)
      : o_(options), bytes_(options.bytes_of(size)), timer_ns_(timer_ns), watcher_(watcher) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    is_sender_ = rank == 0;
    partitions_ = static_cast<int>(is_sender_ ? o_.send_partitions() : o_.receive_partitions());
    for (std::size_t r = 0; r < kRequests; ++r) buffers_.emplace_back(bytes_);
  }

  Point run(double budget_ns) {
    Point point{bytes_, o_.send_partitions(), o_.receive_partitions(), 0, {}};
    const std::string refused = guard();
    for (const char* name : kNames) point.series.push_back({.way = name, .refused = refused});
    if (!refused.empty()) return point;
    const double began = now_ns();
    for (std::uint32_t i = 0; i < warmup_rounds(o_); ++i) measure_all(point, false);
    point.rounds = rounds_within(o_, budget_ns, now_ns() - began, of_rank_zero);
    for (std::uint32_t i = 0; i < point.rounds; ++i) {
      measure_all(point, true);
      if (is_sender_) watcher_.progress(static_cast<double>(i + 1) / point.rounds);
    }
    return point;
  }

 private:
  /// Creates, uses and frees all requests once.
  void measure_all(Point& point, bool counts) {
    if (is_sender_) watcher_.before_round("partitioned");
    costs_.fill(0);
    wrong_ = 0;
    measure_empty(kEmpty);
    MPI_Barrier(MPI_COMM_WORLD);
    time(is_sender_ ? kPsendInit : kPrecvInit, kRequests, [&] { init_all(); });
    first_round();
    for (int i = 0; i < kSettlingRounds; ++i) plain_round();
    steady_round();
    MPI_Barrier(MPI_COMM_WORLD);
    time(is_sender_ ? kFreeSend : kFreeRecv, kRequests, [&] { free_all(); });
    measure_empty(kEmptyAgain);
    gather();
    for (std::size_t c = 0; c < kCalls; ++c) {
      point.series[c].wrong += wrong_ != 0;
      if (counts) point.series[c].samples["call_ns"].push_back(costs_[c]);
    }
  }

  /// Holds back the last partition of every request, and writes it only just before its Pready. It
  /// must not arrive before that, no request may be complete, and arrived data must be in the
  /// buffer. Collective.
  /// @return why the way is refused; empty if it is not
  std::string guard() {
    static const std::array<const char*, 5> kReasons{
        "", "what has arrived, it says, is not in the buffer",
        "the partition that is held back arrives, it says",
        "the receive claims to be complete while a partition is held back",
        "the send claims to be complete while a partition is held back"};
    std::size_t reason = 0;
    if (is_sender_) watcher_.before_round("partitioned");
    wrong_ = 0;
    init_all();
    for (int i = 0; i < kGuardRounds; ++i) {
      const std::size_t early = held_round();
      reason = std::max(reason, early != 0 ? early : static_cast<std::size_t>(wrong_ != 0));
    }
    free_all();
    MPI_Allreduce(MPI_IN_PLACE, &reason, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    return kReasons[reason];
  }

  /// @return the number of the reason; 0: no partition arrived, and no request was complete, too
  ///     early
  std::size_t held_round() {
    begin_round();
    const std::uint64_t held = bytes_ / o_.send_partitions();
    const auto fill_held = [&](std::uint64_t before) {
      for (std::size_t r = 0; is_sender_ && r < kRequests; ++r)
        fill(buffers_[r].span().last(held), bytes_ - held, key(r) - before);
    };
    fill_held(kRequests);
    MPI_Startall(kRequests, requests_.data());
    MPI_Barrier(MPI_COMM_WORLD);
    const int last = partitions_ - 1;
    if (is_sender_)
      for (MPI_Request request : requests_)
        for (int p = 0; p < last; ++p) MPI_Pready(p, request);
    std::size_t early = 0;
    std::vector<char> seen(is_sender_ ? 0 : kRequests * static_cast<std::size_t>(partitions_));
    while_held([&] {
      if (std::ranges::any_of(requests_, is_complete))
        early = std::max<std::size_t>(early, is_sender_ ? 4 : 3);
      if (!is_sender_ && look(seen)) early = std::max<std::size_t>(early, 2);
    });
    MPI_Barrier(MPI_COMM_WORLD);
    fill_held(0);
    if (is_sender_)
      for (MPI_Request request : requests_) MPI_Pready(last, request);
    MPI_Waitall(kRequests, requests_.data(), MPI_STATUSES_IGNORE);
    verify();
    return early;
  }

  /// Verifies partitions that have arrived and are not in `seen` yet.
  /// @return true if the last partition of a request has arrived
  bool look(std::vector<char>& seen) {
    bool last = false;
    const std::uint64_t part = bytes_ / o_.receive_partitions();
    for (std::size_t r = 0; r < kRequests; ++r)
      for (std::size_t p = 0; p < o_.receive_partitions(); ++p) {
        int flag = 0;
        MPI_Parrived(requests_[r], static_cast<int>(p), &flag);
        char& is_seen = seen[r * o_.receive_partitions() + p];
        if (flag == 0 || is_seen != 0) continue;
        is_seen = 1;
        last |= p + 1 == o_.receive_partitions();
        wrong_ += wrong_words(buffers_[r].span().subspan(p * part, part), p * part, key(r));
      }
    return last;
  }

  void init_all() {
    for (std::size_t r = 0; r < kRequests; ++r)
      requests_[r] =
          make_partitioned({buffers_[r].data(), bytes_, static_cast<std::uint32_t>(partitions_),
                            is_sender_ ? 1 : 0, kTag + static_cast<int>(r), is_sender_});
  }

  void free_all() {
    for (MPI_Request& request : requests_) MPI_Request_free(&request);
  }

  /// From Start to Wait, by the sender, for one request after the other: includes the handshake of
  /// the two sides.
  void first_round() {
    begin_round();
    if (!is_sender_) MPI_Startall(kRequests, requests_.data());
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_sender_)
      time(kFirstRound, kRequests, [&] {
        for (MPI_Request& request : requests_) {
          MPI_Start(&request);
          mark_all(request);
          MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
      });
    else
      MPI_Waitall(kRequests, requests_.data(), MPI_STATUSES_IGNORE);
    verify();
  }

  void plain_round() {
    begin_round();
    MPI_Startall(kRequests, requests_.data());
    if (is_sender_)
      for (MPI_Request request : requests_) mark_all(request);
    MPI_Waitall(kRequests, requests_.data(), MPI_STATUSES_IGNORE);
    verify();
  }

  /// The two sides take turns, so that neither works in the background of a timed call. Wait is
  /// called after everything has arrived.
  void steady_round() {
    begin_round();
    MPI_Barrier(MPI_COMM_WORLD);
    time(is_sender_ ? kStartSend : kStartRecv, kRequests, [&] {
      for (MPI_Request& request : requests_) MPI_Start(&request);
    });
    MPI_Barrier(MPI_COMM_WORLD);
    if (!is_sender_) ask(kParrivedMiss, false);
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_sender_)
      time(kPready, kRequests * o_.send_partitions(), [&] {
        for (MPI_Request request : requests_) mark_all(request);
      });
    MPI_Barrier(MPI_COMM_WORLD);
    if (!is_sender_) {
      wait_until([&] { return arrived() == kRequests * o_.receive_partitions(); });
      ask(kParrivedHit, true);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    time(is_sender_ ? kWaitSend : kWaitRecv, kRequests, [&] {
      for (MPI_Request& request : requests_) MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
    verify();
  }

  /// @param hit  the expected answer of Parrived
  void ask(Call call, bool hit) {
    const std::uint64_t questions = kRequests * o_.receive_partitions() * kQuestions;
    std::uint64_t hits = 0;
    time(call, questions, [&] {
      for (std::size_t i = 0; i < kQuestions; ++i) hits += arrived();
    });
    wrong_ += hits != (hit ? questions : 0);
  }

  std::uint64_t arrived() {
    std::uint64_t hits = 0;
    for (MPI_Request request : requests_)
      for (int p = 0; p < partitions_; ++p) {
        int flag = 0;
        MPI_Parrived(request, p, &flag);
        hits += flag != 0;
      }
    return hits;
  }

  void mark_all(MPI_Request request) {
    for (int p = 0; p < partitions_; ++p) MPI_Pready(p, request);
  }

  /// Cost of a sender's call that has nothing to do.
  void measure_empty(Call call) {
    if (!is_sender_) return;
    constexpr std::size_t kEmptyCalls = kRequests * kQuestions;
    time(call, kEmptyCalls, [&] {
      for (std::size_t i = 0; i < kEmptyCalls; ++i) {
        MPI_Request nothing = MPI_REQUEST_NULL;
        int flag = 0;
        MPI_Test(&nothing, &flag, MPI_STATUS_IGNORE);
      }
    });
  }

  template <class Job>
  void time(Call call, std::uint64_t calls, Job&& job) {
    const double began = now_ns();
    job();
    costs_[call] = (now_ns() - began - timer_ns_) / static_cast<double>(calls);
  }

  void begin_round() {
    ++round_;
    if (is_sender_)
      for (std::size_t r = 0; r < kRequests; ++r) fill(buffers_[r].span(), 0, key(r));
    if (o_.cold)
      for (const Buffer& buffer : buffers_) flush(buffer.span());
  }

  void verify() {
    if (is_sender_) return;
    for (std::size_t r = 0; r < kRequests; ++r)
      wrong_ += wrong_words(buffers_[r].span(), 0, key(r));
  }

  std::uint64_t key(std::size_t request) const { return round_ * kRequests + request; }

  /// Adds up the two sides' results: each has measured its own calls.
  void gather() {
    MPI_Allreduce(MPI_IN_PLACE, costs_.data(), kCalls, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &wrong_, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  }

  const Options& o_;
  const std::uint64_t bytes_;
  const double timer_ns_;
  const Watcher& watcher_;
  bool is_sender_ = false;
  int partitions_ = 0;
  std::deque<Buffer> buffers_;
  std::array<MPI_Request, kRequests> requests_{};
  std::array<double, kCalls> costs_{};  ///< of one call, nanoseconds
  std::uint64_t wrong_ = 0;             ///< wrong words and answers
  std::uint64_t round_ = 0;
};

}  // namespace

Point measure_call_cost(const Options& options, std::uint64_t size, const std::vector<Link>&,
                        double timer_ns, double budget_ns, const Watcher& watcher) {
  return CallRun(options, size, timer_ns, watcher).run(budget_ns);
}

}  // namespace larklane::bench
