"""Messages that are not partitioned: matching of sends and receives, waiting times of ranks, and repeating steps."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from larklane.profile.phases import Message, folded
from larklane.profile.profile_file import Kind, RankFile, Record
from larklane.profile.rounds import Request, Span

IS_TEST = 1  # flags of Kind.WAIT
PROC_NULL = -2
POINT_TO_POINT = (Kind.START, Kind.WAIT, Kind.SEND, Kind.RECEIVE)
SETTLED = 4  # steps may differ in the first quarter of a run


@dataclasses.dataclass(frozen=True)
class Receive:
    """A receive that is not partitioned. `wait`: the call that completed it; None: no call did, or the profile is cut off."""

    rank: int
    peer: int
    tag: int
    context: int
    posted_ns: int
    wait: Span | None
    thread: int  # the thread that completed it
    by_test: bool

    @property
    def is_named(self) -> bool:
        """It names the source and the tag of its message."""
        return self.peer >= 0 and self.tag >= 0


@dataclasses.dataclass(frozen=True)
class Delivery:
    """A send and the receive that took its message."""

    send: Message
    receive: Receive


@dataclasses.dataclass(frozen=True)
class Matched:
    """`left_out`: number of receives from any source or of any tag, and of messages that these may have taken."""

    deliveries: tuple[Delivery, ...]
    left_out: int


def receives_of(rank: int, records: Iterable[Record], requests: Iterable[Request]) -> list[Receive]:
    """@return receives in the order of their posting. `records`: of one rank, on one clock, in order of begin"""
    persistent = {request.number: request for request in requests if not request.is_send and not request.is_partitioned}
    found: list[Receive] = []
    by_handle: dict[int, int] = {}
    for record in records:
        request = persistent.get(record.request) if record.kind == Kind.START else None
        if record.kind == Kind.RECEIVE or request:
            route = (request.peer, request.tag, folded(request.context)) if request else (record.a, record.b, record.request)
            by_handle[record.handle] = len(found)
            wait = Span(record.begin_ns, record.end_ns) if record.handle == 0 else None
            found.append(Receive(rank, *route, record.begin_ns, wait, record.thread, False))
        elif record.kind == Kind.WAIT and record.handle in by_handle:
            index = by_handle.pop(record.handle)
            found[index] = dataclasses.replace(found[index], wait=Span(record.begin_ns, record.end_ns), thread=record.thread,
                                               by_test=bool(record.flags & IS_TEST))
    return found


def matched(messages: Iterable[Message], receives: Iterable[Receive]) -> Matched:
    """Match messages and receives: same communicator, ranks and tag, in the order of the calls. If a receive from any source, or of
    any tag, may have taken one of the messages, all messages of that route stay unmatched."""
    queues: dict[tuple[int, int, int, int], list[Receive]] = collections.defaultdict(list)
    sent: dict[tuple[int, int, int, int], list[Message]] = collections.defaultdict(list)
    greedy: set[tuple[int, int]] = set()
    left_out = 0
    for receive in receives:
        if receive.is_named:
            queues[receive.peer, receive.rank, receive.tag, receive.context].append(receive)
        elif receive.peer != PROC_NULL:
            greedy.add((receive.rank, receive.context))
            left_out += 1
    for message in messages:
        sent[message.rank, message.peer, message.tag, message.context].append(message)
    found = []
    for key, of_key in sent.items():
        taken = queues.get(key, [])
        if len(taken) < len(of_key) and (key[1], key[3]) in greedy:
            left_out += len(of_key)
            continue
        found += [Delivery(message, receive) for message, receive in zip(of_key, taken)]
    return Matched(tuple(sorted(found, key=lambda delivery: delivery.send.begin_ns)), left_out)


def waited_ns(receives: Iterable[Receive]) -> dict[int, int]:
    """By rank: time in calls that completed receives. A call that completed several counts once."""
    calls = {(receive.rank, receive.thread, receive.wait) for receive in receives if receive.wait and not receive.by_test}
    total: dict[int, int] = collections.Counter()
    for rank, _, wait in calls:
        total[rank] += wait.end_ns - wait.begin_ns
    return dict(total)


def calls_share(files: Iterable[RankFile]) -> float:
    """@return the share, 0 to 1, of the ranks' time in calls that start, send, receive and complete messages: per rank of the thread
    with the most of it. A call that completed several requests counts once."""
    shares = []
    for file in files:
        spans = {(record.thread, record.begin_ns, record.end_ns) for record in file.records if record.kind in POINT_TO_POINT}
        by_thread: dict[int, int] = collections.Counter()
        for thread, begin_ns, end_ns in spans:
            by_thread[thread] += end_ns - begin_ns
        end_ns = file.end_ns or max((record.end_ns for record in file.records), default=file.begin_ns)
        shares.append(min(max(by_thread.values(), default=0) / max(end_ns - file.begin_ns, 1), 1.0))
    return sum(shares) / max(len(shares), 1)


# --- steps ------------------------------------------------------------------------------------------------------------


def bursts_of(messages: Iterable[Message]) -> Iterator[tuple[Message, ...]]:
    """Yield sends of one rank between the same two joins of its threads; without threads, each send alone. `messages`: by begin.
    The sends before the first join are one burst, too: alone, they would count as many bursts that no later one repeats."""
    ordered = list(messages)
    has_threads = bool(ordered) and ordered[-1].phase is not None
    current: list[Message] = []
    for message in ordered:
        if current and (message.phase is not current[-1].phase or not has_threads):
            yield tuple(current)
            current = []
        current.append(message)
    if current:
        yield tuple(current)


def period(signs: Sequence[object]) -> int:
    """@return the period of `signs` in all but the first quarter; 0 if they do not repeat"""
    settled = len(signs) // SETTLED
    for length in range(1, (len(signs) - settled) // 2 + 1):
        if all(signs[at] == signs[at - length] for at in range(settled + length, len(signs))):
            return length
    return 0


def steps_of(messages: Iterable[Message]) -> list[tuple[Message, ...]]:
    """The sends of one rank, step by step: a step ends when the same sends (destination, bytes) begin again. The last
    step may be cut off. `messages`: by begin."""
    bursts = list(bursts_of(messages))
    length = period([sorted((message.peer, message.bytes) for message in burst) for burst in bursts])
    if not length:
        return []
    return [tuple(message for burst in bursts[first:first + length] for message in burst) for first in range(0, len(bursts), length)]
