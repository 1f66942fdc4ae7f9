#!/usr/bin/env python3
"""Measure the performance rows and write each to measurements/<row>-<commit>.json (its README describes a record).

The rows are bench/rows.json; each is

  {"row": "name", "what": "a sentence", "unit": "ns", "margin": 0.03, "repetitions": 15,
   "points": [{"bytes": 8}, ...],
   "contenders": {"larklane": "larklane mpich5 exposed --sizes {bytes} --ways partitioned", "other": "native mpich5 ..."},
   "claims": [["larklane", "other"], ["larklane", 10], ["larklane", "other", 0.125]]}

A contender is a call of `larklane bench`: `native MPI`, `larklane MPI`, `ordinary MPI` or `lci MPI` on two ranks of that MPI's launcher (`MPI:N`: on N), `alone N` on N
processes of `larklane launch`. Words NAME=VALUE for its environment, the benchmark and its options follow. After a leading `hosts`, the ranks run on two hosts
(tests/hosts/hosts.py). The default warm-up is a tenth of the rounds. `metric` selects samples of the record's first way (default: the benchmark's
main metric); {NAME} in it stands for the point's value, too. `quantile` (default 0.5; or "mean") reduces them to the figure of a run. Any other command runs unchanged, and its last line
is {"samples": [numbers], "wrong": 0}. Two rows need one. `profiling` measures programs of users, unchanged, under `larklane profile`. Contender `write`
of `early-verbs` measures the RDMA device alone, through libibverbs; the programs of `larklane bench` run where that library is missing.

A claim compares a candidate with a baseline, with a limit in the row's unit, or with a share of a baseline; smaller is better. After the share may stand
an allowance: ["larklane", "native", 1.0, [1e7, 2e5, "ranks"]] grants the candidate 1e7 and 2e5 more for each of the point's `ranks`. A point may have
its own `repetitions`, and lists of values stand for every combination of them. `lenient`: contenders that may hang; only the runs that end count.
`guest_s`: the row is measured in a guest with an RDMA device (tests/rdma/guest.py), all points in one boot of at most that many seconds.
There each run of a contender measures all points: `{points}` in its command stands for them. In a command that is not `larklane bench`,
`{at}` stands for `--at bytes=8 --at ...`, and the command prints a line for each point. A run that ends early is repeated from the next point.

A command runs once per turn and contender, from the repository's root. `wrong` counts rounds with a wrong payload or completion: such a run has no
figure. A contender without its program is left out and named. build/bars keeps the measured points, so an interrupted run
continues where it stopped.
"""

import argparse
import concurrent.futures
import copy
import datetime
import itertools
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/mp"), str(ROOT / "tests/rdma")]
import guest  # noqa: E402
import launch  # noqa: E402

from larklane.files.input_file import read_json  # noqa: E402
from larklane.numbers import stats  # noqa: E402
from larklane.records import rows, schema  # noqa: E402
from larklane.records.benchmarks import BENCHMARKS  # noqa: E402
from larklane.records.node import Node  # noqa: E402
from larklane.report import row_digest  # noqa: E402

ROWS = ROOT / "bench/rows.json"
LARKLANE = "build/release/bin/larklane"
KEPT = ROOT / "build/bars"
AGAIN = 4
HOPELESS = 5
HANG = re.compile("no end|exit status 124")  # reported by run_once itself, or by launch.py
RECORDS = ROOT / "measurements"
ENVIRONMENT = re.compile(r"LARKLANE_\w+|OMP_(NUM_THREADS|WAIT_POLICY|PROC_BIND|PLACES)")


def output_of(*command):
    """Standard output of a command, stripped; empty if it fails."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def larklane_json(*words, command=ROOT / LARKLANE):
    """@return the JSON that the command prints with --json. Raises RuntimeError with its error output"""
    done = subprocess.run([command, *map(str, words), "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"larklane {shlex.join(map(str, words))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def bench_set(words, folder, mpi=None, ranks=2, environment=(), check=True):
    """Measure by `larklane bench`, one launch of each variant, under the launcher of `mpi`, and report nothing.

    @param ranks  number, or its place "{processes}"
    @return the record in `folder`. Raises RuntimeError if the command fails, unless `check` is false
    """
    launcher = ["--launcher", shlex.join([str(mpi.launcher), *mpi.flags, "-n", str(ranks)])] if mpi else []
    command = [str(ROOT / LARKLANE), "bench", *words, *launcher, "--repetitions", "1", "--no-report", "--out", str(folder)]
    done = subprocess.run(command, env={**os.environ, **(mpi.environment if mpi else {}), **dict(environment)}, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()[-500:]}".replace(f"{ROOT}/", ""))
    return pathlib.Path(folder, "bench.json")


def two_at_a_time(run, cases, title):
    """Yield (case, run(case)) in the order of the cases, and print the title of each."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for number, (case, found) in enumerate(zip(cases, pool.map(run, cases), strict=True), 1):
            print(f"[{number}/{len(cases)}] {title(case)}", file=sys.stderr, flush=True)
            yield case, found


def text_of(path):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return ""


def field(text, name):
    """Value of the first `name: value` line of a text like /proc/cpuinfo."""
    match = re.search(rf"^{name}\s*:\s*(.*)$", text, re.M)
    return match[1] if match else ""


def machine():
    """Allow-listed facts: none names the host or its user."""
    distributions = ROOT.glob(".deps/*/lib/python3*/site-packages/*mpi*-*.dist-info")
    debian = output_of("dpkg-query", "-W", "-f", "${Package} ${Version}\n", "mpich", "openmpi-bin")
    no_turbo = text_of("/sys/devices/system/cpu/intel_pstate/no_turbo")
    boost = text_of("/sys/devices/system/cpu/cpufreq/boost")
    return {
        "cpu": field(text_of("/proc/cpuinfo"), "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": field(text_of("/proc/meminfo"), "MemTotal"),
        "kernel": platform.release(),
        "compiler": output_of("g++", "--version").split("\n")[0],
        "mpi": sorted({path.name.removesuffix(".dist-info") for path in distributions} | set(debian.split("\n")) - {""}),
        "governor": text_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "unknown",
        "turbo": {"0": "on", "1": "off"}.get(no_turbo) or {"1": "on", "0": "off"}.get(boost) or "unknown",
        "ptrace_scope": text_of("/proc/sys/kernel/yama/ptrace_scope") or "none",
    }


def reasons_not_to_publish(dirty, build_type, facts):
    reasons = []
    if dirty:
        reasons.append("dirty tree")
    if build_type not in ("Release", "RelWithDebInfo"):
        reasons.append(f"build type {build_type or 'unknown'}")
    if facts["turbo"] == "unknown":
        reasons.append("turbo unknown")
    return reasons


def context():
    facts = machine()
    dirty = bool(output_of("git", "status", "--porcelain", "--untracked-files=no", "--", ".", f":!{RECORDS.relative_to(ROOT)}"))
    cache = text_of(ROOT / "build/release/CMakeCache.txt")
    build_type = (re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", cache, re.M) or ["", ""])[1]
    reasons = reasons_not_to_publish(dirty, build_type, facts)
    return {
        "kind": "row",
        "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": output_of("git", "rev-parse", "--short=12", "HEAD"),
        "dirty": dirty,
        "machine": facts,
        "environment": {name: value for name, value in sorted(os.environ.items()) if ENVIRONMENT.fullmatch(name)},
        "publishable": not reasons,
        "why_not": reasons,
    }


def each_of(point):
    """@return the points of one point with lists of values: every combination, the last value changes first"""
    values = [value if isinstance(value, list) else [value] for value in point.values()]
    return [dict(zip(point, chosen)) for chosen in itertools.product(*values)]


def read_rows():
    return [{**row, "points": [point for grid in row["points"] for point in each_of(grid)]} for row in read_json(ROWS)]


class Reading(NamedTuple):
    """Selects the figure of a run from its samples."""

    metric: str = ""  # of a record; empty: the benchmark's main metric
    quantile: float | str | None = 0.5  # None: all of them

    def of(self, samples, wrong):
        """@return (sample or None, error or None)"""
        if wrong or not samples:
            return None, f"{wrong} wrong rounds" if wrong else "no samples"
        if self.quantile is None:
            return list(samples), None
        return statistics.fmean(samples) if self.quantile == "mean" else stats.quantile(samples, self.quantile), None


class Contender(NamedTuple):
    """A contender's command in words. `how`: the start of `larklane bench`; empty: another command."""

    across: bool
    how: str
    where: str  # the MPI, or the number of processes
    words: list[str]
    ranks: str = "2"

    @classmethod
    def of(cls, command):
        words = shlex.split(command)
        across = words[0] == "hosts"
        how, where, *others = [*words[across:], "", ""]
        where, _, ranks = where.partition(":")
        return cls(across, how, where, others[:-2], ranks or "2") if how in ("native", "larklane", "ordinary", "lci", "alone") else cls(False, "", "", words)

    def commanded(self, timeout_s, file):
        """The words to run, launcher included. @param file  of the record"""
        if not self.how:
            return self.words
        variables = [word for word in self.words if re.match(r"[A-Z]\w*=", word)]
        bench = [LARKLANE, "bench", *(word for word in self.words if word not in variables), "--quiet", "--json", str(file)]
        if "--warmup" not in bench and "--iterations" in bench:
            bench += ["--warmup", str(int(bench[bench.index("--iterations") + 1]) // 10 + 1)]
        if self.how == "alone":
            return ["env", *variables, LARKLANE, "launch", "-n", self.where, *bench]
        start = ["python3", "tests/mp/launch.py", "--mpi", self.where, "-n", self.ranks, "--timeout", str(timeout_s), "--"]
        if self.across:
            start = ["python3", "tests/hosts/hosts.py", "--mpi", self.where, "--ranks-per-host", "1", "--timeout", str(timeout_s)]
        program = [] if self.how == "lci" else ["--mpi", launch.EVERY[self.where].program_folder()]
        return [*start, "env", *variables, *bench, "--with", self.how, *program]


def run_words(words, timeout_s):
    """@return (output, error of the run or None)"""
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s + 10, check=False)
    except subprocess.TimeoutExpired:
        return "", f"no end after {timeout_s} s"
    why = f"exit status {done.returncode}: " + done.stderr.strip()[-300:].replace(f"{ROOT}/", "")
    return done.stdout, why if done.returncode else None


def of_lines(text, reading):
    """@return (sample or None, error or None) of each line of figures that a program has printed. Raises ValueError"""
    found = [json.loads(line) for line in text.splitlines() if line.startswith('{"samples"')]
    return [reading.of(line["samples"], int(line.get("wrong", 0))) for line in found]


def of_record(file, reading):
    """As of_lines(), for each point of a record of `larklane bench`."""
    found = []
    record = schema.load([file])
    [run] = record.runs
    for point in run.points:
        first = point.series[0]
        samples = first.samples.get(reading.metric or BENCHMARKS[run.options.benchmark].sample)
        found.append((None, first.refused) if first.refused else reading.of(samples, sum(series.wrong for series in point.series)))
    return found + [(None, f"no end: {failure.what}") for failure in record.failures[:1]]


def run_once(command, points, timeout_s, reading, runner=run_words):
    """Run a contender once. @return ([(sample or None, error or None)] of the points that it reports, error of the run or None)"""
    at = " ".join("--at " + ",".join(assignments(without_repetitions(point))) for point in points)
    shapes = ",".join("{bytes}:{partitions}:{rounds}".format(**point) + f":{point.get('warmup', point['rounds'] // 10 + 1)}" for point in points if "rounds" in point and "partitions" in point)
    reading = reading._replace(metric=reading.metric.format(**points[0]))
    contender = Contender.of(command.format(**{**points[0], "at": at, "points": shapes}))
    with tempfile.TemporaryDirectory(prefix="bars-") as folder:
        file = pathlib.Path(folder, "record.json")
        text, why = runner(contender.commanded(timeout_s, file), timeout_s)
        if not contender.how:
            return of_lines(text, reading), why
        return of_record(file, reading) if file.exists() else [], why


def without_repetitions(parameters):
    return {name: value for name, value in parameters.items() if name != "repetitions"}


def run_together(command, points, timeout_s, reading, runner=run_words):
    """Run a contender for several points, together if its command takes them. After a run that ends at a point, another run
    measures the points behind it. @return [(sample or None, error or None)]"""
    found = []
    takes_all = "{at}" in command or "{points}" in command
    while len(found) < len(points):
        due = points[len(found) :] if takes_all else points[len(found) : len(found) + 1]
        results, why = run_once(command, due, timeout_s, reading, runner)
        ended = results[: len(due)]
        if why and ended and not takes_all and ended[0][1] is None:
            ended = []  # it measured, then failed
        found += ended
        if len(ended) < len(due):
            found.append((None, why or "it says nothing of this point"))
    return found


def note(row, point, name, sample, why):
    """Record a run of a contender at a point."""
    plain = name.removesuffix("'")
    if why and not (plain in row.get("lenient", ()) and HANG.match(why)):
        point["failed"][plain] = why
    point["series"][name].append(sample)
    if point["series"][name] == [None] * HOPELESS:
        point["failed"][plain] = why


def measure_together(row, points, contenders, runner=run_together, after_turn=lambda found: None):
    """Measure all turns of these points, each run for all of them. A contender that fails once at a point drops out there: its figure would not
    count. A `lenient` contender of the row has null for a run that hangs, and drops out if its first HOPELESS runs hang, or all.

    @param after_turn  called after each turn with the result so far
    @return [{"parameters", "series": {contender: samples in turn order}, "failed": {contender: why}}]
    """
    found = [{"parameters": parameters, "series": {name: [] for name in stats.turns(contenders, 0)}, "failed": {}} for parameters in points]

    def is_due(point, turn, name):
        return turn < point["parameters"].get("repetitions", row["repetitions"]) and name.removesuffix("'") not in point["failed"]

    for turn in range(max(parameters.get("repetitions", row["repetitions"]) for parameters in points)):
        for name in stats.turns(contenders, turn):
            due = [point for point in found if is_due(point, turn, name)]
            command = row["contenders"][name.removesuffix("'")]
            options = (row.get("timeout_s", 120), Reading(row.get("metric", ""), row.get("quantile", 0.5)))
            results = runner(command, [point["parameters"] for point in due], *options) if due else []
            for point, (sample, why) in zip(due, results):
                note(row, point, name, sample, why)
        after_turn([drop_failed(copy.deepcopy(point)) for point in found])
    for point in found:
        drop_failed(point)
    return found


def drop_failed(point):
    series, failed = point["series"], point["failed"]
    for name in (name for name, samples in series.items() if not any(sample is not None for sample in samples)):
        failed.setdefault(name.removesuffix("'"), "no run ends")
    for name in failed:
        series.pop(name, None)
        series.pop(name + "'", None)
    return point


def run_at(command, parameters, *options):
    """Run a contender once at one point."""
    return run_together(command, [parameters], *options)[0]


def measure(row, parameters, contenders, runner=run_at):
    """As measure_together(), for one point."""
    return measure_together(row, [parameters], contenders, lambda command, points, *options: [runner(command, points[0], *options)])[0]


INSIDE = "points of a row after a turn: "


def measure_in_guest(row, points, contenders):
    """measure_together() in one boot of a guest; if the boot is cut off, the result of its last whole turn. Raises RuntimeError"""
    here = {**row, "points": points, "contenders": {name: row["contenders"][name] for name in contenders}}
    text = f"python3 scripts/measure/bars.py --inside {shlex.quote(json.dumps(here))}"
    [result] = guest.boot([guest.Command(row["row"], text, row["guest_s"])], folder=ROOT).results
    turns = [json.loads(line.removeprefix(INSIDE)) for line in result.output.split("\n")[:-1] if line.startswith(INSIDE)]
    if not turns:
        raise RuntimeError(f"{row['row']}: in the guest: status {result.status}: {result.output[-1000:]}")
    if result.status:
        print(f"  {row['row']}: cut off in the guest after {len(turns)} turns (status {result.status})")
    return turns[-1]


def inside(row):
    """Measure a row inside the guest."""
    measure_together(row, row["points"], list(row["contenders"]), after_turn=lambda found: print(INSIDE + json.dumps(found), flush=True))


def paired(first, second):
    """@return the samples of the turns in which both ended"""
    turns = [turn for turn in zip(first, second) if None not in turn]
    return [one for one, _ in turns], [other for _, other in turns]


def allowance(parameters, grant=(0, 0, "")):
    """@return the sum that a claim grants its candidate at a point"""
    fixed, each, name = grant
    return fixed + each * parameters.get(name, 0)


def judge(row, point):
    """Verdicts of one point: [{"candidate", "baseline", ...}] in the order of the row's claims."""
    compares = any(isinstance(baseline, str) for _, baseline, *_ in row["claims"])  # differences have no ratio: one may be 0
    twice = [paired(samples, point["series"].get(name + "'", ())) for name, samples in point["series"].items()]
    noise = [stats.aa_noise(one, other) for one, other in twice if compares and one]
    verdicts = []
    for candidate, baseline, *share in row["claims"]:
        gone = [name for name in (candidate, baseline) if isinstance(name, str) and name not in point["series"]]
        if gone:
            result = {"verdict": f"no figure for {', '.join(gone)}"}
        elif isinstance(baseline, str):
            mine, other = paired(point["series"][candidate], point["series"][baseline])
            if not mine:
                result = {"verdict": "no turn in which both end"}
            elif share:
                granted = allowance(point["parameters"], *share[1:])
                result = stats.within([(a - granted) / b for a, b in zip(mine, other)], share[0])
            else:
                result = stats.compare(mine, other, noise=max(noise, default=0.0), margin=row["margin"])
        else:
            result = stats.within([sample for sample in point["series"][candidate] if sample is not None], baseline)
        verdicts.append({"candidate": candidate, "baseline": baseline, **result})
    return verdicts


def available(row):
    """@return the contenders with an installed program; the others are printed"""
    found = {}
    if "guest_s" in row and (why := guest.problem()):
        print(f"  {row['row']}: left out, {why}")
        return []
    for name, command in row["contenders"].items():
        contender = Contender.of(command)
        mpi = contender.where if contender.how not in ("", "alone") else ""
        program = next((word for word in contender.words if word.startswith("build/")), contender.words[0])
        if mpi and not launch.EVERY[mpi].installed():
            why = f"{launch.EVERY[mpi].title} is not installed"
        elif contender.how:
            libexec = ROOT / "build/release/libexec/larklane"
            needed = {"alone": "larklane-messages", "lci": "larklane-lci"}.get(contender.how) or f"{launch.EVERY[mpi].program_folder()}/larklane-bench"
            why = "" if (libexec / needed).exists() else f"no {needed}"
        else:
            why = "" if shutil.which(ROOT / program if "/" in program else program) else f"no {program}"
        if why:
            print(f"  {row['row']}: {name} left out, {why}")
        else:
            found[name] = command
    return list(found)


def measured_and_judged(row, parameters, contenders, runner=run_at):
    """@return a point of a record"""
    return judged(row, measure(row, parameters, contenders, runner))


def all_measured(row, points, contenders):
    """Yield the points of a record."""
    if points and "guest_s" in row:
        return (judged(row, point) for point in measure_in_guest(row, points, contenders))
    return (measured_and_judged(row, parameters, contenders) for parameters in points)


def judged(row, point):
    point["summary"] = {name: stats.summary([sample for sample in samples if sample is not None]) for name, samples in point["series"].items()}
    point["verdicts"] = judge(row, point)
    return point


def run_row(row, about):
    """Measure the missing points of a row. @return its record"""
    kept = KEPT / f"{row['row']}-{about['commit']}.json"
    record = read_json(kept) if kept.exists() else {**about, "row": row["row"], "unit": row["unit"], "points": []}
    done = [point["parameters"] for point in record["points"]]
    contenders = available(row)
    missing = [parameters for parameters in row["points"] if parameters not in done and contenders]
    for point in all_measured(row, missing, contenders):
        record["points"].append(point)
        kept.parent.mkdir(parents=True, exist_ok=True)
        schema.write(kept, record)
        show(row, point)
    return record


def run_again(row, about, at=None):
    """Measure points of the row's newest record again, with more repetitions; the new samples replace the old ones.
    @param at  the points, with any verdict: "bytes=8 partitions=2"; None: the points at which a claim is too noisy
    @return the record, or None if there is no such point"""
    name, record = newest(row)
    contenders = available(row)
    if "guest_s" in row:
        row = {**row, "guest_s": AGAIN * row["guest_s"]}

    def is_chosen(point):
        if at:
            return set(shlex.split(at)) <= set(assignments(point["parameters"]))
        return any(verdict["verdict"] == "too noisy" for verdict in point["verdicts"])

    def more(before):
        count = (1 if at and "again" in before else AGAIN) * max(len(samples) for samples in before["series"].values())
        return {**before["parameters"], "repetitions": count}

    chosen = [number for number, point in enumerate(record["points"] if record else ()) if is_chosen(point)]
    for number, point in zip(chosen, all_measured(row, [more(record["points"][number]) for number in chosen], contenders)):
        record["points"][number] = {**point, "again": {"commit": about["commit"], "measured": about["measured"]}}
        show(row, point)
        schema.write(RECORDS / name, record)
    return record if chosen else None


def assignments(parameters):
    return [f"{name}={value}" for name, value in parameters.items()]


def newest(row):
    """@return (file name, record) of the last measurement of a row; (None, None) without one"""
    records = [(path.name, read_json(path)) for path in RECORDS.glob(f"{row['row']}-{'[0-9a-f]' * 12}.json")]
    return max(records, key=lambda named: named[1].get("measured", ""), default=(None, None))


def keep_record(name, record, page):
    """Write the record and the page of a script that judges its own measurements; they replace its older records. @return the record's path"""
    for old in RECORDS.glob(f"{name}-{'[0-9a-f]' * 12}.json"):
        old.unlink()
    path = RECORDS / f"{name}-{record['commit']}.json"
    schema.write(path, record)
    path.with_name(f"{name}.md").write_text(page, encoding="utf-8")
    return path


def told(verdicts):
    """Print [(criterion, whether it holds)]. @return exit status"""
    for what, holds in verdicts:
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {what}")
    return 0 if all(holds for _, holds in verdicts) else 1


def recorded(verdicts):
    return [{"what": what, "holds": holds} for what, holds in verdicts]


def listed(verdicts):
    """@return lines of a page, one a criterion"""
    return [f"* {'holds' if holds else '**does not hold**'}: {what}" for what, holds in verdicts]


def label(verdict):
    """@return the compared pair as text"""
    return rows.read_verdict(Node(verdict, "verdict")).label


def show(row, point):
    """Print one line per point and claim."""
    parameters = " ".join(assignments(point["parameters"]))
    for name in () if row["claims"] else point["summary"]:
        print(f"  {row['row']} {parameters}: {name}: {point['summary'][name]['median']:.4g} {row['unit']}", flush=True)
    for verdict in point["verdicts"]:
        names = (verdict["candidate"], verdict["baseline"])
        medians = [point["summary"].get(name, {}).get("median") if isinstance(name, str) else name for name in names]
        figures = " ".join("-" if figure is None else f"{figure:.4g}" for figure in medians)
        pair = label(verdict)
        print(f"  {row['row']} {parameters}: {pair}: {figures} {row['unit']}: {verdict['verdict']}", flush=True)


def table(record):
    """A record's points as a table in Markdown."""
    found = row_digest.point_table([rows.read_point(Node(point, "point")) for point in record["points"]], "<br>")
    lines = [found.heads, *found.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("\n", "\n|" + "---|" * len(found.heads) + "\n", 1)


def summarise():
    """Write measurements/summary.md: the newest record of every row, in the order of the rows."""
    parts = ["# What `make bars` saw last", "Medians of the runs' medians, in brackets the middle 80 percent of the runs; smaller is better; how it is judged: README.md beside this page."]
    for row in read_rows():
        name, record = newest(row)
        if record:
            note = "" if record["publishable"] else f"; {', '.join(record['why_not'])}"
            parts += [f"## {row['row']} ({record['unit']})", row["what"], f"`{name}`; {record['machine']['cpu']}, {record['machine']['cores']} cores{note}", table(record)]
    (RECORDS / "summary.md").write_text("\n\n".join(parts) + "\n")


def chosen_rows(rows, text):
    """@return the row with that name, or else the rows with `text` in their names"""
    return [row for row in rows if row["row"] == text] or [row for row in rows if text in row["row"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", default="", help="the row of that name, or else rows whose name contains TEXT")
    parser.add_argument("--again", action="store_true", help=f"only points at which a claim was too noisy, {AGAIN} times as often; they replace those")
    parser.add_argument("--at", metavar="TEXT", help='with --again: these points instead, whatever was found there, no more often if it was again ("bytes=1048576 partitions=8"; what has blanks in quotes of its own)')
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has measured")
    parser.add_argument("--inside", metavar="ROW", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.inside)
        return 0
    if arguments.at and not arguments.again:
        parser.error("--at goes with --again")
    if not ROWS.exists():
        print(f"no rows: {ROWS.relative_to(ROOT)} does not exist")
        return 1
    if arguments.fresh and KEPT.exists():
        shutil.rmtree(KEPT)
    about = context()
    print(f"commit {about['commit']}; " + (f"not publishable: {', '.join(about['why_not'])}" if about["why_not"] else "publishable"))
    slower = 0
    for row in chosen_rows(read_rows(), arguments.only):
        record = run_again(row, about, arguments.at) if arguments.again else run_row(row, about)
        if record and record["points"] and not arguments.again:
            path = RECORDS / f"{row['row']}-{about['commit']}.json"
            schema.write(path, record)
            print(f"  written: {path.relative_to(ROOT)}")
        slower += sum(verdict["verdict"] in ("slower", "above") for point in (record["points"] if record else ()) for verdict in point["verdicts"])
    summarise()
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
