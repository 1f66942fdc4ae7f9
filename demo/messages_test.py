#!/usr/bin/env python3
"""The part of the demo on plain messages, on outputs of runs as the program and `larklane run --summary` print them."""

import unittest
from pathlib import Path

import messages

MPI = {"name": "mpich", "family": "mpich", "launcher": "mpiexec"}
SAID = ("larklane: rank 1: no partitioned requests\nlarklane: rank 0: no partitioned requests\n"
        "larklane: rank 0: point-to-point messages are {}\n")


def line(ns: float, state: str = "PASSED", wrong: int = 0) -> str:
    """What exchange prints."""
    return (f"exchange: {state}: {ns} ns per message of 8 bytes, 2 threads a rank, one communicator, wrong data in {wrong} messages, "
            "over MPICH Version:      5.0.2\n")


def pair(native: str, larklane: str) -> list[messages.Case]:
    """Two cases with a result of a run each."""
    cases = messages.cases_of([MPI], ["native", "larklane"])[:2]
    for case, output in zip(cases, (native, larklane)):
        case.record(output, 0)
    return cases


def text_of(cases: list[messages.Case]) -> str:
    """The table."""
    lines: list[str] = []
    messages.table(cases, lines.append)
    return "\n".join(lines)


class Messages(unittest.TestCase):
    """What counts as a result, and how it is shown."""

    def test_times_stand_side_by_side_with_the_summary(self) -> None:
        shown = text_of(pair(line(1000), line(250) + SAID.format("carried by Larklane, with the MPI's progress hook; sent 7 of 56 B")))
        self.assertRegex(shown, r"MPICH 5\.0\.2 +one for all +1000 +250 +4\.0  right")
        self.assertIn("  larklane: rank 0: point-to-point messages are carried by Larklane, with the MPI's progress hook; sent 7 of 56 B", shown)
        self.assertNotIn("rank 1:", shown)

    def test_messages_left_to_the_mpi_are_no_gain(self) -> None:
        shown = text_of(pair(line(1000), line(999) + SAID.format("left to the MPI: its ranks are on several hosts")))
        self.assertRegex(shown, r" 1000 +999 +-  p2p=on: left to the MPI: its ranks are on several hosts")
        self.assertNotIn("Rank 0's summary", shown)
        self.assertIn("p2p=on: not carried, and no reason was given", text_of(pair(line(1000), line(999))))

    def test_wrong_data_and_lost_results_are_failures(self) -> None:
        native, larklane = pair(line(9, "FAILED", 3), "terminated\n")
        self.assertEqual((native.failure, larklane.failure), ("wrong data in 3 messages", "exit status 0: terminated"))
        self.assertIn("native: wrong data in 3 messages; p2p=on: exit status 0: terminated", text_of([native, larklane]))

    def test_the_command_differs_by_the_start_alone(self) -> None:
        native, larklane = (case.command(Path("b")) for case in messages.cases_of([MPI], ["native", "larklane"])[:2])
        self.assertEqual(native, ["mpiexec", "-n", "2", "b/examples/mpich/exchange", "--threads", "2", "--rounds", "500", "--comms", "one"])
        self.assertEqual(larklane[:3] + larklane[8:], native)
        self.assertEqual(larklane[3:8], ["b/bin/larklane", "run", "--summary", "--option", "p2p=on"])

    def test_the_record_keeps_raw_samples(self) -> None:
        run = messages.record_of(pair(line(1000), line(250)))["runs"][0]
        self.assertEqual((run["ns"], run["mpi"], run["how"], run["data"]), ([1000.0], "MPICH 5.0.2", "native", "right"))


if __name__ == "__main__":
    unittest.main()
