#pragma once
// Partitioned LogGP: the arrival time of a message whose parts become ready at different times.
// Pure functions; nanoseconds throughout.
//
// Published (Temucin et al., CLUSTER'23, section II-C) are LogGP for one part and for two that are
// sent at once. The recurrence for any readiness and what follows from it are derived from those,
// docs/design/model.md: parts are injected in the order in which they become ready, one after the
// other,
//   begin(j) = max(ready(j) + o_s, begin(j - 1) + (bytes(j - 1) - 1) G + h),  h = max(g, o_s, o_r).
// Ready times are 0 or later.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/loggp.hpp"

namespace larklane::model {

/// A transport partition.
struct Part {
  double ready_ns = 0;  ///< when its last user partition is
  std::uint64_t bytes = 0;
};

/// A network, and the costs that the published model omits.
struct Medium {
  LogGP network;
  /// c: of each part, hidden by nothing. Section II-C's own table (Table I) contains one.
  double per_part_ns = 0;
  /// The receiver looks at completions when all is there, one after the other: o_r for each.
  bool is_receiver_serial = false;
};

/// When all parts have arrived, from time 0 on. @param parts  any order, at least one
double completion_ns(const Medium& medium, std::span<const Part> parts);

/// The same over queues that inject side by side, parts in turn: h is between two messages of a
/// queue, the wire is shared. One queue is completion_ns(). @param queues  >= 1
double completion_on_queues_ns(const Medium& medium, std::span<const Part> parts,
                               std::uint32_t queues);

/// Shared memory, where the thread that completes a part copies it.
struct Copying {
  double per_copy_ns = 0;     ///< before the first byte
  double per_byte_ns = 0;     ///< of the thread's time
  double medium_byte_ns = 0;  ///< of all threads together: 0 if they don't disturb each other
  double latency_ns = 0;      ///< until the receiver sees it
};
struct CopiedPart {
  Part part;
  std::uint32_t thread = 0;  ///< that completes it
};
/// When all parts are there. A thread copies one part after the other. @param parts  any order
double completion_by_copies_ns(const Copying& medium, std::span<const CopiedPart> parts);

/// Closed forms of completion_ns() for `count` >= 1 parts of `bytes` each.
namespace closed_form {
/// All ready at 0.
double simultaneous_ns(const Medium& medium, std::uint32_t count, std::uint64_t bytes);
/// All at 0 but the last, `delay_ns` later.
double many_before_one_ns(const Medium& medium, std::uint32_t count, std::uint64_t bytes,
                          double delay_ns);
/// One at 0, all others `delay_ns` later.
double one_before_many_ns(const Medium& medium, std::uint32_t count, std::uint64_t bytes,
                          double delay_ns);
/// One every `spacing_ns`, from 0 on.
double uniform_ns(const Medium& medium, std::uint32_t count, std::uint64_t bytes,
                  double spacing_ns);
/// `early` at 0, 1 <= early < count, the others `delay_ns` later.
double two_groups_ns(const Medium& medium, std::uint32_t count, std::uint32_t early,
                     std::uint64_t bytes, double delay_ns);
}  // namespace closed_form

/// The power of two from 1 to `most` at which `cost` is least; of equal ones the smallest.
/// @param most  >= 1
std::uint32_t best_power_of_two(std::uint32_t most,
                                const std::function<double(std::uint32_t)>& cost);

/// Table I of the paper: f(n) = G bytes / n + c n, which takes each part's bytes to be exposed once
/// and each part to cost c. @param most  number of user partitions
std::uint32_t tabled_count(double gap_per_byte_ns, double per_part_ns, std::uint64_t bytes,
                           std::uint32_t most);

}  // namespace larklane::model
