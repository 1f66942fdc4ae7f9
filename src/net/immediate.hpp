#pragma once
// The 32 bits that travel with a write: which channel, and which run of its partitions has arrived.
// Pure functions; thread safety: immutable.
//
// Two encodings:
// * `paper`: 16 bits first partition, 16 bits count, on queue pairs that belong to one channel
//   (Temucin et al., CLUSTER'23, section IV.A).
// * ours: 16 bits channel slot, 16 bits token. A channel's partitions fall into at most 256 cells,
//   and a token names a run of cells, or gives notice that one is ready and waits to be fetched.

#include <algorithm>
#include <cstdint>
#include <optional>

namespace larklane::net {

/// `count` neighbours from `first` on: partitions or cells.
struct Run {
  std::uint32_t first;
  std::uint32_t count;
  friend constexpr bool operator==(const Run&, const Run&) noexcept = default;
};

namespace paper {

inline constexpr std::uint32_t kPartitionsMax = 65535;

/// @param run  1 <= count, first + count <= kPartitionsMax
constexpr std::uint32_t encode(Run run) noexcept { return run.first << 16 | run.count; }
/// Nothing: no run. Whether the channel has that many partitions is the caller's to check.
constexpr std::optional<Run> decode(std::uint32_t immediate) noexcept {
  const Run run{immediate >> 16, immediate & 0xffff};
  if (run.count == 0 || run.first + run.count > kPartitionsMax) return std::nullopt;
  return run;
}

}  // namespace paper

inline constexpr std::uint32_t kCellsMax = 256;
inline constexpr std::uint32_t kRunTokens = kCellsMax * (kCellsMax + 1) / 2;  ///< runs of cells
inline constexpr std::uint32_t kNoticeTokens =
    0xff00;  ///< + cell: a run that begins there is ready

/// What a token says. `is_notice`: run.first is the cell, run.count 0.
struct Token {
  Run run;
  bool is_notice;
  friend constexpr bool operator==(const Token&, const Token&) noexcept = default;
};

// The runs that begin at cell f are 256 - f many; those of f and of 255 - f are 257 together, for
// every f. So the triangle folds into 128 rows of 257 tokens: no table, one division by a constant.
inline constexpr std::uint32_t kTokenRow = kCellsMax + 1;

/// @param cells  1 <= count, first + count <= kCellsMax
constexpr std::uint16_t run_token(Run cells) noexcept {
  const std::uint32_t mirrored = kCellsMax - 1 - cells.first;
  const bool is_low = cells.first < kCellsMax / 2;
  const std::uint32_t row = is_low ? cells.first : mirrored;
  const std::uint32_t column = cells.count - 1 + (is_low ? 0 : kCellsMax - row);
  return static_cast<std::uint16_t>(row * kTokenRow + column);
}

/// @param cell  < kCellsMax
constexpr std::uint16_t notice_token(std::uint32_t cell) noexcept {
  return static_cast<std::uint16_t>(kNoticeTokens + cell);
}

/// Nothing: no token of ours. Whether the channel has those cells is the caller's to check.
constexpr std::optional<Token> decode_token(std::uint16_t token) noexcept {
  if (token >= kNoticeTokens) return Token{{token - kNoticeTokens, 0}, true};
  if (token >= kRunTokens) return std::nullopt;
  const std::uint32_t row = token / kTokenRow;
  const std::uint32_t column = token % kTokenRow;
  const std::uint32_t low_runs = kCellsMax - row;
  if (column < low_runs) return Token{{row, column + 1}, false};
  return Token{{kCellsMax - 1 - row, column - low_runs + 1}, false};
}

constexpr std::uint32_t make_immediate(std::uint16_t channel_slot, std::uint16_t token) noexcept {
  return std::uint32_t{channel_slot} << 16 | token;
}
constexpr std::uint16_t channel_slot_of(std::uint32_t immediate) noexcept {
  return static_cast<std::uint16_t>(immediate >> 16);
}
constexpr std::uint16_t token_of(std::uint32_t immediate) noexcept {
  return static_cast<std::uint16_t>(immediate);
}

/// How many partitions fall into how few cells: balanced within one, in order.
class Cells {
 public:
  explicit constexpr Cells(std::uint32_t partition_count) noexcept
      : partitions_(partition_count), cells_(std::min(partition_count, kCellsMax)) {}

  constexpr std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(cells_); }
  /// First partition of `cell`; of count(): one behind the last partition.
  constexpr std::uint32_t begin(std::uint32_t cell) const noexcept {
    if (partitions_ == cells_) return cell;  // no division
    return static_cast<std::uint32_t>(cell * partitions_ / cells_);
  }
  /// @param cells  1 <= count, first + count <= count()
  constexpr Run partitions(Run cells) const noexcept {
    const std::uint32_t first = begin(cells.first);
    return {first, begin(cells.first + cells.count) - first};
  }
  /// @param partition  < the number of partitions
  constexpr std::uint32_t cell_of(std::uint32_t partition) const noexcept {
    if (partitions_ == cells_) return partition;
    return static_cast<std::uint32_t>(((partition + std::uint64_t{1}) * cells_ - 1) / partitions_);
  }

 private:
  std::uint64_t partitions_;
  std::uint64_t cells_;
};

}  // namespace larklane::net
