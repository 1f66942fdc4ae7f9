#!/usr/bin/env python3
"""A peer that is killed, and a kernel that refuses calls that Larklane would like to use. Prints `N passed, N failed`.

Exit status: 0, 1 if a test failed, 77 if no MPI is installed.
"""

import argparse
import errno
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import launch  # noqa: E402

# Rules whose cases move data, which the refusals could break. (The MPI's own large messages may need the refused calls,
# and a forwarded run waits for a helper to wake, so rules about time are left out.)
RULES = ("I7_", "I8_", "I9_", "I13_", "I14_", "P3_", "C1_", "C3_", "T1_", "E1_sizes")
REFUSALS = {
    "process_vm_readv:EPERM": "attach refused for reading: runs are handed to the other side",
    "process_vm_writev:EPERM": "attach refused for writing: slots",
    "process_vm_readv,process_vm_writev:EPERM": "attach refused: slots",
}
# The outcome for a pair if these calls are refused; the form is refused_round.c's. OURS: a substitute is taken.
# FORWARDED: both sides leave the pair to the MPI, which has no need of the calls. ERROR: the other side has begun
# before this one knew, so both get an error.
OURS, FORWARDED, ERROR = "ours", "forwarded", "error"
EARLY = {
    "memfd_create:EPERM:one:early": FORWARDED,
    "memfd_create:ENOSYS:all:early": FORWARDED,
    "fallocate,pwrite:EACCES:one:early": FORWARDED,
    "F_ADD_SEALS:EPERM:one:early": FORWARDED,
    "accept4,accept:EPERM:one:early": FORWARDED,
    "epoll_create1:ENOSYS:one:early": FORWARDED,
    "eventfd2:EPERM:all:early": FORWARDED,
    "timerfd_settime:EPERM:one:early": FORWARDED,
    "fallocate:EOPNOTSUPP:one:early": OURS,
    "fallocate:ENOSYS:all:early": OURS,
    "accept4:ENOSYS:all:early": OURS,
    "pidfd_open,membarrier,epoll_pwait2:EPERM:all:early": OURS,
    "process_vm_readv,process_vm_writev,prctl,setpriority,sched_setaffinity:EPERM:one:early": OURS,
}
LATE = {
    "memfd_create:EPERM:one:first": FORWARDED,
    "memfd_create:EPERM:one:late": ERROR,
    "memfd_create:ENOMEM:one:first": FORWARDED,
    "sendmsg:EPERM:one:first": FORWARDED,
    "sendmsg:EPERM:all:late": FORWARDED,
    "recvmsg:ENOSYS:one:late": ERROR,
    "connect:EACCES:one:late": ERROR,
    "socket:EPERM:one:first": FORWARDED,
    "epoll_ctl:EPERM:one:late": ERROR,
    "clone3,clone:EPERM:one:first": FORWARDED,
    "clone3,clone:ENOSYS:all:first": FORWARDED,
    "accept4,accept:EPERM:one:late": ERROR,
    "accept4,accept:EPERM:one:first": FORWARDED,
    "getsockopt:EPERM:one:first": FORWARDED,
    "getsockopt:EPERM:one:late": ERROR,
    "getrandom:ENOSYS:one:late": ERROR,
}
# Hides the death of a rank from the launcher until the other one is over: launchers kill the remaining ranks, some even with an option against it.
KEEP = 'over=$1; shift; "$@"; if [ $? = 137 ]; then until [ -e "$over" ]; do sleep 0.05; done; else touch "$over"; fi'
HOW_KILLED = {"": "", "--forked": ", its child lives on", "--prepare": ", while the sender waits for its buffer"}
ALONE = ("memfd_create:EPERM:one:early", "fallocate,pwrite:EACCES:one:early", "accept4,accept:EPERM:one:early", "eventfd2:EPERM:all:early",
         "sendmsg:EPERM:one:first", "clone3,clone:EPERM:one:first", "accept4,accept:EPERM:one:first")


def killed(mpi, build, larklane):
    """Names and verdicts of the survivor's tests."""
    program = build / "tests/mp/fault" / mpi.name / "killed"
    for victim in ("sender", "receiver"):
        for forked in ([], ["--forked"], *([["--prepare"]] if victim == "receiver" else [])):
            with tempfile.TemporaryDirectory() as folder:
                command = ["sh", "-c", KEEP, "keep", f"{folder}/over", str(larklane), "run", str(program), victim, *forked]
                outcome = launch.launch(mpi, 2, command, 40)
            name = f"{mpi.name}: {victim} killed{HOW_KILLED[' '.join(forked)]}"
            yield name, "survivor ok" in outcome.output, outcome


def judged(case, expected, output):
    """The failure of one case of refused_round, or nothing."""
    said = {int(rank): (what, text) for rank, what, text in re.findall(rf"^case {re.escape(case)} rank (\d+): (\w+) ?(.*)$", output, re.M)}
    if len(said) != 2:
        return f"{len(said)} of 2 ranks have come to an end"
    call, error = case.split(":")[:2]
    words = {what for what, _ in said.values()}
    if words != ({"error"} if expected == ERROR else {"right"}):
        return f"expected {expected}: {said}"
    if any(len(re.findall(rf"^larklane: warn: rank {rank}: ", output, re.M)) > 1 for rank in said):
        return "more than one warning of a rank"
    warned = [rank for rank in said if re.search(rf"^larklane: warn: rank {rank}: .*(left to the MPI)", output, re.M)]
    odd = max(said)
    if expected == OURS:
        return f"ranks {warned} have warned" if warned else ""
    named = [line for line in output.splitlines() if f"rank {odd}: " in line and os.strerror(getattr(errno, error)) in line and "remedy: " in line]
    if not any(name in line for line in named for name in call.split(",")):
        return f"no warning of rank {odd} names {call} and {error}"
    return ""


def rounds_refused(mpi, build, larklane):
    """Pairs with calls refused, side by side in one launch; those that the MPI itself has need of are left out for it."""
    program = str(build / "tests/mp/fault" / mpi.name / "refused_round")
    launches = [EARLY, LATE]
    if mpi.name.startswith("openmpi"):  # its own partitioned requests need all ranks, so forwarded pairs have a launch of their own
        launches = [{case: expected for case, expected in (EARLY | LATE).items() if expected != FORWARDED},
                    *({case: FORWARDED} for case in ALONE)]
    for cases in launches:
        outcome = launch.launch(mpi, 2 * len(cases), [str(larklane), "run", program, *cases], 120)
        for case, expected in cases.items():
            wrong = judged(case, expected, outcome.output)
            yield f"{mpi.name}: {case}: {expected}{': ' + wrong if wrong else ''}", not wrong, outcome


def refused(mpi, build, larklane):
    """The cases of RULES with system calls refused."""
    refuse = str(build / "tests/mp/fault/refuse")
    program = str(build / "tests/conformance" / mpi.name / "conformance")
    listed = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.splitlines()
    cases = [words[0] for words in map(str.split, listed) if words[1] == "2" and words[0].startswith(RULES)]
    for what, why in REFUSALS.items():
        command = [refuse, what, str(larklane), "run", program, "--level", "multiple", "--run", *cases]
        outcome = launch.launch(mpi, 2, command, 240)
        bad = [line for line in outcome.output.splitlines() if line.startswith("not ok")]
        yield f"{mpi.name}: {why}", outcome.status == 0 and not bad and "\nok " in "\n" + outcome.output, outcome
    program = str(build / "tests/mp/fault" / mpi.name / "refused_start")
    outcome = launch.launch(mpi, 2, [refuse, "memfd_create:ENOMEM", str(larklane), "run", program], 30)
    yield f"{mpi.name}: memory refused", outcome.status == 0 and "memfd_create: Cannot allocate memory" in outcome.output, outcome
    for policy in ("learnt", "static:0", "timer:"):
        outcome = launch.launch(mpi, 2, [str(larklane), "run", program, policy], 30)
        told = f'larklane_policy is "{policy}"' in outcome.output and "| learned" in outcome.output
        yield f"{mpi.name}: policy {policy} refused", outcome.status == 0 and told, outcome
    outcome = launch.launch(mpi, 2, [str(larklane), "run", program, "static:2"], 30)
    yield f"{mpi.name}: policy static:2 taken", outcome.status == 0 and not outcome.output.strip(), outcome


def tests_of(names, build):
    for name in names:
        if not (build / "tests/mp/fault" / name / "killed").exists():
            print(f"skip {name}: not built")
            continue
        for tests in (killed, rounds_refused, refused):
            yield from tests(launch.MPIS[name], build, build / "bin/larklane")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build folder")
    parser.add_argument("--mpi", choices=launch.MPIS, action="append", help="default: mpich5 and openmpi5")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    return launch.run_tests(tests_of(arguments.mpi or ("mpich5", "openmpi5"), build))


if __name__ == "__main__":
    sys.exit(main())
