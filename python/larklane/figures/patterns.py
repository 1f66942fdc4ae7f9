"""Times at which partitions of a recorded program become ready and arrive within a round, for figures; the smallest useful timer.

After Temucin et al., CLUSTER'23, figures 10 to 12.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from larklane.figures.charts import Figure
from larklane.numbers import wording
from larklane.numbers.stats import median, quantile
from larklane.profile.phases import Message, Phase
from larklane.profile.profile import Profile
from larklane.profile.rounds import Mark, Request, RoundTrace, exposed_ns, spread, traces_of

PANELS_MAX = 6


class Band(NamedTuple):
    """One time: its quantiles over the rounds, and its value in the typical round."""

    p10_us: float
    median_us: float
    p90_us: float
    typical_us: float


class Row(NamedTuple):
    """One partition, or the share of one thread. `arrived` is None if it did not travel alone."""

    ready: Band
    arrived: Band | None


@dataclass(frozen=True)
class PatternPanel:
    """Messages of one kind between two ranks; times since the first part was ready. `sent_us`: send time of whole messages."""

    title: str
    rows: tuple[Row, ...]
    joined_us: float
    sent_us: float | None
    n: int


@dataclass(frozen=True)
class Patterns(Figure):
    """A panel for each kind of message."""

    panels: tuple[PatternPanel, ...]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        yield "panel", "part", "event", "n", "p10_us", "median_us", "p90_us", "typical_us"
        for panel in self.panels:
            for part, row in enumerate(panel.rows):
                for name, band in (("ready", row.ready), ("arrived", row.arrived)):
                    if band:
                        yield panel.title, part, name, panel.n, *(f"{value:.3f}" for value in band)


# --- the smallest timer -----------------------------------------------------------------------------------------------


def smallest_delta_ns(rounds: Iterable[Sequence[tuple[int, int]]]) -> float | None:
    """The smallest timer that gathers all parts but those of the last thread: from the first to the last of the parts' mean times.
    Each mean is over the rounds in which the part's thread was not the last one (CLUSTER'23, V-C3). None: a timer has nothing to gather.

    @param rounds  [rounds][parts] of (ready time, thread)
    """
    seen: dict[int, list[int]] = collections.defaultdict(list)
    for parts in rounds:
        first = min(time for time, _ in parts)
        last = max(range(len(parts)), key=lambda part: parts[part][0])
        alone = len({thread for _, thread in parts}) == 1
        for part, (time, thread) in enumerate(parts):
            if part != last if alone else thread != parts[last][1]:
                seen[part].append(time - first)
    means = [statistics.fmean(times) for times in seen.values()]
    return max(means) - min(means) if len(means) > 1 else None


def ready_of(send: Request) -> list[list[tuple[int, int]]]:
    """@return [rounds][partitions] of (ready time, thread), for whole rounds only"""
    rounds = []
    for each in send.rounds:
        marks = spread(send.partitions, ((mark.first, mark.count, mark) for mark in each.ready))
        found = [(mark.begin_ns, mark.thread) for mark in marks if isinstance(mark, Mark)]
        if len(found) == send.partitions:
            rounds.append(found)
    return rounds


def finished_of(phase: Phase) -> list[tuple[int, int]]:
    """@return [threads] of (finish time, thread)"""
    return [(phase.finished_ns[thread], thread) for thread in sorted(phase.finished_ns)]


# --- pictures ---------------------------------------------------------------------------------------------------------


def _bands(rounds: Sequence[Sequence[int]], typical: int) -> list[Band]:
    """@return a band for each part. `rounds`: [rounds][parts] nanoseconds since the first part was ready"""
    columns = zip(*rounds)
    return [Band(quantile(times, 0.1) / 1e3, quantile(times, 0.5) / 1e3, quantile(times, 0.9) / 1e3, times[typical] / 1e3) for times in map(list, columns)]


def _typical(values: Sequence[int]) -> int:
    """@return the index of the median"""
    return sorted(range(len(values)), key=lambda at: values[at])[(len(values) - 1) // 2]


def _partitioned(key: tuple[int, ...], traces: Sequence[RoundTrace]) -> PatternPanel:
    rank, peer, partitions, size = key
    begins = [min(transfer.begin_ns for transfer in trace.transfers) for trace in traces]
    typical = _typical([exposed_ns(trace) for trace in traces])
    ready = _bands([[transfer.begin_ns - begin for transfer in trace.transfers] for trace, begin in zip(traces, begins)], typical)
    arrived = _bands([[transfer.end_ns - begin for transfer in trace.transfers] for trace, begin in zip(traces, begins)], typical)
    joined = median([trace.joined_ns - begin for trace, begin in zip(traces, begins)]) / 1e3
    return PatternPanel(f"Rank {rank} to {peer}: {wording.count(partitions, 'partition')} of {wording.size(size / partitions)}",
                        tuple(map(Row, ready, arrived)), joined, None, len(traces))


def _whole(key: tuple[int, ...], messages: Sequence[Message]) -> PatternPanel:
    rank, peer, threads, size = key
    finished = [[time for time, _ in finished_of(message.phase)] for message in messages if message.phase]
    begins = [min(times) for times in finished]
    typical = _typical([max(times) - min(times) for times in finished])
    ready = _bands([[time - begin for time in times] for times, begin in zip(finished, begins)], typical)
    joined = median([max(times) - begin for times, begin in zip(finished, begins)]) / 1e3
    sent = median([message.begin_ns - begin for message, begin in zip(messages, begins)]) / 1e3
    return PatternPanel(f"Rank {rank} to {peer}: {threads} threads, then {wording.size(size)} at once",
                        tuple(Row(band, None) for band in ready), joined, sent, len(finished))


def partitioned_of(profile: Profile) -> dict[tuple[int, ...], list[Request]]:
    """@return partitioned sends by (rank, peer, partitions, bytes)"""
    groups: dict[tuple[int, ...], list[Request]] = collections.defaultdict(list)
    for send in profile.sends:
        groups[send.rank, send.peer, send.partitions, send.bytes].append(send)
    return dict(sorted(groups.items()))


def whole_of(profile: Profile) -> dict[tuple[int, ...], list[Message]]:
    """@return messages sent after a join, by (rank, peer, threads, bytes)"""
    groups: dict[tuple[int, ...], list[Message]] = collections.defaultdict(list)
    for message in profile.messages:
        if message.phase:
            groups[message.rank, message.peer, len(message.phase.finished_ns), message.bytes].append(message)
    return dict(sorted(groups.items()))


def patterns(profile: Profile, name: str) -> Patterns | None:
    """@return panels of the kinds of messages with the most bytes; None: no partitioned round, and no message after a join"""
    panels: list[tuple[int, PatternPanel]] = []
    for key, sends in partitioned_of(profile).items():
        traces = [trace for send in sends for trace in traces_of(send)]
        if traces:
            panels.append((key[3] * len(traces), _partitioned(key, traces)))
    panels += [(key[3] * len(messages), _whole(key, messages)) for key, messages in whole_of(profile).items()]
    if not panels:
        return None
    most = sorted(panels, key=lambda panel: -panel[0])[:PANELS_MAX]
    shown = [panel for _, panel in panels if any(panel is each for _, each in most)]
    file = profile.files[0]
    caption = ("Within a round: when each part is ready and when the receiver knows that it is there, since the first part was ready. Marks: "
               "medians; bars: p10 to p90; small dots: one typical round. Red: the last part is ready. CLUSTER'23, figures 10 and 11"
               + (f". The {PANELS_MAX} of {len(panels)} kinds of messages that move most" if len(panels) > PANELS_MAX else ""))
    footer = f"{Path(file.program).name}, {wording.count(file.size, 'rank')}, {' '.join(file.mpi.split())}, Larklane {file.larklane}"
    return Patterns(name, "When are parts ready, when do they arrive?", caption, footer, "", tuple(shown))
