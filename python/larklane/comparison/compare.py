"""Comparison of runs at equal parameters: the difference, its significance, and whether it exceeds the noise."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from larklane.numbers import wording
from larklane.numbers.stats import RankTest, bootstrap, mann_whitney, median
from larklane.records.cases import CALLS, ELSEWHERE, MESSAGES, PARTITIONED, Case, Metric, metrics, pooled

SURE = 0.01  # p below which a difference counts


@dataclass(frozen=True)
class Comparison:
    """Two series of one metric. For shares, `change`, `interval` and `noise` are differences in percentage
    points, 0 is equal; for other metrics they are ratios, candidate over baseline, 1 is equal."""

    candidate: Case
    baseline: Case
    metric: Metric
    names: tuple[str, str]  # of the candidate, of the baseline
    medians: tuple[float, float]
    change: float
    interval: tuple[float, float]  # 95 %
    noise: float | None  # largest distance of equal series: a difference, or a ratio >= 1; None: not measured
    test: RankTest  # the candidate first

    @property
    def verdict(self) -> str:
        """`better` or `worse`: significant, and the whole interval lies beyond the noise. Otherwise `no clear difference`."""
        low, high = self.interval
        limit = self.noise if self.noise is not None else (0.0 if self.metric.is_share else 1.0)
        up, down = (low > limit, high < -limit) if self.metric.is_share else (low > limit, high < 1 / limit)
        if self.test.p >= SURE or not (up or down):
            return "no clear difference"
        return "better" if up == (self.metric.better == "higher") else "worse"

    def factor(self) -> str:
        """ "2.1 times (95 %: 1.9 to 2.3)"."""
        low, high = self.interval
        if self.metric.is_share:
            return f"{self.change:+.1f} points (95 %: {low:+.1f} to {high:+.1f})"
        return f"{wording.number(self.change)} times (95 %: {wording.number(low)} to {wording.number(high)})"

    def sureness(self) -> str:
        """ "A/A noise 1.04, p < 0.001, above in 97 % of all pairs"."""
        if self.noise is None:
            noise = "A/A noise not measured"
        else:
            noise = f"A/A noise {self.noise:.1f} points" if self.metric.is_share else f"A/A noise {self.noise:.2f} times"
        return f"{noise}, {wording.probability(self.test.p)}, higher in {100 * self.test.above:.0f} % of all pairs of rounds"

    def sentence(self) -> str:
        candidate, baseline = (self.metric.text(value) for value in self.medians)
        return (f"{self.verdict[:1].upper()}{self.verdict[1:]}: {self.metric.name} {candidate} ({self.names[0]}) against {baseline} "
                f"({self.names[1]}), {self.factor()}; {self.sureness()}.")


def _apart(metric: Metric, first: Sequence[float], second: Sequence[float]) -> float:
    """The distance of two medians: a difference, or a ratio >= 1."""
    a, b = median(first), median(second)
    return abs(a - b) if metric.is_share else max(a / b, b / a) if a > 0 and b > 0 else 1.0


def _own_calls(*cases: Case) -> list[Case]:
    """The baselines of two runs if both are the same calls of the MPI: equal series, for any variant."""
    bases = [case.baseline for case in cases if case.baseline and case.baseline.way != PARTITIONED and case.benchmark not in (CALLS, *MESSAGES)]
    return [base for base in bases if base] if len(bases) == 2 and bases[0].way == bases[1].way else []


def noise_of(metric: Metric, *cases: Case) -> float | None:
    """The largest distance of equal series: a run's baseline and its second series; and both baselines of two runs
    if they are the MPI's own calls. None for calls, since an empty call is no measure of the others, and for metrics that are
    constant for a single send."""
    if metric.baseline_is_constant:
        return None
    found = []
    for case in cases if cases[0].benchmark != CALLS else ():
        again, first = case.again, case.baseline
        if again and first and metric.values(again) and metric.values(first):
            found.append(_apart(metric, metric.values(first), metric.values(again)))
    if bases := _own_calls(*cases):
        found += _baselines_apart(metric, cases[0], bases)
    return max(found, default=None)


def _sends_ns(case: Case) -> Sequence[float]:
    """The reference of a case's values: the total times of the first way of its run."""
    return case.baseline.series.samples.get("total_ns", ()) if case.baseline else ()


def _baselines_apart(metric: Metric, candidate: Case, bases: Sequence[Case]) -> list[float]:
    """A metric relative to a baseline is 1 or 0 for it by construction, so compare the times themselves."""
    if not metric.refers:
        return [_apart(metric, *map(metric.values, bases))] if all(map(metric.values, bases)) else []
    if not all(map(_sends_ns, bases)):
        return []
    first, second = map(median, map(_sends_ns, bases))
    ratio = max(first / second, second / first)
    return [abs(100 - median(metric.values(candidate))) * (ratio - 1)] if metric.is_share else [ratio]


def _rebased(metric: Metric, value: float, drawn_ns: float, base_ns: float) -> float:
    """`value`, relative to base_ns, recomputed relative to drawn_ns."""
    return 100 - (100 - value) * base_ns / drawn_ns if metric.is_share else value * base_ns / drawn_ns


def _interval(metric: Metric, candidate: Case, baseline: Case, change: Callable[[float, float], float]) -> tuple[float, float]:
    """The 95 % interval. Between runs the bootstrap also draws the single sends that each side refers to."""
    sides = metric.values(candidate), metric.values(baseline)
    sends = _sends_ns(candidate), _sends_ns(baseline)
    if not metric.refers or candidate.run is baseline.run or not all(sends):
        return bootstrap(change, *sides)
    ours_ns, theirs_ns = map(median, sends)

    def rebased(ours: float, theirs: float, first_ns: float, second_ns: float) -> float:
        return change(_rebased(metric, ours, first_ns, ours_ns), _rebased(metric, theirs, second_ns, theirs_ns))

    return bootstrap(rebased, *sides, *sends)


def compare(candidate: Case, baseline: Case, metric: Metric, names: tuple[str, str]) -> Comparison | None:
    """@return None if a side has no samples of the metric, a ratio would divide by 0, or the sides refer to different ways"""
    ours, theirs = metric.values(candidate), metric.values(baseline)
    if not ours or not theirs or (not metric.is_share and min(*ours, *theirs) <= 0):
        return None
    if metric.refers and candidate.baseline and baseline.baseline and candidate.baseline.way != baseline.baseline.way:
        return None

    def change(first: float, second: float) -> float:
        return first - second if metric.is_share else first / second

    cases = (candidate,) if candidate.run is baseline.run else (candidate, baseline)
    medians = median(ours), median(theirs)
    return Comparison(candidate, baseline, metric, names, medians, change(*medians), _interval(metric, candidate, baseline, change),
                      noise_of(metric, *cases), mann_whitney(ours, theirs))


def _groups(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Partitioned series, calls, and messages, grouped by equal parameters, native cases first, then in the order of the files. Equal
    launches of one file are pooled."""
    found: dict[object, dict[object, list[Case]]] = {}
    for case in cases:
        if case.way == PARTITIONED or case.benchmark in (CALLS, *MESSAGES):
            launches = found.setdefault((case.benchmark, case.way, case.key(*ELSEWHERE), case.point.bytes), {})
            launches.setdefault((case.title, case.run.context.version, case.run.source), []).append(case)
    for launches in found.values():
        yield sorted(map(pooled, launches.values()), key=lambda case: case.variant != "native")


def _titles(first: Case, second: Case) -> tuple[str, str]:
    """@return the names of two runs, with their first difference"""
    ours, theirs = first.title, second.title
    if ours != theirs:
        return ours, theirs
    for one, other in ((first.run.context.version, second.run.context.version), (first.run.source, second.run.source)):
        if one != other:
            return f"{ours}, {one}", f"{theirs}, {other}"
    return f"{ours}, later", f"{theirs}, earlier"


def between_runs(cases: Sequence[Case]) -> list[Comparison]:
    """Partitions: Larklane against native, of the same file if possible. Messages: also against LCI. Later runs of a variant: against the first."""
    found = []
    for group in _groups(cases):
        first: dict[str, Case] = {}
        for case in group:
            variant = case.variant
            for baseline in ("native", "lci") if variant == "larklane" else ():
                others = [other for other in group if other.variant == baseline]
                same = [other for other in others if other.run.source == case.run.source]
                found += [(case, other) for other in (same or others)[-1:]]
            if variant in first:
                found.append((case, first[variant]))
            first.setdefault(variant, case)
    made = [compare(ours, theirs, metrics([ours])[0], _titles(ours, theirs)) for ours, theirs in found]
    return [comparison for comparison in made if comparison]


def within_runs(cases: Sequence[Case]) -> list[Comparison]:
    """Partitions against the first way of the same run, as a rule one send after the join."""
    found = []
    for case in itertools.chain.from_iterable(_groups(cases)):
        baseline = case.baseline
        if baseline and baseline.way != PARTITIONED and case.way == PARTITIONED:
            names = (f"partitions, {case.title}", wording.way(baseline.way))
            made = compare(case, baseline, metrics([case])[0], names)
            if made:
                found.append(made)
    return found
