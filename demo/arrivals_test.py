#!/usr/bin/env python3
"""The formulas of arrivals.py on traces small enough to count by hand."""

import json
import tempfile
import unittest
from pathlib import Path

import arrivals


def event(side: str, peer: int, round_: int, name: str, partition: int, t_ns: int, channel: str = "down") -> dict:
    """One event, as the examples write it."""
    return {"channel": channel, "side": side, "peer": peer, "round": round_, "event": name, "partition": partition,
            "t_ns": t_ns}


SENT = [event("send", 1, 0, "ready", 0, 2_000_000), event("send", 1, 0, "ready", 1, 1_000_000),
        event("send", 1, 1, "ready", 0, 9_000_000), event("send", 1, 1, "ready", 1, 9_500_000),
        event("send", 2, 0, "ready", 0, 1), event("send", 1, 0, "ready", 0, 1, channel="up")]
RECEIVED = [event("receive", 0, 0, "arrived", 0, 4_000_000), event("receive", 0, 0, "arrived", 1, 1_500_000),
            event("receive", 0, 1, "arrived", 0, 9_750_000)]


class Rounds(unittest.TestCase):
    """What counts as a round, and what is computed from it."""

    def test_times_count_from_the_first_ready_partition(self) -> None:
        found = arrivals.rounds(SENT, RECEIVED, "down", 0, 1, skip=0)
        self.assertEqual(found, [arrivals.Round((1.0, 0.0), (3.0, 0.5))])

    def test_incomplete_and_skipped_rounds_are_left_out(self) -> None:
        complete = RECEIVED + [event("receive", 0, 1, "arrived", 1, 9_900_000)]
        self.assertEqual(len(arrivals.rounds(SENT, complete, "down", 0, 1, skip=0)), 2)
        self.assertEqual(arrivals.rounds(SENT, complete, "down", 0, 1, skip=1),
                         [arrivals.Round((0.0, 0.5), (0.75, 0.9))])

    def test_exposed_and_early(self) -> None:
        one = arrivals.Round((0.0, 5.0, 1.0), (0.5, 5.25, 5.0))
        self.assertEqual(one.exposed_ms, 0.25)
        self.assertEqual(one.early, 1)  # 5.0 is not before 5.0

    def test_typical_is_the_median_of_each_partition(self) -> None:
        self.assertEqual(arrivals.typical([(1, 10), (2, 30), (9, 20)]), [2, 20])

    def test_load_separates_the_description(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.0"
            path.write_text("".join(json.dumps(line) + "\n" for line in [{"rank": 0}, *SENT]), encoding="utf-8")
            self.assertEqual(arrivals.load(path), ({"rank": 0}, SENT))


if __name__ == "__main__":
    unittest.main()
