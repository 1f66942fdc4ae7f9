#!/usr/bin/env python3
"""Figures 3 and 6 to 14 of Temucin et al., CLUSTER'23, on the simulated network `niagara`: measurements/cluster23.

Writes an SVG and a CSV for each, and README.md: the paper's result, our result, and the cost of a message at which the paper's figures would
appear. Nothing is fitted, and nothing passes or fails. With an MPI of `make setup`, figures 6 and 8 to 14 are also measured over shared memory
(6 minutes): host.json, figure-*-host. Simulated time does not depend on the machine; with --simulated a busy machine may run this.
"""

import argparse
import concurrent.futures
import dataclasses
import importlib.util
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "measure"))

import bars  # noqa: E402
import paper_host  # noqa: E402
import paper_shm  # noqa: E402
import paper_shm_page  # noqa: E402
from cluster23 import DELAY_US, DELTAS_US, PAPER, SHOWS, SWEEP_DELTA_US, TIMER_US, ploggp  # noqa: E402

from larklane.figures.charts import ArrivalPanel, Arrivals, Bar, Chart, Curve, Figure, Mark, Panel  # noqa: E402
from larklane.files import json_text  # noqa: E402
from larklane.numbers import wording  # noqa: E402
from larklane.simulation import command as simulation  # noqa: E402

FOLDER = bars.RECORDS / "cluster23"
Results = dict[str, simulation.Simulated]
Host = paper_host.Host

WIRE = 11.5  # GB/s
TURN_US = 0.050  # for a cache line from another core
SWEEPS = {"14a": (1000, 10), "14b": (1000, 40), "14c": (10000, 400)}  # microseconds of computing and of noise
SIMULATED = "SIMULATED: of no machine, nothing is fitted; more than two threads are an extrapolation"


# --- simulated runs ---------------------------------------------------------------------------------------------------

NETWORK = "--latency-ns 600 --send-overhead-ns 75 --recv-overhead-ns 75 --gap-ns 0"  # the regime's
SIZES = "--from 1K --to 64M"
QUEUES = (1, 2, 4, 8, 16)
MOST_QUEUES = QUEUES[-1]


def plans() -> dict[str, str]:
    """@return {name: words of a run of the command}"""
    wanted = {f"model {cost}": f"model {NETWORK} --spread-us {DELAY_US} --per-part-ns {cost} --from 1K --to 256M" for cost in (0, 15000)}
    at_once = "simulate --pattern simultaneous"
    wanted["6"] = f"{at_once} --partitions 32 --queues 2 --search {SIZES}"
    wanted |= {f"7 {queues}": f"{at_once} --partitions 16 --queues {queues} {SIZES}{' --search' if queues == 1 else ''}" for queues in QUEUES}
    wanted |= {f"8 {partitions}": f"{at_once} --partitions {partitions} --search {SIZES}" for partitions in (4, 32, 128)}
    late = f"simulate --pattern laggard --spread-us {DELAY_US} --from 64K --to 128M --rounds 20"
    wanted |= {f"9 {partitions}": f"{late} --partitions {partitions} --deadline-us {TIMER_US}" for partitions in (4, 8, 16, 32)}
    wanted["13"] = f"{late} --partitions 32 --deadline-us {','.join(map(str, DELTAS_US))}"
    wanted |= {name: sweep(name) + f" --deadline-us {SWEEP_DELTA_US} --rounds 6 --from 1K --to 32M" for name in SWEEPS}
    return wanted


def sweep(name: str) -> str:
    compute_us, noise_us = SWEEPS[name]
    return f"simulate --sweep 8x8 --partitions 16 --pattern laggard --compute-us {compute_us} --spread-us {noise_us}"


def run(words: str) -> simulation.Simulated:
    """@raises RuntimeError  with the command's error output"""
    made: simulation.Simulated = bars.larklane_json(*words.split())
    return made


def run_all() -> Results:
    wanted = plans()
    return dict(bars.two_at_a_time(lambda name: run(wanted[name]), list(wanted), wanted.__getitem__))


# --- figures ----------------------------------------------------------------------------------------------------------


def footer(files: Sequence[simulation.Simulated]) -> str:
    return f"Regime niagara (docs/design/simulation.md has every parameter with its source): {simulation.used(files)}"


def exposed(row: Any, counts: Sequence[int], groups: int) -> float:
    us: float = row["one_sided"][counts.index(groups)]["exposed_us"]
    return us


def line(points: Iterable[tuple[int, float]]) -> tuple[Mark, ...]:
    return tuple(Mark(size, 1, value, value, value) for size, value in points)


def by_count(label: str, at: int, most: int, points: Iterable[tuple[int, float]]) -> Curve:
    """@return a curve of a family, shaded by its place"""
    return Curve(label, "groups", "larklane", line(points), (at,), at / max(most, 1))


def policy(points: Iterable[tuple[int, float]]) -> Curve:
    return Curve("PLogGP: groups by the paper's Table I", "partitioned", "larklane", line(points), (100,))


def timer(delta_us: int, points: Iterable[tuple[int, float]]) -> Curve:
    return Curve(f"timer, {delta_us} us", "thread-comms", "larklane", line(points), (101,))


def baseline(points: Iterable[tuple[int, float]]) -> Curve:
    return Curve("two-sided: a send for each partition", "threads", "native", line(points), (102,))


def speedups(made: simulation.Simulated, groups: Callable[[int], int]) -> list[tuple[int, float]]:
    return [(row["bytes"], row["two_sided"]["exposed_us"] / exposed(row, made["counts"], groups(row["bytes"]))) for row in made["rows"]]


def timed(made: simulation.Simulated) -> list[tuple[int, float]]:
    """@return the baseline's time over the timer's, by size"""
    return [(row["bytes"], row["two_sided"]["exposed_us"] / row["timed"][0]["exposed_us"]) for row in made["rows"]]


def ones(made: simulation.Simulated) -> list[tuple[int, float]]:
    return [(row["bytes"], 1.0) for row in made["rows"]]


def figure_3(results: Results) -> Chart:
    panels = []
    for cost, title in ((0, "As derived"), (15000, "With 15 us for each that nothing hides, as Table I implies")):
        made = results[f"model {cost}"]
        curves = tuple(by_count(wording.count(count, "transport partition"), at, len(made["counts"]) - 1,
                                ((row["bytes"], row["exposed_us"][at]) for row in made["rows"])) for at, count in enumerate(made["counts"]))
        panels.append(Panel(title, curves))
    return Chart("figure-03", "What does PLogGP say of 32 partitions, one 4 ms late?",
                 f"From when the last partition is ready to the end, by PLogGP (docs/design/model.md). {PAPER} 3 shows the whole time, with the 4 ms.",
                 "L 600 ns, o_s and o_r 75 ns, g 0, 11.5 GB/s: sources in docs/design/simulation.md", "computed", "exposed time [us]", "log",
                 tuple(panels), 2)


def table(made: simulation.Simulated) -> Curve:
    """The best of all groups and queues, by size: a tuning table with both."""
    values = [(row["bytes"], row["two_sided"]["exposed_us"] / row["searched"]["exposed_us"]) for row in made["rows"]]
    return Curve("search: the best of all groups and queues", "rma", "larklane", line(values), (101,))


def figure_6(results: Results) -> Chart:
    made = results["6"]
    curves = [by_count(wording.count(count, "group"), at, len(made["counts"]) - 1, speedups(made, lambda _, count=count: count))
              for at, count in enumerate(made["counts"])]
    return Chart("figure-06", "32 partitions at once: how many transfers?",
                 f"The baseline's exposed time over that of the groups, two queues. {PAPER} 6. {SIMULATED}.", footer([made]), "simulated",
                 "speed-up", "log", (Panel("32 partitions, 32 threads, all ready at once", (*curves, table(made), baseline(ones(made)))),), 1)


def figure_7(results: Results) -> Chart:
    files = [results[f"7 {queues}"] for queues in QUEUES]
    curves = [by_count(wording.count(queues, "queue"), at, len(QUEUES) - 1, speedups(made, lambda _: 16))
              for at, (queues, made) in enumerate(zip(QUEUES, files))]
    return Chart("figure-07", "16 partitions at once, none aggregated: how many queue pairs?",
                 f"The baseline's exposed time over that of 16 transfers. {PAPER} 7. Curves lie upon one another where more queues change "
                 f"nothing. {SIMULATED}.", footer(files[:1]).replace("1 queue", f"1 to {MOST_QUEUES} queues"), "simulated", "speed-up",
                 "log", (Panel("16 partitions, 16 threads, all ready at once, 16 transfers", (*curves, table(files[0]), baseline(ones(files[0])))),), 1)


def figure_8(results: Results) -> Chart:
    panels, files = [], []
    for partitions in (4, 32, 128):
        made = results[f"8 {partitions}"]
        files.append(made)
        panels.append(Panel(f"{partitions} partitions and threads",
                            (policy(speedups(made, lambda size, most=partitions: ploggp(size, most))), table(made), baseline(ones(made)))))
    return Chart("figure-08", "All ready at once: groups by the model, and by search",
                 f"The baseline's exposed time over that of the groups. {PAPER} 8. {SIMULATED}.", footer(files), "simulated", "speed-up",
                 "log", tuple(panels), 3)


def bandwidths(made: simulation.Simulated, of: Callable[[Any], Any]) -> list[tuple[int, float]]:
    return [(row["bytes"], of(row)["perceived_gigabytes_per_second"]) for row in made["rows"]]


def figure_9(results: Results) -> Chart:
    panels, files = [], []
    for partitions in (4, 8, 16, 32):
        made = results[f"9 {partitions}"]
        files.append(made)
        counts = made["counts"]
        grouped = bandwidths(made, lambda row, most=partitions, counts=counts: row["one_sided"][counts.index(ploggp(row["bytes"], most))])
        wire = Curve("the wire: 11.5 GB/s", "join", "limit", line((row["bytes"], WIRE) for row in made["rows"]), (103,))
        panels.append(Panel(f"{partitions} partitions and threads", (policy(grouped), timer(TIMER_US, bandwidths(made, lambda row: row["timed"][0])), baseline(bandwidths(made, lambda row: row["two_sided"])), wire)))
    return Chart("figure-09", "One thread 4 ms late: how fast does communication look?",
                 f"The message over the time from when the last partition is ready. {PAPER} 9. {SIMULATED}.", footer(files), "simulated",
                 "perceived bandwidth [GB/s]", "log", tuple(panels), 2)


def modelled_ready_us(partitions: int) -> list[float]:
    """@return microseconds after computing began: the threads mark their word in turn, and the last thread is late"""
    return [100_000 + TURN_US * (turn + 1) for turn in range(partitions - 1)] + [100_000.0 + DELAY_US]


def estimated(ready_us: Sequence[float], size: int) -> tuple[Bar, ...]:
    """The paper's estimate: partitions travel one after the other, in the order of readiness, at the wire's speed."""
    part = size // len(ready_us)
    bars_, free, last = {}, 0.0, max(ready_us)
    for index in sorted(range(len(ready_us)), key=lambda index: ready_us[index]):
        free = max(free, ready_us[index]) + part / WIRE / 1e3
        bars_[index] = Bar(ready_us[index] - last, free - last, part)
    return tuple(bars_[index] for index in range(len(ready_us)))


def figure_arrivals(number: int, size: int, host: Host) -> Arrivals:
    panels = [ArrivalPanel("32, simulated", "partitioned", "larklane", estimated(modelled_ready_us(32), size)), *paper_host.panels(host, size)]
    footer = "Simulated: threads take turns of 50 ns at the word that they mark." + paper_host.footer(host)
    return Arrivals(f"figure-{number}", f"When are the partitions of {wording.size(size)} ready, and when do they travel?",
                    f"32 threads compute for 100 ms, one of them is 4 ms late. A bar: a partition from when it is ready until it is there. Simulated "
                    f"network: estimated from 11.5 GB/s, as in the paper; this host: measured. {PAPER} {number}.", footer, "estimated", tuple(panels))


def figure_12(results: Results, host: Host) -> Chart:
    sizes = [row["bytes"] for row in results["9 32"]["rows"]]
    counts = (4, 8, 16, 32)
    modelled = []
    for at, partitions in enumerate(counts):
        ready = modelled_ready_us(partitions)[:-1]
        # A timer has nothing to gather where each partition is a group.
        points = [(size, ready[-1] - ready[0]) for size in sizes if ploggp(size, partitions) < partitions]
        modelled.append(by_count(f"{partitions} partitions", at, len(counts) - 1, points))
    panels = [Panel("Simulated: turns of 50 ns at a word, nothing else", tuple(modelled)), *paper_host.delta_panels(host, counts)]
    return Chart("figure-12", "How long must a timer wait to gather all but the last thread's?",
                 f"From the first to the last of the partitions that are not the late one, mean times. 100 ms computed, one thread 4 ms late. {PAPER} 12. "
                 "The simulated threads are ready at one moment: a model's assumption, not a finding.",
                 "Simulated: 50 ns for a line from another core." + paper_host.footer(host), "estimated", "smallest timer [us]", "log", tuple(panels),
                 len(panels))


def figure_13(results: Results) -> Chart:
    made = results["13"]
    curves = [by_count(f"timer, {delta_us} us", which, len(DELTAS_US) - 1, bandwidths(made, lambda row, which=which: row["timed"][which]))
              for which, delta_us in enumerate(DELTAS_US)]
    return Chart("figure-13", "One thread 4 ms late: does it matter how long the timer is?",
                 f"The message over the time from when the last partition is ready. {PAPER} 13. The timers differ by {deltas_apart(results)}. {SIMULATED}.", footer([made]), "simulated",
                 "perceived bandwidth [GB/s]", "log",
                 (Panel("32 partitions and threads", (*curves, baseline(bandwidths(made, lambda row: row["two_sided"])))),), 1)


def deltas_apart(results: Results) -> str:
    """The largest relative difference between timers at one size."""
    by_size = [[each["exposed_us"] for each in row["timed"]] for row in results["13"]["rows"]]
    apart = max(max(times) / min(times) - 1 for times in by_size)
    return f"{apart:.2%}" if apart >= 1e-4 else "less than 0.01 %"


def figure_14(results: Results) -> Chart:
    panels, files = [], []
    for name, (compute_us, noise_us) in SWEEPS.items():
        made = results[name]
        files.append(made)
        apart = Curve("16 groups: none aggregated", "groups", "larklane", line(speedups(made, lambda _: 16)), (6,), 0.9)
        waited = timer(SWEEP_DELTA_US, timed(made))
        panels.append(Panel(f"{name}: {compute_us // 1000} ms computed, one thread {noise_us} us late",
                            (policy(speedups(made, lambda size: ploggp(size, 16))), waited, apart, baseline(ones(made)))))
    return Chart("figure-14", "A sweep over 8 x 8 ranks of 16 threads: what are groups worth?",
                 f"The baseline's time over that of the groups, both without the computing of the {files[0]['sweep']['steps']} ranks that wait for one another. "
                 f"{PAPER} 14 (computing of 14c inferred: 4 % are 400 us). {SIMULATED}.", footer(files), "simulated", "speed-up", "log",
                 tuple(panels), 3)


def all_figures(results: Results, host: Host) -> list[Figure]:
    return [figure_3(results), figure_6(results), figure_7(results), figure_8(results), figure_9(results), figure_arrivals(10, 8 << 20, host),
            figure_arrivals(11, 128 << 20, host), figure_12(results, host), figure_13(results), figure_14(results), *paper_shm.figures(host, paper_shm.newest_row())]


# --- the paper's points -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Point:
    """A number in the paper. `runs`: our runs for it; `value`: computes the number from their results."""

    where: str
    paper: float
    runs: tuple[str, ...]
    value: Callable[[Sequence[simulation.Simulated]], float]


def best(files: Sequence[simulation.Simulated]) -> float:
    return max(row["two_sided"]["exposed_us"] / result["exposed_us"] for made in files for row in made["rows"] for result in row["one_sided"])


def by_table(files: Sequence[simulation.Simulated]) -> float:
    return max(value for made in files for _, value in speedups(made, lambda size, most=files[0]["partitions"]: ploggp(size, most)))


def points() -> tuple[Point, ...]:
    at_once = "simulate --pattern simultaneous"
    large = f"{at_once} --partitions 32 --from 512K --to 512K"
    return (
        Point("32 partitions, 128 KiB, Table I (figure 8)", 2.17, (f"{at_once} --partitions 32 --from 128K --to 128K",), by_table),
        Point("32 partitions, 512 KiB, search (figure 8)", 2.13, (large, f"{large} --queues {MOST_QUEUES}"), best),
        Point("32 partitions, 512 KiB, Table I (figure 8)", 1.38, (large,), by_table),
        Point("128 partitions, the largest (figure 8)", 8.80, (f"{at_once} --partitions 128 --from 1K --to 16K",), best),
        *(Point(f"sweep, 1 MiB, Table I (figure {name})", paper, (f"{sweep(name)} --from 1M --to 1M",), by_table)
          for name, paper in (("14a", 1.60), ("14b", 1.63), ("14c", 1.04))),
    )


COST_NS_MAX = 200_000


def cost_of(point: Point, option: str, low_ns: int) -> int | None:
    """@return the least cost, in whole nanoseconds from `low_ns` on, at which the paper's figure appears; None: none up to COST_NS_MAX"""

    def value(cost_ns: int) -> float:
        return point.value([run(f"{words} {option} {cost_ns}") for words in point.runs])

    high_ns = 2 * low_ns
    while value(high_ns) < point.paper:
        low_ns, high_ns = high_ns, 2 * high_ns
        if high_ns > COST_NS_MAX:
            return None
    while high_ns - low_ns > max(1, low_ns // 100):
        middle_ns = (low_ns + high_ns) // 2
        low_ns, high_ns = (low_ns, middle_ns) if value(middle_ns) >= point.paper else (middle_ns, high_ns)
    return high_ns


@dataclasses.dataclass(frozen=True)
class Answer:
    """Our number beside a point of the paper, and the costs at which the paper's number appears."""

    point: Point
    ours: float
    request_ns: int | None
    overhead_ns: int | None

    def row(self) -> str:
        return f"| {self.point.where} | {self.point.paper:.2f} | {self.ours:.2f} | {cost_text(self.request_ns)} | {cost_text(self.overhead_ns)} |"


def cost_text(cost_ns: int | None) -> str:
    if cost_ns is None:
        return f"none up to {COST_NS_MAX // 1000} us"
    if cost_ns == 0:
        return "ours is more"
    return f"{cost_ns / 1000:.2f} us" if cost_ns >= 100 else f"{cost_ns} ns"


def answer(point: Point) -> Answer:
    ours = point.value([run(words) for words in point.runs])
    if ours >= point.paper:
        return Answer(point, ours, 0, 0)
    found = Answer(point, ours, cost_of(point, "--request-ns", 56), cost_of(point, "--send-overhead-ns", 75))
    print(f"{point.where}: {ours:.2f}", file=sys.stderr, flush=True)
    return found


# --- the page ---------------------------------------------------------------------------------------------------------


def extremes(values: Iterable[float]) -> str:
    found = sorted({f"{value:.2f}" for value in values}, key=float)
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def at(pairs: Sequence[tuple[int, float]], size: int) -> float:
    return dict(pairs)[size]


def peak(pairs: Sequence[tuple[int, float]]) -> str:
    size, value = max(pairs, key=lambda pair: pair[1])
    return f"{value:.2f} at {wording.size(size)}"


def entries(made: simulation.Simulated) -> str:
    """@return the entries of the simulated tuning table at four sizes"""
    found = {row["bytes"]: row["searched"] for row in made["rows"]}
    return ", ".join(f"{found[size]['groups']} x {found[size]['queues']} at {wording.size(size)}" for size in (1 << 10, 64 << 10, 1 << 20, 16 << 20))


def four_partitions(results: Results) -> str:
    """The paper's negative result of figure 8."""
    table = speedups(results["8 4"], lambda size: ploggp(size, 4))
    small, large = [value for size, value in table if size < 2 << 10], [value for size, value in table if size > 32 << 10]
    return f"{extremes(small)} below 2 KiB, {extremes(large)} above 32 KiB"


def index(results: Results) -> list[tuple[str, str, str]]:
    """@return [(figure, our result, why it differs from the paper's)]"""
    apart, one = results["6"], [speedups(results["6"], lambda _, count=count: count) for count in (1, 32)]
    queues = [speedups(results[f"7 {count}"], lambda _: 16) for count in (1, MOST_QUEUES)]
    tables = {partitions: speedups(results[f"8 {partitions}"], lambda size, most=partitions: ploggp(size, most)) for partitions in (32, 128)}
    nine = next(row for row in results["9 32"]["rows"] if row["bytes"] == 8 << 20)
    grouped = nine["one_sided"][apart["counts"].index(8)]["perceived_gigabytes_per_second"]
    sweeps = {name: speedups(results[name], lambda size: ploggp(size, 16)) for name in SWEEPS}
    separate = {name: speedups(results[name], lambda _: 16) for name in SWEEPS}
    return [
        ("03",
         "As derived, more are always better or equal up to 32 MiB. With 15 us for each that nothing hides: as the paper.",
         "The published predictor holds a cost that early sending does not hide ([model](../../docs/design/model.md), Table I)."),
        ("06",
         f"One group {peak(one[0])}, 32 transfers {peak(one[1])}; 32 are better than one from "
         f"{wording.size(next(size for size, value in one[1] if value > at(one[0], size)))} on; 1.0 from 4 MiB on. "
         f"Search, groups x queue pairs: {entries(apart)}.",
         "The same order. The gain ends earlier: the wire hides a baseline whose messages cost 0.2 us."),
        ("07",
         f"16 queues instead of one: {at(queues[1], 1 << 10) / at(queues[0], 1 << 10):.2f} times at 1 KiB, "
         f"{at(queues[1], 64 << 10) / at(queues[0], 64 << 10):.2f} at 64 KiB; 2 queues do as well as 16; {at(queues[1], 4 << 20) / at(queues[0], 4 << 20):.2f} at 4 MiB. "
         f"Search, groups x queue pairs: {entries(results['7 1'])}.",
         "**The reverse.** Simulated threads wait for a queue's lock while messages are small, and a second queue ends that; the wire is one, whatever the queues. That one queue pair alone can't fill a wire is not simulated."),
        ("08",
         f"4 partitions: {four_partitions(results)}: **the loss does not appear.** 32: {peak(tables[32])}. 128: {peak(tables[128])}.",
         "What lost is left out: UCX sends small messages inline, the paper's module did not; above 32 KiB there is nothing to gain and nothing simulated to lose. The peak lies where messages are small, see below."),
        ("09",
         f"8 MiB in 32 partitions: baseline {nine['two_sided']['perceived_gigabytes_per_second']:.0f} GB/s, Table I (8 groups) {grouped:.0f}, timer {nine['timed'][0]['perceived_gigabytes_per_second']:.0f}, wire {WIRE}. Up to 256 KiB, in one group, it is not above the wire.",
         "The order of baseline and groups is the same; the timer is ahead of the baseline here, since its last message has neither a match nor a rendezvous."),
        ("10", f"{32 * early_share(8 << 20):.0f} of 32, estimated in the same way.", "The readiness is assumed here."),
        ("11", f"{32 * early_share(128 << 20):.0f} of 32 are.", "4 ms at 11.5 GB/s are 46 MB of 134."),
        ("12",
         f"{TURN_US * 30:.2g} us: the threads' turns at a word, as all are ready at one moment.",
         "A model's readiness has no operating system in it; the paper's 35 us are what a real one adds."),
        ("13", f"They differ by {deltas_apart(results)}.",
         "All but the late one are ready within 2 us here, so every timer gathers them."),
        ("14",
         "Table I at 1 MiB: " + ", ".join(f"{at(sweeps[name], 1 << 20):.2f} ({name})" for name in SWEEPS) + "; timer of 35 us: " + ", ".join(f"{at(timed(results[name]), 1 << 20):.2f}" for name in SWEEPS) + "; 16 groups: "
         + ", ".join(f"{at(separate[name], 1 << 20):.2f}" for name in SWEEPS) + ". **Groups lose against the baseline wherever the wire counts**; nothing is gained at 400 us here, either.",
         "Each thread goes on when its own partition is there: partitions cross the plane like a worm, and a group makes 16 of them wait for the late one at each rank. A timer longer than the noise waits for the late one, too; and where arrivals are further apart than it is long, what is not ready by then goes with the last. Larklane's timer puts the whole message into one group, the paper's those of Table I. For the paper's gain the baseline's messages must cost what the table below says."),
    ]


def early_share(size: int) -> float:
    """@return the share of partitions that arrive before the last one is ready"""
    bars_ = estimated(modelled_ready_us(32), size)
    return sum(bar.end_us <= 0 for bar in bars_) / len(bars_)


def page(results: Results, host: Host, answers: Sequence[Answer]) -> str:
    apart = f"| 32 partitions, timers of 10, 35 and 100 us apart (figure 13) | 6.15 % | {deltas_apart(results)} | | |"
    lines = ["# Figures of CLUSTER'23, simulated and real", "",
             "Written by `scripts/papers/paper_figures.py`: figures 3 and 6 to 14 of Temucin et al., CLUSTER'23, with the engine's code on the network `niagara`",
             "([simulation](../../docs/design/simulation.md): every parameter with its source; more than two threads are extrapolated). Nothing is fitted, and nothing",
             "passes or fails. Beside each figure is its CSV. Figures 1, 2, 4 and 5 of the paper are diagrams.", "",
             "| figure | the paper | ours | where they differ |", "|---|---|---|---|",
             *(f"| [{number}](figure-{number}.svg) | {SHOWS[number]} | {ours} | {why} |" for number, ours, why in index(results)), "",
             *paper_shm_page.section(host, paper_shm.newest_row()), "## The paper's points", "",
             "What we simulate, and the cost of a message at which the paper's figure would appear: of the baseline alone, under its lock (instead of 56 ns;",
             "`--request-ns`), or `o_s` of both (instead of 75 ns). Costs are searched for to a percent; no other parameter changes.",
             "Table I implies a cost of 11 to 23 us for each part ([model](../../docs/design/model.md)).", "",
             "| point | the paper | ours | with a request of | with an `o_s` of |", "|---|---|---|---|---|", *(each.row() for each in answers), apart]
    return "\n".join(lines) + "\n"


def write(figures: Sequence[Figure], folder: pathlib.Path = FOLDER) -> None:
    import matplotlib  # find_matplotlib() has chosen an interpreter with it

    from larklane.figures import plot

    matplotlib.rcParams["svg.fonttype"] = "none"  # outlines of letters would be most of a file
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("*.svg"), *folder.glob("*.csv")):
        old.unlink()
    for figure in figures:
        (folder / f"{figure.name}.csv").write_text(figure.csv(), encoding="utf-8")
        (folder / f"{figure.name}.svg").write_bytes(plot.draw(figure)["svg"])


def measure_host() -> None:
    """@raises RuntimeError  the benchmark failed"""
    mpi = paper_host.installed()
    if mpi is None:
        print("paper_figures: this host is left out: no MPI (make setup installs two)", file=sys.stderr)
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "host.json").write_text(json_text.compact({**paper_host.measure(mpi), **paper_shm.measure(mpi)}), encoding="utf-8")


def find_matplotlib() -> None:
    """Restart under the Python of `make setup`, if this one has no matplotlib."""
    own = bars.ROOT / ".deps/python/bin/python"
    if importlib.util.find_spec("matplotlib") is None and own.exists() and sys.prefix != str(own.parent.parent):
        os.execv(own, [str(own), *sys.argv])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulated", action="store_true", help="measure nothing: what host.json has of a machine is drawn again")
    arguments = parser.parse_args()
    find_matplotlib()
    if not (bars.ROOT / bars.LARKLANE).exists() or importlib.util.find_spec("matplotlib") is None:
        print("paper_figures: needs `make` and matplotlib, which `make setup` installs", file=sys.stderr)
        return 1
    try:
        if not arguments.simulated:
            measure_host()
        results = run_all()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(answer, points()))
    except (RuntimeError, OSError) as error:
        print(f"paper_figures: {error}", file=sys.stderr)
        return 1
    host = paper_host.read(FOLDER / "host.json")
    write(all_figures(results, host))
    (FOLDER / "README.md").write_text(page(results, host, answers), encoding="utf-8")
    print(f"written: {FOLDER.relative_to(bars.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
