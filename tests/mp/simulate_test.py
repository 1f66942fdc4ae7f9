#!/usr/bin/env python3
"""`larklane simulate` from the command line, and the required results of policy `learned` on its network.

  simulate_test.py --build DIR CASE     one case
  simulate_test.py --list               every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import json
import pathlib
import sys

import stub_test
from stub_test import REFUSED, expect, system


def copies(bench):
    """It computes with the file's costs, repeats itself, and refuses a file of another kind."""
    costs = bench.scratch / "costs.txt"
    named = ("cores 2", "piece_bytes 32768", "pready 0", "move 0", "first 0", "line 0", "turn 0", "switch 0")
    calls = [f"copy 1048576 {bytes_} {' '.join([str(bytes_ / 8)] * 6)}" for bytes_ in (2048, 32768)]  # 8 GB/s
    costs.write_text("\n".join(["larklane copy costs 1", *named, *calls, "end"]) + "\n", encoding="utf-8")
    words = ("simulate", "--costs", costs, "--pattern", "late-thread", "--spread-us", 1000, "--partitions", 4, "--from", "1M", "--to", "1M", "--rounds", 3)
    made = json.loads(system(bench.command, *words, "--json"))
    # One group: the receiver copies a half of the message; several: a half of the first thread's half.
    expect(made["counts"] == [1, 2, 4], "other groups", str(made))
    for figure, us in zip(made["rows"][0]["by_groups"], (1 << 16, 1 << 15, 1 << 15), strict=True):
        expect(us / 1e3 < figure["exposed_us"] < 1.01 * us / 1e3, "not what the costs say", str(made))
    table = system(bench.command, *words)
    expect(table == system(bench.command, *words) and "8 KiB" not in table and "2 KiB    0.26" in table, "the table does not say the costs", table)
    damaged = bench.scratch / "damaged.txt"
    damaged.write_text(costs.read_text(encoding="utf-8").replace("turn 0", "turn -1"), encoding="utf-8")
    for more, why in ((("--costs", damaged), "line 8"), (("--costs", bench.scratch / "none.txt"), "can't be read"), (("--costs", costs, "--threads", 3), "--threads"),
                      (("--costs", costs, "--learned"), "--learned"), (("--costs", costs, "--from", 1000, "--partitions", 3), "--from"), (("--pattern", "late-thread"), "--costs")):
        output = system(bench.command, "simulate", *more, status=REFUSED)
        expect(why in output, f"{more}: no '{why}'", output)


def searches(bench):
    """The table is the best of all numbers of groups and queues; of equal ones the fewest."""
    words = ("simulate", "--pattern", "simultaneous", "--partitions", 8, "--from", "1K", "--to", "4M", "--json")
    made = json.loads(system(bench.command, *words, "--search"))
    by_queues = {queues: json.loads(system(bench.command, *words, "--queues", queues)) for queues in (1, 2, 4, 8)}
    for at, row in enumerate(made["rows"]):
        tried = {(groups, queues): one["rows"][at]["one_sided"][index]["exposed_us"] for queues, one in by_queues.items()
                 for index, groups in enumerate(made["counts"]) if queues <= groups}
        best = min(tried, key=lambda key: (tried[key], key))
        found = row["searched"]
        expect((found["groups"], found["queues"]) == best and found["exposed_us"] == tried[best], f"not {best}: {tried}", str(found))
        expect(row["one_sided"] == by_queues[1]["rows"][at]["one_sided"], "the search changes the other figures", str(row))
    expect(any(row["searched"]["queues"] > 1 for row in made["rows"]), "no size gains by a second queue", str(made["rows"]))
    expect(" 4x2 " in system(bench.command, *words[:-1], "--search"), "the table does not show them")
    expect("--search" in system(bench.command, "simulate", "--sweep", "2x2", "--search", status=REFUSED), "a sweep searches")


def learns(bench):
    """Against an oracle, 476 points: scripts/policies/learned.py has the bounds."""
    system(sys.executable, pathlib.Path(__file__).parents[2] / "scripts/policies/learned.py", "--check", bench.command, seconds=1100)


def cases():
    return [(copies, None), (searches, None), (learns, None)]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, stub_test.Bench, __doc__))
