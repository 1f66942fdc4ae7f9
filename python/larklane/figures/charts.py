"""The contents of figures, as numbers: the measurements of each curve of each panel. plot.py draws them; CSV files hold them.

The figures are those of Temucin et al., ICPP'22, of Dosanjh and Grant, SAND2019-11403, and of Zambre et al., ICS'20, where
records hold the data.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from larklane.comparison.projection import Projection
from larklane.numbers import wording
from larklane.numbers.stats import median, quantile
from larklane.records import benchmarks
from larklane.records.cases import CALLS, ELSEWHERE, EXPOSED, MESSAGES, NO_MPI, PARTITIONED, PLACEMENT, Case, Metric, Parameter, by_benchmark, labels, line_ways, metrics, sample_metric, varying
from larklane.records.schema import Trace

PANELS_MAX = 12
ARRIVAL_WAYS = ("join", "single", "threads", "multiple", PARTITIONED)
COUNTED = ("partitions", "threads")  # parameters that differ with partition counts

class Mark(NamedTuple):
    """One point of a curve."""

    at: int  # bytes, or the value of the chart's other x axis
    n: int
    p10: float
    median: float
    p90: float


@dataclass(frozen=True)
class Curve:
    """One line: a colour per way, a style per variant; a shade, 0 to 1, if several lines show one way."""

    label: str
    way: str
    variant: str
    marks: tuple[Mark, ...]
    order: tuple[Any, ...]
    shade: float | None = None


@dataclass(frozen=True)
class Panel:
    """Curves that differ only in the properties that the legend shows."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Figure:
    """The properties that all figures share."""

    name: str
    title: str
    caption: str
    footer: str
    stamp: str  # why its figures must not be quoted; empty: they may be

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the plotted values as rows, the names of the columns first."""
        raise NotImplementedError

    def csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.rows())
        return text.getvalue()


@dataclass(frozen=True)
class Chart(Figure):
    """A metric over the message size, or over the number of threads."""

    label: str
    scale: str
    panels: tuple[Panel, ...]
    columns: int  # 0: chosen by the number of panels
    over: str = "bytes"  # "threads"

    def rows(self) -> Iterator[tuple[Any, ...]]:
        yield "panel", "curve", "way", "variant", self.over, "n", "p10", "median", "p90", "metric"
        for panel in self.panels:
            for curve in panel.curves:
                for mark in curve.marks:
                    numbers = (f"{value:.6g}" for value in mark[2:])
                    yield panel.title, curve.label, curve.way, curve.variant, *mark[:2], *numbers, self.label


class Bar(NamedTuple):
    """One part in transit, microseconds after the join (negative: before)."""

    begin_us: float
    end_us: float
    bytes: int


@dataclass(frozen=True)
class ArrivalPanel:
    """One round of one way."""

    title: str
    way: str
    variant: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Arrivals(Figure):
    """When parts were ready and when they arrived, in one round of each way."""

    panels: tuple[ArrivalPanel, ...]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        yield "panel", "way", "variant", "part", "begin_us", "end_us", "bytes"
        for panel in self.panels:
            for part, bar in enumerate(panel.bars):
                yield panel.title, panel.way, panel.variant, part, f"{bar.begin_us:.3f}", f"{bar.end_us:.3f}", bar.bytes


@dataclass(frozen=True)
class Speedups(Figure):
    """Projected speed-ups of programs."""

    projections: tuple[Projection, ...]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        yield "label", "communication_share", "communication_speedup", "program_speedup"
        for p in self.projections:
            yield p.label, f"{p.share:.6g}", f"{p.speedup:.6g}", f"{p.result:.6g}"


def _ordered(values: Iterable[Any]) -> list[Any]:
    return sorted(dict.fromkeys(values))


def footer(cases: Sequence[Case]) -> str:
    """Machine, version, MPI, number of rounds."""
    contexts = list(dict.fromkeys((case.run.context.machine.get("cpu", "unknown"), case.run.context.machine.get("cores", "?"),
                                   case.run.context.machine.get("kernel", "?"), case.run.context.machine.get("governor", "unknown"),
                                   case.run.context.machine.get("turbo", "unknown")) for case in cases))
    machines = [f"{cpu}, {cores} cores, Linux {kernel}, governor {governor}, turbo {turbo}"
                for cpu, cores, kernel, governor, turbo in contexts]
    versions = _ordered(f"Larklane {case.run.context.version} ({case.run.context.build or 'unknown'})" for case in cases)
    mpis = _ordered(case.run.context.mpi for case in cases if case.run.context.mpi != NO_MPI)
    counts = _ordered(len(values) for case in cases for values in case.series.samples.values())
    n = f"n = {counts[0]}" if counts[0] == counts[-1] else f"n = {counts[0]} to {counts[-1]}"
    return "; ".join(filter(None, (" | ".join(machines), ", ".join(versions), ", ".join(mpis), f"{n} rounds a point")))


def stamp(cases: Iterable[Case]) -> str:
    reasons = list(dict.fromkeys(reason for case in cases for reason in case.run.context.why_not_publishable()))
    return f"not publishable: {', '.join(reasons)}" if reasons else ""


def _marks(cases: Iterable[Case], metric: Metric) -> tuple[Mark, ...]:
    """@return the marks of a curve; cases of one size are pooled"""
    return _marks_over(lambda case: case.point.bytes, cases, metric)


def _marks_over(place: Callable[[Case], int], cases: Iterable[Case], metric: Metric) -> tuple[Mark, ...]:
    found: dict[int, list[float]] = {}
    for case in cases:
        found.setdefault(place(case), []).extend(metric.values(case))
    return tuple(Mark(at, len(values), quantile(values, 0.1), median(values), quantile(values, 0.9))
                 for at, values in sorted(found.items()) if values)


def _sort_key(parameters: Iterable[Parameter]) -> tuple[Any, ...]:
    return tuple(parameter.value for parameter in parameters)


@dataclass(frozen=True)
class _Plan:
    """How cases become a chart: the properties that a panel shares, and those that distinguish its curves."""

    name: str
    metric: Metric
    hidden: tuple[str, ...]  # parameters that the curves show
    curve: Callable[[Case], Curve]  # without marks
    by: str = ""  # added to the title
    by_variant: bool = False  # a panel for each
    source: str | None = None  # None: the benchmark's


def _chart(plan: _Plan, cases: Sequence[Case]) -> list[Chart]:
    """@return one chart for every PANELS_MAX panels"""
    names = varying(cases) - set(plan.hidden)
    first = cases[0].key(*plan.hidden, "mpi", *ELSEWHERE, *PLACEMENT)
    shared = labels(first, {parameter.name for parameter in first} - names)
    variants = plan.by_variant and len({case.title for case in cases})
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for case in cases:
        side = (case.variant != "native", case.title) if plan.by_variant else (False, "")
        groups.setdefault((case.key(*plan.hidden), side), []).append(case)
    panels = []
    for (key, (_, side_title)), group in sorted(groups.items(), key=lambda item: (_sort_key(item[0][0]), item[0][1])):
        curves: dict[Curve, list[Case]] = {}
        for case in group:
            curves.setdefault(plan.curve(case), []).append(case)
        drawn = [replace(curve, marks=_marks(members, plan.metric)) for curve, members in curves.items()]
        title = ", ".join(filter(None, (side_title if variants > 1 else "", labels(key, names))))
        panels.append(Panel(title, tuple(sorted((c for c in drawn if c.marks), key=lambda c: c.order))))
    panels = [panel for panel in panels if panel.curves]
    row = benchmarks.of(cases[0].benchmark)
    title = row.title or f"{row.name.capitalize()}: {plan.metric.name}"
    source = row.source if plan.source is None else plan.source
    inner = [parameter.value for case in cases for parameter in case.key(*plan.hidden) if parameter.name == _last(cases[0], names)]
    columns = variants if variants in (2, 3) else len(set(inner)) if len(set(inner)) in (2, 3) and len(panels) % len(set(inner)) == 0 else 0
    about = f"{shared[:1].upper()}{shared[1:]}." if shared else ""
    caption = " ".join(filter(None, (plan.metric.what, about, "Line: median; band: p10 to p90.", source)))
    return [
        Chart(plan.name + (f"-{first // PANELS_MAX + 1}" if first else ""), f"{title}{plan.by}", caption, footer(cases), stamp(cases),
              plan.metric.label, plan.metric.scale, tuple(panels[first:first + PANELS_MAX]), columns)
        for first in range(0, len(panels), PANELS_MAX)
    ]


def _last(case: Case, names: set[str]) -> str:
    """The parameter that changes fastest from panel to panel."""
    return next((parameter.name for parameter in reversed(case.parameters) if parameter.name in names), "")


def _of_way(case: Case) -> Curve:
    name = wording.way(case.way)
    label = f"{name}, {case.title}" if case.way == PARTITIONED or case.benchmark in MESSAGES else name
    ways = list(wording.WAYS)
    rank = ways.index(case.way) if case.way in ways else len(ways)
    return Curve(label, case.way, case.variant, (), (rank, case.variant != "native", label))


def _of_parameter(cases: Sequence[Case], *names: str) -> Callable[[Case], Curve]:
    """Curves of one way, distinguished by these parameters."""
    differing = varying(cases)
    shown = {name for name in names if name in differing}
    if "partitions" in shown and all(case.run.options.threads == case.partitions for case in cases):
        shown.discard("threads")

    def value(case: Case) -> tuple[Any, ...]:
        return tuple(parameter.value for parameter in case.parameters if parameter.name in names)

    values = _ordered(map(value, cases))

    def curve(case: Case) -> Curve:
        at = values.index(value(case))
        return Curve(labels(reversed(case.parameters), shown), case.way, case.variant, (), (at,), at / max(len(values) - 1, 1))

    return curve


def _benchmark_charts(cases: Sequence[Case]) -> Iterator[Chart]:
    benchmark, metric = cases[0].benchmark, metrics(cases)[0]
    if benchmark != "lanes" or len({case.point.bytes for case in cases}) > 1:
        yield from _chart(_Plan(benchmark, metric, (), _of_way), line_ways(cases))
    parts = [case for case in cases if case.way == PARTITIONED]
    differing = varying(parts)
    if "partitions" in differing:
        yield from _chart(_Plan(f"{benchmark}-partitions", metric, COUNTED, _of_parameter(parts, *COUNTED),
                                " By number of partitions", True), parts)
    if "noise" in differing:
        yield from _chart(_Plan(f"{benchmark}-noise", metric, ("noise",), _of_parameter(parts, "noise"), " By noise", True), parts)
    if benchmark == "recv-compute" and parts:
        yield from _against_communication(parts, metric)
    row = benchmarks.of(benchmark)
    for of_part in map(sample_metric, filter(None, row.parts.split(","))):
        yield from _chart(_Plan(f"{benchmark}-{of_part.name.replace(' ', '-')}", of_part, (), _of_way, f" {of_part.name.capitalize()}", source=row.parts_source), cases)
    if benchmark in MESSAGES and "threads" in varying(cases):
        yield _over_threads(cases, metric)


def _over_threads(cases: Sequence[Case], metric: Metric) -> Chart:
    """A panel for the smallest size, one for the largest, and one between them."""
    sizes = _ordered(case.point.bytes for case in cases)
    names = varying(cases) - {"threads", "workers"}
    first = cases[0].key("threads", "workers", *ELSEWHERE, *PLACEMENT)
    groups: dict[tuple[Any, ...], dict[Curve, list[Case]]] = {}
    for case in cases:
        if case.point.bytes in (sizes[0], sizes[len(sizes) // 2], sizes[-1]):
            groups.setdefault((case.point.bytes, case.key("threads", "workers")), {}).setdefault(_of_way(case), []).append(case)
    panels = []
    for (size, key), curves in sorted(groups.items(), key=lambda item: (item[0][0], _sort_key(item[0][1]))):
        drawn = [replace(curve, marks=_marks_over(lambda case: case.run.options.threads, members, metric)) for curve, members in curves.items()]
        title = ", ".join(filter(None, (wording.size(size), labels(key, names))))
        panels.append(Panel(title, tuple(sorted((c for c in drawn if c.marks), key=lambda c: c.order))))
    shared = labels(first, {parameter.name for parameter in first} - names)
    row = benchmarks.of(cases[0].benchmark)
    figure = f" {row.threads_source}" if row.threads_source else ""
    caption = f"{metric.what} {shared[:1].upper()}{shared[1:]}. Line: median; band: p10 to p90.{figure}"
    return Chart(f"{cases[0].benchmark}-threads", f"{row.title} By number of threads", caption, footer(cases), stamp(cases),
                 metric.label, metric.scale, tuple(panels[:PANELS_MAX]), 0, "threads")


def _against_communication(parts: Sequence[Case], metric: Metric) -> Iterator[Chart]:
    """Extra compute time beside exposed time: two curves for each variant."""
    times = replace(metric, name="time", what="How much longer the receiver could compute on parts that are there (extra compute time), "
                    "beside the communication that the program waits for (exposed time).")
    exposed = _chart(_Plan("recv-compute-communication", replace(times, values=EXPOSED.values), (), _named("exposed time", "join")), parts)
    extra = _chart(_Plan("recv-compute-communication", times, (), _named("extra compute time", PARTITIONED)), parts)
    for first, second in zip(extra, exposed):
        panels = (Panel(a.title, a.curves + b.curves) for a, b in zip(first.panels, second.panels))
        yield replace(first, panels=tuple(panels))


def _named(name: str, colour_of: str) -> Callable[[Case], Curve]:
    def curve(case: Case) -> Curve:
        return Curve(f"{name}, {case.title}", colour_of, case.variant, (), (name, case.variant != "native", case.title))

    return curve


def _bars(trace: Trace) -> tuple[Bar, ...]:
    return tuple(Bar((t.begin_ns - trace.joined_ns) * 1e-3, (t.end_ns - trace.joined_ns) * 1e-3, t.bytes) for t in trace.transfers)


def _typical(traces: Sequence[Trace]) -> Trace:
    """@return the trace with the median end"""
    ordered = sorted(traces, key=lambda trace: max(t.end_ns for t in trace.transfers) - trace.joined_ns)
    return ordered[(len(ordered) - 1) // 2]


def arrivals(cases: Sequence[Case]) -> Arrivals | None:
    """The arrivals at the most informative point: with noise, both variants, many parts of a large message."""
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for case in cases:
        if case.series.traces and case.way in ARRIVAL_WAYS:
            groups.setdefault((case.benchmark, case.key(*ELSEWHERE), case.point.bytes), []).append(case)

    def worth(group: list[Case]) -> tuple[Any, ...]:
        parts = {case.variant for case in group if case.way == PARTITIONED}
        return len(parts), group[0].benchmark == "early-bird", group[0].run.options.noise != "none", min(group[0].partitions, 16), \
            group[0].point.bytes

    if not groups:
        return None
    group = max(groups.values(), key=worth)
    shown = {(_of_way(case).order, case.variant != "native"): case for case in reversed(line_ways(group))}
    panels = [ArrivalPanel(_of_way(case).label, case.way, case.variant, _bars(_typical(case.series.traces)))
              for _, case in sorted(shown.items())]
    one = group[0]
    unsaid = ELSEWHERE | PLACEMENT - varying(cases)
    caption = (f"One round of each way, {wording.size(one.point.bytes)}, {labels(one.key(*unsaid))}. A bar: a part from the "
               "moment when its thread has it ready to its arrival. Left of the join: communication that computation hides.")
    return Arrivals("arrivals", "When do the parts arrive?", caption, footer(group), stamp(group), tuple(panels))


def speedups(projections: Sequence[Projection]) -> Speedups:
    """@param projections  not empty"""
    caption = ("A program of which a share is point-to-point communication that gets faster by the factor at the curve, all else "
               "staying as it is: 1 / (1 - share + share / factor). A projection, not a measurement. ICPP'22, section 4.8, figure 13")
    return Speedups("projection", "What may a whole program gain?", caption, "", "", tuple(projections))


def figures(cases: Sequence[Case], projections: Sequence[Projection] = ()) -> list[Figure]:
    """Every figure that the records hold data for, in the order of the papers."""
    found: list[Figure] = []
    picture = arrivals(cases)
    if picture:
        found.append(picture)
    for benchmark, group in by_benchmark(cases).items():
        if benchmark != CALLS:
            found += _benchmark_charts(group)
    if projections:
        found.append(speedups(projections))
    return found
