"""Costs of messages and partitions: measured by `larklane bench latency`, or estimated from a profile."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from larklane.numbers.stats import quantile
from larklane.profile.traffic import Delivery
from larklane.records.node import RecordError
from larklane.records.schema import Run, load

WHOLE, PART = ("join", "native"), ("partitioned", "larklane")  # way and variant of the series
QUICK = 0.1


@dataclasses.dataclass(frozen=True)
class Curve:
    """Time over size: linear between points, and extrapolated from the outer two."""

    points: tuple[tuple[float, float], ...]  # (bytes, ns), ascending, not empty

    def ns(self, size: float) -> float:
        if len(self.points) == 1:
            return self.points[0][1]
        at = min(max(bisect.bisect(self.points, (size, float("inf"))), 1), len(self.points) - 1)
        (low, low_ns), (high, high_ns) = self.points[at - 1:at + 1]
        return max(0.0, low_ns + (high_ns - low_ns) * (size - low) / (high - low))


@dataclasses.dataclass(frozen=True)
class Costs:
    """`whole`: time of one message, from the call to its arrival; `part`: the same for a partition, None if unknown."""

    whole: Curve
    part: Curve | None
    source: str


def _rising(times: Mapping[int, float]) -> Curve | None:
    """A larger message is not faster: if it seems so, the smaller one was disturbed. None without times."""
    points: list[tuple[float, float]] = []
    for size in sorted(times, reverse=True):
        points.append((float(size), min(times[size], points[-1][1] if points else times[size])))
    return Curve(tuple(reversed(points))) if points else None


def _curve(runs: Iterable[Run], way: str, variant: str) -> Curve | None:
    times: dict[int, list[float]] = collections.defaultdict(list)
    for run in runs:
        if run.options.benchmark == "latency" and run.context.variant == variant:
            for point in run.points:
                for series in point.series:
                    if series.way == way and not series.wrong:
                        times[point.bytes] += series.samples.get("half_round_trip_ns", ())
    return _rising({size: statistics.median(found) for size, found in times.items() if found})


def read(path: Path) -> Costs:
    """@throws RecordError  no record of `larklane bench latency`, native and under Larklane"""
    runs = load([path]).runs
    whole, part = _curve(runs, *WHOLE), _curve(runs, *PART)
    if whole is None or part is None:
        missing = "native one message after the join" if whole is None else "partitions under Larklane"
        raise RecordError(f"{path}: no latency of {missing} in it; measure with: larklane bench latency --out DIR, and give DIR/bench.json")
    return Costs(whole, part, str(path.name))


def seen(deliveries: Sequence[Delivery]) -> Costs | None:
    """Costs from a profile: the time from send to end of wait, of the fastest tenth, since many waits begin late. None without such times."""
    times: dict[int, list[int]] = collections.defaultdict(list)
    for send, receive in ((each.send, each.receive) for each in deliveries):
        if receive.wait and not receive.by_test and receive.wait.end_ns > send.begin_ns:
            times[send.bytes].append(receive.wait.end_ns - send.begin_ns)
    whole = _rising({size: quantile(found, QUICK) for size, found in times.items()})
    return Costs(whole, None, "the profile") if whole else None


def bounds(costs: Costs) -> tuple[Curve, Curve]:
    """Bounds of an unknown cost of a partition: nothing, and the cost of a whole message of its size."""
    return Curve(((0.0, 0.0),)), costs.whole
