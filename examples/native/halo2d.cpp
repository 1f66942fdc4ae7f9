/* halo2d: diffusion on a periodic rectangle, cut in blocks, one per process. In every step each
 * block needs the edges of its four neighbours.
 *
 * Shows receives and sends that a process posts together and waits for together: four receives
 * signal one synchronizer, four sends another. The side is the tag: with two processes in a row the
 * left neighbour is the right one, too.
 *
 * Checks itself: each step shrinks a wave by a known factor. Exit status 1 if a cell has a wrong
 * value.
 *
 *     larklane launch -n 4 ./halo2d --cells 64 --steps 100
 */
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "native.hpp"

namespace {

using larklane::PostOptions;
using larklane::Synchronizer;

enum Side { kLeft, kRight, kDown, kUp, kSides };
constexpr Side kOpposite[] = {kRight, kLeft, kUp, kDown};

/// Processes in a grid that is as square as it can be.
struct Grid {
  Grid(int rank, int size) {
    for (int divisor = 1; divisor * divisor <= size; ++divisor)
      if (size % divisor == 0) rows = divisor;
    columns = size / rows;
    row = rank / columns;
    column = rank % columns;
  }
  int neighbour(Side side) const {
    const int x = column + (side == kRight) - (side == kLeft);
    const int y = row + (side == kUp) - (side == kDown);
    return (y + rows) % rows * columns + (x + columns) % columns;
  }
  int rows = 1, columns = 1, row = 0, column = 0;
};

class Block {
 public:
  Block(larklane::Context& context, long cells)
      : vci_(native::must(context.create_vci(), "create_vci")),
        received_(native::must(Synchronizer::create(context.completions(), kSides), "create")),
        sent_(native::must(Synchronizer::create(context.completions(), kSides), "create")),
        grid_(context.rank(), context.size()),
        cells_(static_cast<std::size_t>(cells)),
        now_((cells_ + 2) * (cells_ + 2)),
        then_(now_.size()) {
    for (std::size_t side = 0; side < kSides; ++side) in_[side] = out_[side] = edge_type(cells_);
    for_each([&](std::size_t x, std::size_t y) { at(x, y) = wave(x, y); });
  }

  void step() {
    exchange();
    for_each([&](std::size_t x, std::size_t y) {
      then_[place(x, y)] = (at(x - 1, y) + at(x + 1, y) + at(x, y - 1) + at(x, y + 1)) / 4;
    });
    std::swap(now_, then_);
  }
  /// The largest difference from the exact value.
  double error(long steps) {
    const double shrink = (std::cos(turn(grid_.columns)) + std::cos(turn(grid_.rows))) / 2;
    const double factor = std::pow(shrink, static_cast<double>(steps));
    double worst = 0;
    for_each([&](std::size_t x, std::size_t y) {
      worst = std::max(worst, std::abs(at(x, y) - factor * wave(x, y)));
    });
    return worst;
  }

 private:
  using edge_type = std::vector<double>;

  std::size_t place(std::size_t x, std::size_t y) const { return y * (cells_ + 2) + x; }
  double& at(std::size_t x, std::size_t y) { return now_[place(x, y)]; }
  template <class Call>
  void for_each(Call&& call) {
    for (std::size_t y = 1; y <= cells_; ++y)
      for (std::size_t x = 1; x <= cells_; ++x) call(x, y);
  }
  /// From one cell to the next.
  double turn(int blocks) const {
    return 2 * std::numbers::pi / (static_cast<double>(cells_) * blocks);
  }
  double wave(std::size_t x, std::size_t y) const {
    const auto of = [&](int block, std::size_t cell, int blocks) {
      return std::sin(turn(blocks) * (block * static_cast<double>(cells_) + double(cell)));
    };
    return of(grid_.column, x, grid_.columns) * of(grid_.row, y, grid_.rows);
  }
  /// Cell `i` of the edge on `side`; of the neighbour's edge, where it lies beside ours.
  double& own_edge(int side, std::size_t i) {
    if (side <= kRight) return at(side == kLeft ? 1 : cells_, i + 1);
    return at(i + 1, side == kDown ? 1 : cells_);
  }
  double& halo(int side, std::size_t i) {
    if (side <= kRight) return at(side == kLeft ? 0 : cells_ + 1, i + 1);
    return at(i + 1, side == kDown ? 0 : cells_ + 1);
  }

  void exchange() {
    PostOptions receive, send;
    receive.completion = &received_;
    send.completion = &sent_;
    receive.signals_always = send.signals_always = true;
    const std::size_t bytes = cells_ * sizeof(double);
    for (int side = 0; side < kSides; ++side)
      native::until_posted(vci_, [&] {
        return post_recv(vci_, grid_.neighbour(Side(side)), std::uint32_t(side), in_[side].data(),
                         bytes, receive);
      });
    for (int side = 0; side < kSides; ++side) {
      for (std::size_t i = 0; i < cells_; ++i) out_[side][i] = own_edge(side, i);
      native::until_posted(vci_, [&] {
        return post_send(vci_, grid_.neighbour(Side(side)), std::uint32_t(kOpposite[side]),
                         out_[side].data(), bytes, send);
      });
    }
    native::progress_until(vci_, [&] { return received_.test() && sent_.test(); });
    for (Synchronizer* all : {&received_, &sent_}) {
      for (const larklane::Completion& one : all->completions()) native::must(one.status, "halo");
      native::must(all->reset(), "reset");
    }
    for (int side = 0; side < kSides; ++side)
      for (std::size_t i = 0; i < cells_; ++i) halo(side, i) = in_[side][i];
  }

  larklane::Vci vci_;
  Synchronizer received_, sent_;
  const Grid grid_;
  const std::size_t cells_;
  std::vector<double> now_, then_;
  std::array<edge_type, kSides> in_, out_;
};

}  // namespace

int main(int argc, char** argv) {
  long cells = 64, steps = 100;
  native::read_options(argc, argv, "halo2d: diffusion on a rectangle, one block a process",
                       {{"--cells", &cells, 1, 10'000, "length and width of a block"},
                        {"--steps", &steps, 1, 1'000'000, "steps"}});
  const auto context = native::join_job();
  Block block(*context, cells);
  for (long step = 0; step < steps; ++step) block.step();
  const double error = block.error(steps);
  native::meet(*context);
  if (context->rank() == 0)
    std::printf("halo2d: %d blocks of %ld x %ld, %ld steps, largest error here %.1e\n",
                context->size(), cells, cells, steps, error);
  return error < 1e-12 ? 0 : 1;
}
