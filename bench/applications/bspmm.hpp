#pragma once
// C += A B, on matrices of dense or zero tiles that are spread over all ranks, as in NWChem's
// tensor contractions (Zambre et al., ICS'20, 6.3). Workers take units of work from one shared
// counter, get two tiles and multiply them. A worker accumulates when its next unit belongs to
// another tile of C.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "application.hpp"
#include "suite/buffer.hpp"

namespace larklane::bench {

/// Thread safety: single-owner, but all threads call work().
class Bspmm {
 public:
  static constexpr std::array kParts{"counter_ns",          "get_ns",
                                     "get_flush_ns",        "accumulate_ns",
                                     "accumulate_flush_ns", "multiply_ns"};
  static constexpr const char* kWhole = "time_ns";
  static constexpr double kSteps = 1;

  /// @param bytes  size of a tile: 8 N N
  Bspmm(const Options& options, std::uint64_t bytes, const Crew& crew);

  std::span<std::byte> open() const noexcept { return open_->span(); }
  std::span<std::byte> local() const noexcept { return local_->span(); }
  static std::uint32_t streams() noexcept { return 0; }

  void begin_round(std::uint64_t round);

  template <class Port>
  void work(Port& port, std::uint32_t thread, std::array<Part, kParts.size()>& parts) {
    const Local mine = local_of(thread);
    const Unit* last = nullptr;
    const auto update = [&] {
      if (last == nullptr) return;
      const Place to = place(last->c);
      parts[kAccumulate].time([&] { port.accumulate(to.rank, to.offset, mine.c, side_ * side_); });
      parts[kAccumulateFlush].time([&] { port.wait(); });
    };
    for (;;) {
      const std::uint64_t number = parts[kCounter].time([&] { return port.count_up(0, 0); });
      if (number >= units_.size()) break;
      const Unit& unit = units_[number];
      if (last == nullptr || unit.c != last->c) {
        update();
        clear(mine);
      }
      last = &unit;
      parts[kGet].time([&] {
        port.get(place(unit.a).rank, place(unit.a).offset, mine.a, bytes_);
        port.get(place(unit.b).rank, place(unit.b).offset, mine.b, bytes_);
      });
      parts[kGetFlush].time([&] { port.wait(); });
      parts[kMultiply].time([&] { multiply(mine); });
    }
    update();
  }

  /// Elements of C that differ from a serial product, and units that no thread or several threads
  /// took.
  std::uint64_t wrong() const;

 private:
  enum { kCounter, kGet, kGetFlush, kAccumulate, kAccumulateFlush, kMultiply };
  static constexpr std::uint64_t kCounterBytes = 64;  ///< on rank 0, before its tiles

  /// A dense tile.
  struct Tile {
    enum Matrix { a, b, c } matrix;
    std::uint32_t row, column;
  };
  /// One product of two tiles, by numbers that count the tiles of all matrices.
  struct Unit {
    std::size_t a, b, c;
  };
  struct Place {
    int rank;
    std::uint64_t offset;
  };
  /// A thread's memory: two fetched tiles, and the sum that it has not accumulated yet.
  struct Local {
    double *a, *b, *c;
  };
  using Elements = std::vector<std::int32_t>;

  void plan(std::uint32_t tiles);
  Place place(std::size_t tile) const noexcept;
  double* here(std::size_t tile) const noexcept;
  std::uint64_t& counter() const noexcept;
  Local local_of(std::uint32_t thread) const noexcept;
  void clear(const Local& local) const;
  void multiply(const Local& local) const;
  Elements elements(std::size_t tile) const;
  Elements product(std::size_t tile) const;
  template <class Each>
  void for_each_here(Each&& each) const;

  const std::uint64_t bytes_;
  const std::uint32_t side_;  ///< elements
  const Crew crew_;
  std::vector<Tile> all_;  ///< tiles of A, B and C, dealt to the ranks in turn
  std::vector<Unit> units_;
  std::optional<Buffer> open_, local_;
  std::vector<Elements> products_;  ///< of this rank's tiles of C, in the first round
  std::int32_t scale_a_ = 1,
               scale_b_ = 1;  ///< of this round: makes its tiles differ from those of other rounds
};

}  // namespace larklane::bench
