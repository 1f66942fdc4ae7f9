"""A profile as an OTF2 archive, for Vampir, Scalasca and the other tools of that format. Needs the Python module otf2."""

from __future__ import annotations

import collections
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

from larklane.files import output_file
from larklane.profile.perfetto import NAMES, title
from larklane.profile.profile import Profile
from larklane.profile.profile_file import ProfileError, Record
from larklane.profile.rounds import Request


class Interval(NamedTuple):
    """One call or one part of a computation on one thread."""

    begin_ns: int
    end_ns: int
    name: str
    record: Record | None


def nested(intervals: list[Interval]) -> Iterator[tuple[int, bool, Interval]]:
    """Yield (time, entered, interval) in order of time. Inner intervals leave before outer ones: the end of the outer interval cuts a longer inner one."""
    open_now: list[tuple[int, Interval]] = []
    for interval in sorted(intervals, key=lambda each: (each.begin_ns, -each.end_ns)):
        while open_now and open_now[-1][0] <= interval.begin_ns:
            end_ns, over = open_now.pop()
            yield end_ns, False, over
        end_ns = min(interval.end_ns, open_now[-1][0]) if open_now else interval.end_ns
        open_now.append((max(end_ns, interval.begin_ns), interval))
        yield interval.begin_ns, True, interval
    while open_now:
        end_ns, over = open_now.pop()
        yield end_ns, False, over


def _threads(records: list[Record]) -> dict[int, list[Interval]]:
    threads: dict[int, list[Interval]] = collections.defaultdict(list)
    for record in records:
        if record.kind in NAMES:
            threads[record.thread].append(Interval(record.begin_ns, record.end_ns, title(record), record))
    return threads


def _arrivals(receive: Request) -> list[Interval]:
    return [Interval(arrival.not_before_ns or arrival.seen_ns, arrival.seen_ns, f"arrived ({arrival.label})", None)
            for each in receive.rounds for arrival in each.arrivals]


class Archive:
    """The definitions so far in one archive."""

    def __init__(self, trace: Any) -> None:
        self._trace = trace
        self._attributes = {name: trace.definitions.attribute(name, name) for name in ("peer", "tag", "bytes", "request")}

    def location(self, name: str, group: Any, intervals: list[Interval]) -> None:
        writer = self._trace.event_writer(name, group=group)
        for time_ns, entered, interval in nested(intervals):
            region = self._trace.definitions.region(interval.name)
            if entered:
                writer.enter(time_ns, region, attributes=self._facts(interval.record))
            else:
                writer.leave(time_ns, region)

    def _facts(self, record: Record | None) -> dict[Any, str]:
        if record is None:
            return {}
        facts = {"peer": record.a, "tag": record.b, "bytes": record.value} if title(record) in ("send", "receive") else (
            {"request": record.request} if record.request else {})
        return {self._attributes[name]: str(value) for name, value in facts.items()}


def write(profile: Profile, folder: pathlib.Path) -> None:
    """Raises ProfileError without the module, or if the folder exists. A failed export leaves nothing behind.
    Times are those of rank 0's host, in nanoseconds."""
    try:
        import otf2  # noqa: PLC0415  most users do not need it
    except ImportError as error:
        raise ProfileError(f"--otf2 needs the Python module otf2 (pip install otf2): {error}") from error
    if folder.exists():
        raise ProfileError(f"{folder}: is there already; --otf2 makes a new folder")
    part = folder.with_name(folder.name + output_file.PART)
    shutil.rmtree(part, ignore_errors=True)  # left by a killed export
    try:
        _write(profile, otf2.writer.open(str(part), timer_resolution=1_000_000_000))
        part.rename(folder)
    except BaseException:  # including ^C
        shutil.rmtree(part, ignore_errors=True)
        raise


def _write(profile: Profile, opened: Any) -> None:
    with opened as trace:
        archive = Archive(trace)
        nodes: dict[str, Any] = {}
        for file in sorted(profile.files, key=lambda file: file.rank):
            node = nodes.setdefault(file.host, trace.definitions.system_tree_node(file.host))
            group = trace.definitions.location_group(f"rank {file.rank}", system_tree_parent=node)
            for thread, intervals in sorted(_threads(profile.records[file.rank]).items()):
                archive.location(f"thread {thread}", group, intervals)
            for receive in (each for each in profile.requests if each.rank == file.rank and each.is_partitioned and not each.is_send):
                archive.location(f"arrivals from {receive.peer}, tag {receive.tag}", group, _arrivals(receive))
