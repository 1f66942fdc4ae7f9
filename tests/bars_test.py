#!/usr/bin/env python3
"""Tests of scripts/measure/bars.py: contenders that hang, fail or print no figure, rows that are cut off, points that are measured again. Run by ctest; needs
the standard library only."""

import json
import pathlib
import sys
import tempfile
import types

TESTS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent / "scripts/measure"), str(TESTS / "python")]
import bars  # noqa: E402
import golden  # noqa: E402

stats = bars.stats


def test_turns():
    assert stats.turns(["a", "b", "c"], 0) == ["a", "b", "c", "a'"]
    assert stats.turns(["a", "b", "c"], 1) == ["a", "c", "b", "a'"]


def test_measure():
    """A contender with a wrong round gives no figure; the others do, in turn order."""
    order = []

    def runner(command, parameters, timeout_s, quantile):
        order.append(command)
        return (None, "1 wrong rounds") if command == "bad" and order.count("bad") == 2 else (len(order), None)

    row = {"row": "r", "unit": "ns", "margin": 0.03, "repetitions": 2, "claims": [["x", "y"], ["x", "z"]]}
    row["contenders"] = {"x": "good", "y": "other", "z": "bad"}
    point = bars.measure(row, {"bytes": 8}, ["x", "y", "z"], runner)
    assert order == ["good", "other", "bad", "good", "good", "bad", "other", "good"]
    assert point["series"] == {"x": [1, 5], "y": [2, 7], "x'": [4, 8]} and point["failed"] == {"z": "1 wrong rounds"}
    verdicts = bars.judge(row, point)
    assert verdicts[0]["ratio"] == 3 / 4.5 and verdicts[1]["verdict"] == "no figure for z"


def test_lenient():
    """A contender that may hang gets the figures of its runs that end, by turn; a contender whose runs never end gets none."""
    for ends, found in ((4, [None, None, None, 8, None, 8, None, 8]), (9, None)):
        turns = []

        def runner(command, parameters, timeout_s, quantile):
            turns.append(command)
            count = turns.count("other")
            return (None, "exit status 124: launch") if command == "other" and (count < ends or count % 2) else (8 if command == "other" else count, None)

        row = {"row": "r", "margin": 0.0, "repetitions": 8, "contenders": {"x": "good", "y": "other"}, "claims": [["x", "y", 0.5], ["x", "y"]], "lenient": ["y"]}
        point = bars.measured_and_judged(row, {}, ["x", "y"], runner)
        assert point["series"].get("y") == found and ("y" in point["failed"]) == (found is None)
        share, whole = bars.judge(row, point)
        if found:
            assert share["median"] == 5 / 8 and share["limit"] == 0.5 and whole["ratio"] == 5 / 8
            assert "8 (8 to 8, 3 of 8 runs)" in bars.table({"points": [point]}) and bars.label(share) == "x / y at most 0.5"
        else:
            assert turns.count("other") == bars.HOPELESS and share["verdict"] == whole["verdict"] == "no figure for y"


def test_lenient_with_hangs_only():
    """A wrong payload is never excused; where runs are missing, the others are still judged."""
    row = {"row": "r", "margin": 0.0, "repetitions": 8, "contenders": {"x": "x", "y": "y"}, "claims": [["x", "y"], ["x", 5]], "lenient": ["x", "y"]}

    def point_of(runner, repetitions=8):
        count = iter(range(1000))
        return bars.measured_and_judged({**row, "repetitions": repetitions}, {}, ["x", "y"], lambda command, *_: runner(command, next(count)))

    hang = (None, "no end after 1 s")
    assert point_of(lambda command, at: (None, "17 wrong rounds") if at == 4 else (1, None))["failed"] == {"y": "17 wrong rounds"}
    some = point_of(lambda command, at: hang if at in (0, 4) else (1, None))
    assert some["verdicts"][0]["ratio"] == 1 and some["verdicts"][1]["verdict"] == "within" and some["failed"] == {}
    none = point_of(lambda command, at: hang, repetitions=2)
    assert set(none["failed"]) == {"x", "y"} and none["series"] == {}
    apart = point_of(lambda command, at: (1, None) if (command == "x") == (at // 3 % 2 == 0) else hang)
    assert apart["verdicts"][0]["verdict"] == "no turn in which both end", apart


def test_together():
    """A run measures several points. The point at which it ends has no figure; the later points have those of one more run."""
    asked = []

    def runner(words, timeout_s):
        asked.append([int(word.split("=")[1]) for word in words if word.startswith("bytes=")])
        lines = [f'{{"samples": [{size}], "wrong": {int(size == 4)}}}' for size in asked[-1]]
        stops = asked[-1].index(2) if 2 in asked[-1] else len(lines)
        return "banner\n" + "\n".join(lines[:stops]), "exit status 124: " if stops < len(lines) else None

    points = [{"bytes": size, "repetitions": 3} for size in (1, 2, 3, 4)]
    found = bars.run_together("program {at}", points, 1, bars.Reading(), runner)
    assert found == [(1, None), (None, "exit status 124: "), (3, None), (None, "1 wrong rounds")] and asked == [[1, 2, 3, 4], [3, 4]]

    row = {"margin": 0.0, "repetitions": 2, "contenders": {"x": "program {at}", "y": "other {at}"}, "claims": [], "lenient": ["y"]}
    found = bars.measure_together(row, [{"bytes": 1}, {"bytes": 2}, {"bytes": 4}], ["x", "y"], lambda *arguments: bars.run_together(*arguments, runner))
    assert [point["series"] for point in found] == [{"x": [1, 1], "y": [1, 1], "x'": [1, 1]}, {}, {}]
    assert set(found[1]["failed"]) == {"x", "y"} and found[2]["failed"]["y"] == "1 wrong rounds"


def test_a_guest_that_is_cut_off():
    """The results of earlier turns stay; a turn with a cut-off line does not count."""
    turns = []
    row = {"row": "r", "repetitions": 2, "contenders": {"x": "x"}, "guest_s": 1}
    bars.measure_together(row, [{"bytes": 1}], ["x"], lambda *_: [(1.0, None)], turns.append)
    assert [turn[0]["series"]["x"] for turn in turns] == [[1.0], [1.0, 1.0]]
    lines = [bars.INSIDE + json.dumps(turn) for turn in turns]
    kept = bars.guest.boot
    try:
        for output, expected in ((lines[0] + "\n" + lines[1][:-9], turns[0]), ("\n".join(lines) + "\n", turns[1])):
            result = types.SimpleNamespace(status=124, output=output)
            bars.guest.boot = lambda *_, result=result, **__: types.SimpleNamespace(results=[result])
            assert bars.measure_in_guest(row, [{"bytes": 1}], ["x"]) == expected
    finally:
        bars.guest.boot = kept


def test_places():
    """Where a contender's ranks are."""
    assert bars.Contender.of("hosts larklane mpich5 A=b exposed") == (True, "larklane", "mpich5", ["A=b", "exposed"], "2")
    assert bars.Contender.of("python3 native x") == (False, "", "", ["python3", "native", "x"], "2")
    here, across = (bars.Contender.of(f"{where}native openmpi5 OMPI_MCA_pml=ucx exposed --iterations 30").commanded(9, "f") for where in ("", "hosts "))
    assert here[:2] == ["python3", "tests/mp/launch.py"] and across[:2] == ["python3", "tests/hosts/hosts.py"]
    called = ["env", "OMPI_MCA_pml=ucx", bars.LARKLANE, "bench", "exposed", "--iterations", "30", "--quiet", "--json", "f", "--warmup", "4", "--with", "native", "--mpi", "openmpi5"]
    assert here[-16:] == across[-16:] == called
    assert bars.Contender.of("ordinary mpich5:{ranks} startup")[1:] == ("ordinary", "mpich5", ["startup"], "{ranks}")
    many = bars.Contender.of("native mpich5:16 startup").commanded(9, "f")
    assert many[:6] == ["python3", "tests/mp/launch.py", "--mpi", "mpich5", "-n", "16"]
    alone = bars.Contender.of("alone 4 A=b message-rate --sizes 8").commanded(9, "f")
    assert alone == ["env", "A=b", bars.LARKLANE, "launch", "-n", "4", bars.LARKLANE, "bench", "message-rate", "--sizes", "8", "--quiet", "--json", "f"]


def test_record():
    """The record of a run of `larklane bench`: the samples of its first way, unless a round was wrong, or the way was refused or hung."""
    def series(**others):
        return golden.series("partitioned", {"exposed_ns": [3, 1, 2], "packets": [7]}, **others)

    def results(*found, metric="", failures=()):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "record.json")
            file.write_text(json.dumps(golden.record("exposed", *(golden.point(8, 1, each) for each in found), failures=[*failures])))
            return bars.of_record(file, bars.Reading(metric))

    assert results(series(), series()) == [(2, None), (2, None)] and results(series(), metric="packets") == [(7, None)]
    assert results(series(wrong=2), series(refused="no such calls")) == [(None, "2 wrong rounds"), (None, "no such calls")]
    [_, (sample, why)] = results(series(), failures=[{"way": "partitioned", "bytes": 8, "what": "a round is not over"}])
    assert sample is None and bars.HANG.match(why)


def test_grids():
    assert bars.each_of({"bytes": [8, 64], "way": "am", "window": [1, 2]}) == [
        {"bytes": 8, "way": "am", "window": 1}, {"bytes": 8, "way": "am", "window": 2}, {"bytes": 64, "way": "am", "window": 1}, {"bytes": 64, "way": "am", "window": 2}]


def test_rows():
    """Each call of `larklane bench` in bench/rows.json names an existing benchmark and existing ways."""
    for row in bars.read_rows():
        for command in row["contenders"].values():
            for point in row["points"]:
                contender = bars.Contender.of(command.format(**{"at": "", "points": "", **point}))
                if not contender.how:
                    continue
                [name] = [word for word in contender.words if word in bars.BENCHMARKS]
                known = {*bars.BENCHMARKS[name].ways.split(","), *bars.BENCHMARKS[name].further_ways.split(",")}
                assert contender.words[contender.words.index("--ways") + 1] in known, (row["row"], command)
        for candidate, baseline, *_ in row["claims"]:
            assert {name for name in (candidate, baseline) if isinstance(name, str)} <= set(row["contenders"]), row["row"]


def test_again():
    """Points that were too noisy, or are chosen, are measured four times as often; the others stay."""
    row = {"row": "r", "margin": 0.0, "repetitions": 5, "contenders": {"a": "a", "b": "b"}, "claims": [["a", "b"]]}
    noisy = {"parameters": {"bytes": 8}, "series": {"a": [1.0] * 5, "b": [1.0] * 5}, "verdicts": [{"verdict": "too noisy"}]}
    clear = {"parameters": {"bytes": 64, "options": "--n 3"}, "series": {"a": [1.0] * 5}, "verdicts": [{"verdict": "ahead"}]}
    kept = bars.RECORDS, bars.available, bars.measure, bars.show
    with tempfile.TemporaryDirectory() as folder:
        bars.RECORDS = pathlib.Path(folder)
        path = bars.RECORDS / "r-0123456789ab.json"
        path.write_text(json.dumps({"measured": "2000", "points": [noisy, clear]}))
        bars.available, bars.show = list, lambda *_: None
        bars.measure = lambda row, parameters, *_: {"parameters": parameters, "series": {"a": [1.0] * parameters["repetitions"], "b": [2.0] * parameters["repetitions"]}, "failed": {}}
        try:
            assert bars.run_again(row, {"commit": "c", "measured": "2001"}) is not None
            again, other = json.loads(path.read_text())["points"]
            assert again["parameters"] == {"bytes": 8, "repetitions": 20} and len(again["series"]["a"]) == 20 and other == clear
            assert again["verdicts"][0]["verdict"] == "ahead" and again["again"] == {"commit": "c", "measured": "2001"}
            assert bars.run_again(row, {}) is None and bars.run_again(row, {}, "bytes=6") is None
            assert bars.run_again(row, {"commit": "d", "measured": "2002"}, "bytes=64 'options=--n 3'") is not None
            assert [point["again"]["commit"] for point in json.loads(path.read_text())["points"]] == ["c", "d"]
        finally:
            bars.RECORDS, bars.available, bars.measure, bars.show = kept


def test_table():
    point = {"parameters": {"bytes": 8}, "summary": {"x": {"median": 2.0, "p10": 1.0, "p90": 3.0}}, "failed": {"y": "no | end"}, "series": {}}
    other = {**point, "summary": {**point["summary"], "y": {"median": 4.0, "p10": 4.0, "p90": 4.0}}, "failed": {}}
    verdict = {"verdicts": [{"candidate": "x", "baseline": "y", "verdict": "ahead"}]}
    text = bars.table({"points": [{**point, **verdict}, {**other, **verdict}]})
    assert "| bytes 8 | 2 (1 to 3) | no / end | x / y: ahead |" in text and "| 4 (4 to 4) |" in text


def test_limits():
    assert stats.within([8, 9, 10, 9, 8, 9, 9], 10)["verdict"] == "within"
    assert stats.within([12, 13, 14, 13, 12, 13, 13], 10)["verdict"] == "above"
    assert stats.within([5, 15, 5, 15, 5, 15, 5], 10)["verdict"] == "too noisy"
    row = {"margin": 0, "claims": [["x", 10], ["z", 10]]}
    verdicts = bars.judge(row, {"series": {"x": [1] * 9, "x'": [0] * 9}})  # a difference may be 0
    assert [verdict["verdict"] for verdict in verdicts] == ["within", "no figure for z"]


def test_allowance():
    """A claim may grant its candidate a constant, and more for each unit of a parameter."""
    series = {name: [value] * 9 for name, value in (("x", 22), ("x'", 22), ("y", 10), ("y'", 10))}
    for ranks, verdict in ((2, "within"), (1, "above")):
        row = {"margin": 0, "claims": [["x", "y", 1.0, [8, 2, "ranks"]]]}
        assert bars.judge(row, {"parameters": {"ranks": ranks}, "series": series})[0]["verdict"] == verdict


def test_program_output():
    assert bars.of_lines('# banner\n{"samples": [3, 1, 2], "wrong": 0}\n', bars.Reading()) == [(2, None)]
    assert bars.of_lines("", bars.Reading()) == [] and bars.of_lines('{"samples": []}', bars.Reading()) == [(None, "no samples")]
    try:
        bars.of_lines('{"samples"', bars.Reading())
    except ValueError:
        return
    raise AssertionError("a line that was cut off is no figure")


def test_chosen_rows():
    rows = [{"row": "rate-other"}, {"row": "rate"}, {"row": "half"}]
    assert bars.chosen_rows(rows, "rate") == [{"row": "rate"}]
    assert bars.chosen_rows(rows, "rat") == rows[:2]
    assert bars.chosen_rows(rows, "") == rows


def test_publishable():
    facts = {"turbo": "off"}
    assert bars.reasons_not_to_publish(False, "Release", facts) == []
    assert len(bars.reasons_not_to_publish(True, "Debug", {"turbo": "unknown"})) == 3


if __name__ == "__main__":
    for test in [name for name in globals() if name.startswith("test_")]:
        globals()[test]()
        print(f"{test}: ok")
