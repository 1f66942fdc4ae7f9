#!/usr/bin/env python3
"""MPIPCL as a peer of `larklane bench`, by a double of its library (bench/mpipcl.c), or the real one that MPIPCL names.

mpipcl_test.py --build DIR MPI CASE    one case; exit status 77: skipped
mpipcl_test.py --list                  all of them, a line each
"""

import os
import pathlib
import subprocess
import sys

import launch
from bench_test import QUICK, Suite, series_of

# Benchmark, ranks, words.
ROWS = (("overhead", 2, ["--sizes", "4K,512K", "--threads", "2", "--partitions-per-thread", "2"]), ("early-bird", 2, ["--sizes", "64K", "--threads", "2"]),
        ("availability", 2, ["--sizes", "64K", "--threads", "2"]), ("halo3d", 4, ["--sizes", "96K", "--threads", "2"]))


def double(suite):
    """@return the library's file"""
    if real := os.environ.get("MPIPCL"):
        return real
    source, made = pathlib.Path(__file__).resolve().parent / "bench/mpipcl.c", pathlib.Path(suite.folder.name, "libmpipcl.so")
    subprocess.run([str(suite.mpi.wrapper), "-shared", "-fPIC", "-O1", str(source), "-o", str(made)], check=True)
    return str(made)


def ways_of(benchmark):
    return "single,mpipcl" if benchmark == "halo3d" else "join,mpipcl"


def rows(suite):
    """Natively and under Larklane it is measured beside one send, with the right payload in each round."""
    library = double(suite)
    for benchmark, ranks, words in ROWS:
        for variant in ("native", "larklane"):
            outcome, record = suite.run(benchmark, *words, *QUICK, "--compute-us", "100", "--ways", ways_of(benchmark), "--mpipcl", library, variant=variant, ranks=ranks)
            assert outcome.status == 0 and not record["failures"], outcome.output
            assert [series["way"] for series in record["points"][0]["series"]][1] == "mpipcl", outcome.output
            assert all(series["wrong"] == 0 and "refused" not in series for series in series_of(record)), outcome.output


def faults(suite):
    """What it fails is no figure: the rounds with a wrong payload are counted."""
    for benchmark, ranks, words in (ROWS[0], ROWS[-1]):
        outcome, record = suite.run(benchmark, *words, *QUICK, "--compute-us", "100", "--ways", ways_of(benchmark), "--mpipcl", double(suite),
                                    variant="native", ranks=ranks, environment={"MPIPCL_DOUBLE": "lost"})
        assert outcome.status == 1, outcome.output
        for series in series_of(record):
            assert ("refused" in series or series["wrong"] > 0) == (series["way"] == "mpipcl"), (series["way"], outcome.output)


def misuse(suite):
    """Each error is one line, of one rank, and names the option."""
    for words, why in (([], "--ways mpipcl: --mpipcl FILE says where its library is"), (["--mpipcl", "none.so"], "--mpipcl: ./none.so: cannot open"),
                       (["--mpipcl", str(suite.mpi.wrapper)], "--mpipcl: "), (["--mpipcl", "/lib/x86_64-linux-gnu/libm.so.6"], "has no function MPIP_Psend_init")):
        outcome, record = suite.run("overhead", *QUICK, "--ways", "join,mpipcl", *words, variant="native")
        assert outcome.status == 2 and record is None and outcome.output.count(why) == 1, outcome.output
    outcome, _ = suite.run("latency", *QUICK, "--ways", "mpipcl", "--mpipcl", "none.so", variant="native")
    assert outcome.status == 2 and "--ways mpipcl" in outcome.output, outcome.output


CASES = {"rows": rows, "faults": faults, "misuse": misuse}
LISTED = {"mpich5": CASES, "openmpi5": ["rows"]}


if __name__ == "__main__":
    sys.exit(launch.run_cases(__doc__, CASES, LISTED, Suite))
