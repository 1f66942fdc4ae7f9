#!/usr/bin/env python3
"""Checks the simulation of rounds over shared memory. It takes measured costs of this host, and its results are compared with
real rounds of two threads. Writes measurements/simulated-<commit>.json and simulated.md.

Costs (`larklane bench copy-steps` and `call-differences`; none of them is a round):
  copy     a call of attach that copies 2 to 32 KiB, by one core and by two at a time, by size of the message
  turn     a turn of a waiting call
  switch   a core that a thread leaves
  line     a cache line from another core
  pready   a Pready; move: its addition to a copying call; first: the same after a pause
Real rounds: `larklane bench exposed` by attach. Each thread of the sender is bound to its own core, the receiver to the second thread's; the
first thread is ready 1 us or 1 ms after the second. Costs and rounds are measured in turns.

Criterion: |simulated / real - 1|, median over the grid, at most 0.15. The median includes points with more A/A noise of their real rounds than
that, from turn to turn; they are listed. Exit status: 0 if the criterion holds.
"""

import argparse
import dataclasses
import itertools
import pathlib
import subprocess
import sys
from typing import Any

import bars
from larklane.numbers import stats, wording

KEPT = bars.ROOT / "build/simulated"
TURNS = 5
LIMIT = 0.15
PARTITIONS = (4, 16, 32)
SIZES = tuple(1 << power for power in (16, 18, 20, 22, 24))
LATE_US = (1, 1000)  # 1: the late thread always completes a common group
THREADS = 2
CALLS = tuple(1 << power for power in range(11, 16))  # of `copy-steps --ways copy`, in its order
COLUMNS = 6  # alone, beside the sender's other thread, both sides: each far from the receiver's core and on it
PIECE_BYTES = 32 << 10  # default of option shm_piece_bytes
ATTACH = "LARKLANE_SHM_SLOT_BYTES_MAX=0"


@dataclasses.dataclass(frozen=True)
class Point:
    partitions: int
    bytes: int
    groups: int
    late_us: int

    def command(self) -> str:
        rounds = max(20, min(100, (64 << 20) // self.bytes))
        return (f"larklane mpich5 {ATTACH} LARKLANE_POLICY=static:{self.groups} exposed --ways partitioned --bare --bound --threads {THREADS} --partitions {self.partitions} "
                f"--sizes {self.bytes} --late-us {self.late_us} --iterations {rounds}")

    def place(self) -> str:
        return f"{self.partitions} partitions, {wording.size(self.bytes)}, {self.groups} groups, " + f"{self.late_us} us late"


def grid() -> list[Point]:
    return [Point(partitions, bytes_, groups, late_us) for partitions, bytes_, late_us in itertools.product(PARTITIONS, SIZES, LATE_US)
            for groups in sorted({1, 2, 4, partitions})]


def samples_of(command: str) -> list[float]:
    """Run `larklane bench`, and retry once if it fails: bound threads on busy cores may exceed the time limit. @raises RuntimeError"""
    for _ in range(2):
        results, why = bars.run_once(command, [{}], 60, bars.Reading(quantile=None))
        samples, wrong = results[0] if results else (None, why)
        if samples and not wrong and not why:
            return [float(sample) for sample in samples]
    raise RuntimeError(f"{command}: {wrong or why}")


def cost_commands() -> dict[str, str]:
    """@return {cost: command}; a command `copy BYTES` measures 30 costs of copying calls, for one size of the message"""
    found = {f"copy {bytes_}": f"larklane mpich5 {ATTACH} copy-steps --bare --ways copy --sizes {bytes_} --iterations {COLUMNS * len(CALLS) * max(5, min(31, (24 << 20) // bytes_))}" for bytes_ in SIZES}
    return {**found,
            "turn": f"larklane mpich5 {ATTACH} copy-steps --bare --ways turn --sizes 65536 --iterations 40",
            "switch": f"larklane mpich5 {ATTACH} copy-steps --bare --ways switch --sizes 65536 --iterations 60",
            "line": f"larklane mpich5 {ATTACH} copy-steps --bare --ways line --sizes 65536 --iterations 100",
            "move": f"larklane mpich5 {ATTACH} LARKLANE_POLICY=none copy-steps --bare --ways move --sizes 32768 --partitions 16 --iterations 300",
            "first": f"larklane mpich5 {ATTACH} LARKLANE_POLICY=none copy-steps --bare --ways first --sizes 32768 --partitions 16 --iterations 200",
            "pready": f"larklane mpich5 LARKLANE_POLICY=single {ATTACH} call-differences --ways pready --bare --partitions 16 --sizes 524288 --iterations 300"}


def costs_of_turn() -> dict[str, list[float]]:
    """@return nanoseconds: the median of one run each; 30 medians for `copy BYTES`, in the order of the probe"""
    found = {}
    for name, command in cost_commands().items():
        samples = samples_of(command)
        columns = [samples[column::COLUMNS * len(CALLS)] for column in range(COLUMNS * len(CALLS))] if name.startswith("copy") else [samples[::2], samples[1::2]] if name == "first" else [samples]
        found[name] = [stats.median(column) for column in columns]
    warm_ns = max(found["move"][0], 0) + max(found["pready"][0], 0)
    pready_ns, call_ns = found["first"]
    found["first"] = [pready_ns - call_ns - warm_ns]
    return found


def over_turns(turns: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    return {name: [stats.median(column) for column in zip(*(turn[name] for turn in turns), strict=True)] for name in turns[0]}


def costs_text(costs: dict[str, list[float]]) -> str:
    """@return the text of a file for `larklane simulate --costs`"""
    lines = ["larklane copy costs 1", "# nanoseconds; measured by scripts/measure/simulated.py", f"cores {THREADS}", f"piece_bytes {PIECE_BYTES}"]
    lines += [f"{name} {max(costs[name][0], 0):.1f}" for name in ("pready", "move", "first", "line", "turn", "switch")]
    lines.append("#    bytes of the message, of the call; alone, beside the sender's other thread, both sides: far from the receiver's core, on it")
    for bytes_, (number, call) in itertools.product(SIZES, enumerate(CALLS)):
        of_call = [costs[f"copy {bytes_}"][column * len(CALLS) + number] for column in range(COLUMNS)]
        lines.append(f"copy {bytes_} {call} " + " ".join(f"{ns:.1f}" for ns in of_call))
    return "\n".join([*lines, "end"]) + "\n"


def simulated_us(file: pathlib.Path, points: list[Point]) -> dict[Point, float]:
    """@raises RuntimeError  with the command's error output"""
    found = {}
    for partitions, late_us in sorted({(point.partitions, point.late_us) for point in points}):
        made = bars.larklane_json("simulate", "--costs", file, "--partitions", partitions, "--threads", THREADS, "--from", min(SIZES), "--to", max(SIZES),
                                  "--pattern", "late-thread", "--spread-us", late_us, "--rounds", 20)
        for row in made["rows"]:
            for groups, figure in zip(made["counts"], row["by_groups"], strict=True):
                found[Point(partitions, row["bytes"], groups, late_us)] = figure["exposed_us"]
    return {point: found[point] for point in points}


def judged(point: Point, real_us: list[float], simulated: float) -> dict[str, Any]:
    """@param real_us  the median of each run, in turn order"""
    real = stats.median(real_us)
    noise = stats.aa_noise(real_us[::2], real_us[1::2]) if len(real_us) > 1 else float("inf")
    return {**dataclasses.asdict(point), "place": point.place(), "real_us": real_us, "median_us": real, "aa_noise": noise, "simulated_us": simulated,
            "error": abs(simulated / real - 1), "is_too_noisy": noise > LIMIT}


def verdicts(points: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    error, quiet = (stats.median([point["error"] for point in chosen] or [float("inf")]) for chosen in (points, [point for point in points if not point["is_too_noisy"]]))
    worst = max(points, key=lambda point: point["error"])
    noisy = sum(point["is_too_noisy"] for point in points)
    beyond = sum(point["error"] > LIMIT for point in points)
    return [(f"median error {100 * error:.1f} % of {len(points)} points (at most {100 * LIMIT:.0f}); {beyond} are further off, the worst by {100 * worst['error']:.0f} %: "
             f"{worst['place']}; {noisy} are too noisy to tell, without them {100 * quiet:.1f} %", error <= LIMIT)]


def table(points: list[dict[str, Any]], costs: dict[str, list[float]]) -> str:
    lines = ["# Simulated rounds over shared memory, beside real ones", "",
             "What a receiver is left to wait for, two threads, by attach; simulated with the costs below, measured in the same run, and none of",
             "them in a round ([simulation](../docs/design/simulation.md)). Written by `scripts/measure/simulated.py`, which says how.", "",
             *bars.listed(verdicts(points)), "",
             "| point | real, us | A/A noise | simulated, us | error |", "|---|---|---|---|---|"]
    lines += [f"| {point['place']} | {point['median_us']:.1f} | {100 * point['aa_noise']:.0f} %{', too noisy' if point['is_too_noisy'] else ''} | {point['simulated_us']:.1f} "
              f"| {100 * (point['simulated_us'] / point['median_us'] - 1):+.0f} % |" for point in points]
    lines += ["", "The costs, as `larklane simulate --costs` takes them:", "", "```", costs_text(costs).rstrip(), "```"]
    return "\n".join(lines) + "\n"


def measure(points: list[Point], turns: int) -> tuple[list[dict[str, list[float]]], dict[Point, list[float]]]:
    """@return costs by turn, and by point the real rounds in us by turn. @raises RuntimeError"""
    costs: list[dict[str, list[float]]] = []
    real: dict[Point, list[float]] = {point: [] for point in points}
    for turn in range(turns):
        costs.append(costs_of_turn())
        for point in points if turn % 2 == 0 else reversed(points):
            real[point].append(stats.median(samples_of(point.command())) / 1e3)
        print(f"[{turn + 1}/{turns}]", flush=True)
    return costs, real


def write(about: dict[str, Any], points: list[dict[str, Any]], turns: list[dict[str, list[float]]]) -> None:
    costs = over_turns(turns)
    record = {**about, "row": "simulated", "unit": "us", "costs": turns, "points": points, "verdicts": bars.recorded(verdicts(points))}
    bars.keep_record("simulated", record, table(points, costs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS, help=f"of costs and rounds ({TURNS})")
    parser.add_argument("--costs", type=pathlib.Path, metavar="FILE", help="only measure the costs of this host, and write them for `larklane simulate --costs FILE`")
    parser.add_argument("--dry", action="store_true", help="print the table, write no record")
    arguments = parser.parse_args()
    if arguments.turns < 1:
        parser.error("--turns: 1 at least")
    try:
        if arguments.costs:
            arguments.costs.write_text(costs_text(over_turns([costs_of_turn() for _ in range(arguments.turns)])))
            return 0
        about, points = bars.context(), grid()
        turns, real = measure(points, arguments.turns)
        KEPT.mkdir(parents=True, exist_ok=True)
        file = KEPT / "costs.txt"
        file.write_text(costs_text(over_turns(turns)))
        simulated = simulated_us(file, points)
    except (RuntimeError, OSError, subprocess.TimeoutExpired, ValueError) as error:
        print(f"simulated: {error}; the machine has to be left alone; `make build` makes the programs, `make setup` the MPI", file=sys.stderr)
        return 1
    found = [judged(point, real[point], simulated[point]) for point in points]
    if arguments.dry:
        print(table(found, over_turns(turns)))
    else:
        write(about, found, turns)
    return bars.told(verdicts(found))


if __name__ == "__main__":
    sys.exit(main())
