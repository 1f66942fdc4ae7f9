#!/usr/bin/env python3
"""A report of profiles made up by hand: its text, page and drawings."""

import csv
import json
import sys
import unittest
from pathlib import Path

import golden
from report_test import Folder

sys.path.insert(0, str(golden.ROOT / "tests/unit"))
import profile_reader_test as files  # noqa: E402

from larklane.figures import patterns  # noqa: E402
from larklane.profile.profile_file import Kind  # noqa: E402

try:
    import matplotlib
except ImportError:
    matplotlib = None  # type: ignore[assignment]

STEPS, STEP_NS = 12, 1_000_000


def joined(rank: int, late_ns: int, packs_ns: int, flags: int, steps: int = STEPS, told: int = 0) -> list[tuple[int, list[bytes]]]:
    """In each step two threads compute, the second longer; they meet at a barrier; the first one packs, sends 64 KiB, waits, and they meet again.

    @param told  of so many steps it is known that they had a core all the time
    """
    first, second = [], []
    for step in range(1, steps + 1):
        at = step * STEP_NS
        met, sent, over = at + late_ns, at + late_ns + packs_ns, at + late_ns + packs_ns + 200_000
        busy_ns = STEP_NS if step <= told else 0
        first += [files.record(Kind.BARRIER, at + 100_000, met, handle=busy_ns), files.record(Kind.RECEIVE, sent - 2, sent - 1, 65536, 77, 1 - rank, 5, 9),
                  files.record(Kind.SEND, sent, sent + 1000, 65536, 78, 1 - rank, 5, 9), files.record(Kind.WAIT, sent + 1000, over, handle=77, flags=flags),
                  files.record(Kind.BARRIER, over, over + 10)]
        second += [files.record(Kind.BARRIER, met, met, handle=busy_ns), files.record(Kind.BARRIER, met + 10, over + 10)]
    return [(0, first), (1, second)]


def numbered(first: int, chunks: list[tuple[int, list[bytes]]], writes: list[bytes]) -> list[tuple[int, list[bytes]]]:
    """All in one OpenMP region, in which the thread that begins it is the `first` of the file."""
    end = (STEPS + 1) * STEP_NS
    region = [files.record(Kind.REGION, 1, end + 2, request=1)]
    return [(first if number == 0 else 1 - first, records + [files.record(Kind.MEMBER, 2 + number, end, a=number + 1, request=1)] +
             (region + writes if number == 0 else [])) for number, records in chunks]


def writes_of(*writers: int, late_ns: int = 0) -> list[bytes]:
    """Before each send of joined(600_000, 200) the threads of the file write 16 pages, each of these as many after the other; the first time the others do."""
    records = []
    for at in range(STEP_NS, (STEPS + 1) * STEP_NS, STEP_NS):
        records.append(files.record(Kind.BUFFER, at + 600_200, at + 600_200, 65536, 4096))
        for page in range(16):
            thread = writers[page * len(writers) // 16] ^ (at == STEP_NS)
            records.append(files.record(Kind.WRITE, at + late_ns + page, at + late_ns + page, 4096 * (page + 1), a=4096, b=thread))
    return records


class Profiles(Folder):
    """Folders of `larklane profile` among the files of a report."""

    def whole(self, late_ns: int = 600_000, packs_ns: int = 10, flags: int = 0) -> Path:
        folder = self.folder / "whole"
        folder.mkdir()
        for rank in (0, 1):
            files.write(folder, rank, joined(rank, late_ns, packs_ns, flags))
        return folder

    def pair(self, name: str, first: int, *writers: int, late_ns: int = 0) -> Path:
        folder = self.folder / name
        folder.mkdir()
        for rank in (0, 1):
            files.write(folder, rank, numbered(first, joined(rank, 600_000, 200, 0), writes_of(*writers, late_ns=late_ns) if writers else []))
        return folder

    def partitioned(self) -> Path:
        folder = self.folder / "parts"
        folder.mkdir()
        files.write(folder, 0, files.SENDER)
        files.write(folder, 1, files.receiver(0))
        return folder

    def costs(self) -> Path:
        def run(variant: str, way: str, times: tuple[float, float]) -> golden.Json:
            points = (golden.point(size, 1, golden.series(way, {"half_round_trip_ns": [time] * 3})) for size, time in zip((8, 65536), times))
            return golden.record("latency", *points, variant=variant)

        path = self.folder / "bench.json"
        path.write_text(json.dumps(golden.gathered(run("native", "join", (1e3, 200e3)), run("larklane", "partitioned", (1e3, 199e3)))))
        return path

    def test_saving(self) -> None:
        """Half of the message leaves 500 µs before the join; the other half's 100 µs, not 200, are waited for."""
        status, out, err = self.command(self.whole(), "--text", "--costs", self.costs())
        self.assertEqual((status, err), (0, ""))
        self.assertIn("Sending early would save", out)
        self.assertIn("of a step of 1.00 ms (9 steps)", out)
        self.assertRegex(out, r"save (9\d\.\d|1\d\d) µs")
        self.assertIn("Waiting in receives, per step: rank 0 199 µs, rank 1 199 µs.", out)
        self.assertNotIn("packed", out)
        self.assertIn("threads share 8 cores", out)

    def test_replay_of_what_is_known(self) -> None:
        """Of 60 of 100 steps the threads' use of cores is recorded: half of all are replayed; with a record of 20, too few."""
        for told, replayed in ((60, 49), (20, 97)):
            with self.subTest(told=told):
                folder = self.folder / f"told-{told}"
                folder.mkdir()
                for rank in (0, 1):
                    files.write(folder, rank, joined(rank, 600_000, 10, 0, steps=100, told=told))
                _, out, _ = self.command(folder, "--text", "--costs", self.costs())
                self.assertIn(f"of a step of 1.00 ms ({replayed} steps)", out)
                self.assertEqual("sleep when they use none" in out, replayed < 97)

    def test_one_thread(self) -> None:
        folder = self.folder / "one"
        folder.mkdir()
        for rank in (0, 1):
            files.write(folder, rank, joined(rank, 600_000, 10, 0)[:1])
        _, out, _ = self.command(folder, "--text", "--costs", self.costs())
        self.assertIn("Sending early would save nothing: no threads meet before the messages", out)
        for rank in (0, 1):
            files.write(folder, rank, [*joined(rank, 600_000, 10, 0)[:1], (1, [files.record(Kind.THREAD, 100, 10**8)])])
        _, out, _ = self.command(folder, "--text", "--costs", self.costs())
        self.assertIn("can't be said: the program has several threads, and they meet nowhere that can be seen", out)

    def test_without_costs(self) -> None:
        status, out, _ = self.command(self.whole(), "--text")
        self.assertEqual(status, 0)
        self.assertIn("What a partition costs is not known", out)
        self.assertIn("Costs of messages: the profile.", out)

    def test_share_of_calls_and_rule_of_icpp22(self) -> None:
        """Each of 12 steps has calls of 1 + 1000 + 199,000 ns, in a run of 20 ms; twice as fast they leave 1 / (1 - 0.12 + 0.06)."""
        folder = self.folder / "calls"
        folder.mkdir()
        for rank in (0, 1):
            files.write(folder, rank, joined(rank, 600_000, 10, 0), end=20_000_000)
        _, out, _ = self.command(folder, "--text")
        self.assertIn("Calls that send, receive and complete messages take 12 % of the ranks' time.\n", out)
        _, out, _ = self.command(folder, "--text", "--speedup", "2")
        self.assertIn("take 12 % of the ranks' time. If they were 2 times as fast, the program would be 1.06 times as fast", out)

    def test_packed(self) -> None:
        _, out, _ = self.command(self.whole(packs_ns=300_000), "--text", "--costs", self.costs())
        self.assertIn("they are probably packed", out)

    def test_nothing_can_be_said(self) -> None:
        folder = self.whole()
        (folder / "rank-00001.larkprof").write_bytes(b"")
        status, out, _ = self.command(folder, "--text", "--costs", self.costs())
        self.assertEqual(status, 0)
        self.assertIn("can't be said: no message could be matched with its receive", out)
        self.assertIn("note: ", out)
        self.assertIn("no file of rank 1", out)

    def test_tests_say_nothing_of_waiting(self) -> None:
        _, out, _ = self.command(self.whole(flags=1), "--text", "--costs", self.costs())
        self.assertIn("can't be said: receives are completed by tests", out)

    def test_partitioned(self) -> None:
        _, out, _ = self.command(self.partitioned(), "--text")
        self.assertIn("4 / 2", out)
        self.assertIn("100 ns", out)
        self.assertNotIn("Sending early would", out)
        self.assertIn("What aggregation would save can't be said: what a partition costs is not known", out)

    def test_aggregation(self) -> None:
        """Thread 0 gives partitions 0 and 1 at 200, and works for half of 1 µs after the first; in one group it doesn't."""
        _, out, _ = self.command(self.partitioned(), "--text", "--costs", self.costs())
        self.assertRegex(out, r"What aggregation saves: the best groups\n.*\n +4 +10 B +1 +\d +")
        self.assertRegex(out, "Aggregation (would save nothing|(would|may) save .* of a round of 850 ns)")

    def test_writers(self) -> None:
        """Two messages of three pages: one is written by thread 0, then 1; one by thread 1, then 0, in another order than theirs."""
        folder = self.folder / "writes"
        folder.mkdir()
        records = []
        for at, threads in ((100, (0, 0, 1)), (200, (1, 0, 0))):
            records += [files.record(Kind.WRITE, at + page, at + page, 4096 * (page + 1), a=4096, b=thread) for page, thread in enumerate(threads)]
            records += [files.record(Kind.BUFFER, at + 10, at + 10, 12288, 4096), files.record(Kind.SEND, at + 10, at + 11, 12288, a=1, b=1)]
        files.write(folder, 0, [(0, records)])
        _, out, _ = self.command(folder, "--text")
        self.assertRegex(out, r"Who wrote what was sent.*\n.*\n  0     12 KiB  2      2        100 %               50 %")

    def test_known_writers(self) -> None:
        """In the first run the numbers of the file are the other way round, and in one of the second ones."""
        profile, costs = self.pair("p", 1), self.costs()
        _, assumed, _ = self.command(profile, "--text", "--costs", costs)
        self.assertIn("If the last thread to finish writes everything", assumed)
        for name, first, writers, in_order in (("ordered", 0, (0, 1), 100), ("renamed", 1, (1, 0), 100), ("reversed", 0, (1, 0), 0), ("all", 0, (1, 1), 50),
                                               ("mixed", 0, (0, 1, 0, 1), 0)):
            status, out, err = self.command(profile, "--text", "--costs", costs, "--writes", self.pair(name, first, *writers))
            self.assertEqual((status, err), (0, ""))
            self.assertRegex(out, rf"which threads write 100 % of what is sent; {in_order} % of it in the order of the threads, 0 % at least")
            self.assertIn("Assumed: threads read a message's parts in order", out)
            self.assertNotIn("If the last thread", out)
            self.assertEqual(self.answer(out) == self.answer(assumed), name not in ("all", "mixed"))  # it is varied in which order they read

    def test_written_after_the_join(self) -> None:
        _, out, _ = self.command(self.pair("p", 1), "--text", "--costs", self.costs(), "--writes", self.pair("late", 0, 0, late_ns=600_100))
        self.assertIn("100 % of what is sent; 0 % of it in the order of the threads, 100 % at least in part by the sender after the join.", out)

    @staticmethod
    def answer(out: str) -> str:
        return next(line for line in out.splitlines() if "Sending early" in line)

    def test_writers_of_something_else(self) -> None:
        profile, traced = self.pair("p", 0), self.pair("t", 0, 0, 1)
        for words, message in (((self.partitioned(), "--writes", traced), "t does not say who wrote what in .*parts: the number of threads, by rank, is"),
                               ((profile, "--writes", profile), "p does not say who wrote what: it was made without --trace-writes"),
                               ((self.costs(), "--writes", traced), "--writes: it is for profiles")):
            status, _, err = self.command(*words, "--text")
            self.assertEqual(status, 2)
            self.assertRegex(err, message)

    def test_slow_run(self) -> None:
        _, out, _ = self.command(self.pair("t", 0, 0, 1), "--text", "--costs", self.costs())
        self.assertIn("note: recorded with --trace-writes, which is slow", out)
        self.assertIn("threads write and read a message's parts in order", out)

    def test_wrong_input(self) -> None:
        parts, record = self.partitioned(), self.costs()
        (parts / "rank-00000.larkprof").write_bytes(b"x")
        (parts / "rank-00001.larkprof").write_bytes(b"x")
        for words, message in (((parts,), "not a file of `larklane profile`"), ((record, "--costs", record), "--costs: it is for profiles"),
                               ((self.whole(), "--costs", self.folder / "none"), "none: can't be read")):
            status, _, err = self.command(*words, "--text")
            self.assertEqual(status, 2)
            self.assertIn(message, err)

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_page(self) -> None:
        out = self.folder / "page"
        status, _, err = self.command(self.partitioned(), self.whole(), self.costs(), "--costs", self.costs(), "--out", out)
        self.assertEqual((status, err), (0, ""))
        page = (out / "index.html").read_text()
        self.assertIn('<section id="profiles">', page)
        self.assertIn('<section id="headline">', page)
        self.assertIn("Would sending early, or in groups, save time?", page)
        self.assertEqual(page.count('id="figure-profile'), 2)
        rows = list(csv.DictReader((out / "profile.csv").read_text().splitlines()))
        first = [row for row in rows if row["part"] == "3"]
        self.assertEqual([(row["event"], float(row["median_us"])) for row in first], [("ready", 0.2), ("arrived", 0.5)])
        status, _, _ = self.command(self.folder / "parts", "--out", out)
        page = (out / "index.html").read_text()
        self.assertNotIn('<section id="headline">', page)
        self.assertIn("smallest timer", page)


class Deltas(unittest.TestCase):
    """The smallest useful timer."""

    def test_of_threads(self) -> None:
        """Mean times after the first: 0 and 10 of thread 0, 30 of thread 1; thread 2 is late."""
        rounds = [[(100, 0), (108, 0), (120, 1), (900, 2)], [(200, 0), (212, 0), (240, 1), (800, 2)]]
        self.assertEqual(patterns.smallest_delta_ns(rounds), 30)

    def test_who_is_late_changes(self) -> None:
        """Each counts where it is not the last one: 0, 10 and 20."""
        rounds = [[(0, 0), (10, 1), (99, 2)], [(0, 0), (99, 1), (20, 2)]]
        self.assertEqual(patterns.smallest_delta_ns(rounds), 20)

    def test_a_late_thread_with_several_parts(self) -> None:
        self.assertEqual(patterns.smallest_delta_ns([[(0, 0), (10, 1), (90, 2), (99, 2)]]), 10)

    def test_one_thread_marks_all(self) -> None:
        self.assertEqual(patterns.smallest_delta_ns([[(0, 0), (7, 0), (50, 0)]]), 7)

    def test_nothing_to_gather(self) -> None:
        self.assertIsNone(patterns.smallest_delta_ns([[(0, 0), (10, 1)]]))
        self.assertIsNone(patterns.smallest_delta_ns([]))


if __name__ == "__main__":
    unittest.main()
