"""Predicted saving of groups of partitions, from the recorded rounds of a partitioned send: pure functions (docs/user/prediction.md)."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import statistics
from collections.abc import Sequence

from larklane.numbers.stats import bootstrap
from larklane.prediction.costs import Curve
from larklane.prediction.predictor import Saving
from larklane.profile.rounds import Mark, Request, Round

SHARES = (0.0, 0.5, 1.0)  # of a message's cost: the part that the sending thread may spend as work
REPLAYED_MAX = 20000  # most partitions of all rounds: more make the replay slow, not better


@dataclasses.dataclass(frozen=True)
class Aggregation:
    """`best`: the grouping that saves most, against each partition by itself; medians per round. Its interval also covers `SHARES`."""

    rounds: int
    best: Saving


def completion_ns(marks: Sequence[Mark], size: int, message_ns: float, share: float) -> float:
    """@return the time at which all groups have arrived. Threads call Pready in the recorded order, with the recorded gaps between calls.
    The thread that completes a group works for `share` of its message's cost; the group arrives after the whole cost."""
    partitions = [(mark, partition) for mark in sorted(marks, key=lambda mark: mark.begin_ns) for partition in range(mark.first, mark.first + mark.count)]
    by_thread: dict[int, list[tuple[Mark, int]]] = collections.defaultdict(list)
    for mark, partition in partitions:
        by_thread[mark.thread].append((mark, partition))
    missing = collections.Counter(partition // size for _, partition in partitions)
    next_call = [(float(calls[0][0].begin_ns), thread, 0) for thread, calls in by_thread.items()]
    heapq.heapify(next_call)
    arrived_ns = 0.0
    while next_call:
        now_ns, thread, at = heapq.heappop(next_call)
        mark, partition = by_thread[thread][at]
        missing[partition // size] -= 1
        is_complete = missing[partition // size] == 0
        if is_complete:
            arrived_ns = max(arrived_ns, now_ns + message_ns)
        if at + 1 < len(by_thread[thread]):
            following = by_thread[thread][at + 1][0]
            gap_ns = 0 if following is mark else max(0, following.begin_ns - mark.end_ns)
            heapq.heappush(next_call, (now_ns + share * message_ns * is_complete + gap_ns, thread, at + 1))
    return arrived_ns


def _rounds(sends: Sequence[Request]) -> list[Round]:
    """@return whole rounds, evenly sampled from all"""
    whole = [each for send in sends for each in send.rounds if each.wait and sum(mark.count for mark in each.ready) == send.partitions]
    return whole[::-(-len(whole) * sends[0].partitions // REPLAYED_MAX) or 1]


def aggregation(sends: Sequence[Request], part: Curve) -> Aggregation | None:
    """@param sends  sends of equal size and number of partitions.
    @param part   cost of a message under Larklane, from Pready to its arrival.
    @return None if there is nothing to group, or no whole round"""
    partitions, size = sends[0].partitions, sends[0].partition_bytes
    rounds = _rounds(sends)
    if partitions < 2 or not rounds:
        return None

    def completions(group: int, share: float) -> list[float]:
        return [completion_ns(each.ready, group, part.ns(size * group), share) for each in rounds]

    round_ns = statistics.median(each.wait.end_ns - each.start.begin_ns for each in rounds if each.wait)
    apart = {share: completions(1, share) for share in SHARES}
    savings = []
    for group in sorted({min(1 << power, partitions) for power in range(1, partitions.bit_length() + 1)}):
        saved = {share: [before - after for before, after in zip(apart[share], completions(group, share))] for share in SHARES}
        bounds = [bound for values in saved.values() for bound in bootstrap(float, values)]
        savings.append(Saving(-(-partitions // group), statistics.median(saved[0.5]), (min(bounds), max(bounds)), round_ns))
    return Aggregation(len(rounds), max(savings, key=lambda saving: saving.ns))
