#!/usr/bin/env python3
"""Native programs under launchers that are not ours: processes that find each other, and those that refuse to begin.

  launcher_test.py --build DIR CASE [MPI]     one case
  launcher_test.py --list                     `CASE` or `CASE MPI` of every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import os
import pathlib
import re
import select
import shutil
import socket
import subprocess
import sys
import threading

import launch
import stub_test
from boot_test import Bench, expect_all, provider_of, variables
from stub_test import SKIP, Skip, expect

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class FakePmi:
    """A launcher that speaks PMI-1 with processes of ours. `answer(words, said)` may change its reply: text, None for nothing, CLOSE, or several of them."""

    def __init__(self, size, answer=None, **environment):
        self.size, self.answer, self.environment = size, answer, environment
        self.words, self.lines, self.at_barrier = {}, [], []
        self.processes, self.sockets = [], []

    def run(self, *command, env=None, timeout_s=60):
        """@return outputs and exit statuses"""
        for rank in range(self.size):
            ours, theirs = socket.socketpair()
            told = {"PMI_FD": str(theirs.fileno()), "PMI_RANK": str(rank), "PMI_SIZE": str(self.size), **self.environment}
            self.processes.append(subprocess.Popen([str(word) for word in command], env={**variables(), **told, **(env or {})}, pass_fds=[theirs.fileno()], text=True,
                                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
            theirs.close()
            self.sockets.append(ours)
        server = threading.Thread(target=self.serve)
        server.start()
        try:
            return [(process.communicate(timeout=timeout_s)[0], process.returncode) for process in self.processes]
        except subprocess.TimeoutExpired:
            for process in self.processes:
                process.kill()
            return [(process.communicate()[0], "hangs") for process in self.processes]
        finally:
            server.join()
            for one in self.sockets:
                one.close()

    def serve(self):
        kept = dict.fromkeys(self.sockets, b"")
        while kept:
            for one in select.select(list(kept), [], [])[0]:
                try:
                    got = one.recv(65536)
                except ConnectionError:
                    got = b""
                if not got:
                    del kept[one]
                    continue
                *lines, kept[one] = (kept[one] + got).split(b"\n")
                for line in lines:
                    self.take(one, line.decode())

    def take(self, one, line):
        self.lines.append(line)
        words = dict(word.split("=", 1) for word in line.split())
        said = {"init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0", "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
                "get_my_kvsname": "cmd=my_kvsname kvsname=\u0192job.1", "finalize": "cmd=finalize_ack"}.get(words["cmd"])
        if words["cmd"] == "put":
            self.words[words["key"]] = words["value"]
            said = "cmd=put_result rc=0 msg=success"
        elif words["cmd"] == "get":
            said = f"cmd=get_result rc=0 msg=success value={self.words[words['key']]}" if words["key"] in self.words else "cmd=get_result rc=-1 msg=no_such_key"
        elif words["cmd"] == "barrier_in":
            self.at_barrier.append(one)
            if len(self.at_barrier) < self.size:
                return
            said = "cmd=barrier_out"
        said = self.answer(words, said) if self.answer else said
        for of in self.at_barrier if words["cmd"] == "barrier_in" else (one,):
            for reply in said if isinstance(said, tuple) else (said,):
                try:
                    if reply is FakePmi.CLOSE:
                        of.shutdown(socket.SHUT_RDWR)
                    elif reply is not None:
                        of.sendall(reply.encode() if reply.endswith("...") else reply.encode() + b"\n")
                except OSError:
                    pass
        if words["cmd"] == "barrier_in":
            self.at_barrier.clear()

    CLOSE = object()


def by_pmi(bench):
    """Hydra identifies the processes, by PMI-1, without an MPI; it counts none as failed. A process that ends early is not waited for."""
    for count in (2, 4):
        outcome = launch.launch(bench.mpi, count, [str(bench.native)], 240, {})
        expect(outcome.status == 0, f"status {outcome.status}", outcome.output)
        expect_all(outcome.output, count)
    outcome = launch.launch(bench.mpi, 3, [str(bench.native), "early", "2", "7"], 240, {"LARKLANE_BOOT_WAIT_NS": "2s"})
    expect(outcome.status != 0 and outcome.status != launch.TIMED_OUT, f"status {outcome.status}", outcome.output)


def messages_by_pmi(bench):
    """Messages go round where Hydra brings the processes together, by their host's memory: it says that they have one."""
    outcome = launch.launch(bench.mpi, 2, [str(bench.ring), "--rounds", "20"], 240, {"LARKLANE_LOG_LEVEL": "info"})
    expect(outcome.status == 0, f"status {outcome.status}", outcome.output)
    expect(provider_of(outcome.output, 2) == "shm", "not by shm", outcome.output)


def by_fake_pmi(bench):
    """Under any launcher that speaks PMI-1 processes find each other; a job of one asks nothing; long cards come whole; a card is no secret's text."""
    for count in (2, 5):
        fake = FakePmi(count)
        outcomes = fake.run(bench.native)
        expect(all(status == 0 for _, status in outcomes), f"{count} processes", str(outcomes))
        expect_all("".join(output for output, _ in outcomes), count)
        expect(fake.lines.count("cmd=finalize") == count, "not all take their leave", str(fake.lines))
    long = "c" * 3000
    outcomes = FakePmi(2).run(bench.native, long)
    expect(all(status == 0 for _, status in outcomes), "a long card", str(outcomes))
    alone = FakePmi(1)
    outcomes = alone.run(bench.native)
    expect_all(outcomes[0][0], 1)
    expect(not alone.lines, "a process that is alone asks", str(alone.lines))
    fake = FakePmi(3, MPI_LOCALNRANKS="3")
    outcomes = fake.run(bench.ring, "--rounds", 5)
    expect(all(status == 0 for _, status in outcomes), "messages", str(outcomes))


def bad_pmi(bench):
    """A launcher that speaks something else, answers late, in part or not at all, or closes: each process ends in time and names PMI_FD and the remedy."""
    late = {"LARKLANE_BOOT_WAIT_NS": "300ms"}

    def of(command, answer):
        return lambda words, said: answer if words["cmd"] == command else said

    for command in ("init", "get_my_kvsname", "put"):  # the next command finds the socket closed
        outcomes = FakePmi(2, lambda words, said, command=command: (said, FakePmi.CLOSE) if words["cmd"] == command else said).run(bench.native, env=late)
        expect(all(status == 3 and "has closed the connection" in output for output, status in outcomes), f"closed after the answer to {command}", str(outcomes))
    for command in ("init", "get_my_kvsname", "put", "barrier_in", "get"):
        for answer, part in (("220 some mail server ready", "does not speak PMI-1"), ("\x1b]0;title\x07" * 9, re.escape("\\x1b]0;title\\x07")), (None, "has not answered in time|not all processes came"),
                             ("cmd=...", "has not ended its answer in time|not all processes came"), ("x" * 100_000 + "...", "lines without end|in time|not all processes came"),
                             (FakePmi.CLOSE, "has closed the connection")):
            outcomes = FakePmi(2, of(command, answer)).run(bench.native, env=late)
            for output, status in outcomes:
                expect(status == 3, f"{command} answered by {answer!r:.40}: status {status}", output)
                expect("PMI_FD" in output and re.search(part, output), f"{command} answered by {answer!r:.40}: no '{part}'", output)
                expect("not all processes" in output or "LARKLANE_SIZE=1" in output, f"{command} answered by {answer!r:.40}: no remedy", output)
            if "lines without end" in part:
                expect(any("lines without end" in output for output, _ in outcomes), f"{command}: a line without end was kept", str(outcomes))
    for answer, part in (("cmd=get_result rc=0 value=zz", "has changed the card"), ("cmd=get_result rc=0 value=" + "61" * 400 + "+", "has changed the card")):
        outcomes = FakePmi(2, of("get", answer)).run(bench.native, env=late)
        expect(all(part in output for output, _ in outcomes), f"no '{part}'", str(outcomes))
    outcomes = FakePmi(2, of("get", "cmd=get_result rc=-1")).run(bench.native, env=late)
    expect("rank 1 has put no card" in outcomes[0][0], "a card that is not there", str(outcomes))
    for told, part in (({"PMI_FD": "77"}, "PMI_FD is 77, but no socket of a launcher"), ({"PMI_FD": "0"}, "PMI_FD is 0, but no socket"), ({"PMI_RANK": "2"}, 'PMI_RANK is "2"; accepted: 0..1'),
                       ({"PMI_RANK": "x"}, 'PMI_RANK is "x"; accepted: 0..1')):
        for output, status in FakePmi(2, **told).run(bench.native):
            expect(status == 3 and part in output and "LARKLANE_SIZE=1" in output, f"{told}: status {status}, no '{part}'", output)


def one_of_several(bench):
    """A process that a launcher has started with others, and that can't find them, does not begin; a process that is alone, or declares itself alone, does."""
    several = (({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1"}, "SLURM_STEP_NUM_TASKS is 4"), ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "PMI_SIZE is 2"),
               ({"FLUX_JOB_SIZE": "3", "FLUX_TASK_RANK": "0"}, "FLUX_JOB_SIZE is 3"), ({"PALS_RANKID": "0", "PALS_SIZE": "2"}, "PALS_SIZE is 2"),
               ({"PALS_RANKID": "0", "PALS_LOCAL_SIZE": "2"}, "PALS_LOCAL_SIZE is 2"), ({"PALS_RANKID": "0", "PMI_SIZE": "2", "PMI_RANK": "0"}, "PMI_SIZE is 2"),
               ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, "OMPI_COMM_WORLD_SIZE is 2"),
               # srun within a job of one of mpiexec; srun does not pass on mpiexec's socket.
               ({"PMI_FD": "77", "PMI_RANK": "0", "PMI_SIZE": "1", "SLURM_STEP_ID": "1", "SLURM_STEP_NUM_TASKS": "2"}, "SLURM_STEP_NUM_TASKS is 2"))
    for told, part in several:
        outcome = subprocess.run([bench.native], env={**variables(), **told}, text=True, capture_output=True, timeout=240, check=False)
        expect(outcome.returncode == 3 and part in outcome.stderr, f"{told}: status {outcome.returncode}", outcome.stderr)
        for remedy in ("one of several", "larklane launch", "srun --mpi=pmi", "LARKLANE_SIZE=1"):
            expect(remedy in outcome.stderr, f"{told}: no '{remedy}'", outcome.stderr)
        for ours in ({"size": 1}, {"size": 1, "rank": 0}):
            outcome = subprocess.run([bench.native], env={**variables(**ours), **told}, text=True, capture_output=True, timeout=240, check=False)
            expect(outcome.returncode == 0, f"{told}, {ours}: status {outcome.returncode}", outcome.stderr)
    # A batch script, a shell of salloc, also one in a step of its own; jobs of one.
    for told in ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "8"},
                 {"PMI_SIZE": "1", "PMI_RANK": "0"}, {"FLUX_JOB_SIZE": "4"}, {"PALS_RANKID": "0"}, {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}):
        outcome = subprocess.run([bench.native], env={**variables(), **told}, text=True, capture_output=True, timeout=240, check=False)
        expect(outcome.returncode == 0, f"{told}: status {outcome.returncode}", outcome.stderr)


def flux_spans_hosts(bench):
    """A job of Flux on several hosts, by its variables: the processes of an MPI world exchange their cards; on one host there is nothing to exchange."""
    words = (bench.command, "info", "--peer", 1)
    flux = {"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "2"}
    fake = FakePmi(2, FLUX_JOB_NNODES="2", **flux)
    outcomes = fake.run(*words)
    expect("says its card, which the launcher has passed on" in outcomes[0][0], "no card of rank 1", str(outcomes))
    expect({"larklane-0", "larklane-1"} <= set(fake.words), "no cards", str(fake.lines))
    fake = FakePmi(2, FLUX_JOB_NNODES="1", **flux)
    outcomes = fake.run(*words)
    expect("the launcher has all 2 ranks here" in outcomes[0][0] and not fake.lines, "one host", str(outcomes))


def by_slurm(bench):
    """Slurm: by its plugins pmix and pmi2 processes find each other, without one they do not begin; a batch script, a shell of salloc and a job of one are alone."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "unshare", "ip") if not shutil.which(name, path=PATH)]
    if missing:
        raise Skip(f"not installed: {' '.join(missing)}")
    output = bench.scratch / "batch.log"
    script = bench.scratch / "jobs.sh"
    script.write_text(f"""
for plugin in pmix pmi2; do
  echo "== $plugin"; srun --mpi=$plugin -n 3 {bench.native}; echo "status $?"
  echo "== ring $plugin"; srun --mpi=$plugin -n 3 {bench.ring} --rounds 20; echo "status $?"
  echo "== one $plugin"; srun --mpi=$plugin -n 1 {bench.native}; echo "status $?"
done
echo "== none"; srun --mpi=none -n 3 {bench.native}; echo "status $?"
echo "== one none"; srun --mpi=none -n 1 {bench.native}; echo "status $?"
echo "== salloc"; salloc -n 3 {bench.native}; echo "status $?"
echo "== sbatch"; printf '#!/bin/sh\\n{bench.native}\\n' | sbatch --wait -n 3 -o {output}; echo "status $?"; cat {output}
echo "== end"
""", encoding="utf-8")
    folder = bench.scratch / "slurm"
    folder.mkdir()
    done = subprocess.run([pathlib.Path(__file__).parent / "boot/slurm.sh", folder, "bash", script], env={**variables(), "PATH": PATH}, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False)
    if done.returncode == SKIP:
        raise Skip(f"no cluster can be had here: {done.stdout}")
    said = dict(part.split("\n", 1) for part in done.stdout.split("== ")[1:])
    expect("end" in said, "not all jobs", done.stdout)
    for plugin in ("pmix", "pmi2"):
        for name in (plugin, f"ring {plugin}", f"one {plugin}"):
            expect("status 0\n" in said[name], name, done.stdout)
        expect_all(said[plugin], 3)
        expect("ring: 3 processes" in said[f"ring {plugin}"], plugin, done.stdout)
        expect_all(said[f"one {plugin}"], 1)
    expect(said["none"].count("SLURM_STEP_NUM_TASKS is 3") == 3 and "status 3\n" in said["none"], "silent singletons", done.stdout)
    for name in ("one none", "salloc", "sbatch"):
        expect("status 0\n" in said[name], name, done.stdout)
        expect_all(said[name], 1)


def cases():
    return [(case, name) for case in (by_pmi, messages_by_pmi) for name in ("mpich5", "mpich4")] + [(case, None) for case in (by_fake_pmi, bad_pmi, one_of_several, flux_spans_hosts, by_slurm)]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, Bench, __doc__))
