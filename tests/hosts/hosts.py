#!/usr/bin/env python3
"""Two hosts on one machine, and MPI jobs across them.

A host is a set of namespaces (network, host name, System V IPC, mounts) that a sleeping process keeps: host0 with address 10.77.0.1
and host1 with 10.77.0.2, joined by a veth pair; lo is up. They share neither sockets (abstract ones included) nor /dev/shm, and have
names, /etc/hosts and boot ids of their own, so that an MPI takes them for two machines. They do share process ids, /tmp and all
other files. The namespaces have no names: nothing is left of them when the process that made them ends, however it does.

  python3 tests/hosts/hosts.py --mpi openmpi5 [--ranks-per-host 2] COMMAND...   an MPI job across both
  python3 tests/hosts/hosts.py --on host1 COMMAND...                           one process on one of them

Exit status: that of the launcher or the command; 124 after the time limit; 77 if hosts can't be made here, or this MPI is not installed.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mp"))
import launch  # noqa: E402

AGENT = HERE / "agent.sh"
DRIVER = "HOSTS_OF_TEST_DRIVER"  # in the environment of all that runs on hosts: who made them
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
SETTLE_S = 30  # until what was killed is gone

# /sys shows the devices of the namespace that mounts it.
SETUP = """
set -e
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /dev/shm
mount --bind "$1/hosts" /etc/hosts
mount --bind "$1/boot_id.$0" /proc/sys/kernel/random/boot_id
hostname "$0"
ip link set lo up
echo ready
exec sleep infinity"""

LOGS = HERE.parents[1] / "results" / "hosts"


class Unavailable(Exception):
    """Hosts can't be made here; the text says why."""


@dataclasses.dataclass
class Host:
    """`process` keeps the namespaces."""

    name: str
    address: str
    process: subprocess.Popen

    def enter(self) -> list[str]:
        """What to put before a command so that it runs here, in the current folder."""
        namespaces = ["--net", "--uts", "--ipc", "--mount"]
        return ["nsenter", "--target", str(self.process.pid), *namespaces, "sh", "-c", 'cd "$0" && exec "$@"', os.getcwd()]

    def run(self, *command: str, **options) -> subprocess.CompletedProcess:
        """subprocess.run() on this host."""
        return subprocess.run([*self.enter(), *command], stdin=subprocess.DEVNULL, check=False, **options)


def _start_time(pid: int | str) -> str:
    """Together with the pid it names a process for ever; empty: there is none"""
    stat = launch._stat_of(pid)
    return stat[19] if len(stat) > 19 else ""


def _environments() -> Iterator[tuple[int, list[bytes]]]:
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            yield int(entry), pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def sweep() -> list[int]:
    """Kills what runs on hosts whose maker was killed. @return what was killed"""
    left = []
    for pid, environment in _environments():
        for entry in environment:
            if entry.startswith(f"{DRIVER}=".encode()):
                driver, _, started = entry.decode().partition("=")[2].partition(".")
                if _start_time(driver) != started:
                    left.append(pid)
    _kill(left)
    return left


class Job:
    """An MPI job that runs while the test goes on. Its outcome: result()."""

    def __init__(self, hosts: "Hosts", *arguments, **options) -> None:
        self._logs: str | None = None
        self._outcome: launch.Outcome | None = None
        self._thread = threading.Thread(target=self._run, args=(hosts, *arguments), kwargs=options)
        self._thread.start()

    def _run(self, hosts, *arguments, **options) -> None:
        self._outcome = hosts.run(*arguments, started=lambda logs: setattr(self, "_logs", logs), **options)

    def output(self, rank: int) -> str:
        """What the rank has printed so far."""
        try:
            return pathlib.Path(f"{self._logs}/rank{rank}.log").read_text(errors="replace")
        except OSError:
            return self._outcome.by_rank.get(rank, "") if self._outcome else ""

    def wait_for(self, rank: int, text: str, timeout_s: float) -> bool:
        """@return whether the rank has printed it in time"""
        deadline = time.monotonic() + timeout_s
        while text not in self.output(rank):
            if time.monotonic() > deadline or self._outcome:
                return text in self.output(rank)
            time.sleep(0.05)
        return True

    def result(self) -> launch.Outcome:
        """Waits for its end, which is certain: it has a time limit."""
        self._thread.join()
        if self._outcome is None:
            raise RuntimeError("the job was not started")
        return self._outcome


class Hosts:
    """Two hosts, while the context lasts. Raises Unavailable when they can't be made."""

    NAMES = ("host0", "host1")
    NETWORK = "10.77.0"
    DEVICE = "eth0"

    def __enter__(self) -> "Hosts":
        sweep()
        missing = [name for name in ("ip", "nsenter", "unshare", "setpriv", "mount", "hostname") if not shutil.which(name, path=PATH)]
        if missing:
            raise Unavailable(f"no {', '.join(missing)}")
        self.hosts: list[Host] = []
        try:
            with tempfile.TemporaryDirectory(prefix="larklane-hosts-") as folder:
                self._make(pathlib.Path(folder))
        except BaseException:
            self.__exit__()
            raise
        self.by_name = {host.name: host for host in self.hosts}
        return self

    def __exit__(self, *_) -> None:
        for host in self.hosts:
            self.kill_host(host.name)
            host.process.kill()
            host.process.wait()
            host.process.stdout.close()

    def _make(self, folder: pathlib.Path) -> None:
        addresses = {name: f"{self.NETWORK}.{number}" for number, name in enumerate(self.NAMES, 1)}
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
        (folder / "hosts").write_text("\n".join(lines) + "\n")
        for name, address in addresses.items():
            (folder / f"boot_id.{name}").write_text(f"{uuid.uuid4()}\n")
            # setpriv: it does not outlive this process.
            argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--ipc", "--mount", "sh", "-c", SETUP, name, str(folder)]
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                                       env={**os.environ, "PATH": PATH})
            self.hosts.append(Host(name, address, process))
            said = process.stdout.readline().strip()
            if said != "ready":
                raise Unavailable(said)
        first, second = self.hosts
        self._ip(first, "link", "add", self.DEVICE, "type", "veth", "peer", "name", self.DEVICE, "netns", str(second.process.pid))
        for host in self.hosts:
            self._ip(host, "address", "add", f"{host.address}/24", "dev", self.DEVICE)
        self.set_link(True)

    def _ip(self, host: Host, *arguments: str) -> str:
        done = host.run("ip", *arguments, capture_output=True, text=True, env={**os.environ, "PATH": PATH})
        if done.returncode:
            raise Unavailable(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def environment(self) -> dict[str, str]:
        """What agent.sh and sweep() read."""
        return {
            "HOSTS_OF_TEST": " ".join(f"{host.name}={host.process.pid}" for host in self.hosts),
            DRIVER: f"{os.getpid()}.{_start_time(os.getpid())}",
        }

    def launcher(self, mpi: launch.Mpi, ranks_per_host: int) -> launch.Mpi:
        """`mpi`, its launcher started on host0 and reaching host1 by agent.sh."""
        if mpi.environment is launch.OPENMPI_ENVIRONMENT:
            old = mpi.launcher == launch.MPIS["openmpi4"].launcher
            agent = ("--mca", "plm_rsh_agent") if old else ("--prtemca", "plm_ssh_agent")
            nodes = ",".join(f"{name}:{ranks_per_host}" for name in self.NAMES)
            network = ("--mca", "oob_tcp_if_include", self.DEVICE) if old else ("--prtemca", "prte_if_include", self.DEVICE)
            messages = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self,vader" if old else "tcp,self,sm", "--mca", "btl_tcp_if_include", self.DEVICE)
            extra = (*agent, str(AGENT), *network, *messages, "--host", nodes)
        else:
            extra = ("-launcher", "ssh", "-launcher-exec", str(AGENT), "-hosts", ",".join(self.NAMES), "-ppn", str(ranks_per_host))
        enter = self.hosts[0].enter()
        return dataclasses.replace(mpi, launcher=pathlib.Path(enter[0]), flags=(*enter[1:], str(mpi.launcher), *mpi.flags, *extra))

    def run(self, mpi: launch.Mpi, ranks_per_host: int, command: list[str], timeout_s: float, environment=None,
            launcher_flags=(), keep_logs_in=None, started=None) -> launch.Outcome:
        """launch.launch() across both hosts: ranks 0 to ranks_per_host - 1 on host0, as many on host1. All is killed at the end."""
        tcp = {"UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": self.DEVICE, "HYDRA_LAUNCHER": None}
        return launch.launch(self.launcher(mpi, ranks_per_host), ranks_per_host * len(self.hosts), command, timeout_s,
                             {**tcp, **(environment or {}), **self.environment()}, launcher_flags, keep_logs_in, started)

    def start(self, *arguments, **options) -> Job:
        """run(), while the caller goes on."""
        return Job(self, *arguments, **options)

    def set_link(self, up: bool) -> None:
        """Takes the link between the hosts down, or up again: nobody is told, packets are lost."""
        for host in self.hosts:
            self._ip(host, "link", "set", self.DEVICE, "up" if up else "down")
        # The kernel says so a little later (it looks at links once a second), and libraries believe it.
        deadline = time.monotonic() + SETTLE_S
        while up and not all(" state UP " in self._ip(host, "link", "show", self.DEVICE) for host in self.hosts):
            if time.monotonic() > deadline:
                raise Unavailable("the link does not come up")
            time.sleep(0.05)

    def processes(self, name: str) -> list[int]:
        """All processes on a host but the one that keeps it."""
        keeper = self.by_name[name].process.pid if hasattr(self, "by_name") else 0
        try:
            here = os.stat(f"/proc/{keeper}/ns/net").st_ino
        except OSError:
            return []
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(OSError):
                if pid != keeper and os.stat(f"/proc/{pid}/ns/net").st_ino == here:
                    found.append(pid)
        return found

    def kill_host(self, name: str, silently: bool = False) -> None:
        """Kills all that runs on a host. `silently`: as if its power had failed; without that, its kernel closes the connections."""
        if silently:
            self.set_link(False)
        deadline = time.monotonic() + SETTLE_S
        while (left := self.processes(name)) and time.monotonic() < deadline:
            _kill(left)
            time.sleep(0.02)


def run_tests(tests: Callable[[Hosts], Iterable[launch.Test]]) -> int:
    """@return exit status; SKIP: there are no hosts"""
    LOGS.mkdir(parents=True, exist_ok=True)
    try:
        with Hosts() as hosts:
            return launch.run_tests(tests(hosts))
    except Unavailable as why:
        print(f"skipped: {why}")
        return launch.SKIP


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--mpi", choices=launch.EVERY)
    where.add_argument("--on", choices=Hosts.NAMES, metavar="HOST")
    parser.add_argument("--ranks-per-host", type=int, default=2, metavar="N")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    environment = dict(entry.split("=", 1) for entry in args.env)
    if args.mpi and not launch.EVERY[args.mpi].installed():
        print(f"hosts: {launch.EVERY[args.mpi].title} is not installed", file=sys.stderr)
        return launch.SKIP
    try:
        with Hosts() as hosts:
            if args.on:
                return hosts.by_name[args.on].run(*args.command, env={**os.environ, **hosts.environment(), **environment}).returncode
            outcome = hosts.run(launch.EVERY[args.mpi], args.ranks_per_host, args.command, args.timeout, environment)
    except Unavailable as why:
        print(f"hosts: {why}", file=sys.stderr)
        return launch.SKIP
    sys.stdout.write(outcome.output)
    return outcome.status


if __name__ == "__main__":
    sys.exit(main())
