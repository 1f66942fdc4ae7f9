#!/usr/bin/env python3
"""Input and output of the command: files without an end, refused output, texts that a terminal would obey; and programs that a preload alone
can't put under Larklane.

  output_test.py --build DIR CASE [MPI]     one case
  output_test.py --list                     every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import launch
import stub_test
import tune_test
from stub_test import REFUSED, Skip, expect, system

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import golden  # noqa: E402

NOT_WRITTEN = 1
FULL = "/dev/full"
HIDDEN = "\x1b]0;title\x07\x9b\u202e"  # a terminal would obey it
SANITIZERS = (("gcc", (), ("address", "undefined", "thread", "address,undefined")), ("clang-14", ("-shared-libsan",), ("address", "undefined")), ("clang-14", (), ("address",)))
DLOPEN = """
#include <dlfcn.h>
int main(int count, char** words) {
  void* mpi = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  int (*init)(int*, char***) = mpi ? (int (*)(int*, char***))dlsym(mpi, "MPI_Init") : 0;
  return count == 2 && init ? 0 : 1;
}
"""


def run(*words, env=None, **options):
    variables = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
    return subprocess.run([str(word) for word in words], env=variables, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=240, check=False, **options)


def full(bench):
    """Standard output on a full device: status 1, and one line with the reason."""
    larklane = bench.command
    record = bench.scratch / "none.json"
    for words in (["--help"], ["--version"], ["run", "--help"], ["info", "--options"], ["info", "--options", "--json"], ["model"], ["simulate", "--to", "1M"],
                  ["run", "--dry-run", "true"], ["bench", "all", "--help"], ["tune", "--help"], ["report", "--help"], ["noise", "--seconds", "0.1", "--out", record]):
        with open(FULL, "w") as device:
            done = run(larklane, *words, stdout=device)
        expect(done.returncode == NOT_WRITTEN and "No space left on device" in done.stderr, f"{words}: status {done.returncode}", done.stderr)
        expect("Traceback" not in done.stderr and "Exception ignored" not in done.stderr, f"{words}: not said by us", done.stderr)
    expect(record.exists(), "what was recorded is lost")
    with open(FULL, "w") as device:
        done = run(larklane, "launch", "-n", 2, "echo", "a line", stdout=device)
    expect(done.returncode == NOT_WRITTEN and "larklane launch: output is not taken: No space left" in done.stderr, f"launch: status {done.returncode}", done.stderr)
    closed = run("sh", "-c", f"exec {larklane} --version >&-", stdout=subprocess.DEVNULL)
    expect(closed.returncode == NOT_WRITTEN and "Bad file descriptor" in closed.stderr, f"closed: status {closed.returncode}", closed.stderr)


def endless(bench):
    """A file without an end is refused unread, by name, wherever the command takes one."""
    pipe = bench.scratch / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero"):
        for words, env in ((["info", "--options"], {"LARKLANE_CONFIG": str(path)}), (["run", "true"], {"LARKLANE_CONFIG": str(path)}),
                           (["model", "--fit", path], {}), (["simulate", "--costs", path], {}), (["tune", "--from", path, "--out", bench.scratch / "out"], {}),
                           (["tune", "--from", bench.scratch, "--out", path], {}), (["report", path], {})):
            output = system(bench.command, *words, env=env, status=REFUSED, seconds=20)
            expect(str(path) in output and ("no regular file" in output or "is no file" in output), f"{words}: not named", output)
    tuned = system(bench.command, "model", "--tuned", env={"LARKLANE_TUNING": str(pipe)}, seconds=20)
    expect(f"tuning file {pipe} is ignored: it is no regular file" in tuned, "a tuning without an end is not named", tuned)


def escaped(bench):
    """Texts of the environment, of files and of names come without control characters."""
    names = ("LARKLANE_POLICY", "LARKLANE_MPI", "LARKLANE_PROFILE", "LARKLANE_TUNING", "LARKLANE_CONFIG")
    config = bench.scratch / "config"
    config.write_text(f"{HIDDEN} = 1\npolicy = {HIDDEN}\n", encoding="utf-8")
    for name in names:
        for value in (HIDDEN, str(config)) if name == "LARKLANE_CONFIG" else (HIDDEN,):
            for words in (["info", "--options"], ["run", "--dry-run", "true"], ["model", "--tuned"], ["info", "--options", "--json"]):
                done = subprocess.run([bench.command, *words], env={**os.environ, name: value}, capture_output=True, timeout=60, check=False)
                printed = (done.stdout + done.stderr).decode("utf-8")
                expect(not any(letter in printed for letter in HIDDEN if letter not in "]0;title"), f"{name}, {words}: raw", repr(printed))
    for words in (["run", HIDDEN], [HIDDEN], ["report", HIDDEN], ["tune", "--from", HIDDEN], ["bench", HIDDEN], ["model", "--fit", HIDDEN], ["info", "--" + HIDDEN]):
        done = subprocess.run([bench.command, *words], capture_output=True, timeout=60, check=False)
        printed = (done.stdout + done.stderr).decode("utf-8")
        expect(done.returncode == REFUSED and r"\x1b" in printed and "\x1b" not in printed, f"{words}: raw", repr(printed))
    raw = subprocess.run([bench.command, "info", "--options", "--json"], env={**os.environb, b"LARKLANE_PROFILE": b"/\xff"}, capture_output=True, timeout=60, check=False)
    expect(raw.returncode == 0 and raw.stdout, "a path that is no UTF-8 ends `info`", repr(raw.stderr))


def unused(bench):
    """A program that calls the MPI's library by itself: with --summary one line reports that no call came through us."""
    program = bench.scratch / "asks"
    source = bench.scratch / "asks.c"
    source.write_text(DLOPEN)
    system("cc", source, "-o", program, "-ldl")
    linked = stub_test.fake_mpi(bench, "MPIR_Dup_fn")
    mpi = linked.parent / "libmpi.so.99"
    summary = {"LD_PRELOAD": str(bench.preload), "LARKLANE_SUMMARY": "on"}
    output = system(program, mpi, env=summary)
    expect(output.count("\n") == 1 and "no MPI call of this process came through Larklane" in output and str(mpi) in output, "not one line", output)
    expect(system(program, mpi, env={**summary, "LARKLANE_SUMMARY": None}) == "", "a line that was not asked for")
    expect(system("true", env=summary) == "", "a line of a process without an MPI")
    expect("no MPI call" not in system(linked, env={**summary, "LARKLANE_MPI": "native"}), "a line though calls came through us")


def _make_sanitized(program, source, compiler, name, flags):
    words = [compiler, "-g", f"-I{stub_test.INCLUDE}", stub_test.SOURCES / source, "-o", program, f"-fsanitize={name}", *flags]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def sanitized(bench):
    """A program with a sanitizer runs as without us: its runtime comes first. A script that starts one names it. The engine carries its partitioned rounds."""
    flags = subprocess.run([str(bench.mpi.wrapper), "-show"], check=True, capture_output=True, text=True).stdout.split()
    tried = 0
    for compiler, more, names in SANITIZERS:
        if not shutil.which(compiler):
            continue
        # Where Clang's are is no place that the dynamic linker knows.
        folder = pathlib.Path(system(compiler, "-print-file-name=libclang_rt.asan-x86_64.so").strip()).parent
        path = [f"-Wl,-rpath,{folder}"] if more else []
        for name in names:
            program = bench.scratch / f"{compiler}-{name}-{len(more)}"
            made = _make_sanitized(program, "plain.c", compiler, name, [*more, *path, *flags[1:]])
            quiet = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "report_bugs=0"}  # of the MPI itself
            if made.returncode != 0 or launch.launch(bench.mpi, 2, [str(program)], 60, quiet).status != 0:
                continue  # such a runtime is not there, or does not get on with this MPI
            tried += 1
            output = bench.ranks(bench.command, "run", "--mpi", "native", program, **quiet)
            expect("rank 0 of 2 ok" in output and "rank 1 of 2 ok" in output, f"{program.name}: not well", output)
            dry = system(bench.command, "run", "--dry-run", "--mpi", "native", program)
            runtimes = [word for word in system("readelf", "-d", program).split() if "san" in word and ".so" in word]
            for word in runtimes:
                expect(word.strip("[]") in dry.partition("liblarklane_preload")[0], f"{word} does not come first", dry)
            if bench.mpi.name != "openmpi4":  # which has no partitioned calls
                partitioned = program.with_name(program.name + "-partitioned")
                made = _make_sanitized(partitioned, "partitioned.c", compiler, name, [*more, *path, *flags[1:]])
                expect(made.returncode == 0, f"{partitioned.name} is not made", made.stderr)
                output = bench.ranks(bench.command, "run", "--summary", partitioned, **quiet)
                for rank in range(2):
                    expect(f"rank {rank}: rounds ok" in output, f"{partitioned.name}: not well", output)
                    carried = f"rank {rank}: peer rank {1 - rank}: shm attach, policy learned, 4 channels"
                    expect(carried in output, f"{partitioned.name}: not carried by the engine", output)
                expect("Sanitizer" not in output and "runtime error" not in output, f"{partitioned.name}: a report", output)
            if compiler == "gcc" and name == "address":
                script = bench.scratch / "script.sh"
                script.write_text(f"#!/bin/sh\n{program}\n")
                script.chmod(0o755)
                output = bench.ranks(bench.command, "run", "--mpi", "native", "--sanitized", program, script, **quiet)
                expect("rank 0 of 2 ok" in output, "a script's program is not well", output)
                expect("verify_asan_link_order" not in output, "the check is switched off", output)
    if not tried:
        raise Skip("no sanitizer that gets on with this MPI")
    refused = system(bench.command, "run", "--sanitized", bench.program(), "true", status=REFUSED)
    expect("not linked with the shared runtime of a sanitizer" in refused, "a program without a sanitizer is taken", refused)


def stopped(bench):
    """Ctrl-C ends all processes of `launch`, with a status above 128."""
    mark = f"larklane-stopped-{os.getpid()}"
    process = subprocess.Popen([bench.command, "launch", "-n", "2", "sh", "-c", f": {mark}; echo up; sleep 60"], stdout=subprocess.PIPE, text=True, start_new_session=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    for _ in range(2):
        expect(process.stdout.readline() == "up\n", "a rank does not begin")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    expect(process.returncode == 128 + signal.SIGINT, f"status {process.returncode}")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = [pid for pid in os.listdir("/proc") if pid.isdigit() and _says(pid, mark)]
        if not left:
            return
    expect(False, f"left: {left}")


def _says(pid, mark):
    try:
        return mark.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class Place:
    """A folder that a command writes to: a disk of 256 KiB with `leaves` KiB free, or read-only; so for that command alone."""

    def __init__(self, bench, kind, leaves=0):
        self.folder, self.after = bench.scratch / f"{kind}-place", bench.scratch / f"{kind}-after"
        self.folder.mkdir(exist_ok=True)
        quoted = shlex.quote(str(self.folder))
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
            raise Skip("no mount namespace for this user")
        self.mount = f"mount -t tmpfs -o size=256k none {quoted}" if kind == "full" else f"mount --bind {quoted} {quoted}"
        fill = f"dd if=/dev/zero of={quoted}/filler bs=1k 2>/dev/null; truncate -s -{leaves}K {quoted}/filler"
        self.narrow = fill if kind == "full" else f"mount -o remount,bind,ro {quoted}"

    def run(self, *words, prepare="true", env=None):
        """`prepare`: shell words that create files before. @return how it ended, and {name: bytes} of the files afterwards: `after` is a copy"""
        for folder in (self.folder, self.after):
            shutil.rmtree(folder, ignore_errors=True)
        self.folder.mkdir()
        script = f'{{ {self.mount} && {prepare} && {{ {self.narrow}; }}; }} || exit 99; "$@"; status=$?; cp -r {self.folder} {self.after}; exit $status'
        done = run("unshare", "-m", "sh", "-c", script, "sh", *words, env=env, stdout=subprocess.PIPE)
        expect(done.returncode != 99, "no such place", done.stderr)
        return done, {path.name: path.read_bytes() for path in self.after.rglob("*") if path.is_file() and path.name != "filler"}


REASONS = {"full": "No space left on device", "read-only": "Read-only file system"}


def expect_said(done, what, *parts):
    """Status 1, and one error with file, reason and remedy."""
    expect(done.returncode == NOT_WRITTEN, f"{what}: status {done.returncode}", done.stderr)
    errors = [line for line in done.stderr.splitlines() if "not written" in line]
    expect(len(errors) == 1 and all(part in errors[0] for part in (*parts, "remedy: ")), f"{what}: {parts} not said once", done.stderr)
    expect("Traceback" not in done.stderr, f"{what}: not said by us", done.stderr)


def disk(bench):
    """A full disk, and a read-only folder: status 1, one error with file, reason and remedy; an older file stays as it was."""
    cpu = json.loads(system(bench.command, "info", "--json"))["tuning"]["cpu"]
    samples, measured, old = (bench.scratch / name for name in ("prtt.json", "overhead.json", "old"))
    samples.write_text(json.dumps({"runs": [tune_test.record_of(cpu)]}))
    point = golden.point(8, 4, *(golden.series(way, {"overhead": [0.7, 1.3], "exposed_ns": [1e5, 2e5]}) for way in ("join", "partitioned", "join'")))
    measured.write_text(json.dumps(golden.record("overhead", point)))
    system(bench.command, "tune", "--from", samples, "--out", old)
    for kind, reason in REASONS.items():
        place = Place(bench, kind)
        for words, name, said in ((["tune", "--from", samples, "--out", place.folder / "tuning"], "tuning", "tuning"),
                                  (["tune", "--launcher", "env", "--out", place.folder / "tuning"], "tuning", "nothing was measured"),
                                  (["report", measured, "--out", place.folder], "index.html", ""), (["report", measured, "--out", place.folder], "overhead.csv", "overhead.csv"),
                                  (["bench", "all", "--launcher", "env", "--out", place.folder, "--overwrite"], "bench.json", "nothing was measured"),
                                  (["noise", "--seconds", "0.01", "--overwrite", "--out", place.folder / "noise.json"], "noise.json", "noise.json")):
            done, there = place.run(bench.command, *words, prepare=f"cp {old} {place.folder / name}")
            expect_said(done, f"{words[0]}, {kind}", str(place.folder), reason, said)
            expect(there == {name: old.read_bytes()}, f"{words[:2]}, {kind}: {name} is lost, or something is left: {sorted(there)}", done.stderr)
            expect(words[0] != "report" or "overhead" in done.stdout, "the text of the report is lost", done.stdout)
        done, _ = place.run("sh", "-c", f"exec {bench.command} launch -n 2 echo a line >{place.folder}/file") if kind == "full" else (None, None)
        expect(done is None or (done.returncode == NOT_WRITTEN and reason in done.stderr), f"launch, {kind}", done and done.stderr)


def launcher(bench):
    return " ".join([str(bench.mpi.launcher), *bench.mpi.flags, "-n", "2"])


def filling(bench):
    """A disk that fills up after a while: the measurements until then can be read."""
    place = Place(bench, "full", leaves=32)
    words = ["bench", "latency", "--with", "native", "--launcher", launcher(bench), "--sizes", "8,16,32,64,128,256", "--iterations", "60", "--warmup", "1", "--repetitions", "2"]
    done, there = place.run(bench.command, *words, "--out", place.folder, env=bench.mpi.environment)
    expect(done.returncode == NOT_WRITTEN and "not written: No space left on device; remedy: free space there, or name another" in done.stderr, f"bench: {done.returncode}", done.stderr)
    kept = [json.loads(text) for name, text in there.items() if name.endswith(".json")]
    points = [point for record in kept for run in record.get("runs", [record]) for point in run["points"]]
    expect(points and not any(name.endswith(".part") for name in there), f"nothing is left of what was measured: {sorted(there)}", done.stderr)
    program = bench.compile("step", "../profile/step.c", flags=("-O2", "-fopenmp"), compiler=bench.mpi.wrapper)
    profile = [*launcher(bench).split(), bench.command, "profile", "--out", place.folder / "profile", program, "4000"]
    done, there = place.run(*profile, env=bench.mpi.environment)
    files = [name for name in there if name.endswith(".larkprof")]
    expect(done.returncode == 0 and done.stdout.count("ok") == 2, f"profile: the program is not well: status {done.returncode}", done.stderr + done.stdout)
    expect(re.search(r"rank-0000\d.larkprof: \d+ records are missing at the end: No space left on device; remedy: free space there, or name another folder with --out", done.stderr),
           "profile: not said, by file", done.stderr)
    shown = system(bench.command, "report", place.after / "profile", "--text")
    expect(len(files) == 2 and "records are missing" in shown, f"what was recorded can't be read: {files}", shown)
    place = Place(bench, "read-only")
    done, _ = place.run(*profile[:-4], "--out", place.folder, program, "1", env=bench.mpi.environment)
    expect(done.returncode == REFUSED and re.search(rf"larklane profile: --out {place.folder}: Read-only file system; remedy: name another folder", done.stderr),
           f"profile: status {done.returncode}", done.stderr)


def marked(mark):
    """Processes with it in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def interrupt(bench, words, is_there, env, to_group=True):
    """Sends SIGINT as soon as `is_there()`: status and standard error. No process stays."""
    mark = f"LARKLANE_TEST_MARK={bench.scratch.name}-{len(words)}-{words[0]}"
    process = subprocess.Popen([str(word) for word in words], env={**os.environ, **env, mark.partition("=")[0]: mark.partition("=")[2]}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    try:
        deadline = time.monotonic() + 120
        while not is_there():
            expect(time.monotonic() < deadline and process.poll() is None, f"{words[:4]}: it does not begin", process.stderr.read() if process.poll() is not None else "")
            time.sleep(0.01)
        (os.killpg if to_group else os.kill)(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        deadline = time.monotonic() + 30
        while (left := marked(mark)) and time.monotonic() < deadline:
            time.sleep(0.01)
        expect(not left, f"{words[:4]}: left behind: {left}", errors)
        return process.returncode, errors
    finally:
        for pid in marked(mark):
            os.kill(int(pid), signal.SIGKILL)


def points_in(path):
    """Of a launch's record, or of a set."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return 0
    return sum(len(run["points"]) for run in record.get("runs", [record]))


def interrupted(bench):
    """^C: status 130, no process stays, and the measurements so far are kept."""
    out, environment, many = bench.scratch / "bench", bench.mpi.environment, ["--iterations", "100000"]
    words = [bench.command, "bench", "all", "--with", "native", "--launcher", launcher(bench), "--out", out, "--sizes", "4K,8K,16K,32M", "--threads", "2", "--compute-us", "1",
             "--budget", "8000", "--launch-limit", "240", "--ways", "join", "--iterations", "100"]
    for to_group in (True, False):
        status, errors = interrupt(bench, [*words, "--overwrite"], lambda: points_in(out / "overhead-native-0.json") >= 1, environment, to_group)
        expect(status == 128 + signal.SIGINT and f"stopped; measured so far: {out}/bench.json" in errors, f"bench: status {status}", errors)
        expect(points_in(out / "bench.json") >= 1, "the points of a launch that was stopped are lost", errors)
        expect([path.name for path in out.iterdir()] == ["bench.json"], f"left: {list(out.iterdir())}")
    tuning = bench.scratch / "tuning"
    words = [bench.command, "tune", "--launcher", launcher(bench), "--out", tuning, "--sizes", "8:64K", *many]
    status, errors = interrupt(bench, words, lambda: any(map(points_in, bench.scratch.glob("prtt-larklane-0.json"))), environment)
    expect(status == 128 + signal.SIGINT and "the tuning file is as it was" in errors and not tuning.exists(), f"tune: status {status}", errors)
    expect(points_in(bench.scratch / "tuning.prtt.json") >= 1, "the points of a tuning that was stopped are lost", errors)
    program = bench.compile("step", "../profile/step.c", flags=("-O2", "-fopenmp"), compiler=bench.mpi.wrapper)
    folder = bench.scratch / "profile"
    words = [*launcher(bench).split(), bench.command, "profile", "--out", folder, program, "100000000"]
    status, errors = interrupt(bench, words, lambda: sum(path.stat().st_size > 200000 for path in folder.glob("*.larkprof")) == 2, environment)
    expect(status != 0, f"profile: status {status}", errors)
    shown = system(bench.command, "report", folder, "--text")
    expect("step" in shown, "what was recorded can't be read", shown)
    pages = bench.scratch / "pages"
    status, errors = interrupt(bench, [bench.command, "report", out / "bench.json", "--out", pages], pages.exists, environment)
    expect(status in (128 + signal.SIGINT, -signal.SIGINT), f"report: status {status}", errors)
    expect(not list(pages.glob("*.part")), "half a file is left")
    for step in range(1, 9):  # while its modules are read, too
        reading = subprocess.Popen([str(bench.command), "report", str(out / "nothing")], stderr=subprocess.PIPE, text=True)
        time.sleep(step / 20)
        reading.send_signal(signal.SIGINT)
        errors = reading.communicate(timeout=120)[1]
        expect("Traceback" not in errors, "a traceback", errors)


def cases():
    return [(case, "mpich5") for case in (filling, interrupted)] + [(sanitized, name) for name in launch.MPIS if name != "mpich5_abi"] + [(case, None) for case in (full, endless, escaped, unused, stopped, disk)]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, stub_test.Bench, __doc__))
