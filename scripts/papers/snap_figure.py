#!/usr/bin/env python3
"""Figure 13 of Temucin et al., ICPP'22, by the paper's rule and by simulated sweeps of SNAP on 8 to 256 nodes: measurements/icpp22.

Writes figure-13.svg, its CSV, and README.md: every parameter with its source, and each difference from the paper. Nothing is fitted, and
nothing passes or fails. Simulated time does not depend on the machine; a busy machine may run this.
"""

import argparse
import dataclasses
import importlib.util
import pathlib
import sys
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "measure"))

import bars  # noqa: E402
import paper_figures  # noqa: E402

from larklane.comparison.projection import project  # noqa: E402
from larklane.figures.charts import Chart, Curve, Mark, Panel  # noqa: E402
from larklane.numbers import wording  # noqa: E402
from larklane.simulation import command as simulation  # noqa: E402

FOLDER = bars.RECORDS / "icpp22"
PAPER = "Temucin et al., ICPP'22, figure 13"

SPEEDUP = 15.1  # of communication, the paper's section 4.6
PAPER_SHARES = {128: 0.204, 256: 0.545}  # of send and receive, the paper's section 4.8; "1-6 %" on fewer nodes
NODES = {8: (4, 2), 16: (4, 4), 32: (8, 4), 64: (8, 8), 128: (16, 8), 256: (16, 16)}  # ranks in y and z

# The problem. Sources: PARAMETERS.
NX, NY, NZ, CHUNK, ANGLES, GROUPS = 640, 64, 64, 160, 48, 16
GRIND_NS = 5.71
NOISE = 0.04
CORNERS, DOUBLE = 4, 8
BLOCKS = 2 * (NX // CHUNK)

PARAMETERS = (
    ("network and processor", "regime `niagara`", "[simulation](../../docs/design/simulation.md): each value with its source"),
    ("ranks", "one a node, in a plane as square as possible", "assumed: the paper does not say; SNAP's decomposition in y and z"),
    ("cells", f"{NX} x {NY} x {NZ} in all", "cited: SNAP's benchmark (`qasnap/benchmark/inp`) has 640 in x, and 4 x 4 in y and z a rank: as here on 256 nodes"),
    ("scaling", "strong", "inferred: the paper's share of communication grows from 1 to 54.5 %"),
    ("chunk in x", f"{CHUNK} cells, {BLOCKS} blocks from each of {CORNERS} corners", "assumed: SNAP's benchmark has 64; with fewer blocks 256 nodes can be simulated"),
    ("angles", f"{ANGLES} an octant", "cited: SNAP's benchmark"),
    ("energy groups", f"{GROUPS}", "assumed: SNAP's manual says 10 to 100, its benchmark has 54"),
    ("time of a cell, angle and group", f"{GRIND_NS} ns", "measured: `Grind Time` of SNAP-C on one rank of this project's machine, gcc -O2 ([below](#snap-c))"),
    ("noise", f"{NOISE:.0%} of a group's computing, one thread of each rank and block".replace("%", " %"), "cited: the paper's section 4.6, for the threads' panel only"),
    ("faster communication", f"{SPEEDUP} times", "cited: the paper's section 4.6, of Sweep3D over MPIPCL"),
)


@dataclasses.dataclass(frozen=True)
class Form:
    """How a rank computes and sends. `joined`: one message of all groups, after the threads' join."""

    name: str
    threads: int
    joined: bool = False


ALONE, THREADS, JOINED = Form("a thread a rank", 1), Form("a thread a group", GROUPS), Form("joined", GROUPS, True)


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Simulated microseconds of a sweep. `computing`: of a rank's busiest thread; `wave`: the same, with free communication."""

    computing: float
    wave: float
    messages: float
    partitioned: float

    @property
    def share(self) -> float:
        """Of the original's time in sends and receives, as a profiler of its calls has it: all but the computing."""
        return 1 - self.computing / self.messages


def group_us(nodes: int) -> float:
    """Computing of a group of a block."""
    y, z = NODES[nodes]
    return CHUNK * (NY // y) * (NZ // z) * ANGLES * GRIND_NS / 1e3


def group_bytes(nodes: int) -> int:
    """A group of a face of a block. Both faces of a rank are taken to be as large: the mean of them where they differ."""
    y, z = NODES[nodes]
    return CHUNK * (NY // y + NZ // z) // 2 * ANGLES * DOUBLE


def words(nodes: int, form: Form) -> str:
    y, z = NODES[nodes]
    late = f"laggard --spread-us {NOISE * group_us(nodes):.3f}" if form.threads > 1 else "simultaneous --spread-us 0"
    partitions, threads = (1, 1) if form.joined else (GROUPS, form.threads)
    size = group_bytes(nodes) * GROUPS
    return (f"simulate --sweep {y}x{z} --blocks {BLOCKS} --partitions {partitions} --threads {threads} --compute-us {group_us(nodes):.3f} "
            f"--pattern {late} --from {size} --to {size}")


def run_all() -> dict[tuple[int, Form], simulation.Simulated]:
    cases = [(nodes, form) for nodes in NODES for form in (ALONE, THREADS, JOINED)]
    return dict(bars.two_at_a_time(lambda case: paper_figures.run(words(*case)), cases, lambda case: words(*case)))


def sweep_of(made: simulation.Simulated, nodes: int, form: Form) -> Sweep:
    (row,) = made["rows"]
    computing = group_us(nodes) * BLOCKS * CORNERS * GROUPS / form.threads
    return Sweep(computing, made["sweep"]["steps"] * group_us(nodes), row["two_sided"]["total_us"], row["one_sided"][-1]["total_us"])


def curve(label: str, order: int, shade: float, variant: str, value: Callable[[int], float], nodes: Any = NODES) -> Curve:
    return Curve(label, "groups", variant, tuple(Mark(each, 1, value(each), value(each), value(each)) for each in nodes), (order,), shade)


def figure(results: dict[tuple[int, Form], simulation.Simulated]) -> Chart:
    def of(nodes: int, form: Form) -> Sweep:
        return sweep_of(results[nodes, form], nodes, form)

    def rule(form: Form, shade: float) -> Curve:
        return curve("the paper's rule on the simulated share", 1, shade, "native", lambda nodes: project(of(nodes, form).share, SPEEDUP))

    paper = curve("the paper: its rule on its shares", 0, 0.0, "native", lambda nodes: project(PAPER_SHARES[nodes], SPEEDUP), PAPER_SHARES)
    limit = "communication costs nothing: the wave's own waiting stays"
    panels = (
        Panel("SNAP-C as it is: one thread, a message a group", (
            paper, rule(ALONE, 0.35), curve(limit, 2, 0.6, "larklane", lambda nodes: of(nodes, ALONE).messages / of(nodes, ALONE).wave),
            curve("a partition a group", 3, 0.9, "larklane", lambda nodes: of(nodes, ALONE).messages / of(nodes, ALONE).partitioned))),
        Panel(f"{GROUPS} threads over the groups, one message after their join", (
            paper, rule(JOINED, 0.35), curve(limit, 2, 0.6, "larklane", lambda nodes: of(nodes, JOINED).messages / of(nodes, THREADS).wave),
            curve("a partition a group", 3, 0.9, "larklane", lambda nodes: of(nodes, JOINED).messages / of(nodes, THREADS).partitioned),
            curve("a message a group", 4, 0.75, "larklane", lambda nodes: of(nodes, JOINED).messages / of(nodes, THREADS).messages))))
    return Chart("figure-13", "What would SNAP gain from partitioned calls on 8 to 256 nodes?",
                 f"Time of a sweep as it is, over that with the change. {PAPER}. {paper_figures.SIMULATED}.",
                 f"{paper_figures.footer([results[8, ALONE]])}; README.md has the problem's parameters", "simulated", "speed-up", "log", panels, 2, "nodes")


def table(results: dict[tuple[int, Form], simulation.Simulated]) -> list[str]:
    lines = ["| nodes | form | a message | computing | share of send and receive | with free messages | paper's rule | a partition a group |",
             "|---|---|---|---|---|---|---|---|"]
    for nodes in NODES:
        for form, ported in ((ALONE, ALONE), (JOINED, THREADS)):
            sweep, port = (sweep_of(results[nodes, each], nodes, each) for each in (form, ported))
            own = 1 - sweep.computing / port.wave
            size = group_bytes(nodes) * (GROUPS if form.joined else 1)
            lines.append(f"| {nodes} | {'one thread, a message a group' if form is ALONE else f'{GROUPS} threads, one message after the join'} | {wording.size(size)} | "
                         f"{sweep.computing / 1e3:.1f} of {sweep.messages / 1e3:.1f} ms | {100 * sweep.share:.1f} % | {100 * own:.1f} % | "
                         f"{project(sweep.share, SPEEDUP):.2f} | {sweep.messages / port.partitioned:.3f} |")
    return lines


def page(results: dict[tuple[int, Form], simulation.Simulated]) -> str:
    alone, joined, threads = (sweep_of(results[256, form], 256, form) for form in (ALONE, JOINED, THREADS))
    few = sweep_of(results[8, ALONE], 8, ALONE)
    parameters = [f"| {name} | {value} | {source} |" for name, value, source in PARAMETERS]
    return "\n".join([
        "# Figure 13 of ICPP'22: SNAP", "",
        "Written by `scripts/papers/snap_figure.py`. The paper profiles SNAP-C and projects its gain from partitioned calls by one rule: the share of",
        "send and receive, divided by 15.1. Beside it, sweeps of SNAP on the simulated network of the paper's machine.", "", "![figure 13](figure-13.svg)", "",
        "| parameter | value | source |", "|---|---|---|", *parameters, "",
        "## Differences from the paper", "",
        f"* **Most of the share is no communication.** A rank at the wave's end waits for all before it, however fast messages are. On 256 nodes "
        f"{100 * alone.share:.1f} % of SNAP-C's time is in send and receive, and {100 * (1 - alone.computing / alone.wave):.1f} % would be with messages that cost nothing. "
        "The rule divides that, too, by 15.1.",
        f"* **SNAP-C gains next to nothing**: {alone.messages / alone.partitioned:.3f} times on 256 nodes where the rule says {project(alone.share, SPEEDUP):.2f}. "
        "Its one thread sends a message a group as soon as the group is computed: that is early sending already "
        "(`larklane report` says the same of its profile).",
        f"* **Threads that join before one message lose the pipeline**: against that form a partition a group gains {joined.messages / threads.partitioned:.2f} times on 256 nodes, "
        f"and so does a message a group ({joined.messages / threads.messages:.2f}). The gain is that of sending early, of which partitions are one way.",
        f"* The paper's shares are 1 to 6 % on few nodes, 20.4 % on 128, 54.5 % on 256. Simulated are {100 * few.share:.1f} % on 8 and {100 * alone.share:.1f} % on 256. "
        "Its problem, ranks a node, and system noise are not known; nothing here is fitted to its shares.",
        "* Corners take turns around the plane, as in the simulated Sweep3D; SNAP goes from the second to the third across it, which lengthens its wave. "
        "Convergence tests (one `MPI_Allreduce` an inner iteration) and outer iterations are left out.", "",
        "## Sweeps", "", *table(results), "",
        "Computing: of a rank's busiest thread. With free messages: the share if communication cost nothing, so of the wave alone. The last two columns are speed-ups.", "",
        "## SNAP-C", "",
        "The grind time is of SNAP-C (`ports/snap-c` of github.com/lanl/SNAP at e7ab43d), built beside the project:", "",
        "```sh", "mpicc -O2 -std=gnu99 -fopenmp *.c -o snap -lm   # of MPICH 5.0.2",
        "mpiexec -n 1 ./snap --fi in --fo out            # npey=npez=1, nx=ny=nz=12, nang=48, ng=3: Grind Time", "```"]) + "\n"


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    paper_figures.find_matplotlib()
    if not (bars.ROOT / bars.LARKLANE).exists() or importlib.util.find_spec("matplotlib") is None:
        print("snap_figure: needs `make` and matplotlib, which `make setup` installs", file=sys.stderr)
        return 1
    try:
        results = run_all()
    except (RuntimeError, OSError) as error:
        print(f"snap_figure: {error}", file=sys.stderr)
        return 1
    paper_figures.write([figure(results)], FOLDER)
    (FOLDER / "README.md").write_text(page(results), encoding="utf-8")
    print(f"written: {FOLDER.relative_to(bars.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
