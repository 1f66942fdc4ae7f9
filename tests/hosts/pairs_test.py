#!/usr/bin/env python3
"""Partitioned pairs between two hosts, under Larklane, over libfabric's tcp. Prints `N passed, N failed`.

Exit status: 0, 1 if a test failed, 77 if hosts can't be made here or the MPI is not installed.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hosts import HERE, LOGS, Hosts, launch, run_tests  # noqa: E402

OURS = {"LARKLANE_UNREACHABLE": "refuse", "LARKLANE_PROVIDER": "ofi:tcp@eth0"}
SILENCE_S = 3
SLACK_S = 48  # of a busy machine
# A rank sees its peer's end only if its launcher lets it.
SURVIVE = {"mpich5": ("-disable-auto-cleanup",), "openmpi5": ("--with-ft", "ulfm")}
MIXED = 'if [ "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" = 2 ]; then shift 2; fi; exec "$@"'


class Suite:
    """One MPI on both hosts."""

    def __init__(self, hosts: Hosts, name: str, build: pathlib.Path) -> None:
        self.hosts, self.name, self.mpi = hosts, name, launch.MPIS[name]
        self.run_command = [str(build / "bin/larklane"), "run"]
        self.program = str(build / "tests/hosts" / name / "pairs")

    def pairs(self, mode, folder, ranks_per_host, timeout_s=240, environment=None, before=(), **options):
        command = [*before, *self.run_command, self.program, mode, folder]
        return self.hosts.run(self.mpi, ranks_per_host, command, timeout_s, {**OURS, **(environment or {})}, keep_logs_in=str(LOGS), **options)

    def mixed(self, folder, environment, **options):
        """Messages of the MPI's own with wildcards go beside, but on MPICH: over UCX it loses one between hosts that is received with MPI_ANY_SOURCE,
        natively too, in 2 to 5 of 12 runs of this program."""
        return self.pairs("all" if self.name == "mpich5" else "mixed", folder, 2, environment=environment, **options)

    def early(self, folder):
        outcome = self.pairs("early", folder, 1)
        return outcome.status == 0 and outcome.output.split("\n").count("ok") == 2, outcome

    def pull(self, folder):
        outcome = self.pairs("pull", folder, 1)
        return outcome.status == 0 and outcome.output.split("\n").count("ok") == 2, outcome

    def chosen_by_itself(self, folder):
        """Without a provider that is named; on one host pairs stay in shared memory."""
        outcome = self.mixed(folder, {"LARKLANE_PROVIDER": "auto", "LARKLANE_LOG_LEVEL": "info"})
        lines = outcome.output.splitlines()
        across = [line for line in lines if " with tcp://" in line]
        beside = [line for line in lines if " with larklane." in line]
        good = len(across) == 16 and all("ofi" in line for line in across) and len(beside) == 8 and all("shm" in line for line in beside)
        return outcome.status == 0 and good, outcome

    def each_by_its_own(self, folder):
        """Over one network, over another one, or in shared memory, as both ranks name it."""
        first_tcp, first_sockets, tcp, sockets = "ofi:tcp@eth0,ofi:sockets@eth0", "ofi:sockets@eth0,ofi:tcp@eth0", "ofi:tcp@eth0", "ofi:sockets@eth0"
        over_tcp, over_sockets = "ofi tcp@eth0", "ofi sockets@eth0"
        wanted = {(0, 1): over_tcp, (2, 3): "shm", (0, 2): over_sockets, (0, 3): over_tcp, (1, 2): over_sockets, (1, 3): over_tcp}
        return self.goes_as_named(folder, (first_tcp, first_sockets, sockets, tcp), wanted)

    def over_verbs_but_for_one(self, folder):
        """All hosts have a device; rank 2 does not use it."""
        wanted = {(0, 1): "shm", (2, 3): "shm", (0, 2): "ofi tcp", (1, 2): "ofi tcp", (0, 3): "verbs", (1, 3): "verbs"}
        return self.goes_as_named(folder, ("auto", "auto", "ofi:tcp", "auto"), wanted)

    def goes_as_named(self, folder, providers, wanted):
        """@param providers of each rank @param wanted what each pair goes by"""
        choose = "".join(f"{rank}) LARKLANE_PROVIDER='{provider}' ;; " for rank, provider in enumerate(providers))
        script = f'case "${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}" in {choose}esac; export LARKLANE_PROVIDER; exec "$@"'
        outcome = self.pairs("all", folder, 2, environment={"LARKLANE_LOG_LEVEL": "info"}, before=("sh", "-c", script, "sh"))
        found = {}
        for rank, text in outcome.by_rank.items():
            for peer, provider in re.findall(r"(?:send|receive).* with (?:tcp://|larklane\.)\S*\.(\d+): (.+)", text):
                found.setdefault((int(rank), int(peer)), set()).add(provider)
        good = {pair for pair in wanted if all(len(ways) == 1 and next(iter(ways)).startswith(wanted[pair])
                                               for ways in (found.get(pair, ()), found.get(pair[::-1], ())))}
        is_all = good == wanted.keys() and found.keys() == good | {pair[::-1] for pair in good}
        if not is_all:
            print(f"# {found}")
        return outcome.status == 0 and is_all, outcome

    def one_without_larklane(self, folder):
        """Rank 2 is started natively: who has Larklane names it once, and all data is right."""
        environment = {"LARKLANE_UNREACHABLE": "forward", "LARKLANE_CONTROL_CONNECT_NS": "2s"}
        outcome = self.mixed(folder, environment, before=("sh", "-c", MIXED, "sh"))
        return outcome.status == 0 and outcome.output.count("rank 2 runs without") == 1, outcome

    def lost(self, folder, harm):
        """@return whether all survivors said so in time and went on, with whom they still had"""
        survivors = [0, 1, 2, 3] if harm == "link" else [0, 1]
        command = [*self.run_command, self.program, "lost", folder]
        job = self.hosts.start(self.mpi, 2, command, 360, {**OURS, "LARKLANE_CONTROL_SILENCE_NS": f"{SILENCE_S}s"},
                               launcher_flags=SURVIVE[self.name], keep_logs_in=str(LOGS))
        ran = all(job.wait_for(rank, "in rounds", 160) for rank in range(4))
        begun = time.monotonic()
        if harm != "processes":
            self.hosts.set_link(False)
        if harm != "link":
            self.kill_programs("host1")
        noticed = all(job.wait_for(rank, "lost after", SILENCE_S + SLACK_S) for rank in survivors)
        print(f"# {harm}: noticed after {time.monotonic() - begun:.1f} s", flush=True)
        went_on = all(job.wait_for(rank, "went on", 120) for rank in survivors)
        self.hosts.kill_host("host1")
        self.hosts.kill_host("host0")
        outcome = job.result()
        self.hosts.set_link(True)
        named = all("lost: " in outcome.by_rank.get(rank, "") for rank in survivors)
        return ran and noticed and went_on and named, outcome

    def kill_programs(self, host):
        """Their kernel closes their connections, if there is a way. The launcher's own part there lives on: it would end the whole job."""
        for pid in self.hosts.processes(host):
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{pid}/comm").read_text() == "pairs\n":
                    os.kill(pid, signal.SIGKILL)

    def peers_killed(self, folder):
        return self.lost(folder, "processes")

    def host_gone(self, folder):
        return self.lost(folder, "host")

    def link_down(self, folder):
        return self.lost(folder, "link")


    def explained(self, folder):
        """`larklane info --peer`: one rank tells what all ranks' cards say, where the launcher shows them to programs without an MPI."""
        command = [self.run_command[0], "info", "--json", "--peer", "1"]
        outcome = self.hosts.run(self.mpi, 1, command, 240, {**OURS, "LARKLANE_PROVIDER": "auto"}, keep_logs_in=str(LOGS))
        told = outcome.by_rank.get(0, "") if outcome.by_rank else ""
        peer = json.loads(told)["peer"] if told.startswith("{") else {}
        is_hydra = self.name.startswith("mpich")
        where, goes_by = ("another host", "ofi") if is_hydra else ("not known", "not known")
        good = peer.get("where") == where and peer.get("goes_by", "").startswith(goes_by) and not outcome.by_rank.get(1, "").strip()
        return outcome.status == 0 and good and (not is_hydra or "both sides have, says" in peer["reason"]), outcome


IN_GUEST = (Suite.over_verbs_but_for_one,)  # only if it is named: where there is an RDMA device
CASES = (Suite.early, Suite.pull, Suite.explained, Suite.chosen_by_itself, Suite.each_by_its_own, Suite.one_without_larklane, Suite.peers_killed, Suite.host_gone, Suite.link_down)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build/release", metavar="DIR")
    parser.add_argument("--run", nargs="+", metavar="NAME", help="only these cases")
    parser.add_argument("mpi", choices=launch.MPIS)
    args = parser.parse_args()
    if not launch.MPIS[args.mpi].installed():
        print(f"skipped: {launch.MPIS[args.mpi].title} is not installed")
        return launch.SKIP
    cases = [case for case in CASES + IN_GUEST if case.__name__ in args.run] if args.run else CASES

    def tests(hosts):
        suite = Suite(hosts, args.mpi, args.build.resolve())
        for case in cases:
            with tempfile.TemporaryDirectory(prefix="larklane-pairs-") as folder:
                yield f"{args.mpi}: {case.__name__}", *case(suite, folder)

    return run_tests(tests)


if __name__ == "__main__":
    sys.exit(main())
