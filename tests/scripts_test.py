#!/usr/bin/env python3
"""Tests of the pure parts of scripts/: numbers and texts worked out by hand. Run by ctest; needs the standard library only."""

import contextlib
import dataclasses
import importlib.util
import io
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
from unittest import mock

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "scripts"
sys.path[:0] = [*(str(SCRIPTS / purpose) for purpose in ("dev", "measure", "papers", "policies")), str(SCRIPTS.parent / "tests/python")]
import golden  # noqa: E402


def load(name):
    (path,) = SCRIPTS.glob(f"*/{name}.py")
    spec = importlib.util.spec_from_file_location(f"larklane_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


bars, driver, learned, mutants, options, paper, savings, simulated, snap, snap_figure, statements = map(
    load, ("bars", "test", "learned", "mutants", "options_doc", "paper_figures", "savings", "simulated", "snap", "snap_figure", "statements"))
stats = bars.stats


def test_quantiles():
    assert stats.median([3, 1, 2]) == 2 and stats.median([1, 2, 3, 10]) == 2.5
    assert stats.quantile(range(11), 0.1) == 1 and stats.quantile([0, 10], 0.9) == 9
    assert stats.summary([5, 1, 3]) == {"n": 3, "min": 1, "p10": 1.4, "median": 3, "p90": 4.6}


def test_median_bounds():
    # n = 10: P(X >= 9) = 11/1024 <= 5 % < P(X >= 8) = 56/1024, so the bounds are the 2nd and the 9th.
    assert stats.median_bounds(range(1, 11)) == (2, 9)
    # n = 5: P(X >= 5) = 1/32 <= 5 %; n = 4: 1/16 is too much.
    assert stats.median_bounds([1, 2, 3, 4, 5]) == (1, 5)
    assert stats.median_bounds([1, 2, 3, 4]) == (-math.inf, math.inf)


def test_verdicts():
    ten = [100.0] * 10
    assert abs(stats.aa_noise([110], [100]) - 0.1) < 1e-12 and abs(stats.aa_noise([100], [110]) - 0.1) < 1e-12

    def verdict(ratio, spread=0.0, noise=0.0):
        candidate = [100 * ratio * (1 + spread * (-1) ** turn) for turn in range(10)]
        return stats.compare(candidate, ten, noise=noise, margin=0.03)["verdict"]

    assert verdict(0.98) == "ahead"
    assert verdict(1.00) == "not slower" and verdict(1.03) == "not slower"
    assert verdict(1.05) == "slower"
    assert verdict(1.05, noise=0.03) == "not slower"
    assert verdict(1.03, spread=0.1) == "too noisy"
    assert verdict(1.05, noise=0.3) == "too noisy" and verdict(1.03, noise=0.3) == "not slower"
    assert verdict(170.0, noise=500.0) == "too noisy"
    assert stats.compare([1, 1], [1, 1], 0, 0)["verdict"] == "too noisy"


class Seen:
    """Figures of a few points for the judges of scripts/papers/statements.py: {(plan, size): values}."""

    def __init__(self, figures):
        self.figures = figures

    def values(self, plan, size, way="partitioned"):
        return self.figures[plan, size]

    def sizes(self, plan):
        return sorted(size for name, size in self.figures if name == plan)


def test_simulated():
    point = simulated.Point(4, 1 << 20, 2, 1000)
    assert point in simulated.grid() and len(set(simulated.grid())) == len(simulated.grid())
    made = simulated.judged(point, [100.0, 110.0, 90.0, 120.0, 100.0], 92.0)  # the turns: 100, 90, 100 and 110, 120
    assert made["median_us"] == 100 and abs(made["aa_noise"] - 0.15) < 1e-9 and abs(made["error"] - 0.08) < 1e-9
    assert made["place"] == "4 partitions, 1 MiB, 2 groups, 1000 us late"

    def verdict(*simulated_us, noise=0.0):
        points = [simulated.judged(point, [100.0, 100 * (1 + noise)], each * (1 + noise / 2)) for each in simulated_us]
        return simulated.verdicts(points)[0]

    assert verdict(115, 80, 100)[1] and not verdict(116, 80, 100)[1]  # 15, 20, 0 and 16, 20, 0 %
    assert "1 are further off, the worst by 20 %" in verdict(115, 80, 100)[0]
    assert "0 are too noisy" in verdict(100, noise=0.1)[0] and "1 are too noisy" in verdict(100, noise=0.2)[0]
    turn = {f"copy {bytes_}": [float(number) for number in range(30)] for bytes_ in simulated.SIZES}
    turns = [{**turn, "pready": [-1.0 * scale], "move": [300.0], "first": [1500.0], "line": [50.0], "turn": [800.0 * scale], "switch": [3000.0]} for scale in (1, 2, 3)]
    text = simulated.costs_text(simulated.over_turns(turns))
    # No cost is negative; a call of 8 KiB is the third of each five.
    assert text.splitlines()[0] == "larklane copy costs 1" and "pready 0.0\n" in text and "turn 1600.0\n" in text and text.endswith("end\n")
    assert "copy 65536 8192 2.0 7.0 12.0 17.0 22.0 27.0\n" in text


def test_learned():
    def point(learned_us, equal_us=(10.0, 6.0, 8.0), learning_us=10.0):
        return {"partitions": 4, "bytes": 1024, "pattern": "laggard", "spread_us": 100, "learned_us": learned_us, "equal_us": list(equal_us), "learning_us": learning_us}

    def holds(points, dear=()):
        return [well for _, well in learned.verdicts(points, list(dear) or [point(4.8)])]

    assert holds([point(6.0)] * 3) == [True] * 5
    assert holds([point(6.4), point(6.0), point(6.4)]) == [False, True, True, True, True]
    assert holds([point(6.0), point(7.0), point(6.0)]) == [True, False, True, True, True]
    assert holds([point(6.0), point(6.0, learning_us=12.6)]) == [True, True, False, True, True]
    assert holds([point(10.3), point(6.0, equal_us=(5.9, 6.0)), point(6.0)])[3] and not holds([point(10.5), point(6.0), point(6.0)])[3]
    assert holds([point(6.0)], [point(4.0), point(5.0)])[4] is False
    assert "| laggard, 100 us | 4 | 1.00 |" in learned.table([point(6.0)], [point(4.8) | {"transfers": 2}])


def test_paper_groups():
    table = {256 << 10: 1, 512 << 10: 2, 1 << 20: 2, 2 << 20: 4, 4 << 20: 4, 8 << 20: 8, 16 << 20: 8, 32 << 20: 16, 64 << 20: 16, 128 << 20: 32}
    assert all(paper.ploggp(size, 128) == groups for size, groups in table.items())
    assert paper.ploggp(128 << 20, 4) == 4 and paper.ploggp(1, 4) == 1


def test_paper_arrivals():
    # Each message takes a microsecond of the wire: two that are ready at once take turns, the last one finds the wire free.
    found = paper.estimated([5.0, 5.0, 20.0], 3 * 11500)
    assert [(bar.begin_us, round(bar.end_us, 9)) for bar in found] == [(-15.0, -14.0), (-15.0, -13.0), (0.0, 1.0)]
    late = paper.modelled_ready_us(4)
    assert max(late) == late[-1] == 104000 and [round(each - 100000, 9) for each in late[:3]] == [0.05, 0.1, 0.15]
    assert abs(paper.early_share(8 << 20) - 31 / 32) < 1e-12 and paper.early_share(1 << 30) < 0.1


def test_paper_host():
    run = {"partitions": 32, "bytes": 64, "delta_us": 7.0, "bars": [[-3.0, 1.0]]}
    host = {"cpu": "Moon", "cores": 2, "mpi": "M", "measured": "2026-01-02T03", "load": 0.5, "rounds": 10,
            "runs": [run, run | {"partitions": 4, "delta_us": None}, run | {"bytes": 128, "delta_us": 9.0}]}
    assert [[tuple(bar) for bar in panel.bars] for panel in paper.paper_host.panels(host, 64)] == [[(-3.0, 1.0, 2)]]
    panel, = paper.paper_host.delta_panels(host, (4, 32))
    assert [(curve.label, [(mark.at, mark.median) for mark in curve.marks]) for curve in panel.curves] == [("32 partitions", [(64, 7.0), (128, 9.0)])]
    assert "Moon" in paper.paper_host.footer(host) and "load 0.5" in paper.paper_host.footer(host)
    nothing = paper.paper_host.read(pathlib.Path("/nowhere"))
    assert not paper.paper_host.panels(nothing, 64) and not paper.paper_host.delta_panels(nothing, (4,)) and not paper.paper_host.footer(nothing)


def measured_shm(us_of):
    """The records of figures 6, 8, 9, 13 and 14 in host.json, two turns. @param us_of  (setting, contender, size) -> microseconds"""
    shm, mpi = paper.paper_shm, bars.launch.MPIS["mpich5"]

    def run(_, setting, name, chosen):
        contenders = [name, *([shm.ONE_SEND] if "join" in chosen.ways else [])]
        return {(size, each): us_of(setting, each, size) for size in chosen.sizes for each in contenders}

    twice = {name: pattern._replace(turns=2) for name, pattern in shm.PATTERNS.items()}
    with mock.patch.object(shm, "run", run), mock.patch.object(shm, "PATTERNS", twice), contextlib.redirect_stderr(io.StringIO()):
        return {"cpu": "Moon", "cores": 2, "mpi": "M", "measured": "2026-01-02T03", "load": 0.5, "runs": [], **shm.measure(mpi)}


def test_paper_shm_launches():
    shm, mpis = paper.paper_shm, bars.launch.MPIS
    assert shm.AT_ONCE[32, 2].words()[:5] == ["overhead", "--threads", "2", "--partitions-per-thread", "16"]
    assert "--noise none" in " ".join(shm.AT_ONCE[4, 4].words()) and "--noise single --noise-percent 400000" in " ".join(shm.LATE[4].words())
    four = shm.launches(shm.AT_ONCE[4, 4], mpis["mpich5"])
    assert [each.policy for each in four.values()] == ["none", "static:1", "static:2", ""]
    late = shm.launches(shm.LATE[32], mpis["mpich5"])
    assert late["8 groups"] == ("static:8", (8 << 20,), ("partitioned",)) and late["timer, 35 us"].policy == "timer:35us"
    assert late[shm.ITSELF].ways == ("partitioned", "join") and shm.launches(shm.LATE[32], mpis["openmpi5"])[shm.ITSELF].ways == ("join",)
    assert shm.ITSELF not in shm.launches(shm.AT_ONCE[4, 4], mpis["openmpi5"])


def test_paper_shm_run():
    """A launch counts with the rounds of both its series, and only if all its sizes have figures."""
    shm, mpi = paper.paper_shm, bars.launch.MPIS["mpich5"]
    both = [golden.series(way, {"total_ns": samples}) for way, samples in (("partitioned", [1000.0, 2000.0]), ("partitioned'", [6000.0]))]
    file = golden.record("overhead", golden.point(1024, 4, *both), variant="larklane")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "bench.json"
        path.write_text(json.dumps(file))
        found = shm.cases.measured(paper.paper_host.schema.load([path]))
    asked = []

    def benched(mpi, ranks, words, environment):
        asked.append((" ".join(words), environment))
        return found

    with mock.patch.object(shm.paper_host, "benched", benched):
        assert shm.run(mpi, shm.AT_ONCE[4, 4], "1 group", shm.Launch("static:1", (1024,))) == {(1024, "1 group"): 2.0}
        assert asked[0][1] == {"LARKLANE_POLICY": "static:1", "LARKLANE_SHM_SLOT_BYTES_MAX": "0"} and "--with larklane" in asked[0][0]
        try:
            shm.run(mpi, shm.AT_ONCE[4, 4], shm.ITSELF, shm.Launch("", (1024, 2048)))
        except RuntimeError:
            assert asked[1][1] == {} and "--sizes 1024,2048 --ways partitioned --with native" in asked[1][0]
            return
    raise AssertionError("a size without figures was let go by")


def test_paper_shm_failures():
    """A contender that fails once has no figures there, and the page names it."""
    shm, page = paper.paper_shm, paper.paper_shm_page
    calls = []

    def us_of(setting, name, size):
        calls.append((setting, name))
        if (setting, name) == (shm.LATE[4], shm.ITSELF) and calls.count((setting, name)) > len(shm.PATTERNS["perceived-bandwidth"].sizes):  # the second turn
            raise RuntimeError("perceived-bandwidth\n1 wrong rounds")
        return 12.0

    host = measured_shm(us_of)
    late = next(point for point in host["points"] if point["benchmark"] == "perceived-bandwidth" and point["partitions"] == 4)
    assert shm.ITSELF not in late["series"] and shm.ONE_SEND not in late["series"] and late["series"][shm.NONE] == late["series"][shm.AGAIN] == [12.0, 12.0]
    assert "- left out: the MPI itself of perceived-bandwidth, 4 partitions: 1 wrong rounds" in page.section(host, None)
    assert [figure.name for figure in shm.figures(host, None)] == [f"figure-{number}-host" for number in ("06", "08", "09", "13", "14")]


def test_paper_shm_verdicts():
    page = paper.paper_shm_page
    assert page.above([1.2, 1.1], [1.05]) is True and page.above([1.2, 1.1], [1.15]) is None and page.above([0.8], [0.9]) is False
    assert page.above([0.95], [0.9]) is None and page.above([], []) is None and page.below([0.8], []) is True and page.below([1.2], []) is False
    assert page.alike([1.05, 0.95]) is True and page.alike([1.5, 2]) is False and page.alike([1, 2]) is page.alike([0.5, 2]) is page.alike([]) is None
    assert page.every([True, None]) is None and page.every([None, False]) is False and page.every([True]) is True and page.every([]) is None
    assert page.judged([("a", True), ("b", None), ("c", True), ("d", False)]) == "As there: a; c. **Not here**: d. Not clear: b."


def test_paper_shm_page():
    """Texts follow the numbers: groups are three times as fast up to 64 KiB and half as fast above, timers take 10 % more each."""
    shm, page = paper.paper_shm, paper.paper_shm_page

    def us_of(setting, name, size):
        if "group" in name:
            return 4.0 if size <= 64 << 10 else 24.0
        return 12.0 * (1 + 0.1 * shm.DELTAS_US.index(int(name.split()[1]))) if name in map(shm.timer, shm.DELTAS_US) else 120.0 if name == shm.ONE_SEND else 12.0

    host = measured_shm(us_of)
    seen = shm.Seen(host)
    assert page.row_6(seen)[2] == "As there: one transfer is better than 32 at 1 KiB. **Not here**: 32 are better than one from 16 KiB on; all alike at 4 MiB."
    assert "1 KiB `1 group` 3.00" in page.row_6(seen)[1] and "4 MiB `none`" in page.row_6(seen)[1] and "A/A noise: 1.00 to 1.00" in page.row_6(seen)[1]
    assert page.row_9(seen)[2].startswith("As there: the baseline is ahead of Table I; Table I is ahead of one send; the timer")
    assert "`none` 699.05 (699.05 to 699.05)" in page.row_9(seen)[1]
    assert page.row_13(seen)[1:3] == ("At most 20.00 % apart; the baseline, measured twice, 0.00 %.", "**Not here**: at most 6.15 % apart.")
    assert "0.50 (0.50 to 0.50) (14a)" in page.row_14(seen)[1]
    six = shm.figures(host, None)[0]
    one = next(curve for curve in six.panels[1].curves if curve.label == "1 group")
    assert [(mark.at, mark.n, mark.median) for mark in one.marks] == [(1 << 10, 2, 3.0), (64 << 10, 2, 3.0), (512 << 10, 2, 0.5), (4 << 20, 2, 0.5)]
    assert "share 2 cores" in six.caption and "Moon" in six.footer
    nothing = {**host, "points": [{**point, "series": {}} for point in host["points"]]}
    assert "Not clear: one transfer" in page.row_6(shm.Seen(nothing))[2] and page.row_9(shm.Seen(nothing))[2].startswith("Not clear")
    assert "figure 7 is simulated only" in " ".join(page.section(host, None)) and page.section({"runs": []}, None) == [] and shm.figures({"runs": []}, None) == []


def test_paper_shm_arrivals():
    page = paper.paper_shm_page
    bars_ = [[-5.0, -1.0]] * 31 + [[0.0, 3.0]]
    runs = [{"partitions": count, "bytes": size, "delta_us": float(10 * count), "bars": bars_} for count in (4, 32) for size in (8 << 20, 128 << 20)]
    host = {"cores": 2, "runs": runs}
    ten, eleven, twelve = page.arrival_rows(host)
    assert ten[2] == "As there: 31 of 32 are early." and "31 of 32 have arrived" in ten[1] and "the last one 3.00 us later" in ten[1]
    assert eleven[2] == "**Not here**: 12 of 32 are early."
    assert "4 partitions 40" in twelve[1] and twelve[2] == "As there: more with more partitions. **Not here**: 35 us are enough for 32."
    assert page.arrival_rows({"cores": 2, "runs": []}) == [] and page.links("10") == "[10](figure-10.svg), beside the simulated"


def test_paper_row_by_size():
    """The row of 128 partitions: microseconds by size, a panel for each number of threads; how it was judged is counted."""
    def point(threads, size, verdict):
        summary = {name: {"n": 5, "p10": us * 900, "median": us * 1000, "p90": us * 1100} for name, us in (("learned", 2), ("none", 4))}
        return {"parameters": {"threads": threads, "bytes": size}, "summary": summary, "verdicts": [{"candidate": "learned", "baseline": "none", "verdict": verdict}]}

    points = [point(2, 64, "ahead"), point(2, 8, "ahead"), point(128, 8, "slower")]
    record = {"row": "exposed-128", "commit": "c", "measured": "2026-01-02T03", "why_not": [], "machine": {"cpu": "Moon", "cores": 2}, "points": points}
    drawn, = paper.paper_shm.figures({"runs": []}, record)
    assert drawn.name == "exposed-128" and [panel.title for panel in drawn.panels] == ["2 threads", "128 threads"]
    assert [(curve.label, [(mark.at, mark.median) for mark in curve.marks]) for curve in drawn.panels[0].curves] == [
        ("policy learned", [(8, 2.0), (64, 2.0)]), ("none: each partition by itself", [(8, 4.0), (64, 4.0)])]
    assert "Of 3 points, learned / none: ahead at 2, slower at 1." in " ".join(paper.paper_shm_page.section({"runs": []}, record))


def test_paper_costs():
    asked = []

    def found(wanted, per_ns):
        def run(words):
            asked.append(words)
            return {"speedup": int(words.split()[-1]) * per_ns}

        point = paper.Point("here", wanted, ("simulate a", "simulate b"), lambda files: min(each["speedup"] for each in files))
        with mock.patch.object(paper, "run", run):
            return paper.cost_of(point, "--request-ns", 56)

    assert abs(found(2.0, 0.001) - 2000) <= 10 and asked[0] == "simulate a --request-ns 112"
    assert found(0.1, 0.001) == 100
    assert found(2.0, 0.000001) is None
    assert paper.extremes([1.371, 1.372]) == "1.37" and paper.extremes([2, 0.5, 10]) == "0.50 to 10.00"
    rows = [{"timed": [{"exposed_us": us} for us in times]} for times in ((10, 10), (4, 5), (5, 5))]
    assert paper.deltas_apart({"13": {"rows": rows}}) == "25.00%" and paper.deltas_apart({"13": {"rows": rows[:1]}}) == "less than 0.01 %"
    assert [paper.cost_text(cost) for cost in (None, 0, 81, 2000)] == ["none up to 200 us", "ours is more", "81 ns", "2.00 us"]


def test_statements():
    near = [1.0, 1.1, 0.9, 1.0, 1.05]
    seen = Seen({("a", 1): near, ("a", 2): [9.0, 10.0, 11.0, 10.0, 10.0], ("a", 4): [3.0, 3.1, 2.9, 3.0, 3.0], ("b", 1): [0.2, 5.0, 0.1, 4.0, 1.0]})
    first, second, wide = ("a", 1), ("a", 2), ("b", 1)
    assert statements._above(seen, second, first).holds is True and statements._above(seen, first, second).holds is False
    assert statements._above(seen, first, wide).holds is None
    assert statements._alike(seen, first, first).holds is None and statements._alike(seen, ("a", 4), ("a", 4)).holds is True
    assert statements._alike(seen, second, first).holds is False
    assert statements._share_above(seen, second, 5).holds is True and statements._share_above(seen, first, 5).holds is False
    assert statements._share_above(seen, wide, 1).holds is None
    assert statements._shares_alike(seen, second, first).holds is True  # 9 points apart
    assert statements._rises_then_falls(seen, "a").holds is True
    rising = Seen({("a", 1): near, ("a", 2): [2.0, 2.0, 2.0], ("a", 4): [3.0, 3.1, 2.9]})
    assert statements._rises_then_falls(rising, "a").holds is False
    unsure = Seen({("a", 1): near, ("a", 2): [2.0, 4.0, 3.0], ("a", 4): [3.0, 3.1, 2.9]})
    assert statements._rises_then_falls(unsure, "a").holds is None
    assert statements._does_not_fall(rising, "a").holds is True and statements._does_not_fall(seen, "a").holds is False
    assert statements._shares_alike(Seen({("a", 1): [0.0], ("b", 1): [0.0]}), ("a", 1), ("b", 1)).holds is None
    gone = statements.Statement("paper", "text", lambda seen: statements._above(seen, ("c", 1), first))
    assert statements.judged(gone, seen).figures == "no figures"


def test_statements_are_of_plans_that_are_there():
    """Measurements of an earlier version's plans are left out; the new record replaces the previous one."""
    run = golden.record("overhead", golden.point(4096, 1, golden.series("partitioned", {"overhead": [2.0, 3.0, 4.0]})))
    about = {"commit": "0123456789ab", "machine": {"cpu": "Model CPU", "cores": 8}, "publishable": True}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "mpich5").mkdir()
        for file in ("hot-1.json", "hot-3.json"):
            (folder / "mpich5" / file).write_text(json.dumps(run))
        (folder / "statements-ba9876543210.json").write_text("{}")
        with mock.patch.object(statements, "KEPT", folder), mock.patch.object(statements.bars, "RECORDS", folder):
            page = statements.write(about, ["mpich5"])
        (record,) = folder.glob("statements-*.json")
        assert list(json.loads(record.read_text())["figures"]) == ["mpich5 native hot-1 partitioned 4096"] and record.name in page.read_text()


def test_savings():
    """A prediction holds within 20 % of the measured saving, 1 % of the step, or in its interval."""
    def holds(predicted, interval, measured, step=100.0):
        record = {"predicted_ms": predicted, "interval_ms": interval, "measured_ms": measured, "measured_interval_ms": [measured, measured], "step_ms": step}
        found = savings.judged(record)
        return found["holds"], found["close"]

    assert holds(12.0, [11, 13], 10.0) == (True, True) and holds(12.1, [11, 13], 10.0) == (False, False)
    assert holds(0.5, [0.4, 0.6], -0.5) == (True, True) and holds(0.6, [0.4, 0.7], -0.5) == (False, False)
    assert holds(30.0, [9, 40], 10.0) == (True, False)
    assert savings.judged({"measured_ms": 1.0, "measured_interval_ms": [0.5, 2], "step_ms": 100.0})["holds"] is False
    for measured_interval, refuted in (([5, 10.9], True), ([5, 11.1], False)):  # noise explains it, or does not
        record = {"predicted_ms": 20.0, "interval_ms": [11, 30], "measured_ms": 9.0, "measured_interval_ms": measured_interval, "step_ms": 100.0}
        assert savings.judged(record)["refuted"] is refuted
    for interval, gained in (([-2, 0.9], "nothing"), ([0.1, 0.9], "nothing"), ([0.1, 1.1], "something"), ([-0.1, 1.1], "not known")):
        assert savings.judged({"measured_ms": 0.5, "measured_interval_ms": interval, "step_ms": 100.0})["gained"] == gained


def test_savings_are_good():
    """8 of 10 predictions hold, of all and of those that are held out; 8 of 10 records without gain are predicted as such. Controls count for the last only."""
    def records(hold=8, held_out=4, called=4):
        return ([{"control": False, "gained": "something", "holds": n < hold, "held_out": False} for n in range(10)]
                + [{"control": False, "gained": "not known", "holds": n < held_out, "held_out": True} for n in range(5)]
                + [{"control": True, "gained": "nothing", "holds": False, "held_out": True, "predicted_nothing": n < called} for n in range(5)])

    assert savings.is_good(records())
    assert not savings.is_good(records(hold=7)) and not savings.is_good(records(hold=10, held_out=3)) and not savings.is_good(records(called=3))
    assert not savings.is_good(records()[:15])  # no record of a measured nothing


def test_launcher_that_does_not_end():
    """A launcher gets a moment after all its programs have ended, and counts as failed. A launcher with nothing to wait for gets its time, and its own status."""
    def waited(script, timeout_s):
        process = subprocess.Popen([sys.executable, "-c", script])
        try:
            return bars.launch._wait(process, timeout_s)
        finally:
            process.kill()
            process.wait()

    launch = bars.launch
    with mock.patch.object(launch, "REAPED_S", 0.1):
        assert waited("import os, time\nif os.fork() == 0: os._exit(1)\ntime.sleep(60)", 30) == launch.FAILED
        assert waited("import time; time.sleep(60)", 1) == launch.TIMED_OUT
        assert waited("raise SystemExit(5)", 30) == 5


def test_status_of_tests():
    """One failed test fails all; no test is a skip; the output of a failed one is shown."""
    launch = bars.launch
    outcome = launch.Outcome(3, "said", None, 1.0)
    for tests, status, shown in (([], launch.SKIP, "0 passed, 0 failed\n"), ([("a", True, outcome)], 0, "ok a (1.0 s)\n1 passed, 0 failed\n"),
                                 ([("a", False, outcome), ("b", True, None)], 1,
                                  "not ok a (1.0 s)\nstatus 3, logs None\nsaid\nok b\n1 passed, 1 failed\n")):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            assert launch.run_tests(tests) == status
        assert text.getvalue() == shown, text.getvalue()


def test_launcher_that_does_not_start():
    """A test run that has executed nothing is started again, three times in all."""
    launch = bars.launch
    with tempfile.TemporaryDirectory() as folder:
        launcher, count = pathlib.Path(folder, "mpiexec"), pathlib.Path(folder, "count")
        mpi = dataclasses.replace(launch.MPIS["openmpi5"], launcher=launcher)
        run = 'while [ "$1" != sh ]; do shift; done; OMPI_COMM_WORLD_RANK=0 "$@"'
        for starts, before, expected, started in ((2, "", 0, 2), (9, "", 1, launch.LAUNCHES), (9, run, 1, 1)):
            for text in launch.NOT_STARTED:
                count.write_text("")
                launcher.write_text(f'#!/bin/sh\necho x >> {count}\n[ $(wc -l < {count}) -ge {starts} ] && exit 0\n{before}\necho "{text}. We cannot"\nexit 1\n')
                launcher.chmod(0o755)
                assert launch.launch(mpi, 2, ["true"], 20).status == expected
                assert count.read_text().count("x") == started
        count.write_text("")
        launcher.write_text(f'#!/bin/sh\necho x >> {count}\necho "{launch.NOT_STARTED[0]}"\nexec sleep 60\n')
        assert launch.launch(mpi, 2, ["true"], 1).status == launch.TIMED_OUT
        assert count.read_text() == "x\n", "what takes all its time is not given it again"


def test_configurations():
    found = savings.configurations()
    assert len(found) == len(set(found)) == 40
    controls = savings.controls()
    assert len(controls) == 8 and all(each.is_control for each in controls) and not any(each.is_control for each in found)
    held_out = [each for each in found if each.is_held_out]
    assert {each.program for each in found} - {each.program for each in held_out} == set() and len(held_out) == 16
    assert all(each.is_held_out for each in found if each.program == "particles" or any(f"--seed {seed}" in each.words for seed in savings.HELD_OUT_SEEDS))


JUNIT = """<testsuite>
<testcase name="a" status="run"/><testcase name="b" status="fail"/>
<testcase name="c" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
<testcase name="d" status="notrun"><skipped message="Unable to find executable"/></testcase>
<testcase name="e" status="disabled"/></testsuite>"""


def test_counts():
    count = driver.count_junit(JUNIT, "release")
    assert str(count) == "1 passed, 2 failed, 2 skipped" and count.failures == ["release: b", "release: d"]
    count.add(driver.one_failure("x"))
    assert (count.passed, count.failed, count.skipped) == (1, 3, 2)
    assert str(driver.Count(passed=3)) == "3 passed, 0 failed"
    assert driver.parse_duration("2h") == 7200


def test_budgets():
    assert sum(driver.BUDGETS.values()) <= driver.BUDGET_MINUTES + 1e-9
    labels, root = set(), SCRIPTS.parent
    for path in [*(root / "tests").rglob("CMakeLists.txt"), *(root / "examples").rglob("CMakeLists.txt"), root / "demo/CMakeLists.txt"]:
        text = re.sub(r"#[^\n]*", "", path.read_text())
        for found in re.findall(r'LABELS\s+("[a-z;]+"|[a-z]+)', text):
            labels.add(found.strip('"').split(";")[-1])
        labels.update(re.findall(r"larklane_gtest\((\w+)", text))
    assert labels - set(driver.BUDGETS) <= {"soak", "label", "labels"}, labels
    junit = '<testsuite><testcase name="a" time="60"/><testcase name="b" time="60"/><testcase name="c" time="120"/></testsuite>'

    def test(name, *labels, **properties):
        entries = {"LABELS": list(labels), **properties}
        return {"name": name, "properties": [{"name": key, "value": value} for key, value in entries.items()]}

    tests = [test("a", "mp"), test("b", "mp", RUN_SERIAL=True), test("c", "mp", "again", PROCESSORS=2)]
    assert driver.minutes_by_label(junit, tests, 2) == {"mp": 1.5, "again": 2.0}
    assert not driver.over_budget(dict(driver.BUDGETS))
    assert driver.over_budget({"mp": 13.0}) == ["mp: 13.0 minutes, budget 9.0"] and driver.over_budget({"new": 0.1})
    assert driver.over_budget({**driver.BUDGETS, "mp": 11.0, "rdma": 4.3})[0].startswith("all: 5")


def test_snap_predictions_hold_where_the_median_is_in_the_interval():
    point = {"predicted": {"share": 0.3, "interval": [0.2, 0.4]}, f"saved over {snap.JOINED}": {"share": 0.45, "interval": [0.4, 0.5]}}
    assert not snap.predictions_hold(point) and snap.intervals_meet(point)
    point[f"saved over {snap.JOINED}"]["share"] = 0.4
    assert snap.predictions_hold(point)
    point[f"saved over {snap.JOINED}"]["interval"][0] = 0.41
    assert not snap.intervals_meet(point)
    assert snap.percent({"share": 0.257, "interval": [-0.01, 0.5]}) == "26 % (-1 to 50)"


def test_snap_results_are_compared_without_date_and_times():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "out")
        for day, seconds in ((1, 2), (3, 4)):
            file.write_text(f" Ran on {day}\n flux 7\n  Timing Summary\n {seconds}\n")
            assert snap.result_of(file) == [" flux 7", "  "]


def test_snap_figure():
    """On 8 nodes a rank has 16 x 32 cells in y and z, on 256 it has 4 x 4."""
    assert abs(snap_figure.group_us(256) - 160 * 16 * 48 * snap_figure.GRIND_NS / 1e3) < 1e-9
    assert snap_figure.group_us(8) == 32 * snap_figure.group_us(256)
    assert snap_figure.group_bytes(256) == 160 * 4 * 48 * 8 and snap_figure.group_bytes(8) == 160 * 24 * 48 * 8
    sweep = snap_figure.Sweep(computing=60, wave=70, messages=80, partitioned=75)
    assert sweep.share == 0.25
    assert "--partitions 1 --threads 1" in snap_figure.words(8, snap_figure.JOINED) and "--partitions 16 --threads 1 " in snap_figure.words(8, snap_figure.ALONE)
    for nodes, (y, z) in snap_figure.NODES.items():
        assert y * z == nodes and snap_figure.NY % y == 0 and snap_figure.NZ % z == 0


def test_mutants():
    mutant = mutants.Mutant(file="f", old="a < b", new="a <= b", test="t", rule="r")
    assert mutants.apply("if (a < b)", mutant) == "if (a <= b)"
    assert mutants.apply("a < b; a < b", mutant) is None and mutants.apply("", mutant) is None


def test_mutants_are_not_stale():
    for mutant in mutants.load(mutants.LISTS):
        assert mutants.apply((mutants.ROOT / mutant.file).read_text(), mutant) is not None, mutant


def test_targets_of_mutants():
    for mutant in mutants.load(mutants.LISTS):
        assert mutants.targets_of(mutant.test), mutant
    assert mutants.targets_of("msg_match_test") == ["msg_match_test"]
    assert mutants.targets_of("conformance.mpich5.attach")[0] == "conformance_mpich5"
    assert mutants.targets_of("conformance.p2p.openmpi5.p2p")[0] == "conformance_p2p_openmpi5"
    assert "larklane_mpi_mpich" in mutants.targets_of("carried_death_mpich5")
    assert mutants.targets_of("consume_exports") == ["all"]


def test_options_page():
    row = 'LARKLANE_OPTION(name, bytes, "64K", "1..1T", "0.1", "A \\"doc\\".")\n'
    assert options.rows(row)[0][:5] == ("name", "bytes", "64K", "1..1T", "0.1")
    assert "LARKLANE_NAME" in options.page(row)
    registry = 'LARKLANE_POLICIES(b, "Kinds")\n// rows\nLARKLANE_POLICY(a,  ":N",  "N groups")\nLARKLANE_POLICY(b, "[:BYTES]", "others")\n'
    assert list(options.policy_texts(registry).values()) == ["b", "a:N | b[:BYTES]", "Kinds; `a:N`: N groups; `b[:BYTES]`: others."]
    for read, text in ((options.policy_texts, registry + "LARKLANE_POLICY(c)\n"), (options.rows, "LARKLANE_OPTION(name, bytes)\n")):
        try:
            read(text)
        except ValueError:
            continue
        raise AssertionError("a malformed row was accepted")


if __name__ == "__main__":
    for test in [name for name in globals() if name.startswith("test_")]:
        globals()[test]()
        print(f"{test}: ok")
