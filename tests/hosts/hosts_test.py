#!/usr/bin/env python3
"""Two hosts are two hosts, for a program, for each MPI, natively, and for messages of a program that an MPI starts; what is done to them in mid-run happens. Prints `N passed, N failed`.

Exit status: 0, 1 if a test failed, 77 if hosts can't be made here or the MPI is not installed.
"""

import argparse
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hosts import HERE, LOGS, launch, run_tests, sweep  # noqa: E402

ABSTRACT = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    (s.bind if sys.argv[1] == "bind" else s.connect)("\\0larklane-hosts-test")
except OSError as why:
    sys.exit(str(why))
if sys.argv[1] == "bind":
    s.listen(); print("bound", flush=True); s.accept()
"""
SERVER = """
import socket
s = socket.create_server(("", 7000)); print("bound", flush=True); c = s.accept()[0]
while c.recv(1): print("got", flush=True)
"""
CLIENT = """
import socket, time
s = socket.create_connection(("host0", 7000))
while True: s.send(b"x"); time.sleep(0.02)
"""


def popen(host, *command):
    return subprocess.Popen([*host.enter(), *command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


def names_differ(hosts):
    said = [host.run("sh", "-c", "hostname; cat /proc/sys/kernel/random/boot_id; echo $(ls /sys/class/net); pwd",
                     capture_output=True, text=True).stdout.split("\n") for host in hosts.hosts]
    same = [one == other for one, other in zip(*said)]
    return same[:4] == [False, False, True, True] and said[0][0] == "host0" and said[0][2].split() == ["eth0", "lo"] and said[0][3] == os.getcwd()


def abstract_sockets_are_apart(hosts):
    first, second = hosts.hosts
    server = popen(first, sys.executable, "-c", ABSTRACT, "bind")
    server.stdout.readline()
    elsewhere = second.run(sys.executable, "-c", ABSTRACT, "connect", stderr=subprocess.DEVNULL).returncode
    here = first.run(sys.executable, "-c", ABSTRACT, "connect").returncode
    server.kill()
    server.wait()
    return elsewhere != 0 and here == 0


def shared_memory_is_apart(hosts):
    first, second = hosts.hosts
    first.run("touch", "/dev/shm/larklane-hosts-test")
    return second.run("test", "-e", "/dev/shm/larklane-hosts-test").returncode == 1 and not os.path.exists("/dev/shm/larklane-hosts-test")


def stream(hosts):
    """@return processes of a stream from host1 to host0 that is flowing"""
    server = popen(hosts.by_name["host0"], sys.executable, "-c", SERVER)
    server.stdout.readline()
    client = popen(hosts.by_name["host1"], sys.executable, "-c", CLIENT)
    server.stdout.readline()
    return server, client


def lines_in(process, seconds):
    """@return how many lines it prints meanwhile"""
    def printed():
        ready, _, _ = select.select([process.stdout], [], [], 0)
        return os.read(process.stdout.fileno(), 1 << 20).count(b"\n") if ready else 0

    time.sleep(0.2)  # what was on its way
    printed()
    time.sleep(seconds)
    return printed()


def link_goes_down_and_up(hosts):
    server, client = stream(hosts)
    before = lines_in(server, 0.5)
    hosts.set_link(False)
    during = lines_in(server, 0.5)
    hosts.set_link(True)
    deadline = time.monotonic() + 120  # TCP tries again after a while
    while not (after := lines_in(server, 0.5)) and time.monotonic() < deadline:
        pass
    hosts.kill_host("host0")
    hosts.kill_host("host1")
    server.wait(), client.wait()
    return before > 0 and during == 0 and after > 0


def killed_host_is_empty(hosts):
    server, client = stream(hosts)
    hosts.kill_host("host1")
    ended = client.wait(timeout=120) == -signal.SIGKILL and server.wait(timeout=120) == 0  # the server saw the end
    return ended and not hosts.processes("host1") and hosts.by_name["host1"].run("true").returncode == 0


def nothing_is_left(_):
    """A maker of hosts is killed, with a process on one of them that nobody else ends: the next sweep does."""
    maker = subprocess.Popen([sys.executable, str(HERE / "hosts.py"), "--on", "host1", "sh", "-c", "echo $$; exec sleep 1000"],
                             stdout=subprocess.PIPE, text=True)
    pid = int(maker.stdout.readline())
    maker.kill()
    maker.wait()
    swept = sweep()
    deadline = time.monotonic() + 120
    while launch._stat_of(pid)[:1] not in ([], ["Z"]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return pid in swept and time.monotonic() < deadline


def machinery(hosts):
    for test in (names_differ, abstract_sockets_are_apart, shared_memory_is_apart, link_goes_down_and_up, killed_host_is_empty, nothing_is_left):
        yield test.__name__, test(hosts), None


def exchanged(hosts, mpi, program):
    """Natively, two ranks on each host: the MPI sees two hosts, and all data is right."""
    with tempfile.TemporaryDirectory(prefix="larklane-exchange-") as folder:
        outcome = hosts.run(mpi, 2, [program, "2", "--meet", f"{folder}/here"], 240, keep_logs_in=str(LOGS))
    places = [f"rank {rank} is on host{rank // 2}" in outcome.by_rank.get(rank, "") for rank in range(4)]
    return outcome.status == 0 and all(places) and "exchange: 4 ranks on 2 hosts: ok" in outcome.output, outcome


def messages_go_round(hosts, mpi, program):
    """A native program whose ranks the MPI has put on both hosts: by a network, although two of them share a host's memory each."""
    with tempfile.TemporaryDirectory(prefix="larklane-ring-") as folder:
        outcome = hosts.run(mpi, 2, [program, "--meet", f"{folder}/here"], 240, {"LARKLANE_LOG_LEVEL": "info"}, keep_logs_in=str(LOGS))
    ways = re.findall(r"messages by (\S+)", outcome.output)
    return outcome.status == 0 and len(ways) == 4 and "shm" not in ways, outcome


def host_killed(hosts, mpi, program):
    """The other host's ranks and the launcher come to an end, and nothing is left. (The status says nothing: Open MPI 5's is 0.)"""
    job = hosts.start(mpi, 2, [program, "1", "--wait"], 240)
    ran = job.wait_for(3, "waiting", 160)
    hosts.kill_host("host1")
    outcome = job.result()
    left = hosts.processes("host0") + hosts.processes("host1")
    return ran and outcome.status != launch.TIMED_OUT and not left, outcome


def time_limit(hosts, mpi, program):
    """A job without end is killed on both hosts. It has to have begun: on a slow machine that takes longer."""
    for limit_s in (4, 16, 64, 256):
        outcome = hosts.run(mpi, 2, [program, "1", "--wait"], limit_s)
        left = hosts.processes("host0") + hosts.processes("host1")
        good = outcome.status == launch.TIMED_OUT and not left
        began = "waiting" in outcome.by_rank.get(3, "")
        if began or not good:
            break
    return good and began, outcome


def with_mpi(hosts, name, build):
    exchange, ring = (str(build.resolve() / folder / name / program) for folder, program in (("tests/hosts", "exchange"), ("tests/mp/boot", "ring_mpi")))
    for test, program in ((exchanged, exchange), (messages_go_round, ring), (host_killed, exchange), (time_limit, exchange)):
        good, outcome = test(hosts, launch.MPIS[name], program)
        yield f"{name}: {test.__name__}", good, outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build/release", metavar="DIR")
    parser.add_argument("what", choices=("machinery", *launch.MPIS))
    args = parser.parse_args()
    if args.what in launch.MPIS and not launch.MPIS[args.what].installed():
        print(f"skipped: {launch.MPIS[args.what].title} is not installed")
        return launch.SKIP
    return run_tests(machinery if args.what == "machinery" else lambda hosts: with_mpi(hosts, args.what, args.build))


if __name__ == "__main__":
    sys.exit(main())
