"""The measurements of all runs in one flat list, the parameters that distinguish them, and the main metric of each benchmark."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from larklane.numbers import wording
from larklane.records.benchmarks import BENCHMARKS, Benchmark, names
from larklane.records.schema import Collection, Context, Options, Point, Run, Series

PARTITIONED = "partitioned"
CALLS = "call-cost"  # its ways are calls
MESSAGES = names("messages", "lanes", "application")  # between threads; each way exists for an MPI and for Larklane
APPLICATIONS = names("application")
NO_MPI = "none"  # in place of the MPI's name
NO_OPTION = re.compile(r"LARKLANE_(BENCH_\w+|BOARD|JOB|MEET|RANK|SEED|SIZE|FAMILY|MPI|SPAWNED)")  # variables that launching sets
ELSEWHERE = frozenset(("version", "machine"))  # may differ between two measurements of one configuration
PLACEMENT = frozenset(("bindings", "openmp"))  # named only where they differ; a report's table of machines shows them


class Parameter(NamedTuple):
    """A property in which two measurements may differ. Values of one name can be sorted."""

    name: str
    value: Any
    label: str


def set_options(context: Context) -> dict[str, str]:
    """@return the user's variables, sorted, without those that launching sets"""
    return {name: value for name, value in sorted(context.environment.items()) if not NO_OPTION.fullmatch(name)}


def _placement(context: Context, bindings: tuple[str, ...]) -> tuple[Parameter, Parameter]:
    openmp = tuple((name, value) for name, value in set_options(context).items() if name.startswith("OMP_"))
    return (Parameter("bindings", bindings, f"bound to {' | '.join(dict.fromkeys(context.bindings)) or 'unknown'}"),
            Parameter("openmp", openmp, " ".join(f"{name}={value}" for name, value in openmp) or "no OMP_* variables"))


def _noise(options: Options) -> Parameter:
    kind = options.noise
    if kind == "none":
        return Parameter("noise", ("", 0.0), "no noise")
    if kind in ("single", "uniform", "gaussian", "exponential"):
        return Parameter("noise", (kind, options.noise_percent), f"{kind} noise {options.noise_percent:g} %")
    if kind.startswith("trace:"):
        return Parameter("noise", (kind, 0.0), f"recorded noise ({kind.rsplit('/', 1)[-1].removeprefix('trace:')})")
    return Parameter("noise", (kind, 0.0), f"{kind} noise")


def _workers(options: Options, context: Context) -> int:
    """@return the number of workers: processes in way `everywhere`, else the threads of all processes"""
    return context.ranks * (1 if options.is_everywhere else options.threads)


def _parameters_of_messages(options: Options, context: Context) -> tuple[Parameter, ...]:
    """Without the number of processes, which follows from the way, and without the MPI, which the case's title names."""
    cpu = context.machine.get("cpu", "unknown")
    of_kind = (Parameter("operation", options.operation, f"operation {options.operation}"), Parameter("window", options.window, f"window {options.window}"))
    if options.benchmark in APPLICATIONS:
        of_kind = (Parameter("workers", _workers(options, context), wording.count(_workers(options, context), "worker")),
                   Parameter("blocks", options.blocks, f"--blocks {options.blocks}" if options.blocks else "no --blocks"))
    return (
        Parameter("ranks", context.hosts, f"on {wording.count(context.hosts, 'host')}"),
        Parameter("threads", options.threads, wording.count(options.threads, "thread")),
        *of_kind,
        Parameter("lanes", options.lanes, f"{wording.count(options.lanes, 'lane')} shared"),
        Parameter("layout", options.layout, f"lanes {'on lines of their own' if options.layout == 'own' else options.layout}"),
        *_placement(context, tuple(dict.fromkeys(context.bindings))),
        Parameter("version", context.version, f"Larklane {context.version}"),
        Parameter("machine", cpu, cpu),
    )


def _parameters(options: Options, context: Context, point: Point) -> tuple[Parameter, ...]:
    if options.benchmark in MESSAGES:
        return _parameters_of_messages(options, context)
    sends, receives = point.send_partitions, point.recv_partitions
    split = wording.count(sends, "partition") if sends == receives else f"{sends} to {receives} partitions"
    grid = f" ({' x '.join(map(str, context.grid))})" if context.grid else ""
    where = f"{wording.count(context.ranks, 'rank')}{grid} on {wording.count(context.hosts, 'host')}"
    cpu = context.machine.get("cpu", "unknown")
    return (
        Parameter("mpi", context.mpi, context.mpi),
        Parameter("ranks", (context.ranks, context.hosts, context.grid), where),
        Parameter("threads", options.threads, wording.count(options.threads, "thread")),
        Parameter("partitions", (sends, receives), split),
        Parameter("compute", options.compute_ns, f"{wording.plain(options.compute_ns * 1e-6)} ms compute"),
        Parameter("split", options.compute_split, f"computed by {options.compute_split}"),
        _noise(options),
        Parameter("cache", ("hot", "cold").index(options.cache) if options.cache in ("hot", "cold") else 2, f"{options.cache} cache"),
        Parameter("scaling", options.scaling, f"{options.scaling} scaling"),
        Parameter("order", options.order, f"{options.order} order"),
        *_placement(context, context.bindings),
        Parameter("version", context.version, f"Larklane {context.version}"),
        Parameter("machine", cpu, cpu),
    )


@dataclass(frozen=True)
class Case:
    """One way at one point of one run."""

    run: Run
    point: Point
    series: Series
    parameters: tuple[Parameter, ...]

    @property
    def benchmark(self) -> str:
        return self.run.options.benchmark

    @property
    def variant(self) -> str:
        return self.run.context.variant

    @property
    def title(self) -> str:
        """The variant in words, with the options set for Larklane."""
        if self.benchmark in MESSAGES and self.variant == "native":
            return self.run.context.mpi
        options = set_options(self.run.context).items() if self.variant in ("larklane", "ordinary") else ()
        words = [f"{name.removeprefix('LARKLANE_')}={value}" for name, value in options if name.startswith("LARKLANE_")]
        words += [f"{name.removeprefix('LCI_ATTR_')}={value}" for name, value in set_options(self.run.context).items() if self.variant == "lci" and name.startswith("LCI_ATTR_")]
        asked = self.run.options
        words += [f"{name}={value}" for name, value, usual in (("completion", asked.completion, "queue"), ("progress", asked.progress, "workers"))
                  if value not in ("", usual)]
        words += ["more-follow"] * asked.more_follow
        return " ".join([wording.VARIANTS.get(self.variant, self.variant), *words])

    @property
    def way(self) -> str:
        return self.series.way

    @property
    def partitions(self) -> int:
        return self.point.send_partitions

    def key(self, *without: str) -> tuple[Parameter, ...]:
        """The parameters but those named: equal for measurements that may be shown side by side."""
        return tuple(parameter for parameter in self.parameters if parameter.name not in without)

    def of(self, series: Series) -> "Case":
        """Another way at the same point of the same run."""
        return Case(self.run, self.point, series, self.parameters)

    @property
    def again(self) -> "Case | None":
        """The second series of the baseline: A/A noise."""
        return next((self.of(series) for series in self.point.series if series.way.endswith("'") and series.samples), None)

    @property
    def baseline(self) -> "Case | None":
        series = self.point.baseline
        return self.of(series) if series else None


def measured(collection: Collection) -> list[Case]:
    """@return all valid series: a refused way, or one with wrong data in any round, has none"""
    return [
        Case(run, point, series, _parameters(run.options, run.context, point))
        for run in collection.runs
        for point in run.points
        for series in point.series
        if series.samples and not series.wrong and not series.way.endswith("'")
    ]


def pooled(cases: Sequence[Case]) -> Case:
    """Pool launches of one configuration: one case with the rounds of all.

    @param cases  cases of one way at one size, not empty
    """
    first, *others = cases
    if not others:
        return first
    series = []
    for own in first.point.series:
        same = [found for case in cases for found in case.point.series if found.way == own.way]
        samples = {name: tuple(value for found in same for value in found.samples.get(name, ())) for name in own.samples}
        series.append(replace(own, samples=samples))
    point = replace(first.point, series=tuple(series))
    return replace(first, point=point, series=next(found for found in series if found.way == first.way))


def varying(cases: Iterable[Case]) -> set[str]:
    """Names of the parameters that are not the same in all cases."""
    values: dict[str, set[Any]] = {}
    for case in cases:
        for parameter in case.parameters:
            values.setdefault(parameter.name, set()).add(parameter.value)
    return {name for name, found in values.items() if len(found) > 1}


def labels(parameters: Iterable[Parameter], names: set[str] | None = None) -> str:
    """ "hot cache, 10 ms compute": those of `names`, or all."""
    return ", ".join(parameter.label for parameter in parameters if names is None or parameter.name in names)


@dataclass(frozen=True)
class Metric:
    """A metric of a series, one value a round."""

    name: str
    unit: str
    better: str  # "higher", "lower"
    scale: str  # of its axis: "log"; "linear"; "share": percent, differences instead of ratios
    what: str
    values: Callable[[Case], list[float]]
    refers: bool = False  # its values are relative to the median total time of the baseline in the same run
    baseline_is_constant: bool = False  # constant for one send, so its second series shows no noise

    @property
    def is_share(self) -> bool:
        return self.scale == "share"

    @property
    def label(self) -> str:
        return f"{self.name} [{self.unit}]"

    def text(self, value: float) -> str:
        if self.unit == "µs":
            return wording.duration(value * 1e3)
        return f"{round(value, 1) + 0.0:.1f} %" if self.is_share else f"{wording.number(value)} {self.unit}".strip()


def _scaled(name: str, factor: float) -> Callable[[Case], list[float]]:
    return lambda case: [factor * value for value in case.series.samples.get(name, ())]


def _headline(row: Benchmark) -> Metric:
    sample = row.sample if row.formula == "plain" else row.name  # the record also holds the formula's result
    unit = (row.report_unit or row.unit).replace("us", "µs")
    return Metric(row.report_name or row.headline, unit, row.better, "share" if row.is_share else row.axis, row.meaning, _scaled(sample, row.scale),
                  refers=row.formula != "plain", baseline_is_constant=row.has_constant_baseline)


HEADLINES = {row.name: _headline(row) for row in BENCHMARKS.values() if row.meaning}
EXPOSED = Metric("exposed time", "µs", "lower", "log", "Time from the last thread's end to the last arrival: the communication that a "
                 "program waits for.", _scaled("exposed_ns", 1e-3))


SAMPLES = {
    "throughput_bps": "Bytes that all processes receive in a step, over the step's time (ICPP'22, section 4.6).",
    "step_ns": "Time of a step, computing included, of the slowest process.",
    "round_trip_ns": "Time of a message there and one back.",
    "half_round_trip_ns": "Half the time of a message there and one back.",
    "call_ns": "What a call takes.",
    "get_ns": "Until a get is posted; of bspmm, two of them.",
    "flush_ns": "From then until the block is there.",
    "get_flush_ns": "From then until both tiles are there.",
    "accumulate_ns": "Until an accumulate of a tile is posted.",
    "accumulate_flush_ns": "From then until the tile is added to the owner's.",
    "counter_ns": "A fetch-and-add on the counter that deals out the work.",
    "multiply_ns": "The product of two tiles, once they are there.",
}


def sample_metric(name: str) -> Metric:
    """A metric for a sample of a benchmark that has no formula of its own here; the unit is in the name."""
    title = name.rpartition("_")[0].replace("_", " ")
    what = SAMPLES.get(name, "")
    if name.endswith("_bps"):
        return Metric(title, "MB/s", "higher", "log", what, _scaled(name, 1e-6))
    if name.endswith("_ns"):
        return Metric(title, "µs", "lower", "log", what, _scaled(name, 1e-3))
    return Metric(name.replace("_", " "), "", "lower", "linear", what, _scaled(name, 1))


def metrics(cases: Sequence[Case]) -> list[Metric]:
    """@return the metrics of a benchmark's cases, the most important first

    @param cases  not empty
    """
    if cases[0].benchmark in HEADLINES:
        return [HEADLINES[cases[0].benchmark]]
    names = sorted({name for case in cases for name in case.series.samples})
    return [sample_metric(name) for name in sorted(names, key=lambda name: (not name.endswith("_bps"), name not in SAMPLES))]


def by_benchmark(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """@return cases by benchmark, in the order of the papers, then of appearance"""
    found: dict[str, list[Case]] = {name: [] for name in HEADLINES}
    for case in cases:
        found.setdefault(case.benchmark, []).append(case)
    return {name: group for name, group in found.items() if group}


def line_ways(cases: Sequence[Case]) -> list[Case]:
    """Drop cases that a figure would show twice: ways other than partitions are the MPI's own calls under Larklane, too."""
    native = {(case.way, case.point.bytes, case.key()) for case in cases if case.variant == "native"}
    return [case for case in cases if case.way == PARTITIONED or case.benchmark in MESSAGES or case.variant == "native"
            or (case.way, case.point.bytes, case.key()) not in native]
