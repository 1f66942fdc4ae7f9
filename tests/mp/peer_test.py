#!/usr/bin/env python3
"""`larklane info --peer` from the command line and under a launcher, on one host; between hosts: tests/hosts/pairs_test.py.

  peer_test.py --build DIR CASE     one case
  peer_test.py --list               every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import json
import sys

import stub_test
from stub_test import REFUSED, expect, launch, system


def explained(bench):
    """`larklane info --peer` says where a peer is, by what pairs with it go and why, and what it can't know."""

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


def cases():
    return [(explained, None)]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, stub_test.Bench, __doc__))
