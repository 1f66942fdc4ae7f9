#!/usr/bin/env python3
"""What the command reads and prints: files without an end, output that is not taken, texts that a terminal would obey; and programs that Larklane can't be
under by a preload alone.

  output_test.py --build DIR CASE [MPI]     one case
  output_test.py --list                     every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import launch
import stub_test
from stub_test import REFUSED, Skip, expect, system

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
    return subprocess.run([str(word) for word in words], env=variables, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60, check=False, **options)


def full(bench):
    """Standard output on a full device: status 1, and one line that says why."""
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
    """A program that asks the MPI's library itself: with --summary one line says that no call came through us."""
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


def cases():
    return [(sanitized, name) for name in launch.MPIS if name != "mpich5_abi"] + [(case, None) for case in (full, endless, escaped, unused, stopped)]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, stub_test.Bench, __doc__))
