// Parameterised round trips between two ranks, for the LogGP fit: a train of messages one way, one
// message back (Hoefler, Lichei, Rehm 2007). One thread; with a partitioned way the messages of a
// train are the partitions of one request.

#include <mpi.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>

#include "benchmarks.hpp"
#include "buffer.hpp"
#include "partitioned.hpp"
#include "payload.hpp"
#include "wait.hpp"

namespace larklane::bench {
namespace {

constexpr int kTag = 11;
constexpr std::array<std::uint32_t, 5> kTrains{1, 2, 4, 8, 16};
constexpr std::uint32_t kLongest = kTrains.back();
static_assert(kLongest == find_benchmark("prtt")->messages);

/// A rank's buffers for all trains: messages of `bytes` each, and the answer.
struct Track {
  std::span<std::byte> train;  ///< kLongest messages
  std::span<std::byte> answer;
  std::size_t bytes;
  bool is_first;  ///< this rank sends the train
  int peer() const noexcept { return is_first ? 1 : 0; }
  std::byte* message(std::uint32_t i) const noexcept { return train.data() + i * bytes; }
};

/// One way to send. The calls of a train: prepare; send each and receive the answer, or receive all
/// and send the answer; finish. Thread safety: single-owner.
class Sending {
 public:
  explicit Sending(const Track& track) : track_(track) {}
  virtual ~Sending() = default;
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;

  virtual void prepare(std::size_t) {}
  virtual void send(std::size_t train, std::uint32_t message) = 0;
  virtual void receive(std::size_t train) = 0;
  virtual void send_answer() = 0;
  virtual void receive_answer() = 0;
  virtual void finish(std::size_t) {}
  /// True if the train claims to be complete here before anything has been sent.
  virtual bool claims_completion(std::size_t) { return false; }

 protected:
  const Track track_;
};

class Messages final : public Sending {
 public:
  using Sending::Sending;
  void send(std::size_t, std::uint32_t message) override { send_to_peer(track_.message(message)); }
  void receive(std::size_t train) override {
    for (std::uint32_t i = 0; i < kTrains[train]; ++i) receive_from_peer(track_.message(i));
  }
  void send_answer() override { send_to_peer(track_.answer.data()); }
  void receive_answer() override { receive_from_peer(track_.answer.data()); }

 private:
  void send_to_peer(const std::byte* data) const {
    MPI_Send(data, static_cast<int>(track_.bytes), MPI_BYTE, track_.peer(), kTag, MPI_COMM_WORLD);
  }
  void receive_from_peer(std::byte* data) const {
    MPI_Recv(data, static_cast<int>(track_.bytes), MPI_BYTE, track_.peer(), kTag, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
  }
};

class Partitions final : public Sending {
 public:
  explicit Partitions(const Track& track) : Sending(track) {
    for (std::size_t i = 0; i < kTrains.size(); ++i)
      trains_[i] = make_partitioned({track.train.data(), kTrains[i] * track.bytes, kTrains[i],
                                     track.peer(), kTag + 1 + static_cast<int>(i), track.is_first});
    answer_ = make_partitioned(
        {track.answer.data(), track.bytes, 1, track.peer(), kTag, !track.is_first});
  }
  ~Partitions() override {
    for (MPI_Request& train : trains_) MPI_Request_free(&train);
    MPI_Request_free(&answer_);
  }
  void prepare(std::size_t train) override {
    MPI_Start(&trains_[train]);
    MPI_Start(&answer_);
  }
  void send(std::size_t train, std::uint32_t message) override {
    MPI_Pready(static_cast<int>(message), trains_[train]);
  }
  void receive(std::size_t train) override { MPI_Wait(&trains_[train], MPI_STATUS_IGNORE); }
  void send_answer() override { MPI_Pready(0, answer_); }
  void receive_answer() override { MPI_Wait(&answer_, MPI_STATUS_IGNORE); }
  void finish(std::size_t train) override {
    MPI_Wait(&trains_[train], MPI_STATUS_IGNORE);
    MPI_Wait(&answer_, MPI_STATUS_IGNORE);
  }
  bool claims_completion(std::size_t train) override { return is_complete(trains_[train]); }

 private:
  std::array<MPI_Request, kTrains.size()> trains_{};
  MPI_Request answer_ = MPI_REQUEST_NULL;
};

/// @return null if this MPI can't
std::unique_ptr<Sending> make_sending(const std::string& way, const Track& track) {
  if (!missing(way).empty()) return nullptr;
  if (way == "join") return std::make_unique<Messages>(track);
  if (way == "partitioned") return std::make_unique<Partitions>(track);
  return nullptr;
}

/// Busy-waits to the nanosecond without touching a cache: a message may cost less than a piece of
/// work.
void compute_for(double ns) {
  for (const double end = now_ns() + ns; now_ns() < end;) {
  }
}

class PrttRun {
 public:
  PrttRun(const Options& options, std::uint64_t size, double timer_ns, const Watcher& watcher)
      : o_(options),
        timer_ns_(timer_ns),
        watcher_(watcher),
        train_(size * kLongest),
        answer_(size) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    is_first_ = rank == 0;
    for (const std::string& way : o_.ways) {
      if (is_first_) watcher_.before_round(way);
      sendings_.push_back(make_sending(way, {train_.span(), answer_.span(), size, is_first_}));
    }
    delay_ns_.resize(o_.ways.size(), 0);
  }

  Point run(double budget_ns) {
    Point point{answer_.span().size(), 1, 1, 0, {}};
    take_turns(
        o_, budget_ns, &point, [&](std::size_t w, Series& series) { guard(*sendings_[w], series); },
        [&](std::size_t w, Series& series, std::uint32_t, bool counts) {
          one_round(w, series, counts);
        },
        [&](double share) {
          if (is_first_) watcher_.progress(share);
        });
    return point;
  }

 private:
  void one_round(std::size_t way, Series& series, bool counts) {
    Sending& sending = *sendings_[way];
    const auto keep = [&](const std::string& metric, double value) {
      if (counts) series.samples[metric].push_back(value);
    };
    one_train(sending, series, 0, 0);  // untimed: removes the last way's data from the caches
    double single_ns = 0, longest_ns = 0;
    for (std::size_t train = 0; train < kTrains.size(); ++train) {
      const double took_ns = one_train(sending, series, train, 0);
      if (train == 0) single_ns = took_ns;
      longest_ns = took_ns;
      keep(train == 0 ? "round_trip_ns" : "train_" + std::to_string(kTrains[train]) + "_ns",
           took_ns);
    }
    // Long enough for a message to leave, and the same in all rounds.
    double& delay_ns = delay_ns_[way];
    if (delay_ns == 0)
      delay_ns = std::max(single_ns, 2 * (longest_ns - single_ns) / (kLongest - 1));
    keep("delay_ns", delay_ns);
    keep("delayed_" + std::to_string(kLongest) + "_ns",
         one_train(sending, series, kTrains.size() - 1, delay_ns));
    keep("receive_ns", one_receive(sending, series, single_ns));
  }

  /// @return time of the train, on rank 0
  double one_train(Sending& sending, Series& series, std::size_t train, double delay_ns) {
    begin(sending, series, train);
    const double began = now_ns();
    if (is_first_) {
      for (std::uint32_t i = 0; i < kTrains[train]; ++i) {
        if (i > 0 && delay_ns > 0) compute_for(delay_ns);
        sending.send(train, i);
      }
      sending.receive_answer();
    } else {
      sending.receive(train);
      sending.send_answer();
    }
    const double took = now_ns() - began - timer_ns_;
    end(sending, series, train);
    return took;
  }

  /// Receives a message that has arrived before.
  /// @return time of the receive, on all ranks
  double one_receive(Sending& sending, Series& series, double round_trip_ns) {
    MPI_Bcast(&round_trip_ns, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    begin(sending, series, 0);
    double took = 0;
    if (is_first_) {
      sending.send(0, 0);
      sending.receive_answer();
    } else {
      constexpr double kSurelyNs = 1e4;
      compute_for(2 * round_trip_ns + kSurelyNs);
      const double began = now_ns();
      sending.receive(0);
      took = now_ns() - began - timer_ns_;
      sending.send_answer();
    }
    end(sending, series, 0);
    MPI_Bcast(&took, 1, MPI_DOUBLE, 1, MPI_COMM_WORLD);
    return took;
  }

  void begin(Sending& sending, const Series& series, std::size_t train) {
    ++round_;
    if (is_first_) watcher_.before_round(series.way);
    fill(sent(train), 0, key(is_first_));
    if (o_.cold) flush(train_.span()), flush(answer_.span());
    sending.prepare(train);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void end(Sending& sending, Series& series, std::size_t train) {
    sending.finish(train);
    std::uint64_t wrong = wrong_words(received(train), 0, key(!is_first_));
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    series.wrong += wrong != 0;
  }

  /// Sends nothing for a while: no side may claim to be complete, and data that arrives too early
  /// is wrong.
  void guard(Sending& sending, Series& series) {
    const std::size_t train = kTrains.size() - 1;
    ++round_;
    if (is_first_) watcher_.before_round(series.way);
    sending.prepare(train);
    std::uint64_t claims = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    while_held([&] { claims += sending.claims_completion(train); });
    MPI_Barrier(MPI_COMM_WORLD);
    fill(sent(train), 0, key(is_first_));
    if (is_first_) {
      for (std::uint32_t i = 0; i < kLongest; ++i) sending.send(train, i);
      sending.receive_answer();
    } else {
      sending.receive(train);
      sending.send_answer();
    }
    const std::uint64_t wrong = wrong_words(received(train), 0, key(!is_first_));
    sending.finish(train);
    judge_held_back(claims, wrong, &series);
  }

  std::span<std::byte> of_train(std::size_t train) const {
    return train_.span().first(kTrains[train] * answer_.span().size());
  }
  std::span<std::byte> sent(std::size_t train) const {
    return is_first_ ? of_train(train) : answer_.span();
  }
  std::span<std::byte> received(std::size_t train) const {
    return is_first_ ? answer_.span() : of_train(train);
  }
  /// Unique for each direction of each train.
  std::uint64_t key(bool of_first) const { return 2 * round_ + of_first; }

  const Options& o_;
  const double timer_ns_;
  const Watcher& watcher_;
  Buffer train_, answer_;
  bool is_first_ = false;
  std::vector<std::unique_ptr<Sending>> sendings_;  ///< by way; below the buffers, which they use
  std::vector<double> delay_ns_;                    ///< by way; 0: not measured yet
  std::uint64_t round_ = 0;
};

}  // namespace

Point measure_prtt(const Options& options, std::uint64_t size, const std::vector<Link>&,
                   double timer_ns, double budget_ns, const Watcher& watcher) {
  return PrttRun(options, options.bytes_of(size), timer_ns, watcher).run(budget_ns);
}

}  // namespace larklane::bench
