"""`larklane bench` outside of a launcher: starts launches itself, variant by variant in turns, keeps their records, reports.

A launch that hangs or dies is reported as a failure and does not stop the others. Its measured points are kept; the variant's further
launches leave out the way that hung. A launch that refuses its options ends the command, unless other launches have measured with
them. In that case only this benchmark refuses them, and it does not start again under this variant. The result is one JSON file:

  {"schema": 1, "kind": "bench-set", "runs": [record, ...], "failures": [{"benchmark", "variant", "way", "what"}, ...]}

Each launch writes a record (docs/user/performance.md); the set is saved after each launch. A turn launches every benchmark and variant once.
If the time budget drops turns, the set has "turns": {"run": 1, "asked": 3}.
"""

import argparse
import contextlib
import csv
import dataclasses
import io
import math
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from larklane.files import console, output_file
from larklane.files.input_file import read_json
from larklane.records import schema
from larklane.records.benchmarks import BENCHMARKS, names

PARTITIONED = names("partitions", "one_message", "calls", "pattern")
# Between threads; Larklane needs no MPI for them. Way `everywhere` has a process in the place of each thread.
THREADED = names("messages", "lanes", "application")
LANES = "lanes"  # runs in one process, and for Larklane only
EVERYWHERE, PROCESSES = "everywhere", "{processes}"
FUNNELED = "funneled"  # it takes its own launch, too
VARIANTS = ("native", "larklane", "lci", "ordinary")
# One launch of each, in minutes on a laptop: enough to preview the figures.
QUICK = (("--sizes", "4K,64K,1M"), ("--threads", "4"), ("--iterations", "20"), ("--warmup", "3"), ("--compute-us", "1000"))
QUICK_ROUNDS = (("--iterations", "20"), ("--warmup", "3"))
QUICK_MESSAGES = (("--sizes", "8,512,64K"), *QUICK_ROUNDS)
CSV_HEAD = ("benchmark", "variant", "mpi", "bytes", "send_partitions", "recv_partitions", "way", "metric", "launch", "round", "value")
PATIENCE_S = 5  # for a launcher to end after a signal
LIMIT_SHARE = 0.8  # of a launch's time limit, for its rounds; the rest is for its start, guards and warm-up
ERRORS_MAX = 600  # characters kept of the error output of a launch that died
FAILED, USAGE = 1, 2


class Refused(Exception):
    """The measuring program refuses its options; the argument is its message."""


@dataclasses.dataclass(frozen=True)
class Launch:
    """One run of one benchmark under one variant."""

    benchmark: str
    variant: str
    turn: int
    threads: int = 0  # 0: the benchmark decides
    ways: tuple[str, ...] = ()  # of benchmarks between threads; empty: all
    layout: str = ""  # of benchmark `lanes`

    def title(self) -> str:
        shape = f" {self.threads} threads {','.join(self.ways) or self.layout}" if self.threads else ""
        return f"{self.benchmark} {self.variant}{shape} {self.turn + 1}"

    @property
    def processes(self) -> int:
        if self.benchmark == LANES:
            return 1
        return 2 * self.threads if self.ways == (EVERYWHERE,) else 2


@dataclasses.dataclass(frozen=True)
class Threads:
    """Launches of benchmarks between threads: one for each number of threads, and one with processes in their place."""

    counts: tuple[int, ...]
    ways: tuple[str, ...]
    launcher: str
    layouts: tuple[str, ...] = ()  # of benchmark `lanes`, a launch each

    def shapes(self, variant: str) -> Iterator[tuple[int, tuple[str, ...], str]]:
        for count in self.counts:
            for layout in self.layouts:
                yield count, self.ways, layout
            if self.layouts:
                continue
            together = tuple(way for way in self.ways if way not in (FUNNELED, EVERYWHERE))
            if together:
                yield count, together, ""
            if FUNNELED in self.ways:
                yield count, (FUNNELED,), ""
            if EVERYWHERE in self.ways and (variant == "larklane" or count == 1 or PROCESSES in self.launcher):
                yield count, (EVERYWHERE,), ""


def launches(benchmarks: list[str], variants: list[str], turn: int, threads: Threads | None = None) -> list[Launch]:
    """@return the launches of one turn. Turns alternate, A B, B A, A B, ..., so that no variant always comes first"""
    order = variants if turn % 2 == 0 else variants[::-1]
    if threads is None:
        return [Launch(benchmark, variant, turn) for benchmark in benchmarks for variant in order]
    found = [Launch(benchmark, variant, turn, *shape) for benchmark in benchmarks for variant in order for shape in threads.shapes(variant)]
    return sorted(found, key=lambda launch: (launch.threads, launch.ways == (EVERYWHERE,), launch.ways == (FUNNELED,)))  # the sort is stable, so variants stay next to each other


def end_group(process: "subprocess.Popen[str]") -> None:
    """SIGTERM first: a launcher then ends its ranks on all hosts; a killed launcher may leave them behind. A second ^C ends the wait."""
    for wanted in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, wanted)
            process.wait(PATIENCE_S)
        except (ProcessLookupError, subprocess.TimeoutExpired, KeyboardInterrupt):
            pass


def keep_group(life: int) -> None:
    """Run the keeper process. It reads a group's number from the pipe `life`, and ends that group if the pipe closes without a further line."""
    os.setsid()
    told = b""
    while more := os.read(life, 64):
        told += more
    group, _, is_over = told.partition(b"\n")
    if not group or is_over:
        return
    with contextlib.suppress(ProcessLookupError):  # as end_group()
        os.killpg(int(group), signal.SIGTERM)
        time.sleep(PATIENCE_S)
        os.killpg(int(group), signal.SIGKILL)


@contextlib.contextmanager
def kept() -> Iterator[Callable[[int], int]]:
    """End a process group if this process dies within the block, even by SIGKILL. The caller passes the group to the yielded function."""
    life, end = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        try:
            os.close(end)
            keep_group(life)
        finally:
            os._exit(0)
    os.close(life)
    try:
        yield lambda group: os.write(end, f"{group}\n".encode())
    finally:
        with contextlib.suppress(OSError):
            os.write(end, b"0\nover\n")  # with or without a group before it
        os.close(end)
        os.waitpid(keeper, 0)


def run_command(command: list[str], limit_s: float) -> tuple[int | None, str]:
    """@return exit status (None: ended after limit_s), and the text of stderr"""
    with kept() as keep:
        return _run_command(command, limit_s, keep)


def _run_command(command: list[str], limit_s: float, keep: Callable[[int], int]) -> tuple[int | None, str]:
    process = None
    try:
        with console.unstopped():
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", errors="backslashreplace",
                                       start_new_session=True)
            keep(process.pid)
        _, errors = process.communicate(timeout=limit_s)
        return process.returncode, errors.strip()
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        if process and process.returncode is None:
            end_group(process)
        if process and process.stderr:
            process.stderr.close()


def samples(runs: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows below CSV_HEAD; a sample that JSON can't hold (infinite) is empty."""
    for launch, run in enumerate(runs, 1):
        for point in run["points"]:
            where = (run["options"]["benchmark"], run["context"]["variant"], run["context"]["mpi"], point["bytes"],
                     point["send_partitions"], point["recv_partitions"])
            for series in point["series"]:
                for metric, values in series.get("samples", {}).items():
                    for number, value in enumerate(values):
                        yield *where, series["way"], metric, launch, number, value


def csv_of(runs: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    writer.writerows(samples(runs))
    return text.getvalue()


@dataclasses.dataclass
class Set:
    """The records so far, saved after each launch."""

    path: pathlib.Path
    csv: pathlib.Path | None = None
    runs: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    failures: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    turns: dict[str, int] | None = None  # "run" and "asked", if not all were run
    is_saved: bool = False

    def save(self) -> None:
        """@raises OSError"""
        whole = {"kind": "bench-set", "runs": self.runs, "failures": self.failures, **({"turns": self.turns} if self.turns else {})}
        schema.write(self.path, whole)
        self.is_saved = True
        if self.csv:
            output_file.write(self.csv, csv_of(self.runs))

    def so_far(self) -> str:
        return f"measured so far: {self.path}" if self.is_saved else "nothing was kept"

    def fail(self, launch: Launch, way: str | None, what: str) -> None:
        self.failures.append({"benchmark": launch.benchmark, "variant": launch.variant, "way": way, "what": what})
        console.clear_line()
        print(f"{launch.title()}: {way + ': ' if way else ''}{what}", file=sys.stderr)


def record_of(file: pathlib.Path) -> dict[str, Any]:
    """@return the record that a launch has written so far"""
    try:
        record: dict[str, Any] = read_json(file)
    except (OSError, ValueError):
        return {"points": [], "failures": []}
    return record


def keep(launch: Launch, record: dict[str, Any], results: Set) -> None:
    """Add the record of a launch, even of one that hung. The set holds its failures."""
    for point in record["points"]:
        for series in point["series"]:
            problem = series.get("refused") or (f"{series['wrong']} wrong rounds" if series["wrong"] else "")
            if problem:
                results.fail(launch, series["way"], f"{point['bytes']} bytes: {problem}")
    results.runs.append({**record, "failures": []})
    results.save()


def file_of(launch: Launch, results: Set) -> pathlib.Path:
    """@return the file that a launch writes while it runs"""
    return results.path.with_name(f"{launch.benchmark}-{launch.variant}-{launch.turn}.json")


def measure(launch: Launch, command: Callable[[Launch, str, list[str]], list[str]], limit_s: float, results: Set,
            left_out: set[str]) -> bool:
    """Run a launch, and repeat it without the ways that hang.

    @param command   returns the words of (launch, JSON file, ways to leave out)
    @param left_out  ways of this benchmark and variant that have hung; grows
    @return whether the launch accepted its options
    @raises Refused  it refused them, and no launch has measured with them yet
    """
    file = file_of(launch, results)
    again = True
    while again:
        known = len(results.failures)
        file.unlink(missing_ok=True)
        try:
            status, errors = run_command(command(launch, str(file), sorted(left_out)), limit_s)
        except KeyboardInterrupt:  # keep its measured points
            if (record := record_of(file))["points"]:
                keep(launch, record, results)
            file.unlink(missing_ok=True)
            raise
        if status == USAGE and not left_out and not results.runs:
            raise Refused(errors)
        record = read_json(file) if file.exists() else {"points": [], "failures": []}
        again = False
        for failure in record["failures"]:
            results.fail(launch, failure["way"], f"hangs at {failure['bytes']} bytes: {failure['what']}")
            way = failure["way"].rstrip("'")  # the baseline may hang in its second series
            again = again or way not in left_out
            left_out.add(way)
        if record["points"]:
            keep(launch, record, results)
        if status is None:
            results.fail(launch, None, f"no end after {limit_s:.0f} s")
        elif status != 0 and len(results.failures) == known:
            results.fail(launch, None, f"exit status {status}: {errors[-ERRORS_MAX:]}")
    file.unlink(missing_ok=True)
    return status != USAGE


class Progress:
    """Progress on stderr: one line, redrawn on a terminal; one line per launch elsewhere."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.began = total, 0, time.monotonic()

    def begin(self, launch: Launch) -> None:
        left = ""
        if self.done:
            seconds = (time.monotonic() - self.began) / self.done * (self.total - self.done)
            left = f", about {seconds:.0f} s left"
        text = f"[{self.done + 1}/{self.total}] {launch.title()}{left}"
        console.clear_line()
        print(text, end="" if sys.stderr.isatty() else "\n",
              file=sys.stderr, flush=True)
        self.done += 1

    def end(self) -> None:
        console.clear_line()


def whole_number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number from 1")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: expected seconds above 0, as in 60")
    return value


def thread_counts(text: str) -> tuple[int, ...]:
    return tuple(whole_number(word) for word in text.split(","))


def usual_counts(processes: int = 2) -> tuple[int, ...]:
    """@return the powers of two up to the number of cores per process"""
    most = max(len(os.sched_getaffinity(0)) // processes, 1)
    return tuple(1 << power for power in range(most.bit_length()))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="larklane bench", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measure with and without Larklane in turns, and report.",
        epilog="Further options go to the benchmark: `larklane bench overhead --help` lists them.\n\n"
               "Examples:\n"
               "  larklane bench all --quick\n"
               "  larklane bench early-bird --with native,larklane --launcher 'mpirun -n 2' --threads 8 --sizes 64K:4M\n"
               "  larklane bench message-rate --threads 1,2,4             messages between threads, without an MPI\n"
               "  larklane bench message-rate --launcher 'mpirun -n {processes}'     ... and those of an MPI\n"
               "  larklane bench bspmm --threads 1,2                      an application of them: also ebms, stencil\n"
               "  larklane bench lanes                                    what each of the things that keep lanes apart is worth\n"
               "  mpirun -n 2 larklane bench overhead --with native      one variant, started by hand")
    made.add_argument("benchmark", choices=("all", *BENCHMARKS), help="all: those of partitioned communication")
    made.add_argument("--with", dest="variants", metavar="VARIANTS",
                      help="native, larklane, or both in turns (default; of messages without --launcher: larklane); of messages and applications also ordinary: those of the MPI, carried by Larklane (LARKLANE_P2P=on), and lci: LCI v2, if it was found when Larklane was built")
    made.add_argument("--launcher", help="how ranks of an MPI are started (default: mpirun -n 2); of messages {processes} in it stands for their number")
    made.add_argument("--repetitions", type=whole_number, metavar="N", help="launches of each variant (default: 3, quick: 1)")
    made.add_argument("--quick", action="store_true", help="a few minutes: " + " ".join(" ".join(option) for option in QUICK))
    made.add_argument("--budget", type=seconds, metavar="S",
                      help="seconds for everything: launches of each variant are dropped first, then rounds")
    made.add_argument("--launch-limit", type=seconds, default=300, metavar="S",
                      help="seconds after which a launch is ended; its rounds are made to fit (default: %(default)s)")
    made.add_argument("--out", type=pathlib.Path, default=pathlib.Path("larklane-bench"), help="folder (default: %(default)s)")
    made.add_argument("--overwrite", action="store_true", help="replace an earlier set in the folder")
    made.add_argument("--csv", type=pathlib.Path, metavar="FILE", help="write the samples of all launches there, a line each")
    made.add_argument("--json", metavar="FILE", help=argparse.SUPPRESS)
    made.add_argument("--no-report", action="store_true", help="measure only")
    return made


def benchmark_words(own: Sequence[tuple[str, ...]], given: list[str]) -> list[str]:
    """@return the words for a benchmark: our own options that the user does not give, then the user's words"""
    names = {word.partition("=")[0] for word in given}
    return [*(word for option in own if option[0] not in names for word in option), *given]


def of_messages(further: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """@return the options in which launches differ, and the other words"""
    made = argparse.ArgumentParser(prog="larklane bench", add_help=False, allow_abbrev=False)
    made.add_argument("--threads", type=thread_counts)
    made.add_argument("--ways", type=lambda text: tuple(text.split(",")))
    made.add_argument("--layout")
    return made.parse_known_args(further)


class Turns:
    """Runs all launches, one after the other. With a time budget a turn starts only if its time, estimated by the longest turn so far,
    fits. The first turn always starts, with fewer rounds if needed."""

    def __init__(self, options: argparse.Namespace, further: list[str], plan: list[list[Launch]], results: Set) -> None:
        self.options, self.further, self.plan, self.results = options, further, plan, results
        self.larklane = os.environ.pop("LARKLANE_COMMAND", "larklane")  # for this command only: the measured program must not see it
        self.progress = Progress(sum(map(len, plan)))
        self.ends = time.monotonic() + options.budget if options.budget else math.inf
        self.left_of_turn = 0  # launches, the running one included
        self.left_out: dict[tuple[str, str], set[str]] = {}
        self.refused: set[tuple[str, str]] = set()

    def command(self, launch: Launch, file: str, without: list[str]) -> list[str]:
        share = (self.ends - time.monotonic()) / self.left_of_turn
        budget = min(LIMIT_SHARE * self.options.launch_limit, max(share, 1))
        own: list[tuple[str, ...]] = [("--with", launch.variant), ("--json", file), ("--quiet",), ("--budget", f"{budget:.1f}")]
        if launch.threads:
            own += [("--threads", str(launch.threads))]
        own += [("--ways", ",".join(launch.ways))] if launch.ways else []
        own += [("--layout", launch.layout)] if launch.layout else []
        if self.options.quick:
            sizes = BENCHMARKS[launch.benchmark].quick_sizes
            own += (("--sizes", sizes), *QUICK_ROUNDS) if sizes else QUICK_MESSAGES if launch.threads else QUICK_ROUNDS if BENCHMARKS[launch.benchmark].kind == "steps" else QUICK
        words = [*self.launcher(launch), self.larklane, "bench", launch.benchmark, *benchmark_words(own, self.further)]
        return [*words, "--without", ",".join(without)] if without else words

    def launcher(self, launch: Launch) -> list[str]:
        if launch.threads and launch.variant == "larklane":
            return [self.larklane, "launch", "-n", str(launch.processes)]
        return shlex.split(self.options.launcher.replace(PROCESSES, str(launch.processes)) if launch.threads else self.options.launcher)

    def measure_turn(self, turn: list[Launch]) -> None:
        """@raises Refused, OSError"""
        for number, launch in enumerate(turn):
            self.progress.begin(launch)
            self.left_of_turn = len(turn) - number
            kind = (launch.benchmark, f"{launch.variant} {launch.threads} {launch.ways}")
            if kind not in self.refused and not measure(launch, self.command, self.options.launch_limit, self.results,
                                                        self.left_out.setdefault(kind, set())):
                self.refused.add(kind)
            self.results.save()

    def measure(self) -> None:
        """@raises Refused, OSError"""
        longest = 0.0
        for number, turn in enumerate(self.plan):
            began = time.monotonic()
            if number > 0 and began + longest > self.ends:
                self.results.turns = {"run": number, "asked": len(self.plan)}
                self.results.save()
                return
            self.measure_turn(turn)
            longest = max(longest, time.monotonic() - began)


def settle(options: argparse.Namespace, further: list[str]) -> tuple[Threads | None, list[str]]:
    """Set the defaults of missing options. @return Threads for benchmarks between threads, and the words for each launch"""
    is_of_messages = options.benchmark in THREADED
    if options.variants is None:
        options.variants = "larklane" if is_of_messages and (options.launcher is None or options.benchmark == LANES) else "native,larklane"
    if options.launcher is None:
        options.launcher = f"mpirun -n {PROCESSES}" if is_of_messages else "mpirun -n 2"
    if not is_of_messages:
        return None, further
    told, others = of_messages(further)
    if options.benchmark == LANES:
        return Threads(told.threads or usual_counts(1), told.ways or (), "", (told.layout,) if told.layout else ("own", "packed")), others
    return Threads(told.threads or usual_counts(), told.ways or ("shared", "own", EVERYWHERE), options.launcher), others


def set_of(options: argparse.Namespace) -> pathlib.Path:
    return pathlib.Path(options.out, "bench.json")


def problem_of(options: argparse.Namespace, threads: Threads | None) -> str:
    """@return the first error in the options, or an empty text"""
    if not set(options.variants.split(",")) <= set(VARIANTS):
        return f"--with {options.variants}: expected some of {', '.join(VARIANTS)}, with commas"
    if "lci" in options.variants.split(",") and options.benchmark not in THREADED:
        return f"--with {options.variants}: LCI has no partitioned communication"
    if "ordinary" in options.variants.split(",") and options.benchmark not in THREADED:
        return f"--with {options.variants}: ordinary messages are of benchmarks between threads; remedy: larklane, with LARKLANE_P2P=on"
    if options.benchmark == LANES and options.variants != "larklane":
        return f"--with {options.variants}: only Larklane has lanes to take apart"
    if "lci" in options.variants.split(",") and not (pathlib.Path(os.environ.get("LARKLANE_COMMAND", "")).parent.parent / "libexec/larklane/larklane-lci").exists():
        return f"--with {options.variants}: Larklane was built without LCI v2; remedy: build it with LCI_DIR set to the folder of LCIConfig.cmake"
    if threads and threads.ways == (EVERYWHERE,) and not all(any(threads.shapes(variant)) for variant in options.variants.split(",")):
        return f"--ways {EVERYWHERE}: --launcher {options.launcher} does not say where their number stands, as in \"mpirun -n {PROCESSES}\""
    try:
        if not shlex.split(options.launcher):
            return "--launcher is empty: --launcher 'PATH/mpiexec -n 2'"
    except ValueError as error:
        return f"--launcher {options.launcher}: {error}"
    if options.json:
        return (f"--json {options.json}: the records of launches in turns are kept in bench.json in the folder of --out: "
                "give --out DIR instead")
    if set_of(options).exists() and not options.overwrite:
        return f"{options.out} holds an earlier set ({set_of(options).name}); --overwrite replaces it, --out names another folder"
    return ""


@dataclasses.dataclass(frozen=True)
class Command:
    """The words in which a command tells why it has not measured everything."""

    name: str
    elsewhere: str  # remedy for a file that can't be written
    refused: str = ""  # before "nothing was measured"
    kept: str = ""  # clause on a file that stays as it was
    resumes: str = ""  # how the measured part is used

    def tried(self, measure: Callable[[], None], results: Set) -> int:
        """@return exit status of a measurement, after a message unless it is 0"""
        try:
            measure()
        except Refused as refusal:
            print(f"{refusal}\n{self.name}: {self.refused}nothing was measured", file=sys.stderr)
            return USAGE
        except OSError as error:
            print("; ".join(filter(None, (f"{self.name}: {output_file.problem(error, self.elsewhere)}", self.kept, results.so_far()))), file=sys.stderr)
            return FAILED
        except KeyboardInterrupt as stop:
            stopped = ", ".join(filter(None, (f"{self.name}: stopped", self.kept)))
            print(f"\n{stopped}; {results.so_far()}{self.resumes if results.is_saved else ''}", file=sys.stderr)
            return console.status_of(stop)
        return 0

    def problem_of_folder(self, folder: pathlib.Path) -> int:
        """@return exit status after a message if nothing can be written into the folder, else 0"""
        try:
            output_file.try_folder(folder)
        except OSError as error:
            print(f"{self.name}: {output_file.problem(error, self.elsewhere)}; nothing was measured", file=sys.stderr)
            return FAILED
        return 0


COMMAND = Command("larklane bench", "name another place with --out, or --csv", "the options were refused, ")


def run(options: argparse.Namespace, further: list[str]) -> int:
    """@return exit status"""
    threads, further = settle(options, further)
    problem = problem_of(options, threads)
    if problem:
        print(f"larklane bench: {problem}", file=sys.stderr)
        return USAGE
    if COMMAND.problem_of_folder(options.out):
        return FAILED
    benchmarks = list(PARTITIONED) if options.benchmark == "all" else [options.benchmark]
    repetitions = options.repetitions or (1 if options.quick else 3)
    results = Set(set_of(options), options.csv)
    plan = [launches(benchmarks, options.variants.split(","), turn, threads) for turn in range(repetitions)]
    turns = Turns(options, further, plan, results)
    status = COMMAND.tried(turns.measure, results)
    turns.progress.end()
    if status:
        return status
    if results.turns:
        print(f"{results.turns['run']} of {results.turns['asked']} turns: the time budget")
    print(f"measured: {results.path}")
    if any(run["context"].get("oversubscribed") for run in results.runs):
        slowed = "" if threads else ": computing, a wait for a clock, is not slowed"
        print(f"larklane bench: more threads than cores{slowed}", file=sys.stderr)
    if not results.runs:
        return FAILED
    is_reported = True
    if not options.no_report:
        sys.stdout.flush()  # the report prints to the same stream
        report = subprocess.run([sys.executable, "-m", "larklane.report", str(results.path), "--out", str(options.out)], check=False)
        is_reported = report.returncode == 0
    return FAILED if not is_reported or any(failure["variant"] == "larklane" for failure in results.failures) else 0


def main(words: list[str]) -> int:
    options, further = parser().parse_known_args(words)
    return run(options, further)
