#!/usr/bin/env python3
"""Tests the papers' statements on partitioned communication with `larklane bench`; writes measurements/statements.md.

Every statement is judged on each MPI, natively and under Larklane: `yes` or `no` where the 95 % bootstrap interval of the ratio (or
of the difference of two shares) decides, else `open`. Takes some 15 minutes on a quiet machine. build/statements keeps the
results: an interrupted run continues where it stopped; --fresh begins anew.
"""

import argparse
import dataclasses
import pathlib
import shutil
import sys
from collections.abc import Callable, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/mp"), str(ROOT / "scripts/measure")]
import bars  # noqa: E402
import launch  # noqa: E402

from larklane.numbers import stats, wording  # noqa: E402
from larklane.records import cases, schema  # noqa: E402

KEPT = ROOT / "build/statements"
MPIS = ("mpich5", "openmpi5")
VARIANTS = ("native", "larklane")
ALIKE = 0.1  # "similar", "close to": within 10 percent
SMALL, MEDIUM, LARGE, LARGEST = 4 << 10, 256 << 10, 16 << 20, 64 << 20
SIZES = "--sizes 4K,64K,256K,1M,4M,16M --iterations 20 --warmup 2 --traces 0 --limit 5 --ways join,partitioned"
ALL_SIZES = SIZES.replace("16M", "16M,64M")
NOISE = "--noise-percent 4 --noise"
PATTERN = ("--sizes 16K,256K,2M --iterations 8 --warmup 1 --limit 5 --ways single,multiple,partitioned --compute-us 2000 --noise single "
           "--threads")

# {plan: benchmark and options}; 10 ms of computing by default.
PLANS = {
    "hot 1": f"overhead {SIZES} --threads 1",
    "hot 4": f"overhead {SIZES} --threads 4",
    "hot 16": f"overhead {SIZES} --threads 16",
    "cold 16": f"overhead {SIZES} --threads 16 --cold",
    "bandwidth 4": f"perceived-bandwidth {ALL_SIZES} --threads 4 {NOISE} uniform",
    "bandwidth 16": f"perceived-bandwidth {ALL_SIZES} --threads 16 {NOISE} uniform",
    "bandwidth 1": f"perceived-bandwidth {ALL_SIZES} --threads 1 {NOISE} uniform",
    "single 2": f"availability {SIZES} --threads 2 {NOISE} single",
    "single 16": f"availability {ALL_SIZES} --threads 16 {NOISE} single",
    "single 16 long": f"availability {ALL_SIZES} --threads 16 --compute-us 40000 {NOISE} single",
    "uniform 16": f"availability {SIZES} --threads 16 {NOISE} uniform",
    "gaussian 16": f"availability {SIZES} --threads 16 {NOISE} gaussian",
    "early 2": f"early-bird {SIZES} --threads 2 --compute-us 40000 {NOISE} uniform",
    "early 8": f"early-bird {SIZES} --threads 8 --compute-us 40000 {NOISE} uniform",
    "early 32": f"early-bird {SIZES} --threads 32 --compute-us 40000 {NOISE} uniform",
    "receiver 4": f"recv-compute {SIZES} --threads 4 {NOISE} single",
    "receiver 32": f"recv-compute {SIZES} --threads 32 {NOISE} single",
    "sweep3d 4": f"sweep3d {PATTERN} 4",
    "halo3d 4": f"halo3d {PATTERN} 4",
    "halo3d 16": f"halo3d {PATTERN} 16",
}


def file_name(plan: str) -> str:
    return f"{plan.replace(' ', '-')}.json"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """`holds`: None if the interval leaves it open; `figures`: the measured ones."""

    holds: bool | None
    figures: str

    @property
    def word(self) -> str:
        return {True: "yes", False: "no", None: "open"}[self.holds]


class Seen:
    """The results of one MPI and one variant."""

    def __init__(self, found: Sequence[cases.Case]) -> None:
        self._found = {(case.run.source, case.way, case.point.bytes): case for case in found}

    def values(self, plan: str, size: int, way: str = cases.PARTITIONED) -> list[float]:
        """Raises KeyError without figures."""
        case = self._found[file_name(plan), way, size]
        return cases.metrics([case])[0].values(case)

    def sizes(self, plan: str) -> list[int]:
        """The sizes with figures of partitions, smallest first. Raises KeyError without any."""
        found = sorted(size for name, way, size in self._found if name == file_name(plan) and way == cases.PARTITIONED)
        if not found:
            raise KeyError(plan)
        return found


@dataclasses.dataclass(frozen=True)
class Statement:
    """`why`: the explanation where the statement does not hold here."""

    paper: str
    text: str
    judge: Callable[[Seen], Verdict] | None
    why: str = ""


def _above(seen: Seen, above: Sequence, below: Sequence, limit: float = 1.0) -> Verdict:
    """Is the median of `above` more than `limit` times that of `below`?"""
    first, second = seen.values(*above), seen.values(*below)
    low, high = stats.bootstrap(lambda a, b: a / b, first, second)
    holds = True if low > limit else False if high <= limit else None
    return Verdict(holds, f"{wording.number(stats.median(first))} against {wording.number(stats.median(second))}")


def _inside(low: float, high: float, floor: float, ceiling: float) -> bool | None:
    """Is the interval wholly within these bounds? None: partly."""
    if floor <= low and high <= ceiling:
        return True
    return False if high < floor or low > ceiling else None


def _alike(seen: Seen, one: Sequence, other: Sequence) -> Verdict:
    first, second = seen.values(*one), seen.values(*other)
    low, high = stats.bootstrap(lambda a, b: a / b, first, second)
    ratio = stats.median(first) / stats.median(second)
    return Verdict(_inside(low, high, 1 - ALIKE, 1 + ALIKE), f"{ratio:.2f} times ({low:.2f} to {high:.2f})")


def _difference(seen: Seen, one: Sequence, other: Sequence | float) -> tuple[Sequence[float], Sequence[float], float, float]:
    """@return both shares in percent, and the bounds of their difference"""
    first, second = seen.values(*one), [other] if isinstance(other, (int, float)) else seen.values(*other)
    return first, second, *stats.bootstrap(lambda a, b: a - b, first, second)


def _share_above(seen: Seen, above: Sequence, below: Sequence | float) -> Verdict:
    """Shares in percent: is the first larger than the second?"""
    first, second, low, high = _difference(seen, above, below)
    holds = True if low > 0 else False if high <= 0 else None
    return Verdict(holds, f"{stats.median(first):.0f} % against {stats.median(second):.0f} %")


def _shares_alike(seen: Seen, one: Sequence, other: Sequence) -> Verdict:
    first, second, low, high = _difference(seen, one, other)
    nothing = max(first) == max(second) == 0
    holds = None if nothing else _inside(low, high, -100 * ALIKE, 100 * ALIKE)
    return Verdict(holds, f"{stats.median(first):.0f} % and {stats.median(second):.0f} %")


def _peak(seen: Seen, plan: str) -> int:
    return max(seen.sizes(plan), key=lambda size: stats.median(seen.values(plan, size)))


def _rises_then_falls(seen: Seen, plan: str) -> Verdict:
    """`no` if the smallest or the largest size is surely above every size between: nothing rises, or nothing falls."""
    peak, sizes = _peak(seen, plan), seen.sizes(plan)
    inner = max(sizes[1:-1], key=lambda size: stats.median(seen.values(plan, size)))
    rises, falls = _above(seen, (plan, inner), (plan, sizes[0])).holds, _above(seen, (plan, inner), (plan, sizes[-1])).holds
    ends = any(all(_above(seen, (plan, end), (plan, size)).holds for size in sizes[1:-1]) for end in (sizes[0], sizes[-1]))
    figures = (wording.number(stats.median(seen.values(plan, size))) for size in (sizes[0], peak, sizes[-1]))
    return Verdict(False if ends else (rises and falls) or None, f"{', '.join(figures)} MB/s, the middle one at {wording.size(peak)}")


def _does_not_fall(seen: Seen, plan: str) -> Verdict:
    """Is the largest size within 10 % of the peak?"""
    peak, largest = _peak(seen, plan), seen.sizes(plan)[-1]
    low, high = stats.bootstrap(lambda a, b: a / b, seen.values(plan, largest), seen.values(plan, peak))
    holds = True if low >= 1 - ALIKE or peak == largest else False if high < 1 - ALIKE else None
    medians = [wording.number(stats.median(seen.values(plan, size))) for size in (largest, peak)]
    return Verdict(holds, f"{medians[0]} against {medians[1]} at {wording.size(peak)}")


def _noise_is_what_receivers_gain(seen: Seen, plan: str, size: int) -> Verdict:
    """Is the gain within 10 % of the noise, 4 % of 10 ms?"""
    gained = seen.values(plan, size)
    low, high = stats.bootstrap(lambda a: a / 400, gained)
    return Verdict(_inside(low, high, 1 - ALIKE, 1 + ALIKE), f"{wording.number(stats.median(gained))} us of 400")


ICPP, SAND = "ICPP'22", "SAND2019-11403"
ALL_AT_ONCE = "A library that sends when all partitions are ready, or when somebody waits, has nothing early, and pays for every call."
ONE_NODE = "Two processes of one host: what a message costs is a copy, not a header and a trip on a wire."
STATEMENTS = (
    Statement(f"{ICPP} 4.2", "16 partitions: the overhead falls as messages grow (4 KiB against 16 MiB)",
              lambda seen: _above(seen, ("hot 16", SMALL), ("hot 16", LARGE)), ONE_NODE),
    Statement(f"{ICPP} 4.2", "One partition of a large message costs as much as one send (16 MiB, within 10 %)",
              lambda seen: _alike(seen, ("hot 1", LARGE), ("hot 1", LARGE, "join")),
              "Partitions are copied once where the MPI's send copies twice, or the other way round."),
    Statement(f"{ICPP} 4.2", "More partitions cost more (4 KiB, 16 partitions against 1)",
              lambda seen: _above(seen, ("hot 16", SMALL), ("hot 1", SMALL)), ONE_NODE),
    Statement(f"{ICPP} 4.2", "Cold caches hide overhead (4 KiB, 16 partitions: hot against cold)",
              lambda seen: _above(seen, ("hot 16", SMALL), ("cold 16", SMALL)),
              "4 KiB out of memory take less than what else differs from round to round."),
    Statement(f"{ICPP} 4.2", "Partitions on two sockets cost more", None, "This machine has one socket."),
    Statement(f"{ICPP} 4.3", "16 partitions, uniform noise: perceived bandwidth rises to a peak, then falls",
              lambda seen: _rises_then_falls(seen, "bandwidth 16"),
              "Threads compute until a time (as in the original suite), so what a core copies meanwhile costs the threads that share it "
              "nothing: only the last partition is exposed."),
    Statement(f"{ICPP} 4.3", "With one partition the curve does not fall (the largest message against the peak, within 10 %)",
              lambda seen: _does_not_fall(seen, "bandwidth 1"),
              "64 MiB no longer fit into the caches, 4 KiB do."),
    Statement(f"{ICPP} 4.3", "The peak is higher with more partitions (16 against 4)",
              lambda seen: _above(seen, ("bandwidth 16", _peak(seen, "bandwidth 16")), ("bandwidth 4", _peak(seen, "bandwidth 4"))),
              "16 threads share a core: the last one's partition waits for others, not for a network."),
    Statement(f"{ICPP} 4.4", "More partitions give more availability (256 KiB, single noise: 16 against 2)",
              lambda seen: _share_above(seen, ("single 16", MEDIUM), ("single 2", MEDIUM)), ALL_AT_ONCE),
    Statement(f"{ICPP} 4.4", "Availability drops past a size (16 partitions, single noise: 256 KiB against 64 MiB)",
              lambda seen: _share_above(seen, ("single 16", MEDIUM), ("single 16", LARGEST)),
              "Where partitions leave only when all are ready nothing is available that could drop."),
    Statement(f"{ICPP} 4.4", "More computing shifts the drop (64 MiB: 40 ms against 10 ms)",
              lambda seen: _share_above(seen, ("single 16 long", LARGEST), ("single 16", LARGEST)),
              "Where nothing drops nothing shifts."),
    Statement(f"{ICPP} 4.4", "A single late thread gives better availability than uniform noise (256 KiB, 16 partitions)",
              lambda seen: _share_above(seen, ("single 16", MEDIUM), ("uniform 16", MEDIUM))),
    Statement(f"{ICPP} 4.4", "... and than Gaussian noise",
              lambda seen: _share_above(seen, ("single 16", MEDIUM), ("gaussian 16", MEDIUM))),
    Statement(f"{ICPP} 4.5", "Most of a small or medium message is early (256 KiB, 8 partitions: over half)",
              lambda seen: _share_above(seen, ("early 8", MEDIUM), 50),
              ALL_AT_ONCE),
    Statement(f"{ICPP} 4.5", "Of large messages less is early (8 partitions: 256 KiB against 16 MiB)",
              lambda seen: _share_above(seen, ("early 8", MEDIUM), ("early 8", LARGE)), ALL_AT_ONCE),
    Statement(f"{ICPP} 4.5", "Two partitions are enough to be early (256 KiB: over a third)",
              lambda seen: _share_above(seen, ("early 2", MEDIUM), 100 / 3), ALL_AT_ONCE),
    Statement(f"{ICPP} 4.5", "8 and 32 partitions differ little (256 KiB, 40 ms: within 10 points)",
              lambda seen: _shares_alike(seen, ("early 8", MEDIUM), ("early 32", MEDIUM)),
              "32 threads on one core end one after the other; arrivals wait for the receiver's core."),
    Statement(f"{ICPP} 4.6", "sweep3d, small faces: partitions do as well as a message a thread (16 KiB, within 10 %)",
              lambda seen: _alike(seen, ("sweep3d 4", 16 << 10), ("sweep3d 4", 16 << 10, "multiple")), ALL_AT_ONCE),
    Statement(f"{ICPP} 4.6", "sweep3d, large faces: partitions are ahead of one message (2 MiB; 15.1 times there)",
              lambda seen: _above(seen, ("sweep3d 4", 2 << 20), ("sweep3d 4", 2 << 20, "single")), ALL_AT_ONCE),
    Statement(f"{ICPP} 4.6", "sweep3d, large faces: a message a thread is behind one message (2 MiB)",
              lambda seen: _above(seen, ("sweep3d 4", 2 << 20, "single"), ("sweep3d 4", 2 << 20, "multiple")),
              "No network is contended for; threads of one process copy side by side."),
    Statement(f"{ICPP} 4.7", "halo3d, 4 partitions: as one message (16 KiB, within 10 %)",
              lambda seen: _alike(seen, ("halo3d 4", 16 << 10), ("halo3d 4", 16 << 10, "single"))),
    Statement(f"{ICPP} 4.7", "halo3d, more threads than cores: partitions do as well as a message a thread (2 MiB, within 10 %)",
              lambda seen: _alike(seen, ("halo3d 16", 2 << 20), ("halo3d 16", 2 << 20, "multiple")),
              "There both were made of the same messages (MPIPCL); here partitions are not messages."),
    Statement(f"{SAND} 7.2", "One partition: no extra time to compute", None, "So by definition: the first arrival is the last."),
    Statement(f"{SAND} 7.2", "Several: about the noise (4 partitions, 1 MiB, within 10 %)",
              lambda seen: _noise_is_what_receivers_gain(seen, "receiver 4", 1 << 20),
              "A library that delivers all at once leaves nothing; four threads of one core are apart by more than the noise."),
    Statement(f"{SAND} 7.2", "More threads than cores: the first and the last are further apart (32 against 4, 1 MiB)",
              lambda seen: _above(seen, ("receiver 32", 1 << 20), ("receiver 4", 1 << 20))),
)


def kept_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """@return the kept results of the current plans"""
    return sorted(file for file in (folder / file_name(plan) for plan in PLANS) if file.exists())


def is_kept(file: pathlib.Path, words: str, commit: str) -> bool:
    """Was the file measured by these words, at this commit?"""
    return file.exists() and file.with_suffix(".plan").exists() and file.with_suffix(".plan").read_text() == f"{commit} {words}"


def measure(mpi: launch.Mpi, folder: pathlib.Path, commit: str) -> None:
    """Measure all plans under one MPI, one file each; files of this commit are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (plan, words) in enumerate(PLANS.items(), 1):
        file = folder / file_name(plan)
        if is_kept(file, words, commit):
            continue
        print(f"{mpi.title}: [{number}/{len(PLANS)}] {plan}", flush=True)
        scratch = folder / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)  # left by an interrupted run
        bars.bench_set(words.split(), scratch, mpi, check=False).replace(file)
        file.with_suffix(".plan").write_text(f"{commit} {words}")
        shutil.rmtree(scratch)


def judged(statement: Statement, seen: Seen) -> Verdict:
    if statement.judge is None:
        return Verdict(None, "not tried")
    try:
        return statement.judge(seen)
    except KeyError:
        return Verdict(None, "no figures")


def table(columns: dict[str, Seen]) -> str:
    lines = [f"| said by | statement | {' | '.join(columns)} | where it does not hold here |", "|" + "---|" * (len(columns) + 3)]
    for statement in STATEMENTS:
        verdicts = [judged(statement, seen) for seen in columns.values()]
        cells = [f"{verdict.word}: {verdict.figures}" if statement.judge else verdict.figures for verdict in verdicts]
        explained = statement.judge is None or any(verdict.holds is False for verdict in verdicts)
        lines.append(f"| {statement.paper} | {statement.text} | {' | '.join(cells)} | {statement.why if explained else ''} |")
    return "\n".join(lines)


def write(about: dict, installed: Sequence[str]) -> pathlib.Path:
    """Write the page and its record, which replace the older ones. @return the page"""
    columns, figures = {}, {}
    for name in installed:
        found = cases.measured(schema.load(kept_files(KEPT / name)))
        for variant in VARIANTS:
            mine = [case for case in found if case.variant == variant]
            columns[f"{launch.MPIS[name].title}, {'under Larklane' if variant == 'larklane' else 'native'}"] = Seen(mine)
            for case in mine:
                metric = cases.metrics([case])[0]
                key = f"{name} {variant} {case.run.source.removesuffix('.json')} {case.way} {case.point.bytes}"
                figures[key] = {"metric": metric.label, **stats.summary(metric.values(case))}
    facts = about["machine"]
    record = bars.keep_record("statements", {**about, "row": "statements", "figures": figures}, f"""# What the papers say, tried here

Written by `python3 scripts/papers/statements.py` from `statements-{about['commit']}.json` ({facts['cpu']}, {facts['cores']} cores, one host;
{'publishable' if about['publishable'] else ', '.join(about['why_not'])}). Medians of 20 rounds (patterns: 8), 10 ms of computing and 4 % noise unless said; every round
verified. `yes` or `no`: the 95 % bootstrap interval says so; `open`: it does not. The reasons in the last column are ours, not measured.
The papers measured two nodes with 40 or 32 cores each over InfiniBand or Aries; here two processes share two cores and their memory, so the
sizes at which things happen differ, and where a statement is about a network it can't be expected to hold.

{table(columns)}
""")
    return record.with_name("statements.md")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run has measured")
    if parser.parse_args().fresh:
        shutil.rmtree(KEPT, ignore_errors=True)
    installed = [name for name in MPIS if launch.MPIS[name].installed()]
    if not installed or not (ROOT / bars.LARKLANE).exists():
        print("statements: needs `make` and at least one MPI of `make setup`", file=sys.stderr)
        return 1
    about = bars.context()
    for name in installed:
        measure(launch.MPIS[name], KEPT / name, about["commit"])
    print(f"written: {write(about, installed).relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
