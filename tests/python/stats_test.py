#!/usr/bin/env python3
"""stats.py on numbers worked out by hand. The parts that `make bars` uses: tests/scripts_test.py, tests/bars_test.py."""

import math
import random
import unittest
from collections import Counter

import golden  # noqa: F401  (the path of the package)

from larklane.numbers import stats


class Ranks(unittest.TestCase):
    """Mann and Whitney's U."""

    def test_exact(self) -> None:
        # 2 of the 20 ways of dealing ranks 1..6 are as far apart as this: 1 2 3 and 4 5 6.
        self.assertEqual(stats.mann_whitney([1, 2, 3], [4, 5, 6]), (0, 0.1, 0))
        self.assertEqual(stats.mann_whitney([4, 5, 6], [1, 2, 3]), (9, 0.1, 1))
        # U = 8 of 9 pairs; of the rank sums 6..15, 4 of 20 ways give 7 or less, or 14 or more.
        self.assertEqual(stats.mann_whitney([3, 5, 6], [1, 2, 4]), (8, 0.2, 8 / 9))

    def test_exact_with_ties(self) -> None:
        # Ranks 1, 2.5, 2.5, 4. U of (2, 3) against (1, 2): 1 + 0.5 + 1 + 1. Rank sums of the 6 pairs: 3.5 3.5 5 5 6.5 6.5.
        self.assertEqual(stats.mann_whitney([2, 3], [1, 2]), (3.5, 4 / 6, 0.875))
        self.assertEqual(stats.mann_whitney([1, 1], [1, 1]), (2, 1, 0.5))

    def test_approximation(self) -> None:
        # n = m = 12, no ties: mean 72, variance 12 * 12 * 25 / 12 = 300.
        test = stats.mann_whitney(range(12), range(12, 24))
        self.assertEqual((test.u, test.above), (0, 0))
        self.assertAlmostEqual(test.p, math.erfc(71.5 / math.sqrt(300) / math.sqrt(2)))
        # Two values, 12 of each: variance 12 * 12 / 12 * (25 - 2 * (12^3 - 12) / (24 * 23)) = 12 * (25 - 143 / 23) = 5184 / 23.
        test = stats.mann_whitney([0] * 12, [1] * 12)
        self.assertAlmostEqual(test.p, math.erfc(71.5 / math.sqrt(5184 / 23) / math.sqrt(2)))
        self.assertEqual(stats.mann_whitney([1] * 12, [1] * 12), (72, 1, 0.5))

    def test_exact_and_approximate_agree(self) -> None:
        first, second = [1, 2, 5, 6, 9, 10, 13, 14, 17, 18], [3, 4, 7, 8, 11, 12, 15, 16, 19, 20]
        doubled = [2 * value for value in first + second]
        u = sum(first) - 55
        self.assertAlmostEqual(stats.mann_whitney(first, second).p, stats._normal_p(u, 10, 10, [1] * 20), delta=0.01)
        self.assertEqual(stats.mann_whitney(first, second).p, stats._exact_p(doubled, 10))


class Bootstrap(unittest.TestCase):
    """Intervals."""

    def test_same_input_same_interval(self) -> None:
        samples = [1.0, 2.0, 3.0, 4.0, 10.0]
        first = stats.bootstrap(float, samples)
        self.assertEqual(first, stats.bootstrap(float, samples))
        self.assertLessEqual(1, first[0])
        self.assertTrue(first[0] <= 3 <= first[1] <= 10)

    def test_equal_samples_have_no_width(self) -> None:
        self.assertEqual(stats.bootstrap(float, [7.0] * 5), (7, 7))
        self.assertEqual(stats.bootstrap(lambda a, b: a / b, [6.0] * 5, [2.0] * 5), (3, 3))

    def test_width(self) -> None:
        # A resampled median of two samples is a, b or their mean: (1/4, 1/4, 1/2), so both ends are within 95 %.
        self.assertEqual(stats.bootstrap(float, [0.0, 1.0]), (0, 1))

    def test_resampled_median(self) -> None:
        # Of three draws from 0, 1, 2 two or more are 0 in 7 of 27 cases; of four from 0 and 1 with equal chances, 2 are in 6 of 16.
        draw = random.Random(1)
        found = Counter(stats.resampled_median([0, 1, 2], draw) for _ in range(20000))
        self.assertAlmostEqual(found[0] / 20000, 7 / 27, delta=0.01)
        self.assertAlmostEqual(found[1] / 20000, 13 / 27, delta=0.01)
        found = Counter(stats.resampled_median([0, 0, 1, 1], draw) for _ in range(20000))
        self.assertAlmostEqual(found[0.5] / 20000, 6 / 16, delta=0.01)


if __name__ == "__main__":
    unittest.main()
