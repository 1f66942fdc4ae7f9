#pragma once
// Applications in which the threads of several processes work together, over any transport: the
// measurement and the order of rounds. A `Transport` is Larklane (ports.hpp), LCI (lci.cpp) or an
// MPI (suite/applications.cpp).

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "measure/clock.hpp"
#include "measure/options.hpp"
#include "measure/series.hpp"
#include "measure/session.hpp"
#include "messages/in_turns.hpp"
#include "suite/team.hpp"

namespace larklane::bench {

/// The working threads: the same number in each process.
struct Crew {
  int rank, ranks;
  std::uint32_t threads;

  std::uint32_t workers() const noexcept { return static_cast<std::uint32_t>(ranks) * threads; }
};

/// One direction between two threads of different processes. Messages of one direction over one
/// link keep their order.
struct Stream {
  int rank;
  std::uint32_t tag;     ///< the same on both sides, unique among the links of two ranks
  std::uint32_t stream;  ///< its communicator, if there are several
};

/// Resources on which the threads of a process post in one way. Thread t uses lane t modulo their
/// number.
struct PortsShape {
  const Options* options;
  std::uint32_t threads, lanes;
  std::uint32_t streams;       ///< 0: no messages
  std::span<std::byte> open;   ///< memory that all ranks get from and change; may be empty
  std::span<std::byte> local;  ///< memory for gets, sends and receives; may be empty
};

/// Time of a thread's calls of one kind.
struct Part {
  double took_ns = 0;
  double calls = 0;

  template <class Call>
  auto time(Call&& call) {
    struct Timed {
      Part& part;
      const double began_ns = now_ns();
      ~Timed() {
        part.took_ns += now_ns() - began_ns;
        part.calls += 1;
      }
    } const timed{*this};
    return call();
  }
};

/// Rounds of one application. A transport has
///   World: rank(), size(), gather(number): the number of each rank; collective
///   Ports(world, shape): collective, in the same order on all ranks; begin_round(): publishes a
///     rank's writes to its open memory; end_round(): lets a rank read its open memory;
///     port(thread), for that thread alone:
///       get(rank, offset, to, bytes), accumulate(rank, offset, values, count),
///       receive(link, to, bytes), send(link, from, bytes): start the operation
///       wait(): until all operations are complete and accumulated values are at the target
///       count_up(rank, offset): adds one, waits for the value before and returns it
/// and an application, one object in each process,
///   kParts: samples that are means of calls; kWhole: sample of the round's time over kSteps
///   App(options, bytes, crew); open(), local(), streams(): as in PortsShape
///   begin_round(number); work(port, thread, parts); wrong(): errors of the round
/// Thread safety: single-owner.
template <class Transport, class App>
class Application {
  using World = typename Transport::World;
  using Ports = typename Transport::Ports;

 public:
  Application(const Options& options, std::uint64_t bytes, World& world, double timer_ns,
              const Watcher& watcher)
      : o_(options),
        bytes_(bytes),
        world_(world),
        timer_ns_(timer_ns),
        watcher_(watcher),
        threads_(options.threads_of_process()),
        app_(options, bytes, Crew{world.rank(), world.size(), threads_}),
        team_(threads_),
        of_thread_(threads_) {}

  Point run(double budget_ns) {
    Point point{bytes_, 1, 1, 0, {}};
    std::vector<std::unique_ptr<Ports>> ways;
    for (const std::string& name : o_.ways) {
      feed(name);
      const std::uint32_t lanes = name == "shared" ? std::min(o_.lanes, threads_) : threads_;
      ways.push_back(std::make_unique<Ports>(
          world_, PortsShape{&o_, threads_, lanes, app_.streams(), app_.open(), app_.local()}));
      point.series.push_back({.way = name});
    }
    measure_in_turns(
        o_, world_, watcher_, budget_ns, &point,
        [&](std::size_t w, Series& series, bool counts) { round(*ways[w], series, counts); });
    return point;
  }

 private:
  static constexpr std::size_t kParts = App::kParts.size();

  struct alignas(64) OfThread {
    std::array<Part, kParts> parts;
    double began_ns = 0, ended_ns = 0;
  };

  void feed(const std::string& way) const {
    if (world_.rank() == 0) watcher_.before_round(way);
  }

  void round(Ports& ports, Series& series, bool counts) {
    feed(series.way);
    app_.begin_round(++round_);
    ports.begin_round();
    (void)world_.gather(0);
    team_.run([&](std::uint32_t thread) {
      OfThread& mine = of_thread_[thread];
      mine.parts = {};
      mine.began_ns = now_ns();
      app_.work(ports.port(thread), thread, mine.parts);
      mine.ended_ns = now_ns();
    });
    // Of the slowest process; all threads have finished their work.
    const double took_ns = std::ranges::max(world_.gather(span_ns(of_thread_) - timer_ns_));
    ports.end_round();
    series.wrong += sum_of_ranks(world_, static_cast<double>(app_.wrong())) > 0;
    add_samples(took_ns, counts, series);
  }

  void add_samples(double took_ns, bool counts, Series& series) {
    for (std::size_t part = 0; part < kParts; ++part) {
      Part of_rank;
      for (const OfThread& mine : of_thread_) {
        of_rank.took_ns += mine.parts[part].took_ns;
        of_rank.calls += mine.parts[part].calls;
      }
      const double calls = sum_of_ranks(world_, of_rank.calls);
      const double mean_ns = sum_of_ranks(world_, of_rank.took_ns) / calls - timer_ns_;
      if (counts) series.samples[App::kParts[part]].push_back(mean_ns);
    }
    if (counts) series.samples[App::kWhole].push_back(took_ns / App::kSteps);
  }

  const Options& o_;
  const std::uint64_t bytes_;
  World& world_;
  const double timer_ns_;
  const Watcher& watcher_;
  const std::uint32_t threads_;
  App app_;
  Team team_;
  std::vector<OfThread> of_thread_;
  std::uint64_t round_ = 0;
};

}  // namespace larklane::bench
