#!/usr/bin/env python3
"""Policy `timer` on a simulated network, where one thread is late. Writes measurements/timer-<commit>.json and timer.md.

`larklane simulate --deadline-us`: each partition by itself, equal groups of each number, and the timer's groups, in the same rounds. Criteria, at
each size and number of partitions:

  bandwidth   the timer's perceived bandwidth is at least 0.95 of the bandwidth without aggregation
  transfers   one for the timely partitions of each word of 32, one for the laggard

Simulated time does not depend on the machine, so a busy machine may run this. Exit status: 0 if both criteria hold.
"""

import argparse
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "measure"))

import bars  # noqa: E402
from learned import size  # noqa: E402

PARTITIONS = (4, 16, 32, 128)
LATE_US = (400, 4000)
DEADLINES_US = (10, 35, 100)
SHARE = 0.95

Point = dict[str, Any]


def points(case: tuple[int, int]) -> list[Point]:
    """@return one point a size. @raises RuntimeError  with the command's error output"""
    partitions, late_us = case
    made = bars.larklane_json("simulate", "--partitions", partitions, "--pattern", "laggard", "--spread-us", late_us, "--rounds", 20,
                              "--deadline-us", ",".join(map(str, DEADLINES_US)))
    return [{"partitions": partitions, "late_us": late_us, "bytes": row["bytes"], "counts": made["counts"], "equal": brief(row["one_sided"]),
             "timed": brief(row["timed"])} for row in made["rows"]]


def brief(results: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{"gigabytes_per_second": round(each["perceived_gigabytes_per_second"], 4), "transfers": each["transfers"]} for each in results]


def bandwidth(result: dict[str, float]) -> float:
    return result["gigabytes_per_second"]


def share(point: Point) -> float:
    """Bandwidth of the worst deadline over the bandwidth without aggregation."""
    return min(map(bandwidth, point["timed"])) / bandwidth(point["equal"][-1])


def fewest_equal(point: Point) -> float:
    """Fewest transfers of equal groups with at least SHARE of the bandwidth without aggregation."""
    return min(result["transfers"] for result in point["equal"] if bandwidth(result) >= SHARE * bandwidth(point["equal"][-1]))


def most_transfers(point: Point) -> float:
    return max(result["transfers"] for result in point["timed"])


def has_fewest(point: Point) -> bool:
    return most_transfers(point) <= -(-point["partitions"] // 32) + 1


def place(point: Point) -> str:
    return f"{point['partitions']} partitions, {size(point['bytes'])}, {point['late_us']} us late"


def verdicts(found: list[Point]) -> list[tuple[str, bool]]:
    worst = min(found, key=share)
    more = [point for point in found if not has_fewest(point)]
    return [
        (f"bandwidth: at worst {share(worst):.3f} of that without aggregation ({SHARE}; {len(found)} points): {place(worst)}", share(worst) >= SHARE),
        (f"transfers: a word and the laggard at {len(found) - len(more)} of {len(found)} points" + "".join(f"; not {place(point)}" for point in more[:3]) +
         f"; fewer than any equal groups within that share at {sum(most_transfers(point) < fewest_equal(point) for point in found)}, more at "
         f"{sum(most_transfers(point) > fewest_equal(point) for point in found)}, where few groups leave as little", not more),
    ]


def table(found: list[Point]) -> str:
    lines = ["# Policy `timer`, simulated", "",
             "One thread late, all others at once, on the simulated network `niagara` ([simulation](../docs/design/simulation.md): more than 2 threads are",
             f"extrapolated). Deadlines of {', '.join(map(str, DEADLINES_US))} us; the worst of them is shown. Written by `scripts/policies/timer.py`, which says what has to hold.", "",
             *bars.listed(verdicts(found)), "",
             "| partitions | late | size | without aggregation, GB/s | timer, GB/s | transfers | fewest of equal groups within 5 % |", "|---|---|---|---|---|---|---|"]
    for point in found:
        if point["bytes"] not in (1 << 10, 1 << 16, 1 << 20, 1 << 23, 1 << 27):
            continue
        none = bandwidth(point["equal"][-1])
        worst = min(point["timed"], key=bandwidth)
        lines.append(f"| {point['partitions']} | {point['late_us']} us | {size(point['bytes'])} | {none:.1f} | {bandwidth(worst):.1f} | {most_transfers(point):.0f} | {fewest_equal(point):.0f} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    cases = [(partitions, late_us) for partitions in PARTITIONS for late_us in LATE_US]
    found: list[Point] = []
    try:
        for _, made in bars.two_at_a_time(points, cases, lambda case: f"{case[0]} partitions, {case[1]} us late"):
            found.extend(made)
    except (RuntimeError, OSError) as error:
        print(f"timer: {error}", file=sys.stderr)
        return 1
    said = verdicts(found)
    record = {**bars.context(), "row": "timer-simulated", "unit": "us", "points": found, "verdicts": bars.recorded(said)}
    bars.keep_record("timer", record, table(found))
    return bars.told(said)


if __name__ == "__main__":
    sys.exit(main())
