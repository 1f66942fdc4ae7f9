#pragma once
// Counts of ordinary messages, for `larklane run --summary`: one of each thread, so that a message
// changes no line that threads share.

#include <atomic>
#include <cstdint>

namespace larklane::mpi::p2p {

/// Thread safety: its thread writes, any thread reads. relaxed: statistics.
struct Tally {
  std::atomic<std::uint64_t> sent{0}, sent_bytes{0}, received{0}, received_bytes{0};

  void note_sent(std::uint64_t bytes) noexcept {
    if (!is_counted_) [[unlikely]]
      begin_slow();
    note(sent, sent_bytes, bytes);
  }
  void note_received(std::uint64_t bytes) noexcept {
    if (!is_counted_) [[unlikely]]
      begin_slow();
    note(received, received_bytes, bytes);
  }

 private:
  /// From now on it counts in tally_total(), also after its thread's end.
  void begin_slow() noexcept;
  static void note(std::atomic<std::uint64_t>& messages, std::atomic<std::uint64_t>& all_bytes,
                   std::uint64_t bytes) noexcept {
    messages.store(messages.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    all_bytes.store(all_bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }

  bool is_counted_ = false;  // the thread's own
};
inline thread_local constinit Tally tally;

/// Of all threads. Thread safety: immutable.
struct TallyTotal {
  std::uint64_t sent = 0, sent_bytes = 0, received = 0, received_bytes = 0;
};
TallyTotal tally_total() noexcept;

}  // namespace larklane::mpi::p2p
