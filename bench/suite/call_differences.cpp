// Cost of a call above an empty one: both are timed in the same round, one after the other. A
// sample is the difference of their means over the round's calls.

#include <dlfcn.h>
#include <link.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "benchmarks.hpp"
#include "channel.hpp"
#include "clock.hpp"

namespace larklane::bench {
namespace {

/// An empty intercepted call: the test of a null request (rule P2).
double empty_call_ns(int calls) {
  int flag = 0;
  const double began = now_ns();
  for (int i = 0; i < calls; ++i) MPI_Parrived(MPI_REQUEST_NULL, i, &flag);
  return (now_ns() - began) / calls;
}

double pready_ns(Channel& channel, int calls) {
  const double empty_ns = empty_call_ns(calls);
  const double began = now_ns();
  for (int p = 0; p < calls; ++p) MPI_Pready(p, channel.request());
  return (now_ns() - began) / calls - empty_ns;
}

void ask_for_all(Channel& channel) {
  for (int p = 0; p < channel.partitions(); ++p)
    for (int flag = 0; flag == 0;) MPI_Parrived(channel.request(), p, &flag);
}

/// Rank 0 marks all partitions but the last. Meanwhile the receiver waits in a barrier of the MPI,
/// or with `contended` polls with Parrived.
OfRound of_pready(Channel& channel, bool is_contended) {
  const int calls = std::max(channel.partitions() - 1, 1);
  OfRound found;
  if (channel.is_sender()) {
    found.value = pready_ns(channel, calls);
    channel.mark(calls, channel.partitions() - 1);
  } else if (is_contended) {
    ask_for_all(channel);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (!channel.is_sender()) ask_for_all(channel);
  return found;
}

/// The same for all partitions, before the receiver has started: with attach, no Pready copies
/// then.
OfRound of_marks(Channel& channel) {
  OfRound found;
  if (channel.is_sender()) {
    MPI_Start(&channel.request());
    found.value = pready_ns(channel, channel.partitions());
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (!channel.is_sender()) MPI_Start(&channel.request());
  return found;
}

/// Rank 1 asks for partitions that have arrived and that it has asked for before.
OfRound of_parrived(Channel& channel) {
  OfRound found;
  if (channel.is_sender()) {
    channel.mark(0, channel.partitions() - 1);
    return found;
  }
  ask_for_all(channel);
  const double empty_ns = empty_call_ns(channel.partitions());
  const double began = now_ns();
  for (int p = 0; p < channel.partitions(); ++p) {
    int flag = 0;
    MPI_Parrived(channel.request(), p, &flag);
    found.wrong += flag == 0;
  }
  found.value = (now_ns() - began) / channel.partitions() - empty_ns;
  return found;
}

OfRound of_channel(const std::string& way, Channel& channel) {
  channel.begin();
  OfRound found;
  if (way == "marks") {
    found = of_marks(channel);
  } else {
    MPI_Start(&channel.request());
    MPI_Barrier(MPI_COMM_WORLD);
    found = way == "parrived" ? of_parrived(channel) : of_pready(channel, way == "contended");
  }
  channel.wait();
  found.wrong += static_cast<double>(channel.wrong_in_all());
  return found;
}

/// The calls of the MPI library itself, below any preloaded library, or those that a program links
/// to.
struct Calls {
  decltype(&MPI_Isend) isend = MPI_Isend;
  decltype(&MPI_Irecv) irecv = MPI_Irecv;
  decltype(&MPI_Wait) wait = MPI_Wait;
  decltype(&MPI_Waitall) waitall = MPI_Waitall;
};

int open_libmpi(dl_phdr_info* info, std::size_t, void* handle) {
  const char* const name = std::strrchr(info->dlpi_name, '/');
  const auto is_one = [&](const char* stem) {
    return name != nullptr && std::strncmp(name + 1, stem, std::strlen(stem)) == 0;
  };
  if (!is_one("libmpi.") && !is_one("libmpi_abi.") && !is_one("libmpich.")) return 0;
  *static_cast<void**>(handle) = ::dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
  return 1;
}

Calls calls_of_library() {
  void* library = nullptr;
  ::dl_iterate_phdr(open_libmpi, &library);
  Calls calls;
  const auto find = [&](auto& call, const char* name) {
    void* const found = library != nullptr ? ::dlsym(library, name) : nullptr;
    if (found == nullptr) MPI_Abort(MPI_COMM_WORLD, 1);
    std::memcpy(&call, &found, sizeof call);
  };
  find(calls.isend, "MPI_Isend");
  find(calls.irecv, "MPI_Irecv");
  find(calls.wait, "MPI_Wait");
  find(calls.waitall, "MPI_Waitall");
  return calls;
}

/// 32 pairs of Isend and Irecv to this rank itself. Either each request is waited for alone (cost
/// of one of the four calls), or all in one Waitall (cost of one of its 64 entries).
OfRound of_messages(const Calls& calls, bool is_together, std::uint64_t key) {
  constexpr std::size_t kPairs = 32, kTurns = 20;
  std::array<char, kPairs> in;
  std::array<MPI_Request, 2 * kPairs> requests;
  OfRound found;
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    const auto out = static_cast<char>(key + turn);
    in.fill(static_cast<char>(out + 1));
    double began = now_ns();
    for (std::size_t i = 0; i < kPairs; ++i) {
      calls.irecv(&in[i], 1, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[2 * i]);
      calls.isend(&out, 1, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[2 * i + 1]);
      if (is_together) continue;
      calls.wait(&requests[2 * i], MPI_STATUS_IGNORE);
      calls.wait(&requests[2 * i + 1], MPI_STATUS_IGNORE);
    }
    if (is_together) {
      began = now_ns();
      calls.waitall(2 * kPairs, requests.data(), MPI_STATUSES_IGNORE);
    }
    found.value += now_ns() - began;
    found.wrong +=
        static_cast<double>(in.size()) - static_cast<double>(std::ranges::count(in, out));
  }
  found.value /= static_cast<double>(kTurns * kPairs * (is_together ? 2 : 4));
  return found;
}

/// A program's calls against those of the library, in the order A B B A; on rank 0.
OfRound of_messages(const Calls& bare, bool is_together, bool counts, std::uint64_t key) {
  OfRound found;
  for (const bool is_bare : {false, true, true, false}) {
    const OfRound part = of_messages(is_bare ? bare : Calls(), is_together, key);
    if (!counts) continue;
    found.value += (is_bare ? -0.5 : 0.5) * part.value;
    found.wrong += part.wrong;
  }
  return found;
}

}  // namespace

Point measure_call_differences(const Options& o, std::uint64_t size, const std::vector<Link>&,
                               double, double budget_ns, const Watcher& watcher) {
  Point point{o.bytes_of(size), o.send_partitions(), o.send_partitions(), 0, {}};
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const Calls bare = calls_of_library();
  std::vector<std::unique_ptr<Channel>> channels;
  for (const std::string& way : o.ways) {
    const bool has_one = is_partitioned(way) && missing(way).empty();
    channels.push_back(has_one ? std::make_unique<Channel>(o, point.bytes) : nullptr);
  }
  std::optional<Channel> beside;  // exists while calls of messages are timed
  if (o.is_live) beside.emplace(o, point.bytes);
  std::uint64_t round = 0;
  take_turns(
      o, budget_ns, &point,
      [&](std::size_t w, Series& series) {
        if (rank == 0) watcher.before_round(series.way);
        if (channels[w]) channels[w]->guard(&series);
      },
      [&](std::size_t w, Series& series, std::uint32_t, bool counts) {
        if (rank == 0) watcher.before_round(series.way);
        const OfRound found = sum_of_both(
            channels[w] ? of_channel(o.ways[w], *channels[w])
                        : of_messages(bare, o.ways[w] == "waitall", rank == 0, ++round));
        series.wrong += found.wrong > 0;
        if (counts) series.samples["difference_ns"].push_back(found.value);
      },
      [&](double share) {
        if (rank == 0) watcher.progress(share);
      });
  return point;
}

}  // namespace larklane::bench
