#!/usr/bin/env python3
"""The cost of MPI_Psend_init, MPI_Precv_init and MPI_Request_free for the calling thread, per request: instructions (callgrind) and
system calls (strace). Prints the cost of each, and its bound.

  init_cost_test.py WRAPPER STUB     the MPI's compiler, and the object that is preloaded

Exit status: 0, 1 if one takes more than its bound, 77 where valgrind, strace or the MPI is missing.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "mp/face/init_cost.c"
PAIRS, CYCLES, MARK = 200, 2, 0x4C4B
REQUESTS = {"sends": PAIRS, "receives": PAIRS, "frees": 2 * PAIRS}  # of one cycle
INSTRUCTIONS_MAX = {"sends": 8000, "receives": 6000, "frees": 2800}
TRIES = 6
CALLS_MAX = 10  # of a whole cycle's: now and then gathered records leave
# Not counted: while it is traced the program is so slow that the helper, between two calls, sends gathered records, and may hold a lock.
BY_TIME = ("timerfd_settime", "futex")


def instructions(program: pathlib.Path, stub: str, folder: pathlib.Path, what: str, *variables: str) -> int:
    """Of the program's function cost_of_WHAT, in the main thread."""
    out = folder / f"out-{what}"
    command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", "--collect-atstart=no", f"--toggle-collect=cost_of_{what}",
               f"--callgrind-out-file={out}", program]
    done = subprocess.run(["env", "LD_BIND_NOW=1", f"LD_PRELOAD={stub}", *variables, *command], capture_output=True, text=True, check=False, timeout=100)
    if done.returncode or "ok" not in done.stdout:
        sys.exit(f"the program is not well: {done.returncode}\n{done.stdout}{done.stderr}")
    total = re.search(r"^(?:totals|summary): (\d+)", pathlib.Path(f"{out}-01").read_text(), re.MULTILINE)
    return int(total[1]) if total else 0


def calls(program: pathlib.Path, stub: str, folder: pathlib.Path) -> dict[str, list[str]]:
    """System calls of the main thread in the last cycle."""
    trace = folder / "trace"
    done = subprocess.run(["strace", "-o", trace, "-E", f"LD_PRELOAD={stub}", program], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode or "ok" not in done.stdout:
        sys.exit(f"the program is not well under strace: {done.returncode}\n{done.stdout}{done.stderr}")
    made: dict[int, list[str]] = {}
    now = 0
    for line in trace.read_text().splitlines():
        if marked := re.match(r"getpgid\((\d+)\)", line):
            now = int(marked[1]) - MARK
            made[now] = []
        elif now:
            name = line.split("(")[0]
            made[now] += [name] * (name not in BY_TIME)
    return {"sends": made[1], "receives": made[2], "frees": made[4]}


def main() -> int:
    wrapper, stub = sys.argv[1:]
    if not shutil.which(wrapper) or not shutil.which("valgrind") or not shutil.which("strace"):
        print("skipped: no valgrind, no strace or no MPI")
        return 77
    failed = False
    with tempfile.TemporaryDirectory(prefix="init-cost-") as name:
        folder = pathlib.Path(name)
        program = folder / "init_cost"
        subprocess.run([wrapper, "-std=gnu11", "-O1", "-g", SOURCE, "-o", program], check=True)
        for what, made in calls(program, stub, folder).items():
            is_over = len(made) > CALLS_MAX
            failed |= is_over
            print(f"{what}: {len(made)} system calls for {REQUESTS[what]}, at most {CALLS_MAX}{': TOO MANY' if is_over else ''} {sorted(set(made))}")
        for what, most in INSTRUCTIONS_MAX.items():
            # An INIT that comes before its Precv_init is decoded there, another one by the helper: the count depends on the schedule.
            times = REQUESTS[what] * (CYCLES + 1)
            count = instructions(program, stub, folder, what) / times
            for _ in range(TRIES - 1):
                if count > most:
                    count = min(count, instructions(program, stub, folder, what) / times)
            is_over = not 0 < count <= most
            failed |= is_over
            print(f"{what}: {count:.0f} instructions each, at most {most}{': TOO MANY' if is_over else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
