#pragma once
// Stamps of ordinary messages that a pair spreads over lanes by tag.
// (docs/design/protocols/ordinary_messages.md, rule 2)

#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#ifdef __x86_64__
#include <x86intrin.h>
#endif

namespace larklane::msg {

/// The processor's counter, read after all earlier loads of the caller. Only where the kernel's
/// clock source is `tsc` and PR_GET_TSC allows it: the caller of LaneStamps decides.
struct ProcessorClock {
  static constexpr bool kIsCoarse = false;
  /// Are its values one clock of all processors, and allowed?
  static bool is_usable() noexcept;
  static std::uint64_t now() noexcept {
#ifdef __x86_64__
    unsigned processor;
    return __rdtscp(&processor);
#else
    return now_ns();
#endif
  }
};

/// Stamps of the messages to one peer. They extend happens-before: if a call of next() returned
/// before another one began, by the program's order or its synchronisation, its stamp is less.
///
/// One thread counts. A second thread sets `is_shared_` before its first stamp; from then on stamps
/// come from the clock, or from one counter for all threads.
/// Thread safety: thread-safe.
// Invariants:
// 1. Only `first_` uses `count_`, and only until it sees `is_shared_`.
// 2. Counts have kCounted set: they lie above the receiver's places of delivered messages. Stamps
//    of the clock, and of the shared counter, have kShared set: they lie above all counts. A
//    message of the first thread that happened after one of another thread has seen `is_shared_`.
template <class Clock = ProcessorClock>
class LaneStamps {
 public:
  static constexpr std::uint64_t kCounted = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kShared = std::uint64_t{1} << 63;

  explicit LaneStamps(bool has_clock) noexcept : has_clock_(has_clock) {}

  /// The caller pushes its message afterwards, in the same call.
  std::uint64_t next() noexcept {
    // acquire: pairs with next_slow()'s compare-and-swap, and with its store of is_shared_.
    if (first_.load(std::memory_order_acquire) == token() &&
        !is_shared_.load(std::memory_order_acquire)) [[likely]]
      return ++count_;
    return next_slow();
  }

 private:
  static const void* token() noexcept {
    static thread_local const char here = 0;
    return &here;
  }
  [[gnu::noinline]] std::uint64_t next_slow() noexcept {
    const void* none = nullptr;
    // acq_rel: pairs with next()'s loads.
    if (!is_shared_.load(std::memory_order_acquire) &&
        first_.compare_exchange_strong(none, token(), std::memory_order_acq_rel))
      return ++count_;
    // seq_cst: before this thread's first push; pairs with next()'s acquire.
    if (!is_shared_.load(std::memory_order_relaxed))
      is_shared_.store(true, std::memory_order_seq_cst);
    // acq_rel: the order of the exchanges is an order of the calls.
    if (!has_clock_) return kShared | shared_count_.fetch_add(1, std::memory_order_acq_rel);
    const std::uint64_t stamp = Clock::now();
    // A coarse clock may give an equal stamp later. So the message waits until the clock is past.
    if constexpr (Clock::kIsCoarse)
      while (Clock::now() <= stamp) {
      }
    return kShared | stamp;
  }

  std::atomic<const void*> first_{nullptr};
  std::atomic<bool> is_shared_{false};
  const bool has_clock_;
  std::uint64_t count_ = kCounted;
  alignas(64) std::atomic<std::uint64_t> shared_count_{0};
};

}  // namespace larklane::msg
