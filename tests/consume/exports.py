#!/usr/bin/env python3
"""liblarklane.so exports the functions of its headers and no other, and it needs no MPI.

  exports.py LIBRARY INCLUDE_FOLDER

Exit status: 0 clean, 1 complaints, 77 a program is missing.
"""

import pathlib
import re
import shutil
import subprocess
import sys

INSIDE = re.compile(r"larklane::(msg|net|vci|boot|control|capi)::|::Inside\b")


def names_of(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def main():
    library, include = sys.argv[1], pathlib.Path(sys.argv[2]) / "larklane"
    if not shutil.which("nm") or not shutil.which("readelf"):
        return 77
    header = (include / "larklane.h").read_text(encoding="utf-8")
    wanted = set(re.findall(r"^LARKLANE_API [\w ]+?\*?\s*(larklane_\w+)\(", header, re.M))
    complaints, shown = [], set()
    for line in names_of(["nm", "-DC", "--defined-only", library]):
        name, _, version = line.split(" ", 2)[2].partition("@@")
        if name.startswith("larklane_"):
            shown.add(name)
        elif name != "LARKLANE_0.1" and (not name.startswith("larklane::") or INSIDE.search(name.split("(")[0])):
            complaints.append(f"{name} should not be shown")
        if version != "LARKLANE_0.1" and name != "LARKLANE_0.1":
            complaints.append(f"{name} has no version")
    # The helper, and static objects of the program, still use the library while the process exits.
    if re.search(r"\bU __cxa_atexit\b", "\n".join(names_of(["nm", "-D", library]))):
        complaints.append("it has a static object that is destroyed at exit")
    complaints += [f"{name}: of the header or the library alone" for name in sorted(shown ^ wanted)]
    needed = [re.search(r"\[(.*)\]", line)[1] for line in names_of(["readelf", "-d", library]) if "(NEEDED)" in line]
    complaints += [f"it needs {name}" for name in needed if not re.match(r"(libstdc\+\+|libgcc_s|libc|libm|libpthread|ld-linux.*)\.so", name)]
    print("\n".join([*complaints, f"{len(shown)} C functions"]))
    return 1 if complaints or len(shown) < 30 else 0


if __name__ == "__main__":
    sys.exit(main())
