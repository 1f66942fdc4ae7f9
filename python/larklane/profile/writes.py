"""Writers of sent data: the first write to each page of a send buffer since its previous send (`larklane profile --trace-writes`)."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from larklane.profile.phases import Message
from larklane.profile.profile import Profile
from larklane.profile.profile_file import IS_PARTITIONED, Kind, ProfileError, Record
from larklane.profile.team import UNKNOWN, Team
from larklane.profile.traffic import SETTLED, steps_of


class PageWrite(NamedTuple):
    """The first write to one page. `offset`: the page's offset in the buffer."""

    offset: int
    bytes: int
    thread: int
    time_ns: int


class Sent(NamedTuple):
    """A message, a Start of a persistent send, or a run of marked partitions. `request`: 0 for a message."""

    begin_ns: int
    request: int
    address: int
    bytes: int
    writes: tuple[PageWrite, ...]


def sends_of(records: Iterable[Record]) -> Iterator[Sent]:
    """Yield sends in order. `records`: of one rank, in order of begin. Pages that a buffer shares with other data are not watched."""
    written: dict[int, Record] = {}
    buffers: dict[int, Record] = {}
    partition_bytes: dict[int, int] = {}
    for record in records:
        number = record.request
        if record.kind == Kind.WRITE:
            written.setdefault(record.value, record)
        elif record.kind == Kind.REQUEST and record.flags & IS_PARTITIONED:
            partition_bytes[number] = record.value
        elif record.kind == Kind.BUFFER and number:
            buffers[number] = record
        elif record.kind == Kind.BUFFER:
            yield _sent(record, record.handle, record.value, written)
        elif record.kind == Kind.START and number in buffers and number not in partition_bytes:
            yield _sent(record, buffers[number].handle, buffers[number].value, written)
        elif record.kind == Kind.READY and number in buffers:
            part = partition_bytes[number]
            yield _sent(record, buffers[number].handle + record.a * part, record.b * part, written)


def _sent(record: Record, address: int, size: int, written: dict[int, Record]) -> Sent:
    """@return the send; its pages are removed from `written`"""
    pages = sorted(page for page in written if address <= page < address + size)
    writes = (written.pop(page) for page in pages)
    return Sent(record.begin_ns, record.request, address, size,
                tuple(PageWrite(write.value - address, write.a, write.b, write.begin_ns) for write in writes))


# --- writers of the bytes of a message, for the prediction of another run ----------------------------------------------

AFTER = -2  # in place of a number: the sender wrote the bytes, after the join


class Page(NamedTuple):
    """Bytes of a message, and the team numbers (team.py, or UNKNOWN) of the threads that wrote there first, in any message of its kind."""

    begin: int
    end: int
    numbers: frozenset[int]


class Writers(NamedTuple):
    """The writers of a kind of message."""

    bytes: int
    pages: tuple[Page, ...]

    def of_part(self, part: int, parts: int) -> frozenset[int]:
        """@return numbers of the threads that wrote a part; empty if unknown for any of its pages. A page across the part's edge does not show
        on which side a thread wrote, so it counts only if no page lies within."""
        begin, end = self.bytes * part / parts, self.bytes * (part + 1) / parts
        within = [page for page in self.pages if begin <= page.begin and page.end <= end]
        numbers: frozenset[int] = frozenset().union(*(page.numbers for page in within or self.pages if page.begin < end and begin < page.end))
        return frozenset() if UNKNOWN in numbers else numbers


class MessageKind(NamedTuple):
    """`turn`: number of messages of the kind that its rank has sent before in the same step."""

    rank: int
    peer: int
    tag: int
    bytes: int
    turn: int


def kinds_of(messages: Iterable[Message]) -> dict[tuple[int, int], MessageKind]:
    """@return kinds by (rank, begin). `messages`: by begin"""
    by_rank: dict[int, list[Message]] = collections.defaultdict(list)
    for message in messages:
        by_rank[message.rank].append(message)
    kinds = {}
    for of_rank in by_rank.values():
        for step in steps_of(of_rank) or [(message,) for message in of_rank]:
            turns: dict[tuple[int, int, int], int] = collections.Counter()
            for message in step:
                route = (message.peer, message.tag, message.bytes)
                kinds[message.rank, message.begin_ns] = MessageKind(message.rank, *route, turns[route])
                turns[route] += 1
    return kinds


def is_traced(profile: Profile) -> bool:
    """Whether the profile was made with --trace-writes."""
    return any(record.kind in (Kind.WRITE, Kind.BUFFER) for records in profile.records.values() for record in records)


def _outline(profile: Profile) -> tuple[str, int, dict[int, int]]:
    """@return program, number of ranks, and by rank the number of threads that meet before its messages"""
    threads: dict[int, int] = dict.fromkeys(profile.records, 1)
    for message in profile.messages:
        threads[message.rank] = max(threads[message.rank], len(message.phase.finished_ns) if message.phase else 1)
    first = profile.files[0]
    return Path(first.program).name, first.size, threads


def check_same(profile: Profile, traced: Profile) -> None:
    """@raises ProfileError  `traced` does not show the writers of the data that `profile` sends: no --trace-writes, or another program, ranks or threads"""
    ours, theirs = (each.files[0].path.parent for each in (profile, traced))
    if not is_traced(traced):
        raise ProfileError(f"{theirs} does not say who wrote what: it was made without --trace-writes, or nothing that can be watched was sent")
    for what, here, there in zip(("program", "number of ranks", "number of threads, by rank,"), _outline(profile), _outline(traced)):
        if here != there:
            raise ProfileError(f"{theirs} does not say who wrote what in {ours}: the {what} is {there} there, and {here} here")


KnownWriters = Mapping[MessageKind, Writers]


def writers_of(profile: Profile) -> dict[MessageKind, Writers]:
    """@return writers from a run with --trace-writes. The first quarter of a kind's messages does not count:
    the program initialises its buffers there."""
    kinds = kinds_of(profile.messages)
    joined = {(message.rank, message.begin_ns): message.phase.last_ns for message in profile.messages if message.phase}
    found: dict[MessageKind, list[dict[tuple[int, int], int]]] = collections.defaultdict(list)
    for rank, records in profile.records.items():
        team = Team(records)
        for sent in sends_of(records):
            kind, joined_ns = kinds.get((rank, sent.begin_ns)), joined.get((rank, sent.begin_ns))
            if kind and joined_ns is not None:
                found[kind].append({(write.offset, write.offset + write.bytes): AFTER if write.time_ns > joined_ns else
                                    team.number(write.thread, write.time_ns) for write in sent.writes})
    return {kind: Writers(kind.bytes, _pages(sends[-(-len(sends) // SETTLED) if len(sends) > 1 else 0:])) for kind, sends in found.items()}


def _pages(sends: Iterable[dict[tuple[int, int], int]]) -> tuple[Page, ...]:
    numbers: dict[tuple[int, int], set[int]] = collections.defaultdict(set)
    for place, number in itertools.chain.from_iterable(send.items() for send in sends):
        numbers[place].add(number)
    return tuple(Page(*place, frozenset(found)) for place, found in sorted(numbers.items()))
