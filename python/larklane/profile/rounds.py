"""Persistent requests of a profile: their rounds, the matching of sends and receives, and the rounds as traces with metrics."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from larklane.profile.profile_file import IS_NATIVE, IS_PARTITIONED, IS_SEND, Kind, Record

LABELS = ("observed", "observed", "bounded")  # by observer: the program's Parrived, Larklane in Wait, Larklane at the begin of Wait
MODELLED = "modelled"


class Mark(NamedTuple):
    """Pready of partitions first to first + count - 1."""

    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    begin_ns: int
    end_ns: int
    thread: int


class Arrival(NamedTuple):
    """Partitions that arrived after not_before_ns and no later than seen_ns."""

    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    not_before_ns: int
    seen_ns: int
    label: str


class Span(NamedTuple):
    """A call, from entering to leaving."""

    begin_ns: int
    end_ns: int


@dataclasses.dataclass
class Round:
    """Start to completion of one request. `wait` is the call that completed it."""

    start: Span
    ready: list[Mark] = dataclasses.field(default_factory=list)
    arrivals: list[Arrival] = dataclasses.field(default_factory=list)
    wait: Span | None = None


@dataclasses.dataclass
class Request:
    """A persistent request. `peer` is a rank in MPI_COMM_WORLD, or negative (docs/user/profile.md)."""

    rank: int
    number: int
    is_send: bool
    is_partitioned: bool
    is_native: bool
    peer: int
    tag: int
    partition_bytes: int
    partitions: int = 1
    context: int = 0
    rounds: list[Round] = dataclasses.field(default_factory=list)
    other: Request | None = None

    @property
    def bytes(self) -> int:
        return self.partitions * self.partition_bytes


def requests_of(rank: int, records: Iterable[Record]) -> list[Request]:
    """@return requests in the order of their creation. `records`: of one rank, on one clock, in order of begin"""
    requests: dict[int, Request] = {}
    later: list[Record] = []
    for record in records:
        if record.kind == Kind.REQUEST:
            flags = record.flags
            requests[record.request] = Request(rank, record.request, bool(flags & IS_SEND), bool(flags & IS_PARTITIONED),
                                               bool(flags & IS_NATIVE), record.a, record.b, record.value)
        elif record.kind == Kind.PAIR and record.request in requests:
            requests[record.request].partitions, requests[record.request].context = record.a, record.value
        elif record.kind == Kind.START and record.request in requests:
            requests[record.request].rounds.append(Round(Span(record.begin_ns, record.end_ns)))
        elif record.request in requests and record.kind in (Kind.READY, Kind.ARRIVED, Kind.WAIT):
            later.append(record)
    starts = {number: [each.start.begin_ns for each in request.rounds] for number, request in requests.items()}
    for record in later:
        index = bisect.bisect_right(starts[record.request], record.begin_ns) - 1
        if index >= 0:
            _add_to_round(requests[record.request].rounds[index], record)
    return [requests[number] for number in sorted(requests)]


def _add_to_round(current: Round, record: Record) -> None:
    if record.kind == Kind.READY:
        current.ready.append(Mark(record.a, record.b, record.begin_ns, record.end_ns, record.thread))
    elif record.kind == Kind.ARRIVED:
        label = LABELS[min(record.flags, len(LABELS) - 1)]
        current.arrivals.append(Arrival(record.a, record.b, record.begin_ns, record.end_ns, label))
    else:
        current.wait = Span(record.begin_ns, record.end_ns)


def match(requests: Iterable[Request]) -> None:
    """Match sends and receives: same communicator, ranks and tag, in the order of their creation (rule I2)."""
    queues: dict[tuple[object, ...], collections.deque[Request]] = collections.defaultdict(collections.deque)
    requests = list(requests)
    for request in requests:
        if not request.is_send and request.peer >= 0:
            queues[request.is_partitioned, request.context, request.peer, request.rank, request.tag].append(request)
    for request in requests:
        key = (request.is_partitioned, request.context, request.rank, request.peer, request.tag)
        if request.is_send and queues.get(key):
            request.other = queues[key].popleft()
            request.other.other = request


# --- rounds as traces (bench/measure/trace.hpp) -----------------------------------------------------------------------


class Transfer(NamedTuple):
    """A part of a message, from the time when its thread marks it ready to the time when the receiver sees it."""

    begin_ns: int
    end_ns: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class RoundTrace:
    """The events of one round. `labels`: the source of each transfer's end time."""

    transfers: tuple[Transfer, ...]
    arrivals_ns: tuple[int, ...]
    joined_ns: int
    labels: tuple[str, ...]


def spread(count: int, runs: Iterable[tuple[int, int, object]]) -> list[object]:
    """@return [count] the value of each partition; None where no run covers it. `runs`: (first, count, value); of several runs the first one counts"""
    spread: list[object] = [None] * count
    for first, length, what in runs:
        for index in range(max(first, 0), min(first + length, count)):
            if spread[index] is None:
                spread[index] = what
    return spread


def trace_of(send: Request, sent: Round, received: Round | None) -> RoundTrace | None:
    """@return None if the round was not recorded completely. Without the receiver's records, arrivals are modelled at the end of Pready."""
    marks = [mark for mark in spread(send.partitions, ((m.first, m.count, m) for m in sent.ready)) if isinstance(mark, Mark)]
    if len(marks) < send.partitions:
        return None
    receive = send.other
    seen: list[Arrival] = []
    if receive is not None and received is not None:
        runs = ((each.first, each.count, each) for each in received.arrivals)
        seen = [arrival for arrival in spread(receive.partitions, runs) if isinstance(arrival, Arrival)]
        if len(seen) < receive.partitions:
            return None
    transfers, labels = [], []
    for index, mark in enumerate(marks):
        over = _overlapping(index, send.partitions, seen)
        latest = max(over, key=lambda arrival: arrival.seen_ns, default=None)
        transfers.append(Transfer(mark.begin_ns, latest.seen_ns if latest else mark.end_ns, send.partition_bytes))
        labels.append(latest.label if latest else MODELLED)
    arrivals = tuple(arrival.seen_ns for arrival in seen) or tuple(transfer.end_ns for transfer in transfers)
    return RoundTrace(tuple(transfers), arrivals, max(mark.begin_ns for mark in marks), tuple(labels))


def _overlapping(index: int, count: int, seen: list[Arrival]) -> list[Arrival]:
    """Arrivals of the receive partitions that share a byte with send partition `index` of `count`."""
    first = index * len(seen) // count
    return seen[first : -(-(index + 1) * len(seen) // count)]


def traces_of(send: Request) -> list[RoundTrace]:
    """Traces of all rounds recorded on both sides, or on the sender's side alone without a receiver's file."""
    others: Iterable[Round | None] = send.other.rounds if send.other else itertools.repeat(None)
    traces = (trace_of(send, sent, received) for sent, received in zip(send.rounds, others))
    return [trace for trace in traces if trace is not None]


def exposed_ns(trace: RoundTrace) -> int:
    """From the last thread's end to the last arrival (bench/measure/metrics.hpp); negative if all parts arrived before."""
    return max(transfer.end_ns for transfer in trace.transfers) - trace.joined_ns


def early_bytes_share(trace: RoundTrace) -> float:
    """Bytes that arrived before the join over all bytes, 0 to 1; 0 without bytes."""
    total = sum(transfer.bytes for transfer in trace.transfers)
    return sum(transfer.bytes for transfer in trace.transfers if transfer.end_ns <= trace.joined_ns) / total if total else 0.0
