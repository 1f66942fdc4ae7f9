#!/usr/bin/env python3
"""Instructions of ordinary messages' calls under option p2p, for the calling thread (callgrind). Prints each call's, and its bound.

  ordinary_cost_test.py WRAPPER STUB     the MPI's compiler, and the object that is preloaded

Exit status: 0, 1 if one takes more than its bound, 77 where valgrind or the MPI is missing.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import init_cost_test

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "mp/face/message_cost.c"
MESSAGES = 64 * 4
# 8 bytes to oneself. "in vain": nothing has come; the MPI's own progress now and then is part of it.
# Waitall and Testall: of 64 requests, for each. The loop around the calls counts, too.
INSTRUCTIONS_MAX = {
    "isend": 435,
    "irecv": 345,
    "wait_of_send": 72,
    "wait_of_receive": 135,
    "iprobe_in_vain": 263,
    "test_in_vain": 256,
    "waitall_of_sends": 63,
    "waitall_of_receives": 128,
    "testall_in_vain": 115,
    "start_of_receive": 336,
    "start_of_send": 436,
}
# There the MPI's own call ends a send that is complete already.
OPEN_MPI = {"wait_of_send": 133, "waitall_of_sends": 71}


def main() -> int:
    wrapper, stub = sys.argv[1:]
    if not shutil.which(wrapper) or not shutil.which("valgrind"):
        print("skipped: no valgrind or no MPI")
        return 77
    failed = False
    bounds = INSTRUCTIONS_MAX | (OPEN_MPI if "openmpi" in wrapper else {})
    with tempfile.TemporaryDirectory(prefix="ordinary-cost-") as name:
        folder = pathlib.Path(name)
        program = folder / "message_cost"
        subprocess.run([wrapper, "-std=gnu11", "-O1", "-g", SOURCE, "-o", program], check=True)
        for what, most in bounds.items():
            count = init_cost_test.instructions(program, stub, folder, what, "LARKLANE_P2P=on") / MESSAGES
            is_over = not 0 < count <= most
            failed |= is_over
            print(f"{what}: {count:.0f} instructions each, at most {most}{': TOO MANY' if is_over else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
