"""Numbers of threads within their team, equal in every run of a program. A file numbers its threads in the order
of their first records, which differs from run to run."""

from __future__ import annotations

import bisect
import collections
import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from larklane.profile.profile_file import Kind, Record

UNKNOWN = -1


class _Part(NamedTuple):
    """The time in which a thread had a number: its part of a region, or its lifetime."""

    end_ns: int
    begin_ns: int
    number: int


class _Numbers(NamedTuple):
    """The numbers of one thread from each time on; None: no number."""

    since_ns: Sequence[int]
    numbers: Sequence[int | None]


class Team:
    """The team of one rank. In regions, threads have OpenMP's numbers. A created thread gets the lowest number from 1 that no unjoined thread has. A thread
    that begins regions, or joins threads, is 0 otherwise. @param records  in order of begin"""

    def __init__(self, records: Iterable[Record]) -> None:
        records = list(records)
        parts: dict[int, list[_Part]] = collections.defaultdict(list)
        for record in records:
            if record.kind == Kind.MEMBER:
                parts[record.thread].append(_Part(record.end_ns, record.begin_ns, record.a - 1 if record.a > 0 else UNKNOWN))
        for record, number in _created(records):
            parts[record.thread].append(_Part(record.end_ns, record.begin_ns, number))
        self._makers = {record.thread for record in records if record.kind in (Kind.REGION, Kind.JOIN)}
        self._numbers = {thread: _over_time(of_thread) for thread, of_thread in parts.items()}

    def number(self, thread: int, at_ns: int) -> int:
        """@return the number at that time of this thread of the file; in nested regions, its number in the innermost"""
        since_ns, numbers = self._numbers.get(thread, ((), ()))
        place = bisect.bisect_right(since_ns, at_ns)
        number = numbers[place - 1] if place else None
        return number if number is not None else 0 if thread in self._makers else UNKNOWN


def _created(records: Sequence[Record]) -> Iterator[tuple[Record, int]]:
    """Yield threads in the order of their creation, each with its number. A number is free again when its thread is joined, or, without a join, when
    it ends. If a later thread has the same pthread_t, the earlier thread was joined before, or never is."""
    threads = [record for record in records if record.kind == Kind.THREAD]
    joins: dict[int, list[int]] = collections.defaultdict(list)  # by pthread_t
    for record in records:
        if record.kind == Kind.JOIN:
            joins[record.value].append(record.end_ns)
    for ends in joins.values():
        ends.sort()
    until_ns, next_ns = [], dict[int, int]()
    for record in reversed(threads):
        ends = joins[record.value]
        place = bisect.bisect_left(ends, record.end_ns)
        joined_ns = ends[place] if place < len(ends) else record.end_ns
        until_ns.append(max(record.end_ns, min(joined_ns, next_ns.get(record.value, joined_ns))))
        next_ns[record.value] = record.begin_ns
    busy: list[tuple[int, int]] = []  # (until, number)
    free: list[int] = []
    for record, until in zip(threads, reversed(until_ns)):
        while busy and busy[0][0] <= record.begin_ns:
            heapq.heappush(free, heapq.heappop(busy)[1])
        number = heapq.heappop(free) if free else len(busy) + 1
        heapq.heappush(busy, (until, number))
        yield record, number


def _over_time(parts: list[_Part]) -> _Numbers:
    """@return at each time the number of the part that ends first among the current parts"""
    begins = sorted(parts, key=lambda part: -part.begin_ns)
    since_ns = sorted({part.begin_ns for part in parts} | {part.end_ns + 1 for part in parts})
    there: list[_Part] = []
    numbers: list[int | None] = []
    for now_ns in since_ns:
        while begins and begins[-1].begin_ns == now_ns:
            heapq.heappush(there, begins.pop())
        while there and there[0].end_ns < now_ns:
            heapq.heappop(there)
        numbers.append(there[0].number if there else None)
    return _Numbers(since_ns, numbers)
