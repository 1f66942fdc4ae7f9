"""Statistics of measurements: pure functions on lists of numbers, tested against results calculated by hand."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

EXACT_MAX = 20  # most samples of both lists together for which mann_whitney() is exact
SEED = 20220829


def quantile(samples: Sequence[float], fraction: float) -> float:
    """The value below which `fraction` of the samples lie, interpolated between neighbours.

    @param samples   any order, not empty
    @param fraction  0..1; position fraction * (n - 1) of the sorted samples (type 7 of Hyndman and Fan, The American
                     Statistician 50(4), 1996)
    """
    ordered = sorted(samples)
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(samples: Sequence[float]) -> float:
    return quantile(samples, 0.5)


def summary(samples: Sequence[float]) -> dict[str, float]:
    """The figures reported of a series: never a mean alone."""
    return {
        "n": len(samples),
        "min": min(samples),
        "p10": quantile(samples, 0.1),
        "median": median(samples),
        "p90": quantile(samples, 0.9),
    }


def median_bounds(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """One-sided bounds of the median from order statistics: no assumption about the distribution.

    @return (lower, upper): each holds with `confidence`; infinite if there are too few samples for one.
    The k-th smallest of n exceeds the median unless k or more of n lie below it: P = P(Binomial(n, 1/2) >= k).
    """
    ordered = sorted(samples)
    n = len(ordered)
    tail, k = 0, n + 1  # the smallest k with P(Binomial >= k) <= 1 - confidence
    while k > 0 and (tail + math.comb(n, k - 1)) / 2**n <= 1 - confidence:
        k -= 1
        tail += math.comb(n, k)
    if k > n:
        return -math.inf, math.inf
    return ordered[n - k], ordered[k - 1]


def bootstrap(statistic: Callable[..., float], *groups: Sequence[float], resamples: int = 1000) -> tuple[float, float]:
    """95 % percentile interval of statistic(median of each group), each group resampled with replacement, independently. Equal
    input gives an equal interval. (Efron, The Annals of Statistics 7(1), 1979)

    @param groups  one or more lists, none empty
    """
    draw = random.Random(SEED)
    ordered = [sorted(group) for group in groups]
    found = [statistic(*(resampled_median(group, draw) for group in ordered)) for _ in range(resamples)]
    return quantile(found, 0.025), quantile(found, 0.975)


def resampled_median(ordered: Sequence[float], draw: random.Random) -> float:
    """The median of len(ordered) samples drawn with replacement, without drawing them all. The k-th smallest of n uniform numbers is
    Beta(k, n + 1 - k); the smallest of the n - k above it lies at 1 - (1 - u)^(1 / (n - k)) of the remaining range. (David and
    Nagaraja, Order Statistics, 2003, section 2)

    @param ordered  sorted, not empty
    """
    n = len(ordered)
    middle = (n + 1) // 2
    low = draw.betavariate(middle, n + 1 - middle)
    high = low if n % 2 else 1 - (1 - low) * draw.random() ** (1 / (n - middle))
    return (ordered[min(int(n * low), n - 1)] + ordered[min(int(n * high), n - 1)]) / 2


class RankTest(NamedTuple):
    """Whether one of two series tends to be above the other."""

    u: float  # pairs in which the first is above the second, ties count half
    p: float  # two-sided
    above: float  # u over all pairs: 0.5 is no difference, 1 is always above


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> RankTest:
    """Mann and Whitney's U, and the effect size A of Vargha and Delaney; the rank-biserial correlation is 2 A - 1.

    Up to EXACT_MAX samples in all, p is exact, over all assignments of the (tied) ranks to the two series: the share of
    those with a rank sum at least as far from its expectation. Above, the normal approximation, corrected for ties and for
    continuity. (The Annals of Mathematical Statistics 18(1), 1947; Journal of Educational and Behavioral Statistics 25(2),
    2000)

    @param first, second  neither empty
    """
    n, m = len(first), len(second)
    doubled = _doubled_ranks([*first, *second])
    u = sum(doubled[:n]) / 2 - n * (n + 1) / 2
    p = _exact_p(doubled, n) if n + m <= EXACT_MAX else _normal_p(u, n, m, Counter(doubled).values())
    return RankTest(u, p, u / (n * m))


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value, 1 the smallest; equal values share their mean rank, so doubled ranks are whole numbers."""
    below, rank_of = 0, {}
    for value, count in sorted(Counter(values).items()):
        rank_of[value] = 2 * below + count + 1
        below += count
    return [rank_of[value] for value in values]


def _exact_p(doubled: Sequence[int], n: int) -> float:
    """@param doubled  [n + m], those of the first series first"""
    ways = [Counter({0: 1}), *(Counter[int]() for _ in range(n))]  # [number of ranks dealt] -> {sum: ways}
    for rank in doubled:
        for dealt in range(n, 0, -1):
            for total, count in ways[dealt - 1].items():
                ways[dealt][total + rank] += count
    expected = n * (len(doubled) + 1)
    distance = abs(sum(doubled[:n]) - expected)
    extreme = sum(count for total, count in ways[n].items() if abs(total - expected) >= distance)
    return extreme / math.comb(len(doubled), n)


def _normal_p(u: float, n: int, m: int, ties: Any) -> float:
    total = n + m
    tied = sum(count**3 - count for count in ties)
    variance = n * m / 12 * (total + 1 - tied / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    z = max(abs(u - n * m / 2) - 0.5, 0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def aa_noise(first: Sequence[float], second: Sequence[float]) -> float:
    """The distance of two series of the same contender, as a ratio minus one, >= 0."""
    ratio = median(first) / median(second)
    return max(ratio, 1 / ratio) - 1


def turns(contenders: Sequence[str], turn: int) -> list[str]:
    """The order of one turn: A B C A'; the next turn reverses the others. A' is the first contender again."""
    first, *others = contenders
    return [first, *(others if turn % 2 == 0 else reversed(others)), first + "'"]


NOISE_MOST = 0.25


def compare(candidate: Sequence[float], baseline: Sequence[float], noise: float, margin: float) -> dict[str, Any]:
    """Is `candidate` not slower than `baseline`? Smaller samples are better; both lists are in turn order, so paired.

    @return ratio of the medians, bounds of the median of the paired ratios, and the verdict:
            `ahead`       surely below 1
            `not slower`  surely at most 1 + margin + noise; noise above NOISE_MOST is not added
            `slower`      surely above 1 + margin + noise
            `too noisy`   neither is sure
    """
    lower, upper = median_bounds([c / b for c, b in zip(candidate, baseline)])
    limit = 1 + margin + noise
    if upper < 1:
        verdict = "ahead"
    elif upper <= (limit if noise <= NOISE_MOST else 1 + margin):
        verdict = "not slower"
    elif lower > limit:
        verdict = "slower"
    else:
        verdict = "too noisy"
    bounds = [None if math.isinf(bound) else bound for bound in (lower, upper)]
    return {
        "ratio": median(candidate) / median(baseline),
        "bounds": bounds,
        "aa_noise": noise,
        "margin": margin,
        "verdict": verdict,
    }


def within(samples: Sequence[float], limit: float) -> dict[str, Any]:
    """Is the median at most `limit`? `within` surely, `above` surely, else `too noisy`."""
    lower, upper = median_bounds(samples)
    verdict = "within" if upper <= limit else "above" if lower > limit else "too noisy"
    bounds = [None if math.isinf(bound) else bound for bound in (lower, upper)]
    return {"median": median(samples), "bounds": bounds, "limit": limit, "verdict": verdict}
