#pragma once
// The metrics of partitioned communication: pure functions over the trace of one round. Formulas,
// units and what each cannot tell: docs/user/performance.md. All times in nanoseconds.

#include "trace.hpp"

namespace larklane::bench {

/// From the first part being ready to the last one's arrival. t_part of overhead, and, of a trace
/// with one transfer, t_pt2pt. (Temucin et al., ICPP'22, 3.1.1)
double total_ns(const RoundTrace& trace);

/// From the last thread's end to the last arrival: what a program would call the time of its
/// communication. Of a partitioned round t_part_last of perceived bandwidth, since the last thread
/// calls Pready then. (ICPP'22, 3.1.2)
double exposed_ns(const RoundTrace& trace);

/// Bytes of the message over exposed_ns(), in bytes per second. (ICPP'22, equation 2)
double perceived_bandwidth(const RoundTrace& trace);

/// Time in which something was on its way: the union of all transfers.
double communication_ns(const RoundTrace& trace);

/// The part of it that was still to come when all threads had finished computing. t_after_join of
/// application availability. (ICPP'22, 3.1.3)
double after_join_ns(const RoundTrace& trace);

/// Time in which something was on its way that arrived before the join: the union of those
/// transfers. t_before_join of early-bird communication, a lower bound: of a transfer that arrives
/// after the join nobody outside the library can tell how much had moved before. (ICPP'22, 3.1.4)
double before_join_ns(const RoundTrace& trace);

/// before_join_ns() over communication_ns(), 0 to 1. 0 for a library that sends everything in Wait.
/// (ICPP'22, equation 4)
double early_bird_share(const RoundTrace& trace);

/// Bytes that arrived before the join over all bytes, 0 to 1; 0 of no bytes.
double early_bytes_share(const RoundTrace& trace);

/// From the first arrival to the last: time in which a receiver may compute on what is there while
/// it would wait otherwise. 0 with one partition; the mean of several receivers. (Dosanjh and
/// Grant, 2019, section 5)
double extra_compute_ns(const RoundTrace& trace);

/// Load that partitions put on a pair of processes: total time over that of one send. (ICPP'22,
/// equation 1)
double overhead(double part_ns, double pt2pt_ns);

/// Share of one send's time that the processor gets back, at most 1; negative if partitions take
/// longer after the join than one send. (ICPP'22, equation 3)
double availability(double after_join_ns, double pt2pt_ns);

}  // namespace larklane::bench
