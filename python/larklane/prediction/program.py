"""A recorded run as threads with events: meetings, sends, waits (docs/user/prediction.md)."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from larklane.prediction.replay import Signal
from larklane.profile.profile_file import Kind, RankFile, Record
from larklane.profile.team import UNKNOWN, Team
from larklane.profile.traffic import Delivery
from larklane.profile.writes import Writers

Place = tuple[int, int]  # rank, thread
Meeting = tuple[str, int, object]  # kind, rank, identity


@dataclasses.dataclass
class Event:
    """One action of a thread besides computing. `comes_to`: the meeting that the thread enters with its part done. `let_go_by`: the meeting that
    holds it until others have come. `sends`, `takes`: numbers of deliveries. `busy_ns`, `delayed_ns`: its processor time, and its wait for
    a core, since the thread's last event with a `busy_ns` that is not None; 0: not recorded. `number`: the thread's number in its team."""

    rank: int
    thread: int
    begin_ns: int
    end_ns: int
    comes_to: Meeting | None = None
    let_go_by: Meeting | None = None
    gives: list[Signal] = dataclasses.field(default_factory=list)
    needs: list[Signal] = dataclasses.field(default_factory=list)
    sends: list[int] = dataclasses.field(default_factory=list)
    takes: list[int] = dataclasses.field(default_factory=list)
    busy_ns: int | None = None
    delayed_ns: int = 0
    number: int = UNKNOWN


@dataclasses.dataclass
class Program:
    """`hosts`: by rank; processes bound to different cores count as different hosts. `gathers`: signals that several threads must give.
    `cores`: of each host; without an entry every thread has its own core. `writers`: known writers of deliveries, by number."""

    threads: dict[Place, list[Event]]
    deliveries: Sequence[Delivery]
    hosts: dict[int, int]
    gathers: dict[Signal, int]
    cores: Mapping[int, int] = dataclasses.field(default_factory=dict)
    writers: Mapping[int, Writers] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.coming: dict[Meeting, list[Event]] = collections.defaultdict(list)
        self.going: dict[Meeting, list[Event]] = collections.defaultdict(list)
        for place in sorted(self.threads):
            for event in self.threads[place]:
                if event.comes_to:
                    self.coming[event.comes_to].append(event)
                if event.let_go_by:
                    self.going[event.let_go_by].append(event)
        for events in (*self.coming.values(), *self.going.values()):
            events.sort(key=lambda event: event.number)


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Groups of processes that may use the same cores, by rank, and the number of these cores; no entry if unknown."""

    of_rank: dict[int, int]
    cores: dict[int, int]


def hosts_of(files: Iterable[RankFile]) -> Hosts:
    groups: list[tuple[int, set[int], list[int]]] = []  # clock, cores, ranks
    for file in files:
        cores, ranks = set(file.cores), [file.rank]
        for group in [group for group in groups if group[0] == file.clock_id and (not cores or not group[1] or group[1] & cores)]:
            groups.remove(group)
            cores |= group[1]
            ranks += group[2]
        groups.append((file.clock_id, cores, ranks))
    return Hosts({rank: number for number, (_, _, ranks) in enumerate(groups) for rank in ranks},
                 {number: len(cores) for number, (_, cores, _) in enumerate(groups) if cores})


def _at(rank: int, record: Record, begin_ns: int, end_ns: int) -> Event:
    """An event from which the thread goes on."""
    return Event(rank, record.thread, begin_ns, end_ns, busy_ns=0)


def _come(rank: int, record: Record, begin_ns: int, end_ns: int) -> Event:
    """An event with the processor time and the delay of the way to it."""
    return Event(rank, record.thread, begin_ns, end_ns, busy_ns=record.handle, delayed_ns=record.b)


def _barriers(rank: int, records: Iterable[Record]) -> Iterator[Event]:
    """All threads at a barrier come before the first one leaves."""
    meetings: dict[int, list[Record]] = collections.defaultdict(list)
    number: dict[int, int] = collections.Counter()
    for record in records:
        if record.kind == Kind.BARRIER:
            met = meetings[record.value]
            if any(record.thread == other.thread or record.begin_ns > other.end_ns for other in met):
                number[record.value] += 1
                met.clear()
            met.append(record)
            event = _come(rank, record, record.begin_ns, record.end_ns)
            event.comes_to = event.let_go_by = ("barrier", rank, (record.value, number[record.value]))
            event.gives, event.needs = [event.comes_to], [event.comes_to]
            yield event


def _regions(rank: int, records: Iterable[Record]) -> Iterator[Event]:
    """A region begins when its first thread comes, and ends when all of its parts have ended."""
    parts: dict[int, dict[int, Record]] = collections.defaultdict(dict)
    regions: dict[int, Record] = {}
    for record in records:
        if record.kind == Kind.MEMBER:
            parts[record.request][record.thread] = record
        elif record.kind == Kind.REGION:
            regions[record.request] = record
    for number, region in regions.items():
        fork, join = ("fork", rank, number), ("join", rank, number)
        first = _come(rank, region, region.begin_ns, region.begin_ns)
        first.gives, first.let_go_by = [fork], fork
        yield first
        for thread, part in parts[number].items():
            is_first = thread == region.thread
            begin = _at(rank, part, 0, part.begin_ns)
            if not is_first:
                begin.needs, begin.let_go_by = [fork], fork
            yield begin
            end = _come(rank, part, part.end_ns, region.end_ns if is_first else part.end_ns)
            end.gives, end.comes_to = [join], join
            if is_first:
                end.needs, end.let_go_by = [join], join
            yield end
        if region.thread not in parts[number]:  # LLVM's runtime does not report regions with one thread
            yield _at(rank, region, region.end_ns, region.end_ns)


def _joined(rank: int, records: Sequence[Record]) -> Iterator[Event]:
    """Threads that are created and joined. The joining thread counts as their creator."""
    created = [record for record in records if record.kind == Kind.THREAD]
    joins = [record for record in records if record.kind == Kind.JOIN]
    group, last_ns = 0, 0
    for join in joins:
        made = max((at for at, record in enumerate(created) if record.value == join.value and record.begin_ns <= join.end_ns), default=None)
        if made is None:
            yield _come(rank, join, join.begin_ns, join.end_ns)
            continue
        thread = created[made]
        group += thread.begin_ns > last_ns
        last_ns = join.end_ns
        meeting, fork, ended = ("threads", rank, group), ("made", rank, made), ("ended", rank, made)
        maker = Event(rank, join.thread, thread.begin_ns, thread.begin_ns)
        maker.gives = [fork]
        begin = _at(rank, thread, 0, thread.begin_ns)
        begin.needs = [fork]
        end = _come(rank, thread, thread.end_ns, thread.end_ns)
        end.gives, end.comes_to = [ended], meeting
        joiner = _come(rank, join, join.begin_ns, join.end_ns)
        joiner.needs, joiner.let_go_by = [ended], meeting
        yield from (maker, begin, end, joiner)


def _messages(deliveries: Sequence[Delivery]) -> Iterator[Event]:
    """One event per call, for all of its sends and receives."""
    calls: dict[tuple[int, int, int, int], Event] = {}

    def call(rank: int, thread: int, begin_ns: int, end_ns: int) -> Event:
        return calls.setdefault((rank, thread, begin_ns, end_ns), Event(rank, thread, begin_ns, end_ns))

    for number, (send, receive) in enumerate((each.send, each.receive) for each in deliveries):
        call(send.rank, send.thread, send.begin_ns, send.end_ns).sends.append(number)
        if receive.wait:
            call(receive.rank, receive.thread, receive.wait.begin_ns, receive.wait.end_ns).takes.append(number)
    yield from calls.values()


def _in_order(events: list[Event]) -> list[Event]:
    """Events by end; each begins no earlier than the end of the one before."""
    events.sort(key=lambda event: (event.end_ns, event.begin_ns))
    last_ns = 0
    for event in events:
        event.begin_ns = max(event.begin_ns, last_ns)
        event.end_ns = last_ns = max(event.end_ns, event.begin_ns)
    return events


def program_of(records: dict[int, list[Record]], deliveries: Sequence[Delivery], hosts: Hosts, end_ns: int) -> Program:
    """@param records  by rank, on one clock, in order of begin
    @param end_ns   later records are left out
    """
    threads: dict[Place, list[Event]] = collections.defaultdict(list)
    kept = [each for each in deliveries if each.send.begin_ns <= end_ns and each.receive.wait and each.receive.wait.begin_ns <= end_ns]
    for event in _messages(kept):
        threads[event.rank, event.thread].append(event)
    for rank, of_rank in records.items():
        until = [record for record in of_rank if record.begin_ns <= end_ns]
        team = Team(of_rank)
        for source in (_barriers, _regions, _joined):
            for event in source(rank, until):
                event.number = team.number(event.thread, event.begin_ns or event.end_ns)
                threads[event.rank, event.thread].append(event)
    ordered = {place: _in_order(events) for place, events in threads.items()}
    gathers = collections.Counter(signal for events in ordered.values() for event in events for signal in event.gives)
    for events in ordered.values():
        for event in events:
            event.needs = [signal for signal in event.needs if signal in gathers]
    return Program(ordered, kept, hosts.of_rank, dict(gathers), hosts.cores)
