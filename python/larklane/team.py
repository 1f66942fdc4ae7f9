"""What number a thread has among those that it works with, the same in every run of a program. Numbers of a file's threads are in the order
in which they recorded something first, which no two runs have in common."""

from __future__ import annotations

import bisect
import collections
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from larklane.profile_file import Kind, Record

UNKNOWN = -1


class _Part(NamedTuple):
    """When a thread had a number. `is_life`: for as long as it was there."""

    end_ns: int
    begin_ns: int
    number: int
    is_life: bool


class Team:
    """Of one rank: OpenMP's numbers in regions; threads that are created, in that order, from 1. Who begins regions, or joins threads, is 0
    besides. @param records  by begin"""

    def __init__(self, records: Iterable[Record]) -> None:
        self._parts: dict[int, list[_Part]] = collections.defaultdict(list)
        self._makers: set[int] = set()
        created, last_ns = 0, 0
        for record in records:
            if record.kind == Kind.MEMBER:
                self._parts[record.thread].append(_Part(record.end_ns, record.begin_ns, record.a - 1 if record.a > 0 else UNKNOWN, False))
            elif record.kind == Kind.THREAD:
                created = 1 if record.begin_ns > last_ns else created + 1
                last_ns = max(last_ns, record.end_ns)
                self._parts[record.thread].append(_Part(record.end_ns, record.begin_ns, created, True))
            elif record.kind in (Kind.REGION, Kind.JOIN):
                self._makers.add(record.thread)
        self._earliest: dict[int, list[int]] = {}  # by thread: begin of the part, or of one after it
        for thread, parts in self._parts.items():
            parts.sort()
            earliest = itertools.accumulate((part.begin_ns for part in reversed(parts)), min)
            self._earliest[thread] = list(reversed(list(earliest)))

    def _parts_at(self, thread: int, at_ns: int) -> Iterator[_Part]:
        """The innermost first."""
        parts, earliest = self._parts.get(thread, []), self._earliest.get(thread, [])
        for place in range(bisect.bisect_left(parts, (at_ns,)), len(parts)):
            if earliest[place] > at_ns:
                return
            if parts[place].begin_ns <= at_ns:
                yield parts[place]

    def number(self, thread: int, at_ns: int) -> int:
        """Of who recorded something then, as this thread of the file; in regions within regions, in the innermost."""
        return next((part.number for part in self._parts_at(thread, at_ns)), 0 if thread in self._makers else UNKNOWN)

    def writer(self, thread: int, at_ns: int) -> int:
        """Of who wrote something then. Not known if two threads were there of which one has left its number in the file to the other: before that the
        other one records nothing, but it may write."""
        lives = sum(part.is_life for part in self._parts_at(thread, at_ns))
        return self.number(thread, at_ns) if lives < 2 else UNKNOWN
