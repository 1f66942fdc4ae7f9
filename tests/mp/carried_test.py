#!/usr/bin/env python3
"""Programs whose ordinary messages Larklane carries, in trouble: ranks that die, children, signals, refused reads of memory, ten thousand
communicators, hundreds of ranks, hints of live communicators, calls that the MPI lacks.

  carried_test.py --build DIR CASE MPI    one case, on one MPI of launch.py
  carried_test.py --list                  `CASE MPI` of every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import launch  # noqa: E402
import stub_test  # noqa: E402
from agreement_test import KEEP, OWNED  # noqa: E402
from checks import expect  # noqa: E402

MPIS = ("mpich5", "openmpi5")
WAITS = 11  # calls in which the ranks of death.c wait
SIDE_BYTES_MAX = 16 << 10  # of a pair that talks
HEAP_MORE_MAX = 64 << 10
RESIDENT_MORE_KIB_MAX = 1024


class Bench(stub_test.Bench):
    def __init__(self, build, scratch, mpi):
        super().__init__(build, scratch, mpi)
        self.larklane = (str(self.command), "run")
        self.refuse = build / "tests/mp/fault/refuse"

    def program(self, name, *flags):
        return str(self.compile(name, HERE / f"face/{name}.c", flags=("-pthread", *flags), compiler=self.mpi.wrapper))

    def launch(self, ranks, *words, seconds=60, **env):
        """A launch that ends in time, whatever its status."""
        outcome = launch.launch(self.mpi, ranks, [str(word) for word in words], seconds, {"LARKLANE_P2P": "on", "LARKLANE_LOG_LEVEL": "info", **env})
        expect(outcome.status != launch.TIMED_OUT, f"{' '.join(map(str, words))} does not end", outcome.output)
        return outcome

    def carried(self, ranks, *words, before=(), said="ok", sayers=None, **env):
        """The same, of a program that ends well under Larklane: the ranks `sayers`, or all, say so."""
        outcome = self.launch(ranks, *before, *self.larklane, *words, **env)
        expect(outcome.output.count(OWNED) >= ranks, "not carried on all ranks", outcome.output)
        expect(outcome.status == 0, f"status {outcome.status}", outcome.output)
        for rank in range(ranks) if sayers is None else sayers:
            expect(said in outcome.by_rank[rank], f"rank {rank} does not say: {said}", outcome.output)
        return outcome


def death(bench):
    """A rank dies: the others' calls end with an error that names it, and go on; with nothing but the launcher to end them, it does."""
    program = bench.program("death")
    ranks = WAITS  # an error does not end the last one
    outcome = bench.launch(ranks, "sh", "-c", KEEP, "keep", bench.scratch / "over", *bench.larklane, program, "kill-forked")
    silent = [rank for rank in range(ranks) if rank != 1 and f"rank {rank} ok" not in outcome.by_rank[rank]]
    expect(not silent, f"ranks {silent} do not go on", outcome.output)
    for how in ("kill", "exit", "abort"):
        outcome = bench.launch(WAITS + 1, *bench.larklane, program, how, "alone")
        expect(outcome.status != 0 and "ok" not in outcome.output.split(), f"{how}: status {outcome.status}", outcome.output)


def forks(bench):
    """Children that end, execute, are left behind; popen, system, posix_spawn: the rank's messages and the child's program are unharmed."""
    program = bench.program("forks")
    outcome = bench.carried(2, program, program, LARKLANE_SUMMARY="on")
    summaries = outcome.output.count("larklane: rank 0: point-to-point messages are")
    expect(summaries == 3, f"{summaries} summaries of a rank 0: expected the launched one's, and those of both executed programs", outcome.output)


def signals(bench):
    """A signal each millisecond, from before MPI_Init on: no call fails, no byte is wrong."""
    program = bench.program("signals")
    for hook in ("on", "off"):
        bench.carried(2, program, "0.7", LARKLANE_P2P_HOOK=hook)


def forbidden(bench):
    """No process may read another's memory: all ranks leave their messages to the MPI, one says why, and the program ends as natively."""
    program = bench.program("forbidden")
    for before, words in (((), ("0",)), ((), ("1",)), ((bench.refuse, "process_vm_readv:EPERM@1"), ()), ((bench.refuse, "process_vm_writev:EPERM@0"), ())):
        outcome = bench.launch(2, *before, *bench.larklane, program, *words)
        what = " ".join(map(str, (*before[1:], *words)))
        if outcome.status != 0:  # MPICH itself needs the calls
            native = bench.launch(2, *before, program, *words)
            expect(native.status != 0, f"{what}: status {outcome.status}, natively {native.status}", outcome.output)
        reasons = re.findall(r"^larklane: (\w+): rank (\d): point-to-point messages are left to the MPI: rank \d and another rank can't attach to each other",
                             outcome.output, re.M)
        expect(sorted(reasons) == [("info", "1"), ("warn", "0")], f"{what}: {reasons}", outcome.output)


def communicators(bench):
    """10,000 communicators are made, used and freed; memory does not grow with their number."""
    program = bench.program("many")
    outcome = bench.carried(2, program, 10000, said="bytes of the heap more", LARKLANE_LOG_LEVEL="warn", LARKLANE_SUMMARY="on")
    for rank, resident, heap in re.findall(r"^rank (\d): (-?\d+) KiB resident, (-?\d+) bytes of the heap more", outcome.output, re.M):
        print(f"rank {rank}: {resident} KiB, {heap} bytes of the heap for 9,000 communicators")
        expect(int(resident) <= RESIDENT_MORE_KIB_MAX and int(heap) <= HEAP_MORE_MAX, f"rank {rank}: memory grows", outcome.output)


def summary(bench):
    """A program without messages gets one line a rank. Others get counts, and the number of communicators that the MPI keeps."""
    program = bench.program("summary")
    idle = "point-to-point messages are carried by Larklane, with the MPI's progress hook; there was none, and no partitioned request: nothing to speed up"
    for what, wanted in (("none", [idle]), ("world", ["no partitioned requests", "carried by Larklane, with the MPI's progress hook; sent 1 of 4 B, received 1 of 4 B on 1 lane ("]),
                         ("session", ["no partitioned requests", "hook, except on 2 communicators with processes of other worlds, or of a session; there was none on others"])):
        outcome = bench.carried(2, program, what, LARKLANE_SUMMARY="on", LARKLANE_LOG_LEVEL="warn")
        for rank in range(2):
            lines = re.findall(rf"^larklane: rank {rank}: (.*)$", outcome.output, re.M)
            expect(len(lines) == len(wanted) and all(part in text for part, text in zip(wanted, lines)), f"{what}: rank {rank}: {lines}", outcome.output)
    outcome = bench.launch(2, *bench.larklane, program, "none", LARKLANE_P2P="off", LARKLANE_SUMMARY="on", LARKLANE_LOG_LEVEL="warn")
    lines = re.findall(r"^larklane: .*$", outcome.output, re.M)
    expect(len(lines) == 2 and all("nothing to speed up: no partitioned requests, and point-to-point messages are left to the MPI" in text for text in lines),
           f"{lines}", outcome.output)


def ranks(bench):
    """256 ranks: a ring, then all to one."""
    program = bench.program("pairs")
    outcome = bench.carried(256, program, "ring,incast", sayers=[0], seconds=240, LARKLANE_CONTROL_CONNECT_NS="60s")  # with two cores
    print(f"{outcome.seconds:.1f} s")


def pairs(bench):
    """Memory by the number of peers that each rank talks with: by pairs, not by ranks."""
    program = bench.program("pairs")
    count = 66
    outcome = bench.carried(count, program, "memory", sayers=[0])
    taken = {int(peers): (float(private), float(shared))
             for peers, private, shared in re.findall(r"^peers (\d+): (\d+) private, (\d+) shared", outcome.output, re.M)}
    few, many = 8, 32  # not from 1 on: a process takes more with its first peers
    private, shared = ((more - less) / (2 * count * (many - few)) for less, more in zip(taken[few], taken[many]))
    print(f"from {few} to {many} peers: of a pair at each side {private:.0f} private bytes, {shared:.0f} shared ones")
    expect(private + shared <= SIDE_BYTES_MAX, f"{private + shared:.0f} bytes at each side of a pair that talks", outcome.output)


def hints(bench):
    """A communicator keeps the hints of its creation: MPI_Comm_get_info says so, and messages keep the order that these promise."""
    program = bench.program("hints")
    outcome = bench.carried(2, program)

    def values(what, output):
        return dict(re.findall(rf"^rank 0 {what} (mpi_assert_\w+) (\w+)$", output, re.M))

    native = launch.launch(bench.mpi, 2, [program], 60).output
    for what, kept in (("later", "false"), ("never", "false"), ("first", "true"), ("kept", "true")):
        found = values(what, outcome.output)
        expect(len(found) == 4, f"{what}: {found}", outcome.output)
        exact = "mpi_assert_exact_length"
        expect(found.pop(exact) == values(what, native)[exact], f"{what}: another value of {exact}", outcome.output)
        expect(set(found.values()) <= {kept, "none"}, f"{what}: {found}, not {kept}", outcome.output + native)


def absent(bench):
    """Calls of MPI 4.1 that the MPI lacks: a program that finds the stub's symbols can use them."""
    program = bench.program("absent")
    native = launch.launch(bench.mpi, 2, [program], 60).output
    expect(native.count("lacks MPI_Buffer_flush") == 2, "natively there", native)
    bench.carried(2, program)


def cases():
    several = (death, forks, signals, forbidden, communicators, hints, summary)
    once = [(case, "mpich5") for case in (ranks, pairs)] + [(absent, "openmpi5")]
    return [(case, mpi) for mpi in MPIS for case in several] + once


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, Bench, __doc__))
