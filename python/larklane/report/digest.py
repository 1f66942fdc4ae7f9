"""The contents of a report, for text and page alike."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from larklane.comparison.advice import Advice, advise, by_sizes, gaps, reason
from larklane.comparison.compare import Comparison, between_runs, within_runs
from larklane.comparison.gains import OUTCOME_HEADS, bought, cost_sentences, cost_word, is_cost, outcome_rows, outcome_sentences
from larklane.comparison.projection import Projection
from larklane.figures.charts import Figure, figures
from larklane.numbers import wording
from larklane.numbers.stats import summary
from larklane.records.cases import CALLS, ELSEWHERE, HEADLINES, MESSAGES, PARTITIONED, PLACEMENT, Case, Metric, Parameter, by_benchmark, labels, measured, metrics, pooled, set_options, varying
from larklane.records.schema import Collection

SETTINGS = {"mpi", "ranks", "split", "scaling", "order", *PLACEMENT}  # usually equal for all runs of a benchmark
ONE_SEND = ("join", "persistent", "single")
TYPICAL_BYTES = 1 << 20  # headlines use the nearest size


@dataclass(frozen=True)
class Table:
    """Words in rows, for text and page alike."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Digest:
    """The measurements and their results."""

    collection: Collection
    cases: tuple[Case, ...]  # with valid figures
    figures: tuple[Figure, ...]
    between: tuple[Comparison, ...]  # Larklane and native, later and earlier
    within: tuple[Comparison, ...]  # partitions and one send
    advice: tuple[Advice, ...]
    gaps: tuple[str, ...]
    projections: tuple[Projection, ...]

    @property
    def outcomes(self) -> list[Comparison]:
        """Between runs, without the costs of single calls."""
        return [comparison for comparison in self.between if not is_cost(comparison)]

    @property
    def stamp(self) -> str:
        """The reason why figures must not be quoted, or an empty text."""
        reasons = dict.fromkeys(reason for run in self.collection.runs for reason in run.context.why_not_publishable())
        return f"Not publishable: {', '.join(reasons)}." if reasons else ""

    @cached_property
    def said(self) -> dict[str, set[str]]:
        """By benchmark: the parameters to name beside its figures. Parameters that are equal everywhere are named once."""
        everywhere = varying(self.cases)
        return {benchmark: (everywhere - SETTINGS) | varying(group) for benchmark, group in by_benchmark(self.cases).items()}

    def place(self, case: Case, *without: str) -> str:
        """Size and parameters, and the call if ways are calls."""
        call = case.way if case.benchmark == CALLS else ""
        return ", ".join(filter(None, (call, wording.size(case.point.bytes), labels(case.key(*ELSEWHERE, *without), self.said[case.benchmark]))))

    def shared(self) -> str:
        """A sentence on the parameters that all measurements share."""
        first = self.cases[0].key(*ELSEWHERE, *PLACEMENT) if self.cases else ()
        common = labels(first, {parameter.name for parameter in first} - varying(self.cases))
        return f"Everywhere: {common}." if common else ""

    def subject(self) -> str:
        names = list(dict.fromkeys(run.options.benchmark for run in self.collection.runs))
        return (f"{wording.count(len(self.collection.runs), 'run')} of {wording.count(len(names), 'benchmark')} "
                f"({', '.join(names) or 'none'}) from {wording.count(len(self.collection.sources), 'file')}")


def digest(collection: Collection, projections: Sequence[Projection] = ()) -> Digest:
    cases = measured(collection)
    advice = advise(cases)
    partitioned = [case for case in cases if case.benchmark not in MESSAGES]
    return Digest(collection, tuple(cases), tuple(figures(cases, projections)), tuple(between_runs(cases)), tuple(within_runs(cases)),
                  tuple(advice), tuple(gaps(partitioned, advice) if partitioned or not cases else ()), tuple(projections))


def machines(made: Digest) -> Table:
    """A table of the machines: a property, and its values in all runs."""
    contexts = [run.context for run in made.collection.runs]
    crowded = dict.fromkeys(run.options.benchmark for run in made.collection.runs if run.context.oversubscribed)
    slowed = "" if set(crowded) <= set(MESSAGES) else ": computing, a wait for a clock, is not slowed by what shares its core"

    def answers(values: Iterable[str]) -> str:
        return "; ".join(dict.fromkeys(value for value in values if value)) or "-"

    rows = [
        ("processor", answers(f"{c.machine.get('cpu', 'unknown')}, {c.machine.get('cores', '?')} cores in "
                              f"{c.machine.get('sockets', '?')} socket(s)" for c in contexts)),
        ("kernel", answers(c.machine.get("kernel", "unknown") for c in contexts)),
        ("frequency", answers(f"governor {c.machine.get('governor', 'unknown')}, turbo {c.machine.get('turbo', 'unknown')}" for c in contexts)),
        ("MPI", answers(c.mpi for c in contexts)),
        ("Larklane", answers(f"{c.version}, build {c.build or 'unknown'}" for c in contexts)),
        ("variants", answers(wording.VARIANTS.get(c.variant, c.variant) for c in contexts)),
        ("processes", answers(f"{wording.count(c.ranks, 'rank')} on {wording.count(c.hosts, 'host')}, bound to "
                              f"{' | '.join(dict.fromkeys(c.bindings)) or 'unknown'}" for c in contexts)),
        ("more threads than cores", f"{', '.join(crowded)}{slowed}" if crowded else "-"),
        ("environment", answers(f"{name}={value}" for c in contexts for name, value in set_options(c).items())),
        ("clock", answers(f"{wording.number(c.timer_ns)} ns to read (subtracted), ranks agree within {wording.number(c.clock_error_ns)} ns"
                          for c in sorted(contexts, key=lambda c: c.timer_ns + c.clock_error_ns)[-1:])),
    ]
    return Table(("", ""), tuple(rows))


def shortened(collection: Collection) -> list[str]:
    """Sentences on turns and rounds that the time budget dropped."""
    found = [f"{turns.source}: {turns.run} of {turns.asked} turns: the time budget." for turns in collection.turns]
    points = [(run.options, point) for run in collection.runs for point in run.points if point.rounds]
    fewer = [(point.rounds, options) for options, point in points if point.rounds < options.iterations]
    if fewer:
        rounds, options = min(fewer, key=lambda each: each[0] / each[1].iterations)
        found.append(f"Fewer rounds than asked for at {len(fewer)} of {wording.count(len(points), 'point')}, at least {rounds} of "
                     f"{options.iterations} ({options.benchmark}): the time budget.")
    return found


def _median_text(metric: Metric, cases: Sequence[Case]) -> str:
    values = [value for case in cases for value in metric.values(case)]
    return metric.text(summary(values)["median"]) if values else "-"


def headlines(made: Digest) -> Table:
    """One line for each benchmark and set of parameters, at the size nearest to TYPICAL_BYTES."""
    verdicts: dict[tuple[object, ...], Comparison] = {
        (c.candidate.benchmark, c.candidate.key(*ELSEWHERE), c.candidate.point.bytes): c for c in made.between
        if c.candidate.variant != c.baseline.variant}
    groups: dict[tuple[str, tuple[Parameter, ...]], list[Case]] = {}
    for benchmark, members in by_benchmark(made.cases).items():
        for case in members if benchmark not in (CALLS, *MESSAGES) else ():
            groups.setdefault((benchmark, case.key(*ELSEWHERE)), []).append(case)
    rows = []
    for (benchmark, key), group in groups.items():
        size = min((case.point.bytes for case in group), key=lambda count: (abs(math.log2(count / TYPICAL_BYTES)), count))
        here = [case for case in group if case.point.bytes == size]
        metric = metrics(here)[0]
        first = [case for case in here if case.baseline and case.way == case.baseline.way and case.way != PARTITIONED]
        native, ours = ([c for c in here if c.way == PARTITIONED and (c.variant == "native") == is_native] for is_native in (True, False))
        found = verdicts.get((benchmark, key, size))
        judged = "-" if found is None else found.verdict if found.verdict == "no clear difference" else f"{found.verdict}: {found.factor()}"
        name = metric.name if here[0].benchmark in HEADLINES else f"{here[0].benchmark}, {metric.name}"
        rows.append((name, made.place(here[0]),
                     _median_text(metric, [case for case in first if case.variant == "native"] or first),
                     _median_text(metric, native), _median_text(metric, ours), judged))
    return Table(("metric", "at", "without partitions", "partitions, native", "partitions, Larklane", "Larklane against native"), tuple(rows))


def gained(made: Digest) -> list[str]:
    """The main results: outcomes with their figures, then the costs of the calls."""
    found = [*outcome_sentences(made.between, made.within), *cost_sentences(made.between)]
    return found or ["Nothing to compare: that takes partitions beside another way, or beside a second run with the same parameters "
                     "(`larklane bench all` measures both)."]


def gains(made: Digest) -> Table:
    """The outcomes as a table, a line for each kind."""
    return Table(OUTCOME_HEADS, tuple(outcome_rows(made.between, made.within)))


def counts(comparisons: Iterable[Comparison]) -> Table:
    """Counts of verdicts, a line for each benchmark and pair."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for comparison in comparisons:
        pair = f"{comparison.names[0]} against {comparison.names[1]}"
        found.setdefault((comparison.candidate.benchmark, pair), Counter())[comparison.verdict] += 1
    words = ("better", "worse", "no clear difference")
    return Table(("benchmark", "compared", *words, "points"), tuple(
        (benchmark, pair, *(str(verdicts[word]) for word in words), str(verdicts.total())) for (benchmark, pair), verdicts in found.items()))


def comparison_table(made: Digest, comparisons: Iterable[Comparison]) -> Table:
    return Table(("benchmark", "at", "verdict"), tuple(
        (c.candidate.benchmark, made.place(c.candidate), c.sentence()) for c in comparisons))


def advice_table(made: Digest) -> Table:
    """The advice, with neighbouring sizes of equal answer in one line."""
    names = set[str]().union(*(names for benchmark, names in made.said.items() if benchmark in HEADLINES))
    rows = []
    for group in by_sizes(made.advice):
        first, last = group[0], group[-1]
        sizes = " to ".join(dict.fromkeys(wording.size(advice.bytes) for advice in (first, last)))
        rounds = sum(choice.n for advice in group for choice in advice.choices)
        rows.append((first.variant, sizes, labels(first.parameters, names), first.best.name,
                     reason(group), f"{rounds} in {wording.count(first.records, 'run')}"))
    return Table(("under", "sizes", "at", "use", "exposed time (median)", "rounds"), tuple(rows))


def troubles(collection: Collection) -> Table:
    """Ways without figures, and the reasons."""
    rows = []
    for run in collection.runs:
        for point in run.points:
            for series in point.series:
                what = f"refused by the guard: {series.refused}" if series.refused else ""
                if series.wrong:
                    what = f"wrong data or completion in {wording.count(series.wrong, 'round')}: its figures don't count"
                if what:
                    rows.append((run.options.benchmark, run.context.variant, run.context.mpi, wording.way(series.way),
                                 wording.size(point.bytes), what))
    rows += [(f.benchmark, f.variant, "", wording.way(f.way), wording.size(f.bytes) if f.bytes else "", f.what)
             for f in collection.failures]
    merged: dict[tuple[str, ...], list[str]] = {}
    for *rest, size, what in rows:
        sizes = merged.setdefault((*rest, what), [])
        if size and size not in sizes:
            sizes.append(size)
    return Table(("benchmark", "variant", "MPI", "way", "sizes", "what"), tuple(
        (benchmark, wording.VARIANTS.get(variant, variant), mpi, way, ", ".join(sizes), what)
        for (benchmark, variant, mpi, way, what), sizes in merged.items()))


def early(collection: Collection) -> Table:
    """Results of the guard: whether a part arrives while another is held back."""
    seen: dict[tuple[str, str, str], list[bool]] = {}
    for run in collection.runs:
        for point in run.points if run.options.benchmark != CALLS else ():
            for series in point.series:
                if series.way not in ONE_SEND and not series.way.endswith("'") and not series.refused and point.send_partitions > 1:
                    seen.setdefault((series.way, run.context.variant, run.context.mpi), []).append(series.early)
    return Table(("way", "variant", "MPI", "parts arrive early"), tuple(
        (wording.way(way), wording.VARIANTS.get(variant, variant), mpi, f"at {sum(found)} of {wording.count(len(found), 'point')}")
        for (way, variant, mpi), found in sorted(seen.items())))


def call_costs(made: Digest) -> Table:
    """The costs of calls, which have no figure: medians of all launches, in brackets p10 to p90; and the outcome that a dearer call buys."""
    return _side_by_side(made, "call", [case for case in made.cases if case.benchmark == CALLS], {"partitions"}, {"threads"}, is_cost=True)


def messages(made: Digest) -> Table:
    """The same table for messages: at the smallest and the largest size, and one between them."""
    sizes = sorted({case.point.bytes for case in made.cases if case.benchmark in MESSAGES})
    shown = {sizes[0], sizes[len(sizes) // 2], sizes[-1]} if sizes else set()
    return _side_by_side(made, "way", [case for case in made.cases if case.benchmark in MESSAGES and case.point.bytes in shown], {"threads"}, set())


def _side_by_side(made: Digest, head: str, cases: Sequence[Case], named: set[str], unnamed: set[str], is_cost: bool = False) -> Table:
    """A column for each variant.

    @param named, unnamed  parameters to name always, or never
    @param is_cost  for calls: cheaper or dearer, and the outcomes that dearer calls buy
    """
    verdicts: dict[tuple[str, str, str], str] = {}
    buys: dict[tuple[str, str], str] = {}
    cells: dict[tuple[str, str], dict[str, list[Case]]] = {}

    def row(case: Case) -> tuple[str, str]:
        said = labels(case.key(*ELSEWHERE), made.said[case.benchmark] - unnamed | named)
        what = case.way if case.benchmark == CALLS else f"{case.benchmark}, {wording.way(case.way)}"
        return what, f"{wording.size(case.point.bytes)}, {said}"

    places = {row(case) for case in cases}
    for comparison in made.between:
        where = row(comparison.candidate)
        if where in places and comparison.candidate.variant != comparison.baseline.variant:
            verdicts[(*where, comparison.baseline.variant)] = cost_word(comparison.verdict) if is_cost else comparison.verdict
            if is_cost and comparison.verdict == "worse":
                buys[where] = bought(comparison, made.between)
    for case in cases:
        cells.setdefault(row(case), {}).setdefault(case.title, []).append(case)
    titles = list(dict.fromkeys(title for launches in cells.values() for title in launches))
    baselines = [name for name in ("native", "lci") if name == "native" or any(case.variant == name for case in cases)]
    heads = (head, "at", *titles, *(f"Larklane against {wording.VARIANTS[name]}" for name in baselines), *(["what it buys"] if buys else []))
    return Table(heads, tuple((*key, *(_spread_text(launches.get(title, ())) for title in titles), *(verdicts.get((*key, name), "-") for name in baselines),
                               *([buys.get(key, "-")] if buys else [])) for key, launches in cells.items()))


def _spread_text(launches: Sequence[Case]) -> str:
    if not launches:
        return "-"
    metric, case = metrics(launches)[0], pooled(launches)
    found = summary(metric.values(case))
    p10, middle, p90 = (metric.text(found[name]) for name in ("p10", "median", "p90"))
    return f"{middle} ({p10} to {p90})"
