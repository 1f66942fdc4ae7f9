"""One unmodified MPI + threads program with plain messages, before and after: natively, and under `larklane run --option p2p=on`."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from launching import ending, launch_words, run_in_turns, short_version

PROGRAM = "exchange"
RANKS, THREADS, ROUNDS = 2, 2, 500
REPETITIONS = 3
COMMUNICATORS = {"one": "one for all", "each": "one each"}
NAMES = {"native": "native", "larklane": "p2p=on"}
CARRIED = "point-to-point messages are carried by Larklane"
LEFT = re.compile(r"point-to-point messages are (left to the MPI: .*)")
LINE = re.compile(r"exchange: (PASSED|FAILED): ([0-9.]+) ns per message of (\d+) bytes, .* wrong data in (\d+) messages, over (.*)")
SUMMARY = re.compile(r"^larklane: rank 0: .*$", re.MULTILINE)


@dataclass
class Case:
    """The program on one MPI, its threads on one communicator or on one each, in one of the ways of NAMES; and the results of its runs."""

    mpi: dict
    communicators: str
    how: str
    ns: list[float] = field(default_factory=list)  # a message
    failure: str = ""  # of the last run: none follows
    left: str = ""  # the reason why Larklane left the messages to the MPI
    summary: list[str] = field(default_factory=list)  # lines of rank 0
    runs: int = 0
    version: str = ""
    bytes: int = 0

    def command(self, build: Path) -> list[str]:
        """The command line of one run."""
        wrap = [str(build / "bin" / "larklane"), "run", "--summary", "--option", "p2p=on"] if self.how == "larklane" else []
        return [*launch_words(self.mpi, RANKS), *wrap, str(build / "examples" / self.mpi["name"] / PROGRAM), "--threads", str(THREADS),
                "--rounds", str(ROUNDS), "--comms", self.communicators]

    def record(self, output: str, status: int) -> None:
        """Takes one run's result."""
        line = LINE.search(output)
        if not line:
            self.failure = ending(output, status)
            return
        if line[1] == "FAILED":
            self.failure = f"wrong data in {line[4]} messages"
        self.ns.append(float(line[2]))
        self.bytes, self.version = int(line[3]), short_version(line[5])
        self.summary = SUMMARY.findall(output)
        if self.how == "larklane" and CARRIED not in output:
            left = LEFT.search(output)
            self.left = left[1] if left else "not carried, and no reason was given"


def cases_of(mpis: list[dict], hows: list[str]) -> list[Case]:
    """All cases, the ways next to each other."""
    return [Case(mpi, communicators, how) for mpi in mpis for communicators in COMMUNICATORS for how in hows]


def run_all(cases: list[Case], build: Path, limit_s: float) -> None:
    run_in_turns(
        cases, REPETITIONS, limit_s,
        lambda case: f"{PROGRAM:8} {case.mpi['name']:15} {COMMUNICATORS[case.communicators]:11} {NAMES[case.how]:8}",
        lambda case, _: case.command(build), lambda case, _, output, status: case.record(output, status))
    versions = {case.mpi["name"]: case.version for case in cases if case.version}
    for case in cases:  # runs without a result name no version
        case.version = versions.get(case.mpi["name"], case.mpi["name"])


def pairs_of(cases: list[Case]) -> list[dict[str, Case]]:
    """Cases of the same MPI and communicators, by way."""
    found: dict[tuple[str, str], dict[str, Case]] = {}
    for case in cases:
        found.setdefault((case.mpi["name"], case.communicators), {})[case.how] = case
    return list(found.values())


def crowding_text() -> str:
    """A remark if the threads share cores: MPIs whose waiting threads keep their core then lose much time natively."""
    cores = len(os.sched_getaffinity(0))
    return "" if cores >= RANKS * THREADS else f"{RANKS * THREADS} threads share {cores} cores here, so the times depend on the scheduler, too; native ones most"


def verdict(pair: dict[str, Case]) -> str:
    """Right, or the trouble."""
    troubles = [f"{NAMES[how]}: {case.failure or case.left}" for how, case in pair.items() if case.failure or case.left]
    return "; ".join(troubles) or "right"


def table(cases: list[Case], show: Callable[[str], None] = print) -> None:
    """The result as text, and the summary of the first MPI whose messages were carried."""
    size = max((case.bytes for case in cases), default=0)
    show(f"\n{PROGRAM}: {RANKS} ranks, {THREADS} threads each; thread t sends messages of {size} bytes to thread t of the other rank, with MPI_Isend,")
    show("MPI_Irecv and MPI_Waitall. The same program in both columns; p2p=on: under `larklane run --option p2p=on`.")
    show(f"Medians of {REPETITIONS} runs, ns for a message that a rank sends; each word of each message is checked.")
    if crowding := crowding_text():
        show(f"{crowding}.")
    row = "  {:20} {:13} {:>8} {:>8} {:>14}  {}"
    show(row.format("MPI", "communicators", "native", "p2p=on", "times as fast", "result"))
    for pair in pairs_of(cases):
        first = next(iter(pair.values()))
        times = {how: median(case.ns) for how, case in pair.items() if case.ns}
        is_whole = len(times) == len(NAMES) and not any(case.left for case in pair.values())
        ratio = f"{times['native'] / times['larklane']:.1f}" if is_whole else "-"
        cells = [f"{times[how]:.0f}" if how in times else "-" for how in NAMES]
        show(row.format(first.version, COMMUNICATORS[first.communicators], *cells, ratio, verdict(pair)))
    carried = next((pair["larklane"] for pair in pairs_of(cases) if "larklane" in pair and pair["larklane"].summary and not pair["larklane"].left), None)
    if carried:
        show(f"\nRank 0's summary of such a run over {carried.version}, communicators {COMMUNICATORS[carried.communicators]} (`larklane run --summary`):")
        for line in carried.summary:
            show(f"  {line}")


def record_of(cases: list[Case]) -> dict:
    """Everything that the picture shows, with the raw samples."""
    runs = [{"mpi": case.version, "communicators": COMMUNICATORS[case.communicators], "how": case.how, "data": case.failure or "right", "left": case.left,
             "ns": case.ns, "summary": case.summary} for case in cases]
    return {"schema": 1, "program": PROGRAM, "ranks": RANKS, "threads": THREADS, "rounds": ROUNDS, "repetitions": REPETITIONS,
            "bytes": max((case.bytes for case in cases), default=0), "runs": runs}
