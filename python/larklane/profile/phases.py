"""Programs without partitions, from a profile: the times at which threads finish and messages are sent."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

from larklane.profile.profile_file import Kind, Record
from larklane.profile.rounds import Request


@dataclasses.dataclass(frozen=True)
class Phase:
    """Threads of one rank that compute side by side until they meet. finished_ns: by thread."""

    rank: int
    finished_ns: dict[int, int]
    joined_ns: int

    @property
    def last_ns(self) -> int:
        return max(self.finished_ns.values())


@dataclasses.dataclass(frozen=True)
class Message:
    """A send that is not partitioned, and the parallel phase before it. None: there is none, or `is_own`.
    is_own: several threads of the next phase send, each its own messages: no join holds these back."""

    rank: int
    peer: int
    tag: int
    context: int  # the identity of the communicator, in 32 bits
    bytes: int
    begin_ns: int
    end_ns: int
    thread: int
    phase: Phase | None
    is_own: bool = False

    @property
    def after_phase_ns(self) -> int | None:
        """From the last thread's end to the send."""
        return self.begin_ns - self.phase.last_ns if self.phase else None


def _regions_of(rank: int, records: Iterable[Record]) -> Iterator[Phase]:
    members: dict[int, dict[int, int]] = collections.defaultdict(dict)
    ends: dict[int, int] = {}
    for record in records:
        if record.kind == Kind.MEMBER:
            members[record.request][record.thread] = record.end_ns
        elif record.kind == Kind.REGION:
            ends[record.request] = record.end_ns
    for number, finished in members.items():
        yield Phase(rank, finished, ends.get(number, max(finished.values())))


def _barriers_of(rank: int, records: Iterable[Record]) -> Iterator[Phase]:
    """All threads at a barrier come before the first one leaves."""
    meetings: dict[int, dict[int, Record]] = collections.defaultdict(dict)
    whole: list[dict[int, Record]] = []
    for record in records:
        if record.kind != Kind.BARRIER:
            continue
        met = meetings[record.value]
        if record.thread in met or any(record.begin_ns > other.end_ns for other in met.values()):
            whole.append(meetings.pop(record.value))
        meetings[record.value][record.thread] = record
    for met in itertools.chain(whole, meetings.values()):
        finished = {thread: record.begin_ns for thread, record in met.items()}
        yield Phase(rank, finished, max(finished.values()))


def _joins_of(rank: int, records: Iterable[Record]) -> Iterator[Phase]:
    """A phase for the threads that are joined before others are created. Threads are keyed by order, since a later one may reuse a number."""
    created: list[Record] = []
    joined: set[int] = set()
    groups: list[list[Record]] = []
    for record in records:
        if record.kind == Kind.JOIN:
            joined.add(record.value)
        elif record.kind == Kind.THREAD:
            if joined:
                groups.append([thread for thread in created if thread.value in joined])
                created, joined = [], set()
            created.append(record)
    groups.append([thread for thread in created if thread.value in joined])
    for group in filter(None, groups):
        finished = {index: thread.end_ns for index, thread in enumerate(group)}
        yield Phase(rank, finished, max(finished.values()))


def phases_of(rank: int, records: list[Record]) -> list[Phase]:
    """@return phases of at least two threads, by their end. `records`: on one clock, in order of begin"""
    found = itertools.chain(_regions_of(rank, records), _barriers_of(rank, records), _joins_of(rank, records))
    return sorted((phase for phase in found if len(phase.finished_ns) > 1), key=lambda phase: phase.last_ns)


def folded(context: int) -> int:
    """A communicator's identity folded to 32 bits, as in records of sends and receives."""
    return (context ^ context >> 32) & 0xFFFFFFFF


def messages_of(rank: int, records: Sequence[Record], requests: Iterable[Request], phases: list[Phase]) -> list[Message]:
    """@return messages of all send calls (Send, Isend, ...) and of Start of persistent sends, by begin"""
    persistent = {request.number: request for request in requests if request.is_send and not request.is_partitioned}
    ends = [phase.last_ns for phase in phases]
    messages = []
    for record in records:
        request = persistent.get(record.request) if record.kind == Kind.START else None
        if record.kind != Kind.SEND and request is None:
            continue
        route = (request.peer, request.tag, folded(request.context), request.bytes) if request else (record.a, record.b, record.request, record.value)
        before = bisect.bisect_right(ends, record.begin_ns)
        messages.append(Message(rank, *route, record.begin_ns, record.end_ns, record.thread,
                                phases[before - 1] if before else None))
    return _with_own(messages, records)


def _with_own(messages: list[Message], records: Sequence[Record]) -> list[Message]:
    """Mark messages of threads that send side by side: several threads do so in their parts of a region, begun after the phase before."""
    parts: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)
    for record in records:
        if record.kind in (Kind.MEMBER, Kind.THREAD):
            parts[record.thread].append((record.begin_ns, record.end_ns))
    for of_thread in parts.values():
        of_thread.sort()

    def is_inside(message: Message) -> bool:
        of_thread = parts.get(message.thread, [])
        place = bisect.bisect_right(of_thread, (message.begin_ns, message.end_ns))
        since_ns = message.phase.joined_ns if message.phase else 0
        return place > 0 and since_ns <= of_thread[place - 1][0] and message.begin_ns <= of_thread[place - 1][1]

    inside = [is_inside(message) for message in messages]
    senders: dict[int, set[int]] = collections.defaultdict(set)  # by phase
    for message, is_in in zip(messages, inside):
        if is_in:
            senders[id(message.phase)].add(message.thread)
    return [dataclasses.replace(message, phase=None, is_own=True) if is_in and len(senders[id(message.phase)]) > 1 else message
            for message, is_in in zip(messages, inside)]
