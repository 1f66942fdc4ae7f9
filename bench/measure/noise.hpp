#pragma once
// The noise models of the micro-benchmarks: how long each thread computes in each round. Thread
// safety: immutable.

#include <cstdint>
#include <string>
#include <string_view>

#include "recording.hpp"

namespace larklane::bench {

class Noise {
 public:
  enum class Kind { none, single, uniform, gaussian, exponential, delays, detours };

  /// @param text  none | single | uniform | gaussian | exponential | periodic:HZ:US | a preset's
  ///     name | trace:FILE
  /// @return *error describes the mistake in `text`; empty if there is none
  static Noise parse(std::string_view text, double percent, std::uint64_t seed, std::string* error);

  /// Computing time of thread `thread` of `threads` in `round`, in nanoseconds. c: `compute_ns`.
  /// single:      one thread, drawn for each round, computes `percent` longer
  /// uniform:     in [c, c + percent of c)                     (ICPP'22, 3.3)
  /// gaussian:    mean c, deviation percent of c; a negative time is drawn again
  /// exponential: c plus a delay of mean percent of c
  /// periodic:    as a trace of one core with these detours
  /// trace:       c plus the recorded delay; or the time that c takes on a core with the recorded
  ///              detours. It begins at a time drawn for each round, and for each further thread of
  ///              a core
  /// preset of a machine: as such a trace
  double compute_ns(double compute_ns, std::uint64_t round, std::uint32_t thread,
                    std::uint32_t threads) const;

  Kind kind() const noexcept { return kind_; }

 private:
  void replay(Recording recording);

  Kind kind_ = Kind::none;
  double share_ = 0;  ///< percent / 100
  std::uint64_t seed_ = 0;
  Recording recording_;
};

/// One line per preset, for --help.
std::string noise_presets();

}  // namespace larklane::bench
