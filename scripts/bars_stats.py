"""Statistics of `make bars`: pure functions on lists of numbers, tested in tests/scripts_test.py on numbers worked out by hand."""

import math


def quantile(samples, fraction):
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


def median(samples):
    return quantile(samples, 0.5)


def summary(samples):
    """What is reported of a series: never a mean alone."""
    return {
        "n": len(samples),
        "min": min(samples),
        "p10": quantile(samples, 0.1),
        "median": median(samples),
        "p90": quantile(samples, 0.9),
    }


def median_bounds(samples, confidence=0.95):
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


def aa_noise(first, second):
    """How far two series of the same contender are apart, as a ratio minus one, >= 0."""
    ratio = median(first) / median(second)
    return max(ratio, 1 / ratio) - 1


def turns(contenders, turn):
    """Order of one turn: A B C A', in the next one the others the other way round. A' is the first contender again."""
    first, *others = contenders
    return [first, *(others if turn % 2 == 0 else reversed(others)), first + "'"]


def compare(candidate, baseline, noise, margin):
    """Is `candidate` not slower than `baseline`? Smaller samples are better; both lists are in turn order, so paired.

    @return ratio of the medians, bounds of the median of the paired ratios, and the verdict:
            `ahead`       surely below 1
            `not slower`  surely at most 1 + margin + noise
            `slower`      surely above that
            `too noisy`   neither is sure
    """
    lower, upper = median_bounds([c / b for c, b in zip(candidate, baseline)])
    limit = 1 + margin + noise
    if upper < 1:
        verdict = "ahead"
    elif upper <= limit:
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


def within(samples, limit):
    """Is the median at most `limit`? `within` surely, `above` surely, else `too noisy`."""
    lower, upper = median_bounds(samples)
    verdict = "within" if upper <= limit else "above" if lower > limit else "too noisy"
    bounds = [None if math.isinf(bound) else bound for bound in (lower, upper)]
    return {"median": median(samples), "bounds": bounds, "limit": limit, "verdict": verdict}
