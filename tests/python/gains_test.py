#!/usr/bin/env python3
"""The gains in a report: outcomes are counted without the costs of calls, and ties are stated."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import golden

from larklane.comparison import gains
from larklane.records import schema
from larklane.records.cases import HEADLINES
from larklane.report import digest, command as report

TWELVE = [1 + 0.001 * i for i in range(12)]
CALLS = {"psend_init": (1000, 4000), "pready": (10, 90), "start_send": (50, 400), "wait_send": (100, 20), "empty": (1, 1.2)}


def scaled(value: float) -> list[float]:
    return [value * factor for factor in TWELVE]


def calls() -> list[golden.Json]:
    """Each call under both variants: three are dearer under Larklane, one is cheaper."""
    return [golden.record("call-cost", golden.point(65536, 8, *(golden.series(call, {"call_ns": scaled(costs[at])}) for call, costs in CALLS.items())),
                          variant=variant) for at, variant in enumerate(("native", "larklane"))]


def outcomes(ours: float, theirs: float) -> list[golden.Json]:
    """Early-bird communication of both variants, as shares, at two sizes."""
    return [golden.record("early-bird", *(golden.point(size, 4, golden.series("partitioned", {"early_bird_share": scaled(share)})) for size in (4096, 65536)),
                          variant=variant) for variant, share in (("native", theirs), ("larklane", ours))]


class Gains(unittest.TestCase):
    """Records in, sentences out."""

    def made(self, *runs: golden.Json) -> digest.Digest:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bench.json"
            path.write_text(json.dumps(golden.gathered(*runs)), encoding="utf-8")
            return digest.digest(schema.load([path]))

    def text(self, *runs: golden.Json, page: bool = False) -> str:
        """The text that the command prints, or the page that it writes."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
            path = Path(folder) / "bench.json"
            path.write_text(json.dumps(golden.gathered(*runs)), encoding="utf-8")
            self.assertEqual(report.main([str(path), "--out", f"{folder}/out", *([] if page else ["--text"])]), 0)
            return (Path(folder) / "out/index.html").read_text(encoding="utf-8") if page else out.getvalue()

    def test_costs_of_calls_are_no_outcomes(self) -> None:
        first, costs, *_ = digest.gained(self.made(*outcomes(0.8, 0.1), *calls()))
        self.assertEqual(first, "Partitions under Larklane against the MPI's own: better at 2 of 2 outcomes, a tie at none, worse at none. "
                                "Better, median: early-bird communication +70.4 points.")
        self.assertIn("cheaper at 1 of 4, a tie at none, dearer at 3", costs)  # an empty call is none
        self.assertNotIn("worse at 3", " ".join(digest.gained(self.made(*outcomes(0.8, 0.1), *calls()))))

    def test_a_dearer_call_stands_beside_its_outcome(self) -> None:
        made = self.made(*outcomes(0.8, 0.1), *calls())
        self.assertIn("MPI_Pready takes 90.5 ns against 10.1 ns at 64 KiB", " ".join(digest.gained(made)))
        table = digest.call_costs(made)
        rows = {row[0]: dict(zip(table.heads, row)) for row in table.rows}
        self.assertEqual([rows[call]["Larklane against native"] for call in ("pready", "wait_send")], ["dearer", "cheaper"])
        self.assertRegex(rows["pready"]["what it buys"], r"^It buys early-bird communication 80\.\d % against 10\.\d % at 64 KiB\.$")
        self.assertEqual([rows[call]["what it buys"] for call in ("psend_init", "wait_send")], ["paid once a request, not in its rounds", "-"])

    def test_a_dear_call_that_buys_nothing_says_so(self) -> None:
        for ours, words in ((0.1, "Beside it a tie: "), (0.05, "It buys nothing: ")):
            found = " ".join(digest.gained(self.made(*outcomes(ours, 0.1), *calls())))
            self.assertIn(words, found)
        self.assertIn("was not measured here", " ".join(digest.gained(self.made(*calls()))))

    def test_ties_are_said(self) -> None:
        made = self.made(*outcomes(0.1, 0.1))
        self.assertEqual(digest.gained(made), ["Partitions under Larklane against the MPI's own: better at 0 of 2 outcomes, a tie at 2, worse at none.", gains.TIE])
        [row] = digest.gains(made).rows
        self.assertEqual((row[2], row[4:7]), ("a tie", ("0", "2", "0")))

    def test_losses_are_said(self) -> None:
        [first] = digest.gained(self.made(*outcomes(0.1, 0.8)))
        self.assertRegex(first, r"better at 0 of 2 outcomes, a tie at none, worse at 2\. Worse, median: early-bird communication -70\.\d points\.$")

    def test_changes_in_words(self) -> None:
        time, rate, share = (HEADLINES[name] for name in ("message-latency", "perceived-bandwidth", "early-bird"))
        self.assertEqual([gains.change_text(*change) for change in ((time, 0.5), (time, 2), (rate, 3), (rate, 0.5), (share, -2.04))],
                         ["2.00 times shorter", "2.00 times longer", "3.00 times as high", "0.500 times as high", "-2.0 points"])

    def test_first_lines_of_text_and_page(self) -> None:
        runs = [*outcomes(0.8, 0.1), *calls()]
        self.assertRegex(self.text(*runs), r"^What you gain\n  Partitions under Larklane against the MPI's own: better at 2 of 2 outcomes")
        page = self.text(*runs, page=True)
        self.assertRegex(page, r'<section id="gain"><h2>What you gain</h2>\s*<ul><li>Partitions under Larklane')
        self.assertLess(page.index('id="gain"'), page.index('id="what"'))
        self.assertNotIn('class="worse"', page)
        self.assertIn('<strong class="dearer">dearer</strong>', page)

    def test_nothing_to_compare(self) -> None:
        self.assertIn("Nothing to compare", self.text(outcomes(0.8, 0.1)[0]).splitlines()[1])


if __name__ == "__main__":
    unittest.main()
