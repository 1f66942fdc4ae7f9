#!/usr/bin/env python3
"""The knowledge that strangers of a host gain of a job, and their possible attacks on it; and a program that closes descriptors that are not its own.

  trust_test.py --build DIR CASE [MPI]    one case
  trust_test.py --list                    `CASE` or `CASE MPI` of every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import contextlib
import os
import pathlib
import random
import re
import resource
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import time

import launch
import stub_test
from boot_test import free_port, variables
from stub_test import Skip, expect, system

BEGIN_S, END_S = 60, 60
FUZZ_S, SOAK_S = 4, 600
SILENT = 800  # silent connections, to each socket
UNPROVEN = 64  # base/unproven.hpp
MAGIC, BOARD_MAGIC = 0x6B72616C, 0x4C4C4231
VERSION = int(re.search(r"kProtocolVersion = (\d+)", (launch.ROOT / "src/control/plane/wire.hpp").read_text(encoding="utf-8"))[1])


class Bench:
    """A build folder, a scratch folder and perhaps an MPI."""

    def __init__(self, build, scratch, mpi):
        self.mpi = launch.MPIS.get(mpi)
        if self.mpi and not self.mpi.installed():
            raise Skip(f"{self.mpi.title} is not installed")
        self.build = build
        self.command = build / "bin/larklane"
        self.native = build / "tests/mp/messages/rounds"
        self.program = build / "tests/mp/fault" / (mpi or "") / "rounds"
        if self.mpi and not self.program.exists():
            raise Skip(f"{self.program} is not built")
        self.scratch = scratch
        self.over = scratch / "over"


def text_of(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def begun(read):
    """Process ids of both ranks, once both have begun. @param read  the output so far"""
    deadline = time.monotonic() + BEGIN_S
    while time.monotonic() < deadline:
        pids = dict(re.findall(r"rank (\d) has begun, pid (\d+)", read()))
        if len(pids) == 2:
            return [int(pids[rank]) for rank in "01"]
        select.select([], [], [], 0.05)
    raise stub_test.Failed("not both ranks have begun\n" + read())


@contextlib.contextmanager
def started(bench, commands, env, name="log"):
    """Processes with their output in one file; ended in any case. Yields that file's reader."""
    log = bench.scratch / name
    with open(log, "wb") as out:
        processes = [subprocess.Popen([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                      env={**env, **more}, start_new_session=True) for command, more in commands]
    try:
        yield lambda: text_of(log)
        for process in processes:
            expect(process.wait(timeout=END_S) == 0, f"status {process.returncode}", text_of(log))
    finally:
        for process in processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def both_right(output):
    counts = re.findall(r"rank \d: (\d+) rounds right", output)
    expect(len(counts) == 2 and len(set(counts)) == 1, "not all rounds are right", output)
    return int(counts[0])


# --- secrets ----------------------------------------------------------------------------------------


def fields(pid):
    stat = text_of(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(stat[1]) if len(stat) > 1 else 0


def family_of(pids):
    """These, their ancestors below this process, and all that those have started."""
    everyone = {int(entry): fields(entry) for entry in os.listdir("/proc") if entry.isdigit()}
    family = set(pids)
    for pid in pids:
        while (pid := everyone.get(pid, 0)) not in (0, 1, os.getpid()):
            family.add(pid)
    while more := {pid for pid, parent in everyone.items() if parent in family} - family:
        family |= more
    return family


def expect_unseen(bench, secret, pids, printed):
    """The secret is in no name, no command line, no file and no message."""
    places = {"/proc/net/unix": text_of("/proc/net/unix"), "messages": printed, "/dev/shm": "\n".join(os.listdir("/dev/shm"))}
    for pid in family_of(pids):
        for name in ("cmdline", "maps", "comm", "net/unix"):
            places[f"/proc/{pid}/{name}"] = text_of(f"/proc/{pid}/{name}")
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    places[f"/proc/{pid}/fd/{fd}"] = os.readlink(f"/proc/{pid}/fd/{fd}")
    for path in bench.scratch.rglob("*"):
        places[f"name of {path}"] = str(path)
        if path.is_file():
            places[f"content of {path}"] = path.read_bytes().decode("latin-1")
    for place, text in places.items():
        expect(secret not in text, f"the secret is in {place}")
    expect(len(places) > 20, "too few places were looked at", str(sorted(places)))


def secret_of(pid):
    found = re.search(r"(?:^|\0)LARKLANE_JOB=([^\0]*)", text_of(f"/proc/{pid}/environ"))
    expect(found and len(found[1]) >= 16, "the rank has no LARKLANE_JOB")
    return found[1]


def secrets_native(bench):
    """Of native jobs: by hand, in a folder, launched."""
    verbose = {"log_level": "info", "summary": "on"}
    ways = ({"meet": f"127.0.0.1:{free_port()}"}, {"board": bench.scratch}, {})
    for number, way in enumerate(ways):
        over = bench.scratch / f"over{number}"
        job = secrets.token_hex(16)
        if way:
            commands = [((bench.native, over), {"LARKLANE_RANK": str(rank)}) for rank in range(2)]
            env = variables(size=2, job=job, **way, **verbose)
        else:
            commands, env = [((bench.command, "launch", "-n", 2, bench.native, over), {})], variables(**verbose)
        with started(bench, commands, env, f"log{number}") as read:
            pids = begun(read)
            secret = secret_of(pids[0])
            expect(not way or secret == job, "another secret")
            expect_unseen(bench, secret, pids, read())
            over.touch()
        both_right(read())
    # A started process that does not belong to the job does not get it.
    python = bench.scratch / "python"
    python.write_text("#!/bin/sh\nenv\n", encoding="utf-8")
    python.chmod(0o755)
    output = system(bench.command, "report", "x.json", env={"LARKLANE_PYTHON": str(python), "LARKLANE_JOB": "hard-to-guess", "LARKLANE_POLICY": "none"})
    expect("LARKLANE_POLICY=none" in output and "hard-to-guess" not in output, "a helper's environment", output)
    output = system(bench.command, "run", "--option", "job=hard-to-guess", "true", status=stub_test.REFUSED)
    expect("--option job: it is a secret" in output and "hard-to-guess" not in output, "a secret on a command line", output)


def secrets_mpi(bench):
    """Of MPI jobs: started by the MPI's launcher, and by `larklane launch`, with a profile."""
    job = secrets.token_hex(16)

    def look(logs):
        def read():
            return "".join(text_of(path) for path in sorted(pathlib.Path(logs).glob("*.log")))
        expect_unseen(bench, job, begun(read), read())
        bench.over.touch()

    env = {"LARKLANE_JOB": job, "LARKLANE_RANK": "0", "LARKLANE_SIZE": "2", "LARKLANE_LOG_LEVEL": "info", "LARKLANE_SUMMARY": "on"}
    outcome = launch.launch(bench.mpi, 2, [str(bench.command), "run", str(bench.program), "rounds", str(bench.over)], 120, env, started=look)
    expect(outcome.status == 0 and job not in outcome.output, f"status {outcome.status}", outcome.output)
    both_right(outcome.output)
    # Each rank is an MPI job of one process, and its name in public comes from LARKLANE_JOB.
    bench.over.unlink()
    # So each has a profile's folder of its own, too: the MPI calls both rank 0.
    profiled = f'exec "$0" profile --out {bench.scratch}/profile-$LARKLANE_RANK "$@"'
    command = (bench.command, "launch", "-n", 2, "sh", "-c", profiled, bench.command, bench.program, "rounds", bench.over)
    env = {**variables(log_level="info", summary="on"), **bench.mpi.environment}
    log = bench.scratch / "launched"
    with open(log, "wb") as out:
        process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, start_new_session=True)
    try:
        deadline = time.monotonic() + BEGIN_S
        while len(pids := re.findall(r"has begun, pid (\d+)", text_of(log))) < 2 and time.monotonic() < deadline and process.poll() is None:
            select.select([], [], [], 0.05)
        expect(len(pids) == 2, "not both have begun", text_of(log))
        secret = secret_of(int(pids[0]))
        expect("own-" in text_of("/proc/net/unix"), "no socket of such a job: the case shows nothing", text_of("/proc/net/unix"))
        expect_unseen(bench, secret, list(map(int, pids)), text_of(log))
        bench.over.touch()
        expect(process.wait(timeout=END_S) == 0, f"status {process.returncode}", text_of(log))
        expect(secret not in text_of(log), "in what was printed at last")
        expect(len(list(bench.scratch.glob("profile-*/*.larkprof"))) == 2, "not both have a profile", text_of(log))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


# --- strangers --------------------------------------------------------------------------------------


def inodes_of(pid):
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}")))
    return found


def doors_of(pid, has_ports):
    """Where Larklane listens in the process: abstract names, and ports. @param has_ports  the ports are Larklane's, not an MPI's"""
    own = inodes_of(pid)
    names = [line[7][1:] for line in map(str.split, text_of("/proc/net/unix").splitlines()) if len(line) == 8 and line[3] == "00010000" and line[6] in own
             and line[7].startswith("@larklane")]
    ports = [int(line[1].rpartition(":")[2], 16) for table in ("tcp", "tcp6") for line in map(str.split, text_of(f"/proc/net/{table}").splitlines()[1:])
             if has_ports and line[3] == "0A" and line[9] in own]
    return names, ports


def local(name):
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.setblocking(False)
    with contextlib.suppress(OSError):
        door.connect(b"\0" + name.encode())
    return door


def remote(port):
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    door.setblocking(False)
    with contextlib.suppress(OSError):
        door.connect(("127.0.0.1", port))
    return door


def hello(chance, names):
    """Under the name of one of the ranks; spoiled in two of three."""
    own = chance.choice(names).encode()
    body = bytearray(struct.pack("<IIQiI", MAGIC, VERSION, chance.getrandbits(64) | 1, chance.getrandbits(16), 1) + own.ljust(96, b"\0") + bytes(3 * 96))
    if chance.random() < 0.3:
        body[4:8] = struct.pack("<I", chance.choice((VERSION + 1, 0, 99)))
    for _ in range(chance.choice((0, 0, 1, 5))):
        body[chance.randrange(len(body))] ^= chance.randrange(1, 256)
    return bytes(body[:chance.randrange(len(body))]) if chance.random() < 0.2 else bytes(body)


def records(chance):
    text = b""
    for _ in range(chance.randrange(4)):
        payload = chance.randbytes(chance.randrange(200))
        text += struct.pack("<IIHHI", MAGIC, len(payload), chance.randrange(40), chance.choice((0, 0, 0, 3)), 0) + payload + bytes(-len(payload) % 8)
    return text + chance.randbytes(chance.choice((0, 0, 40)))


def fuzz(names, ports, seconds, seed):
    """@return how many connections there were"""
    chance, count, held = random.Random(seed), 0, []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if ports and chance.random() < 0.3:
            door = remote(chance.choice(ports))
            text = struct.pack("<II", chance.choice((MAGIC, BOARD_MAGIC)), chance.choice((VERSION, 1))) + chance.randbytes(chance.randrange(700))
        else:
            door = local(chance.choice(names))
            text = hello(chance, names) + records(chance)
        with contextlib.suppress(OSError):
            door.send(text)
        count += 1
        held.append(door)
        if len(held) > 40:
            held.pop(chance.randrange(len(held))).close()
    for door in held:
        door.close()
    return count


def fds_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def flood(pids, doors):
    """Silent connections cost little."""
    before = {pid: fds_of(pid) for pid in pids}
    held = [local(name) for names, _ in doors.values() for name in names for _ in range(SILENT)]
    held += [remote(port) for _, ports in doors.values() for port in ports for _ in range(SILENT)]
    for _ in range(20):
        for pid, (names, ports) in doors.items():
            most = before[pid] + UNPROVEN * (bool(names) + len(ports)) + 12
            expect(fds_of(pid) <= most, f"process {pid} has {fds_of(pid)} descriptors, {before[pid]} before {len(held)} strangers came")
        select.select([], [], [], 0.1)
    for door in held:
        door.close()


def attack(read, seconds, launcher=None):
    """All that strangers may do to two ranks, and to their launcher."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 16384),) * 2)
    pids = begun(read)
    everyone = pids + ([launcher] if launcher else [])
    # On one host MPI programs under Larklane listen at names alone: a socket with a port is the MPI's, which limits no connections.
    doors = {pid: doors_of(pid, launcher is not None) for pid in everyone}
    names = [name for names, _ in doors.values() for name in names]
    ports = [port for _, ports in doors.values() for port in ports]
    expect(len(names) >= 2, f"no sockets of the ranks: {doors}", text_of("/proc/net/unix"))
    flood(everyone, doors)
    seed = int(os.environ.get("LARKLANE_SEED", "4711"))
    print(f"LARKLANE_SEED={seed}: {fuzz(names, ports, seconds, seed)} connections of strangers")


def expect_few_warnings(output, most=24):
    warnings = [line for line in output.splitlines() if "larklane: warn" in line or "larklane: error" in line]
    expect(len(warnings) <= most, f"{len(warnings)} warnings", "\n".join(warnings[:60]))
    expect("down" not in "".join(warnings), "a peer is down", "\n".join(warnings[:60]))


def strangers(bench, seconds=FUZZ_S):
    """Strangers send arbitrary bytes to the sockets of a job, under its ranks' own names, too: all rounds are right."""
    if not bench.mpi:
        log = bench.scratch / "log"
        with open(log, "wb") as out:
            process = subprocess.Popen([bench.command, "launch", "-n", "2", bench.native, bench.over], env=variables(), stdout=out, stderr=subprocess.STDOUT,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            attack(lambda: text_of(log), seconds, process.pid)
            bench.over.touch()
            expect(process.wait(timeout=END_S) == 0, f"status {process.returncode}", text_of(log))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output = text_of(log)
    else:
        def act(logs):
            try:
                attack(lambda: "".join(text_of(path) for path in sorted(pathlib.Path(logs).glob("*.log"))), seconds)
            finally:
                bench.over.touch()
        outcome = launch.launch(bench.mpi, 2, [str(bench.command), "run", str(bench.program), "rounds", str(bench.over)], seconds + 120, {}, started=act)
        expect(outcome.status == 0, f"status {outcome.status}", outcome.output)
        output = outcome.output
    print(f"{both_right(output)} rounds")
    expect_few_warnings(output)


def strangers_minutes(bench):
    strangers(bench, SOAK_S)


# --- strangers at the data plane -----------------------------------------------------------------------


LINKS = 6
SILENT_DATA = 300  # silent connections, to each port
GROWN_KB = 8192


def tcp_names(pids, is_listening=False):
    """ADDRESS:PORT of the sockets over TCP of processes, but those of the control plane, which listens everywhere."""
    inodes = set().union(*(inodes_of(pid) for pid in pids))
    rows = [line.split() for line in text_of("/proc/net/tcp").splitlines()[1:]]
    names = {row[1] for row in rows if row[9] in inodes and not row[1].startswith("00000000") and (not is_listening or row[3] == "0A")}
    return {f"{socket.inet_ntoa(bytes.fromhex(name[:8])[::-1])}:{int(name[9:], 16)}" for name in names}


@contextlib.contextmanager
def stranger_of(build, silent=0):
    """A process of another user (tests/net/stranger_client.hpp). Yields a function that attacks the named doors. @return of it: how many there were"""
    program = build / "tests/net/stranger"
    if not program.exists():
        raise Skip(f"{program} is not built")
    with subprocess.Popen([program, str(silent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def attack_all(names):
            for name in names:
                process.stdin.write(f"{name}\n")
            process.stdin.flush()
            for name in names:
                answer = process.stdout.readline()
                expect(answer == f"{name} refused\n", f"{name}: a stranger is taken in", answer)
            return len(names)

        try:
            yield attack_all
        finally:
            process.kill()


def stopped(read, pids, rank, what):
    """Waits until the rank has reported it, and has stopped."""
    deadline = time.monotonic() + BEGIN_S
    while time.monotonic() < deadline:
        if f"rank {rank} stops: {what}\n" in read() and text_of(f"/proc/{pids[rank]}/stat").rpartition(")")[2].split()[:1] == ["T"]:
            return
        select.select([], [], [], 0.01)
    raise stub_test.Failed(f"rank {rank} does not stop: {what}\n{read()}")


def rss_kb(pid):
    return int(re.search(r"VmRSS:\s*(\d+)", text_of(f"/proc/{pid}/status"))[1])


def job_of_links(bench, attack_all):
    """Two ranks make link after link over ofi:tcp. While one waits for the other, all its ports are attacked, and again while rounds are made.
    @return the output, how many listeners of each rank were attacked, descriptors and memory of each rank at its end"""
    listeners, ends = [0, 0], []

    def act(logs):
        def read():
            return "".join(text_of(path) for path in sorted(pathlib.Path(logs).glob("*.log")))

        pids = begun(read)
        for rank in range(2):
            stopped(read, pids, rank, "begin")
        of_mpi = tcp_names(pids)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        for pair in range(LINKS):
            waits = pair % 2
            stopped(read, pids, 1 - waits, pair)
            deadline = time.monotonic() + 2  # its next lane may have a link already
            while not (doors := tcp_names(pids[waits:waits + 1], is_listening=True) - of_mpi) and time.monotonic() < deadline:
                select.select([], [], [], 0.01)
            listeners[waits] += len(doors)
            attack_all(doors)
            os.kill(pids[1 - waits], signal.SIGCONT)
            attack_all(tcp_names(pids) - of_mpi)
        for rank in range(2):
            stopped(read, pids, rank, "end")
        ends.extend((fds_of(pid), rss_kb(pid)) for pid in pids)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    env = {"LARKLANE_PROVIDER": "ofi:tcp@lo", "LARKLANE_VCI_COUNT_MAX": "16"}
    command = [str(bench.command), "run", "--summary", str(bench.program), "links", str(LINKS)]
    outcome = launch.launch(bench.mpi, 2, command, 200, env, started=act)
    expect(outcome.status == 0, f"status {outcome.status}", outcome.output)
    if "no module" in outcome.output:
        raise Skip(outcome.output)
    expect(outcome.output.count("ofi tcp") >= 2, "not over ofi:tcp", outcome.output)
    both_right(outcome.output)
    return outcome.output, listeners, ends


def strangers_tcp(bench):
    """A job over ofi:tcp beside another user that knows all but the secret: no port takes it while a link awaits its peer, nor later; all rounds are
    right, and the ranks have no more descriptors and memory than without it."""
    _, listeners, calm = job_of_links(bench, lambda names: None)
    expect(min(listeners) > 0, f"{listeners} listeners: nothing is shown")
    with stranger_of(bench.build, SILENT_DATA) as attack_all:
        output, attacked, ends = job_of_links(bench, attack_all)
    print(f"{attacked} listeners attacked; descriptors and KiB of each rank: {ends}, without strangers {calm}")
    expect(min(attacked) > 0, "no listener of some rank was attacked", output)
    expect_few_warnings(output)
    for (fds, kb), (calm_fds, calm_kb) in zip(ends, calm, strict=True):
        expect(fds <= calm_fds + 4, f"{fds} descriptors, {calm_fds} without strangers")
        expect(kb <= calm_kb + GROWN_KB, f"{kb} KiB, {calm_kb} without strangers")


# --- descriptors ------------------------------------------------------------------------------------

# A launcher kills the remaining ranks when a rank has closed the descriptor to it, or is over. So the program is in a
# session of its own. The process that the launcher knows holds that descriptor, too, and ends after the programs of
# both ranks.
ORPHAN = """folder=$1; shift
setsid "$@" & wait $!
touch "$folder/over.$$"
for i in $(seq 600); do
  set -- "$folder"/over.*
  [ $# = 2 ] && exit 0
  sleep 0.05
done
exit 1"""


def closed(bench):
    """A rank that closes all descriptors: its own rounds fail with a text, its peer gets the notice of the closed connection, and nothing hangs."""
    if bench.mpi:
        command = ["sh", "-c", ORPHAN, "orphan", str(bench.scratch), str(bench.command), "run", str(bench.program), "close"]
        outcome = launch.launch(bench.mpi, 2, command, 60, {})
        output, status = outcome.output, outcome.status
    else:
        result = subprocess.run([bench.command, "launch", "-n", "2", bench.native, "close"], env=variables(log_level="info"), text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=60, check=False)
        output, status = result.stdout, result.returncode
        expect(len(re.findall(r"rank \d: peer down", output)) == 2, "not both hear of it", output)
    print(output)
    expect(status not in (launch.TIMED_OUT, 124), "it hangs", output)
    for rank in "01":
        expect(f"rank {rank} is over" in output, f"rank {rank} is not over", output)
    expect("this process has closed descriptors that are Larklane's" in output, "the rank itself has no text", output)
    expect("it has closed its connection" in output, "the peer does not say so", output)


def cases():
    with_mpi = [(case, mpi) for case in (secrets_mpi, strangers, strangers_tcp, closed, strangers_minutes)
                for mpi in ("mpich5", "openmpi5", "mpich4")]
    return with_mpi + [(case, None) for case in (secrets_native, strangers, closed, strangers_minutes)]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, Bench, __doc__))
