#include "bspmm.hpp"

#include <algorithm>
#include <cmath>

namespace larklane::bench {
namespace {

/// Half of all tiles are dense, the others zero.
bool is_dense(std::uint32_t row, std::uint32_t column) { return (row + 3 * column) % 4 < 2; }

/// Small integers: every sum of products is exact.
std::int32_t element(std::uint64_t tile, std::uint64_t index) {
  const std::uint64_t word = (tile + 1) * 0x9e3779b97f4a7c15u + (index + 1) * 0xd1342543de82ef95u;
  return static_cast<std::int32_t>(word >> 60) - 8;
}

}  // namespace

Bspmm::Bspmm(const Options& options, std::uint64_t bytes, const Crew& crew)
    : bytes_(bytes),
      side_(static_cast<std::uint32_t>(std::sqrt(static_cast<double>(bytes / sizeof(double))))),
      crew_(crew) {
  plan(options.blocks);
  const std::uint64_t most = all_.size() / static_cast<std::uint32_t>(crew.ranks) + 1;
  open_.emplace(kCounterBytes + most * bytes);
  local_.emplace(3 * bytes * crew.threads);
  for_each_here([&](std::size_t tile) {
    if (all_[tile].matrix == Tile::c) products_.push_back(product(tile));
  });
}

void Bspmm::plan(std::uint32_t tiles) {
  constexpr std::size_t kNone = ~std::size_t{0};
  const auto at = [tiles](std::uint32_t row, std::uint32_t column) {
    return std::size_t{row} * tiles + column;
  };
  std::vector<std::size_t> dense(std::size_t{tiles} * tiles,
                                 kNone);  // number among A's
  for (const auto matrix : {Tile::a, Tile::b})
    for (std::uint32_t row = 0; row < tiles; ++row)
      for (std::uint32_t column = 0; column < tiles; ++column) {
        if (!is_dense(row, column)) continue;
        if (matrix == Tile::a) dense[at(row, column)] = all_.size();
        all_.push_back({matrix, row, column});
      }
  const std::size_t of_a = all_.size() / 2;
  for (std::uint32_t row = 0; row < tiles; ++row)
    for (std::uint32_t column = 0; column < tiles; ++column) {
      const std::size_t c = all_.size();
      for (std::uint32_t k = 0; k < tiles; ++k)
        if (is_dense(row, k) && is_dense(k, column))
          units_.push_back({dense[at(row, k)], of_a + dense[at(k, column)], c});
      if (!units_.empty() && units_.back().c == c) all_.push_back({Tile::c, row, column});
    }
}

Bspmm::Place Bspmm::place(std::size_t tile) const noexcept {
  const auto ranks = static_cast<std::size_t>(crew_.ranks);
  return {static_cast<int>(tile % ranks), kCounterBytes + tile / ranks * bytes_};
}

double* Bspmm::here(std::size_t tile) const noexcept {
  return reinterpret_cast<double*>(open_->data() + place(tile).offset);
}

std::uint64_t& Bspmm::counter() const noexcept {
  return *reinterpret_cast<std::uint64_t*>(open_->data());
}

Bspmm::Local Bspmm::local_of(std::uint32_t thread) const noexcept {
  auto* const first = reinterpret_cast<double*>(local_->data() + 3 * bytes_ * thread);
  const std::size_t count = std::size_t{side_} * side_;
  return {first, first + count, first + 2 * count};
}

void Bspmm::clear(const Local& local) const { std::fill_n(local.c, side_ * side_, 0.0); }

void Bspmm::multiply(const Local& local) const {
  for (std::size_t row = 0; row < side_; ++row)
    for (std::size_t k = 0; k < side_; ++k) {
      const double factor = local.a[row * side_ + k];
      // Few branches: a processor's branch prediction depends on the address of the code.
#pragma GCC unroll 8
      for (std::size_t column = 0; column < side_; ++column)
        local.c[row * side_ + column] += factor * local.b[k * side_ + column];
    }
}

Bspmm::Elements Bspmm::elements(std::size_t tile) const {
  Elements all(std::size_t{side_} * side_);
  for (std::size_t index = 0; index < all.size(); ++index) all[index] = element(tile, index);
  return all;
}

/// One thread computes the tile in integers from the initial values of A and B.
Bspmm::Elements Bspmm::product(std::size_t tile) const {
  Elements sum(std::size_t{side_} * side_);
  for (const Unit& unit : units_) {
    if (unit.c != tile) continue;
    const Elements a = elements(unit.a), b = elements(unit.b);
    for (std::size_t row = 0; row < side_; ++row)
      for (std::size_t k = 0; k < side_; ++k)
        for (std::size_t column = 0; column < side_; ++column)
          sum[row * side_ + column] += a[row * side_ + k] * b[k * side_ + column];
  }
  return sum;
}

template <class Each>
void Bspmm::for_each_here(Each&& each) const {
  const auto ranks = static_cast<std::size_t>(crew_.ranks);
  for (auto tile = static_cast<std::size_t>(crew_.rank); tile < all_.size(); tile += ranks)
    each(tile);
}

void Bspmm::begin_round(std::uint64_t round) {
  scale_a_ = static_cast<std::int32_t>(round % 7) + 1;
  scale_b_ = static_cast<std::int32_t>(round % 5) + 1;
  counter() = 0;
  for_each_here([&](std::size_t tile) {
    const auto matrix = all_[tile].matrix;
    const std::int32_t scale = matrix == Tile::a ? scale_a_ : matrix == Tile::b ? scale_b_ : 0;
    for (std::size_t index = 0; index < std::size_t{side_} * side_; ++index)
      here(tile)[index] = scale * element(tile, index);
  });
}

std::uint64_t Bspmm::wrong() const {
  std::uint64_t wrong = crew_.rank == 0 && counter() != units_.size() + crew_.workers();
  std::size_t next = 0;
  for_each_here([&](std::size_t tile) {
    if (all_[tile].matrix != Tile::c) return;
    const Elements& expected = products_[next++];
    for (std::size_t index = 0; index < expected.size(); ++index)
      wrong += here(tile)[index] != double(scale_a_ * scale_b_ * expected[index]);
  });
  return wrong;
}

}  // namespace larklane::bench
