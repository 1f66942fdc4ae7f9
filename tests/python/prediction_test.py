#!/usr/bin/env python3
"""The savings of early sending in programs small enough to be worked out on paper; messages, steps and costs."""

import json
import tempfile
import unittest
from pathlib import Path

import golden

from larklane.prediction import costs
from larklane.prediction.costs import Costs, Curve
from larklane.prediction.predictor import Prediction, Predictor, StuckError, Written
from larklane.prediction.program import Event, Meeting, Program, hosts_of
from larklane.profile import traffic
from larklane.profile.phases import Message, Phase
from larklane.profile.profile_file import ClockSample, RankFile, cores_of
from larklane.profile.rounds import Span
from larklane.profile.team import UNKNOWN
from larklane.profile.traffic import Delivery, Receive
from larklane.profile.writes import AFTER, Page, Writers
from larklane.records.schema import RecordError


def message(rank: int, at: int, size: int = 8, tag: int = 1, phase: Phase | None = None) -> Message:
    return Message(rank, 1 - rank, tag, 9, size, at, at, 0, phase)


def receive(rank: int, begin: int, end: int, peer: int | None = None, tag: int = 1) -> Receive:
    return Receive(rank, 1 - rank if peer is None else peer, tag, 9, begin, Span(begin, end), 0, False)


def file_of(rank: int, clock: int, cores: set[int]) -> RankFile:
    none = ClockSample(0, 0, 0)
    return RankFile(Path("p"), rank, 5, False, 0, 1, clock, (none, none), "h", "j", "0.1", "MPI", "app", frozenset(cores), [], [])


class Pair:
    """Two ranks of two threads. In each step they compute (`times`, [rank][thread]) and meet; the first thread sends, waits for the
    message, which takes 50, and they meet again. `late`: by how much the wait ends, and they go on, later than they could. `load`: the shares of
    their time for which threads have a core, and wait for one; None: not recorded. `wrote`: by rank, the threads that wrote each quarter of its message."""

    STEPS = 6
    PART = Curve(((1, 20),))

    def __init__(self, times: tuple[tuple[int, int], tuple[int, int]], cores: int | None = None, part: Curve | None = PART,
                 late: tuple[int, int] = (0, 0), load: tuple[float, float] | None = None,
                 wrote: dict[int, tuple[set[int], ...]] | None = None) -> None:
        self.times, self.last, self.late, self.load = times, max(map(max, times)), late, load
        self.costs, self.cores = Costs(Curve(((1, 50),)), part, "by hand"), {0: cores} if cores else {}
        self.step_ns = self.last + 50 + sum(late)
        self.writers = {rank: Writers(8, tuple(Page(2 * at, 2 * at + 2, frozenset(numbers)) for at, numbers in enumerate(quarters) if numbers))
                        for rank, quarters in (wrote or {}).items()}

    def predict(self) -> Prediction:
        deliveries, threads = [], {(rank, thread): list[Event]() for rank in (0, 1) for thread in (0, 1)}
        for step in range(self.STEPS):
            at = step * self.step_ns
            for rank in (0, 1):
                sent = at + max(self.times[rank])
                deliveries.append(Delivery(message(rank, sent), receive(1 - rank, at + max(self.times[1 - rank]), sent + 50 + self.late[0])))
                for thread in (0, 1):
                    self.add(threads[rank, thread], rank, thread, at, step)
        gathers = {meeting: 2 for events in threads.values() for event in events if (meeting := event.comes_to)}
        writers = {2 * step + rank: self.writers[rank] for step in range(self.STEPS) for rank in self.writers}
        program = Program(threads, deliveries, {0: 0, 1: 0}, gathers, self.cores, writers)
        return Predictor(program, [((0, 0), 4 * step + 1) for step in range(self.STEPS)], self.costs).predict(2)

    def add(self, events: list[Event], rank: int, thread: int, at: int, step: int) -> None:
        def meet(name: str, begin: int, end: int, computed_ns: int = 0) -> Event:
            meeting: Meeting = ("barrier", rank, (name, step))
            busy_ns, delayed_ns = (None, 0) if self.load is None else (round(share * computed_ns) for share in self.load)
            return Event(rank, thread, begin, end, meeting, meeting, [meeting], [meeting], busy_ns=busy_ns, delayed_ns=delayed_ns, number=thread)

        joined, over = at + max(self.times[rank]), at + max(self.times[1 - rank]) + 50 + self.late[0]
        events.append(meet("first", at + self.times[rank][thread], joined, self.times[rank][thread]))
        if thread == 0:
            events.append(Event(rank, 0, joined, joined, sends=[2 * step + rank]))
            events.append(Event(rank, 0, joined, over, takes=[2 * step + 1 - rank]))
        events.append(meet("second", over if thread == 0 else joined, over + self.late[1]))


class Predicted(unittest.TestCase):
    """A partition costs its thread 10, and is there 10 later."""

    def test_of_a_pair(self) -> None:
        """In parts the slower thread takes 210, and no thread waits for its message: 40 of 250. In the other order the slow threads wait for each other (220);
        so does one that waits for all parts. The last thread alone pays for both, and all wait for it: 230, or 220 if the received data is needed late."""
        found = Pair(((100, 200), (200, 100))).predict()
        self.assertEqual((found.step_ns, found.steps, found.misfit_ns), (250, 5, 0))
        self.assertEqual([(saving.parts, saving.ns, saving.interval_ns) for saving in found.savings], [(2, 35, (30, 40))])
        self.assertEqual((found.sending_only_ns, found.last_wrote_ns, found.best.is_nothing, found.best.is_unsure), (30, 25, False, False))

    def test_waiting_threads(self) -> None:
        """They go on 20 + 30 late; with partitions at once (90 saved), or as late as before (40; in the other order 30)."""
        found = Pair(((100, 200), (200, 100)), late=(20, 30)).predict()
        self.assertEqual((found.step_ns, found.best.ns, found.best.interval_ns), (300, 60, (30, 90)))

    def test_who_is_waited_for_is_not_in_the_profile(self) -> None:
        """One of the two that meet."""
        meeting: Meeting = ("barrier", 0, "half")
        events = [Event(0, 0, 10, 20, meeting, meeting, [meeting], [meeting]), Event(0, 0, 30, 40), Event(0, 0, 50, 60)]
        program = Program({(0, 0): events}, [], {0: 0}, {meeting: 2})
        with self.assertRaisesRegex(StuckError, "wait for each other for ever"):
            Predictor(program, [((0, 0), 1), ((0, 0), 2)], Costs(Curve(((1, 50),)), None, "by hand")).predict(2)

    def test_parts_may_be_needed_late(self) -> None:
        """All are ready at 210 and there at 220; a thread that needs them only at the next join goes on at 210."""
        found = Pair(((200, 200), (200, 200))).predict()
        self.assertEqual((found.best.ns, found.best.interval_ns), (35, (30, 40)))

    def test_dear_partitions_save_nothing(self) -> None:
        found = Pair(((200, 200), (200, 200)), part=Curve(((1, 120),))).predict()
        self.assertLess(found.best.ns, 0)
        self.assertTrue(found.best.is_nothing)

    def test_less_than_a_hundredth_is_nothing(self) -> None:
        found = Pair(((99900, 100000), (100000, 99900))).predict()
        self.assertGreater(found.best.interval_ns[0], 0)
        self.assertTrue(found.best.is_nothing)

    def test_without_costs_of_partitions(self) -> None:
        """Between nothing, as if a partition took no time (50), and the cost of a whole message (25 to its thread)."""
        found = Pair(((100, 200), (200, 100)), part=None).predict()
        self.assertEqual(found.best.interval_ns, (0, 50))
        self.assertEqual((found.best.ns, found.best.is_nothing, found.best.is_unsure), (25, False, True))
        self.assertLessEqual(max(found.sending_only_ns, found.last_wrote_ns), found.best.ns)

    def test_cores_are_shared(self) -> None:
        """On one core all four compute all the time: no time is left in which a message could be early."""
        apart, shared = (Pair(((100, 200), (200, 100)), cores=cores).predict() for cores in (None, 1))
        self.assertEqual(shared.misfit_ns, 0)
        self.assertLess(shared.best.ns, apart.best.ns)

    def test_who_sleeps_takes_no_core(self) -> None:
        """Four threads on one core: the replay takes as long as the run if each slept almost all the time, or had a quarter of the core and
        waited for it; but not if each had all of it."""
        times = ((1000000, 1000000), (1000000, 1000000))
        asleep, awake, wrong = (Pair(times, cores=1, load=load).predict() for load in ((0.001, 0), (0.25, 0.75), (1, 0)))
        self.assertLess(asleep.misfit_ns, 5000)
        self.assertLess(awake.misfit_ns, 5000)
        self.assertGreater(wrong.misfit_ns, 2900000)

    def test_short_spans_are_known(self) -> None:
        """No thread sleeps for long in them, though nothing is recorded; of long ones it isn't known."""
        for times, knows in ((((100, 200), (200, 100)), True), (((100000, 900000), (900000, 100000)), False)):
            self.assertEqual(Pair(times, cores=1, load=(0, 0)).predict().knows_loads, knows)


class KnownWriters(unittest.TestCase):
    """The same pair if the writer of each part is known: the slow threads are rank 0's thread 1 and rank 1's thread 0."""

    def predict(self, *wrote: tuple[set[int], ...]) -> Prediction:
        return Pair(((100, 200), (200, 100)), wrote=dict(enumerate(wrote))).predict()

    def test_in_order(self) -> None:
        """As it is assumed without."""
        found, assumed = self.predict(*[({0}, {0}, {1}, {1})] * 2), Pair(((100, 200), (200, 100))).predict()
        self.assertEqual(found.written, Written(1, 1, 0))
        self.assertEqual((found.savings, found.sending_only_ns), (assumed.savings, assumed.sending_only_ns))

    def test_last_wrote_everything(self) -> None:
        found = self.predict(({1}, {1}, {1}, {1}), ({0}, {0}, {0}, {0}))
        self.assertEqual((found.best.ns, found.last_wrote_ns, found.written), (25, 25, Written(1, 0.5, 0)))

    def test_interleaved(self) -> None:
        """Each part has bytes of both threads: it leaves with the slower one."""
        found = self.predict(*[({0}, {1}, {0}, {1})] * 2)
        self.assertEqual((found.best.ns, found.written), (25, Written(1, 0, 0)))

    def test_reversed(self) -> None:
        """On rank 0 only. The part of its slow thread goes to rank 1's slow one, which in turn writes for the fast one: rank 1 is 10 behind, and no thread
        waits (40 saved); if the threads read in the other order, rank 0 is 10 behind from the second of five steps on (38).
        """
        found = self.predict(({1}, {1}, {0}, {0}), ({0}, {0}, {1}, {1}))
        self.assertEqual((found.best.interval_ns, found.written), ((38, 40), Written(1, 0.5, 0)))

    def test_written_after_the_join(self) -> None:
        """The first thread waits for the slow one (200), sends both parts (20), and both wait for 10 more. If the received data is needed late, only the
        first thread works for it, and the slow one goes on at 200.
        """
        found = Pair(((100, 200), (100, 200)), wrote=dict.fromkeys((0, 1), ({AFTER}, {AFTER}, {0}, {AFTER, 1}))).predict()
        self.assertEqual((found.best.interval_ns, found.written), ((20, 50), Written(1, 0, 1)))

    def test_partly(self) -> None:
        """Of the second half nothing is known: the second thread wrote it."""
        found, assumed = self.predict(*[({0}, {0}, set[int](), set[int]())] * 2), Pair(((100, 200), (200, 100))).predict()
        self.assertEqual((found.written, found.savings), (Written(0.5, 0.5, 0), assumed.savings))
        self.assertEqual(self.predict(*[({7}, {7}, {7}, {7})] * 2).written, Written(0, 0, 0))

    def test_pages_at_the_edge(self) -> None:
        """They count only for parts in which no page lies as a whole."""
        writers = Writers(8, (Page(1, 3, frozenset({0})), Page(3, 5, frozenset({5})), Page(5, 7, frozenset({1}))))
        self.assertEqual([writers.of_part(part, 2) for part in (0, 1)], [{0}, {1}])
        self.assertEqual([writers.of_part(part, 4) for part in range(4)], [{0}, {0, 5}, {5, 1}, {1}])
        half = Writers(8, (Page(0, 2, frozenset({0})), Page(2, 4, frozenset({UNKNOWN})), Page(4, 6, frozenset({1}))))
        self.assertEqual([half.of_part(part, 2) for part in (0, 1)], [frozenset(), {1}])


class Bound(unittest.TestCase):
    """Which processes share cores."""

    def test_cores(self) -> None:
        for text, cores in (("0-2,8", {0, 1, 2, 8}), ("5", {5}), ("", set()), ("0-2,1-", set()), ("0-999999999999", set())):
            self.assertEqual(cores_of(text), cores, text)

    def test_hosts(self) -> None:
        """On the first clock ranks 0 and 2, by way of rank 4's cores, and rank 1 apart; on the other one rank 3, without any record."""
        files = [file_of(rank, clock, cores) for rank, clock, cores in ((0, 1, {0, 1}), (1, 1, {5}), (2, 1, {2}), (3, 2, set()), (4, 1, {1, 2}))]
        hosts = hosts_of(files)
        self.assertEqual({frozenset(rank for rank in hosts.of_rank if hosts.of_rank[rank] == host): hosts.cores.get(host) for host in hosts.of_rank.values()},
                         {frozenset({0, 2, 4}): 3, frozenset({1}): 1, frozenset({3}): None})


class Traffic(unittest.TestCase):
    """Which send belongs to which receive, and which part repeats."""

    def test_in_order(self) -> None:
        sends = [message(0, 10), message(0, 20), message(0, 30, tag=2)]
        receives = [receive(1, 5, 40, tag=2), receive(1, 6, 41), receive(1, 7, 42)]
        found = traffic.matched(sends, receives)
        self.assertEqual([(each.send.begin_ns, each.receive.posted_ns) for each in found.deliveries], [(10, 6), (20, 7), (30, 5)])
        self.assertEqual(found.left_out, 0)

    def test_from_any_source(self) -> None:
        """It may have taken the message with the missing receive; those of the other tag are sure."""
        found = traffic.matched([message(0, 10), message(0, 20), message(0, 30, tag=2)],
                                [receive(1, 5, 40, peer=-3), receive(1, 6, 41), receive(1, 7, 42, tag=2)])
        self.assertEqual([each.send.tag for each in found.deliveries], [2])
        self.assertEqual(found.left_out, 3)

    def test_waiting(self) -> None:
        """Two receives of one call wait once."""
        self.assertEqual(traffic.waited_ns([receive(0, 5, 40), receive(0, 5, 40, tag=2), receive(0, 50, 60), receive(1, 1, 2)]), {0: 45, 1: 1})

    def test_steps(self) -> None:
        """A first message of another size, then two by two."""
        phases = [Phase(0, {0: at, 1: at}, at) for at in range(9)]
        sends = [message(0, 0, 99, phase=phases[0])]
        sends += [message(0, 10 * at + part, size, phase=phases[at]) for at in range(1, 9) for part, size in enumerate((8, 16))]
        self.assertEqual(traffic.period("abxyxyxyxy"), 2)
        self.assertEqual(traffic.period("abcdefgh"), 0)
        self.assertEqual([[each.begin_ns for each in step] for step in traffic.steps_of(sends)], [[0], *([10 * at, 10 * at + 1] for at in range(1, 9))])

    def test_sends_before_the_first_join_are_one_step(self) -> None:
        """Each step ends with a join of the threads, which send many messages in it; no join comes before the first step."""
        phases = [None, *(Phase(0, {0: 100 * at, 1: 100 * at}, 100 * at) for at in range(1, 9))]
        sends = [message(0, 100 * at + part, phase=phases[at]) for at in range(9) for part in range(16)]
        self.assertEqual([[each.begin_ns for each in step] for step in traffic.steps_of(sends)], [[100 * at + part for part in range(16)] for at in range(9)])
        alone = [message(0, at, size) for at, size in enumerate((8, 16) * 6)]
        self.assertEqual([len(step) for step in traffic.steps_of(alone)], [2] * 6)


class Known(unittest.TestCase):
    """The costs of messages and partitions."""

    def curve(self, *points: tuple[float, float]) -> list[float]:
        return [Curve(points).ns(size) for size in (0, 10, 15, 20, 40)]

    def test_curve(self) -> None:
        self.assertEqual(self.curve((10, 100), (20, 300)), [0, 100, 200, 300, 700])
        self.assertEqual(self.curve((10, 100)), [100] * 5)

    def test_from_a_record(self) -> None:
        def run(variant: str, way: str, *times: float) -> golden.Json:
            points = [golden.point(size, 1, golden.series(way, {"half_round_trip_ns": [time - 1, time, time + 5]})) for size, time in zip((8, 64, 512), times)]
            return golden.record("latency", *points, variant=variant)

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.json"
            file.write_text(json.dumps(golden.gathered(run("native", "join", 900, 400, 500), run("larklane", "partitioned", 300, 310, 700))))
            found = costs.read(file)
            self.assertEqual(found.whole.points, ((8, 400), (64, 400), (512, 500)))  # the first one was disturbed
            self.assertEqual((found.part, found.source), (Curve(((8, 300), (64, 310), (512, 700))), "bench.json"))
            file.write_text(json.dumps(run("native", "join", 1, 2, 3)))
            self.assertRaisesRegex(RecordError, "no latency of partitions under Larklane.*larklane bench latency", costs.read, file)

    def test_from_a_profile(self) -> None:
        """The quickest tenth of 30, 11 and 20."""
        found = costs.seen([Delivery(message(0, 10), receive(1, 5, 40)), Delivery(message(0, 50), receive(1, 60, 61)),
                            Delivery(message(0, 70), receive(1, 65, 90))])
        assert found
        self.assertEqual((found.whole.points, found.part), (((8, 12.8),), None))
        self.assertIsNone(costs.seen([Delivery(message(0, 50), receive(1, 30, 40))]))


if __name__ == "__main__":
    unittest.main()
