"""Times at which partitions become ready and arrive on this host: for figures 10 to 12 of scripts/papers/paper_figures.py.

Measured by `larklane bench perceived-bandwidth` under Larklane, on the first installed MPI of `make setup`.
"""

import json
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import bars
import launch

from larklane.figures import patterns
from larklane.figures.charts import ArrivalPanel, Bar, Curve, Mark, Panel
from larklane.numbers import wording
from larklane.records import cases, schema

COUNTS = (4, 8, 16, 32)
ROUNDS = 10
OPTIONS = ("--sizes 64K,1M,8M,128M --ways join,partitioned --compute-us 100000 --noise single --noise-percent 4 --warmup 1 "
           f"--iterations {ROUNDS} --traces {ROUNDS}")

Host = dict[str, Any]
"""{"cpu", "cores", "mpi", "commit", "measured", "load", "rounds", "runs": [{"partitions", "bytes", "delta_us", "bars": [[begin, end], ...] of a typical round}], and what paper_shm.py measures}"""


def _of_point(case: cases.Case) -> dict[str, Any]:
    traces = case.series.traces
    rounds = [[(round(transfer.begin_ns), part) for part, transfer in enumerate(trace.transfers)] for trace in traces]
    delta_ns = patterns.smallest_delta_ns(rounds)
    middle = sorted(traces, key=lambda trace: max(transfer.end_ns for transfer in trace.transfers) - trace.joined_ns)[(len(traces) - 1) // 2]
    return {"partitions": case.partitions, "bytes": case.point.bytes, "delta_us": None if delta_ns is None else round(delta_ns / 1e3, 3),
            "bars": [[round((at - middle.joined_ns) / 1e3, 2) for at in (transfer.begin_ns, transfer.end_ns)] for transfer in middle.transfers]}


def installed() -> launch.Mpi | None:
    return next((mpi for mpi in launch.MPIS.values() if mpi.installed()), None)


def benched(mpi: launch.Mpi, ranks: int, words: Sequence[str], environment: Mapping[str, str] | None = None) -> list[cases.Case]:
    """@return the results of one launch of `larklane bench`. @raises RuntimeError  the launch failed: a wrong payload, a hang, ..."""
    with tempfile.TemporaryDirectory(prefix="cluster23-") as folder:
        return cases.measured(schema.load([bars.bench_set([*words, "--limit", "30"], f"{folder}/out", mpi, ranks, environment or {})]))


def measure(mpi: launch.Mpi) -> Host:
    """Takes some 2 minutes. @raises RuntimeError  the benchmark gave no figures"""
    runs, load = [], os.getloadavg()[0]
    for partitions in COUNTS:
        found = benched(mpi, 2, ["perceived-bandwidth", *OPTIONS.split(), "--threads", str(partitions), "--with", "larklane"])
        runs += [_of_point(case) for case in found if case.way == cases.PARTITIONED and case.series.traces]
    if not runs:
        raise RuntimeError("the benchmark gave no rounds of partitions: run it by hand to see why")
    about = bars.context()
    return {"cpu": about["machine"]["cpu"], "cores": about["machine"]["cores"], "mpi": mpi.title, "commit": about["commit"],
            "measured": about["measured"], "load": round(load, 1), "rounds": ROUNDS, "runs": runs}


def read(path: pathlib.Path) -> Host:
    """@return the record; without a file, a record without runs"""
    if not path.exists():
        return {"runs": []}
    made: Host = json.loads(path.read_text(encoding="utf-8"))
    return made


def about(host: Host, rounds: str) -> str:
    """@param rounds  their number, in words"""
    return (f"This host: {host['cpu']}, {host['cores']} cores, {host['mpi']} under Larklane, {rounds}, {host['measured'][:10]}, "
            f"load {host['load']:g} when it began; threads beyond {host['cores']} take turns.")


def footer(host: Host) -> str:
    return " " + about(host, f"{host['rounds']} rounds") if host["runs"] else ""


def panels(host: Host, size: int) -> list[ArrivalPanel]:
    """A typical round with 32 partitions, as many as the simulated round has."""
    return [ArrivalPanel(f"{run['partitions']}, this host", "thread-comms", "larklane",
                         tuple(Bar(begin, end, size // run["partitions"]) for begin, end in run["bars"]))
            for run in host["runs"] if run["bytes"] == size and run["partitions"] == 32]


def delta_panels(host: Host, counts: Sequence[int]) -> list[Panel]:
    curves = []
    for at, count in enumerate(counts):
        found = sorted((run["bytes"], run["delta_us"]) for run in host["runs"] if run["partitions"] == count and run["delta_us"])
        if found:
            curves.append(Curve(f"{count} partitions", "groups", "larklane", tuple(Mark(size, host["rounds"], us, us, us) for size, us in found),
                                (at,), at / (len(counts) - 1)))
    return [Panel(f"This host: {wording.count(host['cores'], 'core')} for all threads", tuple(curves))] if curves else []
