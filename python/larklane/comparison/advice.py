"""Advice on the number of partitions, within the measured cases: the fourth contribution of Temucin et al., ICPP'22 (section 1).

The choices of a place (a size, a compute time, a noise, ...) are one send after the join, then partition counts from few to many.
The simplest choice wins; a less simple one replaces it only if its exposed time is surely shorter: the 95 % intervals of the
two medians do not overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from larklane.numbers import wording
from larklane.numbers.stats import bootstrap, median
from larklane.records.cases import EXPOSED, PARTITIONED, Case, Parameter, varying

HIDDEN = ("partitions", "version", "machine")


@dataclass(frozen=True)
class Choice:
    """One way of sending, at one place, with the exposed times of all its rounds."""

    name: str  # "16 partitions"
    partitions: int  # 0: one send after the join
    median_us: float
    interval_us: tuple[float, float]  # 95 %, of the median
    n: int

    def surely_below(self, other: "Choice") -> bool:
        return self.interval_us[1] < other.interval_us[0]


@dataclass(frozen=True)
class Advice:
    """The choices at one place, and the best of them."""

    variant: str  # in words
    parameters: tuple[Parameter, ...]
    bytes: int
    choices: tuple[Choice, ...]  # the simplest first
    records: int

    @property
    def best(self) -> Choice:
        best = self.choices[0]
        for choice in self.choices[1:]:
            if choice.surely_below(best):
                best = choice
        return best


def _choice(cases: Sequence[Case], partitions: int, threads_of_join: int) -> Choice:
    """@param threads_of_join  number of threads, if it belongs to the choice; else 0"""
    samples = [value for case in cases for value in EXPOSED.values(case)]
    if not partitions:
        name = wording.way("join") + (f" ({wording.count(threads_of_join, 'thread')})" if threads_of_join else "")
    else:
        threads = {case.run.options.threads for case in cases}
        name = wording.count(partitions, "partition") + (f" ({', '.join(map(str, sorted(threads)))} threads)"
                                                         if threads != {partitions} else "")
    return Choice(name, partitions, median(samples), bootstrap(float, samples), len(samples))


def _hidden(cases: Sequence[Case]) -> tuple[str, ...]:
    """@return the parameters that places do not show. Places differ in threads if some number of threads was measured with several
    partition counts. If each has its own count (a partition a thread, as in the paper), the choice is the number of threads."""
    counts: dict[int, set[int]] = {}
    for case in cases:
        counts.setdefault(case.run.options.threads, set()).add(case.partitions)
    return HIDDEN if any(len(found) > 1 for found in counts.values()) else (*HIDDEN, "threads")


def advise(cases: Sequence[Case]) -> list[Advice]:
    """@param cases  all cases; those without exposed times, or with different splits of the two sides, are left out"""
    usable = [case for case in cases if EXPOSED.values(case) and case.way in (PARTITIONED, "join")
              and case.point.send_partitions == case.point.recv_partitions]
    hidden = _hidden([case for case in usable if case.way == PARTITIONED])
    chosen = "threads" in hidden and len({case.run.options.threads for case in usable}) > 1
    places: dict[tuple[str, tuple[Parameter, ...], int], list[Case]] = {}
    for case in usable:
        places.setdefault((case.title, case.key(*hidden), case.point.bytes), []).append(case)
    found = []
    for (variant, parameters, size), group in places.items():
        by_count: dict[tuple[int, int], list[Case]] = {}
        for case in group:
            threads = case.run.options.threads if chosen else 0
            by_count.setdefault((case.partitions, 0) if case.way == PARTITIONED else (0, threads), []).append(case)
        if any(count for count, _ in by_count):
            choices = tuple(_choice(members, *count) for count, members in sorted(by_count.items()))
            found.append(Advice(variant, parameters, size, choices, len({id(case.run) for case in group})))
    return sorted(found, key=lambda advice: (advice.variant == "native", advice.variant, [p.value for p in advice.parameters], advice.bytes))


def by_sizes(advices: Sequence[Advice]) -> list[list[Advice]]:
    """Neighbouring sizes of one place with the same choices and the same answer, from small to large."""
    def answer(advice: Advice) -> tuple[object, ...]:
        return advice.variant, advice.parameters, advice.best.name, tuple(choice.name for choice in advice.choices)

    return [list(group) for _, group in groupby(advices, answer)]


def reason(advices: Sequence[Advice]) -> str:
    """Exposed times of the best choice and of the others, from the smallest size to the largest.

    @param advices  one group of by_sizes()
    """
    def times(index: int) -> str:
        found = [wording.duration(advice.choices[index].median_us * 1e3) for advice in (advices[0], advices[-1])]
        return " to ".join(dict.fromkeys(found))

    choices = advices[0].choices
    best = choices.index(advices[0].best)
    others = "; ".join(f"{choice.name}: {times(at)}" for at, choice in enumerate(choices) if at != best)
    if not others:
        return f"{times(best)}; nothing else was measured"
    return f"{times(best)}; {others}" + ("" if best else "; none surely shorter")


UNMEASURED = {
    "compute": "compute times",
    "noise": "kinds and amounts of noise",
    "cache": "caches (hot or cold)",
    "order": "orders of marking",
    "threads": "numbers of threads",
}


def gaps(cases: Sequence[Case], advices: Sequence[Advice]) -> list[str]:
    """@return sentences on the limits of the advice: the cases that were not measured"""
    if not advices:
        return ["Nothing can be advised: no record has exposed times of partitions (any benchmark between two ranks has)."]
    found = []
    differing = varying(cases)
    one = {parameter.name: parameter.label for parameter in cases[0].parameters}
    fixed = [f"{what} other than “{one[name]}”" for name, what in UNMEASURED.items() if name not in differing]
    if fixed:
        found.append(f"Not measured, so nothing is said of: {'; '.join(fixed)}.")
    single = sum(len([choice for choice in advice.choices if choice.partitions]) == 1 for advice in advices)
    if single:
        found.append(f"At {single} of {len(advices)} places one partition count alone was measured: whether more or fewer are better is "
                     "not known there (--partitions-per-thread, --threads).")
    unsent = sum(advice.choices[0].partitions > 0 for advice in advices)
    if unsent:
        found.append(f"At {unsent} of {len(advices)} places one send after the join was not measured (--ways join,partitioned).")
    ranks = {case.run.context.hosts for case in cases}
    if ranks == {1}:
        found.append("All ranks ran on one host: nothing is said of a network.")
    return found
