"""Read what `larklane profile` recorded: a folder with one file per rank (docs/profile.md), merged on one clock.

  python3 -m larklane.profile FOLDER                    what is in it
  python3 -m larklane.profile FOLDER --perfetto FILE    a trace for https://ui.perfetto.dev
  python3 -m larklane.profile FOLDER --otf2 FOLDER      an OTF2 archive (Vampir, Scalasca)
  python3 -m larklane.profile FOLDER --delays FILE      delays per thread, for `larklane bench --noise trace:FILE`

Times are integers, nanoseconds of the clock of rank 0's host. Exit status: 0, or 2 if there is nothing that can be read.
"""

from __future__ import annotations

import argparse
import bisect
import collections
import dataclasses
import itertools
import json
import pathlib
import statistics
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from larklane.profile_file import (
    IS_NATIVE, IS_PARTITIONED, IS_SEND, SUFFIX, Clock, Kind, ProfileError, RankFile, Record, aligned, clocks_of, read_file,
)

LABELS = ("observed", "observed", "bounded")  # by who saw it: the program's Parrived, Larklane in Wait, Larklane as Wait began
MODELLED = "modelled"
NATIVE = " (the MPI's own partitioned communication)"


class Mark(NamedTuple):
    """Pready of partitions first to first + count - 1."""

    first: int
    count: int
    begin_ns: int
    end_ns: int
    thread: int


class Arrival(NamedTuple):
    """Partitions that came after not_before_ns and were there at seen_ns."""

    first: int
    count: int
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
    """A persistent request. `peer` is a rank in MPI_COMM_WORLD, or negative (docs/profile.md)."""

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
    """In the order in which they were made. `records`: of one rank, aligned, by begin."""
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
    """Sends find their receives: same communicator, ranks and tag, in the order in which they were made (rule I2)."""
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
    """A part of a message, from when its thread has it ready to when the receiver knows that it is there."""

    begin_ns: int
    end_ns: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class RoundTrace:
    """What happened in one round. `labels`: how each transfer's end is known."""

    transfers: tuple[Transfer, ...]
    arrivals_ns: tuple[int, ...]
    joined_ns: int
    labels: tuple[str, ...]


def spread(count: int, runs: Iterable[tuple[int, int, object]]) -> list[object]:
    """[count] what each partition has; None where no run covers it. runs: (first, count, what), the first one counts."""
    spread: list[object] = [None] * count
    for first, length, what in runs:
        for index in range(max(first, 0), min(first + length, count)):
            if spread[index] is None:
                spread[index] = what
    return spread


def trace_of(send: Request, sent: Round, received: Round | None) -> RoundTrace | None:
    """None if the round was not recorded to its end. Without the receiver's side arrivals are modelled: at the end of Pready."""
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
    """Of all rounds that were recorded on both sides, or on the sender's alone if there is no receiver's file."""
    others: Iterable[Round | None] = send.other.rounds if send.other else itertools.repeat(None)
    traces = (trace_of(send, sent, received) for sent, received in zip(send.rounds, others))
    return [trace for trace in traces if trace is not None]


def exposed_ns(trace: RoundTrace) -> int:
    """From the last thread's end to the last arrival (bench/measure/metrics.hpp)."""
    return max(0, max(trace.arrivals_ns) - trace.joined_ns)


def early_bytes_share(trace: RoundTrace) -> float:
    """Bytes that arrived before the join over all bytes, 0 to 1."""
    total = sum(transfer.bytes for transfer in trace.transfers)
    return sum(transfer.bytes for transfer in trace.transfers if transfer.end_ns < trace.joined_ns) / total if total else 0.0


# --- programs without partitions: when threads finish, when messages go ------------------------------------------------


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
    """A send that is not partitioned, and the parallel phase before it."""

    rank: int
    peer: int
    tag: int
    bytes: int
    begin_ns: int
    end_ns: int
    thread: int
    phase: Phase | None

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
    """All who meet at a barrier are there before the first one leaves."""
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
    """Threads that are joined before others are created; by their order, as one may have left its number to the next."""
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
    """Of at least two threads each, by their end. `records`: aligned, by begin."""
    found = itertools.chain(_regions_of(rank, records), _barriers_of(rank, records), _joins_of(rank, records))
    return sorted((phase for phase in found if len(phase.finished_ns) > 1), key=lambda phase: phase.last_ns)


def messages_of(rank: int, records: Iterable[Record], requests: Iterable[Request], phases: list[Phase]) -> list[Message]:
    """Send, Isend and their like, and Start of persistent sends, by begin."""
    persistent = {request.number: request for request in requests if request.is_send and not request.is_partitioned}
    ends = [phase.last_ns for phase in phases]
    messages = []
    for record in records:
        request = persistent.get(record.request) if record.kind == Kind.START else None
        if record.kind != Kind.SEND and request is None:
            continue
        peer, tag, size = (request.peer, request.tag, request.bytes) if request else (record.a, record.b, record.value)
        before = bisect.bisect_right(ends, record.begin_ns)
        messages.append(Message(rank, peer, tag, size, record.begin_ns, record.end_ns, record.thread,
                                phases[before - 1] if before else None))
    return messages


# --- the whole profile ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Profile:
    """All ranks on one clock. `records`: by rank; `problems`: sentences for people."""

    files: list[RankFile]
    clocks: dict[int, Clock]
    records: dict[int, list[Record]]
    requests: list[Request]
    phases: list[Phase]
    messages: list[Message]
    problems: list[str]

    @property
    def clock_error_ns(self) -> int:
        """Times of two hosts may be apart by so much."""
        return max(clock.error_ns for clock in self.clocks.values())

    @property
    def sends(self) -> list[Request]:
        return [request for request in self.requests if request.is_send and request.is_partitioned]


def _check(files: list[RankFile]) -> list[str]:
    """What is missing. Raises ProfileError if the files don't belong together."""
    first = files[0]
    for file in files[1:]:
        if file.host == first.host and file.job != first.job:
            raise ProfileError(f"{file.path} and {first.path} are of different runs")
        if file.size != first.size:
            raise ProfileError(f"{file.path} is of {file.size} ranks, {first.path} of {first.size}: different runs")
    missing = sorted(set(range(first.size)) - {file.rank for file in files})
    problems = [f"rank {file.rank}: {problem}" for file in files for problem in file.problems]
    return problems + ([f"no file of rank {', '.join(map(str, missing))}"] if missing else [])


def load(folder: pathlib.Path | str) -> Profile:
    """Raises ProfileError if the folder holds no profile, or files of different runs, or one that is none."""
    folder = pathlib.Path(folder)
    paths = sorted(folder.glob(f"rank-*{SUFFIX}"))
    if not paths:
        raise ProfileError(f"{folder}: " + (f"no rank-*{SUFFIX} in it" if folder.is_dir() else "no such folder"))
    files = [read_file(path) for path in paths]
    clocks = clocks_of(files)
    problems = _check(files)
    others = len(list(folder.glob(f"*{SUFFIX}"))) - len(paths)
    if others:
        problems.append(f"{others} files of worlds that the program spawned are left out")
    records = {file.rank: list(aligned(file, clocks[file.clock_id])) for file in files}
    requests = [request for rank, of_rank in records.items() for request in requests_of(rank, of_rank)]
    match(requests)
    phases, messages = [], []
    for rank, of_rank in records.items():
        own = phases_of(rank, of_rank)
        phases += own
        messages += messages_of(rank, of_rank, (request for request in requests if request.rank == rank), own)
    return Profile(files, clocks, records, requests, phases, messages, problems)


def delays(profile: Profile) -> list[list[int]]:
    """[rounds][threads] how much later than the first each thread finished: its last Pready of a round of a partitioned
    send (by partition, if one thread makes all), else its end of the parallel phase before a message."""
    rows = []
    for send in profile.sends:
        for each in send.rounds:
            last: dict[int, int] = {}
            for mark in each.ready:
                last[mark.thread] = max(mark.begin_ns, last.get(mark.thread, 0))
            times = [last[thread] for thread in sorted(last)] if len(last) > 1 else [mark.begin_ns for mark in each.ready]
            if times:
                rows.append([time - min(times) for time in times])
    if not rows:
        phases = {id(message.phase): message.phase for message in profile.messages if message.phase}
        for phase in phases.values():
            times = [phase.finished_ns[thread] for thread in sorted(phase.finished_ns)]
            rows.append([time - min(times) for time in times])
    return rows


def write_delays(profile: Profile, path: pathlib.Path) -> int:
    """In the format of bench/measure/delay_trace.hpp. Raises ProfileError if there are none. Returns the rounds."""
    rows = delays(profile)
    if not rows:
        raise ProfileError("no round with threads in it: nothing to take delays from")
    path.write_text(json.dumps({"delays_ns": rows}) + "\n")
    return len(rows)


# --- for people -------------------------------------------------------------------------------------------------------


def _micro(values: Iterable[float]) -> str:
    values = list(values)
    return f"{statistics.median(values) / 1000:.1f}" if values else "-"


def _send_line(send: Request) -> str:
    traces = traces_of(send)
    labels = collections.Counter(label for trace in traces for label in trace.labels)
    seen = ", ".join(f"{name} {labels[name]}" for name in ("observed", "bounded", MODELLED) if labels[name])
    partitions = f"{send.partitions}/{send.other.partitions}" if send.other else f"{send.partitions}/?"
    early = f"{100 * statistics.median(map(early_bytes_share, traces)):.0f} %" if traces else "-"
    return (f"{send.rank:>5} {send.peer:>5} {send.tag:>6} {partitions:>9} {send.bytes:>12} {len(traces):>7} "
            f"{_micro(map(exposed_ns, traces)):>12} {early:>6}  {seen or '-'}{', native' if send.is_native else ''}")


def _message_lines(profile: Profile) -> Iterator[str]:
    groups: dict[tuple[int, int, int], list[Message]] = collections.defaultdict(list)
    for message in profile.messages:
        groups[message.rank, message.peer, message.bytes].append(message)
    for (rank, peer, size), messages in sorted(groups.items()):
        tags = {message.tag for message in messages}
        tag = str(tags.pop()) if len(tags) == 1 else "*"
        gaps = [gap for gap in (message.after_phase_ns for message in messages) if gap is not None]
        spread = [phase.last_ns - min(phase.finished_ns.values()) for phase in (m.phase for m in messages) if phase]
        threads = max((len(message.phase.finished_ns) for message in messages if message.phase), default=1)
        yield (f"{rank:>5} {peer:>5} {tag:>6} {size:>12} {len(messages):>7} {threads:>8} {_micro(spread):>11} {_micro(gaps):>14}")


def summary(profile: Profile) -> str:
    """Lines for people; times are medians over rounds, in microseconds."""
    first = profile.files[0]
    lines = [f"{first.program}: {len(profile.files)} of {first.size} ranks, {' '.join(first.mpi.split())}, Larklane {first.larklane}"
             f"{NATIVE if first.is_native else ''}"]
    if len(profile.clocks) > 1:
        lines.append(f"{len(profile.clocks)} hosts' clocks, aligned to {profile.clock_error_ns / 1000:.1f} us")
    lines += [f"note: {problem}" for problem in profile.problems]
    if profile.sends:
        lines += ["", f"{'rank':>5} {'peer':>5} {'tag':>6} {'S/R':>9} {'bytes':>12} {'rounds':>7} {'exposed us':>12} {'early':>6}"
                      "  arrivals"]
        lines += [_send_line(send) for send in profile.sends]
    if profile.messages:
        lines += ["", f"{'rank':>5} {'peer':>5} {'tag':>6} {'bytes':>12} {'sends':>7} {'threads':>8} {'spread us':>11} {'join to send':>14}"]
        lines += list(_message_lines(profile))
    if not profile.sends and not profile.messages:
        lines.append("no partitioned request and no message was recorded")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m larklane.profile", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--perfetto", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--otf2", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--delays", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        profile = load(options.folder)
        print(summary(profile))
        if options.perfetto:
            from larklane import perfetto  # noqa: PLC0415  here: it needs this module

            perfetto.write(profile, options.perfetto)
        if options.otf2:
            from larklane import otf2_file  # noqa: PLC0415  likewise

            otf2_file.write(profile, options.otf2)
        if options.delays:
            print(f"{options.delays}: {write_delays(profile, options.delays)} rounds")
    except (ProfileError, OSError) as error:
        print(f"larklane profile: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
