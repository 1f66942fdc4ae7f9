#!/usr/bin/env python3
"""The runner of `larklane bench`, with a command that only pretends to measure."""

import contextlib
import io
import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from larklane import bench  # noqa: E402

# A stand-in for `larklane bench BENCHMARK --with VARIANT --json FILE ...`; what it does is told by MODE.
COMMAND = """#!{python}
import json, os, sys, time
words = sys.argv[1:]
value = lambda name: words[words.index(name) + 1] if name in words else None
benchmark, variant, without = words[1], value("--with"), (value("--without") or "").split(",")
mode = os.environ["MODE"]
ways = [way for way in ("join", "partitioned") if way not in without]
failures = []
if mode == "hang" and variant == "native" and "partitioned" in ways:
    failures = [{{"way": "partitioned", "bytes": 64, "what": "not over after 30 s"}}]
points = [] if failures else [{{"bytes": 64, "series": [{{"way": way, "wrong": int(mode == "wrong" and variant == "native")}} for way in ways]}}]
record = {{"options": {{"benchmark": benchmark}}, "context": {{"variant": variant}}, "points": points, "failures": failures}}
with open(os.environ["LOG"], "a") as log:
    log.write(" ".join(words) + "\\n")
if mode == "die":
    sys.exit("no such network")
json.dump(record, open(value("--json"), "w"))
if mode == "sleep":
    time.sleep(60)
sys.exit(1 if failures or mode == "wrong" else 0)
"""


class Runner(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        command = self.folder / "larklane"
        command.write_text(COMMAND.format(python=sys.executable))
        command.chmod(0o755)

    def measured(self, mode: str, *words: str) -> tuple[int, dict[str, Any], list[str]]:
        """@return exit status, the set, the words of each launch"""
        log, out = self.folder / "log", self.folder / "out"
        environment = {"LARKLANE_COMMAND": str(self.folder / "larklane"), "LOG": str(log), "MODE": mode}
        with mock.patch.dict(os.environ, environment), contextlib.redirect_stderr(io.StringIO()), \
                contextlib.redirect_stdout(io.StringIO()):
            status = bench.main([*words, "--launcher", "env", "--no-report", "--out", str(out)])
        return status, json.loads((out / "bench.json").read_text()), log.read_text().splitlines()

    def test_variants_take_turns(self) -> None:
        status, found, launches = self.measured("well", "overhead", "--repetitions", "3")
        self.assertEqual((status, found["failures"]), (0, []))
        variants = [run["context"]["variant"] for run in found["runs"]]
        self.assertEqual(variants, ["native", "larklane", "larklane", "native", "native", "larklane"])
        self.assertTrue(all(line.startswith("bench overhead --with") for line in launches))

    def test_all_means_every_benchmark_once_in_a_quick_run(self) -> None:
        _, found, _ = self.measured("well", "all", "--quick", "--with", "larklane")
        self.assertEqual([run["options"]["benchmark"] for run in found["runs"]], list(bench.BENCHMARKS))

    def test_further_options_reach_the_benchmark(self) -> None:
        _, _, launches = self.measured("well", "overhead", "--with", "native", "--repetitions", "1", "--threads", "3")
        self.assertTrue(launches[0].endswith("--threads 3"))

    def test_a_way_that_hangs_is_named_and_left_out_from_then_on(self) -> None:
        status, found, launches = self.measured("hang", "overhead", "--repetitions", "2")
        self.assertEqual(status, 0, "a failure of the MPI's own is no failure of the run")
        (failure,) = found["failures"]
        self.assertEqual((failure["variant"], failure["way"]), ("native", "partitioned"))
        self.assertIn("64 bytes", failure["what"])
        self.assertEqual(len(found["runs"]), 4)
        self.assertEqual(["--without partitioned" in line for line in launches], [False, True, False, False, True])

    def test_wrong_payload_is_a_failure(self) -> None:
        _, found, _ = self.measured("wrong", "overhead", "--repetitions", "1")
        self.assertEqual({failure["what"] for failure in found["failures"]}, {"64 bytes: 1 wrong rounds"})
        self.assertEqual({failure["variant"] for failure in found["failures"]}, {"native"})

    def test_a_launch_that_dies_does_not_stop_the_others(self) -> None:
        status, found, launches = self.measured("die", "all", "--repetitions", "1")
        self.assertEqual((status, found["runs"], len(launches)), (1, [], 2 * len(bench.BENCHMARKS)))
        self.assertTrue(all("no such network" in failure["what"] for failure in found["failures"]))

    def test_a_launch_without_end_is_killed_and_what_it_measured_is_kept(self) -> None:
        began = time.monotonic()
        _, found, _ = self.measured("sleep", "overhead", "--with", "native", "--repetitions", "1", "--launch-limit", "1")
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual((len(found["runs"]), found["failures"][0]["what"]), (1, "no end after 1 s"))

    def test_unknown_variant_is_refused(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(bench.main(["overhead", "--with", "both", "--out", str(self.folder)]), 2)
        self.assertIn("--with both", errors.getvalue())

    def test_a_folder_that_can_not_be_made_is_said(self) -> None:
        file = self.folder / "file"
        file.write_text("")
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(bench.main(["overhead", "--out", str(file / "under")]), 1)
        self.assertIn(str(file / "under"), errors.getvalue())


if __name__ == "__main__":
    unittest.main()
