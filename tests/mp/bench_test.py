#!/usr/bin/env python3
"""`larklane bench` on real MPIs: every benchmark, native and under Larklane, at the smallest sizes.

bench_test.py --build DIR MPI CASE     one case; exit status 77: skipped
bench_test.py --list                   all of them, a line each
"""

import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import launch

ABI = "mpich5_abi"  # started by a launcher to which another program belongs
TRACED = ("overhead", "perceived-bandwidth", "availability", "early-bird", "recv-compute")
SMALL = ["--sizes", "4K,512K", "--threads", "2", "--iterations", "6", "--warmup", "1", "--compute-us", "200", "--limit", "20"]

# Benchmarks without traces: ranks, words, metrics, series, and the grid with the neighbours of each rank on it.
CALLS = ["empty", "psend_init", "precv_init", "first_round", "start_send", "start_recv", "pready", "parrived_miss", "parrived_hit",
         "wait_send", "wait_recv", "free_send", "free_recv", "empty'"]
QUICK = ["--iterations", "3", "--warmup", "1", "--limit", "20"]
FACES = ["single", "persistent", "multiple", "thread-comms", "rma", "partitioned"]
PATTERN = ([*FACES, "single'"], {"step_ns", "throughput_bps"})
UNTRACED = {
    "call-cost": (2, ["--sizes", "64,8K", "--threads", "2", "--partitions-per-thread", "2", "--recv-partitions", "8"], (CALLS, {"call_ns"}), None),
    "latency": (2, ["--sizes", "1,13,256K"], (["join", "persistent", "rma", "partitioned", "join'"], {"half_round_trip_ns"}), None),
    "prtt": (2, ["--sizes", "1,13,256K"],
             (["join", "partitioned", "join'"], {"round_trip_ns", *(f"train_{n}_ns" for n in (2, 4, 8, 16)), "delay_ns", "delayed_16_ns", "receive_ns"}), None),
    "sweep3d": (4, ["--sizes", "24,24K", "--threads", "2", "--partitions-per-thread", "3", "--compute-us", "100"], PATTERN,
                ([2, 2], [2, 2, 2, 2])),
    "halo3d": (3, ["--sizes", "24,384K", "--threads", "2", "--order", "random", "--compute-us", "100"], PATTERN, ([3, 1, 1], [1, 2, 1])),
}

# The defects of bench/hasty.c, and the text of a benchmark's guard about each. By partitions unless noted.
ABSENT = "what has arrived, it says, is not in the buffer"
FAULTY_WAY = {"put": "rma"}
FAULTS = {"payload": ABSENT, "arrival": "the partition that is held back arrives, it says",
          "send": "the send claims to be complete while a partition is held back",
          "receive": "the receive claims to be complete while a partition is held back"}
SHAPE = ["--sizes", "4K", "--threads", "2", "--compute-us", "200"]
HASTY = {
    "overhead": ([*SHAPE, "--recv-partitions", "4"], {**FAULTS, "put": ABSENT}),
    "call-cost": (SHAPE[:4], FAULTS),
    "latency": (SHAPE[:2], {**dict.fromkeys(("payload", "put"), ABSENT), **dict.fromkeys(("send", "receive"), "a side claims to be complete while the message is held back")}),
    "prtt": (SHAPE[:2], {"payload": ABSENT, **dict.fromkeys(("send", "receive"), "a side claims to be complete while the message is held back")}),
    "exposed": (SHAPE[:4], FAULTS),
    "first-arrival": (SHAPE[:2], {"payload": ABSENT, **dict.fromkeys(("send", "receive"), "a side claims to be complete while the message is held back")}),
    **dict.fromkeys(("sweep3d", "halo3d"), (SHAPE, {
        **dict.fromkeys(("payload", "arrival", "put"), ABSENT), "send": "a face claims to have been sent while a partition of it is held back"})),
}


# Of single steps: words, ways, samples that each has a value a round of.
STEPS = {
    "exposed": (["--sizes", "4K,512K", "--threads", "2", "--partitions", "8", "--late-us", "50", "--bound"], ["join", "persistent", "threads", "partitioned"], {"exposed_ns"}),
    "first-arrival": (["--sizes", "4K,512K", "--partitions", "8"], ["partitioned", "surprise"], {"first_arrival_ns"}),
    "call-differences": (["--sizes", "8K", "--partitions", "16", "--live"], ["pready", "marks", "parrived", "contended", "isend", "waitall"], {"difference_ns"}),
    "copy-steps": (["--sizes", "64K", "--partitions", "16"], ["copy", "turn", "switch", "line", "move", "first", "push", "pull"], {"step_ns"}),
    "latency": (["--sizes", "8,256K", "--partitions", "4"], ["line", "socket", "asleep", "partitioned"], {"half_round_trip_ns"}),
}

BENCHMARKS = [*TRACED, *UNTRACED]
FIGURES = sorted({"arrivals", "recv-compute-communication", *BENCHMARKS} - {"call-cost"})
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Suite:
    """The command of one build on one MPI."""

    def __init__(self, build, mpi):
        self.command = str(pathlib.Path(build, "bin/larklane"))
        self.mpi = launch.MPIS[mpi]
        self.program = ["--mpi", mpi] if mpi == ABI else []
        self.folder = tempfile.TemporaryDirectory()
        self.file = pathlib.Path(self.folder.name, "record.json")

    def run(self, *words, variant="larklane", ranks=2, environment=None):
        """@return (outcome, record or None)"""
        self.file.unlink(missing_ok=True)
        json_file = [] if "--json" in words else ["--json", str(self.file)]
        command = [self.command, "bench", *words, "--with", variant, *self.program, *json_file]
        outcome = launch.launch(self.mpi, ranks, command, 240, environment)
        return outcome, json.loads(self.file.read_text()) if self.file.exists() else None


def series_of(record):
    return [series for point in record["points"] for series in point["series"]]


def check_mpi(suite, record):
    """The program of the launcher's MPI was chosen."""
    version = suite.mpi.title.replace(",", "").split()
    version = next(word for word in version if word[0].isdigit())
    assert version in record["context"]["mpi"], (version, record["context"]["mpi"])


def check_record(record, benchmark, variant):
    assert (record["schema"], record["kind"]) == (1, "bench")
    assert record["options"]["benchmark"] == benchmark and record["context"]["variant"] == variant
    assert [point["bytes"] for point in record["points"]] == [4096, 524288]
    for series in series_of(record):
        if "refused" in series:
            continue
        for metric, values in series["samples"].items():
            assert len(values) == 6, (series["way"], metric)


def traced(suite, benchmark):
    ways = ["--ways", "join,persistent,threads,thread-comms,rma,partitioned,pretended"]
    outcome, record = suite.run(benchmark, *SMALL, *ways)
    assert outcome.status == 0, outcome.output
    check_record(record, benchmark, "larklane")
    check_mpi(suite, record)
    assert all(series["wrong"] == 0 and "refused" not in series for series in series_of(record)), outcome.output
    for series in series_of(record):
        if series["way"] == "partitioned":
            assert series["early"], "a partition must arrive while another one is held back"
        if series["way"] == "pretended":
            assert not series["early"] and max(series["samples"]["early_bird_share"]) == 0
    # The MPI's own calls may be wrong or hang: then the command must report that, and measure the rest.
    outcome, record = suite.run(benchmark, *SMALL, *ways, variant="native")
    assert record is not None, outcome.output
    reported = record["failures"] or any("refused" in series or series["wrong"] for series in series_of(record))
    assert outcome.status == 0 or (outcome.status == 1 and reported), outcome.output
    if not record["failures"]:
        check_record(record, benchmark, "native")


def check_untraced(record, benchmark):
    ranks, words, (ways, metrics), grid = UNTRACED[benchmark]
    context = record["context"]
    assert (record["schema"], context["ranks"]) == (1, ranks)
    assert grid is None or (context["grid"], context["neighbours"]) == grid, context
    assert len(record["points"]) == words[1].count(",") + 1
    for point in record["points"]:
        assert ([series["way"] for series in point["series"]], point["rounds"]) == (ways, 3)
    for series in series_of(record):
        assert set(series["samples"]) == metrics, series["way"]
        for values in series["samples"].values():
            assert len(values) == 3 and all(math.isfinite(value) for value in values), (series["way"], values)
        assert series["headline"]["median"] > 0 or benchmark == "call-cost", series["way"]


def untraced(suite, benchmark):
    ranks, words, _, _ = UNTRACED[benchmark]
    outcome, record = suite.run(benchmark, *words, *QUICK, ranks=ranks)
    assert outcome.status == 0 and not record["failures"], outcome.output
    assert all(series["wrong"] == 0 and "refused" not in series for series in series_of(record)), outcome.output
    check_untraced(record, benchmark)
    # Whether a part of another way is seen in time depends on the machine.
    assert not any(series["early"] for series in series_of(record) if series["way"] == "single"), outcome.output
    outcome, record = suite.run(benchmark, *words, *QUICK, variant="native", ranks=ranks)
    assert record is not None, outcome.output
    reported = record["failures"] or any("refused" in series or series["wrong"] for series in series_of(record))
    assert outcome.status == 0 or (outcome.status == 1 and reported), outcome.output
    if not reported:
        check_untraced(record, benchmark)


def faces(suite):
    """An MPI's own ways, all but partitions, are right natively, too: shapes in which shares, blocks and directions differ."""
    for benchmark, ranks, words in (
        ("halo3d", 2, ["--threads", "3", "--partitions-per-thread", "2", "--scaling", "weak", "--cold", "--order", "descending"]),
        ("sweep3d", 2, ["--threads", "1", "--partitions-per-thread", "4", "--noise", "uniform"]),
        ("sweep3d", 4, ["--threads", "3", "--order", "random"]),
    ):
        ways = [way for way in FACES if way != "partitioned"]
        words = [benchmark, *words, "--sizes", "24,96K", "--compute-us", "100", "--ways", ",".join(ways)]
        outcome, record = suite.run(*words, *QUICK, variant="native", ranks=ranks)
        assert outcome.status == 0 and not record["failures"], (words, outcome.output)
        for point in record["points"]:
            assert [series["way"] for series in point["series"]] == [*ways, "single'"], words
            assert all(series["wrong"] == 0 and "refused" not in series for series in point["series"]), (words, outcome.output)


def options(suite):
    """Each option has its documented effect."""
    words = ["early-bird", "--sizes", "6K", "--threads", "2", "--partitions-per-thread", "3", "--recv-partitions", "4", "--iterations", "4",
             "--warmup", "1", "--compute-us", "100", "--ways", "join,partitioned", "--cold", "--scaling", "weak", "--order", "random",
             "--noise", "exponential", "--noise-percent", "50", "--traces", "2"]
    outcome, record = suite.run(*words, "--csv", str(suite.file.with_suffix(".csv")))
    assert outcome.status == 0, outcome.output
    (point,) = record["points"]
    assert (point["bytes"], point["send_partitions"], point["recv_partitions"]) == (12288, 6, 4)
    partitioned = next(series for series in point["series"] if series["way"] == "partitioned")
    assert len(partitioned["traces"]) == 2
    assert len(partitioned["traces"][0]["transfers"]) == 6 and len(partitioned["traces"][0]["arrivals_ns"]) == 4
    lines = suite.file.with_suffix(".csv").read_text().splitlines()
    assert len(lines) == 1 + 3 * 4 * len(partitioned["samples"])
    # The same seed gives the same noise: the computed times of two launches differ by scheduling only; the options are kept.
    assert record["options"]["noise"] == "exponential" and record["options"]["order"] == "random"


def splits(suite):
    """Computed one by one, the partitions of a thread leave one by one: the time between them is a part of its time."""
    words = ["early-bird", "--sizes", "4K", "--threads", "1", "--partitions-per-thread", "4", "--compute-us", "8000", "--noise", "none",
             "--ways", "partitioned", "--iterations", "3", "--warmup", "0"]
    for split, is_apart in (("thread", False), ("partition", True)):
        outcome, record = suite.run(*words, "--compute-split", split)
        assert outcome.status == 0 and record["options"]["compute_split"] == split, outcome.output
        traces = record["points"][0]["series"][0]["traces"]
        spans_ns = [trace["transfers"][-1][0] - trace["transfers"][0][0] for trace in traces]
        assert (min(spans_ns) >= 3 * 2e6) == is_apart, (split, spans_ns)
        assert min(trace["joined_ns"] for trace in traces) >= 8e6


def oversubscribed(suite):
    """More threads than cores: reported once, and kept."""
    cores = len(os.sched_getaffinity(0))
    for words, is_over in ((["early-bird", "--sizes", str(64 * cores), "--threads", str(cores)], True), (["latency", "--sizes", "8"], cores < 2)):
        outcome, record = suite.run(*words, *QUICK)
        assert outcome.status == 0 and record["context"]["oversubscribed"] == is_over, (words, outcome.output)
        assert outcome.output.count("more threads than cores") == is_over, (words, outcome.output)


def replay(suite):
    """Every row of recorded delays has its turn, at another time on each rank: of two rows, each rank is late in every second block."""
    file = pathlib.Path(suite.folder.name, "delays.json")
    file.write_text('{"delays_ns": [[0], [2e7]]}')
    for benchmark, iterations, least_ns, most_ns in (("halo3d", "1", 2e7, math.inf), ("sweep3d", "3", 8 * 2e7, 12 * 2e7)):
        words = ["--sizes", "64", "--threads", "1", "--compute-us", "0", "--noise", f"trace:{file}", "--ways", "single", "--warmup", "0"]
        outcome, record = suite.run(benchmark, *words, "--iterations", iterations, variant="native")
        assert outcome.status == 0, outcome.output
        steps = record["points"][0]["series"][0]["samples"]["step_ns"]
        assert least_ns <= min(steps) < most_ns, (benchmark, steps)


def noise(suite):
    """A record of `larklane noise` is replayed; and the command names the records that it can't replay."""
    folder = pathlib.Path(suite.folder.name)
    file = folder / "noise.json"

    def record(path, *words, seconds="0.5"):
        words = [suite.command, "noise", "--seconds", seconds, "--out", str(path), *words]
        return subprocess.run(words, capture_output=True, text=True, timeout=240)

    def refused(word, path, *words, status=2, **options):
        done = record(path, *words, **options)
        assert done.returncode == status and word in done.stderr, done

    done = record(file)
    assert done.returncode == 0 and done.stdout.count("detours a second") == len(os.sched_getaffinity(0)), done
    found = json.loads(file.read_text())
    assert found["span_ns"] == 5e8 and found["cores"] == sorted(os.sched_getaffinity(0)), found
    assert all(detour[1] >= 1000 for core in found["detours_ns"] for detour in core), found
    words = ["--sizes", "64", "--threads", "1", "--compute-us", "100", "--iterations", "5", "--noise", f"trace:{file}", "--ways", "join"]
    outcome, _ = suite.run("overhead", *words, variant="native")
    assert outcome.status == 0, outcome.output
    refused(f"{file} is there already", file)
    done = record(file, "--overwrite", "--threshold-us", "100", seconds="0.3")
    found = json.loads(file.read_text())
    assert done.returncode == 0 and found["span_ns"] == 3e8 and found["threshold_ns"] == 100000, done
    assert all(detour[1] >= 100000 for core in found["detours_ns"] for detour in core), found
    refused("--seconds", folder / "none.json", seconds="0")
    refused("nan is no number", folder / "none.json", seconds="nan")
    refused("--threshold-us must be at least", folder / "none.json", "--threshold-us", "0.001")
    refused("--out", "")
    refused("/nonexistent/x.json: not written: No such file or directory", "/nonexistent/x.json", status=1)
    refused("not written: File name too long", folder / ("x" * 300), status=1)
    assert [path.name for path in folder.glob("*none*")] + [path.name for path in folder.glob("*.part")] == []


def messages(suite):
    """Threads, windows and communicators, and processes in the place of threads; received bytes are checked from end to end."""
    samples = {"message-rate": {"rate_per_s", "message_ns", "round_ns"}, "message-latency": {"half_round_trip_ns", "message_ns", "round_ns"}}
    for benchmark, ranks, words, ways in (
        ("message-rate", 2, ["--threads", "2", "--window", "8"], ["shared", "own", "shared'"]),
        ("message-rate", 2, ["--threads", "2", "--window", "8", "--operation", "put", "--lanes", "2"], ["shared", "own", "shared'"]),
        ("message-rate", 4, ["--threads", "2", "--ways", "everywhere"], ["everywhere", "everywhere'"]),
        ("message-latency", 2, ["--window", "2", "--ways", "own"], ["own", "own'"]),
        ("message-latency", 2, ["--operation", "put", "--ways", "own"], ["own", "own'"]),
    ):
        outcome, record = suite.run(benchmark, "--sizes", "1,8,100K", *words, *QUICK, variant="native", ranks=ranks)
        assert outcome.status == 0 and record["context"]["ranks"] == ranks, outcome.output
        check_mpi(suite, record)
        assert [point["bytes"] for point in record["points"]] == [1, 8, 102400]
        for point in record["points"]:
            assert [series["way"] for series in point["series"]] == ways, outcome.output
            for series in point["series"]:
                assert series["wrong"] == 0 and set(series["samples"]) == samples[benchmark], (series, outcome.output)
                assert all(len(values) == 3 and min(values) > 0 for values in series["samples"].values()), series
        assert "completion" not in record["options"], "what an MPI has none of"


def applications(suite):
    """In threads and in processes: the result equals that of one thread."""
    for benchmark, words, samples in (("stencil", ["--sizes", "8,400"], {"step_ns", "exchange_ns"}),
                                      ("ebms", ["--sizes", "1000,100001", "--blocks", "3"], {"round_ns", "fetch_ns", "get_ns", "flush_ns"}),
                                      ("bspmm", ["--sizes", "8,20000", "--blocks", "3"],
                                       {"time_ns", "counter_ns", "get_ns", "get_flush_ns", "accumulate_ns", "accumulate_flush_ns", "multiply_ns"})):
        for ranks, shape, ways in ((2, ["--threads", "2"], ["shared", "own", "shared'"]), (3, ["--ways", "own"], ["own", "own'"]),
                                   (4, ["--threads", "2", "--ways", "everywhere"], ["everywhere", "everywhere'"])):
            outcome, record = suite.run(benchmark, *words, *shape, *QUICK, variant="native", ranks=ranks)
            assert outcome.status == 0 and record["context"]["ranks"] == ranks, outcome.output
            check_mpi(suite, record)
            assert len(record["points"]) == 2
            for point in record["points"]:
                assert [series["way"] for series in point["series"]] == ways, outcome.output
                for series in point["series"]:
                    assert series["wrong"] == 0 and set(series["samples"]) == samples, (series, outcome.output)
    outcome, record = suite.run("bspmm", "--threads", "2", "--ways", "everywhere", variant="native", ranks=3)
    assert outcome.status == 2 and record is None, outcome.output
    assert outcome.output.count("needs 4 ranks, or a multiple of 2, here are 3: mpirun -n 4 larklane bench bspmm --ways everywhere --threads 2") == 1, outcome.output


def messages_hasty(suite):
    """A byte inside of a message that is wrong, and messages that don't come, are seen."""
    for fault, words, is_wrong in (("none", [], False), ("inside", [], True), ("put", ["--operation", "put"], True)):
        outcome, record = run_hasty(suite, fault, "message-rate", "--sizes", "4K", *words, *QUICK)
        assert outcome.status == is_wrong and record is not None, (fault, outcome.output)
        assert all((series["wrong"] > 0) == is_wrong for series in series_of(record)), (fault, outcome.output)


def messages_misuse(suite):
    for ranks, words, expected in (
        (3, [], "message-rate needs 2 ranks, here are 3"),
        (2, ["--ways", "everywhere", "--threads", "2"], "needs 4 ranks, here are 2: mpirun -n 4 larklane bench message-rate --ways everywhere --threads 2"),
        (2, ["--ways", "own,everywhere"], "--ways everywhere: processes instead of threads: a launch of its own"),
        (2, ["--ways", "join"], "--ways join: expected some of shared own everywhere"),
        (2, ["--operation", "am"], "--operation am: an MPI has no active messages: --with larklane"),
        (2, ["--operation", "put-signal"], "--operation put-signal: an MPI has no signals of puts: --with larklane"),
        (2, ["--operation", "shout"], "--operation: shout not in {send,put,put-signal,am,ssend}"),
        (2, ["--window", "0"], "--window"),
        (2, ["--lanes", "0"], "--lanes"),
        (2, ["--progress", "none"], "--progress: none not in {workers,dedicated}"),
        (2, ["--sizes", "1G", "--window", "64"], "size 1073741824: --threads x --window"),
        (2, ["--compute-us", "1"], "compute-us"),
    ):
        outcome, record = suite.run("message-rate", *words, variant="native", ranks=ranks)
        assert outcome.status == 2 and outcome.output.count(expected) == 1 and record is None, (words, outcome.status, outcome.output)


def messages_turns(suite):
    """Both variants and both shapes from outside of a launcher, and the page about them."""
    launcher = " ".join([str(suite.mpi.launcher), *suite.mpi.flags, "-n", "{processes}"])
    out = pathlib.Path(suite.folder.name, "out")
    command = [suite.command, "bench", "message-rate", "--launcher", launcher, "--out", str(out), "--quick", "--threads", "1,2", *QUICK]
    done = subprocess.run(command, env={**os.environ, **suite.mpi.environment}, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads((out / "bench.json").read_text())["runs"]
    assert [(run["context"]["variant"], run["options"]["threads"], run["context"]["ranks"], run["options"]["ways"]) for run in runs] == [
        (variant, threads, 2 * threads if ways == ["everywhere"] else 2, ways)
        for threads in (1, 2) for ways in (["shared", "own"], ["everywhere"]) for variant in ("native", "larklane")], runs
    assert "Messages of Larklane against those of the MPI" in done.stdout, done.stdout
    html = (out / "index.html").read_text()
    assert "import matplotlib" in html or figures_in(html) == ["message-rate", "message-rate-threads"], figures_in(html)


def neighbours(suite):
    """A message to each of two receivers."""
    words = ["--neighbours", "2", "--ways", "join,persistent,threads,thread-comms,rma,partitioned,pretended", "--traces", "1"]
    outcome, record = suite.run("early-bird", *SMALL, *words, ranks=3)
    assert outcome.status == 0, outcome.output
    check_record(record, "early-bird", "larklane")
    assert (record["options"]["neighbours"], record["context"]["ranks"]) == (2, 3)
    for point in record["points"]:
        for series in point["series"]:
            assert series["wrong"] == 0 and "refused" not in series, (series["way"], outcome.output)
            (trace,) = series["traces"]
            assert sum(size for _, _, size in trace["transfers"]) == 2 * point["bytes"], series["way"]
            assert len(trace["arrivals_ns"]) in (2, 4), series["way"]


def guarded(suite):
    """From their second round on, Open MPI 5.0.11's own requests are complete before anything is marked (docs/user/native-table.md): no figures."""
    for words in (["overhead", *SMALL, "--ways", "join,partitioned"], ["latency", *QUICK, "--sizes", "4K", "--ways", "join,partitioned"],
                  ["call-cost", *QUICK, "--sizes", "4K"], ["halo3d", *QUICK, "--sizes", "24K", "--ways", "single,partitioned"]):
        outcome, record = suite.run(*words, variant="native")
        assert outcome.status == 1 and record is not None, outcome.output
        for series in series_of(record):
            assert ("refused" in series) == (series["way"].rstrip("'") not in ("join", "single")), (words[0], series["way"], outcome.output)


def run_hasty(suite, fault, *words):
    """@return as suite.run() on bench/hasty.c"""
    double = pathlib.Path(suite.folder.name, "hasty.so")
    if not double.exists():
        source = pathlib.Path(__file__).resolve().parent / "bench/hasty.c"
        subprocess.run([str(suite.mpi.wrapper), "-shared", "-fPIC", "-O1", str(source), "-o", str(double)], check=True)
    return suite.run(*words, variant="native", environment={"LD_PRELOAD": str(double), "HASTY": fault})


def hasty(suite):
    """An MPI with one defect at a time: no figures, and the defect is named as the reason."""
    for benchmark, (words, faults) in HASTY.items():
        for fault, reason in {"none": "", **faults}.items():
            outcome, record = run_hasty(suite, fault, benchmark, *words, *QUICK, "--ways", FAULTY_WAY.get(fault, "partitioned"))
            assert record is not None, (benchmark, fault, outcome.output)
            assert {series.get("refused", "") for series in series_of(record)} == {reason}, (benchmark, fault, outcome.output)


def stuck(suite):
    """A way that is never made ends the launch as a round that is never over does, and is named. So does an MPI that never ends."""
    for benchmark in HASTY:
        outcome, record = run_hasty(suite, "made", benchmark, "--sizes", "4K", "--iterations", "3", "--warmup", "1", "--limit", "2")
        assert outcome.status == 1 and outcome.seconds < 20 and record is not None, (benchmark, outcome.output)
        (failure,) = record["failures"]
        assert (failure["way"], failure["bytes"]) == ("partitioned", 4096) and "not made" in failure["what"], failure
    outcome, record = run_hasty(suite, "end", "latency", "--sizes", "8", "--iterations", "3", "--warmup", "1", "--limit", "2")
    assert outcome.status == 1 and outcome.seconds < 20 and "MPI_Finalize hangs" in outcome.output, outcome.output
    assert len(record["points"]) == 1 and not record["failures"], record["failures"]


def budget(suite):
    for benchmark in (["overhead", "--threads", "1", "--compute-us", "200"], ["call-cost"]):
        for warmup in ("10", "0"):
            words = ["--sizes", "4K", "--iterations", "100000", "--warmup", warmup, "--budget", "2"]
            outcome, record = suite.run(*benchmark, *words)
            assert outcome.status == 0 and "the time budget" in outcome.output, outcome.output
            assert 5 <= record["points"][0]["rounds"] < 100000
            assert outcome.seconds < 20


def refused(suite, words, expected, ranks=2):
    outcome, record = suite.run(*words, ranks=ranks)
    assert outcome.status == 2 and expected in outcome.output and record is None, (words, outcome.status, outcome.output)
    assert outcome.output.count(expected) == 1, "said by one rank only"


def misuse(suite):
    for words, expected in (
        (["overhead", "--sizes", "10"], "multiple of the 4 send partitions"),
        (["overhead", "--sizes", "64K", "--recv-partitions", "3"], "multiple of the 3 receive partitions"),
        (["overhead", "--sizes", "nonsense"], "--sizes nonsense"),
        (["overhead", "--ways", "pigeon"], "--ways pigeon"),
        (["overhead", "--noise", "loud"], "--noise loud"),
        (["overhead", "--threads", "0"], "threads"),
        (["overhead", "--colour", "red"], "colour"),
        *((["overhead", option, "nan"], f"{option}: nan is no number") for option in ("--compute-us", "--noise-percent", "--budget", "--limit")),
        (["nothing"], "nothing"),
    ):
        refused(suite, words, expected)
    for ranks, words, expected in (
        (1, ["halo3d"], "no neighbours"),
        (3, ["latency"], "latency needs 2 ranks, here are 3"),
        (2, ["prtt", "--sizes", "128M"], "size 134217728: prtt has room for 134217727"),
        (2, ["overhead", "--neighbours", "2"], "mpirun -n 3 larklane bench overhead --neighbours 2"),
        (2, ["overhead", "--neighbours", "0"], "neighbours"),
        (2, ["sweep3d", "--sizes", "10", "--threads", "4"], "multiple of the 4 send partitions"),
        (2, ["sweep3d", "--ways", "single,join"], "--ways join"),
        (2, ["halo3d", "--sizes", "8", "--threads", "2", "--recv-partitions", "4"], "--recv-partitions"),
    ):
        refused(suite, words, expected, ranks)
    outcome, _ = suite.run("overhead", "--sizes", "4K", "--iterations", "3", "--json", "/nonexistent/x.json")
    assert outcome.status != 0 and "/nonexistent/x.json" in outcome.output
    # Existing files stay.
    kept = pathlib.Path(suite.folder.name, "kept.json")
    kept.write_text("before")
    part = pathlib.Path(f"{kept}.part")
    part.mkdir()
    outcome, _ = suite.run("overhead", "--sizes", "4K", "--iterations", "3", "--json", str(kept))
    assert outcome.status != 0 and f"{kept}: not written: File exists" in outcome.output, outcome.output
    assert kept.read_text() == "before"
    part.rmdir()
    full = pathlib.Path(suite.folder.name, "full.json")
    full.symlink_to("/dev/full")
    outcome, _ = suite.run("overhead", "--sizes", "4K", "--iterations", "3", "--json", str(full))
    assert outcome.status != 0 and f"{full}: not written: No space left on device" in outcome.output, outcome.output
    assert full.is_symlink() and full.is_char_device(), "the device has become a file"


def uneven(suite):
    """A file that is missing on one rank: that rank reports it, and all end."""
    file = pathlib.Path(suite.folder.name, "delays")
    file.with_name("delays0").write_text('{"delays_ns": [[0]]}')
    words = f'exec {suite.command} bench halo3d --noise "trace:{file}${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}"'
    outcome = launch.launch(suite.mpi, 2, ["sh", "-c", words], 30)
    assert outcome.status == 2 and outcome.output.count("delays1") == 1 and "delays0" not in outcome.output, (outcome.status, outcome.output)


def missing(suite):
    """An MPI without partitioned calls: natively everything else is measured, and the output states that."""
    outcome, record = suite.run("overhead", *SMALL, "--ways", "join,partitioned,threads", variant="native")
    assert outcome.status == 1 and "partitioned: no figures: this MPI has no partitioned calls" in outcome.output, outcome.output
    for series in series_of(record):
        assert ("refused" in series) == (series["way"] == "partitioned"), series["way"]
    outcome, record = suite.run("call-cost", variant="native")
    assert outcome.status == 2 and "no partitioned calls of its own: --with larklane" in outcome.output and record is None, outcome.output


def steps(suite):
    """Every way of every single step, alone: exactly as many rounds as were asked for, and each payload right."""
    for benchmark, (words, ways, samples) in STEPS.items():
        rounds = 6
        outcome, record = suite.run(benchmark, *words, "--ways", ",".join(ways), "--iterations", str(rounds), "--warmup", "1", "--limit", "20", "--bare")
        assert outcome.status == 0, outcome.output
        for point in record["points"]:
            assert [series["way"] for series in point["series"]] == ways, point["series"]
        for series in series_of(record):
            assert series["wrong"] == 0 and "refused" not in series and samples <= set(series["samples"]), (benchmark, series)
            for name in samples:
                values = series["samples"][name]
                held = rounds // 3 if series["way"] == "surprise" else rounds
                assert len(values) == held and all(math.isfinite(value) for value in values), (benchmark, series["way"], values)
    outcome, record = suite.run("exposed", "--points", "1024:4:3:0,4096:8:2:1", "--ways", "partitioned", "--bare")
    assert outcome.status == 0, outcome.output
    assert [(point["bytes"], point["send_partitions"], point["rounds"]) for point in record["points"]] == [(1024, 4, 3), (4096, 8, 2)], record["points"]
    for point in ("1024:3:3:0", "1024:4:3", "1024:4:3:0x", "1024:4294967300:3:0"):
        refused(suite, ["exposed", "--points", point], f"--points {point}: expected BYTES:PARTITIONS:ITERATIONS:WARMUP")
    refused(suite, ["exposed", "--bound"], "--bound: of --threads 2")
    refused(suite, ["copy-steps", "--sizes", "1K", "--ways", "pigeon"], "--ways pigeon: expected some of")
    refused(suite, ["pigeon"], "no benchmark is called pigeon; there are: overhead")


def program(suite):
    """A named program is taken, and must be there."""
    outcome, _ = suite.run("latency", "--sizes", "8", "--iterations", "3", "--mpi", "pigeon")
    assert outcome.status == 2 and "--mpi pigeon: expected one of:" in outcome.output, outcome.output


def turns(suite):
    """From outside of a launcher, both variants, one file."""
    launcher = " ".join([str(suite.mpi.launcher), *suite.mpi.flags, "-n", "2"])
    out = pathlib.Path(suite.folder.name, "out")
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", **suite.mpi.environment}
    command = [suite.command, "bench", "early-bird", "--launcher", launcher, "--out", str(out), "--repetitions", "2", "--no-report", "--quick", *SMALL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=480, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((out / "bench.json").read_text())
    assert found["kind"] == "bench-set"
    assert [run["context"]["variant"] for run in found["runs"]] == ["native", "larklane", "larklane", "native"]
    assert "[4/4]" in done.stderr


def figures_in(html):
    return sorted(re.findall(r'<figure id="figure-([\w-]+)"><img [^>]*src="data:image/svg', html))


def minutes(suite):
    """`larklane bench all --quick` on two cores: everything once in less than five minutes."""
    seconds = quick(suite, ())
    print(f"{seconds:.0f} s")
    assert seconds < 300, seconds


def quick(suite, words=("--sizes", "4K,64K", "--iterations", "4", "--warmup", "1", "--compute-us", "200")):
    """Everything once, and a page with every figure. @return the seconds that it took to measure"""
    out = pathlib.Path(suite.folder.name, "out")
    path = f"{suite.mpi.launcher.parent}:{os.environ['PATH']}"
    cores = set(sorted(os.sched_getaffinity(0))[:2])
    begin = time.monotonic()
    done = subprocess.run([suite.command, "bench", "all", "--quick", *words, "--out", str(out)], env={**os.environ, **suite.mpi.environment, "PATH": path},
                          preexec_fn=lambda: os.sched_setaffinity(0, cores), capture_output=True, text=True, timeout=1520, check=False)
    seconds = time.monotonic() - begin
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads((out / "bench.json").read_text())["runs"]
    assert {(run["options"]["benchmark"], run["context"]["variant"]) for run in runs} == {
        (benchmark, variant) for benchmark in BENCHMARKS for variant in ("native", "larklane")}
    page = out / "index.html"
    html = page.read_text()
    if "import matplotlib" in html:
        print("no matplotlib: no figures")
        return seconds
    assert figures_in(html) == FIGURES, figures_in(html)
    if CHROMIUM:
        browser = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={suite.folder.name}/profile", "--dump-dom"]
        dom = subprocess.run([*browser, page.as_uri()], capture_output=True, text=True, timeout=240, check=True).stdout
        assert figures_in(dom) == FIGURES, figures_in(dom)
    return seconds


CASES = {**{name: lambda suite, name=name: traced(suite, name) for name in TRACED},
         **{name: lambda suite, name=name: untraced(suite, name) for name in UNTRACED},
         "faces": faces, "options": options, "splits": splits, "steps": steps, "oversubscribed": oversubscribed, "replay": replay, "noise": noise, "messages": messages, "applications": applications, "messages_hasty": messages_hasty, "messages_misuse": messages_misuse, "messages_turns": messages_turns, "neighbours": neighbours, "budget": budget, "guarded": guarded, "hasty": hasty, "stuck": stuck, "misuse": misuse, "program": program, "turns": turns, "quick": quick, "minutes": minutes, "missing": missing, "uneven": uneven}
EVERY = [case for case in CASES if case not in ("missing", "guarded", "hasty", "messages_hasty", "messages_misuse", "stuck", "quick", "minutes")]
# Enough to see that the program of an MPI is there and is the one that starts.
SOME = ["early-bird", "halo3d", "faces"]
LISTED = {"mpich5": [*EVERY, "hasty", "messages_hasty", "messages_misuse", "stuck", "quick", "minutes"], "openmpi5": [*EVERY, "guarded"], ABI: SOME, "mpich4": SOME, "openmpi4": [*SOME, "missing"]}


if __name__ == "__main__":
    sys.exit(launch.run_cases(__doc__, CASES, LISTED, Suite))
