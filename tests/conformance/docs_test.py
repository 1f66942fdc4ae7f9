#!/usr/bin/env python3
"""Every case of a suite stands in its page, and every case that the page names exists. Arguments: the suite's program; its page in docs/user."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

BINDINGS = {"mpif_h": "fortran_integer.F90", "mpi_module": "fortran_integer.F90", "mpi_f08": "fortran_f08.f90"}


def main() -> int:
    listed = subprocess.run([sys.argv[1], "--list"], check=True, capture_output=True, text=True)
    cases = {line.split()[0] for line in listed.stdout.splitlines()}
    page = sys.argv[2]
    if page == "conformance.md":
        for source in pathlib.Path(__file__).parent.glob("fortran_*.f90"):
            cases.update(re.findall(r"report\('(F1_\w+)'\)", source.read_text()))
    else:  # the programs beside the suite
        for source in pathlib.Path(__file__).parent.glob("p2p/*.c"):
            cases.update(re.findall(r'"(?:ok )?(PX\d_\w+)"', source.read_text()))
        for binding, source in BINDINGS.items():
            rules = re.findall(r"report\('(FO\d)'\)", (pathlib.Path(__file__).parent / "p2p" / source).read_text())
            cases.update(f"{rule}_{binding}" for rule in rules)
    named = set(re.findall(r"`([A-Z]{1,2}\d*_\w+)`", (ROOT / "docs/user" / page).read_text()))
    for name in sorted(cases - named):
        print(f"docs/user/{page} does not name {name}")
    for name in sorted(named - cases):
        print(f"docs/user/{page} names {name}, which does not exist")
    return 1 if cases != named else 0


if __name__ == "__main__":
    sys.exit(main())
