#!/usr/bin/env python3
"""Every case of the suite stands in docs/user/conformance.md, and every case named there exists. Argument: the suite's program."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main() -> int:
    listed = subprocess.run([sys.argv[1], "--list"], check=True, capture_output=True, text=True)
    cases = {line.split()[0] for line in listed.stdout.splitlines()}
    for source in pathlib.Path(__file__).parent.glob("fortran_*.f90"):
        cases.update(re.findall(r"report\('(F1_\w+)'\)", source.read_text()))
    page = (ROOT / "docs/user/conformance.md").read_text()
    named = set(re.findall(r"`([A-Z]\d*_\w+)`", page))
    for name in sorted(cases - named):
        print(f"docs/user/conformance.md does not name {name}")
    for name in sorted(named - cases):
        print(f"docs/user/conformance.md names {name}, which does not exist")
    return 1 if cases != named else 0


if __name__ == "__main__":
    sys.exit(main())
