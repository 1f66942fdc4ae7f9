#!/usr/bin/env python3
"""Native programs, and `larklane launch`: processes that find each other, and those that fail to.

  boot_test.py --build DIR CASE [MPI]     one case
  boot_test.py --list                     `CASE` or `CASE MPI` of every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import fcntl
import os
import pathlib
import pty
import re
import resource
import secrets
import select
import signal
import socket
import subprocess
import sys
import termios
import time

import launch
import stub_test
from stub_test import REFUSED, Skip, expect, system

GRACE_S = 2  # between SIGTERM and SIGKILL: tools/launch.cpp
CLEAN = dict.fromkeys(("RANK", "SIZE", "MEET", "BOARD", "JOB", "BOOT_WAIT_NS"))


class Bench:
    """A build folder, a scratch folder and perhaps an MPI."""

    def __init__(self, build, scratch, mpi):
        self.mpi = launch.MPIS.get(mpi)
        if self.mpi and not self.mpi.installed():
            raise Skip(f"{self.mpi.title} is not installed")
        self.command = build / "bin/larklane"
        self.native = build / "tests/mp/boot/native"
        self.ring = build / "examples/native/ring"
        self.scratch = scratch

    def launched(self, count, *command, status=0, options=(), env=None):
        return system(self.command, "launch", "-n", count, *options, *command, status=status, env=env)

    def ranks(self, size, start, *words, program=None):
        """Processes started by hand: outputs and exit statuses. `start(rank)` gives the variables of one."""
        processes = [subprocess.Popen([program or self.native, *map(str, words)], env=variables(size=size, rank=rank, **start(rank)), text=True, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(size)]
        return [(process.communicate(timeout=240)[0], process.returncode) for process in processes]


def variables(**ours):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LARKLANE_")}
    return {**clean, **{f"LARKLANE_{name.upper()}": str(value) for name, value in ours.items()}}


def free_port():
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def expect_all(output, count):
    ranks = sorted(map(int, re.findall(rf"^rank (\d+) of {count} ok$", output, re.M)))
    expect(ranks == list(range(count)), f"not all of {count}", output)


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def expect_ended(pids, output=""):
    """All are gone, or go soon."""
    deadline = time.monotonic() + 120
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        select.select([], [], [], 0.01)
    expect(not any(map(is_alive, pids)), f"left behind: {[pid for pid in pids if is_alive(pid)]}", output)


def start(bench, count, *command, **options):
    """A launch that is under way, in a process group of its own."""
    return subprocess.Popen([str(word) for word in (bench.command, "launch", "-n", count, *command)], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, start_new_session=True, env=variables(), **options)


def pids_of(process, count):
    return [int(re.fullmatch(r"pid (\d+)\n", process.stdout.readline())[1]) for _ in range(count)]


def alone(bench):
    output = system(bench.native, env={f"LARKLANE_{name}": None for name in CLEAN})
    expect_all(output, 1)


def meets(bench):
    """1, 2, 8 and 64 processes."""
    for count in (1, 2, 8, 64):
        expect_all(bench.launched(count, bench.native), count)


def by_hand(bench):
    """Without the launcher rank 0 serves; or a folder does."""
    for start_of in (lambda port: {"meet": f"127.0.0.1:{port}"}, lambda port: {"meet": f"localhost:{port}"}, lambda _: {"board": bench.scratch}):
        way = {**start_of(free_port()), "job": secrets.token_hex(8)}
        outcomes = bench.ranks(8, lambda _, way=way: way)
        expect(all(status == 0 for _, status in outcomes), f"by hand, {way}", str(outcomes))
        expect_all("".join(output for output, _ in outcomes), 8)


def provider_of(output, count):
    """By what messages go, as each process says, once."""
    found = re.findall("messages by (\\S+)", output)
    expect(len(found) == count and len(set(found)) == 1, f"{count} processes, {found}", output)
    return found[0]


def messages_by_hand(bench):
    """Messages go round where rank 0 or a folder brings the processes together: a loopback address is on one host, a folder does not tell."""
    for start, is_by_memory in (({"meet": f"localhost:{free_port()}"}, True), ({"board": bench.scratch}, False)):
        way = {**start, "job": secrets.token_hex(8), "log_level": "info"}
        outcomes = bench.ranks(4, lambda _, way=way: way, "--rounds", 20, program=bench.ring)
        output = "".join(output for output, _ in outcomes)
        expect(all(status == 0 for _, status in outcomes), f"by hand, {way}", output)
        expect((provider_of(output, 4) == "shm") == is_by_memory, f"by memory: not {is_by_memory}", output)


def two_jobs(bench):
    """Two launches at once, and two jobs in one folder: nobody sees the other's cards."""
    launches = [start(bench, 8, bench.native, word) for word in ("this", "that")]
    for process in launches:
        output, errors = process.communicate(timeout=240)
        expect(process.returncode == 0 and not errors, "two jobs", output + errors)
        expect_all(output, 8)
    jobs = {word: secrets.token_hex(8) for word in ("this", "that")}
    processes = [subprocess.Popen([bench.native, word], env=variables(size=2, rank=rank, board=bench.scratch, job=job))
                 for word, job in jobs.items() for rank in range(2)]
    expect([process.wait(timeout=240) for process in processes] == [0] * 4, "two jobs in one folder")


def early_death(bench):
    """Who dies before it has published is named at once; so is who never comes, in time."""
    output = bench.launched(4, "sh", "-c", f"trap '' TERM; {bench.native} early 2 0", status=3)
    expect("rank 2 has ended before it published its card" in output, "not named", output)
    # One that has not even come: the launcher knows.
    output = bench.launched(3, "sh", "-c", f"[ $LARKLANE_RANK = 2 ] && exit 0; exec {bench.native} early 2 0", status=3, env={"LARKLANE_BOOT_WAIT_NS": "10s"})
    expect("rank 2 has ended before it published its card" in output, "not named", output)
    for way in ({"meet": f"127.0.0.1:{free_port()}", "job": "a"}, {"board": bench.scratch, "job": "b"}):
        outcomes = bench.ranks(3, lambda _, way=way: {**way, "boot_wait_ns": "500ms" if "board" in way else "2s"}, "early", 2, 7)
        expect([status for _, status in outcomes] == [3, 3, 7], f"early death, {way}", str(outcomes))
        expect("rank 2 has" in outcomes[0][0], "rank 2 is not named", str(outcomes))
        # Rank 0, which serves by TCP, may have ended by then, or even before rank 1 has come.
        expect(re.search("rank 2 has|rank 0 or the launcher|LARKLANE_MEET is", outcomes[1][0]), "nobody is named", str(outcomes))
    outcome = subprocess.run([bench.native], env=variables(rank=0, size=2, meet=f"127.0.0.1:{free_port()}", job="c", boot_wait_ns="200ms"), text=True,
                             capture_output=True, timeout=240, check=False)
    expect(outcome.returncode == 3 and "rank 1 has not published its card within 200 ms" in outcome.stderr, "rank 1 never came", outcome.stderr)


def wrong_variables(bench):
    whole = {"rank": 1, "size": 2, "meet": "127.0.0.1:1", "job": "j"}
    for change, parts in (({"rank": "x"}, ('LARKLANE_RANK is "x"', "accepted: 0..1")),
                          ({"rank": 2}, ('LARKLANE_RANK is "2"', "accepted: 0..1")),
                          ({"size": 0}, ('LARKLANE_SIZE is "0"', "accepted: 1..1048576")),
                          ({"size": "-1"}, ('LARKLANE_SIZE is "-1"', "accepted: 1..1048576")),
                          ({"meet": "nowhere"}, ('LARKLANE_MEET is "nowhere"', "accepted: HOST:PORT")),
                          ({"job": ""}, ("LARKLANE_JOB is not set", "accepted: up to 64 characters")),
                          ({"boot_wait_ns": "soon"}, ('LARKLANE_BOOT_WAIT_NS is "soon"', "accepted: 10ms..3600s"))):
        outcome = subprocess.run([bench.native], env=variables(**{**whole, **change}), text=True, capture_output=True, timeout=240, check=False)
        expect(outcome.returncode == 3, f"{change}: status {outcome.returncode}", outcome.stderr)
        for part in parts:
            expect(part in outcome.stderr, f"{change}: no '{part}'", outcome.stderr)


def statuses(bench):
    """The first failure is the launch's; the others end, be it by SIGKILL."""
    rank = "$LARKLANE_RANK"
    output = bench.launched(3, "sh", "-c", f"[ {rank} = 1 ] && exit 5; exec sleep 300", status=5)
    expect("rank 1 ended with status 5; the others are ended" in output, "not named", output)
    output = bench.launched(3, "sh", "-c", f"[ {rank} = 2 ] && kill -SEGV $$; exec sleep 300", status=128 + signal.SIGSEGV)
    expect("rank 2 was ended by signal 11 (Segmentation fault)" in output, "not named", output)
    begin = time.monotonic()
    ready = bench.scratch / "ready"
    stays = f"trap '' TERM; : > {ready}; while :; do sleep 300; done"
    bench.launched(2, "sh", "-c", f"if [ {rank} = 0 ]; then {stays}; fi; until [ -e {ready} ]; do sleep 0.01; done; exit 5", status=5)
    expect(time.monotonic() - begin >= GRACE_S, "no time to end")
    output = bench.launched(2, "sleep", 300, status=124, options=("--timeout", 0.2))
    expect("not ended after 0.2 s: ranks 0-1" in output, "not named", output)
    bench.launched(1, "timeout", 300, "sleep", 300, status=124, options=("--timeout", 0.2))  # it leaves the group
    text = f"{bench.command} launch -n 1 sh -c 'sleep 0.1; printf hello; sleep 100 &' | true; [[ ${{PIPESTATUS[0]}} =~ ^(0|141)$ ]]"
    system("bash", "-c", text)  # whichever end comes first
    expect(bench.launched(2, "true") == "", "a message without need")


def misuse(bench):
    for words, status, parts in ((("-n", 0, "true"), REFUSED, ("-n", "1 to 1024")), (("-n", 1025, "true"), REFUSED, ("-n", "1 to 1024")),
                                 (("-n", "x", "true"), REFUSED, ("-n",)), (("-n", 2), REFUSED, ("no program given",)),
                                 *((("--timeout", value, "true"), REFUSED, ("--timeout", value)) for value in ("0", "-1", "1e300", "inf", "nan", "soon")), (("--nonsense", "true"), REFUSED, ("--nonsense",)),
                                 (("-n", 2, bench.scratch / "nothing"), 127, ("nothing: No such file",)),
                                 (("-n", 2, "no-such-program"), 127, ("no-such-program: No such file",)),
                                 (("-n", 2, bench.scratch), 126, ("Permission denied",))):
        output = system(bench.command, "launch", *words, status=status)
        for part in parts:
            expect(part in output, f"{words}: no '{part}'", output)
    output = system("sh", "-c", f"ulimit -n 64; exec {bench.command} launch -n 64 true", status=REFUSED)
    expect("needs 272 file descriptors, but ulimit -n is 64" in output, "too many", output)


def output(bench):
    """Lines stay whole and are tagged; input is rank 0's."""
    script = bench.scratch / "lines.sh"
    script.write_text("i=0; while [ $i -lt 200 ]; do printf '%s' $LARKLANE_RANK; printf '%s\\n' -$i; i=$((i+1)); done; echo error >&2; printf end", encoding="utf-8")
    plain = bench.launched(4, "sh", script)
    lines = re.findall(r"^(\d)-(\d+)$", plain, re.M)
    expect(len(lines) == 800, "lines are broken", plain)
    for rank in "0123":
        expect([int(number) for of, number in lines if of == rank] == list(range(200)), f"lines of rank {rank}", plain)
    tagged = bench.launched(2, "sh", script, options=("--tag-output",))
    for rank in "01":
        for text in (f"{rank}-199", "error", "end"):
            expect(re.search(rf"^\[{rank}\] {text}$", tagged, re.M), f"no '[{rank}] {text}'", tagged)
    script.write_text('if [ $LARKLANE_RANK = 0 ]; then printf end; else sleep 0.3; echo error >&2; fi', encoding="utf-8")
    expect(bench.launched(2, "sh", script, options=("--tag-output",)) == "[0] end\n[1] error\n", "a line without an end gets another one's")
    expect(bench.launched(1, "printf", "abc") == "abc", "one process's output is not its own")
    process = start(bench, 2, "--tag-output", "cat", stdin=subprocess.PIPE)
    expect(process.communicate("to rank 0\n", timeout=240)[0] == "[0] to rank 0\n", "input")
    process = start(bench, 2, "--tag-output", "readlink", "/proc/self/fd/0", stdin=subprocess.PIPE)
    expect("[1] /dev/null\n" in process.communicate("", timeout=240)[0], "rank 1 has an input")
    long = bench.launched(2, sys.executable, "-c", "print('x' * 300000)")
    expect(long.count("x") == 600000, "a long line is lost")


def terminal(bench):
    """From a terminal input goes to rank 0 as it is typed."""
    ours, theirs = pty.openpty()
    process = start(bench, 2, "--tag-output", "cat", stdin=theirs)
    os.close(theirs)
    os.write(ours, b"typed\n")
    expect(process.stdout.readline() == "[0] typed\n", "not passed on")
    os.write(ours, b"\x04")
    expect(process.wait(timeout=240) == 0, "its end is not passed on")
    os.close(ours)


def signals(bench):
    """SIGINT and SIGTERM reach every process; one that stays is killed by the second."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = start(bench, 3, bench.native, "wait")
        pids = pids_of(process, 3)
        process.send_signal(number)
        expect(process.wait(timeout=240) == 128 + number, f"status {process.returncode} after {number}", process.stderr.read())
        expect_ended(pids)
    process = start(bench, 2, "sh", "-c", "trap 'echo kept' INT; echo pid $$; while :; do sleep 0.05; done")
    pids = pids_of(process, 2)
    process.send_signal(signal.SIGINT)
    expect([process.stdout.readline() for _ in range(2)] == ["kept\n"] * 2, "not passed on")
    process.send_signal(signal.SIGINT)
    expect(process.wait(timeout=240) == 128 + signal.SIGKILL, f"status {process.returncode}", process.stderr.read())
    expect_ended(pids)


def orphans(bench):
    """Nothing outlives the launcher, however it ends, nor does what the processes have left behind."""
    left = "sleep 300 & echo pid $!; "
    for number, script in ((signal.SIGKILL, left + "wait"), (None, left + "exit 0"), (None, left + "exit 4")):
        process = start(bench, 2, "sh", "-c", script)
        pids = pids_of(process, 2 if number else 1)
        if number:
            process.send_signal(number)
        process.wait(timeout=240)
        expect_ended(pids, process.stderr.read())
    process = start(bench, 2, "yes")
    expect(process.stdout.readline() == "y\n", "no output")
    process.stdout.close()
    expect(process.wait(timeout=240) == 128 + signal.SIGPIPE, f"status {process.returncode}: nobody reads", process.stderr.read())


def outlived(bench):
    """Processes that have left the group hold the ranks' pipes, and write on: the launch ends with its ranks, and says what came until then."""
    most = 8 << 20
    asleep = f"{bench.scratch}/asleep.$LARKLANE_RANK"
    plain = bench.launched(2, "sh", "-c", f"setsid sh -c 'echo begun; echo $$ >{asleep}; exec sleep 300' & until [ -s {asleep} ]; do sleep 0.01; done; echo over")
    for file in bench.scratch.glob("asleep.*"):
        os.kill(int(file.read_text(encoding="ascii")), signal.SIGKILL)
    expect((plain.count("begun\n"), plain.count("over\n")) == (2, 2), "what came before the end is lost", plain)
    process = start(bench, 2, "sh", "-c", "for i in 1 2 3 4; do setsid yes more & done; sleep 0.3; echo over")
    overs = after = 0
    while after < most and (text := os.read(process.stdout.fileno(), 4096)):
        overs += text.count(b"over")
        after += len(text) if overs == 2 else 0
        select.select([], [], [], 0.0005)  # the pipes fill up meanwhile
    process.kill() if after >= most else process.wait(timeout=240)
    expect(after < most and overs == 2, f"{after} bytes after the end of both ranks")
    expect(process.returncode == 0, f"status {process.returncode}", process.stderr.read())


def closed(bench):
    """Standard streams that are closed: nothing of ours takes their numbers."""
    seen = bench.scratch / "seen"
    script = f"echo printed; echo error >&2; cat >{seen}.$LARKLANE_RANK; readlink /proc/self/fd/0 /proc/self/fd/1 >>{seen}.$LARKLANE_RANK"
    for streams in ("<&- >&- 2>&-", "<&-", ">&-", "2>&-"):
        done = subprocess.run(["sh", "-c", f'exec "$@" {streams}', "sh", bench.command, "launch", "-n", "2", "sh", "-c", script], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env=variables(), timeout=240, check=False)
        expect(done.returncode == 0, f"{streams}: status {done.returncode}", done.stderr)
        expect(done.stdout.count("printed") == (0 if ">&- " in streams or streams == ">&-" else 2), f"{streams}: output", done.stdout)
        expect(done.stderr.count("error") == (0 if "2>&-" in streams else 2), f"{streams}: errors", done.stderr)
        for rank in "01":
            text = pathlib.Path(f"{seen}.{rank}").read_text(encoding="ascii")
            expect(text.startswith("/dev/null\n"), f"{streams}: rank {rank} has another input", text)
        output = bench.launched(2, bench.native, "wait", status=124, options=("--timeout", 1)) if not streams.startswith("<&- ") else "pid"
        expect("pid" in output, f"{streams}: it does not begin", output)


def unready(bench):
    """What the launcher can't have is named, with its own reason: a place to meet, a descriptor that does not block."""
    for body, status, said in (("int bind(int fd, void* name, unsigned length) { return errno = EADDRINUSE, -1; }\nint setpgid(int pid, int group) { return pid == 0 ? syscall(SYS_setpgid, pid, group) : (errno = EPERM, -1); }\n",
                                REFUSED, "can't begin: no port on 127.0.0.1 where the ranks could meet: Address already in use"),
                               ("int fcntl(int fd, int command, ...) { return command == F_SETFL ? (errno = ENOLCK, -1) : 0; }\n",
                                126, "rank 0: true: No locks available")):
        shim = bench.scratch / "shim"
        shim.with_suffix(".c").write_text(f"#define _GNU_SOURCE\n#include <errno.h>\n#include <fcntl.h>\n#include <sys/syscall.h>\nlong syscall(long, ...);\n{body}", encoding="ascii")
        system("cc", "-shared", "-fPIC", "-o", shim, shim.with_suffix(".c"))
        output = system(bench.command, "launch", "-n", 2, "true", env={"LD_PRELOAD": str(shim)}, status=status)
        expect(said in output, "not named", output)


def unwatched(bench):
    """poll() fails, as when somebody lowers the limit of descriptors: said once, and the ranks are ended. Processor time: next to none."""
    process = start(bench, 4, "sh", "-c", "echo pid $$; exec sleep 300")
    pids = pids_of(process, 4)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (8, 8))
    os.kill(pids[0], signal.SIGCONT)  # to no effect but that
    process.send_signal(signal.SIGCONT)  # poll() is called again
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    expect(process.returncode == 1 and errors.count("can't wait for the ranks: Invalid argument") == 1, f"status {process.returncode}", errors)
    expect_ended(pids, errors)


def states(pids):
    return {pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] for pid in pids}


def expect_states(pids, wanted, what):
    deadline = time.monotonic() + 60
    while not (found := states(pids)) <= wanted:
        expect(time.monotonic() < deadline, f"{what}: {found}")
        select.select([], [], [], 0.01)


def paused(bench):
    """Ctrl-Z stops the ranks with the launcher; they go on with it."""
    process = start(bench, 2, "sh", "-c", "echo pid $$; exec sleep 300")
    try:
        pids = pids_of(process, 2)
        for _ in range(2):
            process.send_signal(signal.SIGTSTP)
            expect_states([*pids, process.pid], {"T"}, "not all are stopped")
            process.send_signal(signal.SIGCONT)
            expect_states([*pids, process.pid], {"S", "R"}, "not all go on")
        process.send_signal(signal.SIGTERM)
        expect(process.wait(timeout=240) == 128 + signal.SIGTERM, f"status {process.returncode}", process.stderr.read())
    finally:
        process.kill()


def unstarted(bench):
    """A later rank that can't be started: those before it have the time to end that every failure gives."""
    spare = [os.open("/dev/null", os.O_RDONLY) for _ in range(110)]
    begin = time.monotonic()
    # As the launcher itself, its ranks ignore SIGTERM.
    done = subprocess.run(["sh", "-c", 'trap "" TERM; ulimit -n 160; exec "$@"', "sh", str(bench.command), "launch", "-n", "20", "sleep", "300"], pass_fds=spare, capture_output=True,
                          text=True, env=variables(), timeout=240, check=False)
    for fd in spare:
        os.close(fd)
    named = re.search(r"rank (\d+): sleep: Too many open files; the others are ended", done.stderr)
    expect(done.returncode == 126 and named and int(named[1]) > 0, f"status {done.returncode}", done.stderr)
    expect(time.monotonic() - begin >= GRACE_S, "no time to end")


def unread(bench):
    """A reader of the output that is stuck holds up neither signals nor the time limit; a slow one gets everything."""
    noisy = "while :; do echo a line of output that is not read; echo another >&2; done"
    for stderr in (subprocess.STDOUT, subprocess.PIPE):
        for options, number, status in (((), signal.SIGTERM, 128 + signal.SIGTERM), (("--timeout", "1"), None, 124)):
            process = subprocess.Popen([str(word) for word in (bench.command, "launch", "-n", 2, *options, "sh", "-c", noisy)], stdout=subprocess.PIPE, stderr=stderr,
                                       start_new_session=True, env=variables())
            try:
                pids = children_of(process.pid, 3)  # with the group's leader
                wait_until_full(process.stdout)
                if number:
                    process.send_signal(number)
                expect(process.wait(timeout=60) == status, f"status {process.returncode}, not {status}")
                expect_ended(pids)
            except subprocess.TimeoutExpired:
                expect(False, f"{options}, {number}: it waits for its reader for ever")
            finally:
                process.kill()
                process.communicate()
    process = start(bench, 2, sys.executable, "-c", "print('x' * 300000)")
    children_of(process.pid, 1)
    wait_until_full(process.stdout)
    text = process.communicate(timeout=240)[0]
    expect(process.returncode == 0 and text.count("x") == 600000, f"status {process.returncode}: {text.count('x')} bytes of 600000")


def children_of(pid, least):
    deadline = time.monotonic() + 60
    while len(found := pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()) < least:
        expect(time.monotonic() < deadline, "no ranks")
        select.select([], [], [], 0.01)
    return list(map(int, found))


def wait_until_full(pipe):
    """Of a pipe that is not read: its writer waits."""
    deadline, before = time.monotonic() + 60, -1
    while (now := int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)) != before or now < fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) // 4:
        expect(time.monotonic() < deadline, f"the pipe does not fill up: {now} bytes")
        before = now
        select.select([], [], [], 0.3)


def over_mpi(bench):
    """A communicator says who the processes are: larklane/boot_mpi.hpp."""
    outcome = launch.launch(bench.mpi, 4, [str(bench.native.parent / bench.mpi.name / "native_mpi")], 240, {})
    expect(outcome.status == 0, f"status {outcome.status}", outcome.output)
    expect_all(outcome.output, 4)


def messages_over_mpi(bench):
    """Messages go round, by the host's memory, since all of a communicator are on one host."""
    ring = bench.native.parent / bench.mpi.name / "ring_mpi"
    outcome = launch.launch(bench.mpi, 4, [str(ring)], 240, {"LARKLANE_LOG_LEVEL": "info"})
    expect(outcome.status == 0, f"status {outcome.status}", outcome.output)
    expect(provider_of(outcome.output, 4) == "shm", "not by shm", outcome.output)


def by_pmix(bench):
    """A launcher that speaks PMIx says who the processes are, without an MPI."""
    outcome = launch.launch(bench.mpi, 4, [str(bench.native)], 240, {})
    expect(outcome.status == 0, f"status {outcome.status}", outcome.output)
    expect_all(outcome.output, 4)
    outcome = launch.launch(bench.mpi, 3, [str(bench.native), "late", "2"], 240, {"LARKLANE_BOOT_WAIT_NS": "1s"})
    expect("rank 2 has not published its card within 1 s" in outcome.output, "rank 2 is not named", outcome.output)
    expect(re.search("came to the fence within 1 s|has ended before the fence", outcome.output), "no end of a fence", outcome.output)


def messages_by_pmix(bench):
    """Messages go round where a launcher brings the processes together, by their host's memory: it says that they have one."""
    outcome = launch.launch(bench.mpi, 4, [str(bench.ring), "--rounds", "20"], 240, {"LARKLANE_LOG_LEVEL": "info"})
    expect(outcome.status == 0, f"status {outcome.status}", outcome.output)
    expect(provider_of(outcome.output, 4) == "shm", "not by shm", outcome.output)


def cases():
    by_mpi = [(case, name) for case in (over_mpi, messages_over_mpi) for name in launch.MPIS] + [(case, name) for case in (by_pmix, messages_by_pmix) for name in ("openmpi5", "openmpi4")]
    return by_mpi + [(case, None) for case in (alone, meets, by_hand, messages_by_hand, two_jobs, early_death, wrong_variables, statuses, misuse, output, terminal, signals, orphans, outlived,
                                                 closed, unready, unwatched, paused, unstarted, unread)]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, Bench, __doc__))
