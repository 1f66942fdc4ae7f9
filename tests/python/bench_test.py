#!/usr/bin/env python3
"""The runner of `larklane bench`, with a command that only pretends to measure."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from larklane.bench import command as bench  # noqa: E402

RANK_S = 600  # how long a rank runs that is never ended
# A stand-in for `larklane bench BENCHMARK --with VARIANT --json FILE ...`; MODE selects its behaviour.
COMMAND = """#!{python}
import json, os, signal, subprocess, sys
words, launched = sys.argv[1:], os.environ.get("N", "")
if words[0] == "launch":  # -n N COMMAND
    words, launched = words[4:], "larklane " + words[2]
value = lambda name: words[words.index(name) + 1] if name in words else None
options = [word for word in words if word.startswith("--")]
twice = next((option for option in options if options.count(option) > 1), None)
if twice:
    print(twice + ": At most 1 required but received 2", file=sys.stderr)
    sys.exit(2)
benchmark, variant, without = words[1], value("--with"), (value("--without") or "").split(",")
mode = os.environ["MODE"]
ways = [way for way in ("join", "partitioned") if way not in without]
failures = []
if mode == "hang" and variant == "native" and "partitioned" in ways:
    failures = [{{"way": "partitioned", "bytes": 128, "what": "not over after 30 s"}}]
if mode == "hang again":
    failures = [{{"way": "join'", "bytes": 128, "what": "not over after 30 s"}}]
series = [{{"way": way, "wrong": int(mode == "wrong" and variant == "native"), "samples": {{"total_ns": [1.5, None]}}}} for way in ways]
points = [{{"bytes": 64, "send_partitions": 2, "recv_partitions": 4, "series": series}}]
context = {{"variant": variant, "mpi": "MPI 1, patched", "oversubscribed": mode == "crowded"}}
record = {{"options": {{"benchmark": benchmark}}, "context": context, "points": points, "failures": failures}}
with open(os.environ["LOG"], "a") as log:
    log.write((launched + ": " if launched else "") + " ".join(words) + "\\n")
if mode == "refuse" or (mode == "refuse call-cost" and (benchmark, variant) == ("call-cost", "native")):
    sys.exit(print("--threads 0: expected 1 or more", file=sys.stderr) or 2)
if mode == "die":
    sys.exit("no such network")
json.dump(record, open(value("--json"), "w"))
if mode == "die late":
    sys.exit("no such memory")
if mode in ("sleep", "deaf"):  # as a launcher whose ranks have a session of their own
    signal.signal(signal.SIGTERM, signal.default_int_handler if mode == "sleep" else signal.SIG_IGN)
    rank = subprocess.Popen(["sleep", "{rank_s}"], start_new_session=mode == "sleep")
    try:
        with open(os.environ["LOG"] + ".rank", "w") as file:
            file.write(str(rank.pid))
        rank.wait()
    except KeyboardInterrupt:
        rank.kill()
        rank.wait()
sys.exit(1 if failures or (mode == "wrong" and variant == "native") else 0)
"""


def as_of_a_terminal() -> None:
    """Signals that a test's own parent ignores are not ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def ends(pid: int) -> bool:
    """Is it over within a few seconds?"""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


class Runner(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        command = self.folder / "larklane"
        command.write_text(COMMAND.format(python=sys.executable, rank_s=RANK_S))
        command.chmod(0o755)

    def environment(self, mode: str) -> dict[str, str]:
        return {"LARKLANE_COMMAND": str(self.folder / "larklane"), "LOG": str(self.folder / "log"), "MODE": mode}

    def measured(self, mode: str, *words: str) -> tuple[int, dict[str, Any], list[str]]:
        """@return exit status, the set, the words of each launch"""
        out = self.folder / "out"
        self.errors = io.StringIO()
        with mock.patch.dict(os.environ, self.environment(mode)), contextlib.redirect_stderr(self.errors), \
                contextlib.redirect_stdout(io.StringIO()):
            status = bench.main(["--launcher", "env", *words, "--no-report", "--out", str(out)])
        return status, json.loads((out / "bench.json").read_text()), self.launches()

    def launches(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()

    def rank(self) -> int:
        """The process of the launch that has begun."""
        file, deadline = self.folder / "log.rank", time.monotonic() + 120
        while not file.exists() or not file.read_text():
            self.assertLess(time.monotonic(), deadline, "no launch has begun")
            time.sleep(0.01)
        return int(file.read_text())

    def test_variants_take_turns(self) -> None:
        status, found, launches = self.measured("well", "overhead", "--repetitions", "3")
        self.assertEqual((status, found["failures"]), (0, []))
        variants = [run["context"]["variant"] for run in found["runs"]]
        self.assertEqual(variants, ["native", "larklane", "larklane", "native", "native", "larklane"])
        self.assertTrue(all(line.startswith("bench overhead --with") for line in launches))

    def shapes(self, *words: str, launcher: str = "env N={processes}") -> list[str]:
        """@return of each launch the starter and its number of processes, the variant, and the rest"""
        self.measured("well", "message-rate", *words, "--repetitions", "1", "--launcher", launcher)
        return [f"{line.partition('bench')[0]}{line.partition('--with ')[2].partition(' ')[0]} {line.partition('--threads ')[2]}" for line in self.launches()]

    def test_numbers_of_threads_and_processes_in_their_place_are_launches(self) -> None:
        self.assertEqual(self.shapes("--threads", "1,2", "--window", "8"), [
            "2: native 1 --ways shared,own --window 8", "larklane 2: larklane 1 --ways shared,own --window 8",
            "2: native 1 --ways everywhere --window 8", "larklane 2: larklane 1 --ways everywhere --window 8",
            "2: native 2 --ways shared,own --window 8", "larklane 2: larklane 2 --ways shared,own --window 8",
            "4: native 2 --ways everywhere --window 8", "larklane 4: larklane 2 --ways everywhere --window 8"])

    def test_ordinary_messages_go_by_the_launcher_and_one_thread_for_all_is_a_launch(self) -> None:
        self.assertEqual(self.shapes("--threads", "2", "--with", "native,ordinary", "--ways", "one-tag,funneled"), [
            "2: native 2 --ways one-tag", "2: ordinary 2 --ways one-tag", "2: native 2 --ways funneled", "2: ordinary 2 --ways funneled"])

    def test_a_launcher_without_a_place_for_their_number_starts_two(self) -> None:
        self.assertEqual(self.shapes("--threads", "2", launcher="env"), [
            "native 2 --ways shared,own", "larklane 2: larklane 2 --ways shared,own",
            "larklane 4: larklane 2 --ways everywhere"])

    def test_messages_need_no_launcher(self) -> None:
        with mock.patch.dict(os.environ, self.environment("well")), contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(bench.main(["message-rate", "--threads", "1", "--ways", "own", "--no-report", "--out", str(self.folder / "out")]), 0)
        self.assertEqual(len(self.launches()), 3)
        self.assertTrue(all(line.startswith("larklane 2: bench message-rate --with larklane") for line in self.launches()))

    def test_applications_are_started_like_messages(self) -> None:
        _, found, launches = self.measured("well", "ebms", "--quick", "--threads", "2", "--launcher", "env N={processes}")
        self.assertEqual(len(found["runs"]), 4)
        self.assertTrue(all("--sizes 16K,1M --iterations 20" in line and "--threads 2" in line for line in launches), launches)

    def test_all_means_every_benchmark_once_in_a_quick_run(self) -> None:
        _, found, _ = self.measured("well", "all", "--quick", "--with", "larklane")
        self.assertEqual([run["options"]["benchmark"] for run in found["runs"]], list(bench.PARTITIONED))

    def test_further_options_reach_the_benchmark(self) -> None:
        _, _, launches = self.measured("well", "overhead", "--with", "native", "--repetitions", "1", "--threads", "3")
        self.assertTrue(launches[0].endswith("--threads 3"))

    def test_the_user_s_word_wins_over_that_of_quick(self) -> None:
        status, found, launches = self.measured("well", "all", "--quick", "--threads", "2", "--sizes=64K", "--quiet")
        self.assertEqual((status, found["failures"], len(found["runs"])), (0, [], 2 * len(bench.PARTITIONED)))
        for line in launches:
            self.assertEqual([line.count(name) for name in ("--threads", "--sizes", "--quiet", "--iterations 20")], [1, 1, 1, 1])
            self.assertTrue(line.endswith("--threads 2 --sizes=64K --quiet"))

    def test_samples_of_all_launches_are_in_one_csv(self) -> None:
        file = self.folder / "samples.csv"
        _, _, launches = self.measured("well", "overhead", "--repetitions", "2", "--csv", str(file))
        self.assertNotIn("--csv", " ".join(launches))
        head, *lines = file.read_text().splitlines()
        self.assertEqual(head, ",".join(bench.CSV_HEAD))
        self.assertEqual(lines[0], 'overhead,native,"MPI 1, patched",64,2,4,join,total_ns,1,0,1.5')
        self.assertEqual([tuple(line.rsplit(",", 3)[1:]) for line in lines if "larklane" in line and "join" in line],
                         [("2", "0", "1.5"), ("2", "1", ""), ("3", "0", "1.5"), ("3", "1", "")])
        self.assertEqual(len(lines), 4 * 2 * 2)

    def test_a_file_for_one_record_is_refused(self) -> None:
        for words in (("--json", "x.json"), ("--json=x.json",)):
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(bench.main(["overhead", *words, "--out", str(self.folder)]), 2)
            self.assertIn("--json x.json: the records of launches in turns are kept in bench.json", errors.getvalue())

    def test_a_way_that_hangs_is_named_and_left_out_from_then_on(self) -> None:
        status, found, launches = self.measured("hang", "overhead", "--repetitions", "2")
        self.assertEqual(status, 0, "a failure of the MPI's own is no failure of the run")
        (failure,) = found["failures"]
        self.assertEqual((failure["variant"], failure["way"]), ("native", "partitioned"))
        self.assertIn("128 bytes", failure["what"])
        self.assertEqual(["--without partitioned" in line for line in launches], [False, True, False, False, True])

    def test_what_a_launch_measured_before_it_hung_is_kept(self) -> None:
        _, found, _ = self.measured("hang", "overhead", "--repetitions", "1")
        ways = [[series["way"] for series in run["points"][0]["series"]] for run in found["runs"]]
        self.assertEqual(ways, [["join", "partitioned"], ["join"], ["join", "partitioned"]])
        self.assertEqual([run["failures"] for run in found["runs"]], [[], [], []], "they stand in the set, once")

    def test_a_launch_that_hangs_without_the_way_it_named_is_not_begun_for_ever(self) -> None:
        _, found, launches = self.measured("hang again", "overhead", "--with", "native", "--repetitions", "1")
        self.assertEqual([line.endswith("--without join") for line in launches], [False, True])
        self.assertEqual(len(found["failures"]), 2)

    def test_more_threads_than_cores_are_said_once(self) -> None:
        for mode, times in (("crowded", 1), ("well", 0)):
            self.measured(mode, "overhead", "--repetitions", "1")
            self.assertEqual(self.errors.getvalue().count("more threads than cores"), times, mode)

    def test_wrong_payload_is_a_failure(self) -> None:
        _, found, _ = self.measured("wrong", "overhead", "--repetitions", "1")
        self.assertEqual({failure["what"] for failure in found["failures"]}, {"64 bytes: 1 wrong rounds"})
        self.assertEqual({failure["variant"] for failure in found["failures"]}, {"native"})

    def test_a_launch_that_dies_does_not_stop_the_others(self) -> None:
        status, found, launches = self.measured("die", "all", "--repetitions", "1")
        self.assertEqual((status, found["runs"], len(launches)), (1, [], 2 * len(bench.PARTITIONED)))
        self.assertTrue(all("no such network" in failure["what"] for failure in found["failures"]))

    def test_refused_options_stop_everything(self) -> None:
        with mock.patch.dict(os.environ, self.environment("refuse")), contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(bench.main(["all", "--launcher", "env", "--out", str(self.folder / "out")]), 2)
        self.assertEqual(len(self.launches()), 1)
        self.assertIn("--threads 0: expected 1 or more\n", errors.getvalue())
        self.assertEqual(list((self.folder / "out").iterdir()), [])

    def test_options_that_one_benchmark_refuses_are_no_reason_to_stop(self) -> None:
        status, found, launches = self.measured("refuse call-cost", "all", "--repetitions", "2")
        (failure,) = found["failures"]
        self.assertEqual((status, failure["what"]), (0, "exit status 2: --threads 0: expected 1 or more"))
        self.assertEqual(sum("call-cost --with native" in line for line in launches), 1)
        self.assertEqual(len(found["runs"]), 2 * 2 * len(bench.PARTITIONED) - 2)

    def test_a_launch_that_takes_longer_than_its_limit_has_no_status(self) -> None:
        self.assertEqual(bench.run_command(["sleep", str(RANK_S)], 0.1), (None, ""))

    def test_a_launch_that_dies_late_is_a_failure_and_what_it_measured_is_kept(self) -> None:
        _, found, _ = self.measured("die late", "overhead", "--with", "native", "--repetitions", "1")
        self.assertEqual((len(found["runs"]), found["failures"][0]["what"]), (1, "exit status 1: no such memory"))

    def without_end(self, mode: str) -> dict[str, Any]:
        """A launch that reaches its limit as soon as it has begun, however busy the machine is. @return the set"""

        def communicate(process: "subprocess.Popen[str]", timeout: float) -> None:
            self.rank()
            raise subprocess.TimeoutExpired(process.args, timeout)

        with mock.patch.object(subprocess.Popen, "communicate", communicate):
            return self.measured(mode, "overhead", "--with", "native", "--repetitions", "1", "--launch-limit", "1")[1]

    def test_a_launch_without_end_is_ended_and_what_it_measured_is_kept(self) -> None:
        found = self.without_end("sleep")
        self.assertEqual((len(found["runs"]), found["failures"][0]["what"]), (1, "no end after 1 s"))
        self.assertTrue(ends(self.rank()), "the launcher could have ended its rank")

    def test_a_launcher_that_does_not_listen_is_killed(self) -> None:
        began = time.monotonic()
        with mock.patch.object(bench, "PATIENCE_S", 0.2):
            self.without_end("deaf")
        self.assertTrue(ends(self.rank()))
        self.assertLess(time.monotonic() - began, RANK_S / 2)

    def test_a_runner_that_is_ended_ends_its_launch(self) -> None:
        package = Path(bench.__file__).parents[2]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            out = self.folder / number.name
            with subprocess.Popen([sys.executable, "-m", "larklane.bench", "all", "--launcher", "env", "--out", str(out)],
                                  env={**os.environ, **self.environment("sleep"), "PYTHONPATH": str(package)},
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=as_of_a_terminal) as runner:
                rank = self.rank()
                runner.send_signal(number)
                _, errors = runner.communicate(timeout=120)
            self.assertEqual(runner.returncode, 128 + number)
            self.assertIn(f"stopped; measured so far: {out / 'bench.json'}", errors)
            self.assertTrue(ends(rank))
            self.assertEqual([len(run["points"]) for run in json.loads((out / "bench.json").read_text())["runs"]], [1])
            self.assertEqual([path.name for path in out.iterdir()], ["bench.json"])
            Path(self.environment("sleep")["LOG"] + ".rank").unlink()

    def budgets(self, *words: str) -> list[float]:
        _, _, launches = self.measured("well", "overhead", *words)
        return [float(line.split("--budget ")[1].split()[0]) for line in launches]

    def test_rounds_fit_into_the_limit_of_a_launch(self) -> None:
        self.assertEqual(self.budgets("--launch-limit", "100", "--repetitions", "1"), [80, 80])

    def test_a_budget_for_everything_is_shared_and_stays_below_the_limit(self) -> None:
        first, last = self.budgets("--budget", "20", "--repetitions", "1")
        self.assertLessEqual(first, 10)
        self.assertLess(first, last, "what the first one did not use is left for the last one")

    def test_a_large_budget_does_not_let_a_launch_outlive_its_limit(self) -> None:
        self.assertEqual(self.budgets("--budget", "10000", "--launch-limit", "100", "--repetitions", "1"), [80, 80])

    def clocked(self, took_s: list[float], *words: str) -> tuple[dict[str, Any], list[float]]:
        """Launches that take these times. @return the set, the budgets of the launches"""
        now_s, left = [1000.0], list(took_s)
        command = bench.run_command

        def launched(words: list[str], limit_s: float) -> tuple[int | None, str]:
            now_s[0] += left.pop(0)
            return command(words, limit_s)

        with mock.patch.object(bench.time, "monotonic", lambda: now_s[0]), mock.patch.object(bench, "run_command", launched):
            _, found, launches = self.measured("well", *words)
        return found, [float(line.split("--budget ")[1].split()[0]) for line in launches]

    def test_turns_that_do_not_fit_into_the_budget_are_dropped(self) -> None:
        found, budgets = self.clocked([10] * 4, "overhead", "--repetitions", "3", "--budget", "59")
        self.assertEqual(found["turns"], {"run": 2, "asked": 3})
        self.assertEqual(budgets, [29.5, 49, 19.5, 29], "rounds are dropped within a turn only")

    def test_one_turn_of_every_benchmark_is_run_at_least(self) -> None:
        found, _ = self.clocked([10] * 2 * len(bench.PARTITIONED), "all", "--repetitions", "3", "--budget", "1")
        self.assertEqual([run["options"]["benchmark"] for run in found["runs"]], [name for name in bench.PARTITIONED for _ in range(2)])
        self.assertEqual(found["turns"], {"run": 1, "asked": 3})

    def test_all_turns_that_fit_are_run(self) -> None:
        found, _ = self.clocked([10] * 6, "overhead", "--repetitions", "3", "--budget", "60")
        self.assertEqual((len(found["runs"]), "turns" in found), (6, False))

    def test_dropped_turns_are_printed(self) -> None:
        command = [sys.executable, "-m", "larklane.bench", "overhead", "--launcher", "env", "--out", str(self.folder / "out"), "--no-report",
                   "--budget", "0.001"]
        done = subprocess.run(command, env={**os.environ, **self.environment("well"), "PYTHONPATH": str(Path(bench.__file__).parents[2])},
                              capture_output=True, text=True, check=False)
        self.assertIn("1 of 3 turns: the time budget\n", done.stdout)

    def test_a_killed_one_leaves_no_launch(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "pids"
            launched = f"sleep {RANK_S} & echo $$ $! > {file}.part; mv {file}.part {file}; wait"
            code = f"from larklane.bench import command; command.run_command(['sh', '-c', {launched!r}], {RANK_S})"
            with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(Path(bench.__file__).parents[2])}) as killed:
                deadline = time.monotonic() + 60
                while not file.exists() and time.monotonic() < deadline:
                    time.sleep(0.02)
                killed.kill()
            left = set(map(int, file.read_text().split()))
            deadline = time.monotonic() + 60
            while left and time.monotonic() < deadline:
                left = {pid for pid in left if Path(f"/proc/{pid}").exists() and ") Z" not in Path(f"/proc/{pid}/stat").read_text()}
                time.sleep(0.02)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            self.assertEqual(left, set())

    def test_unknown_variant_is_refused(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(bench.main(["overhead", "--with", "both", "--out", str(self.folder)]), 2)
        self.assertIn("--with both", errors.getvalue())

    def refusal(self, *words: str, benchmark: str = "overhead") -> str:
        """@return its error text"""
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                status = bench.main([benchmark, "--launcher", "env", "--out", str(self.folder), *words])
            except SystemExit as end:
                status = int(end.code or 0)
        self.assertEqual(status, 2, words)
        return errors.getvalue()

    def test_launchers_that_are_no_words_are_refused(self) -> None:
        self.assertIn("--launcher \": No closing quotation", self.refusal("--launcher", '"'))
        self.assertIn("--launcher is empty", self.refusal("--launcher", " "))

    def test_numbers_that_mean_nothing_are_refused(self) -> None:
        for words, message in ((("--repetitions", "0"), "--repetitions: 0: expected a whole number from 1"),
                               (("--repetitions", "-1"), "--repetitions: -1: expected a whole number from 1"),
                               (("--budget", "0"), "--budget: 0: expected seconds above 0"),
                               (("--budget", "inf"), "--budget: inf: expected seconds above 0"),
                               (("--launch-limit", "-3"), "--launch-limit: -3: expected seconds above 0"),
                               (("--launch-limit", "soon"), "--launch-limit: soon: expected seconds above 0")):
            self.assertIn(message, self.refusal(*words))

    def test_shapes_that_can_not_be_launched_are_refused(self) -> None:
        for words, message in ((("--threads", "1,0"), "--threads: 0: expected a whole number from 1"),
                               (("--ways", "everywhere", "--threads", "2"), "--ways everywhere: --launcher env does not say where their number stands")):
            self.assertIn(message, self.refusal(*words, benchmark="message-rate"))

    def test_an_earlier_set_is_not_replaced_unless_it_is_said(self) -> None:
        out = self.folder / "out"
        out.mkdir()
        (out / "bench.json").write_text("before")
        self.assertIn(f"{out} holds an earlier set (bench.json); --overwrite replaces it, --out names another folder",
                      self.refusal("--out", str(out)))
        self.assertEqual((out / "bench.json").read_text(), "before")
        _, found, _ = self.measured("well", "overhead", "--repetitions", "1", "--overwrite")
        self.assertEqual(len(found["runs"]), 2)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_a_full_disk_is_said(self) -> None:
        out = self.folder / "out"
        out.mkdir()
        for name, after in (("bench.json", "nothing was kept"), ("samples.csv", f"measured so far: {out / 'bench.json'}")):
            (out / "bench.json").unlink(missing_ok=True)
            (out / name).symlink_to("/dev/full")
            with mock.patch.dict(os.environ, self.environment("well")), contextlib.redirect_stderr(io.StringIO()) as errors:
                status = bench.main(["overhead", "--launcher", "env", "--out", str(out), "--csv", str(out / "samples.csv"), "--overwrite"])
            self.assertEqual(status, 1)
            remedy = "remedy: free space there, or name another place with --out, or --csv"
            self.assertIn(f"larklane bench: {out / name}: not written: No space left on device; {remedy}; {after}\n", errors.getvalue())

    def test_a_folder_that_can_not_be_made_is_said(self) -> None:
        file = self.folder / "file"
        file.write_text("")
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(bench.main(["overhead", "--out", str(file / "under")]), 1)
        self.assertIn(str(file / "under"), errors.getvalue())


if __name__ == "__main__":
    unittest.main()
