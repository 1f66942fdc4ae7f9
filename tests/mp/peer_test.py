#!/usr/bin/env python3
"""Information about a peer: by `larklane info --peer` on one host (between hosts: tests/hosts/pairs_test.py), and by warnings about a peer that lives in
another namespace or runs as another user.

  peer_test.py --build DIR CASE [MPI]     one case
  peer_test.py --list                     `CASE` or `CASE MPI` of every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import json
import shutil
import sys

import stub_test
from stub_test import REFUSED, Skip, expect, launch, system

# The variables that MPICH itself needs where its processes do not see each other, or do not reach each other's memory.
BY_TCP = {"UCX_TLS": "tcp,self"}
NOT_LOCAL = {**BY_TCP, "MPIR_CVAR_NOLOCAL": "1"}
OWN_PROCESSES = "unshare --pid --fork --mount-proc"
OWN_NETWORK = "unshare --net"
OWN_USERS = "unshare --user"
AS_NOBODY = "setpriv --reuid 65534 --regid 65534 --clear-groups"


def explained(bench):
    """`larklane info --peer` prints the place of a peer, the provider of pairs with it and the reason, and the unknown facts."""

    def ask(peer, launcher=(), **options):
        command = (*launcher, bench.command, "info", "--json", "--peer", peer)
        return json.loads(system(*command, env={f"LARKLANE_{name.upper()}": value for name, value in options.items()}))["peer"]

    def expect_peer(facts, where, goes_by, *words):
        good = facts["where"] == where and facts["goes_by"].startswith(goes_by) and all(word in " ".join(facts.values()) for word in words)
        expect(good, f"not {where}, {goes_by}, {words}", str(facts))

    expect_peer(ask("127.0.0.1"), "this host", "shared memory", "auto", "LARKLANE_PROVIDER=")
    broken = {"provider": "verbs:nosuch0"}
    expect_peer(ask("localhost", **broken), "this host", "shared memory", "skipped: ", "verbs")
    expect_peer(ask("localhost", **broken, unreachable="refuse"), "this host", "an MPI error", "not opened: ")
    expect_peer(ask("no-such-host.invalid"), "not known", "not known", "no-such-host.invalid")
    if list(bench.libraries.glob("liblarklane_ofi.so*")):
        expect_peer(ask("localhost", provider="ofi:tcp@lo"), "this host", "ofi:tcp@lo", "asks for it")
    expect_peer(ask("192.0.2.7", **broken), "another host", "the MPI", "192.0.2.7")
    for asked, said in (("1", "rank 1 of what"), ("-1", "rank -1 of what")):
        output = system(bench.command, "info", f"--peer={asked}", status=REFUSED)
        expect(said in output and "mpirun" in output, f"no {said}", output)
    mpi = launch.MPIS["mpich5"]
    if mpi.installed():
        outcome = launch.launch(mpi, 2, [str(bench.command), "info", "--json", "--peer", "1"], 240)
        expect(outcome.status == 0 and not outcome.by_rank[1].strip(), "both ranks tell, or none", outcome.output)
        expect_peer(json.loads(outcome.by_rank[0])["peer"], "this host", "shared memory", "all 2 ranks")
        outcome = launch.launch(mpi, 2, [str(bench.command), "info", "--peer", "7"], 240)
        expect(outcome.status == REFUSED and "no rank 7" in outcome.output, "a rank that is not there", outcome.output)


def pair(bench, first, second, **env):
    """Output of a pair; each rank is started through a command of its own."""
    for way in (first, second):
        words = way.split()
        if words and (not shutil.which(words[0]) or "failed" in system("sh", "-c", f"{way} true 2>/dev/null || echo failed")):
            raise Skip(f"no {way}")
    bench.scratch.chmod(0o755)  # another user runs the program, too
    program = bench.compile("pair", "pair.c", compiler=bench.mpi.wrapper)
    script = f'if [ "${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}" = 1 ]; then exec {second} "$@"; fi; exec {first} "$@"'
    outcome = launch.launch(bench.mpi, 2, ["sh", "-c", script, "sh", str(bench.command), "run", "--summary", str(program)], 120, env)
    expect(outcome.status == 0, f"status {outcome.status}", outcome.output)
    for rank in range(2):
        expect(f"rank {rank} ok" in outcome.by_rank[rank], f"rank {rank} is not ok", outcome.output)
    return outcome


def shared_memory(bench):
    """A rank in a process namespace of its own, or both: the pair is Larklane's, and nothing is warned of."""
    for first, second in (("", OWN_PROCESSES), (OWN_PROCESSES, OWN_PROCESSES)):
        outcome = pair(bench, first, second, **BY_TCP)
        expect("warn" not in outcome.output, f"{first}, {second}: a warning", outcome.output)
        for rank in range(2):
            expect(f"peer rank {1 - rank}: shm" in outcome.by_rank[rank], f"{first}, {second}: rank {rank} goes another way", outcome.output)


def apart(bench):
    """A rank that local sockets do not reach: either side reports the true reason and the remedy, once, and the MPI carries the pair."""
    one_network, one_user = "start the ranks of a host in one network namespace", "start all ranks as one user"
    for second, reason, remedy, env in ((OWN_NETWORK, "in another network namespace", one_network, {}), (OWN_USERS, "as user", one_user, {}),
                                        (AS_NOBODY, "as user", one_user, NOT_LOCAL)):
        outcome = pair(bench, "", second, **env)
        for rank in range(2):
            warnings = [line for line in outcome.by_rank[rank].splitlines() if "larklane: warn" in line]
            expect(len(warnings) == 1, f"{second}: {len(warnings)} warnings of rank {rank}", outcome.output)
            for part in (f"rank {1 - rank} runs under Larklane", reason, f"remedy: {remedy}", "left to the MPI"):
                expect(part in warnings[0], f"{second}: no '{part}'", warnings[0])
            expect("runs without" not in warnings[0], f"{second}: called absent", warnings[0])
    # A rank that is in fact without Larklane is reported as such.
    outcome = pair(bench, "", f"{bench.command} run --mpi native")
    expect("rank 1 runs without this Larklane" in outcome.by_rank[0], "not called absent", outcome.output)


def other_launcher(bench):
    """Open MPI's program by MPICH's mpiexec: each rank but the first reports that its MPI takes it for rank 0, with reason and remedy."""
    foreign = launch.MPIS["mpich5"]
    if not foreign.installed():
        raise Skip(f"{foreign.title} is not installed")
    program = bench.compile("pair", "pair.c", compiler=bench.mpi.wrapper)
    outcome = launch.launch(foreign, 2, [str(bench.command), "run", str(program)], 120, {**launch.OPENMPI_ENVIRONMENT})
    expect(outcome.status == 0 and outcome.output.count("rank 0 ok") == 2, f"status {outcome.status}", outcome.output)
    for part in ("the launcher says rank 1, the MPI says 0 of 1", "remedy: start the program by the mpiexec of the MPI that it is linked with"):
        expect(outcome.by_rank[1].count(part) == 1, f"no '{part}'", outcome.output)


def cases():
    return [(explained, None), (other_launcher, "openmpi5"), (apart, "mpich5"), (shared_memory, "mpich5"), (shared_memory, "openmpi5")]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, stub_test.Bench, __doc__))
