#pragma once
// A channel's control block: the memory that both sides of one channel map. The sender owns it (its
// segment, its pool). Wire layout: docs/design/protocols/shared_memory.md, which changes in the
// same commit.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "part/protocol/layout.hpp"

namespace larklane::part {

/// How bytes travel.
enum class Mode : std::uint32_t {
  slots = 1,   ///< Pready copies into library memory, a reader copies out
  direct = 2,  ///< the thread that completes a group copies it from buffer to buffer
};

inline constexpr std::size_t kLineBytes = 64;

/// Atomics of the real machine. The simulation has its own.
struct RealPlatform {
  template <class T>
  using Atomic = std::atomic<T>;
};

/// State of a group word: unit bits, two flags, the round's low bits.
namespace word_state {
inline constexpr std::uint64_t kOpen = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kExpired = std::uint64_t{1} << 33;
inline constexpr int kTagShift = 34, kTagBits = 64 - kTagShift;

constexpr std::uint64_t fresh(std::uint64_t round) noexcept { return round << kTagShift; }
constexpr bool of_round(std::uint64_t state, std::uint64_t round) noexcept {
  return (state >> kTagShift) == (fresh(round) >> kTagShift);
}
constexpr std::uint32_t units(std::uint64_t state) noexcept {
  return static_cast<std::uint32_t>(state);
}
}  // namespace word_state

/// A number or the bits of 32 partitions, and the low half of a round: readers' claims, and hints.
namespace stamped {
constexpr std::uint64_t make(std::uint64_t round, std::uint32_t bits) noexcept {
  return (round << 32) | bits;
}
constexpr bool of_round(std::uint64_t value, std::uint64_t round) noexcept {
  return (value >> 32) == (make(round, 0) >> 32);
}
constexpr std::uint32_t bits(std::uint64_t value) noexcept {
  return static_cast<std::uint32_t>(value);
}
}  // namespace stamped

/// The mark of one partition in one byte, ready in its slot or arrived: neither needs a
/// read-modify-write. Every partition is marked once in each round before the next one begins, or
/// at least in each round that is_marked_always(). So marks are never cleared, and an older mark
/// never equals this round's.
constexpr std::uint8_t mark_of(std::uint64_t round) noexcept {
  return static_cast<std::uint8_t>(round);
}
constexpr bool is_marked_always(std::uint64_t round) noexcept { return round % 128 == 0; }
/// The ready mark of a partition that was pushed past its slot. A round's lowest bit is its parity,
/// so no round of that parity has this value as its own mark.
constexpr std::uint8_t pushed_mark_of(std::uint64_t round) noexcept { return mark_of(round ^ 1); }
/// The mark before the first use: only rounds long after it have this value.
inline constexpr std::uint8_t kNeverMarked = 128;

/// A group word on its own cache line.
template <class P>
struct alignas(kLineBytes) WordLine {
  typename P::template Atomic<std::uint64_t> state;
  // For words with deadlines (part/policy/deadline.hpp).
  typename P::template Atomic<std::uint64_t> first_mark{0};  ///< its time; 0: not yet in this round
  typename P::template Atomic<std::uint64_t> counts{0};      ///< late << 32 | partitions marked
};

inline constexpr std::uint32_t kJobs = 4;  ///< shared copies of one channel at a time

/// A large run, cut into pieces that waiting threads of both sides copy.
template <class P>
struct alignas(kLineBytes) Job {
  template <class T>
  using Atomic = typename P::template Atomic<T>;

  Atomic<std::uint32_t> taken{0};  ///< 0: free, 1: taken by a mover
  Atomic<std::uint32_t> pieces{0};
  Atomic<std::uint64_t> next{0};             ///< generation << 32 | next piece
  Atomic<std::uint32_t> first{0}, count{0};  ///< the run
  Atomic<std::uint32_t> done{0};
  Atomic<std::uint64_t> piece_bytes{0};
};

/// The shared copies of one channel: part/protocol/shared_copy.hpp.
template <class P>
struct alignas(kLineBytes) JobBoard {
  typename P::template Atomic<std::uint32_t> open_jobs{0};
  Job<P> jobs[kJobs];
};

/// The receiver's answer to the sender. The receiver stores it before it opens its first word, and
/// the opening read-modify-write publishes it.
struct Accepted {
  std::uint64_t address;  ///< receive buffer in the receiver's process
  std::uint32_t strided;  ///< the receiver's typemap comes by record; until then the receiver's
                          ///< helper moves the runs
};

template <class P>
struct BlockHeader {
  std::uint64_t generation;
  /// Direct mode: time from a word's first mark in a round to its expiry, ns. 0: words have no
  /// deadline.
  std::uint64_t deadline_ns;
  /// Direct mode: 1: Parrived expires the words of a ready partition that waits for its group.
  std::uint64_t on_demand;
  alignas(kLineBytes) Accepted accepted;
  /// Slots: the last round that the receiver started.
  typename P::template Atomic<std::uint64_t> opened_round;
  /// Slots: partitions that the sender copied straight into the receiver's buffer, never reset.
  alignas(kLineBytes) typename P::template Atomic<std::uint64_t> pushed_count;
  /// Send partitions moved since the channel was made, never reset: round r is complete at r * S.
  /// Direct mode: the mover's last touch. Slots: the receiver's completion stores it.
  alignas(kLineBytes) typename P::template Atomic<std::uint64_t> moved_count;
  JobBoard<P> shared_copies;
};

/// Direct mode: the groups of one round. Plain memory: the sender's Start of the round before
/// writes it, and the receiver's Start reads it. Model: tests/protocol/plans.pml.
struct PlanHead {
  std::uint64_t number;  ///< the plan's, from 1 on
  std::uint32_t group_count;
};

/// The inputs of a block's offsets. INIT carries them, and the receiver checks them.
struct BlockShape {
  Mode mode;
  std::uint32_t partitions;
  std::uint32_t groups_max;  ///< groups of any round; words_max and roots_max are of any round, too
  std::uint32_t words_max;
  std::uint32_t roots_max;
  std::uint32_t type_words;  ///< direct mode: length of the sender's typemap; 0 if contiguous
  std::uint64_t partition_bytes;
  friend constexpr bool operator==(const BlockShape&, const BlockShape&) = default;

  /// Offset of slots that share one cache line with their marks; 0 if they do not fit.
  constexpr std::uint64_t slots_behind_marks() const noexcept {
    const std::uint64_t marks = (std::uint64_t{partitions} + 7) / 8 * 8;
    return marks <= kLineBytes && partition_bytes <= (kLineBytes - marks) / partitions ? marks : 0;
  }
};

/// Offsets in bytes from the start of the block.
struct BlockOffsets {
  std::uint64_t words[2];  ///< by round parity
  std::uint64_t roots[2];
  std::uint64_t arrived;
  std::uint64_t plans[2];  ///< direct mode, by round parity: head, boundaries
  std::uint64_t type_words;
  std::uint64_t marks[2];  ///< slot mode, by round parity, as the slots
  std::uint64_t slots[2];
  std::uint64_t end;

  static constexpr BlockOffsets of(const BlockShape& shape) noexcept {
    constexpr auto round_up = [](std::uint64_t n) {
      return (n + kLineBytes - 1) / kLineBytes * kLineBytes;
    };
    BlockOffsets at{};
    std::uint64_t next = round_up(sizeof(BlockHeader<RealPlatform>));
    auto take = [&](std::uint64_t length) {
      const std::uint64_t start = next;
      next = round_up(next + length);
      return start;
    };
    for (auto& offset : at.words) offset = take(shape.words_max * kLineBytes);
    for (auto& offset : at.roots) offset = take(shape.roots_max * kLineBytes);
    at.arrived = take(shape.partitions);
    if (shape.mode == Mode::direct)
      for (auto& offset : at.plans)
        offset = take(sizeof(PlanHead) + shape.groups_max * sizeof(std::uint32_t));
    at.type_words = take(shape.type_words * sizeof(std::uint64_t));
    if (shape.mode == Mode::slots) {
      const std::uint64_t behind = shape.slots_behind_marks();
      for (int parity = 0; parity < 2; ++parity) {
        at.marks[parity] = take(behind != 0 ? kLineBytes : shape.partitions);
        at.slots[parity] = behind != 0 ? at.marks[parity] + behind
                                       : take(shape.partitions * shape.partition_bytes);
      }
    }
    at.end = next;
    return at;
  }
};

/// Typed access to a block. Thread safety: immutable; the fields follow the rules of the classes
/// that use them.
template <class P>
class BlockView {
 public:
  using Line = WordLine<P>;
  using Atomic8 = typename P::template Atomic<std::uint8_t>;

  BlockView() = default;
  BlockView(std::byte* base, const BlockShape& shape) noexcept
      : base_(base), offsets_(BlockOffsets::of(shape)) {}

  BlockHeader<P>& header() const noexcept { return *reinterpret_cast<BlockHeader<P>*>(base_); }
  Line& word(std::uint64_t round, std::uint32_t index) const noexcept {
    return reinterpret_cast<Line*>(base_ + offsets_.words[round & 1])[index];
  }
  Line& root(std::uint64_t round, std::uint32_t index) const noexcept {
    return reinterpret_cast<Line*>(base_ + offsets_.roots[round & 1])[index];
  }
  /// Arrival marks of the send partitions.
  Atomic8* arrived() const noexcept { return reinterpret_cast<Atomic8*>(base_ + offsets_.arrived); }
  PlanHead& plan(std::uint64_t round) const noexcept {
    return *reinterpret_cast<PlanHead*>(base_ + offsets_.plans[round & 1]);
  }
  /// First partition of each group.
  std::uint32_t* boundaries(std::uint64_t round) const noexcept {
    return reinterpret_cast<std::uint32_t*>(base_ + offsets_.plans[round & 1] + sizeof(PlanHead));
  }
  /// The sender's typemap.
  std::uint64_t* type_words() const noexcept {
    return reinterpret_cast<std::uint64_t*>(base_ + offsets_.type_words);
  }

  /// Ready marks of the slots.
  Atomic8* marks(std::uint64_t round) const noexcept {
    return reinterpret_cast<Atomic8*>(base_ + offsets_.marks[round & 1]);
  }
  /// Place of the packed bytes from `offset` on, between Pready and the reader.
  std::byte* slot(std::uint64_t round, std::uint64_t offset) const noexcept {
    return base_ + offsets_.slots[round & 1] + offset;
  }

  /// Makes every atomic in fresh (zeroed or reused) memory. Words carry rounds 1 and 2, marks
  /// neither round, plans no number.
  void construct(const BlockShape& shape, std::uint64_t generation) const {
    auto* head = ::new (base_) BlockHeader<P>{};
    head->generation = generation;
    for (std::uint64_t round : {std::uint64_t{1}, std::uint64_t{2}}) {
      if (shape.mode == Mode::direct) plan(round) = {};
      for (std::uint32_t w = 0; w < shape.words_max; ++w)
        (::new (&word(round, w)) Line{})
            ->state.store(word_state::fresh(round), std::memory_order_relaxed);
      for (std::uint32_t r = 0; r < shape.roots_max; ++r)
        (::new (&root(round, r)) Line{})
            ->state.store(word_state::fresh(round), std::memory_order_relaxed);
      if (shape.mode == Mode::slots)
        for (std::uint32_t p = 0; p < shape.partitions; ++p)
          ::new (marks(round) + p) Atomic8{kNeverMarked};
    }
    for (std::uint32_t p = 0; p < shape.partitions; ++p) ::new (arrived() + p) Atomic8{0};
  }

 private:
  std::byte* base_ = nullptr;
  BlockOffsets offsets_{};
};

}  // namespace larklane::part
