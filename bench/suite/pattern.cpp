#include "pattern.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>

#include "measure/random.hpp"
#include "payload.hpp"
#include "wait.hpp"

namespace larklane::bench {
namespace {

template <std::size_t N>
void reduce(std::array<double, N>& values, MPI_Op op) {
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(N), MPI_DOUBLE, op, MPI_COMM_WORLD,
                 &request);
  wait_for(&request);
}

/// By route: the offset in bytes of each received face. The faces are in order, each from the
/// beginning of a page; the last entry is the end.
std::vector<std::uint64_t> places_of(const std::vector<Route>& routes, std::uint64_t bytes) {
  std::vector<std::uint64_t> places{0};
  for (const Route& route : routes)
    places.push_back(places.back() + (route.from == MPI_PROC_NULL ? 0 : Buffer::whole(bytes)));
  return places;
}

/// Exchanges the places of these faces at their receivers. Collective.
std::vector<std::uint64_t> tell_places(const std::vector<Route>& routes,
                                       const std::vector<std::uint64_t>& places) {
  constexpr int kTag = 11;
  std::vector<std::uint64_t> there(routes.size());
  for (std::size_t r = 0; r < routes.size(); ++r)
    MPI_Sendrecv(&places[r], 1, MPI_UINT64_T, routes[r].from, kTag, &there[r], 1, MPI_UINT64_T,
                 routes[r].to, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return there;
}

}  // namespace

void Exchange::start(std::size_t first, std::size_t end) {
  for (const auto* faces : {&received, &sent})
    for (std::size_t r = first; r < end; ++r) (*faces)[r]->start();
}

void Exchange::finish(std::size_t first, std::size_t end) {
  for (const auto* faces : {&received, &sent})
    for (std::size_t r = first; r < end; ++r) (*faces)[r]->finish();
}

Pattern::Pattern(const Options& options, std::uint64_t size, std::vector<Route> routes,
                 double timer_ns, const Watcher& watcher)
    : o_(options),
      routes_(std::move(routes)),
      team_(options.threads),
      bytes_(options.bytes_of(size)),
      part_bytes_(bytes_ / options.send_partitions()),
      timer_ns_(timer_ns),
      watcher_(watcher),
      scratch_(options.threads, scratch_memory()),
      places_(places_of(routes_, bytes_)),
      places_there_(tell_places(routes_, places_)),
      in_(places_.back()) {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  std::string error;  // checked with the options
  const std::uint64_t seed = Random(o_.seed, static_cast<std::uint64_t>(rank_), 0).bits();
  noise_ = Noise::parse(o_.noise, o_.noise_percent, seed, &error);
  std::array<double, 1> sent{};
  for (const Route& route : routes_) {
    out_.emplace_back(route.to == MPI_PROC_NULL ? 0 : bytes_);
    sent[0] += static_cast<double>(out_.back().span().size());
  }
  reduce(sent, MPI_SUM);
  bytes_of_all_ = sent[0];
  for (const std::string& way : o_.ways) exchanges_.push_back(open(way));
}

Exchange Pattern::open(const std::string& way) {
  if (rank_ == 0) watcher_.before_round(way);
  Exchange exchange{make_face_way(way, o_, in_.span()), {}, {}};
  if (!exchange.way) return exchange;
  const auto face = [&](std::size_t route, std::byte* data, int peer, bool is_sent,
                        std::uint64_t place) {
    return exchange.way->face({data, bytes_, peer, static_cast<int>(route), is_sent, o_.threads,
                               o_.send_partitions(), place});
  };
  for (std::size_t r = 0; r < routes_.size(); ++r) {
    exchange.received.push_back(face(r, in(r).data(), routes_[r].from, false, places_[r]));
    exchange.sent.push_back(face(r, out_[r].data(), routes_[r].to, true, places_there_[r]));
  }
  return exchange;
}

Point Pattern::run(double budget_ns) {
  Point point{bytes_, o_.send_partitions(), o_.send_partitions(), 0, {}};
  take_turns(
      o_, budget_ns, &point, [&](std::size_t w, Series& series) { guard(exchanges_[w], series); },
      [&](std::size_t w, Series& series, std::uint32_t iteration, bool counts) {
        one_round(exchanges_[w], series, iteration, counts);
      },
      [&](double share) {
        if (rank_ == 0) watcher_.progress(share);
      });
  return point;
}

void Pattern::one_round(Exchange& exchange, Series& series, std::uint32_t iteration, bool counts) {
  ++round_;
  if (rank_ == 0) watcher_.before_round(series.way);
  fill_all();
  if (o_.cold) {
    for (const Buffer& buffer : out_) flush(buffer.span());
    flush(in_.span());
  }
  yielding_barrier();
  const double began = now_ns();
  step(exchange, iteration);
  std::array<double, 2> worst{now_ns() - began - timer_ns_, 0};
  worst[1] = static_cast<double>(wrong_words_of_all());
  reduce(worst, MPI_MAX);
  series.wrong += worst[1] != 0;
  if (!counts) return;
  series.samples["step_ns"].push_back(worst[0]);
  series.samples["throughput_bps"].push_back(bytes_of_all_ / worst[0] * 1e9);
}

/// Holds back the last partition of every face, not even filled. Before its Pready no side may
/// claim that it has arrived or is complete. Claimed partitions are verified at once, so no common
/// clock is needed.
void Pattern::guard(Exchange& exchange, Series& series) {
  ++round_;
  if (rank_ == 0) watcher_.before_round(series.way);
  const std::uint32_t held = o_.send_partitions() - 1;
  fill_all();
  for (std::size_t r = 0; r < routes_.size(); ++r) fill_part(r, held, round_ - 1);
  exchange.start();
  yielding_barrier();
  give_all_but(held, exchange);
  Seen seen(routes_.size());
  for (std::size_t r = 0; r < routes_.size(); ++r)
    if (routes_[r].from != MPI_PROC_NULL) seen[r].resize(held + 1);
  std::uint64_t wrong = 0;
  bool claims = false;
  while_held([&] {
    wrong += look(exchange, seen);
    for (auto& face : exchange.sent) claims |= face->claims_completion();
  });
  const auto count = [&](char value) {
    std::ptrdiff_t sum = 0;
    for (const auto& parts : seen) sum += std::ranges::count(parts, value);
    return sum;
  };
  const bool is_early = count(true) > 0;
  yielding_barrier();  // no rank marks a partition while another still checks for early arrivals
  for (std::size_t r = 0; r < routes_.size(); ++r) {
    fill_part(r, held, round_);
    exchange.sent[r]->ready(held, o_.threads - 1, true);
    exchange.sent[r]->joined();
  }
  wait_until([&] {
    wrong += look(exchange, seen);
    return count(false) == 0;
  });
  exchange.finish();
  wrong += wrong_words_of_all();
  std::array<double, 3> worst{double(claims), double(wrong), double(is_early)};
  reduce(worst, MPI_MAX);
  if (worst[0] != 0)
    series.refused = "a face claims to have been sent while a partition of it is held back";
  else if (worst[1] != 0)
    series.refused = "what has arrived, it says, is not in the buffer";
  series.is_early |= worst[2] != 0;
}

void Pattern::give_all_but(std::uint32_t held, Exchange& exchange) {
  team_.run([&](std::uint32_t thread) {
    const std::uint32_t end = (thread + 1) * o_.partitions_per_thread;
    for (std::uint32_t p = end - o_.partitions_per_thread; p < std::min(end, held); ++p)
      for (auto& face : exchange.sent) face->ready(p, thread, p + 1 == end);
  });
}

/// Verifies partitions that have arrived since the last call.
/// @return wrong words in them
std::uint64_t Pattern::look(Exchange& exchange, Seen& seen) const {
  std::uint64_t wrong = 0;
  for (std::size_t r = 0; r < seen.size(); ++r) {
    Face& face = *exchange.received[r];
    face.claims_completion();  // if it does, every partition has arrived
    for (std::uint32_t p = 0; p < seen[r].size(); ++p) {
      if (seen[r][p] || !face.arrived(p, p / o_.partitions_per_thread)) continue;
      seen[r][p] = true;
      wrong += wrong_words_of(r, p * part_bytes_, part_bytes_);
    }
  }
  return wrong;
}

/// Empty if no face is received.
std::span<std::byte> Pattern::in(std::size_t route) const {
  return in_.span().subspan(places_[route], routes_[route].from == MPI_PROC_NULL ? 0 : bytes_);
}

void Pattern::fill_all() {
  for (std::size_t r = 0; r < out_.size(); ++r) fill(out_[r].span(), 0, key_of(rank_, r, round_));
}

void Pattern::fill_part(std::size_t route, std::uint32_t partition, std::uint64_t round) {
  if (routes_[route].to == MPI_PROC_NULL) return;
  const std::uint64_t offset = partition * part_bytes_;
  fill(out_[route].span().subspan(offset, part_bytes_), offset, key_of(rank_, route, round));
}

std::uint64_t Pattern::wrong_words_of(std::size_t route, std::uint64_t offset,
                                      std::uint64_t bytes) const {
  if (routes_[route].from == MPI_PROC_NULL) return 0;
  return wrong_words(in(route).subspan(offset, bytes), offset,
                     key_of(routes_[route].from, route, round_));
}

std::uint64_t Pattern::wrong_words_of_all() const {
  std::uint64_t wrong = 0;
  for (std::size_t r = 0; r < routes_.size(); ++r) wrong += wrong_words_of(r, 0, bytes_);
  return wrong;
}

/// Unique for every face of every round.
std::uint64_t Pattern::key_of(int rank, std::size_t route, std::uint64_t round) const {
  return (round * static_cast<std::uint64_t>(ranks_) + static_cast<std::uint64_t>(rank)) *
             routes_.size() +
         route;
}

}  // namespace larklane::bench
