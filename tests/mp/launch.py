#!/usr/bin/env python3
"""Runs the processes of one MPI program with a hard time limit.

Each rank's output goes to a file of its own (so that nothing is lost when a rank dies) and is kept if the program fails. No process of
the run is ever left behind: they are found by a mark in their environment, never by name.

Exit status: that of the launcher; 124 after the time limit; 77 if this MPI is not installed.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPS = pathlib.Path(os.environ.get("LARKLANE_DEPS_DIR", ROOT / ".deps"))
SKIP, TIMED_OUT, FAILED = 77, 124, 1
REAPED_S = 8  # after which a launcher should have noticed the end of its programs
# The output of Open MPI 5's launcher when, now and then, it has run nothing.
NOT_STARTED = ("The PMIx server's listener thread failed to start", "A daemon failed to report back after being spawned")
LAUNCHES = 3  # until one is started
MARK = "CONFORMANCE_LAUNCH_ID"

OPENMPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
OPENMPI_FLAGS = ["--oversubscribe", "--bind-to", "none"]
MPICH_ENVIRONMENT = {"HYDRA_LAUNCHER": "fork"}


@dataclasses.dataclass(frozen=True)
class Mpi:
    """One MPI: how to start its programs.

    `wrapper` is its C compiler, `version_command` prints its version. `runs_programs_of` is another MPI with the same ABI that they
    are built with.
    """

    name: str
    title: str
    launcher: pathlib.Path
    wrapper: pathlib.Path
    flags: tuple
    environment: dict
    runs_programs_of: str = ""

    def program_folder(self) -> str:
        """Name of the folder in which a build keeps the programs for it."""
        return self.runs_programs_of or self.name

    def installed(self) -> bool:
        return self.launcher.exists() and self.wrapper.exists()


def _mpich(name, title, launcher, wrapper, **environment):
    return Mpi(name, title, launcher, wrapper, (), {**MPICH_ENVIRONMENT, **environment})


def _openmpi(name, title, launcher, wrapper, flags=()):
    return Mpi(name, title, launcher, wrapper, tuple(OPENMPI_FLAGS) + flags, OPENMPI_ENVIRONMENT)


_BIN = pathlib.Path("/usr/bin")
MPIS = {
    mpi.name: mpi
    for mpi in (
        _mpich("mpich5", "MPICH 5.0.2", DEPS / "mpich/bin/mpiexec", DEPS / "mpich/bin/mpicc"),
        _mpich("mpich5_abi", "MPICH 5.0.2, standard ABI", DEPS / "mpich/bin/mpiexec",
               DEPS / "mpich/bin/mpicc_abi"),
        _openmpi("openmpi5", "Open MPI 5.0.11", DEPS / "openmpi/bin/mpiexec",
                 DEPS / "openmpi/bin/mpicc"),
        _mpich("mpich4", "MPICH 4.0.2 (Debian)", _BIN / "mpiexec.mpich", _BIN / "mpicc.mpich"),
        _openmpi("openmpi4", "Open MPI 4.1.4 (Debian)", _BIN / "mpiexec.openmpi",
                 _BIN / "mpicc.openmpi"),
    )
}
# Measured against, where it is installed (python3 -m venv .deps/intel; .deps/intel/bin/pip install impi-rt); runs
# programs built with MPICH, whose ABI it has.
_INTEL = DEPS / "intel"
_INTEL_FABRICS = _INTEL / "opt/mpi/libfabric/lib"
PEERS = {
    "intel": dataclasses.replace(
        _mpich("intel", "Intel MPI", _INTEL / "bin/mpiexec.hydra", DEPS / "mpich/bin/mpicc",
               I_MPI_ROOT=str(_INTEL), I_MPI_HYDRA_BOOTSTRAP="fork", I_MPI_PIN="0",
               FI_PROVIDER_PATH=str(_INTEL_FABRICS / "prov"),
               LD_LIBRARY_PATH=f"{_INTEL / 'lib'}:{_INTEL_FABRICS}"),
        runs_programs_of="mpich5"),
}
EVERY = {**MPIS, **PEERS}


@dataclasses.dataclass
class Outcome:
    """The result of a launch: `status` as the shell would see it, the ranks' `output` in rank order and the launcher's, the ranks' alone, the
    folder of kept logs.
    """

    status: int
    output: str
    logs: str | None
    seconds: float
    by_rank: dict[int, str] = dataclasses.field(default_factory=dict)


Test = tuple[str, bool, Outcome | None]  # title, passed, launch


def run_tests(tests: Iterable[Test], shows_all: bool = False) -> int:
    """Prints each test when it ends; of a failed one the whole output, of others its end if `shows_all`.

    @return exit status; SKIP: there was no test
    """
    count = failed = 0
    for title, is_good, outcome in tests:
        count, failed = count + 1, failed + (not is_good)
        print(f"{'ok' if is_good else 'not ok'} {title}{f' ({outcome.seconds:.1f} s)' if outcome else ''}", flush=True)
        if outcome and not is_good:
            print(f"status {outcome.status}, logs {outcome.logs}\n{outcome.output}", flush=True)
        elif outcome and shows_all:
            print("  " + outcome.output[-2000:].strip().replace("\n", "\n  "))
    print(f"{count - failed} passed, {failed} failed")
    return SKIP if count == 0 else int(failed > 0)


def run_cases(description: str, cases, listed, suite) -> int:
    """The command line of a test with cases: runs a case of an MPI, or lists the cases of all.
    @param cases  name -> function of a suite  @param listed  MPI -> names of its cases  @param suite  called with the build folder and the MPI"""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("mpi", nargs="?", choices=MPIS)
    parser.add_argument("case", nargs="?", choices=cases)
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{mpi} {case}" for mpi, names in listed.items() for case in names))
        return 0
    if not MPIS[arguments.mpi].installed():
        print(f"{MPIS[arguments.mpi].title} is not installed")
        return SKIP
    cases[arguments.case](suite(arguments.build, arguments.mpi))
    return 0


def _marked(mark: str) -> list[int]:
    """Processes of this launch, wherever they have gone."""
    needle = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as environment:
                if needle in environment.read().split(b"\0"):
                    found.append(int(entry))
        except OSError:
            continue
    return found


def _end(process: subprocess.Popen, mark: str) -> None:
    """Ends all processes of this launch: asks first, so that the launcher removes its own files."""
    for wanted in (signal.SIGTERM, signal.SIGKILL):
        left = _marked(mark)
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, wanted)
        deadline = time.monotonic() + 2
        while _marked(mark) and time.monotonic() < deadline:
            process.poll()
            time.sleep(0.05)
    process.wait()


def _are_dead(pids: set[int]) -> bool:
    """These processes have all ended, and their parents have not collected their status."""
    return bool(pids) and all(_stat_of(pid)[:1] == ["Z"] for pid in pids)


def _stat_of(pid: int) -> list[str]:
    """State, parent and the further fields; empty: no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _wait(process: subprocess.Popen, timeout_s: float) -> int:
    """@return its status; FAILED if it waits on though all that it had started have ended: Open MPI 5's launcher may, if they did so with an error"""
    deadline = time.monotonic() + timeout_s
    dead_since = None
    while (left := deadline - time.monotonic()) > 0:
        try:
            return process.wait(timeout=min(left, 2))
        except subprocess.TimeoutExpired:
            children = {int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _stat_of(int(entry))[1:2] == [str(process.pid)]}
            dead_since = (dead_since or time.monotonic()) if _are_dead(children) else None
            if dead_since and time.monotonic() - dead_since > REAPED_S:
                return FAILED
    return TIMED_OUT


def launch(mpi: Mpi, ranks: int, command: list[str], timeout_s: float, environment=None,
           launcher_flags=(), keep_logs_in=None, started: Callable[[str], object] | None = None) -> Outcome:
    """Runs `command` on `ranks` processes of `mpi` for at most `timeout_s` seconds.

    `environment` is added to ours; None as a value removes a variable. Logs are kept under `keep_logs_in` if the launch fails.
    `started` gets the folder of the logs while it runs: rank0.log and so on.
    """
    for _ in range(LAUNCHES):
        outcome = _launch_once(mpi, ranks, command, timeout_s, environment, launcher_flags, keep_logs_in, started)
        if outcome.by_rank or outcome.status == TIMED_OUT or not any(text in outcome.output for text in NOT_STARTED):
            break
    return outcome


def _launch_once(mpi, ranks, command, timeout_s, environment, launcher_flags, keep_logs_in, started) -> Outcome:
    mark = uuid.uuid4().hex
    logs = tempfile.mkdtemp(prefix="launch-")
    env = {**os.environ, "OMP_WAIT_POLICY": "passive", **mpi.environment, MARK: mark}
    for key, value in (environment or {}).items():
        if value is None:
            env.pop(key, None)
        else:
            env[key] = value
    redirect = f'exec "$@" >"{logs}/rank${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}.log" 2>&1'
    argv = [str(mpi.launcher), *mpi.flags, *launcher_flags, "-n", str(ranks), "sh", "-c", redirect,
            "sh", *command]
    begin = time.monotonic()
    with open(f"{logs}/launcher.log", "wb") as launcher_log:
        process = subprocess.Popen(
            ["sh", "-c", 'ulimit -c 0; exec "$@"', "sh", *argv], env=env, stdout=launcher_log,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            if started:
                started(logs)
            status = _wait(process, timeout_s)
        finally:
            _end(process, mark)
    seconds = time.monotonic() - begin
    by_rank = {int(f.stem[len("rank"):]): f.read_text(errors="replace") for f in pathlib.Path(logs).glob("rank[0-9]*.log")}
    output = "".join(by_rank[rank] for rank in sorted(by_rank)) + pathlib.Path(logs, "launcher.log").read_text(errors="replace")
    kept = None
    if status not in (0, SKIP) and keep_logs_in is not None:
        kept = os.path.join(keep_logs_in, os.path.basename(logs))
        shutil.move(logs, kept)
    else:
        shutil.rmtree(logs, ignore_errors=True)
    return Outcome(status, output, kept, seconds, by_rank)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", required=True, choices=EVERY)
    parser.add_argument("-n", type=int, required=True, metavar="RANKS")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--logs", default=str(ROOT / "results"), metavar="DIR")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    mpi = EVERY[args.mpi]
    if not mpi.installed():
        print(f"launch: {mpi.title} is not installed", file=sys.stderr)
        return SKIP
    pathlib.Path(args.logs).mkdir(parents=True, exist_ok=True)
    outcome = launch(mpi, args.n, command, args.timeout, dict(e.split("=", 1) for e in args.env), keep_logs_in=args.logs)
    sys.stdout.write(outcome.output)
    if outcome.logs:
        print(f"launch: status {outcome.status}, logs kept in {outcome.logs}", file=sys.stderr)
    return outcome.status


if __name__ == "__main__":
    sys.exit(main())
