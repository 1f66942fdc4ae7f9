"""`larklane tune`: measures this host for the aggregation policies `ploggp` and `table`, then has the command write the tuning file.

By default it runs `bench prtt`, and LogGP is fitted to the results. With --search it runs `bench perceived-bandwidth` with one late
thread and with 1, 2, 4, ... groups; over verbs each of them with 1, 2, 4, ... queue pairs. The exposed times, after the last
thread, give the table of the best numbers. Both run under Larklane, on one host by attach only, since attach sends groups. Samples are kept beside the tuning file, as a set of `larklane
bench` (larklane/bench/command.py).
"""

import argparse
import contextlib
import dataclasses
import functools
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from larklane.bench import command as bench
from larklane.files import console
from larklane.files.input_file import read_json

FAILED, USAGE = bench.FAILED, bench.USAGE
POLL_S = 0.3
BAR = 30  # characters
LATE_US = 4000  # delay of the last thread, as policy ploggp assumes it
SHM, VERBS = "shm", "verbs"
QUEUES = "LARKLANE_VERBS_CHANNEL_QUEUES"
QUEUES_MAX = 16
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclasses.dataclass(frozen=True)
class Step:
    """One launch."""

    benchmark: str
    policy: str
    sizes: tuple[int, ...]
    partitions: int = 1
    queues: int = 0  # queue pairs of the channel; 0: the provider's own

    def options(self, iterations: int) -> list[str]:
        words = ["--ways", "partitioned", "--sizes", ",".join(map(str, self.sizes)), "--iterations", str(iterations)]
        if self.benchmark == "prtt":
            return words
        return [*words, "--threads", str(self.partitions), "--compute-us", str(LATE_US), "--noise", "single", "--noise-percent", "100"]

    def title(self) -> str:
        if self.benchmark == "prtt":
            return "round trips"
        queues = f", queue pairs: {self.queues}" if self.queues else ""
        return f"{self.partitions} partitions, groups: {self.policy.partition(':')[2]}{queues}"

    def environment(self, provider: str) -> list[str]:
        """@return the variables of the launch; each partition is a group unless the policy forms larger ones"""
        made = [f"LARKLANE_POLICY={self.policy}", "LARKLANE_SHM_SLOT_BYTES_MAX=0"]  # by attach, which sends groups
        if provider != SHM:
            made.append(f"LARKLANE_PROVIDER={provider}")
        return [*made, f"{QUEUES}={self.queues}"] if self.queues else made


def counts(partitions: int) -> list[int]:
    """@return the numbers of groups: powers of two, and the number of partitions"""
    return [*(1 << power for power in range((partitions - 1).bit_length())), partitions]


def queue_counts(provider: str, groups: int) -> list[int]:
    """@return the numbers of queue pairs to try: powers of two, no more than there are transfers"""
    return [0] if provider != VERBS else [1 << power for power in range(min(groups, QUEUES_MAX).bit_length())]


def points_of(runs: list[dict[str, Any]]) -> set[tuple[int, str, int, int]]:
    """@return (partitions, policy, queue pairs, bytes) of the measured points"""
    return {(point["send_partitions"], variables.get("LARKLANE_POLICY", ""), int(variables.get(QUEUES, 0)), point["bytes"])
            for run in runs for variables in [run["context"]["environment"]] for point in run["points"]}


def search_steps(partitions: Sequence[int], sizes: Sequence[int], runs: list[dict[str, Any]], provider: str = SHM) -> list[Step]:
    """@return the steps still to measure, without sizes that the partitions do not divide"""
    done = points_of(runs)
    steps = []
    for share in partitions:
        for groups in counts(share):
            policy = f"static:{groups}"
            for queues in queue_counts(provider, groups):
                left = tuple(size for size in sizes if size % share == 0 and (share, policy, queues, size) not in done)
                if left:
                    steps.append(Step("perceived-bandwidth", policy, left, share, queues))
    return steps


class Bar:
    """Progress on stderr: finished sizes of all launches, redrawn on a terminal; one line per launch elsewhere."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.total, self.done, self.number, self.steps = sum(len(step.sizes) for step in steps), 0, 0, len(steps)

    def text(self, step: Step, points: int) -> str:
        done = self.done + points
        filled = BAR * done // self.total
        return f"[{'#' * filled}{'.' * (BAR - filled)}] {100 * done // self.total:3d} %  {step.title()}"

    @contextlib.contextmanager
    def over(self, step: Step, file: pathlib.Path) -> Iterator[None]:
        """Show progress while `step` runs; it writes `file` after each size."""
        self.number += 1
        if not sys.stderr.isatty():
            print(f"[{self.number}/{self.steps}] {step.title()}", file=sys.stderr, flush=True)
            yield
            return
        ended = threading.Event()

        def draw() -> None:
            while True:
                console.clear_line()
                print(self.text(step, len(bench.record_of(file)["points"])), end="", file=sys.stderr, flush=True)
                if ended.wait(POLL_S):
                    return

        thread = threading.Thread(target=draw, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            console.clear_line()
            self.done += len(step.sizes)


class Tuner:
    """Runs launches one after the other, and keeps their samples in one file."""

    def __init__(self, options: argparse.Namespace, results: bench.Set) -> None:
        self.options, self.results = options, results
        self.larklane = os.environ.pop("LARKLANE_COMMAND", "larklane")  # for this command only: the measured program must not see it

    def command(self, step: Step, file: str) -> list[str]:
        engine = ["env", *step.environment(self.options.provider)]
        budget = f"{bench.LIMIT_SHARE * self.options.launch_limit:.1f}"
        return [*shlex.split(self.options.launcher), *engine, self.larklane, "bench", step.benchmark, *step.options(self.options.iterations or (20 if self.options.search else 50)),
                "--with", "larklane", "--json", file, "--quiet", "--budget", budget]

    def launched(self, step: Step, _: bench.Launch, file: str, __: list[str]) -> list[str]:
        return self.command(step, file)

    def measure(self, steps: Sequence[Step]) -> None:
        """@raises bench.Refused, OSError, KeyboardInterrupt  the samples measured so far are kept"""
        bar = Bar(steps)
        for step in steps:
            launch = bench.Launch(step.benchmark, "larklane", 0)
            file = bench.file_of(launch, self.results)
            with bar.over(step, file):
                bench.measure(launch, functools.partial(self.launched, step), self.options.launch_limit, self.results, set())

    def write(self) -> int:
        """Run the command that writes the tuning file. @return its exit status"""
        command = [self.larklane, "tune", "--from", str(self.results.path), "--out", str(self.options.out), "--provider", self.options.provider]
        return subprocess.run(command, check=False).returncode


def bytes_of(text: str) -> int:
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "")
    if not number.isdecimal() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected bytes from 1, with K, M, G")
    return int(number) * UNITS[unit]


def sizes_of(text: str) -> list[int]:
    """'A:B' (doubled from A to B) or 'A,B,C'."""
    first, colon, last = text.partition(":")
    if not colon:
        return sorted({bytes_of(word) for word in text.split(",")})
    sizes, end = [bytes_of(first)], bytes_of(last)
    while 2 * sizes[-1] <= end:
        sizes.append(2 * sizes[-1])
    return sizes


def partitions_of(text: str) -> list[int]:
    return sorted({bench.whole_number(word) for word in text.split(",")})


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="larklane tune", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measure this host for the policies `ploggp` and, with --search, `table`; write the tuning file that they read.",
        epilog="Without --search: LogGP, from round trips between two processes; half a minute. With it: the best number of groups for\n"
               "each number of partitions and size, by trying; minutes. The file has both; what is measured anew replaces the old of its\n"
               "kind. Samples are kept beside it (.prtt.json, .search.json). Leave the machine alone meanwhile.\n\n"
               "Examples:\n"
               "  larklane tune                                     then: LARKLANE_POLICY=ploggp mpirun -n 2 larklane run ./app\n"
               "  larklane tune --search --partitions 16 --sizes 4M:64M\n"
               "  larklane tune --search --resume                   what was interrupted goes on\n"
               "  larklane tune --search --provider verbs           groups and queue pairs; then LARKLANE_VERBS_CHANNEL_QUEUES=16\n"
               "  larklane tune --launcher 'mpiexec.hydra -n 2'\n"
               "  larklane info                                     which tuning file is in use, or why none is")
    made.add_argument("--search", action="store_true", help="try numbers of groups, over verbs of queue pairs, too: for policy `table`")
    made.add_argument("--provider", choices=(SHM, VERBS), default=SHM, help="what the two processes communicate over (default: %(default)s)")
    made.add_argument("--resume", action="store_true", help="keep the samples of an earlier search, measure what is missing")
    made.add_argument("--overwrite", action="store_true", help="begin again: the samples of an earlier search are lost")
    made.add_argument("--sizes", type=sizes_of, metavar="BYTES",
                      help="FROM:TO (doubled) or A,B,C with K, M, G: of a message (default: 1:1M; with --search 1M:64M)")
    made.add_argument("--partitions", type=partitions_of, metavar="A,B,C", help="of --search (default: 4,8,16,32)")
    made.add_argument("--iterations", type=bench.whole_number, metavar="N", help="rounds of each point (default: 50; with --search 20)")
    made.add_argument("--launcher", default="mpirun -n 2", help="how two processes are started (default: %(default)s)")
    made.add_argument("--launch-limit", type=bench.seconds, default=120, metavar="S",
                      help="seconds after which a launch is ended; its rounds are made to fit (default: %(default)s)")
    made.add_argument("--out", type=pathlib.Path, metavar="FILE", help="the tuning file (default: where Larklane looks for it)")
    made.add_argument("--from", dest="samples", metavar="FILE", help="measure nothing: write the tuning file from these samples")
    return made


def problem_of(options: argparse.Namespace) -> str:
    """@return the first error in the options, or an empty text"""
    for name in ("resume", "overwrite", "partitions"):
        if getattr(options, name) and not options.search:
            return f"--{name} belongs to --search"
    if options.resume and options.overwrite:
        return "--resume keeps what --overwrite drops"
    try:
        words = shlex.split(options.launcher)
    except ValueError as error:
        return f"--launcher {options.launcher}: {error}"
    if not words or not shutil.which(words[0]):
        return (f"{words[0] if words else 'no launcher'}: not found; it takes an MPI's launcher to start two processes: "
                "--launcher 'PATH/mpiexec -n 2'")
    return ""


def samples_of(options: argparse.Namespace) -> bench.Set:
    """@return a new set, or the set to resume. @raises ValueError  with the error"""
    results = bench.Set(options.out.with_name(f"{options.out.name}.{'search' if options.search else 'prtt'}.json"))
    if not options.search or options.overwrite or not results.path.exists():
        return results
    if not options.resume:
        raise ValueError(f"{results.path} has the samples of an earlier search; --resume goes on with it, --overwrite begins again")
    try:
        results.runs = read_json(results.path)["runs"]
        points_of(results.runs)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{results.path}: can't go on with it ({error!r}); --overwrite begins again") from error
    results.is_saved = True
    return results


def steps_of(options: argparse.Namespace, results: bench.Set) -> list[Step]:
    if options.search:
        return search_steps(options.partitions or [4, 8, 16, 32], options.sizes or sizes_of("1M:64M"), results.runs, options.provider)
    return [Step("prtt", "none", tuple(options.sizes or sizes_of("1:1M")))]


def run(options: argparse.Namespace) -> int:
    """@return exit status, after a message unless it is 0"""
    problem = problem_of(options)
    if problem:
        print(f"larklane tune: {problem}", file=sys.stderr)
        return USAGE
    command = bench.Command("larklane tune", "name another file with --out", kept="the tuning file is as it was",
                            resumes="; --resume goes on with it" if options.search else "")
    if command.problem_of_folder(options.out.parent):
        return FAILED
    try:
        results = samples_of(options)
    except ValueError as error:
        print(f"larklane tune: {error}", file=sys.stderr)
        return USAGE
    tuner = Tuner(options, results)
    status = command.tried(lambda: tuner.measure(steps_of(options, results)), results)
    if status:
        return status
    if not results.runs:
        print("larklane tune: no figures, the tuning file is as it was", file=sys.stderr)
        return FAILED
    status = tuner.write()
    if options.search and any(run["context"].get("oversubscribed") for run in results.runs):
        print("larklane tune: of more partitions than cores, a thread each, the figures are the scheduler's, too", file=sys.stderr)
    if results.failures:
        print("larklane tune: not everything was measured" + ("; --resume tries again" if options.search else ""), file=sys.stderr)
    return status or (FAILED if results.failures else 0)


def main(words: list[str]) -> int:
    return run(parser().parse_args(words))
