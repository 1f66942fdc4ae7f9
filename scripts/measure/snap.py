#!/usr/bin/env python3
"""SNAP: its sweep ported to partitions (examples/snap.c), predicted and measured on 2 x 2 ranks; and SNAP-C itself, unmodified.

Writes measurements/snap-COMMIT.json and snap.md. `--snap-c FILE` is SNAP-C (ports/snap-c of github.com/lanl/SNAP), built beside the project
with MPICH 5.0.2:

    mpicc -O2 -std=gnu99 -fopenmp *.c -o snap -lm

It runs natively, under `larklane run` and under `larklane profile`, on 4 and on 16 ranks; its output must be the same. Without the option the page
keeps the last record's part on SNAP-C.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/mp")]
import bars  # noqa: E402
import launch  # noqa: E402
import savings  # noqa: E402

from larklane.comparison.projection import project  # noqa: E402
from larklane.numbers import stats  # noqa: E402
from larklane.prediction import costs  # noqa: E402
from larklane.prediction.forecast import forecast  # noqa: E402
from larklane.profile.profile import load  # noqa: E402
from larklane.profile.traffic import calls_share  # noqa: E402

RANKS = 4
MPIS = {"mpich5": "mpich", "openmpi5": "openmpi"}  # and the folder of their examples
CONFIGURATIONS = ("--threads 2 --sweeps 20", "--threads 2 --sweeps 20 --late-ms 1 --seed 3", "--threads 2 --sweeps 20 --angles 48 --ny 32 --nz 32")
JOINED, ORIGINAL, PORTED, NATIVE = "one message after the join", "a message a group", "partitioned, Larklane", "partitioned, the MPI's own"
MODES = {JOINED: "funneled", ORIGINAL: "multiple", PORTED: "partitioned", NATIVE: "partitioned"}
LINE = re.compile(r"PASSED: ([\d.]+) ms per sweep, 0 rows differ, checksum (\w+)")
SPEEDUP = 15.1  # ICPP'22, section 4.6
LIMIT_S, LIMIT_NATIVE_S = 120, 20


@dataclasses.dataclass(frozen=True)
class Case:
    """The example with its options, on one MPI."""

    mpi: launch.Mpi
    words: str

    def run(self, contender, before=()):
        """@return (milliseconds of a sweep, the result's checksum). Raises RuntimeError"""
        program = savings.BUILD / "examples" / MPIS[self.mpi.name] / "snap"
        if contender == PORTED:
            before = [savings.BUILD / "bin/larklane", "run"]
        words = [*map(str, before), str(program), *self.words.split(), "--mode", MODES[contender]]
        outcome = launch.launch(self.mpi, RANKS, words, LIMIT_NATIVE_S if contender == NATIVE else LIMIT_S)
        found = LINE.search(outcome.output)
        if outcome.status or not found:
            raise RuntimeError(f"{self.mpi.title}: {contender}: status {outcome.status}: {outcome.output[-500:]}")
        return float(found[1]), found[2]


def measured(case, turns):
    """@return {contender: milliseconds by turn}, the checksums, {contender: why it has no figure}"""
    times, sums, failed = {name: [] for name in MODES}, set(), {}
    for turn in range(turns):
        for name in list(times) if turn % 2 == 0 else list(reversed(times)):
            try:
                ms, checksum = case.run(name)
            except RuntimeError as error:
                if name != NATIVE:
                    raise
                del times[name]  # its own partitioned calls hang: no further turns
                failed[name] = str(error).splitlines()[0]
                continue
            times[name].append(ms)
            sums.add(checksum)
    return times, sums, failed


def predicted(case, known, folder):
    """@return (share of a step, its interval or None, the sentence where there is none) of early sending, from a profile of the joined form"""
    case.run(JOINED, [savings.BUILD / "bin/larklane", "profile", "--out", folder, "--mpi", "native"])
    made = forecast(load(folder), known)
    if not made.prediction:
        return None, None, made.why
    saving, step = made.prediction.best, made.prediction.step_ns
    return saving.ns / step, [bound / step for bound in saving.interval_ns], ""


def compared(case, known, turns):
    """@return the point of a case"""
    with tempfile.TemporaryDirectory(prefix="snap-") as scratch:
        times, sums, failed = measured(case, turns)
        share, interval, why = predicted(case, known, pathlib.Path(scratch) / "profile")
    point = {"parameters": {"mpi": case.mpi.title, "ranks": "2 x 2", "options": case.words}, "series": times, "failed": failed,
             "summary": {name: {key: value for key, value in stats.summary(ms).items() if key in ("n", "median", "p10", "p90")} for name, ms in times.items()},
             "checksums": sorted(sums), "why": why}
    for name in (JOINED, ORIGINAL):
        saved = [(before - after) / before for before, after in zip(times[name], times[PORTED])]
        point[f"saved over {name}"] = {"share": statistics.median(saved), "interval": list(stats.bootstrap(float, saved))}
    if interval:
        point["predicted"] = {"share": share, "interval": interval}
    return point


def predictions_hold(point):
    low, high = point["predicted"]["interval"]
    return low <= point[f"saved over {JOINED}"]["share"] <= high


def intervals_meet(point):
    low, high = point["predicted"]["interval"]
    got_low, got_high = point[f"saved over {JOINED}"]["interval"]
    return got_low <= high and low <= got_high


def measure_costs(mpi, folder):
    words = ["latency", "--ways", "join,partitioned", "--sizes", "8,1K,8K,64K,512K"]
    return costs.read(bars.bench_set(words, folder, mpi, environment=savings.environment() if mpi.name == "mpich5" else {**mpi.environment, "OMP_WAIT_POLICY": "passive"}))


# --- SNAP-C -----------------------------------------------------------------------------------------------------------

NAMELIST = """! Input from namelist
&invar
  nthreads=1
  npey={side}
  npez={side}
  ndimen=3
  nx=12
  lx=1.0
  ny=12
  ly=1.0
  nz=12
  lz=1.0
  ichunk=6
  nmom=1
  nang=10
  ng=3
  mat_opt=0
  src_opt=1
  timedep=0
  it_det=0
  tf=1.0
  nsteps=10
  iitm=5
  oitm=100
  epsi=1.E-7
  fluxp=0
  scatp=0
  fixup=0
/
"""  # ports/snap-c/center_src/in01, but for threads and sides


def result_of(file):
    """The output without its date and its times."""
    return [line for line in file.read_text(encoding="utf-8").partition("Timing Summary")[0].splitlines() if "Ran on" not in line]


def run_snap_c(program, side):
    """@return the entry of a number of ranks"""
    mpi, larklane = launch.MPIS["mpich5"], str(savings.BUILD / "bin/larklane")
    with tempfile.TemporaryDirectory(prefix="snap-c-") as scratch:
        folder = pathlib.Path(scratch)
        (folder / "in").write_text(NAMELIST.format(side=side), encoding="utf-8")
        before = {"native": [], "run": [larklane, "run"], "profile": [larklane, "profile", "--out", str(folder / "recorded")]}
        seconds = {}
        for name, words in before.items():
            begin = time.monotonic()
            outcome = launch.launch(mpi, side * side, [*words, str(program), "--fi", str(folder / "in"), "--fo", str(folder / name)], LIMIT_S)
            seconds[name] = round(time.monotonic() - begin, 3)
            if outcome.status or "Success!" not in outcome.output:
                raise RuntimeError(f"SNAP-C, {name}: status {outcome.status}: {outcome.output[-500:]}")
        profile = load(folder / "recorded")
        made = forecast(profile)
        return {"ranks": side * side, "seconds": seconds, "same": all(result_of(folder / name) == result_of(folder / "native") for name in before),
                "lines": len(result_of(folder / "native")), "messages": len(profile.messages), "share": calls_share(profile.files), "problems": profile.problems,
                "is_nothing": made.is_nothing, "why": made.why}


def last_snap_c():
    for file in bars.RECORDS.glob("snap-*.json"):
        return json.loads(file.read_text(encoding="utf-8")).get("snap_c", [])
    return []


# --- the page ---------------------------------------------------------------------------------------------------------


def percent(entry):
    low, high = entry["interval"]
    return f"{100 * entry['share']:.0f} % ({100 * low:.0f} to {100 * high:.0f})"


def line(point):
    said = point.get("predicted")
    return "| " + " | ".join([
        point["parameters"]["mpi"], f"`{point['parameters']['options']}`", *(f"{point['summary'][name]['median']:.2f}" if name in point["summary"] else "fails" for name in MODES),
        percent(said) if said else point["why"], percent(point[f"saved over {JOINED}"]), percent(point[f"saved over {ORIGINAL}"]),
        "" if not said else "yes" if predictions_hold(point) else "no; meets" if intervals_meet(point) else "no"]) + " |"


def snap_c_line(entry):
    seconds = entry["seconds"]
    said = f"nothing: {entry['why']}" if entry["is_nothing"] else entry["why"]
    return (f"| {entry['ranks']} | {seconds['native']:.2f}, {seconds['run']:.2f}, {seconds['profile']:.2f} s | {'the same' if entry['same'] else '**differs**'} ({entry['lines']} lines) | "
            f"{entry['messages']} | {100 * entry['share']:.1f} % | {project(entry['share'], SPEEDUP):.2f} | {said} |")


def page(points, snap_c):
    return "\n".join([
        "# SNAP: predicted and measured", "",
        "Written by `scripts/measure/snap.py`. The sweep of SNAP as in [snap.c](../examples/snap.c), on 2 x 2 ranks with 2 threads each. Four ranks share two",
        "cores, and other programs ran beside them: ratios of runs in turns hold for that hour, times do not.", "",
        "Predicted: what `larklane report` says of a profile of the form with one message after the join, as a share of a sweep. Saved: by partitions under",
        "Larklane, over that form and over the original's (a message a group, by the thread that computed it). Medians, 95 % in brackets. A prediction holds",
        "where its interval has the measured median; *meets*: its interval and the measured one overlap. Results of all forms are equal to the bit in every run.", "",
        "| MPI | options | joined ms | a message a group ms | partitioned, Larklane ms | partitioned, own ms | predicted | saved over joined | saved over a message a group | holds |",
        "|---|---|---|---|---|---|---|---|---|---|", *map(line, points), "",
        "*Fails*: an MPI's own partitioned calls do not come to an end. Open MPI 5.0.11's requests hang with the example, as with the other ones of `examples`",
        "([native-table.md](../docs/user/native-table.md)).", "",
        "## SNAP-C, unmodified", "",
        "`ports/snap-c` of github.com/lanl/SNAP at e7ab43d, over MPICH 5.0.2, with the input `center_src/in01` (12 x 12 x 12 cells, 10 angles, 3 groups, one",
        "thread). Built beside the project, as the head of `scripts/measure/snap.py` says. Output: that of `larklane run` and `larklane profile` against the",
        "native one, without date and times. SNAP-C keeps communicators in `int`, so it crashes over Open MPI, natively, too.", "",
        "| ranks | native, run, profile | output | messages | share of send and receive | paper's rule (15.1) | early sending, says report |", "|---|---|---|---|---|---|---|",
        *map(snap_c_line, snap_c), "",
        "```sh", "mpiexec -n 4 ./snap --fi in --fo out", "mpiexec -n 4 larklane run ./snap --fi in --fo out-run",
        "mpiexec -n 4 larklane profile --out p ./snap --fi in --fo out-profile", "larklane report p --speedup 15.1", "```", "",
        "Its share is of ranks that wait for a core, too. Figure 13 of the paper, on 8 to 256 nodes: [icpp22](icpp22/README.md)."]) + "\n"


def criteria(points, snap_c):
    return [("results equal to the bit", all(len(point["checksums"]) == 1 for point in points)),
            *((f"saving predicted within its interval: {point['parameters']['mpi']}, {point['parameters']['options']}", predictions_hold(point))
              for point in points if "predicted" in point),
            *((f"SNAP-C, {entry['ranks']} ranks: same output, profile without a problem", entry["same"] and not entry["problems"]) for entry in snap_c)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snap-c", type=pathlib.Path, metavar="FILE", help="SNAP-C, built with MPICH 5.0.2")
    parser.add_argument("--turns", type=int, default=9, metavar="N", help="runs of each form (default: %(default)s)")
    arguments = parser.parse_args()
    missing = [name for name in MPIS if not launch.MPIS[name].installed()]
    if missing or (arguments.snap_c and not arguments.snap_c.exists()):
        print(f"snap: {'not installed: ' + ', '.join(missing) + ' (make setup)' if missing else f'no {arguments.snap_c}'}")
        return 1
    about = bars.context()
    try:
        snap_c = [run_snap_c(arguments.snap_c.resolve(), side) for side in (2, 4)] if arguments.snap_c else last_snap_c()
        points = []
        for name in MPIS:
            with tempfile.TemporaryDirectory(prefix="snap-costs-") as folder:
                known = measure_costs(launch.MPIS[name], pathlib.Path(folder))
            for words in CONFIGURATIONS:
                points.append(compared(Case(launch.MPIS[name], words), known, arguments.turns))
                print(line(points[-1]), flush=True)
    except (RuntimeError, costs.RecordError) as error:
        print(f"snap: {error}", file=sys.stderr)
        return 1
    verdicts = criteria(points, snap_c)
    bars.keep_record("snap", {**about, "row": "snap", "unit": "ms", "points": points, "snap_c": snap_c, "verdicts": bars.recorded(verdicts)}, page(points, snap_c))
    return bars.told(verdicts)


if __name__ == "__main__":
    sys.exit(main())
