#!/usr/bin/env python3
"""The savings of groups of partitions, in rounds small enough to be worked out on paper."""

import unittest

import golden  # noqa: F401  (finds the package)

from larklane.prediction.aggregation import REPLAYED_MAX, aggregation, completion_ns
from larklane.prediction.costs import Curve
from larklane.prediction.predictor import Saving
from larklane.profile.rounds import Mark, Request, Round, Span


def marks(*threads: tuple[int, ...]) -> list[Mark]:
    """Each thread calls Pready for the next partitions, at these times; a call takes nothing."""
    times = [(begin, thread) for thread, calls in enumerate(threads) for begin in calls]
    return [Mark(partition, 1, begin, begin, thread) for partition, (begin, thread) in enumerate(times)]


def send(rounds: list[list[Mark]], size: int = 10) -> Request:
    made = Request(0, 1, True, True, False, 1, 7, size, len(rounds[0]))
    made.rounds = [Round(Span(0, 1), ready, [], Span(900, 1000)) for ready in rounds]
    return made


class Completion(unittest.TestCase):
    """When all groups have arrived."""

    def test_one_thread(self) -> None:
        """Half of 100 is its own work: apart it calls at 0, 50, 100, 150; in pairs the second group is complete at 50."""
        ready = marks((0, 0, 0, 0))
        self.assertEqual([completion_ns(ready, size, 100, 0.5) for size in (1, 2, 4)], [250, 150, 100])

    def test_a_thread_each(self) -> None:
        """The last one is there 100 after its call, alone or in a group."""
        ready = marks((0,), (10,), (20,), (30,))
        self.assertEqual([completion_ns(ready, size, 100, 0.5) for size in (1, 2, 4)], [130, 130, 130])

    def test_time_between_calls_stays(self) -> None:
        """Computing, 40 long, goes on after the work of sending."""
        self.assertEqual(completion_ns([Mark(0, 1, 0, 5, 0), Mark(1, 1, 45, 46, 0)], 1, 100, 0.5), 0 + 50 + 40 + 100)

    def test_ranges(self) -> None:
        """MPI_Pready_range of all four is four calls without time between them."""
        self.assertEqual(completion_ns([Mark(0, 4, 7, 9, 0)], 2, 100, 1.0), 7 + 100 + 100)


class Saved(unittest.TestCase):
    """Of all rounds."""

    def test_small_partitions(self) -> None:
        """A message costs 100 at any size: all four at once."""
        found = aggregation([send([marks((0, 0, 0, 0))] * 3)], Curve(((1, 100),)))
        assert found
        self.assertEqual((found.rounds, found.best, found.best.is_nothing), (3, Saving(1, 150, (0, 300), 1000), False))

    def test_costs_that_grow_with_the_size(self) -> None:
        """Partitions sent early then save more than partitions sent together."""
        found = aggregation([send([marks((0, 0), (500, 500))])], Curve(((10, 10), (40, 40))))
        assert found
        self.assertTrue(found.best.is_nothing)
        self.assertLessEqual(found.best.ns, 0)

    def test_nothing_to_group(self) -> None:
        self.assertIsNone(aggregation([send([marks((0,))])], Curve(((1, 100),))))
        broken = send([marks((0, 0))])
        broken.rounds[0].wait = None
        self.assertIsNone(aggregation([broken], Curve(((1, 100),))))

    def test_many_rounds(self) -> None:
        """A part of them is replayed."""
        found = aggregation([send([marks((0, 0))] * REPLAYED_MAX)], Curve(((1, 100),)))
        assert found
        self.assertEqual(found.rounds, REPLAYED_MAX // 2)


if __name__ == "__main__":
    unittest.main()
