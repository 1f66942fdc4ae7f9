"""Figures 6, 8, 9, 13 and 14 of CLUSTER'23 over shared memory: real programs on this host, for scripts/paper_figures.py.

`larklane bench` under Larklane with LARKLANE_POLICY, by attach, payload and completion verified in every round; the baseline sends each
partition by itself (policy `none`). Beside it in the same turns: the MPI's own partitioned calls, and one send after the join. In a turn each
contender is launched once and the baseline once more, which gives the A/A noise.
"""

import collections
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import bars
import launch
import paper_host
from cluster23 import APART, DELAY_US, DELTAS_US, PAPER, SHOWS, SWEEP_DELTA_US, TIMER_US, ploggp

from larklane import cases, stats, wording
from larklane.figures import Chart, Curve, Mark, Panel

NONE, ITSELF, ONE_SEND = "none", "the MPI itself", "one send"
AGAIN = NONE + "'"
GROUPS = (1, 2, 4, 16)
ROW = "exposed-128"
NEAR = 1.1  # what is no further apart than this is called equal

Point = dict[str, Any]
"""{**setting, "bytes", "series": {contender: [microseconds by turn]}}"""


# --- what is measured -------------------------------------------------------------------------------------------------


class Pattern(NamedTuple):
    """A benchmark of `larklane bench`; the paper has these three."""

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
    """What the contenders of a point have in common."""

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
    """Of one contender; `policy` empty: without Larklane."""

    policy: str
    sizes: tuple[int, ...]
    ways: tuple[str, ...] = (cases.PARTITIONED,)


def timer(delta_us: int) -> str:
    return f"timer, {delta_us} us"


def grouped(groups: int, partitions: int) -> str:
    """The contender that sends so many groups."""
    return wording.count(groups, "group") if groups < partitions else NONE


def launches(setting: Setting, mpi: launch.Mpi) -> dict[str, Launch]:
    """By contender. Groups at the sizes at which the paper's Table I has them, or at all where all are ready at once."""
    sizes = PATTERNS[setting.benchmark].sizes
    found = {NONE: Launch("none", sizes)}
    for groups in GROUPS if setting.benchmark == "overhead" else sorted({ploggp(size, setting.partitions) for size in sizes}):
        at = tuple(size for size in sizes if setting.benchmark == "overhead" or ploggp(size, setting.partitions) == groups)
        if groups < setting.partitions:
            found[grouped(groups, setting.partitions)] = Launch(f"static:{groups}", at)
    is_late = setting.benchmark == "perceived-bandwidth"
    deltas = (*(DELTAS_US if setting == LATE[32] else ()), TIMER_US) if is_late else (SWEEP_DELTA_US,) if setting in SWEEPS.values() else ()
    found |= {timer(delta_us): Launch(f"timer:{delta_us}us", sizes) for delta_us in deltas}
    # Open MPI's own may hang for good.
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
    """Some 4 minutes. @return what host.json has of it; a contender that fails once has no figures at this setting, and is named"""
    series: dict[tuple[Setting, int], dict[str, list[float]]] = {}
    failed: dict[tuple[Setting, str], str] = {}
    load = os.getloadavg()[0]
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
    about = bars.context()
    return {"points": points, "points_load": round(load, 1), "points_measured": about["measured"], "why_not": about["why_not"],
            "failed": [{**dataclasses.asdict(setting), "contender": name, "why": why} for (setting, name), why in failed.items()]}


# --- what was seen ----------------------------------------------------------------------------------------------------


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

    def sizes(self, setting: Setting) -> list[int]:
        return sorted(size for which, size in self.points if which == setting)

    def us(self, setting: Setting, size: int, name: str) -> Values:
        """Empty: there are no figures."""
        return self.points.get((setting, size), {}).get(name, [])

    def ratios(self, setting: Setting, size: int, first: str, second: str) -> Values:
        """Times of the first over those of the second, turn by turn."""
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
        """The best of all groups and none, as was seen afterwards."""
        names = [name for name in (NONE, *(grouped(count, setting.partitions) for count in GROUPS)) if self.us(setting, size, name)]
        best = max(names, key=lambda name: stats.median(self.speedups(setting, size, name)))
        return best, self.speedups(setting, size, best)

    def gigabytes(self, setting: Setting, size: int, name: str) -> Values:
        return [size / us / 1e3 for us in self.us(setting, size, name)]


# --- figures ----------------------------------------------------------------------------------------------------------


def curve(seen: Seen, setting: Setting, look: Curve, of: Callable[[int], Values]) -> list[Curve]:
    """None if there are no figures."""
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

ROW_LABELS = {"learned": "policy learned", "none": "none: each partition by itself", "send per thread": "a send of each thread, without Larklane"}


def beside(seen: Seen, setting: Setting) -> list[Curve]:
    """Speed-ups of what is beside the policies."""
    return [each for look, name in ((A_A, AGAIN), (NATIVE, ITSELF)) for each in curve(seen, setting, look, lambda size, name=name: seen.speedups(setting, size, name))]


def chart(seen: Seen, name: str, benchmark: str, title: str, caption: str, label: str, panels: Sequence[Panel]) -> Chart:
    made = {**seen.host, "load": seen.host["points_load"], "measured": seen.host["points_measured"]}
    pattern = PATTERNS[benchmark]
    footer = paper_host.about(made, f"{pattern.turns} turns, of each the median of {2 * pattern.rounds} rounds")
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
                 f"The time from the first partition being ready to the last arrival, over that of groups. {PAPER} 6.", "speed-up over none", panels)


def figure_8(seen: Seen) -> Chart:
    panels = []
    for setting in (AT_ONCE[4, 4], AT_ONCE[32, 32], AT_ONCE[128, 128]):
        curves = [*curve(seen, setting, TABLE, lambda size: seen.table(setting, size)), *curve(seen, setting, SEARCH, lambda size: seen.search(setting, size)[1])]
        panels.append(Panel(title_of(setting), (*curves, *beside(seen, setting))))
    return chart(seen, "08", "overhead", "Over shared memory, all ready at once: groups by the paper's table, and by search",
                 f"The time from the first partition being ready to the last arrival, over that of groups. {PAPER} 8.", "speed-up over none", panels)


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
    """The newest record of bars.py's row of 128 partitions, if there is one with points."""
    _, record = bars.newest({"row": ROW})
    return record if record and record["points"] else None


def figures(host: paper_host.Host, record: dict[str, Any] | None) -> list[Chart]:
    """None of what was not measured."""
    seen = Seen(host)
    made = [draw(seen) for draw in (figure_6, figure_8, figure_9, figure_13, figure_14)] if seen else []
    return made + ([row_chart(record)] if record else [])


def row_chart(record: dict[str, Any]) -> Chart:
    """By size, of a record whose points have threads."""
    panels = []
    for threads in sorted({point["parameters"]["threads"] for point in record["points"]}):
        points = [point for point in record["points"] if point["parameters"]["threads"] == threads]
        curves = []
        for at, (name, look) in enumerate((("learned", TABLE), ("none", BASELINE), ("send per thread", NATIVE))):
            found = sorted((point["parameters"]["bytes"], point["summary"][name]) for point in points if name in point["summary"])
            marks = tuple(Mark(size, of["n"], of["p10"] / 1e3, of["median"] / 1e3, of["p90"] / 1e3) for size, of in found)
            curves += [dataclasses.replace(look, label=ROW_LABELS[name], marks=marks, order=(at,))] if marks else []
        panels.append(Panel(wording.count(threads, "thread"), tuple(curves)))
    machine = record["machine"]
    stamp = ", ".join(record["why_not"])
    return Chart(record["row"], "Over shared memory, 128 partitions: policy learned, none, and a send of each thread",
                 f"From the last partition being ready to the receiver having everything; all by attach. More threads than the {wording.count(machine['cores'], 'core')} take turns. "
                 "Line: median of the launches; band: p10 to p90.", f"{machine['cpu']}, {machine['cores']} cores; commit {record['commit']}, {record['measured'][:10]}",
                 f"not publishable: {stamp}" if stamp else "", "exposed time [us]", "log", tuple(panels), len(panels))


# --- the page ---------------------------------------------------------------------------------------------------------

Verdict = bool | None


def above(values: Values, noise: Values) -> Verdict:
    """True: every turn by more than the A/A noise; False: below it, likewise. None: neither, or there are no figures."""
    low, high = min([1.0, *noise]), max([1.0, *noise])
    return True if values and min(values) > high else False if values and max(values) < low else None


def below(values: Values, noise: Values) -> Verdict:
    found = above(values, noise)
    return None if found is None else not found


def alike(values: Values) -> Verdict:
    found = [1 / NEAR <= value <= NEAR for value in values]
    return None if not found or any(found) != all(found) else all(found)


def every(verdicts: Sequence[Verdict]) -> Verdict:
    return False if False in verdicts else None if None in verdicts or not verdicts else True


def judged(claims: Sequence[tuple[str, Verdict]]) -> str:
    """What the paper says, by whether it is seen here."""
    words = {True: "As there", False: "**Not here**", None: "Not clear"}
    parts = [f"{words[verdict]}: {'; '.join(found)}." for verdict in words if (found := [claim for claim, its in claims if its is verdict])]
    return " ".join(parts)


def value(values: Values) -> str:
    return f"{stats.median(values):.2f}" if values else "-"


def spread(values: Values) -> str:
    return f"{value(values)} ({min(values):.2f} to {max(values):.2f})" if values else "-"


def listed(seen: Seen, setting: Setting, of: Callable[[int], str]) -> str:
    return ", ".join(f"{wording.size(size)} {of(size)}" for size in seen.sizes(setting))


def noise(seen: Seen, *settings: Setting) -> str:
    found = [ratio for setting in settings for size in seen.sizes(setting) for ratio in seen.again(setting, size)]
    return f" A/A noise: {min(found):.2f} to {max(found):.2f}." if found else ""


Row = tuple[str, str, str, str]
"""Figure, what is seen, what of the paper's is seen, why."""
TURNS_OF_CORES = ("Threads beyond the cores take turns, so they are ready one after the other, and a group waits for its last one. A transfer is a copy by "
                  "the kernel: no wire to fill, no request to match.")


def row_6(seen: Seen) -> Row:
    setting = AT_ONCE[32, 32]
    small, *_, large = seen.sizes(setting)

    def found(at: Setting) -> str:
        def best(size: int) -> str:
            name, values = seen.search(at, size)
            return f"`{name}`" + (f" {value(values)}" if name != NONE else "")

        return f"{wording.count(at.threads, 'thread')}: " + listed(seen, at, best)

    one = {size: seen.speedups(setting, size, grouped(1, 32)) for size in seen.sizes(setting)}
    equal = [alike(seen.speedups(setting, large, grouped(count, 32))) for count in GROUPS]
    return ("06", f"Best, over `none`: {found(AT_ONCE[32, 2])}; {found(setting)}.{noise(seen, AT_ONCE[32, 2], setting)}",
            judged([(f"one transfer is better than 32 at {wording.size(small)}", above(one[small], seen.again(setting, small))),
                    ("32 are better than one from 16 KiB on", every([below(values, seen.again(setting, size)) for size, values in one.items() if size >= 16 << 10])),
                    (f"all alike at {wording.size(large)}", every(equal))]), TURNS_OF_CORES)


def row_8(seen: Seen) -> Row:
    settings = [AT_ONCE[4, 4], AT_ONCE[32, 32], AT_ONCE[128, 128]]

    def found(at: Setting) -> str:
        return f"{at.partitions}: " + listed(seen, at, lambda size: f"{value(seen.table(at, size))} and {value(seen.search(at, size)[1])}")

    def gains(at: Setting) -> Verdict:
        return every([above(seen.table(at, size), seen.again(at, size)) for size in seen.sizes(at)])

    four, many, most = settings
    lost = [below(seen.table(four, size), seen.again(four, size)) for size in seen.sizes(four) if (size < 2 << 10 or size > 32 << 10) and ploggp(size, 4) < 4]
    return ("08", f"Table I and search: {'; '.join(map(found, settings))}.{noise(seen, *settings)}",
            judged([("4 partitions lose below 2 KiB and above 32 KiB", every(lost)), ("32 gain", gains(many)), ("128 gain", gains(most))]), TURNS_OF_CORES)


def row_9(seen: Seen) -> Row:
    setting, size = LATE[32], 8 << 20
    groups = ploggp(size, 32)
    table, again = grouped(groups, 32), seen.again(setting, size)
    names = {NONE: "`none`", table: f"Table I ({groups} groups)", timer(TIMER_US): "timer", ITSELF: "the MPI's own", ONE_SEND: "one send"}
    shown = ", ".join(f"{label} {spread(seen.gigabytes(setting, size, name))}" for name, label in names.items())
    return ("09", f"8 MiB in 32 partitions, GB/s: {shown}.{noise(seen, setting)}",
            judged([("the baseline is ahead of Table I", below(seen.speedups(setting, size, table), again)),
                    ("Table I is ahead of one send", above(seen.ratios(setting, size, ONE_SEND, table), again)),
                    ("the timer is ahead of Table I", above(seen.ratios(setting, size, table, timer(TIMER_US)), again))]),
            "What is early is copied while the late thread computes, by a core of its own. What is left is one partition, or its group.")


def apart(seen: Seen, names: Sequence[str]) -> float:
    """The largest relative difference of medians at one size; 0: there are no figures."""
    found = [[stats.median(values) for name in names if (values := seen.us(LATE[32], size, name))] for size in seen.sizes(LATE[32])]
    return max((max(medians) / min(medians) - 1 for medians in found if medians), default=0)


def row_13(seen: Seen) -> Row:
    timers, again = apart(seen, [timer(delta_us) for delta_us in DELTAS_US]), apart(seen, (NONE, AGAIN))
    verdict = True if timers <= APART else None if timers <= again else False
    return ("13", f"At most {100 * timers:.0f} % apart; the baseline, measured twice, {100 * again:.0f} %.", judged([(f"at most {100 * APART:.2f} % apart", verdict)]),
            "The system's own delays of a thread are longer than the timers, and whatever is not ready by the deadline goes with the last.")


def row_14(seen: Seen) -> Row:
    size = 1 << 20
    tables = {name: seen.table(setting, size) for name, setting in SWEEPS.items()}
    shown = ", ".join(f"{spread(values)} ({name})" for name, values in tables.items())
    timed = ", ".join(value(seen.speedups(setting, size, timer(SWEEP_DELTA_US))) for setting in SWEEPS.values())
    return ("14", f"Table I at 1 MiB: {shown}; timer of {SWEEP_DELTA_US} us: {timed}.{noise(seen, *SWEEPS.values())}",
            judged([("groups gain with 10 us of noise", above(tables["14a"], seen.again(SWEEPS["14a"], size))), ("with 40 us", above(tables["14b"], seen.again(SWEEPS["14b"], size))), ("next to nothing at 400 us", alike(tables["14c"]))]),
            f"`larklane bench sweep3d`, 2 x 2 ranks, 4 blocks from each of 4 corners. {PATTERNS['sweep3d'].compute_us} us are computed for a block instead of the paper's 1 or 10 ms, and are in "
            "the times. 8 threads wait for each other and for cores: who waits gives its core to another.")


def row_section(record: dict[str, Any]) -> list[str]:
    """How often `learned` is ahead of the others, as bars.py has judged."""
    found: dict[str, collections.Counter[str]] = {}
    for point in record["points"]:
        for verdict in point["verdicts"]:
            found.setdefault(bars.label(verdict), collections.Counter())[verdict["verdict"]] += 1
    counts = [f"{pair}: " + ", ".join(f"{verdict} at {count}" for verdict, count in its.most_common()) for pair, its in found.items()]
    return [f"128 partitions by size, of 2 threads or of one each (row `{ROW}` of [summary.md](../summary.md)): [{ROW}]({ROW}.svg). Of {len(record['points'])} points, "
            + "; ".join(counts) + ".", ""]


def section(host: paper_host.Host, record: dict[str, Any] | None) -> list[str]:
    """Lines of the page: the real figures beside the simulated ones."""
    seen = Seen(host)
    if not seen and not record:
        return []
    lines = ["## Over shared memory", ""]
    if seen:
        turns = " or ".join(map(str, sorted({pattern.turns for pattern in PATTERNS.values()})))
        rows = [row(seen) for row in (row_6, row_8, row_9, row_13, row_14)]
        lines += [f"Real programs (`larklane bench`) on {wording.count(host['cores'], 'core')} of {host['cpu']}, {host['mpi']}: policies by `LARKLANE_POLICY`, all by attach,",
                  "against `none`, which sends each partition by itself; payload and completion verified in every round. Medians of "
                  f"{turns} turns; where a figure is", "compared with the paper, every turn must agree, by more than the A/A noise. Threads beyond the cores take turns. "
                  "Figures 10 to 12 have this host's panels above.", "Queue pairs do not exist in shared memory: figure 7 is simulated only.", "",
                  "| figure | the paper | this host | where they differ | why |", "|---|---|---|---|---|",
                  *(f"| [{number}](figure-{number}-host.svg), [simulated](figure-{number}.svg) | {SHOWS[number]} | {what} | {verdict} | {why} |"
                    for number, what, verdict, why in rows), ""]
        left = [f"- left out: {each['contender']} of {each['benchmark']}, {each['partitions']} partitions: {each['why'].splitlines()[-1]}" for each in host["failed"]]
        lines += [*left, ""] if left else []
    return lines + (row_section(record) if record else [])
