#pragma once
// Switches for each mechanism that keeps the threads of different lanes apart, for programs that
// measure its worth. The library has all of them on, as constants: a switch costs nothing there.
// (Zambre et al., ICS'20, section 4; LARKLANE_LANE_SWITCHES, LARKLANE_LANES_PACKED:
// bench/CMakeLists.txt.)

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace larklane::vci {

struct Switches {
  enum class Progress : std::uint8_t {
    hybrid,     ///< of one's own lane, and now and then of all (its figure 9)
    own_lane,   ///< an operation on a lane that no thread serves waits for ever
    all_lanes,  ///< in each turn
  };
  Progress progress = Progress::hybrid;
  bool has_own_locks = true;     ///< false: each user of a lane first takes a lock of the process
  bool has_own_requests = true;  ///< false: operations of all lanes come from one pool
};

#ifdef LARKLANE_LANE_SWITCHES
/// Changed while no lane is in use.
inline constinit Switches switches;
#else
inline constexpr Switches switches;
#endif

/// Alignment of data that threads of different lanes, or a lane's posters and its holder, write.
#ifdef LARKLANE_LANES_PACKED
inline constexpr std::size_t kOwnLineBytes = alignof(std::max_align_t);
#else
inline constexpr std::size_t kOwnLineBytes = 64;
#endif

/// Around each use of a lane: nothing, unless lanes have no locks of their own. Thread safety:
/// single-owner.
class ProcessSection {
 public:
  ProcessSection() noexcept {
    if (!switches.has_own_locks) lock().lock();
  }
  ~ProcessSection() {
    if (!switches.has_own_locks) lock().unlock();
  }
  ProcessSection(const ProcessSection&) = delete;
  ProcessSection& operator=(const ProcessSection&) = delete;

 private:
  static std::recursive_mutex& lock() noexcept {
    static std::recursive_mutex mutex;
    return mutex;
  }
};

}  // namespace larklane::vci
