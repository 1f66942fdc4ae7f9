#!/usr/bin/env python3
"""Benchmarks of ordinary MPI messages on real MPIs: natively, and carried by Larklane.

ordinary_test.py --build DIR MPI CASE  one case; exit status 77: skipped
ordinary_test.py --list                all of them, a line each
"""

import sys

import launch
from bench_test import QUICK, Suite, check_mpi, run_hasty, series_of

# Ranks, words, ways.
SHAPES = (
    (2, ["message-turns", "--threads", "2", "--ways", "shared,own,one-tag,hints"], ["shared", "own", "one-tag", "hints", "shared'"]),
    (2, ["message-turns", "--threads", "2", "--ways", "funneled"], ["funneled", "funneled'"]),
    (4, ["message-turns", "--threads", "2", "--ways", "everywhere"], ["everywhere", "everywhere'"]),
    (2, ["message-rate", "--threads", "2", "--ways", "one-tag,hints"], ["one-tag", "hints", "one-tag'"]),
    (2, ["message-latency", "--operation", "ssend", "--ways", "own", "--level", "single"], ["own", "own'"]),
)
SAMPLES = {"message-turns": {"message_ns", "post_ns", "send_ns", "wait_ns", "helped_turns"}, "message-rate": {"rate_per_s", "message_ns", "round_ns"},
                    "message-latency": {"half_round_trip_ns", "message_ns", "round_ns"}}


def messages(suite):
    """The MPI's ordinary messages, natively and carried by Larklane: every byte is right, in all modes of threads."""
    for variant in ("native", "ordinary"):
        for ranks, words, ways in SHAPES:
            outcome, record = suite.run(*words, "--sizes", "8,300", "--window", "4", *QUICK, variant=variant, ranks=ranks)
            assert outcome.status == 0 and record["context"]["variant"] == variant, (words, outcome.output)
            check_mpi(suite, record)
            assert [point["bytes"] for point in record["points"]] == [8, 300]
            for point in record["points"]:
                assert [series["way"] for series in point["series"]] == ways, outcome.output
                for series in point["series"]:
                    assert series["wrong"] == 0 and set(series["samples"]) == SAMPLES[words[0]], (series, outcome.output)
                    assert all(len(values) == 3 for values in series["samples"].values()), series
            assert record["options"].get("level") == ("single" if "single" in words else None) and "completion" not in record["options"], record["options"]
            if variant == "ordinary":
                assert record["context"]["environment"]["LARKLANE_P2P"] == "on", record["context"]
        outcome, record = suite.run("stencil", "--sizes", "8,400", "--threads", "2", "--ways", "funneled", *QUICK, variant=variant)
        assert outcome.status == 0 and [series["wrong"] for series in series_of(record)] == [0] * 4, outcome.output


def calls(suite):
    """Collective calls, and MPI_Init, beside ordinary messages."""
    for ranks, name in ((2, "collective"), (3, "startup")):
        for environment in ({}, {"LARKLANE_P2P": "on"}):
            outcome, record = suite.run(name, *QUICK, variant="larklane" if environment else "native", ranks=ranks, environment=environment)
            assert outcome.status == 0 and all(series["wrong"] == 0 and min(min(values) for values in series["samples"].values()) > 0 for series in series_of(record)), (name, outcome.output)


def hasty(suite):
    """A byte inside of a message that is wrong is seen where all threads have one tag, too."""
    for benchmark in ("message-rate", "message-turns"):
        for fault, is_wrong in (("none", False), ("inside", True)):
            outcome, record = run_hasty(suite, fault, benchmark, "--sizes", "4K", "--threads", "2", "--window", "4", "--ways", "one-tag,shared", *QUICK)
            assert outcome.status == is_wrong and record is not None, (benchmark, fault, outcome.output)
            assert all((series["wrong"] > 0) == is_wrong for series in series_of(record)), (benchmark, fault, outcome.output)


def misuse(suite):
    for benchmark, words, expected in (
        ("message-rate", ["--ways", "own,funneled"], "--ways funneled: one thread for all: a launch of its own"),
        ("message-rate", ["--ways", "one-tag", "--sizes", "4,8"], "size 4: --ways one-tag: of 8 bytes and more"),
        ("message-rate", ["--ways", "one-tag", "--operation", "put"], "--ways one-tag: of --operation send or ssend, not put"),
        ("message-rate", ["--threads", "2", "--level", "serialized"], "--level serialized: of --threads 1"),
        ("message-turns", ["--operation", "ssend"], "--operation ssend: of message-turns: send"),
        ("message-turns", ["--level", "any"], "--level: any not in {single,funneled,serialized,multiple}"),
    ):
        outcome, record = suite.run(benchmark, *words, variant="native")
        assert outcome.status == 2 and outcome.output.count(expected) == 1 and record is None, (words, outcome.status, outcome.output)
    outcome, record = suite.run("latency", variant="ordinary")
    assert outcome.status == 2 and "--with ordinary: expected larklane or native" in outcome.output and record is None, outcome.output


CASES = {"messages": messages, "calls": calls, "hasty": hasty, "misuse": misuse}
LISTED = {"mpich5": CASES, "openmpi5": ["messages", "calls"]}


if __name__ == "__main__":
    sys.exit(launch.run_cases(__doc__, CASES, LISTED, Suite))
