#!/usr/bin/env python3
"""Memory that the kernel copies for no other process, memory that requests take, and processes whose first thread has ended.

  memory_test.py --build DIR [--kinds] MPI|native

With --kinds: kinds of memory that need not meet in each combination, buffers with a lost part, and threads that are in other
calls while their pages are needed. Huge pages are reserved for the time being, where this process may.

Prints `N passed, N failed`. Exit status: 0, 1 if a test failed, 77 if the MPI is not installed.
"""

import argparse
import contextlib
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import launch  # noqa: E402

# All goes by attach, and most runs in several pieces.
BY_ATTACH = {"LARKLANE_SHM_SLOT_MESSAGE_MAX": "0", "LARKLANE_SHM_PIECE_BYTES": "16K"}
WHOLE = {**BY_ATTACH, "LARKLANE_SHM_PIECE_BYTES": "1G"}
UNATTACHED = {"LARKLANE_SHM_ATTACH": "off"}
# Hides the death of a rank from the launcher until the other one is over: launchers kill the remaining ranks, some even with an option against it.
KEEP = 'over=$1; shift; "$@"; if [ $? = 137 ]; then until [ -e "$over" ]; do sleep 0.05; done; else touch "$over"; fi'
HUGE_PAGES = pathlib.Path("/proc/sys/vm/nr_hugepages")
HUGE_PAGES_NEEDED = 16


@contextlib.contextmanager
def huge_pages():
    """Reserves some more huge pages, and gives them back."""
    before = None
    try:
        before = int(HUGE_PAGES.read_text())
        HUGE_PAGES.write_text(str(before + HUGE_PAGES_NEEDED))
        there = int(HUGE_PAGES.read_text()) - before
        if there < HUGE_PAGES_NEEDED:
            print(f"huge pages: {there} of {HUGE_PAGES_NEEDED}: what needs more is skipped")
    except (OSError, ValueError) as error:
        print(f"huge pages: skipped where none are free: {error}")
    try:
        yield
    finally:
        if before is not None:
            with contextlib.suppress(OSError):
                HUGE_PAGES.write_text(str(before))


def partitioned(name, build):
    """Titles and outcomes: status and output."""
    mpi = launch.MPIS[name]
    folder = build / "tests/mp/memory" / name
    run = [str(build / "bin/larklane"), "run"]
    for title, words, said, environment in (
        ("every kind of memory, by attach", ["copies"], "copies ok", BY_ATTACH),
        ("every kind of memory, by attach without pieces", ["copies"], "copies ok", WHOLE),
        ("every kind of memory, as configured", ["copies"], "copies ok", {}),
        ("every kind of memory, plain is mapped", ["copies", "allocated"], "copies ok", {**BY_ATTACH, "LARKLANE_ALLOC_MEM_MAPPED": "on"}),
        ("requests of millions of blocks take little memory before their round", ["blocks"], "blocks ok", {}),
        ("sends that are freed without a receive take no memory", ["unmatched"], "unmatched ok", {}),
        ("sends that are freed without a receive take no memory, over a network", ["unmatched", "20000"], "unmatched ok", {"LARKLANE_PROVIDER": "ofi:tcp"}),
        ("the first thread ends before init", ["first_thread", "before"], "first thread ok", BY_ATTACH),
        ("the first thread ends after a round", ["first_thread", "after"], "first thread ok", BY_ATTACH),
    ):
        outcome = launch.launch(mpi, 2, run + [str(folder / words[0]), *words[1:]], 120, environment=environment)
        yield f"{name}: {title}", outcome.status == 0 and said in outcome.output, outcome


def partitioned_kinds(name, build):
    """The same of the rarer kinds."""
    mpi = launch.MPIS[name]
    folder = build / "tests/mp/memory" / name
    run = [str(build / "bin/larklane"), "run"]
    for title, words, said, environment in (
        ("more kinds of memory, by attach", ["copies", "more"], "copies ok", BY_ATTACH),
        ("more kinds of memory, as configured", ["copies", "more"], "copies ok", {}),
        ("pages of the kernel's own, by attach", ["kernel_pages"], "kernel pages ok", BY_ATTACH),
        ("pages of the kernel's own, as configured", ["kernel_pages"], "kernel pages ok", {}),
        ("threads in other calls, by attach", ["elsewhere"], "elsewhere ok", BY_ATTACH),
        ("threads in other calls, by attach without pieces", ["elsewhere"], "elsewhere ok", WHOLE),
        ("threads in calls of the MPI, without attach", ["elsewhere"], "elsewhere ok", UNATTACHED),
    ):
        outcome = launch.launch(mpi, 2, run + [str(folder / words[0]), *words[1:]], 120, environment=environment)
        yield f"{name}: {title}", outcome.status == 0 and said in outcome.output, outcome
    for victim in ("sender", "receiver"):
        for order in ("first", "last"):
            for how, mend, environment in (("by attach", [], BY_ATTACH), ("by attach, brings them back", ["mend"], BY_ATTACH),
                                           ("without attach", [], UNATTACHED)):
                with tempfile.TemporaryDirectory() as over:
                    command = ["sh", "-c", KEEP, "keep", f"{over}/over", *run, str(folder / "lost"), victim, order, *mend]
                    outcome = launch.launch(mpi, 2, command, 60, environment=environment)
                good = all(f"{who} ok" in outcome.output for who in ("victim", "survivor")) and "failed" not in outcome.output
                if "survivor: after" in outcome.output:
                    good = good and any(cause in outcome.output for cause in ("its process has ended", "it has closed its connection"))
                yield f"{name}: the {victim} has lost pages, comes {order}, {how}", good, outcome


def native(build, has_kinds):
    """The same of messages, each from where it lies."""
    command = [str(build / "bin/larklane"), "launch", "-n", "2", str(build / "tests/mp/memory/memory_messages")]
    for title, bounce, words in (
        ("messages of more kinds of memory", "0", ["more"]),
        ("the same with bounce buffers", "256K", ["more"]),
    ) if has_kinds else (
        ("messages of every kind of memory", "0", []),
        ("the same with bounce buffers", "256K", []),
        ("the first thread ends before the context is made", "0", ["before"]),
        ("the first thread ends after some messages", "0", ["after"]),
    ):
        environment = {"LARKLANE_MESSAGE_PROVIDER": "shm", "LARKLANE_MESSAGE_BOUNCE_MAX": bounce}
        outcome = subprocess.run(["env", *(f"{k}={v}" for k, v in environment.items()), *command, *words], capture_output=True, text=True, timeout=120)
        output = outcome.stdout + outcome.stderr
        yield f"native: {title}", outcome.returncode == 0 and "messages ok" in output, launch.Outcome(outcome.returncode, output, None, 0.0)
    for how in ("message", "reply", "put", "get") if has_kinds else ():
        with tempfile.TemporaryDirectory() as over:
            words = ["sh", "-c", KEEP, "keep", f"{over}/over", command[-1], "lost", how]
            outcome = subprocess.run(["env", "LARKLANE_MESSAGE_PROVIDER=shm", *command[:-1], *words], capture_output=True, text=True, timeout=120)
        output = outcome.stdout + outcome.stderr
        yield f"native: lost pages, {how}", "victim ok" in output and "survivor ok" in output, launch.Outcome(outcome.returncode, output, None, 0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build folder")
    parser.add_argument("--kinds", action="store_true", help="see above")
    parser.add_argument("what", choices=[*launch.MPIS, "native"])
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    if arguments.what != "native" and not (build / "tests/mp/memory" / arguments.what / "copies").exists():
        print(f"skip {arguments.what}: not built")
        return launch.SKIP
    if arguments.what == "native":
        tests = native(build, arguments.kinds)
    else:
        tests = (partitioned_kinds if arguments.kinds else partitioned)(arguments.what, build)
    with huge_pages() if arguments.kinds else contextlib.nullcontext():
        return launch.run_tests(tests, shows_all=True)


if __name__ == "__main__":
    sys.exit(main())
