#!/usr/bin/env python3
"""python3 -m larklane.simulation FILE...: figures from the output of `larklane simulate --json`, a panel for each file.

They correspond to figures 6, 8 and 9 of Temucin et al., CLUSTER'23, but describe no real machine (docs/design/simulation.md).
"""

import argparse
import functools
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from larklane.figures.charts import Chart, Curve, Mark, Panel
from larklane.files import output_file
from larklane.files.input_file import read_json
from larklane.numbers import wording
from larklane.records.node import Node, RecordError

SCHEMA = 1
PARAMETERS = ("latency", "send_overhead", "recv_overhead", "gap", "byte")
COUNT_MAX = 1 << 20
FAILED, USAGE = 1, 2
LAST = 99  # position in the legend

Result = dict[str, float]
Simulated = dict[str, Any]
"""A file of `larklane simulate --json`."""


def read(path: Path) -> Simulated:
    """@throws RecordError"""
    try:
        value = read_json(path)
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{path}: not what `larklane simulate --json` prints: {error}") from error
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise RecordError(f"{path}: not what `larklane simulate --json` prints, or of another version (schema {SCHEMA} is wanted)")
    _check(Node(value, f"{path}: not what `larklane simulate --json` prints"))
    made: Simulated = value
    return made


def _check(made: Node) -> None:
    """@throws RecordError  a field that figures need is missing or impossible; the message has its place"""
    for kind, names in ((str, ("regime", "pattern")), (float, ("spread_us", *(f"{name}_ps" for name in PARAMETERS))), (bool, ("is_extrapolated",)),
                        (int, ("rounds", "partitions", "threads", "queues", "seed"))):
        for name in names:
            made.get(name, kind)
    parameters = made.children("parameters")
    if not parameters:
        raise RecordError(f"{made.where}: expected at least one of `parameters`")
    for each in parameters:
        for name in ("name", "value", "source"):
            each.present(name)
    counts = made.get("counts", list)
    if not counts or not all(isinstance(count, int) and 1 <= count <= COUNT_MAX for count in counts):
        raise RecordError(f"{made.where}: expected numbers of groups in `counts`")
    rows = made.children("rows")
    if not rows:
        raise RecordError(f"{made.where}: expected at least one row in `rows`")
    learns, searches = (all(name in row.fields for row in rows) for name in ("learned", "searched"))
    if learns:
        made.get("first_counted", int)
    for row in rows:
        if row.get("bytes", int) < 1:
            raise RecordError(f"{row.where}: expected 1 or more in `bytes`")
        results = [*row.children("one_sided"), row.child("two_sided"), *([row.child("learned")] if learns else []),
                   *([row.child("searched")] if searches else [])]
        if searches and not all(1 <= row.child("searched").get(name, int) <= COUNT_MAX for name in ("groups", "queues")):
            raise RecordError(f"{row.where}: expected 1 or more in `groups` and `queues` of `searched`")
        if len(row.get("one_sided", list)) != len(counts):
            raise RecordError(f"{row.where}: expected a result for each of `counts` in `one_sided`")
        for result in results:
            for name in ("exposed_us", "perceived_gigabytes_per_second"):
                if not 0 < result.get(name, float) < math.inf:
                    raise RecordError(f"{result.where}: expected a finite number above 0 in `{name}`")


def title(made: Simulated) -> str:
    """The simulated program, without the network."""
    spread = "" if made["pattern"] == "simultaneous" else f" {made['spread_us']:g} us"
    rounds = f", mean of {made['rounds']} rounds" if made["rounds"] > 1 else ""
    return f"{made['partitions']} partitions, {wording.count(made['threads'], 'thread')}, {made['pattern']}{spread}{rounds}"


def _one_sided(index: int, row: dict[str, Any]) -> Result:
    result: Result = row["one_sided"][index]
    return result


def _panel(made: Simulated, most: int, value: Callable[[Result, Result], float]) -> Panel:
    """@param most   largest number of groups in any panel
    @param value  computes the plotted value from a result and the baseline's result
    """
    counts, rows = made["counts"], made["rows"]

    def marks(of: Callable[[Any], Result]) -> tuple[Mark, ...]:
        values = [(row["bytes"], value(of(row), row["two_sided"])) for row in rows]
        return tuple(Mark(size, made["rounds"], at, at, at) for size, at in values)

    curves = []
    for index, count in enumerate(counts):
        step = round(math.log2(count))
        curves.append(Curve(wording.count(count, "group"), "groups", "larklane", marks(functools.partial(_one_sided, index)),
                            (step,), step / max(math.log2(most), 1)))
    if all("searched" in row for row in rows):
        curves.append(Curve("table: the best groups and queues", "partitioned", "larklane", marks(lambda row: row["searched"]), (LAST - 2,)))
    if all("learned" in row for row in rows):
        curves.append(Curve(f"learned in {made['first_counted']} rounds before", "rma", "larklane", marks(lambda row: row["learned"]),
                            (LAST - 1,)))
    curves.append(Curve("two-sided, a send for each partition", "threads", "native", marks(lambda row: row["two_sided"]), (LAST,)))
    return Panel(title(made), tuple(curves))


def _caption(files: Sequence[Simulated], shown: str) -> str:
    regimes = ", ".join(dict.fromkeys(made["regime"] for made in files))
    threads = max(made["threads"] for made in files)
    beyond = (f" Processor costs were measured on two cores: up to {threads} threads are an extrapolation."
              if any(made["is_extrapolated"] for made in files) else "")
    return f"{shown} SIMULATED with the parameters below (regime {regimes}); nothing is fitted, and the figures are of no machine.{beyond}"


def used(files: Sequence[Simulated]) -> str:
    """The network's parameters, and the seed."""
    return " | ".join(dict.fromkeys(f"L {made['latency_ps'] / 1e3:g} ns, o_s {made['send_overhead_ps'] / 1e3:g} ns, o_r "
                         f"{made['recv_overhead_ps'] / 1e3:g} ns, g {made['gap_ps'] / 1e3:g} ns, G {made['byte_ps']} ps, "
                         f"{wording.count(made['queues'], 'queue')}, seed {made['seed']}" for made in files))


def _footer(files: Sequence[Simulated]) -> str:
    """The values used; then every parameter of the regime with its source, once."""
    sources = dict.fromkeys(f"{each['name']} {each['value']} ({each['source']})" for made in files for each in made["parameters"])
    return f"Used: {used(files)}. The regime: {'; '.join(sources)}"


def figures(files: Sequence[Simulated]) -> list[Chart]:
    """@param files  at least one"""
    most = max(max(made["counts"]) for made in files)

    def chart(name: str, heading: str, shown: str, label: str, value: Callable[[Result, Result], float]) -> Chart:
        return Chart(name, heading, _caption(files, shown), _footer(files), "simulated", label, "log",
                     tuple(_panel(made, most, value) for made in files), 0)

    return [
        chart("simulated-speedup", "What are groups worth against a send for each partition?",
              "The baseline's exposed time over that of the groups, as figures 6 and 8 of CLUSTER'23. As many groups as partitions: no "
              "aggregation.", "speed-up",
              lambda result, baseline: baseline["exposed_us"] / result["exposed_us"]),
        chart("simulated-exposed", "What is left to wait for?",
              "From when the last partition is ready until the receiver has everything.", "exposed time [us]",
              lambda result, _: result["exposed_us"]),
        chart("simulated-bandwidth", "How fast does communication look?",
              "The message over the exposed time, as figure 9 of CLUSTER'23.", "perceived bandwidth [GB/s]",
              lambda result, _: result["perceived_gigabytes_per_second"]),
    ]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m larklane.simulation", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what `larklane simulate --json` printed")
    parser.add_argument("--out", type=Path, default=Path("larklane-simulation"), metavar="DIR", help="folder (default: %(default)s)")
    arguments = parser.parse_args(words)
    try:
        made = figures([read(path) for path in arguments.files])
    except RecordError as error:
        print(f"larklane.simulation: {error}", file=sys.stderr)
        return USAGE
    try:
        from larklane.figures import plot  # noqa: PLC0415  needs matplotlib
    except ImportError as error:
        print(f"larklane.simulation: no matplotlib ({error}): only CSV is written", file=sys.stderr)
        plot = None  # type: ignore[assignment]
    try:
        output_file.make_folder(arguments.out)
        for figure in made:
            output_file.write(arguments.out / f"{figure.name}.csv", figure.csv())
            for kind, data in (plot.draw(figure) if plot else {}).items():
                output_file.write(arguments.out / f"{figure.name}.{kind}", data)
    except OSError as error:
        print(f"larklane.simulation: {output_file.problem(error, 'name another folder with --out')}", file=sys.stderr)
        return FAILED
    print(f"{wording.count(len(made), 'figure')} in {arguments.out}")
    return 0
