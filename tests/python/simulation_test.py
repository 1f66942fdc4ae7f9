#!/usr/bin/env python3
"""Figures of simulated rounds: their data, their text, and the files that they refuse."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

import golden  # noqa: F401  (finds the package)

from larklane.records.schema import RecordError
from larklane.simulation import command as simulation

try:
    import matplotlib
except ImportError:
    matplotlib = None  # type: ignore[assignment]


def result(exposed_us: float) -> dict[str, float]:
    return {"exposed_us": exposed_us, "total_us": exposed_us, "transfers": 1, "perceived_gigabytes_per_second": 100 / exposed_us}


def made(**changes: Any) -> simulation.Simulated:
    """1 KiB takes 10 us in one group, 5 in two and 20 two-sided; 2 KiB 40, 10 and 20."""
    rows = [{"bytes": 1024, "one_sided": [result(10), result(5)], "two_sided": result(20)},
            {"bytes": 2048, "one_sided": [result(40), result(10)], "two_sided": result(20)}]
    return {"schema": 1, "regime": "moon", "latency_ps": 600000, "send_overhead_ps": 1, "recv_overhead_ps": 1, "gap_ps": 0, "byte_ps": 87,
            "queues": 1, "partitions": 2, "threads": 2, "is_extrapolated": False, "pattern": "laggard", "spread_us": 7.5, "rounds": 1,
            "seed": 3, "counts": [1, 2], "parameters": [{"name": "L", "value": "600 ns", "source": "cited: a book"}], "rows": rows} | changes


class Figures(unittest.TestCase):
    """The drawings."""

    def test_values(self) -> None:
        charts = {chart.name: chart for chart in simulation.figures([made()])}
        of = {name: [[mark.median for mark in curve.marks] for curve in chart.panels[0].curves] for name, chart in charts.items()}
        self.assertEqual(of["simulated-speedup"], [[2, 0.5], [4, 2], [1, 1]])
        self.assertEqual(of["simulated-exposed"], [[10, 40], [5, 10], [20, 20]])
        self.assertEqual(of["simulated-bandwidth"], [[10, 2.5], [20, 10], [5, 5]])
        self.assertEqual([curve.label for curve in charts["simulated-speedup"].panels[0].curves],
                         ["1 group", "2 groups", "two-sided, a send for each partition"])

    def test_learned_groups_are_a_curve_if_there_are_any(self) -> None:
        learned = made(rows=[row | {"learned": result(4)} for row in made()["rows"]], first_counted=50)
        curve = simulation.figures([learned])[0].panels[0].curves[-2]
        self.assertEqual((curve.label, [mark.median for mark in curve.marks]), ("learned in 50 rounds before", [5, 5]))

    def test_a_searched_table_is_a_curve_if_there_is_one(self) -> None:
        searched = made(rows=[row | {"searched": result(2) | {"groups": 2, "queues": 16}} for row in made()["rows"]])
        curve = simulation.figures([searched])[0].panels[0].curves[-2]
        self.assertEqual((curve.label, [mark.median for mark in curve.marks]), ("table: the best groups and queues", [10, 10]))

    def test_a_count_looks_the_same_in_every_panel(self) -> None:
        wide = made(counts=[1, 8], partitions=8, threads=8)
        narrow, other = simulation.figures([made(counts=[1, 8]), wide])[0].panels
        self.assertEqual([curve.shade for curve in narrow.curves], [curve.shade for curve in other.curves])
        self.assertEqual([curve.shade for curve in other.curves], [0, 1, None])

    def test_it_says_that_it_is_simulated_and_what_is_extrapolated(self) -> None:
        for chart in simulation.figures([made()]):
            self.assertEqual(chart.stamp, "simulated")
            self.assertIn("SIMULATED", chart.caption)
            self.assertNotIn("extrapolation", chart.caption)
            self.assertIn("L 600 ns (cited: a book)", chart.footer)
            self.assertEqual(chart.panels[0].title, "2 partitions, 2 threads, laggard 7.5 us")
        for chart in simulation.figures([made(), made(threads=32, is_extrapolated=True, rounds=5)]):
            self.assertIn("up to 32 threads are an extrapolation", chart.caption)
            self.assertIn("mean of 5 rounds", chart.panels[1].title)


class Files(unittest.TestCase):
    """The files read and written."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, text: str) -> Path:
        path = self.folder / "simulated.json"
        path.write_text(text, encoding="utf-8")
        return path

    def test_what_is_no_simulation_is_refused_by_name(self) -> None:
        broken = [json.dumps(made(schema=2)), json.dumps(made(counts=[1])), json.dumps(made(parameters=[])), "[]", "{}", "no JSON"]
        for path in [*map(self.write, broken), self.folder / "missing.json"]:
            with self.subTest(path), self.assertRaisesRegex(RecordError, str(path)):
                simulation.read(path)
        for text in broken:
            with self.subTest(text), self.assertRaisesRegex(RecordError, "larklane simulate --json"):
                simulation.read(self.write(text))

    def test_the_command(self) -> None:
        path = self.write(json.dumps(made()))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.assertEqual(simulation.main([str(path), "--out", str(self.folder / "a")]), 0)
            self.assertEqual(simulation.main([str(path), "--out", str(self.folder / "b")]), 0)
            self.assertEqual(simulation.main([str(self.folder / "missing.json")]), 2)
        self.assertIn("missing.json", err.getvalue())
        names = sorted(file.name for file in (self.folder / "a").iterdir())
        kinds = ("csv", "png", "svg") if matplotlib else ("csv",)
        self.assertEqual(names, [f"simulated-{name}.{kind}" for name in ("bandwidth", "exposed", "speedup") for kind in kinds])
        for name in names:
            self.assertEqual((self.folder / "a" / name).read_bytes(), (self.folder / "b" / name).read_bytes())


if __name__ == "__main__":
    unittest.main()
