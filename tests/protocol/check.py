#!/usr/bin/env python3
"""Check the protocol models with SPIN: every model is free of errors, every mutant is caught.

The opening comment of a model file lists its checks:

    @cc FLAGS                             added when its verifier is compiled
    @model NAME [-DX=Y ...]               must have no error
    @soak NAME [-DX=Y ...]                the same, with --soak: an instance that takes minutes
    @mutant N [-DX=Y ...] rule K: TEXT => ERROR    compiled with -DMUTATE=N; must end in an error that contains ERROR
                                          (`deadlock`: a process waits for ever; else a piece of an assertion)
    @unreached PROCESS STATEMENT          statement (or its beginning) that a correct model never executes

A model also fails if its search was cut short (depth, memory, time) or if a statement was never executed that is not listed:
a receiver that never gets anywhere would prove anything.

Exit status: 0 all as expected, 1 not, 77 no SPIN or no C compiler.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

DEPTH_MAX = 200_000  # steps; the models need a few hundred
MEMORY_MIB = 1900  # per verifier, two at a time
SKIPPED = 77


@dataclasses.dataclass
class Job:
    """One verifier: a model, or a mutant of it."""

    path: pathlib.Path
    name: str
    defines: list[str]
    compile_flags: list[str]
    rule: str = ""  # of a mutant: the rule that it breaks
    error: str = ""  # of a mutant: piece of the error that it must end in
    unreached: tuple[tuple[str, str], ...] = ()

    @property
    def is_mutant(self) -> bool:
        return bool(self.error)


@dataclasses.dataclass
class Outcome:
    """Result of a verifier. `problem` is empty if the result was expected."""

    states: int = 0
    seconds: float = 0.0
    verdict: str = ""
    problem: str = ""


def squeeze(text: str) -> str:
    """Without white space: pan prints expressions in its own spacing."""
    return re.sub(r"\s", "", text)


def jobs_of(path: pathlib.Path, soak: bool = False) -> list[Job]:
    """The jobs that a model file asks for, or its long instances. Raises ValueError on a line that can't be understood."""
    models, long_models, mutants, unreached, compile_flags = [], [], [], [], []
    for line in path.read_text().partition("*/")[0].splitlines():
        words = line.lstrip(" *").split()
        if not words or not words[0].startswith("@"):
            continue
        kind, rest = words[0], words[1:]
        if kind == "@cc":
            compile_flags += rest
        elif kind in ("@model", "@soak") and rest and all(w.startswith("-D") for w in rest[1:]):
            (models if kind == "@model" else long_models).append((rest[0], rest[1:]))
        elif kind == "@mutant" and (found := re.fullmatch(r"(\d+) ((?:-D\S+ )*)(rule .+?) => (.+)", " ".join(rest))):
            number, defines, rule, error = found.groups()
            mutants.append((number, [f"-DMUTATE={number}", *defines.split()], rule, error))
        elif kind == "@unreached" and len(rest) > 1:
            unreached.append((rest[0], squeeze("".join(rest[1:]))))
        else:
            raise ValueError(f"{path.name}: {line.strip()}")
    if not models or not mutants:
        raise ValueError(f"{path.name}: no @model or no @mutant")
    if soak:
        models, mutants = long_models, []
    return [Job(path, name, defines, compile_flags, unreached=tuple(unreached)) for name, defines in models] + [
        Job(path, f"mutant {number}", defines, compile_flags, rule=rule, error=error)
        for number, defines, rule, error in mutants
    ]


def never_executed(report: str, allowed: tuple[tuple[str, str], ...]) -> list[str]:
    """Statements of pan's report that were never executed and may not be."""
    found, process = [], ""
    for line in report.splitlines():
        if heading := re.match(r"unreached in (?:proctype |claim )?(\w+)", line):
            process = heading[1]
        elif statement := re.match(r'\t\S+:(\d+), state \d+, "(.*)"$', line):
            text = squeeze(statement[2])
            if not any(process == p and text.startswith(t) for p, t in allowed):
                found.append(f"line {statement[1]} of {process}: {statement[2]}")
    return found


def judge(job: Job, report: str) -> Outcome:
    """Compare pan's report with what is expected of the job."""
    outcome = Outcome()
    if states := re.search(r"(\d+) states, stored", report):
        outcome.states = int(states[1])
    errors = re.search(r"errors: (\d+)", report)
    first_error = re.search(r"^pan:1: (.*?)(?: \(at depth \d+\))?$", report, re.M)
    if not errors:
        outcome.problem = "no result: " + (report.strip().splitlines() or ["?"])[-1]
    elif re.search(r"max search depth too small|out of memory|reached -DMEMLIM|pan: .*truncated", report):
        outcome.problem = "search cut short"
    elif first_error:
        outcome.verdict = first_error[1].replace("invalid end state", "deadlock")
        if not job.is_mutant:
            outcome.problem = outcome.verdict
        elif squeeze(job.error) not in squeeze(outcome.verdict):
            outcome.problem = f"expected {job.error}, found {outcome.verdict}"
    elif int(errors[1]) or "Search not completed" in report:
        outcome.problem = "search not completed"
    elif job.is_mutant:
        outcome.problem = "not caught"
    elif "unreached in" not in report:
        outcome.problem = "pan does not say what was reached"
    elif missing := never_executed(report, job.unreached):
        outcome.problem = "never executed: " + "; ".join(missing)
    else:
        outcome.verdict = "no error"
    return outcome


def run(job: Job, keep: pathlib.Path | None, timeout_s: float) -> Outcome:
    """Generate, compile and run one verifier in a folder of its own; the folder stays if `keep` is given."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="larklane-protocol-") as folder:
        if keep:
            folder = str(keep / f"{job.path.stem}-{job.name.replace(' ', '-')}")
            os.makedirs(folder, exist_ok=True)
        shutil.copy(job.path, folder)
        # Compiling well takes longer than it saves: most mutants are caught after a few states.
        compile_line = ["cc", "-w", "-O0" if job.is_mutant else "-O1", "-DSAFETY", f"-DMEMLIM={MEMORY_MIB}"]
        report = ""
        for command in (
            ["spin", "-a", *job.defines, job.path.name],
            [*compile_line, *job.compile_flags, "-o", "pan", "pan.c"],
            ["./pan", f"-m{DEPTH_MAX}"],
        ):
            try:
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s)
            except subprocess.TimeoutExpired:
                return Outcome(seconds=time.monotonic() - began, problem=f"{shlex.join(command)}: no end in {timeout_s:.0f} s")
            report = done.stdout + done.stderr
            if done.returncode and command[0] != "./pan":
                return Outcome(problem=f"{shlex.join(command)}: {report.strip()}")
    outcome = judge(job, report)
    outcome.seconds = time.monotonic() - began
    return outcome


def table(jobs: list[Job]) -> str:
    """The mutants as a Markdown table, as docs/design/protocols/models.md has it."""
    rows = ["| model | mutant | breaks | noticed by |", "|---|---|---|---|"]
    for job in jobs:
        if job.is_mutant:
            noticed = "a wait without end" if job.error == "deadlock" else f"assertion on `{job.error}`"
            rows.append(f"| {job.path.stem} | {job.name.split()[1]} | {job.rule} | {noticed} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", type=pathlib.Path, help="model files; default: all beside this script")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="verifiers at a time (default 2)")
    parser.add_argument("--timeout", type=float, default=1100, help="seconds for one step of one verifier (default 1100)")
    parser.add_argument("--soak", action="store_true", help="check the long instances (@soak) instead")
    parser.add_argument("--table", action="store_true", help="print the table of mutants of docs/design/protocols/models.md, and nothing else")
    parser.add_argument("--keep", type=pathlib.Path, help="keep verifiers and trails (spin -t -p FILE) in this folder")
    args = parser.parse_args()
    here = pathlib.Path(__file__).resolve().parent
    jobs = [job for path in args.models or sorted(here.glob("*.pml")) for job in jobs_of(path, args.soak)]
    if args.table:
        print(table(jobs), end="")
        return 0
    for tool in ("spin", "cc"):
        if not shutil.which(tool):
            print(f"skipped: no {tool}")
            return SKIPPED
    passed = 0
    print(f"{'model':<18}{'what':<20}{'states':>10}{'s':>7}  verdict")
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda job: run(job, args.keep, args.timeout), jobs)
        for job, outcome in zip(jobs, results):
            good = not outcome.problem
            passed += good
            verdict = f"{'caught, ' + job.rule if job.is_mutant else ''} {outcome.verdict if not job.is_mutant else ''}".strip()
            print(
                f"{job.path.stem:<18}{job.name:<20}{outcome.states:>10}{outcome.seconds:>7.1f}  "
                + (verdict if good else f"FAILED {job.rule} {outcome.problem}"),
                flush=True,
            )
    page = here.parents[1] / "docs" / "design" / "protocols" / "models.md"
    if not args.models and not args.soak and table(jobs) not in page.read_text():
        print(f"FAILED {page}: the table of mutants is not that of check.py --table")
        return 1
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.0f} s of CPU, at most {used.ru_maxrss / 1024:.0f} MiB each")
    print(f"{passed} passed, {len(jobs) - passed} failed")
    return 0 if passed == len(jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
