"""What sending early would save in a program that sends whole messages after its threads have joined (docs/user/prediction.md)."""

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

WORTH = 0.01  # of a step: less is nothing
RESAMPLES = 1000
KNOWN = 0.9  # of the time in which threads compute
CALLS_MAX = 0.1  # of a span may be calls of MPI: how much processor time they use is not known
LONG_NS = 200000  # of shorter spans a profile doesn't tell what they used: nobody sleeps there for long


@dataclasses.dataclass(frozen=True)
class Assumption:
    """`parts`: into which a message is split; 0: it stays whole. `last_wrote`: the last thread to finish wrote all of which it is not known. `own`: a
    thread waits for its own part only. The others are varied: the first thread needs the last part; threads share the cores; who waits goes on at once when
    its part is there; it needs the part not at once, but when it has done its work; it yields while it waits for it, or sleeps."""

    parts: int
    last_wrote: bool = False
    own: bool = True
    reversed_parts: bool = False
    shared: bool = True
    at_once: bool = True
    needed_late: bool = False
    yields: bool = False

    def opposites(self, knows_loads: bool) -> list[Assumption]:
        """Each with one assumption the other way round, but for `at_once`. @param knows_loads  the profile tells who sleeps"""
        names = ("reversed_parts", "needed_late", "yields") + (() if knows_loads else ("shared",))
        return [dataclasses.replace(self, **{name: not getattr(self, name)}) for name in names]


@dataclasses.dataclass(frozen=True)
class Saving:
    """Of a step or a round, which takes `of_ns`, with messages in so many parts. `interval_ns`: 95 % over all of them, and over what was assumed."""

    parts: int
    ns: float
    interval_ns: tuple[float, float]
    of_ns: float

    @property
    def is_nothing(self) -> bool:
        return self.ns < WORTH * self.of_ns

    @property
    def is_unsure(self) -> bool:
        """It may be nothing, or worse."""
        return self.interval_ns[0] <= 0


@dataclasses.dataclass(frozen=True)
class Written:
    """Shares of the bytes that go in parts, of which it is known which thread wrote them; of which these are those that would be assumed; of
    which the sender wrote some after the join."""

    known: float
    in_order: float
    after: float


@dataclasses.dataclass(frozen=True)
class Prediction:
    """`savings`: by number of parts, the best first. `misfit_ns`: how far a step of the replay is from the recorded one. `written`: of the best.
    `knows_loads`: the profile tells who sleeps and who computes."""

    step_ns: float
    steps: int
    misfit_ns: float
    savings: tuple[Saving, ...]
    sending_only_ns: float  # of the best, if every receive stays as it is
    last_wrote_ns: float  # of the best, if the last thread wrote all of which it is not known
    written: Written
    knows_loads: bool
    cores: tuple[int, ...]  # that threads share, each number once; empty: not known

    @property
    def best(self) -> Saving:
        return self.savings[0]


# --- as it was, and with partitions -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Span:
    """What a thread computes before an event. `load`, `asleep`: the shares of that time for which it had a core, and wanted none; None: it computed
    when it had a core. `is_known`: it's known which of these it is."""

    event: Event
    begin_ns: float
    end_ns: float
    is_known: bool = False
    load: float | None = None
    asleep: float = 0.0


class _Model:
    """One program, one table of costs. Recorded times become work and own times once, whatever is asked."""

    def __init__(self, program: Program, whole: Curve, part: Curve) -> None:
        self.program, self.whole, self.part = program, whole, part
        self.places = sorted(program.threads)
        given: dict[Signal, int] = {}
        for event in self._events():
            for signal in event.gives:
                given[signal] = max(event.begin_ns, given.get(signal, 0))
        self.own = {id(event): self._own_ns(event, given) for event in self._events()}
        self.number = {id(event): number for place in self.places for number, event in enumerate(program.threads[place])}
        self.spans = list(self._spans())
        last_ns = max((delivery.send.begin_ns for delivery in program.deliveries), default=0)
        counted = [span for span in self.spans if span.end_ns <= last_ns]
        known_ns = sum(span.end_ns - span.begin_ns for span in counted if span.is_known)
        self.knows_loads = known_ns > 0 and known_ns >= KNOWN * sum(span.end_ns - span.begin_ns for span in counted)
        self.sharings = (True,) if self.knows_loads else (True, False)
        self.work = {shared: self._work(program.cores if shared else {}) for shared in self.sharings}

    def _events(self) -> Iterable[Event]:
        return (event for place in self.places for event in self.program.threads[place])

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
        """What a thread computes from where it went on to where it tells what it used meanwhile."""
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
        """By event: for how long its thread computes before it, on a core alone, and sleeps before that."""
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
        """Of all threads, in the order of their places."""
        split = _Split(self, assumed)
        threads = [Thread(self.program.hosts[place[0]], self.program.threads[place][0].begin_ns,
                          tuple(operation for event in self.program.threads[place] for operation in split.operations(event))) for place in self.places]
        return replay(threads, self.program.cores if assumed.shared else {}, split.gathers)


class _Split:
    """How events change when messages go in parts: each part when those who wrote it have come to the join before the send."""

    def __init__(self, model: _Model, assumed: Assumption) -> None:
        self.model, self.assumed, self.program = model, assumed, model.program
        self.gathers = dict(model.program.gathers)
        self.parts: dict[int, int] = {}  # of a delivery; no entry: it stays whole
        self.given: dict[int, list[tuple[Signal, float]]] = collections.defaultdict(list)
        self.needed: dict[int, list[Signal]] = collections.defaultdict(list)
        self.first: dict[int, list[Signal]] = collections.defaultdict(list)  # what is needed before an event gives its signals
        self.extra: dict[int, float] = collections.defaultdict(float)
        self.own = dict(model.own)
        self.bytes: dict[str, float] = collections.defaultdict(float)  # that go in parts, and as Written says
        self.before: set[Meeting] = set()  # last join before a wait, and the one after it
        self.after: set[Meeting] = set()
        self.free: set[Meeting] = set()  # that nobody waits for any more
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
        """The message of a delivery leaves part by part: with the last of its writers."""
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
        """What the writers of a part come to when they have written it; none: not known."""
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
        """Joins before the waits, of ranks whose threads meet often enough without them: once a round they have to, so that one of
        them can complete it and start the next."""
        left: dict[int, int] = collections.Counter()
        for meeting, events in self.program.going.items():
            if len(events) > 1 and all(meeting in event.needs for event in events) and meeting not in self.before | self.after:
                left[meeting[1]] += 1
        rounds = collections.Counter(meeting[1] for meeting in self.before)
        return {meeting for meeting in self.before if left[meeting[1]] >= rounds[meeting[1]]}

    def _wait_apart(self, waits: Sequence[Event], members: Sequence[Event]) -> None:
        """Each of the threads that go on together waits for the parts that it shares bytes with."""
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
        """When it goes on there, or else before it meets the others again."""
        if not self.assumed.needed_late:
            self.needed[id(member)] += parts
            return
        events = self.program.threads[member.rank, member.thread]
        later = (event for event in events[self.model.number[id(member)] + 1:] if event.comes_to)
        for event in itertools.islice(later, 1):
            self.first[id(event)] += parts

    def operations(self, event: Event) -> tuple[Operation, Operation]:
        """The work before it, and the event."""
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
    """95 % interval of the mean of values drawn anew."""
    draw = random.Random(SEED)
    means = [statistics.fmean(draw.choices(values, k=len(values))) for _ in range(RESAMPLES)]
    return quantile(means, 0.025), quantile(means, 0.975)


class StuckError(Exception):
    """Why a replay did not come to its end."""


class Predictor:
    """@param marks  where each step of the program begins: (place, number of the event in its thread)"""

    def __init__(self, program: Program, marks: Sequence[tuple[Place, int]], costs: Costs) -> None:
        parts = (costs.part,) if costs.part else bounds(costs)
        self.models = [_Model(program, costs.whole, part) for part in parts]
        self.marks, self.program = marks, program

    def _steps(self, model: _Model, assumed: Assumption) -> list[float]:
        came = model.times(assumed).came_ns
        if any(len(came[model.places.index(place)]) <= 2 * number + 1 for place, number in self.marks):
            raise StuckError("in the replay threads wait for each other for ever: what holds them in the program is not all in the profile")
        at = [came[model.places.index(place)][2 * number + 1] for place, number in self.marks]
        return [after - before for before, after in itertools.pairwise(at)]

    def predict(self, threads: int) -> Prediction:
        """@param threads  that come to the joins before the sends: a message is split into at most so many parts
        @raises StuckError"""
        model = self.models[0]
        recorded = [self.program.threads[place][number].begin_ns for place, number in self.marks]
        step_ns = (recorded[-1] - recorded[0]) / (len(recorded) - 1)
        was = {(number, shared): self._steps(each, Assumption(0, shared=shared)) for number, each in enumerate(self.models)
               for shared in model.sharings}
        misfit_ns = max(abs(statistics.fmean(steps) - step_ns) for steps in was.values())

        def saved(assumed: Assumption, number: int = 0) -> list[list[float]]:
            """By step, twice: who waits goes on at once, and as late after as in the recorded run."""
            return [[before - after for before, after in zip(was[number, assumed.shared], self._steps(self.models[number], each))]
                    for each in (assumed, dataclasses.replace(assumed, at_once=False))]

        def varied(base: Assumption) -> list[float]:
            """Means over the steps, of all that may be."""
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
