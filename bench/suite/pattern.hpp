#pragma once
// The common part of sweep3d and halo3d: faces between neighbours, filled, guarded and verified;
// steps of each way in turns.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "buffer.hpp"
#include "clock.hpp"
#include "face.hpp"
#include "measure/noise.hpp"
#include "measure/options.hpp"
#include "measure/series.hpp"
#include "team.hpp"
#include "turns.hpp"
#include "work.hpp"

namespace larklane::bench {

/// The receiver of one face of each step, and the sender of the same face to this rank: ranks, or
/// MPI_PROC_NULL.
struct Route {
  int to, from;
};

/// The faces of one way, by route; none if this MPI can't.
struct Exchange {
  std::unique_ptr<FaceWay> way;  // first: outlives its faces
  std::vector<std::unique_ptr<Face>> sent, received;

  /// Routes [first, end): receives before sends.
  void start(std::size_t first, std::size_t end);
  void finish(std::size_t first, std::size_t end);
  void start() { start(0, sent.size()); }
  void finish() { finish(0, sent.size()); }
};

/// Thread safety: single-owner.
class Pattern {
 public:
  virtual ~Pattern() = default;
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  /// Collective over all ranks, as the constructor is.
  Point run(double budget_ns);

 protected:
  /// @param routes  the same number on all ranks
  Pattern(const Options& options, std::uint64_t size, std::vector<Route> routes, double timer_ns,
          const Watcher& watcher);

  /// One step of the pattern's program: every face once.
  virtual void step(Exchange& exchange, std::uint32_t iteration) = 0;

  /// Run by each thread: computes its partitions one after the other, in the order of the options.
  /// The noise's time for `stage` is divided evenly among them; each rank begins a recorded noise
  /// at its own row.
  /// @param before  (partition)
  /// @param after   (partition, is it the thread's last one?)
  template <class Before, class After>
  void compute(std::uint32_t thread, std::uint64_t stage, Before&& before, After&& after) {
    const std::vector<std::uint32_t> order = order_of(o_, thread, stage);
    const double each_ns =
        noise_.compute_ns(o_.compute_ns, stage + static_cast<std::uint64_t>(rank_), thread,
                          o_.threads) /
        static_cast<double>(order.size());
    for (const std::uint32_t partition : order) {
      before(partition);
      compute_until(now_ns() + each_ns, scratch_[thread]);
      after(partition, partition == order.back());
    }
  }

  const Options& o_;
  const std::vector<Route> routes_;
  Team team_;

 private:
  /// Partitions that the guard has seen, by route; empty for a route without a received face.
  using Seen = std::vector<std::vector<char>>;

  Exchange open(const std::string& way);
  void one_round(Exchange& exchange, Series& series, std::uint32_t iteration, bool counts);
  void guard(Exchange& exchange, Series& series);
  void give_all_but(std::uint32_t held, Exchange& exchange);
  std::uint64_t look(Exchange& exchange, Seen& seen) const;
  std::span<std::byte> in(std::size_t route) const;
  void fill_all();
  void fill_part(std::size_t route, std::uint32_t partition, std::uint64_t round);
  std::uint64_t wrong_words_of(std::size_t route, std::uint64_t offset, std::uint64_t bytes) const;
  std::uint64_t wrong_words_of_all() const;
  std::uint64_t key_of(int rank, std::size_t route, std::uint64_t round) const;

  const std::uint64_t bytes_, part_bytes_;
  const double timer_ns_;
  const Watcher& watcher_;
  int rank_ = 0, ranks_ = 0;
  Noise noise_;
  std::vector<std::vector<double>> scratch_;  ///< by thread
  /// By route, in bytes: the offset of a received face in in_, followed by the end of the last one;
  /// and the offset of a sent face in its receiver's in_.
  const std::vector<std::uint64_t> places_, places_there_;
  std::deque<Buffer> out_;           ///< by route; all ways use it, and in_, in turns
  const Buffer in_;                  ///< contiguous: one window covers it
  std::vector<Exchange> exchanges_;  ///< by way; below the buffers, which they use
  double bytes_of_all_ = 0;          ///< bytes that all ranks send in a step
  std::uint64_t round_ = 0;
};

}  // namespace larklane::bench
