#!/usr/bin/env python3
"""A report of made-up records: figures, comparisons, advice, projection, and the command."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import golden

from larklane.comparison import advice, compare, projection
from larklane.figures import charts as figures
from larklane.numbers import wording
from larklane.records import schema
from larklane.records.cases import HEADLINES, measured
from larklane.report import digest, command as report

TRACE = {"transfers": [[1e6, 2e6, 4], [3e6, 5e6, 4]], "arrivals_ns": [2e6, 5e6], "joined_ns": 3e6}


class Folder(unittest.TestCase):
    """Tests with files."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def load(self, *records: golden.Json) -> schema.Collection:
        files = []
        for number, record in enumerate(records):
            files.append(self.folder / f"{number}.json")
            files[-1].write_text(json.dumps(record), encoding="utf-8")
        return schema.load(files)

    def command(self, *words: object) -> tuple[int, str, str]:
        """@return status, output, errors of `larklane report`"""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = report.main([str(word) for word in words])
            except SystemExit as end:
                status = int(end.code or 0)
        return status, out.getvalue(), err.getvalue()


def exposed(way: str, *values_us: float) -> golden.Json:
    return golden.series(way, {"exposed_ns": [1e3 * value for value in values_us]})


class Words(unittest.TestCase):
    """Numbers with units."""

    def test_numbers(self) -> None:
        for value, text in ((0, "0"), (12345, "12,300"), (999.6, "1,000"), (1.5, "1.50"), (0.01234, "0.0123"), (-2.345, "-2.35")):
            self.assertEqual(wording.number(value), text)
        self.assertEqual((wording.plain(10), wording.plain(1.5), wording.plain(1200)), ("10", "1.5", "1,200"))

    def test_units(self) -> None:
        self.assertEqual([wording.size(count) for count in (8, 65536, 3 << 19, 1 << 30)], ["8 B", "64 KiB", "1.5 MiB", "1 GiB"])
        self.assertEqual([wording.duration(t) for t in (20, 1500, 2.5e6, 3e9)], ["20.0 ns", "1.50 µs", "2.50 ms", "3.00 s"])


class Figures(Folder):
    """Which numbers are drawn where."""

    def charts(self, *records: golden.Json) -> dict[str, Any]:
        return {figure.name: figure for figure in figures.figures(measured(self.load(*records)))}

    def test_points_of_a_curve(self) -> None:
        ways = [golden.series("join", {"overhead": [0.5, 1, 1.5]}), golden.series("partitioned", {"overhead": [2, 2, 3]})]
        chart = self.charts(golden.record("overhead", golden.point(1024, 4, *ways)))["overhead"]
        join, partitioned = chart.panels[0].curves
        self.assertEqual(join.marks, ((1024, 3, 0.6, 1.0, 1.4),))
        self.assertEqual(partitioned.marks, ((1024, 3, 2.0, 2.0, 2.8),))
        self.assertEqual(partitioned.label, "partitioned, native")

    def test_metrics(self) -> None:
        samples = {"overhead": [1.0], "availability": [75.0], "early_bird_share": [0.25], "extra_compute_ns": [3e3],
                   "perceived_bandwidth_bps": [5e9], "rate_per_s": [8e6], "half_round_trip_ns": [250.0],
                   "exchange_ns": [2e3], "fetch_ns": [4e3], "time_ns": [6e3], "message_ns": [90.0]}
        [case] = measured(self.load(golden.record("availability", golden.point(8, 4, golden.series("join", samples)))))
        found = {name: metric.values(case)[0] for name, metric in HEADLINES.items()}
        self.assertEqual(found, {"overhead": 1, "availability": 75, "early-bird": 25, "recv-compute": 3, "perceived-bandwidth": 5000, "message-rate": 8, "lanes": 8,
                                 "message-latency": 0.25, "message-turns": 90, "stencil": 2, "ebms": 4, "bspmm": 6})

    def test_wrong_data_is_not_drawn(self) -> None:
        ways = [golden.series("join", {"overhead": [1]}), golden.series("rma", {"overhead": [1]}, wrong=1)]
        chart = self.charts(golden.record("overhead", golden.point(8, 4, *ways)))["overhead"]
        self.assertEqual([curve.way for curve in chart.panels[0].curves], ["join"])

    def test_panels_by_what_differs(self) -> None:
        way = golden.series("partitioned", {"early_bird_share": [0.5]})
        records = [golden.record("early-bird", golden.point(8, parts, way), variant=variant, cache=cache, threads=parts)
                   for variant in ("native", "larklane") for cache in ("hot", "cold") for parts in (2, 4)]
        made = self.charts(*records)
        self.assertEqual(list(made), ["early-bird", "early-bird-partitions"])
        self.assertEqual([panel.title for panel in made["early-bird"].panels],
                         ["2 threads, 2 partitions, hot cache", "2 threads, 2 partitions, cold cache", "4 threads, 4 partitions, hot cache",
                          "4 threads, 4 partitions, cold cache"])
        self.assertEqual([curve.label for curve in made["early-bird"].panels[0].curves], ["partitioned, native", "partitioned, Larklane"])
        by_count = made["early-bird-partitions"].panels
        self.assertEqual([panel.title for panel in by_count],
                         ["native, hot cache", "Larklane, hot cache", "native, cold cache", "Larklane, cold cache"])
        self.assertEqual([(curve.label, curve.shade) for curve in by_count[0].curves], [("2 partitions", 0), ("4 partitions", 1)])

    def test_messages_over_sizes_and_over_threads(self) -> None:
        """Curves of every way natively and of Larklane; which MPI it is, and how many processes there are, keeps nothing apart."""
        made = self.charts(*golden.messages("native", 1e6), *golden.messages("larklane", 2e6))
        self.assertEqual(list(made), ["message-rate", "message-rate-threads"])
        self.assertEqual([panel.title for panel in made["message-rate"].panels], ["1 thread", "2 threads"])
        over = made["message-rate-threads"]
        self.assertEqual(([panel.title for panel in over.panels], over.over), (["8 B", "1 KiB", "64 KiB"], "threads"))
        self.assertEqual([curve.label for curve in over.panels[0].curves],
                         [f"{way}, {title}" for way in ("threads share lanes", "a lane a thread", "a process a thread") for title in ("Model MPI 1.0", "Larklane")])
        self.assertEqual([[(mark.at, mark.median) for mark in curve.marks] for curve in over.panels[0].curves[2:4]], [[(1, 1.0), (2, 2.0)], [(1, 2.0), (2, 4.0)]])
        self.assertEqual(next(over.rows())[4], "threads")

    def test_parts_of_applications(self) -> None:
        """A figure of the whole, one of each part, and the whole over threads; of as many workers in threads and in processes in one panel."""
        made = self.charts(*golden.application("native", 1e4), *golden.application("larklane", 5e3))
        self.assertEqual(list(made), ["bspmm", "bspmm-get", "bspmm-get-flush", "bspmm-accumulate", "bspmm-accumulate-flush", "bspmm-counter", "bspmm-threads"])
        self.assertEqual([panel.title for panel in made["bspmm"].panels], ["1 thread, 2 workers", "2 threads, 4 workers"])
        self.assertEqual([(curve.label, [mark.median for mark in curve.marks]) for curve in made["bspmm-get-flush"].panels[1].curves],
                         [(f"{way}, {title}", [median, median]) for way in ("threads share lanes", "a lane a thread", "a process a thread")
                          for title, median in (("Model MPI 1.0", 3.0), ("Larklane", 1.5))])
        self.assertIn("ICS'20, figure 27", made["bspmm-get-flush"].caption)
        over = made["bspmm-threads"]
        self.assertEqual([panel.title for panel in over.panels], ["2 KiB", "8 KiB"])
        self.assertEqual([(mark.at, mark.median) for mark in over.panels[0].curves[0].marks], [(1, 10.0), (2, 10.0)])
        self.assertNotIn("figure 10", over.caption)

    def test_bindings_and_openmp_variables_keep_runs_apart(self) -> None:
        def run(bindings: list[str], **environment: str) -> golden.Json:
            made = golden.record("early-bird", golden.point(8, 4, golden.series("partitioned", {"early_bird_share": [0.5]}, traces=[TRACE])))
            made["context"].update(bindings=bindings, environment=environment)
            return made

        made = self.charts(golden.gathered(run(["0", "1"]), run(["0-3", "0-3"]), run(["0", "1"])))
        self.assertEqual([panel.title for panel in made["early-bird"].panels], ["bound to 0 | 1", "bound to 0-3"])
        self.assertEqual([mark[1] for panel in made["early-bird"].panels for curve in panel.curves for mark in curve.marks], [2, 1])
        self.assertIn("bound to 0", made["arrivals"].caption)
        made = self.charts(golden.gathered(run(["0", "1"]), run(["0", "1"], OMP_PROC_BIND="close", LARKLANE_JOB="7")))
        self.assertEqual([panel.title for panel in made["early-bird"].panels], ["no OMP_* variables", "OMP_PROC_BIND=close"])
        same = self.charts(run(["0", "1"], OMP_PROC_BIND="close"))
        found = digest.digest(self.load(run(["0", "1"], OMP_PROC_BIND="close")))
        for text in (same["early-bird"].caption, same["arrivals"].caption, same["early-bird"].panels[0].title, found.shared(),
                     found.place(found.cases[0])):
            self.assertNotRegex(text, "bound to|OMP_")

    def test_more_threads_than_cores(self) -> None:
        """Named beside the machine, with the benchmarks. Older records do not state it."""
        runs = [golden.record(benchmark, golden.point(8, 1, exposed("join", 1))) for benchmark in ("overhead", "early-bird")]
        del runs[1]["context"]["oversubscribed"]
        found = dict(digest.machines(digest.digest(self.load(*runs))).rows)["more threads than cores"]
        self.assertRegex(found, "^overhead: computing, ")
        self.assertEqual(dict(digest.machines(digest.digest(self.load(runs[1]))).rows)["more threads than cores"], "-")

    def test_other_ways_are_drawn_once(self) -> None:
        way = golden.series("join", {"early_bird_share": [0.5]})
        chart = self.charts(*(golden.record("early-bird", golden.point(8, 4, way), variant=variant) for variant in ("larklane", "native")))
        self.assertEqual([curve.variant for curve in chart["early-bird"].panels[0].curves], ["native"])

    def test_arrivals_count_from_the_join(self) -> None:
        way = golden.series("partitioned", {"early_bird_share": [0.5]}, traces=[TRACE])
        picture = self.charts(golden.record("early-bird", golden.point(8, 2, way)))["arrivals"]
        self.assertEqual(picture.panels[0].bars, ((-2000, -1000, 4), (0, 2000, 4)))
        self.assertEqual(picture.csv().splitlines()[1], '"partitioned, native",partitioned,native,0,-2000.000,-1000.000,4')

    def test_every_figure_of_the_papers(self) -> None:
        cases = measured(self.load(golden.suite()))
        found = figures.figures(cases, [projection.parse_projection("0.2:15.1")])
        self.assertEqual([figure.name for figure in found], [
            "arrivals", "overhead", "overhead-partitions", "perceived-bandwidth", "perceived-bandwidth-partitions", "availability",
            "availability-partitions", "availability-noise", "early-bird", "early-bird-partitions", "recv-compute",
            "recv-compute-partitions", "recv-compute-communication", "sweep3d", "sweep3d-partitions", "halo3d", "halo3d-partitions",
            "latency", "projection"])
        for figure in found:
            self.assertTrue(figure.title and figure.caption and figure.csv().count("\n") > 1, figure.name)

    def test_every_way_of_a_pattern_has_a_curve(self) -> None:
        chart = self.charts(golden.pattern("halo3d", "native", 4), golden.pattern("halo3d", "larklane", 4))["halo3d"]
        (panel,) = chart.panels
        self.assertEqual([(curve.way, curve.variant) for curve in panel.curves], [
            *((way, "native") for way in ("single", "persistent", "multiple", "thread-comms", "rma", "partitioned")), ("partitioned", "larklane")])
        self.assertEqual(len({curve.label for curve in panel.curves}), 7)

    def test_stamp(self) -> None:
        run = golden.record("overhead", golden.point(8, 4, golden.series("join", {"overhead": [1]})))
        self.assertEqual(self.charts(run)["overhead"].stamp, "")
        run["context"]["machine"]["turbo"] = "unknown"
        self.assertEqual(self.charts(run)["overhead"].stamp, "not publishable: turbo unknown")


class Comparisons(Folder):
    """Verdicts."""

    def between(self, native: list[float], larklane: list[float], again: list[float] | None = None, benchmark: str = "latency") -> compare.Comparison:
        name = "early_bird_share" if benchmark == "early-bird" else "half_ns"
        runs = []
        for variant, values in (("native", native), ("larklane", larklane)):
            ways = [golden.series("join", {name: [value or 1 for value in native]}), golden.series("partitioned", {name: values})]
            if again:
                ways.append(golden.series("join'", {name: again}))
            runs.append(golden.record(benchmark, golden.point(8, 4, *ways), variant=variant))
        [found] = compare.between_runs(measured(self.load(golden.gathered(*runs))))
        return found

    def test_better(self) -> None:
        found = self.between([1000, 1010, 1020, 1030, 1040] * 3, [500, 505, 510, 515, 520] * 3)
        self.assertEqual((found.verdict, found.names, found.medians), ("better", ("Larklane", "native"), (0.51, 1.02)))
        self.assertEqual((found.change, found.test.above, found.noise), (0.5, 0, 1.0))
        self.assertIn("Better: half 510 ns (Larklane) against 1.02 µs (native), 0.500 times", found.sentence())

    def test_noise_hides_a_difference(self) -> None:
        native, larklane = [1000.0, 1001, 1002] * 5, [950.0, 951, 952] * 5
        self.assertEqual(self.between(native, larklane, [1002.0] * 15).verdict, "better")
        found = self.between(native, larklane, [1101.1] * 15)
        self.assertAlmostEqual(found.noise or 0, 1.1)
        self.assertEqual(found.verdict, "no clear difference")

    def test_shares_differ_in_points(self) -> None:
        found = self.between([0.0] * 12, [0.75] * 12, benchmark="early-bird")
        self.assertEqual((found.verdict, found.change, found.interval), ("better", 75, (75, 75)))

    def overhead(self, variant: str, join_ns: float, partitions_ns: float) -> golden.Json:
        """Partitions and one send of a launch; the overhead is their ratio, as the benchmark writes it."""
        ways = [golden.series(way, {"overhead": [value / join_ns] * 12, "total_ns": [value] * 12})
                for way, value in (("join", join_ns), ("partitioned", partitions_ns), ("join'", join_ns))]
        return golden.record("overhead", golden.point(8, 4, *ways), variant=variant)

    def test_a_slow_hour_is_no_gain(self) -> None:
        # Partitions took the same, one send twice as long in the second launch: half the overhead, and noise of 2.
        runs = self.overhead("native", 1000, 5000), self.overhead("larklane", 2000, 5000)
        [found] = compare.between_runs(measured(self.load(golden.gathered(*runs))))
        self.assertEqual((found.change, found.noise, found.verdict), (0.5, 2, "no clear difference"))

    def test_the_interval_holds_the_single_sends_too(self) -> None:
        ours, theirs = self.overhead("larklane", 1000, 5000), self.overhead("native", 1000, 5000)
        for way in ours["points"][0]["series"]:
            if way["way"] == "join":
                way["samples"]["total_ns"] = [500.0, 1000, 2000] * 4
        [found] = compare.between_runs(measured(self.load(golden.gathered(theirs, ours))))
        self.assertLess(found.interval[0], 0.6)
        self.assertGreater(found.interval[1], 1.5)

    def test_what_refers_to_different_ways_is_not_compared(self) -> None:
        ours, theirs = self.overhead("larklane", 1000, 5000), self.overhead("native", 1000, 5000)
        theirs["points"][0]["series"][0]["way"] = "persistent"
        self.assertEqual(compare.between_runs(measured(self.load(golden.gathered(theirs, ours)))), [])

    def test_one_send_is_never_early_so_it_tells_no_noise(self) -> None:
        self.assertIsNone(self.between([0.0] * 12, [0.75] * 12, [0.0] * 12, benchmark="early-bird").noise)

    def test_launches_of_one_file_are_one(self) -> None:
        def run(variant: str, value: float) -> golden.Json:
            return golden.record("latency", golden.point(8, 4, golden.series("partitioned", {"half_ns": [value] * 6})), variant=variant)

        runs = run("native", 200), run("larklane", 100), run("larklane", 300), run("native", 100), run("native", 200), run("larklane", 100)
        [found] = compare.between_runs(measured(self.load(golden.gathered(*runs))))
        self.assertEqual((found.change, found.medians, found.names), (0.5, (0.1, 0.2), ("Larklane", "native")))

    def test_bindings_that_differ_are_not_compared(self) -> None:
        runs = [golden.record("latency", golden.point(8, 4, golden.series("partitioned", {"half_ns": [1000.0] * 6})), variant=variant)
                for variant in ("native", "larklane")]
        self.assertEqual(len(compare.between_runs(measured(self.load(golden.gathered(*runs))))), 1)
        runs[1]["context"]["bindings"] = ["0", "0"]
        self.assertEqual(compare.between_runs(measured(self.load(golden.gathered(*runs)))), [])

    def test_calls_are_compared_with_the_native_ones(self) -> None:
        runs = [golden.record("call-cost", golden.point(8, 4, golden.series("pready", {"call_ns": [value] * 12})), variant=variant)
                for _ in range(3) for variant, value in (("native", 10.0), ("larklane", 100.0))]
        table = digest.call_costs(digest.digest(self.load(golden.gathered(*runs))))
        [row] = table.rows
        self.assertEqual(dict(zip(table.heads, row))["Larklane against native"], "dearer")

    def test_few_rounds_say_nothing(self) -> None:
        self.assertEqual(self.between([1000, 1001], [1, 2]).verdict, "no clear difference")

    def test_later_runs_against_the_first(self) -> None:
        def run(value: float, version: str) -> golden.Json:
            made = golden.record("latency", golden.point(8, 4, golden.series("partitioned", {"half_ns": [value] * 12})))
            made["context"]["version"] = version
            return made

        [found] = compare.between_runs(measured(self.load(run(128, "0.1"), run(384, "0.2"))))
        self.assertEqual((found.verdict, found.change, found.names), ("worse", 3, ("native, 0.2", "native, 0.1")))

    def test_within_a_run(self) -> None:
        ways = [golden.series("join", {"overhead": [1.0] * 12}), golden.series("partitioned", {"overhead": [1.5] * 12})]
        [found] = compare.within_runs(measured(self.load(golden.record("overhead", golden.point(8, 4, *ways)))))
        self.assertEqual((found.verdict, found.change, found.names[1]), ("worse", 1.5, "one send after the join"))


class Advised(Folder):
    """Partition counts."""

    def advise(self, *records: golden.Json) -> list[advice.Advice]:
        return advice.advise(measured(self.load(*records)))

    def test_one_send_of_few_threads_is_not_that_of_many(self) -> None:
        runs = [golden.record("early-bird", golden.point(8, count, exposed("join", *join), exposed("partitioned", *parts)), threads=count)
                for count, join, parts in ((2, (10, 10, 10), (12, 12, 12)), (8, (100, 100, 100), (40, 40, 40)))]
        [found] = self.advise(*runs)
        self.assertEqual([choice.name for choice in found.choices], [
            "one send after the join (2 threads)", "one send after the join (8 threads)", "2 partitions", "8 partitions"])
        self.assertEqual(found.best.name, "one send after the join (2 threads)")

    def test_fewer_unless_surely_better(self) -> None:
        run = golden.record("early-bird", golden.point(8, 4, exposed("join", 100, 101, 102), exposed("partitioned", 50, 51, 52)))
        more = golden.record("early-bird", golden.point(8, 8, exposed("partitioned", 49, 50, 51)))
        most = golden.record("early-bird", golden.point(8, 16, exposed("partitioned", 20, 21, 22)))
        [found] = self.advise(run, more)
        self.assertEqual((found.best.name, found.records), ("4 partitions", 2))  # 8 are not surely better
        [found] = self.advise(run, more, most)
        self.assertEqual(found.best.name, "16 partitions (4 threads)")
        self.assertEqual([choice.partitions for choice in found.choices], [0, 4, 8, 16])

    def test_one_send_is_as_good(self) -> None:
        [found] = self.advise(golden.record("overhead", golden.point(8, 4, exposed("join", 10, 11, 12), exposed("partitioned", 9, 10, 11))))
        self.assertEqual(found.best.name, "one send after the join")
        self.assertEqual(advice.reason([found]), "11.0 µs; 4 partitions: 10.0 µs; none surely shorter")

    def test_neighbouring_sizes_share_a_line(self) -> None:
        points = [golden.point(size, 4, exposed("join", 10 * size), exposed("partitioned", value)) for size, value in ((8, 9), (16, 99), (32, 400))]
        found = advice.by_sizes(self.advise(golden.record("overhead", *points)))
        self.assertEqual([[a.bytes for a in group] for group in found], [[8, 16], [32]])
        self.assertEqual([advice.reason(group) for group in found],
                         ["9.00 µs to 99.0 µs; one send after the join: 80.0 µs to 160 µs", "320 µs; 4 partitions: 400 µs; none surely shorter"])

    def test_threads_are_chosen_if_each_has_its_own_count(self) -> None:
        records = [golden.record("early-bird", golden.point(8, count, exposed("partitioned", value)), threads=count)
                   for count, value in ((2, 90), (4, 40))]
        [found] = self.advise(*records)
        self.assertEqual(found.best.name, "4 partitions")

    def test_gaps(self) -> None:
        self.assertIn("Nothing can be advised", advice.gaps([], [])[0])
        cases = measured(self.load(golden.record("early-bird", golden.point(8, 4, exposed("partitioned", 1)))))
        text = " ".join(advice.gaps(cases, advice.advise(cases)))
        for words in ("compute times other than “10 ms compute”", "At 1 of 1 places one partition count alone", "one send after the join was not",
                      "nothing is said of a network"):
            self.assertIn(words, text)


MPIP = """@ mpiP
@--- MPI Time (seconds) ---------------------------------------------------
---------------------------------------------------------------------------
Task    AppTime    MPITime     MPI%
   0        100         40    40.00
   1        100         20    20.00
   *        200         60    30.00
---------------------------------------------------------------------------
@--- Aggregate Time (top twenty, descending, milliseconds) ----------------
---------------------------------------------------------------------------
Call                 Site       Time    App%    MPI%      Count    COV
Waitall                 1    3.2e+04   16.00   53.33        100   0.10
Allreduce               2      2e+04   10.00   33.33        100   0.00
Isend                   3      8e+03    4.00   13.33        100   0.00
---------------------------------------------------------------------------
@--- Aggregate Sent Message Size (top twenty, descending, bytes) ----------
"""


class Projections(Folder):
    """ICPP'22, section 4.8."""

    def test_the_paper_s_numbers(self) -> None:
        self.assertEqual([round(projection.project(share, 15.1), 3) for share in (0.204, 0.545)], [1.235, 2.036])
        self.assertEqual(projection.project(0, 100), 1)
        self.assertEqual(projection.project(1, 4), 4)

    def test_words(self) -> None:
        for text in ("0.204:15.1", "20.4%:15.1x"):
            self.assertAlmostEqual(projection.parse_projection(text).result, 1.2353, places=4)
        for text in ("0.2", "2:3", "0.2:0", "a:b"):
            with self.assertRaises(ValueError):
                projection.parse_projection(text)

    def test_mpip(self) -> None:
        path = self.folder / "app.mpiP"
        path.write_text(MPIP, encoding="utf-8")
        profile = projection.read_mpip(path)
        self.assertEqual((profile.app_s, profile.mpi_s, profile.share), (200, 60, 0.2))
        path.write_text(MPIP.split("@--- Aggregate Time", maxsplit=1)[0], encoding="utf-8")
        self.assertEqual(projection.read_mpip(path).share, 0.3)
        path.write_text("something else", encoding="utf-8")
        with self.assertRaisesRegex(schema.RecordError, "expected mpiP's text report"):
            projection.read_mpip(path)

    def test_measured_speedup(self) -> None:
        def ways(single: float, partitioned: float) -> list[golden.Json]:
            return [golden.series("single", {"throughput_bps": [single]}), golden.series("partitioned", {"throughput_bps": [partitioned]})]

        run = golden.record("sweep3d", golden.point(8, 4, *ways(100, 300)), golden.point(1024, 4, *ways(100, 1510)))
        self.assertEqual(projection.measured_speedup(measured(self.load(run))), (15.1, "sweep3d, 1 KiB, native"))
        self.assertIsNone(projection.measured_speedup([]))


class Command(Folder):
    """The commands that a person types."""

    def record(self) -> Path:
        path = self.folder / "run.json"
        ways = [golden.series("join", {"overhead": [0.7, 1.3], "exposed_ns": [1e5, 2e5]}),
                golden.series("partitioned", {"overhead": [0.7, 1.3], "exposed_ns": [1e5, 2e5]}), {**golden.series("rma", {}), "refused": "it lies"}]
        path.write_text(json.dumps(golden.record("overhead", golden.point(65536, 4, *ways))), encoding="utf-8")
        return path

    def test_text(self) -> None:
        status, out, err = self.command(self.record(), "--text")
        self.assertEqual((status, err, list(self.folder.iterdir())), (0, "", [self.folder / "run.json"]))
        for words in ("1 run of 1 benchmark (overhead) from 1 file", "Model CPU, 8 cores", "refused by the guard: it lies", "one send after the join"):
            self.assertIn(words, out)

    def test_rows(self) -> None:
        """Rows of `make bars`: by themselves, and beside runs."""
        figure = {"n": 2, "min": 1, "p10": 1.5, "median": 2000, "p90": 3.5}
        point = {"parameters": {"bytes": 8}, "series": {"x": [1, None]}, "failed": {"y": "a | hang"}, "summary": {"x": figure},
                 "verdicts": [{"candidate": "x", "baseline": 5000000, "verdict": "within"}]}
        path, run = self.folder / "row.json", self.folder / "run.json"
        schema.write(path, {"row": "pready", "unit": "ns", "commit": "c", "measured": "2026", "machine": {"cpu": "A"}, "points": [point],
                            "verdicts": [{"what": "in time", "holds": False}]})
        status, text, _ = self.command(path, "--out", self.folder / "page")
        self.assertEqual(status, 0)
        self.assertIn("pready (ns): row.json; A, ? cores\n", text)
        self.assertRegex(text, r"bytes 8 +2,000 \(1.5 to 3.5, 2 of 3 runs\) +a / hang +x / 5000000: within\n")
        self.assertIn("  DOES NOT HOLD: in time\n", text)
        self.assertNotIn("What you gain", text)
        page = (self.folder / "page/index.html").read_text()
        self.assertIn("<h3>pready (ns)</h3>", page)
        self.assertNotIn("What you gain", page)
        run.write_text(json.dumps(golden.record("overhead", golden.point(8, 4, exposed("join", 1, 2)))))
        _, text, _ = self.command(path, run, "--text")
        self.assertTrue("pready (ns)" in text and "What you gain" in text)

    def test_what_the_time_budget_left_out(self) -> None:
        way = golden.series("join", {"overhead": [1.0]})
        points = [{**golden.point(size, 4, way), "rounds": rounds} for size, rounds in ((8, 100), (16, 40), (32, 7), (64, 0))]
        path = self.folder / "bench.json"
        path.write_text(json.dumps({**golden.gathered(golden.record("overhead", *points, iterations=100)), "turns": {"run": 2, "asked": 3}}))
        status, out, _ = self.command(path, "--out", self.folder / "out")
        page = (self.folder / "out/index.html").read_text(encoding="utf-8")
        for words in ("bench.json: 2 of 3 turns: the time budget.",
                      "Fewer rounds than asked for at 2 of 3 points, at least 7 of 100 (overhead): the time budget."):
            self.assertIn(words, out)
            self.assertIn(words, page)
        self.assertEqual(status, 0)
        self.assertNotIn("time budget", self.command(self.record(), "--text")[1])

    def test_wrong_input(self) -> None:
        for words, message in (((self.folder / "none.json",), "none.json: can't be read"), ((self.record(), "--only", "x"), "these records give overhead"),
                               ((self.record(), "--projection", "7"), "expected SHARE:SPEEDUP"), ((), "the following arguments are required"),
                               ((self.record(), "--speedup", "-1"), "--speedup"), ((self.record(), "--mpip", "none"), "expected mpiP's text report")):
            status, _, err = self.command(*words)
            self.assertEqual(status, 2, words)
            self.assertIn(message, err)

    def test_speedup_has_to_come_from_somewhere(self) -> None:
        path = self.folder / "app.mpiP"
        path.write_text(MPIP, encoding="utf-8")
        status, _, err = self.command(self.record(), "--text", "--mpip", path)
        self.assertEqual(status, 2)
        self.assertIn("say with --speedup X", err)
        status, out, _ = self.command(self.record(), "--text", "--mpip", path, "--speedup", "4")
        self.assertEqual(status, 0)
        self.assertIn("20.0 %; 4 times as fast", out)
        self.assertIn("1.176 times as fast", out)  # 1 / (0.8 + 0.2 / 4)

    def test_a_folder_that_can_t_be_written(self) -> None:
        (self.folder / "file").write_text("", encoding="utf-8")
        status, out, err = self.command(self.record(), "--out", self.folder / "file")
        self.assertEqual(status, 1)
        self.assertIn("file: not written: File exists", err)
        self.assertIn("overhead", out)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_a_full_disk(self) -> None:
        (self.folder / "out").mkdir()
        (self.folder / "out/overhead.csv").symlink_to("/dev/full")
        status, _, err = self.command(self.record(), "--out", self.folder / "out")
        what = f"larklane report: {self.folder / 'out/overhead.csv'}: not written: No space left on device; remedy: free space there, or name another folder with --out\n"
        self.assertEqual((status, err), (1, what))
        self.assertFalse((self.folder / "out/index.html").exists())

    def test_a_file_that_can_not_be_written_leaves_an_earlier_report(self) -> None:
        self.assertEqual(self.command(self.record(), "--out", self.folder / "out")[0], 0)
        before = {path.name: path.read_bytes() for path in (self.folder / "out").iterdir()}
        for name in sorted(before):
            (self.folder / f"out/{name}.part").mkdir()
            status, _, err = self.command(self.record(), "--out", self.folder / "out")
            (self.folder / f"out/{name}.part").rmdir()
            self.assertEqual(status, 1)
            self.assertIn(f"{name}: not written: ", err)
            self.assertEqual({path.name: path.read_bytes() for path in (self.folder / "out").iterdir()}, before)

    def test_a_reader_who_has_seen_enough(self) -> None:
        command = [sys.executable, "-m", "larklane.report", str(self.record()), "--out", str(self.folder / "out")]
        environment = {**os.environ, "PYTHONPATH": str(golden.ROOT / "python")}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stderr
            process.stdout.close()
            self.assertNotIn("Traceback", process.stderr.read())
        self.assertEqual(process.returncode, 0)
        self.assertTrue((self.folder / "out/index.html").exists())

    def test_a_reader_that_has_seen_enough(self) -> None:
        words = [sys.executable, "-m", "larklane.report", str(self.record()), "--out", str(self.folder / "out")]
        with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(golden.ROOT / "python")}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as report:
            assert report.stdout and report.stderr
            report.stdout.readline()
            report.stdout.close()
            self.assertNotIn("Traceback", report.stderr.read())
        self.assertEqual(report.returncode, 0)
        self.assertTrue((self.folder / "out/index.html").exists())

    def test_without_matplotlib(self) -> None:
        (self.folder / "matplotlib.py").write_text("raise ImportError('no matplotlib here')", encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": f"{self.folder}:{golden.ROOT / 'python'}"}
        done = subprocess.run([sys.executable, "-m", "larklane.report", str(self.record()), "--out", str(self.folder / "out")], env=environment,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("can't import matplotlib (no matplotlib here); install it", done.stderr)
        self.assertIn("pip install matplotlib", (self.folder / "out/index.html").read_text(encoding="utf-8"))
        self.assertEqual(sorted(path.name for path in (self.folder / "out").iterdir()), ["index.html", "overhead.csv"])


if __name__ == "__main__":
    unittest.main()
