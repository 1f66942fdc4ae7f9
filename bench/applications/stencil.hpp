#pragma once
// A 2D 5-point stencil (Zambre et al., ICS'20, 6.1): a block of the mesh for each process, and of
// that one for each thread. Edges between threads are read where they lie, those between processes
// are sent, all four at a time.

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

/// Whole numbers modulo 2^64, so that every order of additions has the same sum. The mesh is
/// surrounded by zeros.
/// Thread safety: single-owner, but that work() is called by all threads.
class Stencil {
 public:
  static constexpr std::array kParts{"exchange_ns"};
  static constexpr const char* kWhole = "step_ns";
  static constexpr double kSteps = 32;

  /// @param bytes  of an edge of a thread's block, which is a square
  Stencil(const Options& options, std::uint64_t bytes, const Crew& crew);

  static std::span<std::byte> open() noexcept { return {}; }
  std::span<std::byte> local() const noexcept { return memory_.span(); }
  std::uint32_t streams() const noexcept { return streams_; }

  void begin_round(std::uint64_t round);

  template <class Port>
  void work(Port& port, std::uint32_t thread, std::array<Part, kParts.size()>& parts) {
    for (int step = 0; step < static_cast<int>(kSteps); ++step) {
      meeting_.arrive_and_wait();  // all have computed the last step, which they read of each other
      if (!edges_[thread].empty()) parts[0].time([&] { exchange(port, thread, step); });
      compute(thread, step);
    }
  }

  /// Cells.
  std::uint64_t wrong() const;

 private:
  using Cell = std::uint64_t;
  /// Cells of an edge, from the first on.
  struct Run {
    std::int64_t first, stride;
  };
  /// Between a thread's block and that of another process's.
  struct Edge {
    Stream out, in;
    Run inner, halo;
    Cell *packed_out, *packed_in;  ///< null: it lies in one piece
  };

  template <class Port>
  void exchange(Port& port, std::uint32_t thread, int step) {
    Cell* const cells = mesh(step);
    for (const Edge& edge : edges_[thread])
      port.receive(edge.in, edge.packed_in ? edge.packed_in : cells + edge.halo.first, bytes_);
    for (const Edge& edge : edges_[thread]) {
      pack(edge, cells);
      port.send(edge.out, edge.packed_out ? edge.packed_out : cells + edge.inner.first, bytes_);
    }
    port.wait();
    for (const Edge& edge : edges_[thread]) unpack(edge, cells);
  }

  Cell* mesh(int step) const noexcept;
  /// In mesh(); -1: of the halo.
  std::int64_t at(std::int64_t row, std::int64_t column) const noexcept {
    return (row + 1) * pitch_ + column + 1;
  }
  Sides begin_of_rank() const noexcept;                        ///< in the mesh of all
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
  const std::int64_t rows_, columns_;  ///< of this rank's block
  const std::int64_t pitch_;           ///< of a row with its halo
  const std::uint32_t streams_;
  Buffer memory_;  ///< the mesh twice, then what is packed
  std::vector<std::vector<Edge>> edges_;
  std::vector<Cell> expected_;  ///< of a round whose scale is 1
  Cell scale_ = 1;              ///< a round's cells are all multiples of it
  std::barrier<> meeting_;
};

}  // namespace larklane::bench
