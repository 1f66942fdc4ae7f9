#!/usr/bin/env python3
"""Instructions that a message costs over verbs, on a device made of memory: from the last MPI_Pready to the post, and from the polled
completion to MPI_Parrived. Prints the cost of each scenario, and its bound.

Exit status: 0, 1 if one takes more than its bound, 77 without valgrind.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

POST_MAX, ARRIVAL_MAX = 150, 150
PREPARE_MAX = 80  # of a receiver that is ready: its handle is found, one word of its is loaded
PER_PARTITION = 6  # of the receive


def product_cost(dump: str) -> int:
    """Instructions of all functions but those of the test itself and of the device."""
    names: dict[str, str] = {}
    total, is_ours, is_call = 0, False, False
    for line in dump.splitlines():
        if function := re.match(r"fn=(\(\d+\))(?: (.*))?$", line):
            name = names.setdefault(function[1], function[2] or "")
            is_ours = "larklane::cost::" not in name
        elif called := re.match(r"cfn=(\(\d+\)) (.*)$", line):
            names.setdefault(called[1], called[2])
        elif line.startswith("calls="):
            is_call = True  # the next line is the called function, counted where it is
        elif cost := re.match(r"[+*-]?\d* (\d+)$", line):
            total += int(cost[1]) if is_ours and not is_call else 0
            is_call = False
    return total


def counted(program: str) -> dict[tuple[str, int, int], int]:
    """@return instructions by (kind, send partitions, receive partitions)"""
    with tempfile.TemporaryDirectory(prefix="network-cost-") as folder:
        out = pathlib.Path(folder) / "out"
        done = subprocess.run(["env", "LD_BIND_NOW=1", "valgrind", "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={out}", program],
                              capture_output=True, text=True, check=False)
        if done.returncode or done.stdout != "ok\n":
            sys.exit(f"the program is not well: {done.returncode}\n{done.stdout}{done.stderr}")
        found = {}
        for path in sorted(pathlib.Path(folder).glob("out.*")):
            text = path.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (\w+) (\d+) (\d+)$", text, re.MULTILINE)
            if name:
                found[name[1], int(name[2]), int(name[3])] = product_cost(text)
        return found


def main() -> int:
    if not shutil.which("valgrind"):
        print("skipped: no valgrind")
        return 77
    found = counted(sys.argv[1])
    print("scenario, S, R: instructions, at most")
    failed = not found
    for (what, send, receive), count in sorted(found.items()):
        most = {"prepare": PREPARE_MAX}.get(what, POST_MAX if what.startswith("send") else ARRIVAL_MAX + PER_PARTITION * receive)
        is_over = not 0 < count <= most
        failed |= is_over
        print(f"{what} {send} {receive}: {count}, {most}{': TOO MUCH' if is_over else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
