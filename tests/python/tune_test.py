#!/usr/bin/env python3
"""The launches of `larklane tune --search`: groups, and over verbs queue pairs."""

import unittest
from typing import Any

import golden  # noqa: F401  (finds the package)

from larklane.tune import command as tune


def run_of(policy: str, queues: int, size: int) -> dict[str, Any]:
    variables = {"LARKLANE_POLICY": policy} | ({tune.QUEUES: str(queues)} if queues else {})
    return {"context": {"environment": variables}, "points": [{"send_partitions": 4, "bytes": size}]}


class Search(unittest.TestCase):
    """The points of a search."""

    def test_within_a_host_it_tries_groups(self) -> None:
        steps = tune.search_steps([4], [4096], [])
        self.assertEqual([(step.policy, step.queues) for step in steps], [("static:1", 0), ("static:2", 0), ("static:4", 0)])
        self.assertEqual(steps[0].environment(tune.SHM), ["LARKLANE_POLICY=static:1", "LARKLANE_SHM_SLOT_BYTES_MAX=0"])

    def test_over_verbs_it_tries_queue_pairs_up_to_the_number_of_transfers(self) -> None:
        steps = tune.search_steps([4], [4096], [], tune.VERBS)
        self.assertEqual([(step.policy, step.queues) for step in steps],
                         [("static:1", 1), ("static:2", 1), ("static:2", 2), ("static:4", 1), ("static:4", 2), ("static:4", 4)])
        self.assertEqual(steps[2].environment(tune.VERBS)[2:], ["LARKLANE_PROVIDER=verbs", "LARKLANE_VERBS_CHANNEL_QUEUES=2"])
        self.assertIn("queue pairs: 2", steps[2].title())
        self.assertEqual(tune.queue_counts(tune.VERBS, 100), [1, 2, 4, 8, 16])

    def test_it_goes_on_behind_the_samples_that_are_there(self) -> None:
        done = [run_of("static:2", 1, 4096), run_of("static:2", 2, 8192), run_of("static:4", 0, 4096)]
        left = {(step.policy, step.queues): step.sizes for step in tune.search_steps([4], [4096, 8192], done, tune.VERBS)}
        self.assertEqual(left["static:2", 1], (8192,))
        self.assertEqual(left["static:2", 2], (4096,))
        self.assertEqual(left["static:4", 1], (4096, 8192))


if __name__ == "__main__":
    unittest.main()
