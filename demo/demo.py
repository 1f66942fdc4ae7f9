#!/usr/bin/env python3
"""What Larklane is for, shown on this machine: demo.py BUILD [--results DIR]

Runs heat2d and sweep3d (plain MPI programs, see examples/) with one late thread on each MPI that the build found: with
one send after the join of the threads, with partitions natively, and the same under `larklane run`, alternating; and
exchange, whose threads send plain messages, natively and with `p2p=on`. Prints tables and writes the pictures, the JSON
behind them and the traces to DIR. Needs nothing but Python for the tables; the pictures need matplotlib.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import arrivals
import messages
from launching import ending, launch_words, run_in_turns, short_version

SOURCE = Path(__file__).resolve().parent.parent
RANKS, THREADS, PARTITIONS, LATE_MS = 2, 4, 4, 10
REPETITIONS = 2
SKIP_ROUNDS = 2  # warm-up, not in the medians
LIMIT_S, BUSY_LIMIT_S = 5, 10  # a healthy run takes one or two seconds, or several beside other programs
WHEN = """
When does a step get shorter? By what is exposed less, and by the work that a receiver does on partitions that are
there early, while it would wait otherwise. The wait for the late thread's own partition stays: where a step ends
with it, as here, most of the step stays."""
NAMES = {"joined": "one send", "native": "native", "larklane": "under Larklane"}


@dataclass(frozen=True)
class Program:
    """A program, and the channel from rank 0, which has the late thread, to rank 1."""

    name: str
    options: tuple[str, ...]
    channel: str
    step: str
    joined: str  # --mode of one send after the join
    what: str


PROGRAMS = (
    Program("heat2d", ("--n", "65536", "--rows", "8", "--steps", "25"), "down", "step",
            "isend", "halo row of a heat equation solver"),
    Program("sweep3d", ("--nx", "8", "--ny", "128", "--nz", "32", "--block", "8", "--angles", "32", "--sweeps", "1"),
            "east", "block", "funneled", "outflow face of a transport sweep"),
)


@dataclass
class Case:
    """One program on one MPI, in one of the ways of NAMES, and what its runs gave."""

    program: Program
    mpi: dict
    how: str
    step_ms: list[float] = field(default_factory=list)
    rounds: list[arrivals.Round] = field(default_factory=list)
    checksums: set[str] = field(default_factory=set)
    failure: str = ""  # of the last run: none follows
    runs: int = 0
    version: str = ""

    def command(self, build: Path, trace: Path) -> list[str]:
        """The command line of one run."""
        wrap = [str(build / "bin" / "larklane"), "run"] if self.how == "larklane" else []
        program = str(build / "examples" / self.mpi["name"] / self.program.name)
        mode = ["--mode", self.program.joined] if self.how == "joined" else []
        return [*launch_words(self.mpi, RANKS), *wrap, program, *self.program.options, *mode, "--threads", str(THREADS), "--partitions",
                str(PARTITIONS), "--late-ms", str(LATE_MS), "--trace", str(trace)]

    def record(self, output: str, status: int, trace: Path) -> None:
        """Takes one run's result."""
        line = re.search(r": (PASSED|FAILED): ([0-9.]+) ms per .* wrong data in (\d+) of (\d+) rounds, "
                         r"checksum (\w+)", output)
        if not line:
            self.failure = ending(output, status)
            return
        if line[1] == "FAILED":
            self.failure = f"wrong data in {line[3]} of {line[4]} rounds"
        self.step_ms.append(float(line[2]))
        self.checksums.add(line[5])
        files = [Path(f"{trace}.{rank}") for rank in range(RANKS)]
        if not all(file.exists() for file in files):
            return
        (description, sent), (_, received) = map(arrivals.load, files)
        self.version = short_version(description["mpi"])
        self.rounds += arrivals.rounds(sent, received, self.program.channel, 0, 1, SKIP_ROUNDS)


def run_all(cases: list[Case], build: Path, results: Path, limit_s: float) -> None:
    traces = results / "traces"
    shutil.rmtree(traces, ignore_errors=True)
    traces.mkdir(parents=True)

    def trace_of(case: Case, repetition: int) -> Path:
        return traces / f"{case.program.name}-{case.mpi['name']}-{case.how}-{repetition}.jsonl"

    run_in_turns(
        cases, REPETITIONS, limit_s, lambda case: f"{case.program.name:8} {case.mpi['name']:15} {NAMES[case.how]:15}",
        lambda case, repetition: case.command(build, trace_of(case, repetition)),
        lambda case, repetition, output, status: case.record(output, status, trace_of(case, repetition)))


def late_partitions() -> list[int]:
    """Those of the last thread."""
    return list(range(PARTITIONS * (THREADS - 1) // THREADS, PARTITIONS))


def result_of(case: Case, cases: list[Case]) -> str:
    """Compares the checksums of the results with those of all runs of the same program that verified their data."""
    if not case.checksums:
        return "-"
    right = [other.checksums for other in cases if other.program is case.program and not other.failure]
    return "right, equal bits" if len(case.checksums.union(*right)) == 1 else "DIFFERS"


def listed(times: list[tuple[float, ...]]) -> str:
    """The median of each partition."""
    return " ".join(f"{time_ms:4.1f}" for time_ms in arrivals.typical(times))


def table(program: Program, cases: list[Case]) -> None:
    """The result as text."""
    late = len(late_partitions())
    print(f"\n{program.name}: {program.what}, {PARTITIONS} partitions, {late} of them {LATE_MS} ms late. Medians, ms;")
    print("ready, arrived: one number per partition, counted from the first that was ready in the round;")
    print("early: arrived before the last was ready; exposed: last arrived - last ready.")
    print("joined: one send after all threads have joined; native: partitions, by the MPI; larklane: the same under Larklane.")
    width = 5 * PARTITIONS - 1
    row = f"  {{:15}} {{:8}} {{:>9}}  {{:>{width}}}  {{:>{width}}}  {{:>5}} {{:>8}}  {{}}"
    print(row.format("MPI", "", f"per {program.step}", "ready", "arrived", "early", "exposed", "result"))
    for case in cases:
        if case.program is not program:
            continue
        cells = ["-"] * 5
        if case.rounds:
            cells = [f"{median(case.step_ms):.2f}", listed([r.ready_ms for r in case.rounds]),
                     listed([r.arrived_ms for r in case.rounds]), f"{median(r.early for r in case.rounds):.0f}/{PARTITIONS}",
                     f"{median(r.exposed_ms for r in case.rounds):.3f}"]
        print(row.format(case.version, case.how, *cells, case.failure or result_of(case, cases)))


def machine() -> str:
    """Processor and kernel, for the footer."""
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}"


def load() -> str:
    """A remark if others use this machine too, as then nobody's times can be trusted."""
    busy = os.getloadavg()[0]
    return f"other programs ran on this machine (load {busy:.0f})" if busy > 1.5 * len(os.sched_getaffinity(0)) else ""


def commit() -> str:
    """The commit of the source, "+" if it has changes, or nothing outside a checkout."""
    shown = subprocess.run(["git", "-C", str(SOURCE), "describe", "--always", "--dirty=+"], capture_output=True,
                           text=True, check=False)
    return shown.stdout.strip() if shown.returncode == 0 else ""


def write_json(program: Program, cases: list[Case], remark: str, results: Path) -> Path:
    """Everything that the picture shows, with the raw samples."""
    runs = []
    for case in cases:
        if case.program is program:
            runs.append({"mpi": case.version, "how": case.how, "data": case.failure or "right",
                         "step_ms": case.step_ms, "checksums": sorted(case.checksums), "result": result_of(case, cases),
                         "early": median(r.early for r in case.rounds) if case.rounds else None,
                         "exposed_ms": median(r.exposed_ms for r in case.rounds) if case.rounds else None,
                         "ready_ms": [r.ready_ms for r in case.rounds],
                         "arrived_ms": [r.arrived_ms for r in case.rounds]})
    data = {"schema": 1, "program": program.name, "options": program.options, "ranks": RANKS, "threads": THREADS,
            "partitions": PARTITIONS, "late_ms": LATE_MS, "late": late_partitions(), "machine": machine(),
            "commit": commit(), "remark": remark, "repetitions": REPETITIONS,
            "what": f"{program.name}: the {program.what} from rank 0 to rank 1, {PARTITIONS} partitions; rank 0's last "
                    f"thread sleeps {LATE_MS} ms in every round. Medians over rounds.",
            "footer": [f"{machine()}; {RANKS} ranks x {THREADS} threads on one host; Larklane {commit()}; "
                       f"{REPETITIONS} runs of each, alternating.",
                       "Both sides' times were written by the program itself, with MPI and CLOCK_MONOTONIC alone."
                       + (f" Remark: {remark}." if remark else "")],
            "runs": runs}
    path = results / f"arrivals-{program.name}.json"
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


def draw(files: list[Path]) -> None:
    """The pictures, by a Python that has matplotlib, if there is one."""
    for python in (SOURCE / ".deps" / "python" / "bin" / "python", Path(sys.executable)):
        probe = [str(python), "-c", "import matplotlib"]
        if python.exists() and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            subprocess.run([str(python), str(SOURCE / "demo" / "picture.py"), *map(str, files)], check=True)
            print("\nPictures: " + ", ".join(str(path.with_suffix(".png")) for path in files))
            print("(SVG and JSON with the same names; the programs' own traces in traces/)")
            return
    print("\nNo pictures: no Python with matplotlib (`make setup` installs one, or pip install matplotlib).")


def write_messages(cases: list[messages.Case], remark: str, results: Path) -> Path:
    """The same of plain messages."""
    data = {**messages.record_of(cases), "machine": machine(), "commit": commit(), "remark": remark,
            "footer": [f"{machine()}; {messages.RANKS} ranks x {messages.THREADS} threads on one host; Larklane {commit()}; "
                       f"medians of {messages.REPETITIONS} runs, alternating; whiskers: least and most.",
                       ". ".join(filter(None, [messages.crowding_text(), "Each word of each message was checked."])) + (f" Remark: {remark}." if remark else "")]}
    path = results / "messages.json"
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


def cases_of(programs: list[Program], mpis: list[dict], hows: list[str]) -> list[Case]:
    """All cases. Partitions natively are left out on an MPI that lacks them."""
    cases = []
    for program in programs:
        for mpi in mpis:
            for how in hows:
                case = Case(program, mpi, how)
                if how == "native" and not mpi["partitioned"]:
                    case.failure = "this MPI has no partitioned calls"
                cases.append(case)
    return cases


def main() -> int:
    """Returns 1 if a run under Larklane failed, else 0: what native MPIs do wrong is a result, not an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="build folder, e.g. build/release")
    parser.add_argument("--only", choices=[program.name for program in PROGRAMS] + [messages.PROGRAM], help="this program alone")
    parser.add_argument("--results", type=Path, default=SOURCE / "results" / "demo", help="where pictures go")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    mpis = json.loads((build / "examples" / "mpis.json").read_text(encoding="utf-8"))
    ways = ["native"]
    if (build / "bin" / "larklane").exists():
        ways.append("larklane")
    else:
        print(f"{build}/bin/larklane is missing: native runs only")
    programs = [program for program in PROGRAMS if arguments.only in (None, program.name)]
    cases = cases_of(programs, mpis, ["joined", *ways])
    plain = messages.cases_of(mpis, ways) if arguments.only in (None, messages.PROGRAM) else []
    if not mpis:
        print("No MPI was found when the examples were built: `make setup` installs two.")
        return 1
    remark = load()
    limit_s = BUSY_LIMIT_S if remark else LIMIT_S
    run_all(cases, build, arguments.results, limit_s)
    messages.run_all(plain, build, limit_s)
    versions = {case.mpi["name"]: case.version for case in cases if case.version}
    for case in cases:  # those that never ended didn't say
        case.version = versions.get(case.mpi["name"], case.mpi["name"])
    if remark:
        print(f"\nRemark: {remark}; times are blurred, order and results are not.")
    for program in programs:
        table(program, cases)
    if programs:
        print(WHEN)
    if plain:
        messages.table(plain)
    drawn = [write_json(program, cases, remark, arguments.results) for program in programs]
    draw(drawn + ([write_messages(plain, remark, arguments.results)] if plain else []))
    return int(any(case.how == "larklane" and case.failure for case in (*cases, *plain)))


if __name__ == "__main__":
    sys.exit(main())
