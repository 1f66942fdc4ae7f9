"""Predicted saving of early sends in a program that sends whole messages after its threads have joined (docs/user/prediction.md)."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence

from larklane.numbers.stats import SEED, quantile
from larklane.prediction.costs import Costs, Curve, bounds
from larklane.prediction.program import Event, Meeting, Place, Program
from larklane.prediction.replay import Operation, Shares, Signal, Thread, Times, Waiting, replay
from larklane.profile.writes import AFTER, Writers

WORTH = 0.01  # of a step: a smaller saving counts as nothing
RESAMPLES = 1000
KNOWN = 0.9  # of the compute time: the share with known processor times
CALLS_MAX = 0.1  # of a span: the largest share of MPI calls, since their processor time is unknown
LONG_NS = 200000  # a profile has no processor time of shorter spans: no thread sleeps long in them


@dataclasses.dataclass(frozen=True)
class Assumption:
    """`parts`: number of parts of a message; 0: it stays whole. `last_wrote`: the last thread to finish wrote all bytes with unknown writers. `own`: a
    thread waits for its own part only. The prediction varies the others. `reversed_parts`: the first thread needs the last part. `shared`: threads share the
    cores. `at_once`: a waiting thread goes on as soon as its part arrives. `needed_late`: a thread needs its part after its work, not before.
    `yields`: a thread yields while it waits for its part, instead of sleeping."""

    parts: int
    last_wrote: bool = False
    own: bool = True
    reversed_parts: bool = False
    shared: bool = True
    at_once: bool = True
    needed_late: bool = False
    yields: bool = False

    def opposites(self, knows_loads: bool) -> list[Assumption]:
        """@return variants with one assumption inverted each, except `at_once`. @param knows_loads  the profile shows which threads sleep"""
        names = ("reversed_parts", "needed_late", "yields") + (() if knows_loads else ("shared",))
        return [dataclasses.replace(self, **{name: not getattr(self, name)}) for name in names]

    @property
    def plain(self) -> Assumption:
        """The same replay, described once: three fields say how a thread waits for its own part, so without `own` they change nothing."""
        return self if self.own else dataclasses.replace(self, reversed_parts=False, needed_late=False, at_once=True)


@dataclasses.dataclass(frozen=True)
class Saving:
    """Saving of a step or a round, which takes `of_ns`, with messages in `parts` parts.
    `interval_ns`: 95 % over all steps or rounds, and over the assumptions."""

    parts: int
    ns: float
    interval_ns: tuple[float, float]
    of_ns: float

    @property
    def is_nothing(self) -> bool:
        return self.ns < WORTH * self.of_ns

    @property
    def is_unsure(self) -> bool:
        """The saving may be nothing, or a loss."""
        return self.interval_ns[0] <= 0


@dataclasses.dataclass(frozen=True)
class Written:
    """Shares of the bytes that travel in parts. `known`: their writers are known. `in_order`: the known writers are the assumed ones.
    `after`: the sender wrote some of the part after the join."""

    known: float
    in_order: float
    after: float


@dataclasses.dataclass(frozen=True)
class Prediction:
    """`savings`: one for each number of parts, the best first. `misfit_ns`: difference of a replayed step from the recorded one. `written`: for the best.
    `knows_loads`: the profile shows which threads sleep and which compute."""

    step_ns: float
    steps: int
    misfit_ns: float
    savings: tuple[Saving, ...]
    sending_only_ns: float  # of the best, if receives do not change
    last_wrote_ns: float  # of the best, if the last thread wrote all bytes with unknown writers
    written: Written
    knows_loads: bool
    cores: tuple[int, ...]  # numbers of cores that threads share, each once; empty: unknown

    @property
    def best(self) -> Saving:
        return self.savings[0]


# --- as it was, and with partitions -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Span:
    """The time of a thread before an event. `load`, `asleep`: the shares of that time in which it had a core, and in which it slept. None: it computed
    whenever it had a core. `is_known`: the profile distinguishes these."""

    event: Event
    begin_ns: float
    end_ns: float
    is_known: bool = False
    load: float | None = None
    asleep: float = 0.0


class _Model:
    """One program with one table of costs. Recorded times become work and own times once, for all assumptions."""

    def __init__(self, program: Program, whole: Curve, part: Curve) -> None:
        self.program, self.whole, self.part = program, whole, part
        self.places = sorted(program.threads)
        given: dict[Signal, int] = {}
        for event in self._events():
            for signal in event.gives:
                given[signal] = max(event.begin_ns, given.get(signal, 0))
        self.own = {id(event): self._own_ns(event, given) for event in self._events()}
        self.later = self._next_meetings()
        self.spans = list(self._spans())
        last_ns = max((delivery.send.begin_ns for delivery in program.deliveries), default=0)
        counted = [span for span in self.spans if span.end_ns <= last_ns]
        known_ns = sum(span.end_ns - span.begin_ns for span in counted if span.is_known)
        self.knows_loads = known_ns > 0 and known_ns >= KNOWN * sum(span.end_ns - span.begin_ns for span in counted)
        self.sharings = (True,) if self.knows_loads else (True, False)
        self.work = {shared: self._work(program.cores if shared else {}) for shared in self.sharings}

    def _events(self) -> Iterable[Event]:
        return (event for place in self.places for event in self.program.threads[place])

    def _next_meetings(self) -> dict[int, Event | None]:
        """@return by event: the next event of its thread that comes to a meeting"""
        later: dict[int, Event | None] = {}
        for place in self.places:
            following: Event | None = None
            for event in reversed(self.program.threads[place]):
                later[id(event)] = following
                following = event if event.comes_to else following
        return later

    def _own_ns(self, event: Event, given: Mapping[Signal, int]) -> float:
        there = [float(event.begin_ns), *(given[signal] for signal in event.needs)]
        there += [self._sent_ns(number) + self.whole.ns(self.program.deliveries[number].send.bytes) for number in event.takes]
        return max(0.0, event.end_ns - max(there))

    def _sent_ns(self, number: int) -> float:
        return float(self.program.deliveries[number].send.begin_ns)

    def _spans(self) -> Iterable[_Span]:
        for place in self.places:
            events = self.program.threads[place]
            spans: list[_Span] = []
            for before, event in zip([None, *events], events):
                spans.append(_Span(event, before.end_ns if before else event.begin_ns, event.begin_ns))
                if event.busy_ns is not None:
                    yield from self._with_loads(spans, event)
                    spans = []
            yield from spans

    @staticmethod
    def _with_loads(spans: Sequence[_Span], told: Event) -> Iterable[_Span]:
        """The spans of a thread up to an event with its processor time, which covers all of them."""
        total_ns = sum(span.end_ns - span.begin_ns for span in spans)
        calls_ns = sum(span.event.end_ns - span.event.begin_ns for span in spans[:-1])
        if not told.busy_ns and total_ns + calls_ns < LONG_NS:
            return [dataclasses.replace(span, is_known=True) for span in spans]
        if not told.busy_ns or not total_ns or calls_ns > CALLS_MAX * total_ns:
            return spans
        load = min(1.0, told.busy_ns / total_ns)
        asleep = max(0.0, 1.0 - (told.busy_ns + told.delayed_ns) / total_ns)
        return [dataclasses.replace(span, is_known=True, load=load, asleep=asleep) for span in spans]

    def _work(self, cores: Mapping[int, int]) -> dict[int, tuple[float, float]]:
        """@return by event: its thread's compute time before it, alone on a core, and the sleep before that"""
        running: dict[int, list[tuple[float, float, float]]] = collections.defaultdict(list)
        for span in self.spans:
            running[self.program.hosts[span.event.rank]].append((span.begin_ns, span.end_ns, 1.0 if span.load is None else span.load))
        for event in self._events():
            if event.takes:
                running[self.program.hosts[event.rank]].append((event.begin_ns, event.end_ns, 1.0))
        shares = {host: Shares(intervals, cores.get(host, float("inf"))) for host, intervals in running.items()}
        work = {}
        for span in self.spans:
            span_ns = span.end_ns - span.begin_ns
            unknown_ns = shares[self.program.hosts[span.event.rank]].work_ns(span.begin_ns, span.end_ns)
            work[id(span.event)] = (unknown_ns, 0.0) if span.load is None else (span.load * span_ns, span.asleep * span_ns)
        return work

    def times(self, assumed: Assumption) -> Times:
        """@return the replayed times of all threads, in the order of their places"""
        split = _Split(self, assumed)
        threads = [Thread(self.program.hosts[place[0]], self.program.threads[place][0].begin_ns,
                          tuple(operation for event in self.program.threads[place] for operation in split.operations(event))) for place in self.places]
        return replay(threads, self.program.cores if assumed.shared else {}, split.gathers)


class _Split:
    """Events with messages in parts: each part leaves when its writers have come to the join before the send."""

    def __init__(self, model: _Model, assumed: Assumption) -> None:
        self.model, self.assumed, self.program = model, assumed, model.program
        self.gathers = dict(model.program.gathers)
        self.parts: dict[int, int] = {}  # by delivery; without an entry the message stays whole
        self.given: dict[int, list[tuple[Signal, float]]] = collections.defaultdict(list)
        self.needed: dict[int, list[Signal]] = collections.defaultdict(list)
        self.first: dict[int, list[Signal]] = collections.defaultdict(list)  # signals needed before an event gives its own
        self.extra: dict[int, float] = collections.defaultdict(float)
        self.own = dict(model.own)
        self.bytes: dict[str, float] = collections.defaultdict(float)  # bytes that travel in parts, and those that Written counts
        self.before: set[Meeting] = set()  # last joins before waits; `after`: first joins after waits
        self.after: set[Meeting] = set()
        self.free: set[Meeting] = set()  # joins that no thread waits for any more
        if assumed.parts:
            for place in model.places:
                self._split_sends(self.program.threads[place])
            for place in model.places:
                self._split_receives(self.program.threads[place])
        self.free = self.after | self._joins_too_many()

    def _split_sends(self, events: Sequence[Event]) -> None:
        join: Meeting | None = None
        for event in events:
            if event.let_go_by and len(self.program.coming[event.let_go_by]) > 1:
                join = event.let_go_by
            if join:
                for number in event.sends:
                    self._give(number, event, self.program.coming[join])

    def _give(self, number: int, send: Event, members: Sequence[Event]) -> None:
        """Send the message of a delivery in parts: each part leaves with the last of its writers."""
        size = self.program.deliveries[number].send.bytes
        count = self.parts[number] = min(self.assumed.parts, len(members))
        cost_ns = self.model.part.ns(size / count)
        last = max(members, key=lambda event: event.begin_ns)
        for part in range(count):
            signal = ("part", number, part)
            assumed = [each for at, each in enumerate(members) if at * count // len(members) == part]
            known = self._known(self.program.writers.get(number), part, count, send, members)
            mine = known or ([last] if self.assumed.last_wrote else assumed)
            self.bytes["all"] += size / count
            self.bytes["known"] += size / count if known else 0
            self.bytes["in_order"] += size / count if known == assumed else 0
            self.bytes["after"] += size / count if send in known else 0
            self.gathers[signal] = len(mine)
            for event in mine:
                self.given[id(event)].append((signal, cost_ns / 2))
            self.extra[id(max(mine, key=lambda event: event.begin_ns))] += cost_ns / 2

    @staticmethod
    def _known(writers: Writers | None, part: int, count: int, send: Event, members: Sequence[Event]) -> list[Event]:
        """@return the events to which a part's writers come after writing it; empty if unknown"""
        by_number = {member.number: member for member in members}
        if writers is None or len(by_number) < len(members):
            return []
        by_number = {0: send, **by_number, AFTER: send}
        numbers = sorted(writers.of_part(part, count))
        if not all(number in by_number for number in numbers):
            return []
        return list({id(event): event for event in map(by_number.__getitem__, numbers)}.values())

    def _split_receives(self, events: Sequence[Event]) -> None:
        before: Meeting | None = None
        waits: list[Event] = []
        for event in events:
            if any(number in self.parts for number in event.takes):
                waits.append(event)
            if not event.let_go_by or len(self.program.going[event.let_go_by]) < 2:
                continue
            if self.assumed.own and waits:
                self._wait_apart(waits, self.program.going[event.let_go_by])
                self.before.update(filter(None, (before,)))
                self.after.update(filter(None, (event.let_go_by if event.let_go_by in event.needs else None,)))
                waits = []
            before = event.let_go_by if event.let_go_by in event.needs else None
        for event in waits if self.assumed.own else (each for each in events if each.takes):
            for number in event.takes:
                self.needed[id(event)] += [("part", number, part) for part in range(self.parts.get(number, 0))]

    @property
    def written(self) -> Written:
        total = max(self.bytes["all"], 1)
        return Written(*(self.bytes[name] / total for name in ("known", "in_order", "after")))

    def _joins_too_many(self) -> set[Meeting]:
        """Joins before the waits, in ranks with enough other meetings of their threads. They must meet once a round, so that one
        thread can complete it and start the next."""
        left: dict[int, int] = collections.Counter()
        for meeting, events in self.program.going.items():
            if len(events) > 1 and all(meeting in event.needs for event in events) and meeting not in self.before | self.after:
                left[meeting[1]] += 1
        rounds = collections.Counter(meeting[1] for meeting in self.before)
        return {meeting for meeting in self.before if left[meeting[1]] >= rounds[meeting[1]]}

    def _wait_apart(self, waits: Sequence[Event], members: Sequence[Event]) -> None:
        """Let each thread that leaves the join wait for the parts that contain its bytes."""
        for wait in waits:
            for number in wait.takes:
                count = self.parts.get(number, 0)
                for at, member in enumerate(members):
                    place = len(members) - 1 - at if self.assumed.reversed_parts else at
                    first, last = place * count // len(members), -(-(place + 1) * count // len(members))
                    self._need(member, [("part", number, part) for part in range(first, last)])
            for member in () if self.assumed.at_once else members:
                self.own[id(member)] += self.model.own[id(wait)]
            self.own[id(wait)] = 0.0

    def _need(self, member: Event, parts: Sequence[Signal]) -> None:
        """Need the parts when the member goes on, or, with `needed_late`, before it meets the others again."""
        if not self.assumed.needed_late:
            self.needed[id(member)] += parts
            return
        later = self.model.later[id(member)]
        if later is not None:
            self.first[id(later)] += parts

    def operations(self, event: Event) -> tuple[Operation, Operation]:
        """@return the work before the event, and the event itself"""
        whole = [number for number in event.sends if number not in self.parts]
        gives = [(signal, 0.0) for signal in event.gives] + self.given[id(event)]
        gives += [(("message", number), self.model.whole.ns(self.program.deliveries[number].send.bytes)) for number in whole]
        needs = [] if event.let_go_by in self.free else list(event.needs)
        needs += [("message", number) for number in event.takes if number not in self.parts] + self.needed[id(event)]
        is_gone = event.let_go_by in self.free and (self.assumed.at_once or event.let_go_by not in self.after)
        own_ns = 0.0 if is_gone or (event.sends and not whole and not event.takes) else self.own[id(event)]
        work_ns, sleep_ns = self.model.work[self.assumed.shared][id(event)]
        work_ns += self.extra[id(event)]
        first, apart = tuple(self.first[id(event)]), Waiting.YIELDS if self.assumed.yields else Waiting.SLEEPS
        polls = any(number not in self.parts for number in event.takes)
        waiting = Waiting.POLLS if polls else apart if self.needed[id(event)] else Waiting.SLEEPS
        return Operation(work_ns, needs=first, sleep_ns=sleep_ns, waiting=apart), Operation(0.0, tuple(gives), tuple(needs), own_ns, waiting=waiting)


# --- per step ---------------------------------------------------------------------------------------------------------


def _bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of resampled values."""
    draw = random.Random(SEED)
    means = [statistics.fmean(draw.choices(values, k=len(values))) for _ in range(RESAMPLES)]
    return quantile(means, 0.025), quantile(means, 0.975)


class StuckError(Exception):
    """The reason why a replay did not end."""


class Predictor:
    """@param marks  begins of the program's steps: (place, number of the event in its thread)"""

    def __init__(self, program: Program, marks: Sequence[tuple[Place, int]], costs: Costs) -> None:
        parts = (costs.part,) if costs.part else bounds(costs)
        self.models = [_Model(program, costs.whole, part) for part in parts]
        self.marks, self.program = marks, program
        self.replayed: dict[tuple[int, Assumption], list[float]] = {}

    def _steps(self, model: _Model, assumed: Assumption) -> list[float]:
        """@return the times of the steps; replays each assumption once"""
        key = (self.models.index(model), assumed.plain)
        if key not in self.replayed:
            self.replayed[key] = self._replayed_steps(model, assumed.plain)
        return self.replayed[key]

    def _replayed_steps(self, model: _Model, assumed: Assumption) -> list[float]:
        came = model.times(assumed).came_ns
        if any(len(came[model.places.index(place)]) <= 2 * number + 1 for place, number in self.marks):
            raise StuckError("in the replay threads wait for each other for ever: what holds them in the program is not all in the profile")
        at = [came[model.places.index(place)][2 * number + 1] for place, number in self.marks]
        return [after - before for before, after in itertools.pairwise(at)]

    def predict(self, threads: int) -> Prediction:
        """@param threads  number of threads at the joins before the sends, and the largest number of parts of a message
        @raises StuckError"""
        model = self.models[0]
        recorded = [self.program.threads[place][number].begin_ns for place, number in self.marks]
        step_ns = (recorded[-1] - recorded[0]) / (len(recorded) - 1)
        was = {(number, shared): self._steps(each, Assumption(0, shared=shared)) for number, each in enumerate(self.models)
               for shared in model.sharings}
        misfit_ns = max(abs(statistics.fmean(steps) - step_ns) for steps in was.values())

        def saved(assumed: Assumption, number: int = 0) -> list[list[float]]:
            """@return savings by step, twice: a waiting thread goes on at once, or as late as in the recorded run"""
            return [[before - after for before, after in zip(was[number, assumed.shared], self._steps(self.models[number], each))]
                    for each in (assumed, dataclasses.replace(assumed, at_once=False))]

        def varied(base: Assumption) -> list[float]:
            """@return means over the steps, for all varied assumptions"""
            return [statistics.fmean(steps) for number in range(len(self.models)) for each in (base, *base.opposites(model.knows_loads))
                    for steps in saved(each, number)]

        def middle(base: Assumption) -> float:
            means = varied(base)
            return (min(means) + max(means)) / 2

        savings = []
        for parts in sorted({min(1 << power, threads) for power in range(1, threads.bit_length() + 1)}):
            base = Assumption(parts)
            means = varied(base)
            low, high = _bootstrap([statistics.fmean(pair) for pair in zip(*saved(base))])
            savings.append(Saving(parts, (min(means) + max(means)) / 2, (min(low, *means) - misfit_ns, max(high, *means) + misfit_ns), step_ns))
        savings.sort(key=lambda saving: -saving.ns)
        best = Assumption(savings[0].parts)
        return Prediction(step_ns, len(recorded) - 1, misfit_ns, tuple(savings),
                          middle(dataclasses.replace(best, own=False)),
                          middle(dataclasses.replace(best, last_wrote=True)), _Split(model, best).written,
                          model.knows_loads, tuple(sorted(set(self.program.cores.values()))))
