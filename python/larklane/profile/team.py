"""What number a thread has among those that it works with, the same in every run of a program. Numbers of a file's threads are in the order
in which they recorded something first, which no two runs have in common."""

from __future__ import annotations

import bisect
import collections
import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from larklane.profile.profile_file import Kind, Record

UNKNOWN = -1


class _Part(NamedTuple):
    """When a thread had a number: a part of a region, or as long as it was there."""

    end_ns: int
    begin_ns: int
    number: int


class _Numbers(NamedTuple):
    """Of one thread: from each time on; None: it had none then."""

    since_ns: Sequence[int]
    numbers: Sequence[int | None]


class Team:
    """Of one rank: OpenMP's numbers in regions; threads that are created: from 1 the first that no thread has which is not joined yet. Who begins
    regions, or joins threads, is 0 besides. @param records  by begin"""

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
        """Of who did something then, as this thread of the file; in regions within regions, in the innermost."""
        since_ns, numbers = self._numbers.get(thread, ((), ()))
        place = bisect.bisect_right(since_ns, at_ns)
        number = numbers[place - 1] if place else None
        return number if number is not None else 0 if thread in self._makers else UNKNOWN


def _created(records: Sequence[Record]) -> Iterator[tuple[Record, int]]:
    """Threads in the order of their creation, each with its number, which is another one's again when the thread is joined: if nobody does that, when
    it ends. A pthread_t that is another thread's has been joined, or never is."""
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
    """The number in the part that ends first of those that there are."""
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
