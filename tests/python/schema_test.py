#!/usr/bin/env python3
"""schema.py: records are read whole, and a file that is no record is refused by name."""

import json
import tempfile
import unittest
from pathlib import Path

import golden

from larklane.records import benchmarks, rows, schema


class Load(unittest.TestCase):
    """One folder of files for each test."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name: str, content: object) -> Path:
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def refusal(self, path: Path) -> str:
        with self.assertRaises(schema.RecordError) as caught:
            schema.load([path])
        self.assertIn(path.name, str(caught.exception))
        return str(caught.exception)

    def test_a_run(self) -> None:
        trace = {"transfers": [[1, 2, 8]], "arrivals_ns": [2], "joined_ns": 1.5}
        ways = [golden.series("join", {"total_ns": [1, None, 3]}, traces=[trace]), {"way": "rma", "wrong": 0, "early": False, "refused": "why"}]
        failures = [{"way": "threads", "bytes": 8, "what": "hangs"}]
        run = schema.load([self.file("a.json", golden.record("overhead", golden.point(8, 4, *ways), failures=failures))])
        self.assertEqual(run.failures, (schema.Failure("overhead", "native", "threads", "hangs", 8),))
        self.assertEqual((run.sources, run.runs[0].source, run.runs[0].options.threads), (("a.json",), "a.json", 4))
        join, rma = run.runs[0].points[0].series
        self.assertEqual(join.samples, {"total_ns": (1.0, 3.0)})  # an infinite sample is null
        self.assertEqual(join.traces, (schema.Trace((schema.Transfer(1, 2, 8),), (2.0,), 1.5),))
        self.assertEqual((rma.refused, rma.samples), ("why", {}))
        self.assertIs(run.runs[0].points[0].baseline, join)

    def test_a_set_and_a_folder(self) -> None:
        failures = [{"benchmark": "halo3d", "variant": "native", "way": "multiple", "what": "hangs"},
                    {"benchmark": "halo3d", "variant": "native", "way": None, "what": "no end after 300 s"}]  # the launch itself
        self.file("b.json", golden.gathered(golden.record("overhead"), golden.record("early-bird"), failures=failures))
        self.file("a.json", golden.record("latency"))
        found = schema.load([self.folder])
        self.assertEqual([run.options.benchmark for run in found.runs], ["latency", "overhead", "early-bird"])
        self.assertEqual(found.failures, (schema.Failure("halo3d", "native", "multiple", "hangs"),
                                          schema.Failure("halo3d", "native", "", "no end after 300 s")))

    def test_a_row(self) -> None:
        summary = {"n": 2, "min": 1, "p10": 1.5, "median": 2, "p90": 3.5}
        verdicts = [{"candidate": "x", "baseline": 10, "verdict": "within"}, {"candidate": "x", "baseline": "y", "limit": 0.5, "verdict": "above"}]
        point = {"parameters": {"bytes": 8}, "series": {"x": [1, None, 3]}, "failed": {"y": "hangs"}, "summary": {"x": summary}, "verdicts": verdicts}
        record = {"kind": "row", "row": "r", "unit": "ns", "commit": "c", "measured": "2026", "machine": {"cpu": "A", "cores": 2}, "why_not": ["turbo unknown"]}
        path = self.folder / "r-c.json"
        schema.write(path, {**record, "points": [point], "verdicts": [{"what": "enough", "holds": True}]})
        found = schema.load([path])
        [row] = found.rows
        self.assertTrue(found.is_of_rows and not found.runs)
        self.assertEqual((row.name, row.subject(), row.criteria), ("r", "r-c.json; A, 2 cores; turbo unknown", (rows.Criterion("enough", True),)))
        self.assertEqual(row.points[0].series, {"x": (1, None, 3)})
        self.assertEqual((row.points[0].figures, row.points[0].contenders), ({"x": rows.Figure(2, 2, 1.5, 3.5)}, ["x", "y"]))
        self.assertEqual([verdict.label for verdict in row.points[0].verdicts], ["x / 10", "x / y at most 0.5"])
        for broken, expected in (({"series": {"x": ["a"]}}, "points[0]: series: expected numbers in `x`"), ({"summary": {"x": {}}}, "expected a number in `median`"),
                                 ({"verdicts": [{}]}, "verdicts[0]: expected a number in `baseline`")):
            schema.write(path, {**record, "points": [{**point, **broken}]})
            self.assertIn(expected, self.refusal(path))

    def test_kept_records(self) -> None:
        """Those of earlier versions among them, which have no kind."""
        folder = Path(__file__).resolve().parents[2] / "measurements"
        found = schema.load([folder])
        self.assertTrue(found.is_of_rows)
        self.assertEqual(len(found.rows), len(list(folder.glob("*.json"))))
        self.assertTrue(all(row.points or row.criteria or row.name == "savings" for row in found.rows))
        [statements] = [row for row in found.rows if row.name == "statements"]
        self.assertIn("perceived bandwidth [MB/s]", statements.points[0].figures)

    def test_refusals(self) -> None:
        whole = json.dumps(golden.record("overhead", golden.point(8, 4, golden.series("join", {"total_ns": [1]}))))
        self.assertIn("can't be read: No such file", self.refusal(self.folder / "none.json"))
        self.assertIn("empty; expected a record", self.refusal(self.file("a.json", "")))
        self.assertIn("cut short", self.refusal(self.file("a.json", whole[:200])))
        self.assertIn("no JSON at line 1", self.refusal(self.file("a.json", "{a}")))
        self.assertIn("not a JSON object", self.refusal(self.file("a.json", [])))
        self.assertIn('kind "demo"', self.refusal(self.file("a.json", {"kind": "demo"})))
        self.assertIn("schema 2; expected a record that `larklane bench` wrote (schema 1)",
                      self.refusal(self.file("a.json", {"kind": "bench", "schema": 2})))
        (self.folder / "empty").mkdir()
        self.assertIn("a folder without *.json", self.refusal(self.folder / "empty"))

    def test_a_wrong_field_is_named(self) -> None:
        run = golden.record("overhead", golden.point(8, 4, golden.series("join", {"total_ns": ["x"]})))
        self.assertIn("points[0]: series[0]: samples: expected numbers in `total_ns`", self.refusal(self.file("a.json", run)))
        run["points"] = [{"bytes": True}]
        self.assertIn("points[0]: expected a whole number in `bytes`, found true", self.refusal(self.file("a.json", run)))
        del run["options"]["noise"]
        self.assertIn("options: expected a text in `noise`, found nothing", self.refusal(self.file("a.json", run)))

    def test_publishable(self) -> None:
        run = golden.record("overhead")
        context = schema.load([self.file("a.json", run)]).runs[0].context
        self.assertEqual(context.why_not_publishable(), [])
        run["context"].update(build="Debug", machine={})
        context = schema.load([self.file("a.json", run)]).runs[0].context
        self.assertEqual(context.why_not_publishable(), ["build type Debug", "turbo unknown"])


class Table(unittest.TestCase):
    """bench/benchmarks.def."""

    def test_rows(self) -> None:
        row = 'LARKLANE_BENCHMARK(pair, .name = "a", .kind = Kind::calls, .ways = "x,y", .what = "of (all) \\"calls\\"",\n  .headline = "h", .unit = "us", .sample = "s_ns", .scale = 1e-3, .is_share = true)\n'
        [found] = benchmarks.parse("// a comment\n" + row)
        self.assertEqual((found.name, found.kind, found.ways, found.what, found.scale, found.is_share), ("a", "calls", "x,y", 'of (all) "calls"', 1e-3, True))
        for cut in (row.replace(")\n", "\n"), row.replace('"h"', '"h')):
            with self.assertRaisesRegex(ValueError, "another form"):
                benchmarks.parse(cut)
        with self.assertRaises(TypeError):
            benchmarks.parse(row.replace('.headline = "h", ', ""))

    def test_names(self) -> None:
        kinds = ("partitions", "one_message", "calls", "pattern", "steps", "messages", "lanes", "application")
        self.assertEqual(sorted(benchmarks.names(*kinds)), sorted(benchmarks.BENCHMARKS))
        self.assertEqual(benchmarks.names("calls"), ("call-cost",))
        self.assertEqual(benchmarks.of("gone").title, "")


if __name__ == "__main__":
    unittest.main()
