"""Launches of the demo's programs, each within a time limit."""

import os
import re
import signal
import subprocess
import sys

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
