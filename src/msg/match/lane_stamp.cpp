#include "msg/match/lane_stamp.hpp"

#include <sys/prctl.h>

#include <cstdio>
#include <cstring>

namespace larklane::msg {
namespace {

/// The kernel has found the counters of all processors to be in step.
bool is_clock_source() noexcept {
  std::FILE* const file =
      std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
  if (file == nullptr) return false;
  char name[16] = {};
  const bool is_read = std::fgets(name, sizeof name, file) != nullptr;
  std::fclose(file);
  return is_read && std::strcmp(name, "tsc\n") == 0;
}

bool look_slow() noexcept {
#ifdef __x86_64__
  int mode = 0;
  if (::prctl(PR_GET_TSC, &mode, 0, 0, 0) != 0 || mode != PR_TSC_ENABLE || !is_clock_source())
    return false;
  // A value that stays for long would be the stamp of a later message, too.
  constexpr std::uint64_t kTicksMost = 20;  // 10 ns of 2 GHz
  std::uint64_t least = UINT64_MAX;
  for (int reads = 0; reads < 64; ++reads) {
    const std::uint64_t before = __rdtsc();
    for (std::uint64_t after = before; after == before;)
      if ((after = __rdtsc()) != before) least = after - before < least ? after - before : least;
  }
  // Two reads in a row take as long as that, at most 100 ticks, where each tick counts.
  return least <= kTicksMost + 100;
#else
  return false;
#endif
}

}  // namespace

bool ProcessorClock::is_usable() noexcept {
  static const bool is_usable = look_slow();
  return is_usable;
}

}  // namespace larklane::msg
