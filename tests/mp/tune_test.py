#!/usr/bin/env python3
"""`larklane tune`, and the engine's use of the file that it writes.

  tune_test.py --build DIR CASE [MPI]     one case, on one MPI of launch.py where the case wants one
  tune_test.py --list                     `CASE` or `CASE MPI` of every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import stub_test
from stub_test import REFUSED, expect, system

QUICK = ["--sizes", "1K:16K", "--iterations", "20"]
TRIED = ["--search", "--partitions", "2", "--sizes", "512K", "--iterations", "5"]


class Tuned(stub_test.Bench):
    """Configuration of its own, where tuning files are looked for."""

    def __init__(self, build, scratch, mpi):
        super().__init__(build, scratch, mpi)
        self.environment = {**(self.mpi.environment if self.mpi else {}), "XDG_CONFIG_HOME": str(scratch)}

    def command_words(self, *words):
        launcher = ["--launcher", " ".join([str(self.mpi.launcher), *self.mpi.flags, "-n", "2"])] if self.mpi else []
        return [self.command, "tune", *launcher, *words]

    def tune(self, *words, status=0):
        return system(*self.command_words(*words), env=self.environment, status=status)

    def measured(self):
        """Output of a quick `larklane tune`; other programs here may spoil a few rounds."""
        for _ in range(3):
            words = self.command_words(*QUICK)
            done = subprocess.run(list(map(str, words)), env={**os.environ, **self.environment},
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
            if "a machine that is left alone" not in done.stdout:
                break
        expect(done.returncode == 0, f"status {done.returncode}", done.stdout)
        return done.stdout

    def tuning(self, **env):
        return json.loads(system(self.command, "info", "--json", env={**self.environment, **env}))["tuning"]

    def path(self):
        return pathlib.Path(self.tuning()["path"])

    def used(self, policy, *further, **env):
        """Output of two ranks that send by attach under `policy`."""
        words = ["overhead", "--sizes", "1M", "--threads", "2", "--iterations", "3", "--compute-us", "10", "--ways", "partitioned"]
        return self.ranks(self.command, "bench", *words, *further, **{**self.environment, "LARKLANE_POLICY": policy, "LARKLANE_LOG_LEVEL": "info", **env})


def measured(bench):
    """Both measurements end up in one file at the default place, which `larklane info` shows and the engine reads."""
    before = bench.tuning()
    expect(not before["in_use"] and not before["problem"], "there is a tuning file already", str(before))
    expect("tuning" not in bench.used("table"), "a file that nobody has written is warned about")
    output = bench.measured()
    path = bench.path()
    text = path.read_text()
    expect(str(path) in output and "[1/1]" in output, "what was written, or progress, is missing", output)
    expect(re.search(r"^measured \d{4}-\d\d-\d\d larklane .*, bench prtt, ", text, re.M), "who measured is missing", text)
    expect(len(re.findall(r"^loggp (?:[\d.e+-]+ ?){9}$", text, re.M)) == 1 and "groups" not in text, "not one range", text)
    output = bench.tune(*TRIED)
    entry = re.search(r"^groups 2 524288 ([12])$", path.read_text(), re.M)
    expect(entry and re.search(r"^ +2 +524288 +" + entry[1] + r" +1: [\d.]+ 2: [\d.]+$", output, re.M), "no entry, or not shown", output)
    expect(text.partition("end")[0] in path.read_text(), "what was measured before is lost", path.read_text())
    after = bench.tuning()
    expect(after["in_use"] and "bench prtt" in after["measured"] and "perceived-bandwidth" in after["searched"], "not shown", str(after))
    for policy in "ploggp:1ms", "table":
        output = bench.used(policy)
        expect(f"tuning file: {path}\n" in output and "is ignored" not in output, f"{policy} does not read it", output)
    expect("tuning" not in bench.used("min_bytes"), "min_bytes reads it")
    expect("tuning" not in bench.used("ploggp", LARKLANE_TUNING="off"), "off is not off")
    expect({file.name for file in path.parent.iterdir()} == {path.name, f"{path.name}.prtt.json", f"{path.name}.search.json"}, "files are left")


def resumed(bench):
    """A search that is interrupted keeps its samples; it goes on where it was, and only then the file is written."""
    words = bench.command_words("--search", "--partitions", "2,4", "--sizes", "512K,1M", "--iterations", "5")
    path = bench.path()
    samples = path.with_name(f"{path.name}.search.json")
    process = subprocess.Popen(list(map(str, words)), env={**os.environ, **bench.environment}, text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    deadline = time.monotonic() + 240
    while not samples.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    expect(process.returncode == 128 + signal.SIGINT and "--resume goes on" in errors, f"status {process.returncode}", errors)
    expect(not path.exists(), "half a search makes a file")
    kept = json.loads(samples.read_text())["runs"]
    expect(0 < sum(len(run["points"]) for run in kept) < 10, "nothing, or everything, was measured", errors)
    output = bench.tune(*words[4:], status=REFUSED)
    expect("--resume" in output and "--overwrite" in output, "the samples are in danger", output)
    output = bench.tune(*words[4:], "--resume")
    after = json.loads(samples.read_text())["runs"]
    expect(after[:len(kept)] == kept, "samples were lost")
    expect(sum(len(run["points"]) for run in after) == 10, "points are missing, or measured twice", output)  # 2 and 3 numbers of 2 sizes
    expect(len(re.findall(r"^groups [24] (?:524288|1048576) [124]$", path.read_text(), re.M)) == 4, "not 4 entries", path.read_text())
    written = path.read_text()
    expect("[1/" not in bench.tune(*words[4:], "--resume") and path.read_text() == written, "a search that is over is measured again")
    samples.write_text(samples.read_text()[:-30])
    output = bench.tune(*words[4:], "--resume", status=REFUSED)
    expect("can't go on" in output and path.read_text() == written, "cut samples are used", output)
    bench.tune(*words[4:6], "2", *words[7:], "--overwrite")
    expect(path.read_text().count("groups 2") == 2 and "groups 4" not in path.read_text(), "nothing began again", path.read_text())


def ignored(bench):
    """A file that can't be used: one warning of each process that asks, with file, reason and remedy; and the program is well."""
    bench.measured()
    path = bench.path()
    whole = path.read_text()
    named = bench.scratch / "named"
    for text, why in ((whole[:-5], "line 8: cut off"), (whole.replace("tuning 1", "tuning 2"), "line 1: of another version"),
                      (whole.replace("cpu ", "cpu Another "), "of another host type: Another"), (whole.replace("shm", "verbs"), "of fabric 'verbs'"),
                      (whole.replace("loggp ", "loggp -"), "line 8: wanted")):
        named.write_text(text)
        output = bench.used("ploggp", LARKLANE_TUNING=str(named))
        warnings = re.findall(rf"^larklane: warn: .*tuning file {named} is ignored: .*{why}.*`larklane tune`.*$", output, re.M)
        expect(len(warnings) == 1, f"{why}: {len(warnings)} warnings", output)
        expect(bench.tuning(LARKLANE_TUNING=str(named))["problem"] in warnings[0], "larklane info says something else", warnings[0])
    path.write_text(whole[:40])
    expect(f"{path} is ignored: line 3" in bench.used("table"), "the file at the default place is not checked")
    output = bench.used("table", LARKLANE_TUNING="/nonexistent")
    expect("/nonexistent is ignored: No such file" in output, "a file that was named may be missing", output)


def chosen(bench):
    """The file decides: of 2 partitions one arrives while the other is held back if, and only if, they are 2 groups."""
    if not next(provider for provider in json.loads(system(bench.command, "info", "--json"))["providers"] if provider["name"] == "shm attach write")["available"]:
        raise stub_test.Skip("no attach, no groups")
    host, file, record = bench.tuning(), bench.scratch / "file", bench.scratch / "record.json"
    head = f"larklane tuning 1\nfabric shm\ncpu {host['cpu']}\ncores {host['cores']}\n"
    slow = "measured by hand\nloggp 1 1048576 1000 0 0 1000000 0 0 0\n"  # 1 ms between two messages
    for policy, lines, groups in (("table", "searched by hand\ngroups 2 4096 1\n", 1), ("table", "searched by hand\ngroups 2 4096 2\n", 2),
                                  ("table", "searched by hand\ngroups 2 4194304 1\n", 2), ("ploggp:0", slow, 1),
                                  ("ploggp:1s", slow.replace(" 0 0 0", " 1 0 0"), 2), ("ploggp:0", None, 2)):
        file.write_text(f"{head}{lines}end\n")
        output = bench.used(policy, "--json", record, LARKLANE_TUNING=str(file) if lines else "off")
        early = {series["early"] for point in json.loads(record.read_text())["points"] for series in point["series"]}
        expect(any(early) == (groups == 2), f"{policy}, {lines}: not {groups} groups: {early}", output)


def record_of(cpu, **changes):
    """LogGP by hand: L 1000, o_s 300, o_r 400, g 700 ns, 0.1 ns a byte."""

    def samples_of(size):
        one = 2 * (1000 + 300 + 400 + 0.1 * (size - 1))
        trains = {f"train_{n}_ns": one + (n - 1) * (700 + 0.1 * (size - 1)) for n in (2, 4, 8, 16)}
        values = {"round_trip_ns": one, **trains, "delay_ns": one, "delayed_16_ns": one + 15 * (one + 300), "receive_ns": 400}
        return {name: [value] * 9 for name, value in values.items()}

    context = {"mpi": "An MPI", "variant": "larklane", "version": "7", "machine": {"cpu": cpu}, "environment": {"LARKLANE_POLICY": "none"}}
    points = [{"bytes": size, "send_partitions": 1, "series": [{"way": "partitioned", "wrong": 0, "samples": samples_of(size)}]}
              for size in (1, 8, 64, 512, 4096, 32768)]
    return {"options": {"benchmark": "prtt"}, "context": context, "points": points, **changes}


def trial(cpu, groups, exposed_ns, **changes):
    series = {"way": "partitioned", "wrong": 0, "samples": {"exposed_ns": exposed_ns}, **changes}
    points = [{"bytes": 4096, "send_partitions": 4, "series": [series]}]
    made = record_of(cpu, options={"benchmark": "perceived-bandwidth"}, points=points)
    made["context"]["environment"]["LARKLANE_POLICY"] = f"static:{groups}"
    return made


def written(bench):
    """The written file follows from the samples, and only a tuning file is overwritten."""
    cpu = bench.tuning()["cpu"]
    samples, out = bench.scratch / "samples.json", bench.scratch / "folder" / "out.txt"

    def write(*runs, status=0, to=out):
        samples.write_text(json.dumps({"runs": runs}))
        return bench.tune("--from", samples, "--out", to, status=status)

    write(record_of(cpu))
    ranges = re.findall(r"^loggp (.*)$", out.read_text(), re.M)
    expect(len(ranges) == 1, "not one range", out.read_text())
    found = [float(word) for word in ranges[0].split()]
    by_hand = [1, 32768, 1000, 300, 400, 700, 0.1, 0, 0]
    expect(all(abs(is_now - wanted) <= 1e-6 * max(wanted, 1) for is_now, wanted in zip(found, by_hand)), f"not {by_hand}", ranges[0])
    busy = record_of(cpu)
    expect("left alone" not in write(busy), "a quiet machine is called busy")
    busy["points"][2]["series"].append({"way": "partitioned'", "wrong": 0, "samples": {"round_trip_ns": [9e5] * 9}})
    expect("at 1 of 6 sizes two series" in write(busy), "a busy machine is not")
    # The least median, of all launches together; wrong and infinite samples don't count; of equal ones the fewest groups.
    output = write(trial(cpu, 1, [50.0, 9000.0, 50.0]), trial(cpu, 2, [40.0, 60.0]), trial(cpu, 2, [40.0, None], way="partitioned'"), trial(cpu, 4, [1.0], way="join"), trial(cpu, 3, [1.0], wrong=1),
                   trial(cpu, 4, [40.0]))
    expect("\ngroups 4 4096 2\n" in out.read_text() and ranges[0] in out.read_text() and "1: 0.1 2: 0.0 4: 0.0" in output, out.read_text(), output)
    # The effect: of 4 partitions 2 groups, else the rule; PLogGP's best, all at once but the last, 1 us late.
    shown = system(bench.command, "model", "--tuned", "--from", "4K", "--to", "8K", "--partitions", "8", "--spread-us", "1",
                   env={**bench.environment, "LARKLANE_TUNING": str(out)})
    modelled, _, tabled = shown.partition("# groups by table")
    expect(str(out) in modelled and re.search(r"4 KiB +1 +2 +2 +2\n +8 KiB +1 +2 +2 +2\n", modelled), "not what the model says", shown)
    expect(re.search(r"4 KiB +1 +1 +2 +1\n +8 KiB +1 +1 +2 +1\n", tabled), "not what the table says", shown)
    before = out.read_text()
    for runs, why in (([record_of("Another CPU")], "another host: Another CPU"), ([], "no figures"), ([record_of(cpu, points=[])], "no LogGP: that takes 5 sizes"),
                      ([{"options": 3}], "not what larklane tune has measured"), ([trial(cpu, 1, ["x"])], "no figures")):
        output = write(*runs, status=REFUSED)
        expect(why in output and out.read_text() == before, f"no '{why}'", output)
    foreign = bench.scratch / "foreign"
    foreign.write_text("mine\n")
    for to, why in ((foreign, "no tuning file"), (bench.scratch, "is no file")):
        expect(why in write(record_of(cpu), status=REFUSED, to=to), f"{to}: overwritten")
        expect(why in bench.tune("--out", to, status=REFUSED), f"{to}: would be overwritten after measuring")
    expect(foreign.read_text() == "mine\n", "a foreign file was touched")
    out.write_text(before[:-20])
    expect("could not be used" in write(record_of(cpu)) and "groups" not in out.read_text(), "what was damaged is kept")
    output = write(record_of(cpu), status=1, to="/proc/nonexistent/x")
    expect("not written" in output, "not a word", output)
    expect(sorted(path.name for path in out.parent.iterdir()) == ["out.txt"], "something is left")


def queued(bench):
    """Over verbs the samples give groups and queue pairs, in a file of that fabric."""
    cpu = bench.tuning()["cpu"]
    samples, out = bench.scratch / "samples.json", bench.scratch / "out.txt"

    def over_verbs(groups, queues, exposed_ns):
        made = trial(cpu, groups, exposed_ns)
        made["context"]["environment"] |= {"LARKLANE_PROVIDER": "verbs:rxe0", "LARKLANE_VERBS_CHANNEL_QUEUES": str(queues)}
        return made

    def write(*runs, status=0, provider="verbs"):
        samples.write_text(json.dumps({"runs": runs}))
        return bench.tune("--from", samples, "--out", out, "--provider", provider, status=status)

    output = write(over_verbs(1, 1, [90.0]), over_verbs(2, 1, [80.0, 60.0]), over_verbs(2, 2, [50.0]), over_verbs(4, 4, [50.0]))
    text = out.read_text()
    expect("\nfabric verbs\n" in text and "\ngroups 4 4096 2 2\n" in text, "not groups and queue pairs", text)
    expect(re.search(r"^ +4 +4096 +2x2 +1x1: 0\.1 2x1: 0\.1 2x2: 0\.[01] 4x4: 0\.[01]$", output, re.M), "not shown", output)
    expect("measured over verbs: name it with --provider" in write(over_verbs(1, 1, [1.0]), status=REFUSED, provider="shm"), "another fabric's")
    expect("measured over shm: name it with --provider" in write(trial(cpu, 1, [1.0]), status=REFUSED), "another fabric's")
    expect(out.read_text() == text, "a refusal writes")
    expect("expected shm or verbs" in bench.tune("--provider", "ether", status=REFUSED), "any provider")
    shown = json.loads(system(bench.command, "info", "--json", env={**bench.environment, "LARKLANE_TUNING": str(out)}))["tuning"]
    expect("it is of fabric 'verbs', not shm" in shown["problem"], "shared memory uses it", str(shown))


def refused(bench):
    """Impossible input is named before anything is measured."""
    for words, why in ((["--launcher", "/nonexistent/mpiexec -n 2"], "/nonexistent/mpiexec: not found; it takes an MPI's launcher"),
                       (["--launcher", "a 'b"], "quotation"), (["--launcher", ""], "no launcher"),
                       (["--launcher", "env", "--resume"], "--resume belongs to --search"), (["--search", "--resume", "--overwrite"], "--resume keeps"),
                       (["--launcher", "env", "--partitions", "4"], "--partitions belongs to --search"),
                       (["--sizes", "many"], "many: expected bytes"), (["--sizes", "0"], "0: expected bytes"),
                       (["--launch-limit", "nan"], "nan: expected seconds"), (["--iterations", "nan"], "nan: expected a whole number"),
                       (["--partitions", "nan"], "nan: expected a whole number"), (["--frobnicate"], "--frobnicate"),
                       (["--from", "/nonexistent"], "No such file"), (["--from", "/tmp"], "larklane tune: /tmp"), (["--from", "x", "--search"], "only --out")):
        output = bench.tune(*words, status=REFUSED)
        expect(why in output and "Traceback" not in output, f"{words}: no '{why}'", output)
    expect("--search" in system(bench.command, "tune", "--help", env={"HOME": None, "XDG_CONFIG_HOME": None}), "no help")
    output = system(bench.command, "tune", env={"HOME": None, "XDG_CONFIG_HOME": None}, status=REFUSED)
    expect("--out" in output, "no place, and no remedy", output)
    output = system(bench.command, "tune", env={"LARKLANE_POLICY": "best"}, status=REFUSED)
    expect("LARKLANE_POLICY" in output, "wrong options pass", output)
    output = bench.tune("--launcher", "sh -c exit\\ 3", "--sizes", "1K", status=1)
    expect("exit status 3" in output and "no figures" in output and not bench.path().exists(), "a launcher that fails", output)


def cases():
    found = [(case, name) for case in (measured, resumed) for name in ("mpich5", "openmpi5")]
    return [*found, (chosen, "mpich5"), (ignored, "mpich5"), (written, None), (queued, None), (refused, None)]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, Tuned, __doc__))
