#pragma once
// The 32 bits that travel with a write: which channel, and which run of its partitions has arrived.
// Pure functions; thread safety: immutable.
//
// Two encodings:
// * `paper`: 16 bits first partition, 16 bits count, on queue pairs that belong to one channel
//   (Temucin et al., CLUSTER'23, section IV.A).
// * ours: 16 bits channel slot, 16 bits token. A channel's partitions fall into at most 256 cells.
// A
//   token names a run of cells, or gives notice that one is ready and waits to be fetched.

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

// A token is the first cell and, in its low half, how many follow it. Where that goes beyond
// kCellsMax cells it names no run: some of these are the notices.

/// A token that no peer sends.
inline constexpr std::uint16_t kNoToken = 0xfefd;
/// To a sender: its receiver wants the partitions that are held back. No token of decode_token().
inline constexpr std::uint16_t kDemandToken = 0xfefe;

/// A decoded token. `is_notice`: a run that begins at run.first is ready; run.count is 0.
struct Token {
  Run run;
  bool is_notice;
  friend constexpr bool operator==(const Token&, const Token&) noexcept = default;
};

/// @param cells  1 <= count, first + count <= kCellsMax
constexpr std::uint16_t run_token(Run cells) noexcept {
  return static_cast<std::uint16_t>(cells.first * kCellsMax + cells.count - 1);
}

/// @param cell  < kCellsMax
constexpr std::uint16_t notice_token(std::uint32_t cell) noexcept {
  // 255 and `cell` more; for no more, 254 and 255 more.
  const std::uint32_t begin = (kCellsMax - 1) * kCellsMax;
  return static_cast<std::uint16_t>(cell == 0 ? begin - 1 : begin + cell);
}

/// The cells from `token`'s first to its last, if it names a run: its last one is below kCellsMax
/// then, and in a channel of fewer cells has to be below their number.
constexpr std::uint32_t first_of(std::uint16_t token) noexcept { return token / kCellsMax; }
constexpr std::uint32_t last_of(std::uint16_t token) noexcept {
  return first_of(token) + token % kCellsMax;
}

/// Nothing: no token of ours. Whether the channel has those cells is the caller's to check.
constexpr std::optional<Token> decode_token(std::uint16_t token) noexcept {
  const std::uint32_t first = first_of(token), last = last_of(token);
  if (last < kCellsMax) return Token{{first, last - first + 1}, false};
  const std::uint32_t cell = first == kCellsMax - 1 ? token % kCellsMax : 0;
  if (token == notice_token(cell)) return Token{{cell, 0}, true};
  return std::nullopt;
}

static_assert(!decode_token(kDemandToken) && !decode_token(kNoToken));

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

namespace paper {

// A record that the paper's runs do not have: its count is 0.
inline constexpr std::uint32_t kDemand = kPartitionsMax << 16;

/// @param token  of a run or a notice of these cells, or kDemandToken
constexpr std::uint32_t of_token(std::uint16_t token, const Cells& cells) noexcept {
  const auto decoded = decode_token(token);
  if (!decoded) return kDemand;
  if (decoded->is_notice) return cells.begin(decoded->run.first) << 16;
  return encode(cells.partitions(decoded->run));
}

/// @return kNoToken: no cells of the channel end where this begins or ends
constexpr std::uint16_t to_token(std::uint32_t immediate, const Cells& cells) noexcept {
  if (immediate == kDemand) return kDemandToken;
  const std::uint32_t first = immediate >> 16, partitions = cells.begin(cells.count());
  if (first >= partitions) return kNoToken;
  const std::uint32_t cell = cells.cell_of(first);
  if (cells.begin(cell) != first) return kNoToken;
  if (immediate == first << 16) return notice_token(cell);
  const auto run = decode(immediate);
  if (!run || first + run->count > partitions) return kNoToken;
  const std::uint32_t last = cells.cell_of(first + run->count - 1);
  if (cells.begin(last + 1) != first + run->count) return kNoToken;
  return run_token({cell, last - cell + 1});
}

}  // namespace paper

}  // namespace larklane::net
