"""The user's gains, in plain words with figures: outcomes first, the costs of single calls apart.

An outcome is visible to a program or its user: time, exposed time, latency, rate, bandwidth, availability, the time of an
application's step. The cost of a single call is no outcome: a copy inside MPI_Pready makes that call dearer, and makes
the bytes arrive earlier. So the cost stands beside the outcome of the same size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from larklane.comparison.compare import Comparison
from larklane.numbers import wording
from larklane.numbers.stats import median
from larklane.records.cases import CALLS, HEADLINES, MESSAGES, Metric

ONCE = ("psend_init", "precv_init", "first_round", "free_send", "free_recv")  # calls made once per request
# Outcomes that the calls of a round improve, the most direct first.
BOUGHT = ("early-bird", "perceived-bandwidth", "availability", "overhead", "recv-compute", "latency")
TYPICAL_BYTES = 1 << 20
TIED = "no clear difference"
OUTCOME_HEADS = ("outcome", "compared", "median", "from, to", "better", "tie", "worse", "at")
TIE = "A tie: no difference beyond what noise alone makes, or too few rounds to be sure."


def is_cost(comparison: Comparison) -> bool:
    """Whether the comparison is of a single call's cost."""
    return comparison.candidate.benchmark == CALLS


def change_text(metric: Metric, change: float) -> str:
    """ "2.10 times shorter", "3.00 times as high", "+12.0 points"."""
    if metric.is_share:
        return f"{change:+.1f} points"
    if metric.better == "higher":
        return f"{wording.number(change)} times as high"
    less, more = ("shorter", "longer") if metric.unit == "µs" else ("lower", "higher")
    return f"{wording.number(1 / change)} times {less}" if change <= 1 else f"{wording.number(change)} times {more}"


def verdict_counts(comparisons: Sequence[Comparison], what: str = "") -> str:
    """ "better at 3 of 4, a tie at 1, worse at none"."""
    words = Counter(comparison.verdict for comparison in comparisons)
    return (f"better at {words['better']} of {len(comparisons)}{what}, a tie at {words[TIED] or 'none'}, "
            f"worse at {words['worse'] or 'none'}")


def _nearest(comparisons: Iterable[Comparison], size: int) -> Comparison:
    """@param comparisons  not empty"""
    return min(comparisons, key=lambda c: (abs(math.log2(max(c.candidate.point.bytes, 1) / max(size, 1))), c.candidate.point.bytes))


def _kinds(comparisons: Sequence[Comparison]) -> list[list[Comparison]]:
    found: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in comparisons:
        found.setdefault((comparison.candidate.benchmark, comparison.metric.name), []).append(comparison)
    return list(found.values())


def _name(kind: Sequence[Comparison]) -> str:
    metric, benchmark = kind[0].metric, kind[0].candidate.benchmark
    name = "latency (half round trip)" if metric.name == "half round trip" else metric.name
    return name if benchmark in HEADLINES or benchmark in name else f"{name} ({benchmark})"


def _middle(kind: Sequence[Comparison]) -> str:
    return change_text(kind[0].metric, median([comparison.change for comparison in kind]))


def _rivals(between: Sequence[Comparison], within: Sequence[Comparison]) -> list[tuple[str, str, list[Comparison]]]:
    """@return [(compared side, its rival, the outcomes)]"""
    variants = [c for c in between if c.candidate.variant != c.baseline.variant and not is_cost(c)]
    found = [
        ("Partitions under Larklane", "the MPI's own", [c for c in variants if c.candidate.benchmark not in MESSAGES]),
        ("Partitions under Larklane", "one message after the join", [c for c in within if c.candidate.variant == "larklane"]),
        ("Messages of Larklane", "those of the MPI", [c for c in variants if c.candidate.benchmark in MESSAGES and c.baseline.variant == "native"]),
        ("Messages of Larklane", "those of LCI v2", [c for c in variants if c.baseline.variant == "lci"]),
    ]
    return [rival for rival in found if rival[2]]


def outcome_sentences(between: Sequence[Comparison], within: Sequence[Comparison]) -> list[str]:
    """One sentence per rival: the numbers of better, tied and worse outcomes, and the size of their differences.

    @param between  between runs, with or without costs of calls
    @param within  partitions against one message of the same run
    """
    found = []
    for what, rival, comparisons in _rivals(between, within):
        parts = [f"{what} against {rival}: {verdict_counts(comparisons, ' outcomes')}."]
        for verdict, word in (("better", "Better"), ("worse", "Worse")):
            kinds = _kinds([c for c in comparisons if c.verdict == verdict])
            if kinds:
                parts.append(f"{word}, median: {'; '.join(f'{_name(kind)} {_middle(kind)}' for kind in kinds)}.")
        found.append(" ".join(parts))
    if any(c.verdict == TIED for _, _, comparisons in _rivals(between, within) for c in comparisons):
        found.append(TIE)
    return found


def outcome_rows(between: Sequence[Comparison], within: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """@return rows for OUTCOME_HEADS, one per rival and kind of outcome"""
    rows = []
    for what, rival, comparisons in _rivals(between, within):
        for kind in _kinds(comparisons):
            metric, changes = kind[0].metric, sorted(comparison.change for comparison in kind)
            example, words = _nearest(kind, TYPICAL_BYTES), Counter(comparison.verdict for comparison in kind)
            ours, theirs = map(metric.text, example.medians)
            spread = " to ".join(dict.fromkeys(change_text(metric, change) for change in (changes[0], changes[-1])))
            rows.append((_name(kind), f"{what} against {rival}", "a tie" if words[TIED] == len(kind) else _middle(kind), spread,
                         *(str(words[word]) for word in ("better", TIED, "worse")),
                         f"{wording.size(example.candidate.point.bytes)}: {ours} against {theirs}"))
    return rows


def cost_sentences(between: Sequence[Comparison]) -> list[str]:
    """Sentences on the costs of single calls, which are no outcomes."""
    costs = [c for c in between if is_cost(c) and c.candidate.way != "empty" and c.candidate.variant != c.baseline.variant]
    if not costs:
        return []
    words = Counter(comparison.verdict for comparison in costs)
    found = [f"Costs of single calls, which are no outcomes and are counted apart: cheaper at {words['better'] or 'none'} of {len(costs)}, "
             f"a tie at {words[TIED] or 'none'}, dearer at {words['worse'] or 'none'}. "
             "What a dearer call buys stands beside it."]
    dearer = [c for c in costs if c.verdict == "worse" and c.candidate.way == "pready"]
    if dearer:
        example = _nearest(dearer, TYPICAL_BYTES)
        ours, theirs = map(example.metric.text, example.medians)
        found.append(f"MPI_Pready takes {ours} against {theirs} at {wording.size(example.candidate.point.bytes)}: under Larklane the call "
                     f"itself moves its partition (shared memory: a copy). {bought(example, between)}")
    return found


def cost_word(verdict: str) -> str:
    return {"better": "cheaper", "worse": "dearer"}.get(verdict, "tie")


def bought(cost: Comparison, between: Sequence[Comparison]) -> str:
    """The outcome that a call's cost buys: of the same kind of run at the nearest size."""
    if cost.candidate.way in ONCE:
        return "paid once a request, not in its rounds"
    outcomes = [c for c in between if c.candidate.benchmark in BOUGHT and c.candidate.variant == cost.candidate.variant
                and c.baseline.variant == cost.baseline.variant]
    for benchmark in BOUGHT:
        group = [c for c in outcomes if c.candidate.benchmark == benchmark]
        if group:
            found = _nearest(group, cost.candidate.point.bytes)
            ours, theirs = map(found.metric.text, found.medians)
            word = {"better": "It buys", "worse": "It buys nothing:"}.get(found.verdict, "Beside it a tie:")
            return f"{word} {found.metric.name} {ours} against {theirs} at {wording.size(found.candidate.point.bytes)}."
    return "Which outcome it buys was not measured here (`larklane bench all`)."
