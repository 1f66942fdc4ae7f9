// Half a round trip between two ranks: one thread, by default one partition.

#include <mpi.h>

#include <memory>
#include <span>

#include "benchmarks.hpp"
#include "buffer.hpp"
#include "medium.hpp"
#include "partitioned.hpp"
#include "payload.hpp"
#include "put_window.hpp"
#include "wait.hpp"

namespace larklane::bench {
namespace {

constexpr int kTag = 9;

struct Ends {
  std::span<std::byte> out, in;
  int peer;
  std::uint32_t partitions;
};

int count_of(std::span<const std::byte> bytes) { return static_cast<int>(bytes.size()); }

/// A message there and back. The calls of one round: prepare, before the clock starts; start, send
/// and receive, or receive, start and send; finish. Thread safety: single-owner.
class Trip {
 public:
  explicit Trip(const Ends& ends) : ends_(ends) {}
  virtual ~Trip() = default;
  Trip(const Trip&) = delete;
  Trip& operator=(const Trip&) = delete;

  virtual void prepare(std::uint64_t) {}
  /// Calls that are allowed before the message has been written.
  virtual void start() {}
  virtual void send() = 0;
  virtual void receive() = 0;
  virtual void finish() {}
  /// True if this end, sending or not, claims to be complete while the message is held back.
  virtual bool claims_completion(bool) { return false; }

 protected:
  const Ends ends_;
};

/// MPI_Send, with MPI_Irecv before the clock starts.
class Blocking final : public Trip {
 public:
  using Trip::Trip;
  void prepare(std::uint64_t) override {
    MPI_Irecv(ends_.in.data(), count_of(ends_.in), MPI_BYTE, ends_.peer, kTag, MPI_COMM_WORLD,
              &receive_);
  }
  void send() override {
    MPI_Send(ends_.out.data(), count_of(ends_.out), MPI_BYTE, ends_.peer, kTag, MPI_COMM_WORLD);
  }
  void receive() override { MPI_Wait(&receive_, MPI_STATUS_IGNORE); }

 private:
  MPI_Request receive_ = MPI_REQUEST_NULL;
};

/// Two requests, one for each direction.
class Requests : public Trip {
 public:
  ~Requests() override {
    MPI_Request_free(&send_);
    MPI_Request_free(&receive_);
  }
  void prepare(std::uint64_t) override { MPI_Start(&receive_); }
  void receive() override { MPI_Wait(&receive_, MPI_STATUS_IGNORE); }
  void finish() override { MPI_Wait(&send_, MPI_STATUS_IGNORE); }

 protected:
  using Trip::Trip;
  MPI_Request send_ = MPI_REQUEST_NULL, receive_ = MPI_REQUEST_NULL;
};

class Persistent final : public Requests {
 public:
  explicit Persistent(const Ends& ends) : Requests(ends) {
    MPI_Send_init(ends.out.data(), count_of(ends.out), MPI_BYTE, ends.peer, kTag, MPI_COMM_WORLD,
                  &send_);
    MPI_Recv_init(ends.in.data(), count_of(ends.in), MPI_BYTE, ends.peer, kTag, MPI_COMM_WORLD,
                  &receive_);
  }
  void send() override { MPI_Start(&send_); }
};

class Partitioned final : public Requests {
 public:
  explicit Partitioned(const Ends& ends) : Requests(ends) {
    const auto end = [&](std::span<std::byte> bytes, bool is_sent) {
      return make_partitioned(
          {bytes.data(), bytes.size(), ends.partitions, ends.peer, kTag, is_sent});
    };
    send_ = end(ends.out, true);
    receive_ = end(ends.in, false);
  }
  void start() override { MPI_Start(&send_); }
  void send() override {
    if (ends_.partitions == 1)
      MPI_Pready(0, send_);
    else
      MPI_Pready_range(0, static_cast<int>(ends_.partitions) - 1, send_);
  }
  bool claims_completion(bool sends) override { return is_complete(sends ? send_ : receive_); }
};

/// A put, then a mark that the other side polls.
class Put final : public Trip {
 public:
  explicit Put(const Ends& ends) : Trip(ends), window_(MPI_COMM_WORLD, ends.in, 1) {}
  void prepare(std::uint64_t round) override { round_ = round; }
  void send() override { window_.put(ends_.out, 0, ends_.peer, 0, round_); }
  void receive() override {
    wait_until([&] {
      window_.look();
      return window_.arrived(0, round_);
    });
  }

 private:
  PutWindow window_;
  std::uint64_t round_ = 0;
};

class Line final : public Trip {
 public:
  explicit Line(const Ends& ends) : Trip(ends), medium_(1 - ends.peer, ends.out.size()) {}
  void prepare(std::uint64_t round) override { round_ = round; }
  void send() override { medium_.send(ends_.out, round_); }
  void receive() override { medium_.receive(ends_.in, round_); }

 private:
  LineMedium medium_;
  std::uint64_t round_ = 0;
};

class Socket final : public Trip {
 public:
  Socket(const Ends& ends, bool sleeps) : Trip(ends), medium_(1 - ends.peer, sleeps) {}
  void send() override { medium_.send(ends_.out); }
  void receive() override { medium_.receive(ends_.in); }

 private:
  const SocketMedium medium_;
};

/// @return null if this MPI can't
std::unique_ptr<Trip> make_trip(const std::string& way, const Ends& ends) {
  if (!missing(way).empty()) return nullptr;
  if (way == "join") return std::make_unique<Blocking>(ends);
  if (way == "persistent") return std::make_unique<Persistent>(ends);
  if (way == "partitioned") return std::make_unique<Partitioned>(ends);
  if (way == "rma") return std::make_unique<Put>(ends);
  if (way == "line") return std::make_unique<Line>(ends);
  if (way == "socket" || way == "asleep") return std::make_unique<Socket>(ends, way == "asleep");
  return nullptr;
}

class LatencyRun {
 public:
  LatencyRun(const Options& options, std::uint64_t size, double timer_ns, const Watcher& watcher)
      : o_(options), timer_ns_(timer_ns), watcher_(watcher), out_(size), in_(size) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    is_first_ = rank == 0;
    for (const std::string& way : o_.ways) {
      if (is_first_) watcher_.before_round(way);
      trips_.push_back(make_trip(way, {out_.span(), in_.span(), 1 - rank, o_.send_partitions()}));
    }
  }

  Point run(double budget_ns) {
    Point point{in_.span().size(), o_.send_partitions(), o_.send_partitions(), 0, {}};
    take_turns(
        o_, budget_ns, &point, [&](std::size_t w, Series& series) { guard(*trips_[w], series); },
        [&](std::size_t w, Series& series, std::uint32_t, bool counts) {
          const double half_ns = one_round(*trips_[w], series);
          if (counts) series.samples["half_round_trip_ns"].push_back(half_ns);
        },
        [&](double share) {
          if (is_first_) watcher_.progress(share);
        });
    return point;
  }

 private:
  double one_round(Trip& trip, Series& series) {
    begin_round(series);
    fill(out_.span(), 0, key(is_first_));
    if (o_.cold) flush(out_.span()), flush(in_.span());
    trip.prepare(round_);
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = now_ns();
    if (is_first_) {
      trip.start();
      trip.send();
      trip.receive();
    } else {
      trip.receive();
      trip.start();
      trip.send();
    }
    const double took = now_ns() - began - timer_ns_;
    trip.finish();
    series.wrong += wrong_words_of_both() != 0;
    return took / 2;
  }

  /// Holds back the message in each direction, and writes it only then. Data that arrives earlier
  /// is wrong, and neither side may claim to be complete.
  void guard(Trip& trip, Series& series) {
    begin_round(series);
    trip.prepare(round_);
    std::uint64_t claims = 0, wrong = 0;
    for (const bool sends : {is_first_, !is_first_}) {
      if (sends) trip.start();
      MPI_Barrier(MPI_COMM_WORLD);
      while_held([&] { claims += trip.claims_completion(sends); });
      MPI_Barrier(MPI_COMM_WORLD);
      if (sends) {
        fill(out_.span(), 0, key(is_first_));
        trip.send();
      } else {
        trip.receive();
        wrong += wrong_words(in_.span(), 0, key(!is_first_));
      }
    }
    trip.finish();
    judge_held_back(claims, wrong, &series);
  }

  void begin_round(const Series& series) {
    ++round_;
    if (is_first_) watcher_.before_round(series.way);
  }

  std::uint64_t wrong_words_of_both() const {
    std::uint64_t wrong = wrong_words(in_.span(), 0, key(!is_first_));
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return wrong;
  }

  /// Unique for each direction of each round.
  std::uint64_t key(bool of_first) const { return 2 * round_ + of_first; }

  const Options& o_;
  const double timer_ns_;
  const Watcher& watcher_;
  Buffer out_, in_;
  bool is_first_ = false;
  std::vector<std::unique_ptr<Trip>> trips_;  ///< by way; below the buffers, which they use
  std::uint64_t round_ = 0;
};

}  // namespace

Point measure_latency(const Options& options, std::uint64_t size, const std::vector<Link>&,
                      double timer_ns, double budget_ns, const Watcher& watcher) {
  return LatencyRun(options, options.bytes_of(size), timer_ns, watcher).run(budget_ns);
}

}  // namespace larklane::bench
