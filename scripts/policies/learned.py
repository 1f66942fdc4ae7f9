#!/usr/bin/env python3
"""Policy `learned` on a simulated network, against an oracle: the best equal groups of each number of partitions, size and pattern.
The oracle tries all powers of two in the same rounds. Writes measurements/learned-<commit>.json and learned.md.

`larklane simulate --learned`: the policy learns for 50 rounds, the next 50 count. Criteria:

  after        exposed time over the oracle's: median at most 1.05, worst at most 1.15
  meanwhile    exposed time of the first 50 rounds over bulk's: at most 1.25
  bulk         after them, at most 1.03 of bulk's and 100 ns, or the cost of the calls of MPI_Pready, if that is more
  ahead        one laggard, 512 KiB to 4 MiB, messages at the cost that Table I assumes (15 us): at most 0.8 of the oracle's

Simulated time does not depend on the machine, so a busy machine may run this. Exit status: 0 if all criteria hold.
"""

import argparse
import dataclasses
import pathlib
import statistics
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "measure"))

import bars  # noqa: E402

ROUNDS = 100
PARTITIONS = (4, 16, 32, 128)
# Each round computes for 10 ms: 100 us are 1 %.
PATTERNS = (("simultaneous", 0), ("laggard", 100), ("laggard", 400), ("uniform", 400), ("gaussian", 100), ("alternating", 400), ("bursts", 400))
SIZES = ("--from", "1K", "--to", "64M")
DEAR = ("--gap-ns", "15000")
PREADY_US = 0.010  # one call, as measured by row pready


@dataclasses.dataclass(frozen=True)
class Case:
    partitions: int
    pattern: str
    spread_us: int
    words: tuple[str, ...] = SIZES

    def title(self) -> str:
        return f"{self.partitions} partitions, {self.pattern}, {self.spread_us} us"

    def points(self, command: str | pathlib.Path) -> list[dict[str, Any]]:
        """@return the exposed times, one entry a size. @raises RuntimeError  with the command's error output"""
        made = bars.larklane_json("simulate", "--learned", "--rounds", ROUNDS, "--partitions", self.partitions, "--pattern", self.pattern,
                                  "--spread-us", self.spread_us, *self.words, command=command)
        return [{"partitions": self.partitions, "pattern": self.pattern, "spread_us": self.spread_us, "gap_ns": made["gap_ps"] / 1000,
                 "bytes": row["bytes"], "counts": made["counts"], "equal_us": [each["exposed_us"] for each in row["one_sided"]],
                 "learned_us": row["learned"]["exposed_us"], "learning_us": row["learning"]["exposed_us"],
                 "transfers": row["learned"]["transfers"], "two_sided_us": row["two_sided"]["exposed_us"]} for row in made["rows"]]


def of_oracle(point: dict[str, Any]) -> float:
    return point["learned_us"] / min(point["equal_us"])


def while_learning(point: dict[str, Any]) -> float:
    return point["learning_us"] / point["equal_us"][0]


def over_bulk_us(point: dict[str, Any]) -> float:
    """Exposed time above the limit of criterion `bulk`: 0 or less holds."""
    return point["learned_us"] - 1.03 * point["equal_us"][0] - max(0.1, point["partitions"] * PREADY_US)


def place(point: dict[str, Any]) -> str:
    spread = f", {point['spread_us']} us" if point["spread_us"] else ""
    return f"{point['partitions']} partitions, {point['bytes']} bytes, {point['pattern']}{spread}"


def verdicts(points: list[dict[str, Any]], dear: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    worst, meanwhile, bulk, least_ahead = max(points, key=of_oracle), max(points, key=while_learning), max(points, key=over_bulk_us), max(dear, key=of_oracle)
    median = statistics.median(map(of_oracle, points))
    beyond = sum(of_oracle(point) > 1.15 for point in points)
    return [
        (f"after 50 rounds: {median:.3f} times the oracle's exposed time (median of {len(points)} points, at most 1.05)", median <= 1.05),
        (f"worst: {of_oracle(worst):.3f} (at most 1.15; {beyond} points are above): {place(worst)}", not beyond),
        (f"the 50 rounds together: at most {while_learning(meanwhile):.3f} times bulk's (1.25): {place(meanwhile)}", while_learning(meanwhile) <= 1.25),
        (f"never slower than bulk: {sum(over_bulk_us(point) > 0 for point in points)} points of {len(points)} are; nearest: {place(bulk)}", over_bulk_us(bulk) <= 0),
        (f"ahead where messages cost 15 us: {of_oracle(least_ahead):.3f} times the oracle's at worst (0.8): {place(least_ahead)}", of_oracle(least_ahead) <= 0.8),
    ]


def table(points: list[dict[str, Any]], dear: list[dict[str, Any]]) -> str:
    lines = ["# Policy `learned`, simulated", "",
             "Exposed time after 50 rounds over that of the best equal groups of the same point (the oracle), on the simulated network `niagara`",
             "([simulation](../docs/design/simulation.md): more than 2 threads are extrapolated). Written by `scripts/policies/learned.py`, which says what has to hold.", "",
             *bars.listed(verdicts(points, dear)), "",
             "| pattern | partitions | " + " | ".join(size(bytes_) for bytes_ in sorted({point["bytes"] for point in points})) + " |",
             "|---" * (2 + len({point["bytes"] for point in points})) + "|"]
    for pattern, spread_us in PATTERNS:
        for partitions in PARTITIONS:
            row = [point for point in points if (point["pattern"], point["spread_us"], point["partitions"]) == (pattern, spread_us, partitions)]
            lines.append(f"| {pattern}{f', {spread_us} us' if spread_us else ''} | {partitions} | " + " | ".join(f"{of_oracle(point):.2f}" for point in row) + " |")
    lines += ["", "Messages that cost 15 us each, one laggard of 400 us:", "", "| partitions | bytes | learned, us | best equal groups, us | bulk, us | transfers |", "|---|---|---|---|---|---|"]
    lines += [f"| {point['partitions']} | {size(point['bytes'])} | {point['learned_us']:.1f} | {min(point['equal_us']):.1f} | {point['equal_us'][0]:.1f} | {point['transfers']:.0f} |" for point in dear]
    return "\n".join(lines) + "\n"


def size(bytes_: int) -> str:
    return f"{bytes_ >> 20} MiB" if bytes_ >= 1 << 20 else f"{bytes_ >> 10} KiB"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="LARKLANE", help="with this command, and write nothing")
    checked = parser.parse_args().check
    grid = [Case(partitions, pattern, spread_us) for pattern, spread_us in PATTERNS for partitions in PARTITIONS]
    laggards = [Case(partitions, "laggard", 400, ("--from", "512K", "--to", "4M", *DEAR)) for partitions in (32, 128)]
    points, dear = [], []
    try:
        for case, made in bars.two_at_a_time(lambda case: case.points(checked or bars.ROOT / bars.LARKLANE), grid + laggards, Case.title):
            (points if case in grid else dear).extend(made)
    except (RuntimeError, OSError) as error:
        print(f"learned: {error}", file=sys.stderr)
        return 1
    found = verdicts(points, dear)
    status = bars.told(found)
    if not checked:
        record = {**bars.context(), "row": "learned-simulated", "unit": "us", "points": points, "dear": dear, "verdicts": bars.recorded(found)}
        bars.keep_record("learned", record, table(points, dear))
    return status


if __name__ == "__main__":
    sys.exit(main())
