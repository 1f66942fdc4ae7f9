// Latency of the first partition while the others are held back, from just before its Pready until
// the receiver, which polls with Parrived, sees it. `surprise`: every third round holds the others
// back, and only it counts, so that no policy expects it.

#include <mpi.h>

#include <deque>

#include "benchmarks.hpp"
#include "channel.hpp"
#include "clock.hpp"
#include "shared_memory.hpp"
#include "work.hpp"

namespace larklane::bench {
namespace {

constexpr std::uint64_t kSurprisesEvery = 3;

/// @return the sender's figure
/// @param turn  counts the turns of all ways: it selects the receiver's figure
OfRound measured(const Options& o, Channel& channel, SharedMemory& memory, std::uint64_t turn,
                 bool holds, std::vector<double>& scratch) {
  channel.begin();
  MPI_Start(&channel.request());
  MPI_Barrier(MPI_COMM_WORLD);
  OfRound found;
  if (channel.is_sender()) {
    compute_until(now_ns() + o.late_ns, scratch);
    const double ready_ns = now_ns();
    channel.mark(0, 0);
    if (holds) compute_until(ready_ns + o.hold_ns, scratch);
    channel.mark(1, channel.partitions() - 1);
    channel.wait();
    found.value = memory.hear(turn) - ready_ns;
    found.wrong = found.value < 0;
  } else {
    for (int flag = 0; flag == 0;) MPI_Parrived(channel.request(), 0, &flag);
    const double arrived_ns = now_ns();
    found.wrong = static_cast<double>(channel.wrong_in_first());
    channel.wait();
    memory.tell(turn, arrived_ns);
    found.wrong += static_cast<double>(channel.wrong_in_all());
  }
  return found;
}

}  // namespace

Point measure_first_arrival(const Options& o, std::uint64_t size, const std::vector<Link>&, double,
                            double budget_ns, const Watcher& watcher) {
  Point point{o.bytes_of(size), o.send_partitions(), o.send_partitions(), 0, {}};
  std::vector<double> scratch = scratch_memory();
  SharedMemory memory;
  std::deque<Channel> channels;
  std::uint64_t turn = 0;
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const bool tells = rank == 0;
  for (const std::string& way : o.ways) {
    if (tells) watcher.before_round(way);
    channels.emplace_back(o, point.bytes);
  }
  take_turns(
      o, budget_ns, &point,
      [&](std::size_t w, Series& series) {
        if (tells) watcher.before_round(series.way);
        channels[w].guard(&series);
      },
      [&](std::size_t w, Series& series, std::uint32_t, bool counts) {
        if (tells) watcher.before_round(series.way);
        const bool holds =
            o.ways[w] != "surprise" || (channels[w].round() + 1) % kSurprisesEvery == 0;
        const OfRound found = measured(o, channels[w], memory, ++turn, holds, scratch);
        const OfRound all = sum_of_both(found);
        series.wrong += all.wrong > 0;
        if (counts && holds) series.samples["first_arrival_ns"].push_back(found.value);
      },
      [&](double share) {
        if (tells) watcher.progress(share);
      });
  return point;
}

}  // namespace larklane::bench
