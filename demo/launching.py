"""Launches of the demo's programs, each within a time limit."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

ENVIRONMENT = {"HYDRA_LAUNCHER": "fork", "OMP_WAIT_POLICY": "passive", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PRTE_ALLOW_RUN_AS_ROOT": "1",
               "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
LAUNCH = {"openmpi": ["--oversubscribe", "--bind-to", "none"]}


def launch_words(mpi: dict, ranks: int) -> list[str]:
    """The launcher's part of a command line."""
    return [mpi["launcher"], *LAUNCH.get(mpi["family"], []), "-n", str(ranks)]


def launch(command: list[str], limit_s: float) -> tuple[str, int] | None:
    """Output and exit status. None: the run was ended after `limit_s`."""
    environment = {**os.environ, **ENVIRONMENT}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=limit_s)
            return output, process.returncode
        except subprocess.TimeoutExpired:
            for number in (signal.SIGTERM, signal.SIGKILL):  # the launcher ends its ranks when told to
                os.killpg(process.pid, number)
                try:
                    process.communicate(timeout=2)
                    break
                except subprocess.TimeoutExpired:
                    pass
    return None


def hang_text(runs: int, limit_s: float) -> str:
    """A run that was ended. `runs`: of its case, up to this one."""
    return f"{'hangs' if runs == 1 else f'1 of {runs} runs hung'} (ended after {limit_s:.0f} s)"


def ending(output: str, status: int) -> str:
    """A run without a result."""
    last = output.strip().splitlines()[-1:] or ["no output"]
    return f"exit status {status}: {last[0][:60]}"


def short_version(library: str) -> str:
    """ "Open MPI v5.0.11, package: ..." -> "Open MPI 5.0.11"."""
    match = re.match(r"(Open MPI|MPICH|Intel\(R\) MPI)\D*?v?(\d[\w.]*)", library)
    return f"{match[1]} {match[2]}" if match else library[:30]


def progress(text: str, end: str = "\n") -> None:
    """A line on the terminal, at once."""
    if end == "\r" and not sys.stdout.isatty():
        return
    print(f"{text:78}", end=end, flush=True)


class Repeated(Protocol):
    """A case that is run several times."""

    failure: str  # of the last run: none follows
    runs: int


Case = TypeVar("Case", bound=Repeated)


def run_in_turns(cases: list[Case], repetitions: int, limit_s: float, label: Callable[[Case], str],
                 command: Callable[[Case, int], list[str]], record: Callable[[Case, int, str, int], None]) -> None:
    """All cases, repetition by repetition, so that the ways alternate; one line of progress each.

    `command` and `record` get the case and the number of the repetition, `record` also the output and the exit status."""
    total, number = repetitions * len(cases), 0
    for repetition in range(repetitions):
        for case in cases:
            number += 1
            head = f"[{number:2}/{total}] {label(case)}"
            if case.failure:
                progress(f"{head} left out: {case.failure}")
                continue
            progress(f"{head} ...", end="\r")
            begin = time.monotonic()
            case.runs += 1
            ended = launch(command(case, repetition), limit_s)
            if ended is None:
                case.failure = hang_text(case.runs, limit_s)
            else:
                record(case, repetition, *ended)
            progress(f"{head} {time.monotonic() - begin:4.1f} s  {case.failure or 'right'}")
