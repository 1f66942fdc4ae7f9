"""Figures 6, 8, 9, 13 and 14 of CLUSTER'23 over shared memory: real programs on this host, for scripts/papers/paper_figures.py.

`larklane bench` under Larklane with LARKLANE_POLICY, by attach, payload and completion verified in every round; the baseline sends each
partition by itself (policy `none`). The same turns measure the MPI's own partitioned calls, and one send after the join. A turn launches each
contender once and the baseline twice, which gives the A/A noise.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import bars
import launch
import paper_host
from cluster23 import DELAY_US, DELTAS_US, PAPER, SWEEP_DELTA_US, TIMER_US, ploggp

from larklane.figures.charts import Chart, Curve, Mark, Panel
from larklane.numbers import stats, wording
from larklane.records import cases

NONE, ITSELF, ONE_SEND = "none", "the MPI itself", "one send"
AGAIN = NONE + "'"
GROUPS = (1, 2, 4, 16)
ROW = "exposed-128"

Point = dict[str, Any]
"""{**setting, "bytes", "series": {contender: [microseconds by turn]}}"""


# --- measurements -----------------------------------------------------------------------------------------------------


class Pattern(NamedTuple):
    """A benchmark of `larklane bench`: one of the paper's three."""

    sample: str
    sizes: tuple[int, ...]
    ranks: int
    turns: int
    rounds: int
    compute_us: int


PATTERNS = {
    "overhead": Pattern("total_ns", (1 << 10, 64 << 10, 512 << 10, 4 << 20), 2, 5, 15, 0),
    "perceived-bandwidth": Pattern("exposed_ns", (256 << 10, 8 << 20, 32 << 20), 2, 5, 6, 1),
    "sweep3d": Pattern("step_ns", (64 << 10, 1 << 20), 4, 3, 4, 100),
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """The parameters that the contenders of a point share."""

    benchmark: str
    partitions: int
    threads: int
    late_us: int = 0

    def words(self) -> list[str]:
        pattern = PATTERNS[self.benchmark]
        noise = f"single --noise-percent {100 * self.late_us // pattern.compute_us}" if self.late_us else "none"
        return (f"{self.benchmark} --threads {self.threads} --partitions-per-thread {self.partitions // self.threads} --compute-us {pattern.compute_us} "
                f"--noise {noise} --iterations {pattern.rounds} --warmup 1").split()


AT_ONCE = {(partitions, threads): Setting("overhead", partitions, threads) for partitions, threads in ((4, 4), (32, 2), (32, 32), (128, 128))}
LATE = {partitions: Setting("perceived-bandwidth", partitions, partitions, DELAY_US) for partitions in (4, 32)}
SWEEPS = {name: Setting("sweep3d", 16, 2, late_us) for name, late_us in (("14a", 10), ("14b", 40), ("14c", 400))}
SETTINGS = (*AT_ONCE.values(), *LATE.values(), *SWEEPS.values())


class Launch(NamedTuple):
    """A launch of one contender; `policy` empty: without Larklane."""

    policy: str
    sizes: tuple[int, ...]
    ways: tuple[str, ...] = (cases.PARTITIONED,)


def timer(delta_us: int) -> str:
    return f"timer, {delta_us} us"


def grouped(groups: int, partitions: int) -> str:
    """@return the name of the contender that sends `groups` groups"""
    return wording.count(groups, "group") if groups < partitions else NONE


def launches(setting: Setting, mpi: launch.Mpi) -> dict[str, Launch]:
    """@return launches by contender. Each number of groups runs at its sizes in the paper's Table I; in `overhead`, at all sizes."""
    sizes = PATTERNS[setting.benchmark].sizes
    found = {NONE: Launch("none", sizes)}
    for groups in GROUPS if setting.benchmark == "overhead" else sorted({ploggp(size, setting.partitions) for size in sizes}):
        at = tuple(size for size in sizes if setting.benchmark == "overhead" or ploggp(size, setting.partitions) == groups)
        if groups < setting.partitions:
            found[grouped(groups, setting.partitions)] = Launch(f"static:{groups}", at)
    is_late = setting.benchmark == "perceived-bandwidth"
    deltas = (*(DELTAS_US if setting == LATE[32] else ()), TIMER_US) if is_late else (SWEEP_DELTA_US,) if setting in SWEEPS.values() else ()
    found |= {timer(delta_us): Launch(f"timer:{delta_us}us", sizes) for delta_us in deltas}
    # Open MPI's own partitioned calls may hang.
    ways = ((cases.PARTITIONED,) if mpi.name.startswith("mpich") else ()) + (("join",) if is_late else ())
    if ways:
        found[ITSELF] = Launch("", sizes, ways)
    return found


def run(mpi: launch.Mpi, setting: Setting, name: str, chosen: Launch) -> dict[tuple[int, str], float]:
    """@return microseconds by size and contender. @raises RuntimeError  the launch failed, or a payload was wrong"""
    words = [*setting.words(), "--sizes", ",".join(map(str, chosen.sizes)), "--ways", ",".join(chosen.ways), "--with", "larklane" if chosen.policy else "native"]
    environment = {"LARKLANE_POLICY": chosen.policy, "LARKLANE_SHM_SLOT_BYTES_MAX": "0"} if chosen.policy else {}
    pattern = PATTERNS[setting.benchmark]
    found = {}
    for case in paper_host.benched(mpi, pattern.ranks, words, environment):
        again = case.again.series.samples[pattern.sample] if case.again and case.way == chosen.ways[0] else ()
        contender = ONE_SEND if case.way == "join" else name
        found[case.point.bytes, contender] = round(stats.median([*case.series.samples[pattern.sample], *again]) / 1e3, 3)
    if len(found) < len(chosen.sizes) * len(chosen.ways):
        raise RuntimeError(f"{name}: not every size or way has figures")
    return found


def measure(mpi: launch.Mpi) -> dict[str, Any]:
    """Takes some 4 minutes. @return the part of host.json; a contender that fails once has no figures at this setting, and is listed as failed"""
    series: dict[tuple[Setting, int], dict[str, list[float]]] = {}
    failed: dict[tuple[Setting, str], str] = {}
    turns = max(pattern.turns for pattern in PATTERNS.values())
    for turn in range(turns):
        for setting in (each for each in SETTINGS if turn < PATTERNS[each.benchmark].turns):
            chosen = launches(setting, mpi)
            for name in stats.turns(list(chosen), turn):
                if (setting, name) in failed:
                    continue
                try:
                    made = run(mpi, setting, name, chosen[name.removesuffix("'")])
                except RuntimeError as error:
                    failed[setting, name] = str(error)
                    continue
                for (size, contender), us in made.items():
                    series.setdefault((setting, size), {}).setdefault(contender, []).append(us)
            print(f"[{turn + 1}/{turns}] {' '.join(setting.words())}", file=sys.stderr, flush=True)
    gone = {(setting, each) for setting, name in failed for each in (name, *([ONE_SEND] if name == ITSELF else []))}
    points = [{**dataclasses.asdict(setting), "bytes": size, "series": {name: values for name, values in of.items() if (setting, name) not in gone}}
              for (setting, size), of in series.items()]
    return {"points": points, "why_not": bars.context()["why_not"],
            "failed": [{**dataclasses.asdict(setting), "contender": name, "why": why} for (setting, name), why in failed.items()]}


# --- results ----------------------------------------------------------------------------------------------------------


Values = list[float]


class Seen:
    """The points of host.json."""

    def __init__(self, host: paper_host.Host) -> None:
        self.host = host
        self.points: dict[tuple[Setting, int], dict[str, Values]] = {}
        for point in host.get("points", ()):
            setting = Setting(*(point[field.name] for field in dataclasses.fields(Setting)))
            self.points[setting, point["bytes"]] = point["series"]

    def __bool__(self) -> bool:
        return bool(self.points)

    def turns(self, benchmark: str) -> int:
        return max(len(values) for (setting, _), of in self.points.items() if setting.benchmark == benchmark for values in of.values())

    def sizes(self, setting: Setting) -> list[int]:
        return sorted(size for which, size in self.points if which == setting)

    def us(self, setting: Setting, size: int, name: str) -> Values:
        """@return the times in turn order; empty without figures"""
        return self.points.get((setting, size), {}).get(name, [])

    def ratios(self, setting: Setting, size: int, first: str, second: str) -> Values:
        """Times of `first` over times of `second`, turn by turn."""
        return [a / b for a, b in zip(self.us(setting, size, first), self.us(setting, size, second))]

    def speedups(self, setting: Setting, size: int, name: str) -> Values:
        return self.ratios(setting, size, NONE, name)

    def again(self, setting: Setting, size: int) -> Values:
        """A/A noise: speed-ups of the baseline over itself."""
        return self.speedups(setting, size, AGAIN)

    def table(self, setting: Setting, size: int) -> Values:
        """Speed-ups of as many groups as the paper's Table I has."""
        return self.speedups(setting, size, grouped(ploggp(size, setting.partitions), setting.partitions))

    def search(self, setting: Setting, size: int) -> tuple[str, Values]:
        """The best of all groups and `none`, chosen afterwards by the medians."""
        names = [name for name in (NONE, *(grouped(count, setting.partitions) for count in GROUPS)) if self.speedups(setting, size, name)]
        best = max(names, default=NONE, key=lambda name: stats.median(self.speedups(setting, size, name)))
        return best, self.speedups(setting, size, best)

    def gigabytes(self, setting: Setting, size: int, name: str) -> Values:
        return [size / us / 1e3 for us in self.us(setting, size, name)]


# --- figures ----------------------------------------------------------------------------------------------------------


def curve(seen: Seen, setting: Setting, look: Curve, of: Callable[[int], Values]) -> list[Curve]:
    """@return the curve, or no curve without figures"""
    found = [(size, of(size)) for size in seen.sizes(setting)]
    marks = [Mark(size, len(values), stats.quantile(values, 0.1), stats.median(values), stats.quantile(values, 0.9)) for size, values in found if values]
    return [dataclasses.replace(look, marks=tuple(marks))] if marks else []


def family(label: str, at: int, count: int) -> Curve:
    return Curve(label, "groups", "larklane", (), (at,), at / max(count - 1, 1))


TABLE = Curve("groups by the paper's Table I", "partitioned", "larklane", (), (100,))
SEARCH = Curve("search: the best of all groups, seen afterwards", "rma", "larklane", (), (101,))
BASELINE = Curve("none: each partition by itself", "threads", "larklane", (), (102,))
A_A = Curve("none, measured again (A/A noise)", "threads", "native", (), (103,))
NATIVE = Curve("the MPI's own partitioned calls", "persistent", "native", (), (104,))
SEND = Curve("one send after the join", "join", "native", (), (105,))

ROW_LABELS = {"learned": "policy learned", "none": "none: each partition by itself", "send per thread": "a send of each thread, without Larklane",
              "larklane": "by default, through slots"}


def beside(seen: Seen, setting: Setting) -> list[Curve]:
    """Speed-ups of the contenders beside the policies."""
    return [each for look, name in ((A_A, AGAIN), (NATIVE, ITSELF)) for each in curve(seen, setting, look, lambda size, name=name: seen.speedups(setting, size, name))]


def chart(seen: Seen, name: str, benchmark: str, title: str, caption: str, label: str, panels: Sequence[Panel]) -> Chart:
    footer = paper_host.about(seen.host, f"{seen.turns(benchmark)} turns, of each the median of {2 * PATTERNS[benchmark].rounds} rounds")
    stamp = ", ".join(seen.host["why_not"])
    cores = f"All threads, the receivers' included, share {wording.count(seen.host['cores'], 'core')}."
    return Chart(f"figure-{name}-host", title, f"{caption} {cores} Line: median of the turns; band: p10 to p90.", footer, f"not publishable: {stamp}" if stamp else "",
                 label, "log", tuple(panels), len(panels))


def title_of(setting: Setting) -> str:
    return f"{setting.partitions} partitions, {wording.count(setting.threads, 'thread')}"


def figure_6(seen: Seen) -> Chart:
    panels = []
    for setting in (AT_ONCE[32, 2], AT_ONCE[32, 32]):
        curves = [each for at, count in enumerate(GROUPS) for each in
                  curve(seen, setting, family(wording.count(count, "group"), at, len(GROUPS)), lambda size, count=count: seen.speedups(setting, size, grouped(count, 32)))]
        panels.append(Panel(title_of(setting), (*curves, *beside(seen, setting))))
    return chart(seen, "06", "overhead", "Over shared memory, 32 partitions at once: how many transfers?",
                 f"The baseline's time (none) from the first partition being ready to the last arrival, over that of groups. {PAPER} 6.", "speed-up over none", panels)


def figure_8(seen: Seen) -> Chart:
    panels = []
    for setting in (AT_ONCE[4, 4], AT_ONCE[32, 32], AT_ONCE[128, 128]):
        curves = [*curve(seen, setting, TABLE, lambda size: seen.table(setting, size)), *curve(seen, setting, SEARCH, lambda size: seen.search(setting, size)[1])]
        panels.append(Panel(title_of(setting), (*curves, *beside(seen, setting))))
    return chart(seen, "08", "overhead", "Over shared memory, all ready at once: groups by the paper's table, and by search",
                 f"The baseline's time (none) from the first partition being ready to the last arrival, over that of groups. {PAPER} 8.", "speed-up over none", panels)


def bandwidth_curves(seen: Seen, setting: Setting, names: Sequence[tuple[Curve, str]]) -> Iterator[Curve]:
    for look, name in names:
        yield from curve(seen, setting, look, lambda size, name=name: seen.gigabytes(setting, size, name))


def figure_9(seen: Seen) -> Chart:
    panels = []
    for setting in LATE.values():
        table = curve(seen, setting, TABLE, lambda size: seen.gigabytes(setting, size, grouped(ploggp(size, setting.partitions), setting.partitions)))
        waited = Curve(timer(TIMER_US), "thread-comms", "larklane", (), (101,))
        others = bandwidth_curves(seen, setting, ((waited, timer(TIMER_US)), (BASELINE, NONE), (NATIVE, ITSELF), (SEND, ONE_SEND)))
        panels.append(Panel(title_of(setting), (*table, *others)))
    return chart(seen, "09", "perceived-bandwidth", "Over shared memory, one thread 4 ms late: how fast does communication look?",
                 f"The message over the time from when the last partition is ready; the other threads compute next to nothing. {PAPER} 9.",
                 "perceived bandwidth [GB/s]", panels)


def figure_13(seen: Seen) -> Chart:
    names = [(family(timer(delta_us), at, len(DELTAS_US)), timer(delta_us)) for at, delta_us in enumerate(DELTAS_US)]
    curves = bandwidth_curves(seen, LATE[32], (*names, (BASELINE, NONE), (A_A, AGAIN)))
    return chart(seen, "13", "perceived-bandwidth", "Over shared memory, one thread 4 ms late: does it matter how long the timer is?",
                 f"The message over the time from when the last partition is ready. {PAPER} 13.", "perceived bandwidth [GB/s]",
                 [Panel(title_of(LATE[32]), tuple(curves))])


def figure_14(seen: Seen) -> Chart:
    panels = []
    pattern = PATTERNS["sweep3d"]
    for name, setting in SWEEPS.items():
        waited = Curve(timer(SWEEP_DELTA_US), "thread-comms", "larklane", (), (101,))
        curves = (*curve(seen, setting, TABLE, lambda size: seen.table(setting, size)),
                  *curve(seen, setting, waited, lambda size: seen.speedups(setting, size, timer(SWEEP_DELTA_US))), *beside(seen, setting))
        panels.append(Panel(f"{name}: one thread {setting.late_us} us late", curves))
    return chart(seen, "14", "sweep3d", "Over shared memory, a sweep over 2 x 2 ranks: what are groups worth?",
                 f"A step's time with each partition by itself, over that with groups, computing included: {pattern.compute_us} us a block, 4 blocks from each of "
                 f"4 corners. {pattern.ranks} ranks of {SWEEPS['14a'].threads} threads, 16 partitions a face. {PAPER} 14.",
                 "speed-up over none", panels)


def newest_row() -> dict[str, Any] | None:
    """The newest record of bars.py's row of 128 partitions, with the points of its row of small sizes; None without points."""
    _, record = bars.newest({"row": ROW})
    _, small = bars.newest({"row": f"{ROW}-small"})
    if not record or not record["points"]:
        return None
    for point in small["points"] if small else []:
        record["points"].append(point | {"summary": {name.removesuffix(", attach"): of for name, of in point["summary"].items()}})
    return record


def figures(host: paper_host.Host, record: dict[str, Any] | None) -> list[Chart]:
    """@return the charts of all measured figures"""
    seen = Seen(host)
    made = [draw(seen) for draw in (figure_6, figure_8, figure_9, figure_13, figure_14)] if seen else []
    return made + ([row_chart(record)] if record else [])


def row_chart(record: dict[str, Any]) -> Chart:
    """Exposed time over the size, a panel for each number of threads of the record."""
    panels = []
    for threads in sorted({point["parameters"]["threads"] for point in record["points"]}):
        points = [point for point in record["points"] if point["parameters"]["threads"] == threads]
        curves = []
        for at, (name, look) in enumerate((("learned", TABLE), ("none", BASELINE), ("send per thread", NATIVE), ("larklane", SEND))):
            found = sorted((point["parameters"]["bytes"], point["summary"][name]) for point in points if name in point["summary"])
            marks = tuple(Mark(size, of["n"], of["p10"] / 1e3, of["median"] / 1e3, of["p90"] / 1e3) for size, of in found)
            curves += [dataclasses.replace(look, label=ROW_LABELS[name], marks=marks, order=(at,))] if marks else []
        panels.append(Panel(wording.count(threads, "thread"), tuple(curves)))
    machine = record["machine"]
    stamp = ", ".join(record["why_not"])
    return Chart(record["row"], "Over shared memory, 128 partitions: policy learned, none, and a send of each thread",
                 f"From the last partition being ready to the receiver having everything; policies by attach. More threads than the {wording.count(machine['cores'], 'core')} take turns. "
                 "Line: median of the launches; band: p10 to p90.", f"{machine['cpu']}, {machine['cores']} cores; commit {record['commit']}, {record['measured'][:10]}",
                 f"not publishable: {stamp}" if stamp else "", "exposed time [us]", "log", tuple(panels), len(panels))
