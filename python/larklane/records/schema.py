"""The only reader and the only writer of records. Layout: docs/user/performance.md, measurements/README.md.

A file holds one run of `larklane bench` (kind `bench`), several with their failures (kind `bench-set`), or a row of `make bars`
(kind `row`). All times of runs in nanoseconds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from larklane.files import json_text, output_file
from larklane.files.input_file import read_json
from larklane.records.node import Node, RecordError, is_number
from larklane.records.rows import Row, read_row

SCHEMA = 1
EXPECTED = f"a record that `larklane bench` wrote (schema {SCHEMA}), or a row of `make bars`"
KINDS = ("bench", "bench-set", "row")


@dataclass(frozen=True)
class Transfer:
    """One part of a message in transit, from the moment when it was ready."""

    begin_ns: float
    end_ns: float
    bytes: int


@dataclass(frozen=True)
class Trace:
    """The events of one round; times count from the moment when the threads were released."""

    transfers: tuple[Transfer, ...]
    arrivals_ns: tuple[float, ...]
    joined_ns: float  # when the last thread had finished computing


@dataclass(frozen=True)
class Series:
    """One way at one point."""

    way: str  # a second series of the baseline has a prime
    wrong: int  # rounds with a wrong payload or completion
    early: bool  # the guard saw a part arrive while another was held back
    refused: str  # the reason for missing figures; else empty
    samples: dict[str, tuple[float, ...]]  # {metric: [rounds]}; a sample that JSON can't hold (infinite) is left out
    traces: tuple[Trace, ...]  # of the first rounds


@dataclass(frozen=True)
class Point:
    """All ways at one message size."""

    bytes: int
    send_partitions: int
    recv_partitions: int
    rounds: int
    series: tuple[Series, ...]  # the baseline first, its second series last

    @property
    def baseline(self) -> Series | None:
        """The first way with figures."""
        return next((series for series in self.series if series.samples), None)


@dataclass(frozen=True)
class Options:
    """The benchmark's options that distinguish figures."""

    benchmark: str
    iterations: int  # rounds of each point; 0: unknown
    threads: int
    compute_ns: float
    compute_split: str  # "thread", "partition"
    noise: str
    noise_percent: float
    cache: str
    scaling: str
    order: str
    # For messages between threads:
    operation: str  # "send", "put", "am"; empty: another benchmark
    window: int
    lanes: int  # lanes that all threads of way `shared` share
    completion: str  # Larklane's completion mechanism
    progress: str
    layout: str  # of Larklane's lanes: "own", "packed"
    more_follow: bool  # each message of a window but the last has the flag
    blocks: int  # of applications; 0: other benchmarks
    ways: tuple[str, ...]

    @property
    def is_everywhere(self) -> bool:
        """Processes instead of threads."""
        return self.ways == ("everywhere",)


@dataclass(frozen=True)
class Context:
    """The context of a measurement."""

    version: str
    build: str
    variant: str  # "native", "larklane", "ordinary", "lci"
    mpi: str
    ranks: int
    hosts: int
    grid: tuple[int, ...]  # ranks along each axis of a pattern
    bindings: tuple[str, ...]  # by rank
    oversubscribed: bool  # a host has more threads than cores that they may use
    machine: dict[str, str]  # cpu, cores, sockets, kernel, governor, turbo
    environment: dict[str, str]
    timer_ns: float
    clock_error_ns: float

    def why_not_publishable(self) -> list[str]:
        """@return reasons why figures of this run hold for that hour of that machine only; empty: publishable"""
        reasons = []
        if self.build not in ("Release", "RelWithDebInfo"):
            reasons.append(f"build type {self.build or 'unknown'}")
        if self.machine.get("turbo", "unknown") == "unknown":
            reasons.append("turbo unknown")
        return reasons


@dataclass(frozen=True)
class Failure:
    """A way that ended its run and has no figures."""

    benchmark: str
    variant: str
    way: str  # empty: the launch itself
    what: str  # a sentence
    bytes: int | None = None


@dataclass(frozen=True)
class Run:
    """One run of one benchmark."""

    source: str  # name of its file
    options: Options
    context: Context
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Turns:
    """The turns of a set that the time budget has shortened."""

    source: str  # name of its file
    run: int
    asked: int


@dataclass(frozen=True)
class Collection:
    """The input of a report."""

    sources: tuple[str, ...]
    runs: tuple[Run, ...]
    failures: tuple[Failure, ...]
    turns: tuple[Turns, ...]
    rows: tuple[Row, ...] = ()

    @property
    def is_of_rows(self) -> bool:
        """Whether it has rows of `make bars` alone."""
        return bool(self.rows) and not self.runs and not self.failures


def _trace(node: Node) -> Trace:
    transfers = node.get("transfers", list)
    if not all(isinstance(entry, list) and len(entry) == 3 and all(map(is_number, entry)) for entry in transfers) or not transfers:
        raise RecordError(f"{node.where}: expected [begin_ns, end_ns, bytes] in `transfers`")
    return Trace(tuple(Transfer(*entry) for entry in transfers), node.numbers("arrivals_ns"), node.get("joined_ns", float))


def _series(node: Node) -> Series:
    refused = node.get("refused", str, "")
    samples: dict[str, tuple[float, ...]] = {}
    traces: tuple[Trace, ...] = ()
    if not refused:
        measured = node.child("samples")
        samples = {name: found for name in measured.fields if (found := measured.numbers(name))}
        traces = tuple(map(_trace, node.children("traces")))
    return Series(node.get("way", str), node.get("wrong", int), node.get("early", bool), refused, samples, traces)


def _point(node: Node) -> Point:
    return Point(node.count("bytes"), node.count("send_partitions", 1), node.count("recv_partitions", 1), node.get("rounds", int, 0),
                 tuple(map(_series, node.children("series"))))


def _options(node: Node) -> Options:
    return Options(node.get("benchmark", str), node.get("iterations", int, 0), node.get("threads", int), node.get("compute_ns", float),
                   node.get("compute_split", str, "thread"), node.get("noise", str),
                   node.get("noise_percent", float), node.get("cache", str), node.get("scaling", str), node.get("order", str),
                   node.get("operation", str, ""), node.get("window", int, 0), node.get("lanes", int, 0), node.get("completion", str, ""),
                   node.get("progress", str, ""), node.get("layout", str, "own"), node.get("more_follow", bool, False), node.get("blocks", int, 0),
                   tuple(map(str, node.get("ways", list, []))))


def _library(text: str) -> str:
    """ "MPICH Version:      5.0.2" is "MPICH 5.0.2"."""
    return " ".join(text.replace("Version:", "").split())


def _context(node: Node) -> Context:
    return Context(node.get("version", str), node.get("build", str), node.get("variant", str), _library(node.get("mpi", str)),
                   node.get("ranks", int), node.get("hosts", int), tuple(map(int, node.numbers("grid", []))), tuple(map(str, node.get("bindings", list))),
                   node.get("oversubscribed", bool, False), node.texts("machine"), node.texts("environment"), node.get("timer_ns", float),
                   node.get("clock_error_ns", float))


def _run(node: Node, source: str) -> tuple[Run, list[Failure]]:
    run = Run(source, _options(node.child("options")), _context(node.child("context")),
              tuple(map(_point, node.children("points"))))
    failures = [Failure(run.options.benchmark, run.context.variant, entry.get("way", str), entry.get("what", str),
                        entry.get("bytes", int)) for entry in node.children("failures")]
    return run, failures


def _read(path: Path) -> Node:
    """@throws RecordError"""
    try:
        value = read_json(path)
    except OSError as error:
        raise RecordError(f"{path}: can't be read: {error.strerror}; expected {EXPECTED}") from error
    except json.JSONDecodeError as error:
        text = error.doc.rstrip()
        reason = "cut short" if not text.endswith("}") else f"no JSON at line {error.lineno}, column {error.colno}"
        raise RecordError(f"{path}: {reason if text else 'empty'}; expected {EXPECTED}") from error
    except ValueError as error:
        reason = "not a text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise RecordError(f"{path}: can't be read: {reason}; expected {EXPECTED}") from error
    if not isinstance(value, dict):
        raise RecordError(f"{path}: not a JSON object; expected {EXPECTED}")
    if "kind" not in value and "measured" in value:  # a row of an earlier version
        value["kind"] = "row"
    if value.get("kind") not in KINDS:
        raise RecordError(f"{path}: kind {json.dumps(value.get('kind'))}; expected {EXPECTED}")
    if value.get("schema") != SCHEMA:
        raise RecordError(f"{path}: schema {json.dumps(value.get('schema'))}; expected {EXPECTED}: report with the version that "
                          "measured, or measure again")
    return Node(value, str(path))


def _files(paths: Sequence[Path]) -> list[Path]:
    """Expand folders to their records.

    @throws RecordError  a folder without any
    """
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise RecordError(f"{path}: a folder without *.json; expected {EXPECTED}")
        found += inside
    return list(dict.fromkeys(found))


def load(paths: Sequence[Path]) -> Collection:
    """@param paths  files, or folders of them
    @throws RecordError  the first file that is no record, and why
    """
    runs: list[Run] = []
    failures: list[Failure] = []
    turns: list[Turns] = []
    of_rows: list[Row] = []
    files = _files(paths)
    for path in files:
        top = _read(path)
        if top.fields["kind"] == "row":
            of_rows.append(read_row(top, path.name))
            continue
        is_set = top.fields["kind"] == "bench-set"
        for node in top.children("runs") if is_set else [top]:
            run, failed = _run(node, path.name)
            runs.append(run)
            failures += failed
        if is_set:
            failures += [Failure(entry.get("benchmark", str), entry.get("variant", str),
                                 entry.get("way", str) if entry.fields.get("way") is not None else "", entry.get("what", str))
                         for entry in top.children("failures")]
        if is_set and "turns" in top.fields:
            told = top.child("turns")
            turns.append(Turns(path.name, told.get("run", int), told.get("asked", int)))
    return Collection(tuple(path.name for path in files), tuple(runs), tuple(failures), tuple(turns), tuple(of_rows))


def write(path: Path, record: Mapping[str, Any]) -> None:
    """@param record  gets the schema's number; without a kind it is a row of an earlier version
    @throws OSError
    """
    output_file.write(path, json_text.compact({"schema": SCHEMA, "kind": "row", **record}))
