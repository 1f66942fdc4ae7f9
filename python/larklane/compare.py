"""Runs side by side at equal parameters: by how much they differ, how sure that is, and whether it is more than noise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from larklane import wording
from larklane.cases import CALLS, ELSEWHERE, PARTITIONED, Case, Metric, metrics
from larklane.stats import RankTest, bootstrap, mann_whitney, median

SURE = 0.01  # p below which a difference counts


@dataclass(frozen=True)
class Comparison:
    """Two series of one metric. For a metric that is a share, `change`, `interval` and `noise` are differences in percentage
    points, 0 is equal; for all others ratios, candidate over baseline, 1 is equal."""

    candidate: Case
    baseline: Case
    metric: Metric
    names: tuple[str, str]  # of the candidate, of the baseline
    medians: tuple[float, float]
    change: float
    interval: tuple[float, float]  # 95 %
    noise: float | None  # how far equal things were apart: a difference, or a ratio >= 1; None: not measured
    test: RankTest  # the candidate first

    @property
    def verdict(self) -> str:
        """`better`, `worse`, `no clear difference`: sure, the whole interval beyond what noise alone does, or neither."""
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
    """How far two medians are apart: a difference, or a ratio >= 1."""
    a, b = median(first), median(second)
    return abs(a - b) if metric.is_share else max(a / b, b / a) if a > 0 and b > 0 else 1.0


def noise_of(metric: Metric, *cases: Case) -> float | None:
    """The largest difference between equal things: a run's baseline and its second series; and, of two runs, both baselines
    if they are the MPI's own calls, which are the same in both. None for calls: an empty one says nothing of the others."""
    found = []
    for case in cases if cases[0].benchmark != CALLS else ():
        again, first = case.again, case.baseline
        if again and first and metric.values(again) and metric.values(first):
            found.append(_apart(metric, metric.values(first), metric.values(again)))
    bases = [case.baseline for case in cases if case.baseline and case.baseline.way != PARTITIONED and case.benchmark != CALLS]
    if len(bases) == 2 and bases[0].way == bases[1].way and metric.values(bases[0]) and metric.values(bases[1]):
        found.append(_apart(metric, metric.values(bases[0]), metric.values(bases[1])))
    return max(found, default=None)


def compare(candidate: Case, baseline: Case, metric: Metric, names: tuple[str, str]) -> Comparison | None:
    """None if one has no samples of the metric, or a ratio would divide by nothing."""
    ours, theirs = metric.values(candidate), metric.values(baseline)
    if not ours or not theirs or (not metric.is_share and min(*ours, *theirs) <= 0):
        return None

    def change(first: float, second: float) -> float:
        return first - second if metric.is_share else first / second

    cases = (candidate,) if candidate.run is baseline.run else (candidate, baseline)
    medians = median(ours), median(theirs)
    return Comparison(candidate, baseline, metric, names, medians, change(*medians), bootstrap(change, ours, theirs),
                      noise_of(metric, *cases), mann_whitney(ours, theirs))


def _groups(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Partitioned series, and calls, at equal parameters, native ones first, then in the order of the files."""
    found: dict[object, list[Case]] = {}
    for case in cases:
        if case.way == PARTITIONED or case.benchmark == CALLS:
            found.setdefault((case.benchmark, case.way, case.key(*ELSEWHERE), case.point.bytes), []).append(case)
    for group in found.values():
        yield sorted(group, key=lambda case: case.variant != "native")


def _titles(first: Case, second: Case) -> tuple[str, str]:
    """What tells two runs apart, in words."""
    ours, theirs = first.title, second.title
    if ours != theirs:
        return ours, theirs
    for one, other in ((first.run.context.version, second.run.context.version), (first.run.source, second.run.source)):
        if one != other:
            return f"{ours}, {one}", f"{theirs}, {other}"
    return f"{ours}, later", f"{theirs}, earlier"


def between_runs(cases: Sequence[Case]) -> list[Comparison]:
    """Partitions: Larklane against native, from the same file if there is one; and later runs of a variant against the first."""
    found = []
    for group in _groups(cases):
        first: dict[str, Case] = {}
        for case in group:
            variant = case.variant
            natives = [other for other in group if other.variant == "native"]
            if variant != "native" and natives:
                same = [other for other in natives if other.run.source == case.run.source]
                found.append((case, (same or natives)[-1]))
            if variant in first:
                found.append((case, first[variant]))
            first.setdefault(variant, case)
    made = [compare(ours, theirs, metrics([ours])[0], _titles(ours, theirs)) for ours, theirs in found]
    return [comparison for comparison in made if comparison]


def within_runs(cases: Sequence[Case]) -> list[Comparison]:
    """Partitions against the first way of the same run, as a rule one send after the join."""
    found = []
    for case in cases:
        baseline = case.baseline
        if case.way == PARTITIONED and baseline and baseline.way != PARTITIONED and case.benchmark != CALLS:
            names = (f"partitions, {case.title}", wording.way(baseline.way))
            made = compare(case, baseline, metrics([case])[0], names)
            if made:
                found.append(made)
    return found
