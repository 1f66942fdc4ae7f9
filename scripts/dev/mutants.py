#!/usr/bin/env python3
"""Prove that the tests can fail: change one line of the engine or the face, and check that a named test fails.

The list is tests/mutants/*.json; each entry is

  {"file": "src/part/x.cpp", "old": "text that occurs once", "new": "text instead of it",
   "test": "name of the ctest that must fail", "rule": "the rule that the change breaks",
   "cases": [cases of a conformance test: only these are run; optional]}

A mutant is built and tested in a copy of the tree (build/mutants/tree), so the tree itself never changes. `killed`: the test failed.
`survived`: it passed. `stale`: the old text does not occur exactly once, the test does not exist, it fails without a change, or the
changed code does not compile. Exit status: 0 if all were killed.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAMILIES = {"mpich4": "mpich", "mpich5": "mpich", "mpich5_abi": "abi", "openmpi4": "ompi", "openmpi5": "ompi"}
LISTS = ROOT / "tests/mutants"
COPY = ROOT / "build/mutants/tree"


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    old: str
    new: str
    test: str
    rule: str
    cases: tuple = ()

    def __str__(self):
        return f"{self.file}: {self.rule}"


def load(folder):
    """All mutants of a folder's lists, in the order of file names."""
    return [Mutant(**entry) for path in sorted(folder.glob("*.json")) for entry in json.loads(path.read_text())]


def apply(text, mutant):
    """@return the mutated text, or None if the old text does not occur exactly once (or nothing would change)"""
    if text.count(mutant.old) != 1 or mutant.old == mutant.new:
        return None
    return text.replace(mutant.old, mutant.new)


def environment():
    env = {**os.environ, "OMP_WAIT_POLICY": "passive", "HYDRA_LAUNCHER": "fork"}
    if shutil.which("ninja"):
        env.setdefault("CMAKE_GENERATOR", "Ninja")
    return env


def run(*command, timeout_s=600, quiet=True):
    """Run a command in the copy. @return whether it succeeded; a timeout is a failure"""
    output = subprocess.DEVNULL if quiet else None
    try:
        return subprocess.run(
            command, cwd=COPY, env=environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=timeout_s, check=False
        ).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def copy_tree():
    """Bring the copy up to date with the tree; files that did not change keep their time, so that builds are incremental."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    wanted = {path for path in listing if (ROOT / path).is_file()}
    for path in wanted:
        source, target = ROOT / path, COPY / path
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for target in [path for path in COPY.rglob("*") if path.is_file()]:
        path = target.relative_to(COPY)
        if path.parts[0] not in ("build", ".deps") and str(path) not in wanted:
            target.unlink()
    if not (COPY / ".deps").exists() and (ROOT / ".deps").exists():
        (COPY / ".deps").symlink_to(ROOT / ".deps")


def targets_of(test):
    """The build targets of a test: a GoogleTest program is a target of the test's name."""
    if re.fullmatch(r"\w+_test", test):
        return [test]
    face = ["larklane", "larklane_preload", "larklane_messages_preload"]
    if test.startswith("conformance."):
        *suite, mpi, _ = test.split(".")
        return ["_".join([*suite, mpi]), *face, f"larklane_mpi_{FAMILIES[mpi]}"]
    kind, *_, mpi = test.split("_")
    if kind in ("agreement", "carried"):
        return ["refuse", *face, f"larklane_mpi_{FAMILIES[mpi]}"]
    return ["all"]


def build(test):
    """Build the targets of a test in the copy. @return whether the build succeeded"""
    if not (COPY / "build/release/CMakeCache.txt").exists() and not run("cmake", "--preset", "release", "-DLARKLANE_WERROR=OFF"):
        return False
    cores = str(len(os.sched_getaffinity(0)))
    command = ["cmake", "--build", "--preset", "release", "--parallel", cores, "--target", *targets_of(test)]
    return run(*command, timeout_s=1800)


def passes(mutant):
    """@return whether the mutant's test passes in the copy as built now"""
    if mutant.cases:
        *suite, mpi, mode = mutant.test.split(".")
        program = f"build/release/tests/{'/'.join(suite)}/{mpi}/conformance"
        command = [sys.executable, "tests/conformance/run.py", "--mpi", mpi, "--mode", mode, "--program", program]
        return run(*command, "--larklane", "build/release/bin/larklane", "--run", *mutant.cases)
    return run("ctest", "--preset", "release", "--no-tests=error", "-R", f"^{re.escape(mutant.test)}$", timeout_s=900)


def judge(mutant, sound):
    """Build the mutant, run its test, restore the file. @return (killed, survived or stale; the reason)"""
    path = COPY / mutant.file
    original = path.read_text() if path.exists() else ""
    mutated = apply(original, mutant)
    if mutated is None:
        return "stale", "the old text does not occur exactly once"
    key = (mutant.test, *mutant.cases)
    name = " ".join(mutant.cases) or mutant.test
    if key not in sound:
        sound[key] = build(mutant.test) and passes(mutant)
    if not sound[key]:
        return "stale", f"{name} does not build, exist or pass without a change"
    try:
        path.write_text(mutated)
        if not build(mutant.test):
            return "stale", "does not compile"
        return ("survived", name) if passes(mutant) else ("killed", name)
    finally:
        path.write_text(original)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", default="", help="mutants whose file, rule or test contains TEXT")
    parser.add_argument("--list", action="store_true", help="name them, run nothing")
    arguments = parser.parse_args()
    mutants = [mutant for mutant in load(LISTS) if arguments.only in f"{mutant.file} {mutant.rule} {mutant.test}"]
    if arguments.list:
        print("\n".join(f"{mutant}  [{mutant.test}]" for mutant in mutants))
        return 0

    print(f"{len(mutants)} mutants, in a copy of the tree: {COPY.relative_to(ROOT)}", flush=True)
    copy_tree()
    sound, counts = {}, {"killed": 0, "survived": 0, "stale": 0}
    for number, mutant in enumerate(mutants, 1):
        started = time.monotonic()
        verdict, why = judge(mutant, sound)
        counts[verdict] += 1
        print(f"{number:3d}/{len(mutants)} {verdict:8s} {mutant}  [{why}] {time.monotonic() - started:.0f} s", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 0 if mutants and counts["killed"] == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
