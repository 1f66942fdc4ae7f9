#!/usr/bin/env python3
"""Memory that the kernel copies for no other process, memory that requests take, and processes whose first thread has ended.

  memory_test.py --build DIR MPI|native

Prints `N passed, N failed`. Exit status: 0, 1 if a test failed, 77 if the MPI is not installed.
"""

import argparse
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import launch  # noqa: E402

# All goes by attach, and most runs in several pieces.
BY_ATTACH = {"LARKLANE_SHM_SLOT_MESSAGE_MAX": "0", "LARKLANE_SHM_PIECE_BYTES": "16K"}


def partitioned(name, build):
    """Titles and outcomes: status and output."""
    mpi = launch.MPIS[name]
    folder = build / "tests/mp/memory" / name
    run = [str(build / "bin/larklane"), "run"]
    for title, words, said, environment in (
        ("every kind of memory, by attach", ["copies"], "copies ok", BY_ATTACH),
        ("every kind of memory, by attach without pieces", ["copies"], "copies ok", {**BY_ATTACH, "LARKLANE_SHM_PIECE_BYTES": "1G"}),
        ("every kind of memory, as configured", ["copies"], "copies ok", {}),
        ("every kind of memory, plain is mapped", ["copies", "allocated"], "copies ok", {**BY_ATTACH, "LARKLANE_ALLOC_MEM_MAPPED": "on"}),
        ("requests of millions of blocks take little memory before their round", ["blocks"], "blocks ok", {}),
        ("sends that are freed without a receive take no memory", ["unmatched"], "unmatched ok", {}),
        ("sends that are freed without a receive take no memory, over a network", ["unmatched", "20000"], "unmatched ok", {"LARKLANE_PROVIDER": "ofi:tcp"}),
        ("the first thread ends before init", ["first_thread", "before"], "first thread ok", BY_ATTACH),
        ("the first thread ends after a round", ["first_thread", "after"], "first thread ok", BY_ATTACH),
    ):
        outcome = launch.launch(mpi, 2, run + [str(folder / words[0]), *words[1:]], 120, environment=environment)
        yield f"{name}: {title}", outcome.status == 0 and said in outcome.output, outcome.output, outcome.seconds


def native(build):
    """The same of messages, each from where it lies."""
    command = [str(build / "bin/larklane"), "launch", "-n", "2", str(build / "tests/mp/memory/memory_messages")]
    for title, bounce, words in (
        ("messages of every kind of memory", "0", []),
        ("the same with bounce buffers", "256K", []),
        ("the first thread ends before the context is made", "0", ["before"]),
        ("the first thread ends after some messages", "0", ["after"]),
    ):
        environment = {"LARKLANE_MESSAGE_PROVIDER": "shm", "LARKLANE_MESSAGE_BOUNCE_MAX": bounce}
        outcome = subprocess.run(["env", *(f"{k}={v}" for k, v in environment.items()), *command, *words], capture_output=True, text=True, timeout=120)
        output = outcome.stdout + outcome.stderr
        yield f"native: {title}", outcome.returncode == 0 and "messages ok" in output, output, 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build folder")
    parser.add_argument("what", choices=[*launch.MPIS, "native"])
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    if arguments.what != "native" and not (build / "tests/mp/memory" / arguments.what / "copies").exists():
        print(f"skip {arguments.what}: not built")
        return launch.SKIP
    failed = passed = 0
    for title, good, output, seconds in native(build) if arguments.what == "native" else partitioned(arguments.what, build):
        print(f"{'ok' if good else 'not ok'} {title} ({seconds:.1f} s)", flush=True)
        print("  " + output[-2000:].strip().replace("\n", "\n  "))
        passed, failed = passed + good, failed + (not good)
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
