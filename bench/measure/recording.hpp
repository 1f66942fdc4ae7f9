#pragma once
// Recorded noise, read from files. Thread safety: immutable.

#include <string>
#include <vector>

namespace larklane::bench {

/// An interval in which a program that only computes did not have its core.
struct Detour {
  double begin_ns, length_ns;
};

/// Greatest share of a core's time that detours may take, so that a program advances.
inline constexpr double kDetoursShareMax = 0.99;

/// Detours of several cores of one machine, recorded at the same time for span_ns. The recording
/// repeats: before its begin lies its end.
struct Detours {
  double span_ns = 0;
  std::vector<std::vector<Detour>> cores;  ///< each sorted, without overlap, within the span

  /// Time that `compute_ns` of work takes on a core from begin_ns on; begin_ns is below span_ns.
  double disturbed_ns(double compute_ns, std::size_t core, double begin_ns) const;
};

/// One of the two is set.
struct Recording {
  std::vector<std::vector<double>> delays;  ///< [rounds][threads], nanoseconds
  Detours detours;
};

/// @param text  {"delays_ns": [[thread 0, thread 1, ...], ...]}, one row a round, as `larklane
///     report --delays` writes it from profiles; or {"span_ns": number, "detours_ns": [[[begin,
///     length], ...], ...]}, one row a core, as `larklane noise` writes it
/// @param name  for *error
/// @return *error says why the recording is unusable; empty if it is usable
Recording parse_recording(const std::string& text, const std::string& name, std::string* error);
Recording read_recording(const std::string& path, std::string* error);

}  // namespace larklane::bench
