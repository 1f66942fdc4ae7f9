#!/usr/bin/env python3
"""Measure the performance rows and write each to measurements/<row>-<commit>.json (its README says what a record is).

The rows are bench/rows.json; each is

  {"row": "name", "what": "a sentence", "unit": "ns", "margin": 0.03, "repetitions": 15,
   "points": [{"bytes": 8}, ...],
   "contenders": {"larklane": "larklane mpich5 exposed --bytes {bytes}", "other": "native mpich5 ..."},
   "claims": [["larklane", "other"], ["larklane", 10], ["larklane", "other", 0.125]]}

`native MPI ...` and `larklane MPI ...` run bench/pair with these arguments on two ranks, words NAME=VALUE going into its environment;
with `hosts` before that, the ranks are on two hosts (tests/hosts/hosts.py). Any other command runs as it is. `quantile` (default 0.5; or "mean"): which of its samples a run stands for. A claim compares a candidate with a
baseline, with a limit in the row's unit, or with a share of a baseline. A point may have `repetitions` of its own. `lenient`: contenders
that may hang, of which the runs count that end. `guest_s`: the row is measured in a guest with an RDMA device (tests/rdma/guest.py), all its points
in one boot of at most so many seconds, where each run of a contender answers them all: `{at}` in its command stands for the points, `--at bytes=8 --at ...`,
and it prints a line for each. From where it ends too soon it is run again.

A command is run once per turn and contender, from the repository's root, and prints as its last line {"samples": [numbers],
"wrong": 0}: one sample of the turn is their median (or `quantile`), smaller is better; `wrong` counts rounds with a wrong payload or completion. A
contender whose program is missing is left out and named. What was measured is kept in build/bars, so that a run that was
interrupted goes on where it stopped.
"""

import argparse
import copy
import datetime
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/mp"), str(ROOT / "tests/rdma")]
import guest  # noqa: E402
import launch  # noqa: E402

from larklane.numbers import stats  # noqa: E402

ROWS = ROOT / "bench/rows.json"
KEPT = ROOT / "build/bars"
AGAIN = 4
HOPELESS = 5
HANG = re.compile("no end|exit status 124")  # of run_once: by itself, or by launch.py
RECORDS = ROOT / "measurements"
ENVIRONMENT = re.compile(r"LARKLANE_\w+|OMP_(NUM_THREADS|WAIT_POLICY|PROC_BIND|PLACES)")


def output_of(*command):
    """Standard output of a command, stripped; empty if it fails."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


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
    """Allow-listed facts: nothing that names the host or its user."""
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
        "schema": 1,
        "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": output_of("git", "rev-parse", "--short=12", "HEAD"),
        "dirty": dirty,
        "machine": facts,
        "environment": {name: value for name, value in sorted(os.environ.items()) if ENVIRONMENT.fullmatch(name)},
        "publishable": not reasons,
        "why_not": reasons,
    }


def parse_output(text, quantile=0.5):
    """@return (sample, wrong) of a program's output. Raises ValueError if its last line is not what it should be."""
    lines = text.strip().splitlines()
    return parse_line(lines[-1] if lines else "{}", quantile)


def parse_line(line, quantile):
    result = json.loads(line)
    if not isinstance(result, dict) or not result.get("samples"):
        raise ValueError("the last line is not {\"samples\": [...], \"wrong\": n}")
    samples = result["samples"]
    return statistics.fmean(samples) if quantile == "mean" else stats.quantile(samples, quantile), int(result.get("wrong", 0))


def split(command):
    """@return (between hosts?, "native" or "larklane", the MPI, what follows) of a contender's command; no MPI: it is a command of its own"""
    words = command.split()
    across = words[0] == "hosts"
    how, mpi, *arguments = words[across:] + [""]
    return (across, how, mpi, arguments[:-1]) if how in ("native", "larklane") else (False, "", "", words)


def words_of(command, timeout_s):
    """A contender's command as a list of words, launcher included."""
    across, how, mpi, arguments = split(command)
    if not mpi:
        return command.split()
    variables = [word for word in arguments if re.match(r"[A-Z]\w*=", word)]
    arguments = [word for word in arguments if word not in variables]
    start = ["python3", "tests/mp/launch.py", "--mpi", mpi, "-n", "2", "--timeout", str(timeout_s), "--"]
    if across:
        start = ["python3", "tests/hosts/hosts.py", "--mpi", mpi, "--ranks-per-host", "1", "--timeout", str(timeout_s)]
    larklane = ["build/release/bin/larklane", "run"] if how == "larklane" else []
    return [*start, "env", *variables, *larklane, f"build/release/bench/{launch.EVERY[mpi].program_folder()}/pair", *arguments]


def run_words(words, timeout_s):
    """@return (what it printed, why it did not end well or None)"""
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s + 10, check=False)
    except subprocess.TimeoutExpired:
        return "", f"no end after {timeout_s} s"
    why = f"exit status {done.returncode}: " + done.stderr.strip()[-300:].replace(f"{ROOT}/", "")
    return done.stdout, why if done.returncode else None


def result_of(line, quantile):
    """@return (sample or None, what was wrong or None) of a line that a run has printed"""
    try:
        sample, wrong = parse_output(line, quantile)
    except (ValueError, TypeError) as error:
        return None, str(error)
    return (None, f"{wrong} wrong rounds") if wrong else (sample, None)


def run_once(command, parameters, timeout_s, quantile):
    """One run of a contender. @return (sample or None, what was wrong or None)"""
    text, why = run_words(words_of(command.format(**parameters), timeout_s), timeout_s)
    return (None, why) if why else result_of(text, quantile)


def at_word(parameters):
    return "--at " + ",".join(assignments({name: value for name, value in parameters.items() if name != "repetitions"}))


def run_together(command, points, timeout_s, quantile, runner=run_words):
    """One run of a contender for several points; one more for those behind each point at which it ends. @return what run_once does, for each"""
    found = []
    while len(found) < len(points):
        at = " ".join(at_word(parameters) for parameters in points[len(found) :])
        text, why = runner(words_of(command.format(at=at), timeout_s), timeout_s)
        lines = [line for line in text.splitlines() if line.startswith('{"samples"')][: len(points) - len(found)]
        found += [result_of(line, quantile) for line in lines]
        if len(found) < len(points):
            found.append((None, why or "it says nothing of this point"))
    return found


def note(row, point, name, sample, why):
    """A run of a contender at a point."""
    plain = name.removesuffix("'")
    if why and not (plain in row.get("lenient", ()) and HANG.match(why)):
        point["failed"][plain] = why
    point["series"][name].append(sample)
    if point["series"][name] == [None] * HOPELESS:
        point["failed"][plain] = why


def measure_together(row, points, contenders, runner=run_together, after_turn=lambda found: None):
    """All turns of these points, each run for all of them. A contender that fails once at a point is out there: its figure would not count. One of the row's
    `lenient` has null for a run that hangs, and is out if its first HOPELESS runs do, or all.

    @param after_turn  called with what it would return if that turn were the last one
    @return [{"parameters", "series": {contender: samples in turn order}, "failed": {contender: why}}]
    """
    found = [{"parameters": parameters, "series": {name: [] for name in stats.turns(contenders, 0)}, "failed": {}} for parameters in points]

    def is_due(point, turn, name):
        return turn < point["parameters"].get("repetitions", row["repetitions"]) and name.removesuffix("'") not in point["failed"]

    for turn in range(max(parameters.get("repetitions", row["repetitions"]) for parameters in points)):
        for name in stats.turns(contenders, turn):
            due = [point for point in found if is_due(point, turn, name)]
            command = row["contenders"][name.removesuffix("'")]
            options = (row.get("timeout_s", 120), row.get("quantile", 0.5))
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


def measure(row, parameters, contenders, runner=run_once):
    """The same of one point."""
    return measure_together(row, [parameters], contenders, lambda command, points, *options: [runner(command, points[0], *options)])[0]


INSIDE = "points of a row after a turn: "


def measure_in_guest(row, points, contenders):
    """measure_together() in one boot of a guest; if that is cut off, what its last whole turn has left. Raises RuntimeError"""
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
    """What is done in the guest."""
    measure_together(row, row["points"], list(row["contenders"]), after_turn=lambda found: print(INSIDE + json.dumps(found), flush=True))


def paired(first, second):
    """Of the turns in which both ended."""
    turns = [turn for turn in zip(first, second) if None not in turn]
    return [one for one, _ in turns], [other for _, other in turns]


def judge(row, point):
    """Verdicts of one point: [{"candidate", "baseline", ...}] in the order of the row's claims."""
    compares = any(isinstance(baseline, str) for _, baseline, *_ in row["claims"])  # a difference has no ratio: it may be 0
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
                result = stats.within([a / b for a, b in zip(mine, other)], *share)
            else:
                result = stats.compare(mine, other, noise=max(noise, default=0.0), margin=row["margin"])
        else:
            result = stats.within([sample for sample in point["series"][candidate] if sample is not None], baseline)
        verdicts.append({"candidate": candidate, "baseline": baseline, **result})
    return verdicts


def available(row):
    """Contenders whose program is here; the others are named."""
    found = {}
    if "guest_s" in row and (why := guest.problem()):
        print(f"  {row['row']}: left out, {why}")
        return []
    for name, command in row["contenders"].items():
        mpi = split(command)[2]
        if mpi in launch.EVERY and not launch.EVERY[mpi].installed():
            print(f"  {row['row']}: {name} left out, {launch.EVERY[mpi].title} is not installed")
            continue
        *_, pair = [word for word in words_of(command, 0) if word.startswith("build/")] or [command.split()[0]]
        if shutil.which(ROOT / pair if "/" in pair else pair):
            found[name] = command
        else:
            print(f"  {row['row']}: {name} left out, no {pair}")
    return list(found)


def measured_and_judged(row, parameters, contenders, runner=run_once):
    """@return a point of a record"""
    return judged(row, measure(row, parameters, contenders, runner))


def all_measured(row, points, contenders):
    """@return the points of a record, one after the other"""
    if points and "guest_s" in row:
        return (judged(row, point) for point in measure_in_guest(row, points, contenders))
    return (measured_and_judged(row, parameters, contenders) for parameters in points)


def judged(row, point):
    point["summary"] = {name: stats.summary([sample for sample in samples if sample is not None]) for name, samples in point["series"].items()}
    point["verdicts"] = judge(row, point)
    return point


def run_row(row, about):
    """Measure what is missing of a row. @return its record"""
    kept = KEPT / f"{row['row']}-{about['commit']}.json"
    record = json.loads(kept.read_text()) if kept.exists() else {**about, "row": row["row"], "unit": row["unit"], "points": []}
    done = [point["parameters"] for point in record["points"]]
    contenders = available(row)
    missing = [parameters for parameters in row["points"] if parameters not in done and contenders]
    for point in all_measured(row, missing, contenders):
        record["points"].append(point)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(record, indent=1))
        show(row, point)
    return record


def run_again(row, about, at=None):
    """Points of the row's newest record, anew with more repetitions: what they gave before is not used.
    @param at  which: "bytes=8 partitions=2", whatever was found there; None: at which a claim is too noisy
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
        (RECORDS / name).write_text(json.dumps(record, indent=1) + "\n")
    return record if chosen else None


def assignments(parameters):
    return [f"{name}={value}" for name, value in parameters.items()]


def newest(row):
    """@return (file name, record) of the last measurement of a row; (None, None): there is none"""
    records = [(path.name, json.loads(path.read_text())) for path in RECORDS.glob(f"{row['row']}-{'[0-9a-f]' * 12}.json")]
    return max(records, key=lambda named: named[1].get("measured", ""), default=(None, None))


def label(verdict):
    """Who is compared with what."""
    share = isinstance(verdict["baseline"], str) and "limit" in verdict
    return f"{verdict['candidate']} / {verdict['baseline']}" + (f" at most {verdict['limit']}" if share else "")


def show(row, point):
    """One line per point and claim."""
    parameters = " ".join(assignments(point["parameters"]))
    for name in () if row["claims"] else point["summary"]:
        print(f"  {row['row']} {parameters}: {name}: {point['summary'][name]['median']:.4g} {row['unit']}", flush=True)
    for verdict in point["verdicts"]:
        names = (verdict["candidate"], verdict["baseline"])
        medians = [point["summary"].get(name, {}).get("median") if isinstance(name, str) else name for name in names]
        figures = " ".join("-" if figure is None else f"{figure:.4g}" for figure in medians)
        pair = label(verdict)
        print(f"  {row['row']} {parameters}: {pair}: {figures} {row['unit']}: {verdict['verdict']}", flush=True)


def figure(value):
    """Three digits are more than the machine repeats."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{round(value, 2 - len(str(int(abs(value)))) + 1):,.0f}"


def table(record):
    """A record as a table: a line a point, medians (and the middle 80 percent) of all contenders, then the verdicts."""
    names = list(dict.fromkeys(name for point in record["points"] for name in (*point["summary"], *point["failed"]) if not name.endswith("'")))
    lines = [f"| point | {' | '.join(names)} | verdicts |", "|" + "---|" * (len(names) + 2)]
    for point in record["points"]:
        cells = []
        for name in names:
            found = point["summary"].get(name)
            failed = point["failed"].get(name, "-")[:40].replace("\n", " ").replace("|", "/")
            lost = point["series"].get(name, []).count(None)
            ended = f", {found['n']} of {found['n'] + lost} runs" if lost else ""
            cells.append(f"{figure(found['median'])} ({figure(found['p10'])} to {figure(found['p90'])}{ended})" if found else failed)
        verdicts = [f"{label(verdict)}: {verdict['verdict']}" for verdict in point["verdicts"]]
        parameters = ", ".join(f"{name} {value}" for name, value in point["parameters"].items())
        lines.append(f"| {parameters} | {' | '.join(cells)} | {'<br>'.join(verdicts)} |")
    return "\n".join(lines)


def summarise():
    """measurements/summary.md: the newest record of every row, in the order of the rows."""
    parts = ["# What `make bars` saw last", "Medians of the runs' medians, in brackets the middle 80 percent of the runs; smaller is better; how it is judged: README.md beside this page."]
    for row in json.loads(ROWS.read_text()):
        name, record = newest(row)
        if record:
            note = "" if record["publishable"] else f"; {', '.join(record['why_not'])}"
            parts += [f"## {row['row']} ({record['unit']})", row["what"], f"`{name}`; {record['machine']['cpu']}, {record['machine']['cores']} cores{note}", table(record)]
    (RECORDS / "summary.md").write_text("\n\n".join(parts) + "\n")


def chosen_rows(rows, text):
    """The row of that name, or else those whose name contains it."""
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
    for row in chosen_rows(json.loads(ROWS.read_text()), arguments.only):
        record = run_again(row, about, arguments.at) if arguments.again else run_row(row, about)
        if record and record["points"] and not arguments.again:
            path = RECORDS / f"{row['row']}-{about['commit']}.json"
            path.write_text(json.dumps(record, indent=1) + "\n")
            print(f"  written: {path.relative_to(ROOT)}")
        slower += sum(verdict["verdict"] in ("slower", "above") for point in (record["points"] if record else ()) for verdict in point["verdicts"])
    summarise()
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
