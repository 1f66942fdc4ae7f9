"""A profile as Chrome's trace format, which https://ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import itertools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from larklane.files import output_file
from larklane.profile.profile import Profile
from larklane.profile.profile_file import Kind, Record
from larklane.profile.rounds import Request, spread

Event = dict[str, Any]
ARRIVALS = 100000  # first row of arrivals: one row for each request, below the threads

NAMES = {
    Kind.START: "Start", Kind.READY: "Pready", Kind.WAIT: "Wait", Kind.SEND: "send", Kind.RECEIVE: "receive",
    Kind.REGION: "parallel region", Kind.MEMBER: "compute", Kind.BARRIER: "barrier", Kind.THREAD: "thread", Kind.JOIN: "join",
}


def title(record: Record) -> str:
    """ "Pready 3 to 5". The record's kind is in NAMES."""
    name = NAMES[Kind(record.kind)]
    if record.kind != Kind.READY:
        return name
    return f"{name} {record.a}" + (f" to {record.a + record.b - 1}" if record.b > 1 else "")


def _call(rank: int, record: Record, origin_ns: int) -> Event:
    args: dict[str, Any] = {}
    if record.kind in (Kind.SEND, Kind.RECEIVE):
        args = {"peer": record.a, "tag": record.b, "bytes": record.value}
    elif record.request:
        args = {"region" if record.kind in (Kind.REGION, Kind.MEMBER) else "request": record.request}
    return {"ph": "X", "name": title(record), "pid": rank, "tid": record.thread, "ts": (record.begin_ns - origin_ns) / 1000,
            "dur": max(record.end_ns - record.begin_ns, 1) / 1000, "args": args}


def _flows(send: Request, origin_ns: int, numbers: Iterator[int]) -> Iterator[Event]:
    """An arrow from each Pready to the arrival of its first partition, and the arrivals."""
    receive = send.other
    if receive is None:
        return
    row = ARRIVALS + receive.number
    for sent, received in zip(send.rounds, receive.rounds):
        ready = spread(send.partitions, ((mark.first, mark.count, mark) for mark in sent.ready))
        for arrival in received.arrivals:
            seen = (arrival.seen_ns - origin_ns) / 1000
            last = arrival.first + arrival.count - 1
            yield {"ph": "X", "name": f"arrived {arrival.first}" + (f" to {last}" if last != arrival.first else ""),
                   "pid": receive.rank, "tid": row, "ts": seen, "dur": 0.001,
                   "args": {"label": arrival.label, "not before": (arrival.not_before_ns - origin_ns) / 1000}}
            mark: Any = ready[arrival.first * send.partitions // receive.partitions]
            if mark is None:
                continue
            flow = {"cat": "partition", "name": "partition", "id": next(numbers)}
            yield {**flow, "ph": "s", "pid": send.rank, "tid": mark.thread, "ts": (mark.begin_ns - origin_ns) / 1000}
            yield {**flow, "ph": "f", "bp": "e", "pid": receive.rank, "tid": row, "ts": seen}


def _names(profile: Profile) -> Iterator[Event]:
    for file in profile.files:
        yield {"ph": "M", "name": "process_name", "pid": file.rank, "args": {"name": f"rank {file.rank} on {file.host}"}}
        for thread in sorted({record.thread for record in file.records}):
            yield {"ph": "M", "name": "thread_name", "pid": file.rank, "tid": thread, "args": {"name": f"thread {thread}"}}
    for request in profile.requests:
        if request.is_partitioned and not request.is_send:
            yield {"ph": "M", "name": "thread_name", "pid": request.rank, "tid": ARRIVALS + request.number,
                   "args": {"name": f"arrivals from {request.peer}, tag {request.tag}"}}


def events(profile: Profile) -> Iterator[Event]:
    origin_ns = min((record.begin_ns for records in profile.records.values() for record in records if record.begin_ns), default=0)
    yield from _names(profile)
    for rank, records in profile.records.items():
        for record in records:
            if record.kind in NAMES:
                yield _call(rank, record, origin_ns)
    numbers = itertools.count(1)
    for send in profile.sends:
        yield from _flows(send, origin_ns, numbers)


def write(profile: Profile, path: pathlib.Path) -> None:
    """Times are microseconds from the first record."""
    facts = {"program": profile.files[0].program, "mpi": profile.files[0].mpi, "clock error ns": profile.clock_error_ns}
    with output_file.whole(path) as out:
        out.write(('{"otherData": ' + json.dumps(facts) + ', "traceEvents": [\n').encode())
        for index, event in enumerate(events(profile)):
            out.write(((",\n" if index else "") + json.dumps(event)).encode())
        out.write(b"\n]}\n")
