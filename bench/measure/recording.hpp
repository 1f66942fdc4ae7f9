#pragma once
// What was recorded elsewhere, as files. Thread safety: immutable.

#include <string>
#include <vector>

namespace larklane::bench {

/// A core was taken from a program that does nothing but compute.
struct Detour {
  double begin_ns, length_ns;
};

/// Of a core's time: a program gets somewhere.
inline constexpr double kDetoursShareMax = 0.99;

/// Detours of some cores of one machine, recorded at the same time for span_ns: what is before the
/// begin is as what is before the end.
struct Detours {
  double span_ns = 0;
  std::vector<std::vector<Detour>> cores;  ///< each in order, without overlap, within the span

  /// Time that `compute_ns` of work takes on a core from begin_ns on, which is below span_ns.
  double disturbed_ns(double compute_ns, std::size_t core, double begin_ns) const;
};

/// One of the two.
struct Recording {
  std::vector<std::vector<double>> delays;  ///< [rounds][threads], nanoseconds
  Detours detours;
};

/// @param text  {"delays_ns": [[thread 0, thread 1, ...], ...]}, one row a round, as `larklane
/// report
///              --delays` writes it from profiles; or {"span_ns": number, "detours_ns":
///              [[[begin, length], ...], ...]}, one row a core, as `larklane noise` writes it
/// @param name  for *error
/// @return *error says why it can't be used; empty if it can
Recording parse_recording(const std::string& text, const std::string& name, std::string* error);
Recording read_recording(const std::string& path, std::string* error);

}  // namespace larklane::bench
