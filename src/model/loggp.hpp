#pragma once
// LogGP, and how it is fitted to measured round trips. Pure functions.
//
// Alexandrov, Ionescu, Schauser, Scheiman: LogGP (1995). The measurement is the parameterised round
// trip time of Hoefler, Lichei, Rehm: Low-Overhead LogGP Parameter Assessment (2007): PRTT(n, d, s)
// is the time in which n messages of s bytes go one way, d nanoseconds of computation between two
// of them, and one comes back.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "model/line.hpp"

namespace larklane::model {

/// One protocol of one network. Nanoseconds, and nanoseconds for each byte after the first.
struct LogGP {
  double latency_ns = 0;        ///< L: on the wire, without either overhead
  double send_overhead_ns = 0;  ///< o_s
  double recv_overhead_ns = 0;  ///< o_r
  double gap_ns = 0;            ///< g: between two messages, at least
  double gap_per_byte_ns = 0;   ///< G
  /// Where a side copies (LogGOPS's O): 0 elsewhere.
  double send_overhead_per_byte_ns = 0, recv_overhead_per_byte_ns = 0;

  /// h: between the last byte of a message and the first of the next, of small ones.
  double injection_ns() const noexcept;
  /// Between the begins of two messages: h and the bytes' time on the wire, or the slower side's
  /// time if that is more.
  double period_ns(std::uint64_t bytes) const noexcept;
  /// Of all bytes but the first.
  double bytes_ns(std::uint64_t bytes) const noexcept {
    return bytes > 1 ? gap_per_byte_ns * static_cast<double>(bytes - 1) : 0;
  }
  /// One message, from the send to the end of the receive.
  double message_ns(std::uint64_t bytes) const noexcept;
  /// PRTT(messages, delay_ns, bytes).
  double round_trip_ns(int messages, double delay_ns, std::uint64_t bytes) const noexcept;
};

/// Measurements with messages of one size.
struct Trains {
  struct Train {
    int messages = 1;     ///< n
    double delay_ns = 0;  ///< d: 0, or at least the gap between two messages without it
    std::vector<double> samples_ns;
  };
  std::uint64_t bytes = 1;
  std::vector<Train> trains;       ///< one message without delay; several without; several with
  std::vector<double> receive_ns;  ///< the receive of a message that is already there
};

/// A fit to sizes of one protocol.
struct Segment {
  std::uint64_t first_bytes = 0, last_bytes = 0;
  Estimate latency_ns;
  Estimate send_overhead_ns, recv_overhead_ns;
  /// The share of each byte in an overhead: where a side copies.
  Estimate send_overhead_per_byte_ns, recv_overhead_per_byte_ns;
  Estimate gap_per_byte_ns;  ///< G: of the latency, in which no overhead is
  Estimate injection_ns;     ///< h: g if is_gap_known; else g is at most this
  Estimate injection_per_byte_ns;
  /// Messages follow each other less quickly than either side could handle them: h is the
  /// network's, and not an overhead.
  bool is_gap_known = false;

  /// Values only; none below 0: a negative one is taken from the others, so that a message's time
  /// stays the same. g is h, which makes no difference to any time.
  LogGP parameters() const noexcept;
};

inline constexpr std::size_t kSizesMin = 5;    ///< of a segment
inline constexpr std::size_t kSamplesMin = 9;  ///< of a train, and of receives

/// Segments of sizes that follow LogGP with the same parameters each, ascending. A protocol that
/// has less than kSizesMin sizes is not found: its neighbour gets them. The intervals hold if the
/// segments are right, for noise about the median; a clock that is coarser than the noise is not in
/// them.
/// @param sizes  ascending from 1 byte on; each has trains of one message without delay, of several
/// without and of several with, and receives, of kSamplesMin samples or more; at least kSizesMin
/// @errors kInvalidArgument: also for times below 0 or not finite, and delays that are too short
Result<std::vector<Segment>> fit_loggp(std::span<const Trains> sizes);

/// The gap between two messages, whichever thread injects them: h, and for each byte.
struct Gap {
  Estimate injection_ns, injection_per_byte_ns;
};
/// The same for one number of threads that inject at once. @param sizes  as fit_loggp(), of one
/// protocol, messages counted over all threads; trains with delays and receives are not needed
/// @errors kInvalidArgument
Result<Gap> fit_gap(std::span<const Trains> sizes);

/// The sample median and its standard error (McKean and Schrader, 1984). @param samples  at least 1
Measured median_of(double x, std::vector<double> samples);

}  // namespace larklane::model
