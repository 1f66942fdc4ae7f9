#!/usr/bin/env python3
"""Replays of programs small enough to be worked out on paper."""

import unittest

import golden  # noqa: F401  (finds the package)

from larklane.prediction.replay import Operation, Shares, Thread, Times, Waiting, rate, replay


def thread(*operations: Operation, host: int = 0, begin_ns: float = 0.0) -> Thread:
    return Thread(host, begin_ns, operations)


class Replay(unittest.TestCase):
    """When threads come and go on."""

    def run_all(self, *threads: Thread, cores: float = float("inf"), **gathers: int) -> Times:
        return replay(threads, {0: cores}, gathers)

    def test_a_meeting_ends_with_the_last(self) -> None:
        times = self.run_all(*(thread(Operation(work, (("met", 0.0),), ("met",), 2.0)) for work in (10.0, 30.0)), met=2)
        self.assertEqual((times.came_ns, times.went_ns), ([[10], [30]], [[32], [32]]))

    def test_a_message_is_on_its_way(self) -> None:
        times = self.run_all(thread(Operation(10, (("m", 5.0),)), Operation(4)), thread(Operation(3, needs=("m",), own_ns=1.0), Operation(1)))
        self.assertEqual((times.came_ns, times.went_ns), ([[10, 14], [3, 17]], [[10, 14], [16, 17]]))

    def test_a_message_that_is_there_is_not_waited_for(self) -> None:
        times = self.run_all(thread(Operation(10, (("m", 5.0),))), thread(Operation(40, needs=("m",), own_ns=2.0)))
        self.assertEqual(times.went_ns[1], [42])

    def test_a_part_leaves_with_its_last_writer(self) -> None:
        times = self.run_all(thread(Operation(10, (("part", 5.0),))), thread(Operation(20, (("part", 3.0),))), thread(Operation(0, needs=("part",))), part=2)
        self.assertEqual(times.went_ns[2], [25])

    def test_threads_share_cores(self) -> None:
        """Three on two cores: each has two thirds of one, until the shortest is done."""
        times = self.run_all(*(thread(Operation(work)) for work in (10.0, 20.0, 20.0)), cores=2)
        self.assertEqual(times.came_ns, [[15], [25], [25]])

    def test_hosts_have_cores_of_their_own(self) -> None:
        threads = [thread(Operation(10.0), host=host) for host in (0, 0, 1)]
        self.assertEqual(replay(threads, {0: 1.0, 1: 1.0}, {}).came_ns, [[20], [20], [10]])

    def test_who_waits_for_ever_ends_there(self) -> None:
        times = self.run_all(thread(Operation(1, needs=("never",)), Operation(1)), thread(Operation(7)))
        self.assertEqual((times.came_ns, times.went_ns), ([[1], [7]], [[], [7]]))

    def test_who_sleeps_takes_no_core(self) -> None:
        """Two on one core: 10 of sleep, then 4 of work, beside 10 and then 5 of work."""
        times = self.run_all(thread(Operation(4, sleep_ns=10.0)), thread(Operation(10), Operation(5)), cores=1)
        self.assertEqual(times.came_ns, [[18], [10, 19]])

    def test_begin(self) -> None:
        self.assertEqual(self.run_all(thread(Operation(5), begin_ns=100.0)).came_ns, [[105]])


class Shared(unittest.TestCase):
    """Work from recorded times."""

    def test_work(self) -> None:
        """0 to 10 two threads, to 20 three, to 30 one; on two cores."""
        intervals = [(0, 20), (0, 20), (10, 30)]
        shares = Shares(((*each, 1.0) for each in intervals), 2)
        for (begin, end), work in zip(intervals, (10 + 20 / 3, 10 + 20 / 3, 20 / 3 + 10)):
            self.assertAlmostEqual(shares.work_ns(begin, end), work)

    def test_replay_of_the_work_takes_the_recorded_time(self) -> None:
        intervals = [(0.0, 17.0), (0.0, 31.0), (5.0, 20.0), (9.0, 44.0)]
        shares = Shares(((*each, 1.0) for each in intervals), 2)
        times = replay([thread(Operation(shares.work_ns(*each)), begin_ns=each[0]) for each in intervals], {0: 2.0}, {})
        for (_, end), came in zip(intervals, times.came_ns):
            self.assertAlmostEqual(came[0], end)

    def test_who_waits(self) -> None:
        """One thread waits until 10, one computes meanwhile: alone, or beside a thread that takes its share of the core."""
        for waiting, came in ((Waiting.SLEEPS, 10), (Waiting.YIELDS, 10), (Waiting.POLLS, 15)):
            waits = thread(Operation(0, needs=("m",), waiting=waiting))
            sends = Thread(1, 0.0, (Operation(10, (("m", 0.0),)),))
            self.assertEqual(replay([waits, sends, thread(Operation(10))], {0: 1}, {}).came_ns[2], [came], waiting)

    def test_rate(self) -> None:
        """Four on two cores, two a core, two of them yield: in one of three ways the others are together, and have half a core each."""
        for cores, taking, yielding, expected in ((2, 2, 0, 1), (2, 3, 0, 2 / 3), (2, 1, 5, 1), (2, 2, 2, 1 - 1 / 6), (2, 4, 4, 0.5 * (1 - 1 / 70)),
                                                  (float("inf"), 9, 9, 1)):
            self.assertAlmostEqual(rate(cores, taking, yielding), expected)


if __name__ == "__main__":
    unittest.main()
