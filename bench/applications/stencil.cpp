#include "stencil.hpp"

#include <algorithm>
#include <cmath>

namespace larklane::bench {
namespace {

/// As square as possible, with no more columns than rows.
Sides nearly_square(std::int64_t count) {
  auto columns = static_cast<std::int64_t>(std::sqrt(static_cast<double>(count)));
  while (count % columns != 0) --columns;
  return {count / columns, columns};
}

/// Threads have rows and columns exchanged, so that the grid of all threads is nearly square, too.
Sides of_threads(std::uint32_t threads) {
  const Sides sides = nearly_square(threads);
  return {sides.columns, sides.rows};
}

/// Each neighbour has its own factor, so that swapped neighbours give a wrong sum.
std::uint64_t next_of(const std::uint64_t* cell, std::int64_t pitch) {
  return *cell + 3 * cell[-pitch] + 5 * cell[pitch] + 7 * cell[-1] + 11 * cell[1];
}

}  // namespace

Stencil::Stencil(const Options& options, std::uint64_t bytes, const Crew& crew)
    : bytes_(bytes),
      side_(static_cast<std::int64_t>(bytes / sizeof(Cell))),
      crew_(crew),
      ranks_(nearly_square(crew.ranks)),
      threads_(of_threads(crew.threads)),
      rows_(side_ * threads_.rows),
      columns_(side_ * threads_.columns),
      pitch_(columns_ + 2),
      streams_(4 * static_cast<std::uint32_t>(std::max(threads_.rows, threads_.columns))),
      memory_(2 * sizeof(Cell) * static_cast<std::uint64_t>((rows_ + 2) * pitch_) +
              4 * bytes * crew.threads),
      edges_(crew.threads),
      is_funneled_(options.is_funneled()),
      meeting_(crew.threads) {
  for (std::uint32_t thread = 0; thread < crew.threads; ++thread) {
    add_edges(thread);
    all_edges_.insert(all_edges_.end(), edges_[thread].begin(), edges_[thread].end());
  }
  compute_serially();
}

Stencil::Cell Stencil::initial(std::int64_t row, std::int64_t column) noexcept {
  return (static_cast<Cell>(row) * 0x9e3779b97f4a7c15u ^
          static_cast<Cell>(column) * 0xd1342543de82ef95u) +
         1;
}

Stencil::Cell* Stencil::mesh(int step) const noexcept {
  return reinterpret_cast<Cell*>(memory_.data()) + step % 2 * (rows_ + 2) * pitch_;
}

Sides Stencil::begin_of_rank() const noexcept {
  return {crew_.rank / ranks_.columns * rows_, crew_.rank % ranks_.columns * columns_};
}

Sides Stencil::begin_of_thread(std::uint32_t thread) const noexcept {
  return {thread / threads_.columns * side_, thread % threads_.columns * side_};
}

/// Two neighbouring ranks have one communicator for each place along their edge. Pairs in line
/// alternate between two sets of communicators, so no two threads of a process share one.
void Stencil::add_edges(std::uint32_t thread) {
  const std::int64_t rank_row = crew_.rank / ranks_.columns,
                     rank_column = crew_.rank % ranks_.columns;
  const std::int64_t row = thread / threads_.columns, column = thread % threads_.columns;
  const auto [top, left] = begin_of_thread(thread);
  const std::int64_t bottom = top + side_ - 1, right = left + side_ - 1;
  auto* packed = mesh(0) + 2 * (rows_ + 2) * pitch_ + 4 * side_ * thread;
  const auto add = [&](std::uint32_t axis, bool is_before, std::int64_t place, Run inner,
                       Run halo) {
    const std::int64_t line = axis == 0 ? rank_row : rank_column;
    const std::int64_t step = axis == 0 ? ranks_.columns : 1;
    const int peer = static_cast<int>(crew_.rank + (is_before ? -step : step));
    const std::uint32_t places = streams_ / 4, at = static_cast<std::uint32_t>(place);
    const auto parity = static_cast<std::uint32_t>((line + !is_before) % 2);
    const std::uint32_t stream = (2 * axis + parity) * places + at;
    const auto tag = [&](bool is_back) { return (2 * axis + is_back) * places + at; };
    Edge edge{{peer, tag(is_before), stream}, {peer, tag(!is_before), stream}, inner, halo, {}, {}};
    if (inner.stride != 1) {
      edge.packed_out = packed;
      edge.packed_in = packed + side_;
      packed += 2 * side_;
    }
    edges_[thread].push_back(edge);
  };
  if (row == 0 && rank_row > 0) add(0, true, column, {at(top, left), 1}, {at(-1, left), 1});
  if (row == threads_.rows - 1 && rank_row < ranks_.rows - 1)
    add(0, false, column, {at(bottom, left), 1}, {at(rows_, left), 1});
  if (column == 0 && rank_column > 0)
    add(1, true, row, {at(top, left), pitch_}, {at(top, -1), pitch_});
  if (column == threads_.columns - 1 && rank_column < ranks_.columns - 1)
    add(1, false, row, {at(top, right), pitch_}, {at(top, columns_), pitch_});
}

void Stencil::pack(const Edge& edge, const Cell* cells) const {
  if (edge.packed_out == nullptr) return;
  for (std::int64_t i = 0; i < side_; ++i)
    edge.packed_out[i] = cells[edge.inner.first + i * edge.inner.stride];
}

void Stencil::unpack(const Edge& edge, Cell* cells) const {
  if (edge.packed_in == nullptr) return;
  for (std::int64_t i = 0; i < side_; ++i)
    cells[edge.halo.first + i * edge.halo.stride] = edge.packed_in[i];
}

void Stencil::compute(std::uint32_t thread, int step) const {
  const auto [top, left] = begin_of_thread(thread);
  const Cell* const now = mesh(step);
  Cell* const next = mesh(step + 1);
  for (std::int64_t row = top; row < top + side_; ++row)
    for (std::int64_t cell = at(row, left); cell < at(row, left + side_); ++cell)
      next[cell] = next_of(now + cell, pitch_);
}

/// Computes this rank's final block serially, from all cells at most kSteps away.
void Stencil::compute_serially() {
  constexpr auto kAround = static_cast<std::int64_t>(kSteps);
  const Sides begin = begin_of_rank();
  const std::int64_t top = begin.rows, left = begin.columns;
  const std::int64_t rows = rows_ + 2 * kAround, columns = columns_ + 2 * kAround;
  const auto is_inside = [&](std::int64_t row, std::int64_t column) {
    row += top - kAround;
    column += left - kAround;
    return row >= 0 && row < rows_ * ranks_.rows && column >= 0 &&
           column < columns_ * ranks_.columns;
  };
  std::vector<Cell> now(static_cast<std::size_t>(rows * columns)), next(now.size());
  const auto for_each = [&](std::int64_t margin, auto&& each) {
    for (std::int64_t row = margin; row < rows - margin; ++row)
      for (std::int64_t column = margin; column < columns - margin; ++column)
        if (is_inside(row, column))
          each(row, column, static_cast<std::size_t>(row * columns + column));
  };
  for_each(0, [&](std::int64_t row, std::int64_t column, std::size_t cell) {
    now[cell] = initial(row + top - kAround, column + left - kAround);
  });
  for (std::int64_t step = 1; step <= kAround; ++step) {
    for_each(step, [&](std::int64_t, std::int64_t, std::size_t cell) {
      next[cell] = next_of(&now[cell], columns);
    });
    now.swap(next);
  }
  for_each(kAround,
           [&](std::int64_t, std::int64_t, std::size_t cell) { expected_.push_back(now[cell]); });
}

void Stencil::begin_round(std::uint64_t round) {
  scale_ = 2 * round + 1;  // odd: no two rounds have the same cells
  const auto [top, left] = begin_of_rank();
  for (std::int64_t row = 0; row < rows_; ++row)
    for (std::int64_t column = 0; column < columns_; ++column)
      mesh(0)[at(row, column)] = scale_ * initial(top + row, left + column);
}

std::uint64_t Stencil::wrong() const {
  const Cell* const cells = mesh(static_cast<int>(kSteps));
  std::uint64_t wrong = 0;
  for (std::int64_t row = 0; row < rows_; ++row)
    for (std::int64_t column = 0; column < columns_; ++column)
      wrong += cells[at(row, column)] !=
               scale_ * expected_[static_cast<std::size_t>(row * columns_ + column)];
  return wrong;
}

}  // namespace larklane::bench
