#pragma once
// Statistics of a process and of its channels.

#include <atomic>
#include <cstdint>

#include "part/protocol/layout.hpp"

namespace larklane::part {

/// The thread that moved a run.
enum class MovedBy : std::uint8_t { sender, receiver, helper };

/// See runs_moved_by_this_thread().
inline thread_local std::uint64_t runs_moved = 0;
/// Statistics of the process, except for those that follow from the channels' rounds. Every atomic
/// is relaxed: no decision depends on them. Thread safety: thread-safe.
struct Counters {
  std::atomic<std::uint64_t> sends{0}, receives{0};
  std::atomic<std::uint64_t> early_bytes{0};
  std::atomic<std::uint64_t> bytes_moved{0};  ///< between buffers
  std::atomic<std::uint64_t> moved[3]{};      ///< send partitions between buffers

  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
    counter.fetch_add(n, std::memory_order_relaxed);  // relaxed: statistics
  }
  void add_moved(MovedBy by, Run run, std::uint64_t bytes, bool is_early) noexcept {
    ++runs_moved;
    add(moved[static_cast<int>(by)], run.count);
    add(bytes_moved, bytes);
    if (is_early) add(early_bytes, bytes);
  }
};

/// Statistics that follow from the number of rounds of a channel. Thread safety: single-owner.
struct RoundTotals {
  std::uint64_t rounds = 0, bytes = 0;
  std::uint64_t slots_emptied = 0, slot_bytes = 0;  ///< by a receiver
  void add(const RoundTotals& more) noexcept {
    rounds += more.rounds;
    bytes += more.bytes;
    slots_emptied += more.slots_emptied;
    slot_bytes += more.slot_bytes;
  }
};

}  // namespace larklane::part
