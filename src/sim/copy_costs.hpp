#pragma once
// Measured costs of moving bytes between two processes of a host by their own threads, and the file
// that holds them. Thread safety: immutable.

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace larklane::sim {

/// The side that copies at the same time.
enum class Beside : std::uint8_t { nobody, sender, receiver };

/// One call that copies. Where the copier runs decides on the way that lines go: `far` from the
/// receiver's core or `near`, on it.
struct CallCost {
  struct Pair {
    std::uint64_t far_ps = 0, near_ps = 0;
  };
  std::uint64_t message_bytes = 0;  ///< the buffers', which decides on caches
  std::uint64_t bytes = 0;          ///< that the call moves
  Pair by_beside[3];
};

struct CopyCosts {
  /// Ascending by message, then bytes. @pre one at least
  std::vector<CallCost> calls;
  std::uint64_t pready_ps = 0;
  std::uint64_t move_ps = 0;  ///< added by Pready to a call that copies
  /// Added to a thread's first Pready if the thread has computed for kPausePs; in proportion, if it
  /// has computed less.
  std::uint64_t first_ps = 0;
  static constexpr std::uint64_t kPausePs = 1'000'000'000;
  std::uint64_t line_ps = 0;  ///< a line comes from another core
  /// A waiting call's: poll, let the MPI progress, yield. An event is seen half of it later.
  std::uint64_t turn_ps = 0;
  /// From when a thread leaves its core until one that yields has it.
  std::uint64_t switch_ps = 0;
  std::uint64_t piece_bytes = 32 << 10;  ///< option shm_piece_bytes
  std::uint32_t cores = 2;  ///< the sender's threads have one each, the receiver the last one

  /// A call of `bytes` in buffers of `message_bytes`: of the entries of the nearest message, the
  /// line through the two nearest calls.
  std::uint64_t call_ps(std::uint64_t message_bytes, std::uint64_t bytes, Beside beside,
                        bool is_near) const;
};

/// docs/design/simulation.md has the format.
/// @param problem  empty, or the line and its problem
CopyCosts read_copy_costs(std::istream& text, std::string* problem);

}  // namespace larklane::sim
