#pragma once
// The metrics of partitioned communication: pure functions over the trace of one round.
// docs/user/performance.md has the formulas, the units and the limits of each. All times are in
// nanoseconds.

#include "trace.hpp"

namespace larklane::bench {

/// From the moment the first part is ready to the last part's arrival. This is t_part of overhead,
/// and t_pt2pt if the trace has one transfer. (Temucin et al., ICPP'22, 3.1.1)
double total_ns(const RoundTrace& trace);

/// From the last thread's end to the last arrival: a program's own measure of its communication
/// time. In a partitioned round this is t_part_last of perceived bandwidth, since the last thread
/// then calls Pready. (ICPP'22, 3.1.2)
double exposed_ns(const RoundTrace& trace);

/// Bytes of the message over exposed_ns(), in bytes per second. (ICPP'22, equation 2)
double perceived_bandwidth(const RoundTrace& trace);

/// Time with at least one transfer in flight: the union of all transfers.
double communication_ns(const RoundTrace& trace);

/// The part of communication_ns() after all threads have finished computing. This is t_after_join
/// of application availability. (ICPP'22, 3.1.3)
double after_join_ns(const RoundTrace& trace);

/// Time with at least one transfer in flight that arrives before the join: the union of those
/// transfers. This is t_before_join of early-bird communication, and a lower bound. Of a transfer
/// that arrives after the join, only the library knows how many bytes moved before it. (ICPP'22,
/// 3.1.4)
double before_join_ns(const RoundTrace& trace);

/// before_join_ns() over communication_ns(), 0 to 1. It is 0 for a library that sends everything in
/// Wait. (ICPP'22, equation 4)
double early_bird_share(const RoundTrace& trace);

/// Bytes that arrive before the join over all bytes, 0 to 1; 0 if there are no bytes.
double early_bytes_share(const RoundTrace& trace);

/// From the first arrival to the last: a receiver that would otherwise wait may compute on the
/// arrived parts in this time. 0 with one partition; with several receivers, their mean. (Dosanjh
/// and Grant, 2019, section 5)
double extra_compute_ns(const RoundTrace& trace);

/// Cost of partitions for a pair of processes: their total time over that of one send. (ICPP'22,
/// equation 1)
double overhead(double part_ns, double pt2pt_ns);

/// Share of one send's time that the processor gets back, at most 1. It is negative if partitions
/// take longer after the join than one send. (ICPP'22, equation 3)
double availability(double after_join_ns, double pt2pt_ns);

}  // namespace larklane::bench
