#pragma once
// Wide stores of arrival marks: eight partitions at once.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/sanitized.hpp"

namespace larklane::part {

/// May eight marks be one store? A thread that loads one of the marks must acquire the writes
/// before the store. x86 keeps all stores in order, and in Arm's model a load reads each byte from
/// the store that wrote it. The thread sanitizer expects a store to that very address.
#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(LARKLANE_TSAN)
inline constexpr bool kAreMarksStoredWide = true;
#else
inline constexpr bool kAreMarksStoredWide = false;
#endif

/// Stores `value` into the marks from `mark` to `end`. release: a thread that acquires one of these
/// marks sees all earlier writes of this thread. Thread safety: thread-safe for disjoint marks.
template <class Atomic8>
[[gnu::always_inline]] inline void mark_run(Atomic8* mark, Atomic8* const end,
                                            std::uint8_t value) noexcept {
  const auto one = [&] { mark++->store(value, std::memory_order_release); };
  if constexpr (kAreMarksStoredWide && std::is_same_v<Atomic8, std::atomic<std::uint8_t>>) {
    using Eight [[gnu::may_alias]] = std::uint64_t;
    static_assert(sizeof(Atomic8) == 1);
    constexpr std::ptrdiff_t kEight = sizeof(Eight);
    while (mark != end && reinterpret_cast<std::uintptr_t>(mark) % sizeof(Eight) != 0) one();
    const Eight values = value * 0x0101'0101'0101'0101u;
    const auto eight = [&](std::ptrdiff_t at) {
      __atomic_store_n(reinterpret_cast<Eight*>(mark + at), values, __ATOMIC_RELEASE);
    };
    for (; end - mark >= 4 * kEight; mark += 4 * kEight) {
      eight(0);
      eight(kEight);
      eight(2 * kEight);
      eight(3 * kEight);
    }
    for (; end - mark >= kEight; mark += kEight) eight(0);
  }
  while (mark != end) one();
}

}  // namespace larklane::part
