"""The runner of `larklane bench`, with a command that only pretends to measure."""

import json
import pathlib
import sys
import time

import pytest

from larklane import bench

# A stand-in for `larklane bench BENCHMARK --with VARIANT --json FILE ...`; what it does is told by MODE.
COMMAND = """#!{python}
import json, os, sys, time
words = sys.argv[1:]
value = lambda name: words[words.index(name) + 1] if name in words else None
benchmark, variant, without = words[1], value("--with"), (value("--without") or "").split(",")
mode = os.environ["MODE"]
ways = [way for way in ("join", "partitioned") if way not in without]
failures = []
if mode == "hang" and variant == "native" and "partitioned" in ways:
    failures = [{{"way": "partitioned", "bytes": 64, "what": "not over after 30 s"}}]
points = [] if failures else [{{"bytes": 64, "series": [{{"way": way, "wrong": int(mode == "wrong" and variant == "native")}} for way in ways]}}]
record = {{"options": {{"benchmark": benchmark}}, "context": {{"variant": variant}}, "points": points, "failures": failures}}
with open(os.environ["LOG"], "a") as log:
    log.write(" ".join(words) + "\\n")
if mode == "die":
    sys.exit("no such network")
json.dump(record, open(value("--json"), "w"))
if mode == "sleep":
    time.sleep(60)
sys.exit(1 if failures or mode == "wrong" else 0)
"""


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """@return run(mode, words...) -> (exit status, set, words of each launch)"""
    command = tmp_path / "larklane"
    command.write_text(COMMAND.format(python=sys.executable))
    command.chmod(0o755)
    monkeypatch.setenv("LARKLANE_COMMAND", str(command))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))

    def run(mode, *words):
        monkeypatch.setenv("MODE", mode)
        out = tmp_path / "out"
        status = bench.main([*words, "--launcher", "env", "--no-report", "--out", str(out)])
        return status, json.loads((out / "bench.json").read_text()), (tmp_path / "log").read_text().splitlines()

    return run


def test_variants_take_turns(measured):
    status, found, launches = measured("well", "overhead", "--repetitions", "3")
    assert status == 0 and found["failures"] == []
    variants = [run["context"]["variant"] for run in found["runs"]]
    assert variants == ["native", "larklane", "larklane", "native", "native", "larklane"]
    assert all(line.startswith("bench overhead --with") for line in launches)


def test_all_means_every_benchmark_once_in_a_quick_run(measured):
    _, found, _ = measured("well", "all", "--quick", "--with", "larklane")
    assert [run["options"]["benchmark"] for run in found["runs"]] == list(bench.BENCHMARKS)


def test_further_options_reach_the_benchmark(measured):
    _, _, launches = measured("well", "overhead", "--with", "native", "--repetitions", "1", "--threads", "3")
    assert launches[0].endswith("--threads 3")


def test_a_way_that_hangs_is_named_and_left_out_from_then_on(measured):
    status, found, launches = measured("hang", "overhead", "--repetitions", "2")
    assert status == 0, "a failure of the MPI's own is no failure of the run"
    (failure,) = found["failures"]
    assert (failure["variant"], failure["way"]) == ("native", "partitioned") and "64 bytes" in failure["what"]
    assert len(found["runs"]) == 4
    assert ["--without partitioned" in line for line in launches] == [False, True, False, False, True]


def test_wrong_payload_is_a_failure(measured):
    _, found, _ = measured("wrong", "overhead", "--repetitions", "1")
    assert {failure["what"] for failure in found["failures"]} == {"64 bytes: 1 wrong rounds"}
    assert {failure["variant"] for failure in found["failures"]} == {"native"}


def test_a_launch_that_dies_does_not_stop_the_others(measured):
    status, found, launches = measured("die", "all", "--repetitions", "1")
    assert status == 1 and found["runs"] == [] and len(launches) == 2 * len(bench.BENCHMARKS)
    assert all("no such network" in failure["what"] for failure in found["failures"])


def test_a_launch_without_end_is_killed_and_what_it_measured_is_kept(measured):
    began = time.monotonic()
    _, found, _ = measured("sleep", "overhead", "--with", "native", "--repetitions", "1", "--launch-limit", "1")
    assert time.monotonic() - began < 30
    assert len(found["runs"]) == 1 and found["failures"][0]["what"] == "no end after 1 s"


def test_unknown_variant_is_refused(capsys, tmp_path):
    assert bench.main(["overhead", "--with", "both", "--out", str(tmp_path)]) == 2
    assert "--with both" in capsys.readouterr().err


def test_a_folder_that_can_not_be_written_is_said(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert bench.main(["overhead", "--out", str(file / "under")]) == 1
    assert str(pathlib.Path(file, "under")) in capsys.readouterr().err
