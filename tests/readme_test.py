#!/usr/bin/env python3
"""The commands of README.md work: its blocks run in order, the commands of its tables exist, its C code compiles.

Argument: the build folder. The blocks run in an empty folder that has the tree's `examples`, `.deps` and the build. Targets of the
Makefile that install or build do not run, but must exist. Exit status: 0 clean, 1 complaints, 77 the MPI of the page is missing.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "README.md"
SKIP = 77
MPI = ".deps/mpich/bin"  # as the page has it
TARGET = re.compile(r"\bmake(?: ([a-z][a-z-]*))?(?=\s*(?:&&|#|$))", re.MULTILINE)
SUBCOMMAND = re.compile(r"`larklane ([a-z]+)")
ENVIRONMENT = {"HYDRA_LAUNCHER": "fork", "OMP_WAIT_POLICY": "passive"}
# The names that the two variants of the page's C code share.
UNIT = """#include <mpi.h>
void compute(double *block);
void step(double *block, int n, int count, int peer, int tag, MPI_Comm comm, MPI_Request request);
void step(double *block, int n, int count, int peer, int tag, MPI_Comm comm, MPI_Request request) {
%s}
"""


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def missing_targets(text, makefile):
    """The targets of `make` in `text` that `makefile` lacks."""
    return [name for name in TARGET.findall(text) if name and not re.search(rf"^{name}:", makefile, re.MULTILINE)]


def script_of(text):
    """The blocks of commands as one script, without the builds."""
    lines = []
    for line in "".join(blocks(text, "sh")).splitlines():
        code = TARGET.sub(":", line.partition("#")[0])
        lines.append(code.rstrip())
    return "set -euo pipefail\n" + "\n".join(lines) + "\n"


def run_script(script, build):
    """@return (status, output) of `script` in a folder of its own"""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        shutil.copytree(ROOT / "examples", place / "examples")
        (place / "build").mkdir()
        (place / "build/release").symlink_to(build)
        (place / ".deps").symlink_to(ROOT / ".deps")
        done = subprocess.run(["bash", "-c", script], cwd=place, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=200, check=False)
    return done.returncode, done.stdout


def run_rules():
    """Each check reports its own kind of mistake."""
    makefile = "setup: ## x\n"
    assert missing_targets("make setup && make    # x", makefile) == []
    assert missing_targets("make absent", makefile) == ["absent"]
    text = "```sh\nmake setup && make  # a word\nmake -C examples heat2d\n```\n```c\nint a;\n```\n"
    assert script_of(text).splitlines()[1:] == [": && :", "make -C examples heat2d"], script_of(text)
    assert run_script("set -e\nfalse\n", ROOT)[0] != 0


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    run_rules()
    command = build / "bin/larklane"
    if not (ROOT / MPI / "mpicc").exists() or not command.exists():
        print(f"skipped: no {MPI}/mpicc, or no {command}")
        return SKIP
    text = PAGE.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    complaints = [f"README.md: make {name}: no such target" for name in
                  missing_targets("\n".join(blocks(text, "sh")), makefile) + missing_targets("\n".join(re.findall(r"`(make[^`]*)`", text)), makefile)]
    for name in sorted(set(SUBCOMMAND.findall(text))):
        done = subprocess.run([command, name, "--help"], capture_output=True, check=False)
        if done.returncode:
            complaints.append(f"README.md: larklane {name}: no such command")
    code = blocks(text, "c")
    done = subprocess.run([ROOT / MPI / "mpicc", "-fopenmp", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", "c", "-"],
                          input=UNIT % "".join(code), capture_output=True, text=True, check=False)
    if not code or done.returncode:
        complaints.append(f"README.md: its C code does not compile: {done.stderr}")
    script = script_of(text)
    assert "larklane report" in script and "larklane run" in script, "the page runs what it shows"
    status, output = run_script(script, build)
    print(output, end="")
    if status:
        complaints.append(f"README.md: its commands end with status {status}")
    if output.count("PASSED") != 3 or "early" not in output:
        complaints.append("README.md: its commands do not show three runs and what early sending saves")
    print("\n".join(complaints), end="")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
