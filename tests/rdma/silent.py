#!/usr/bin/env python3
"""In the guest: the way over Soft-RoCE is lost in mid-round, while both sides wait and no operation is posted. Two hosts (network namespaces)
have one device between them, and a link of their own for all else, so that only probes can detect it. The sender's host makes none, so
the receiver, which has nothing to post, does. Prints the output of each rank, and `silent: ok`.

  silent.py BUILD
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "hosts"))
from hosts import Hosts, launch  # noqa: E402

SILENCE_S = 1
UNANSWERED_S = 7.6  # verbs
SLACK_S = 15  # emulated, all is slow
WAITERS = (0, 2)
NO_PROBES = 'if [ "$PMI_RANK" -lt 2 ]; then export LARKLANE_LINK_SILENCE_NS=0; fi; exec "$@"'


def main() -> int:
    build = pathlib.Path(sys.argv[1])
    environment = {"LARKLANE_PROVIDER": "auto", "LARKLANE_UNREACHABLE": "refuse", "LARKLANE_LOG_LEVEL": "info",
                   "LARKLANE_LINK_SILENCE_NS": f"{SILENCE_S}s", "LARKLANE_CONTROL_SILENCE_NS": "300s"}  # fmt: skip
    with Hosts() as hosts, tempfile.TemporaryDirectory() as folder:
        command = ["sh", "-c", NO_PROBES, "sh", str(build / "bin/larklane"), "run", str(build / "tests/hosts/mpich5/pairs"), "silent", folder]
        job = hosts.start(launch.MPIS["mpich5"], 2, command, 100, environment, launcher_flags=("-disable-auto-cleanup",))
        waited = all(job.wait_for(rank, "waits", 60) for rank in WAITERS)
        time.sleep(2 * SILENCE_S)  # some probes are answered
        still = not any("lost" in job.output(rank) for rank in WAITERS)
        begun = time.monotonic()
        subprocess.run(["ip", "link", "set", "eth0", "down"], check=True, env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
        noticed = all(job.wait_for(rank, "lost after", 1.5 * SILENCE_S + UNANSWERED_S + SLACK_S) for rank in WAITERS)
        seconds = time.monotonic() - begun
        went_on = all(job.wait_for(rank, "went on", 30) for rank in range(4))
        hosts.kill_host("host1")
        hosts.kill_host("host0")
        output = "\n".join(f"[{rank}] {line}" for rank in range(4) for line in job.output(rank).splitlines())
        job.result()
    over_verbs = " verbs rxe0" in output
    by_itself = "rank 2: verbs rxe0 port 1: no link to tcp://" in output
    print(output)
    print(f"waited {waited}, while it was there {still}, over verbs {over_verbs}, by the receiver {by_itself}, noticed {noticed} after {seconds:.1f} s, went on {went_on}")
    if not (waited and still and over_verbs and by_itself and noticed and went_on):
        return 1
    print("silent: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
