#pragma once
// A 2D 5-point stencil (Zambre et al., ICS'20, 6.1): each process has a block of the mesh, each of
// its threads a block of that. Threads read each other's edges in place. Processes send their
// edges, all four at the same time.

#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "application.hpp"
#include "suite/buffer.hpp"

namespace larklane::bench {

/// Rows by columns.
struct Sides {
  std::int64_t rows, columns;
};

/// Integers modulo 2^64, so that every order of additions has the same sum. Zeros surround the
/// mesh. Thread safety: single-owner, but all threads call work().
class Stencil {
 public:
  static constexpr std::array kParts{"exchange_ns"};
  static constexpr const char* kWhole = "step_ns";
  static constexpr double kSteps = 32;

  /// @param bytes  size of an edge of a thread's square block
  Stencil(const Options& options, std::uint64_t bytes, const Crew& crew);

  static std::span<std::byte> open() noexcept { return {}; }
  std::span<std::byte> local() const noexcept { return memory_.span(); }
  std::uint32_t streams() const noexcept { return streams_; }

  void begin_round(std::uint64_t round);

  template <class Port>
  void work(Port& port, std::uint32_t thread, std::array<Part, kParts.size()>& parts) {
    for (int step = 0; step < static_cast<int>(kSteps); ++step) {
      meeting_.arrive_and_wait();  // step reads the neighbours' last results
      const std::vector<Edge>& edges = is_funneled_ ? all_edges_ : edges_[thread];
      const bool exchanges = !edges.empty() && (!is_funneled_ || thread == 0);
      if (exchanges) parts[0].time([&] { exchange(port, edges, step); });
      if (is_funneled_) meeting_.arrive_and_wait();
      compute(thread, step);
    }
  }

  /// Wrong cells.
  std::uint64_t wrong() const;

 private:
  using Cell = std::uint64_t;
  /// The cells of an edge, from `first` on.
  struct Run {
    std::int64_t first, stride;
  };
  /// Between a thread's block and one of another process.
  struct Edge {
    Stream out, in;
    Run inner, halo;
    Cell *packed_out, *packed_in;  ///< null: the edge is contiguous
  };

  template <class Port>
  void exchange(Port& port, const std::vector<Edge>& edges, int step) {
    Cell* const cells = mesh(step);
    for (const Edge& edge : edges)
      port.receive(edge.in, edge.packed_in ? edge.packed_in : cells + edge.halo.first, bytes_);
    for (const Edge& edge : edges) {
      pack(edge, cells);
      port.send(edge.out, edge.packed_out ? edge.packed_out : cells + edge.inner.first, bytes_);
    }
    port.wait();
    for (const Edge& edge : edges) unpack(edge, cells);
  }

  Cell* mesh(int step) const noexcept;
  /// Index in mesh(); -1 is the halo.
  std::int64_t at(std::int64_t row, std::int64_t column) const noexcept {
    return (row + 1) * pitch_ + column + 1;
  }
  Sides begin_of_rank() const noexcept;                        ///< in the mesh of all ranks
  Sides begin_of_thread(std::uint32_t thread) const noexcept;  ///< in its rank's block
  static Cell initial(std::int64_t row, std::int64_t column) noexcept;
  void add_edges(std::uint32_t thread);
  void pack(const Edge& edge, const Cell* cells) const;
  void unpack(const Edge& edge, Cell* cells) const;
  void compute(std::uint32_t thread, int step) const;
  void compute_serially();

  const std::uint64_t bytes_;
  const std::int64_t side_;  ///< cells
  const Crew crew_;
  const Sides ranks_, threads_;
  const std::int64_t rows_, columns_;  ///< size of this rank's block
  const std::int64_t pitch_;           ///< cells from one row to the next, halo included
  const std::uint32_t streams_;
  Buffer memory_;                         ///< the mesh twice, then the packed edges
  std::vector<std::vector<Edge>> edges_;  ///< by thread
  const bool is_funneled_;                ///< thread 0 exchanges the edges of all
  std::vector<Edge> all_edges_;
  std::vector<Cell> expected_;  ///< cells of a round whose scale is 1
  Cell scale_ = 1;              ///< every cell of a round is a multiple of it
  std::barrier<> meeting_;
};

}  // namespace larklane::bench
