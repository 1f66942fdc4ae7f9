#!/usr/bin/env python3
"""Analyse the sources with one tool; exit status 0 if it finds nothing, 1 if it does, 77 if the tool is missing.

  lint.py ruff
  lint.py mypy
  lint.py clang-tidy [--all] [--minutes N]   compile commands come from --build (build/release).

clang-tidy takes hours for the whole tree. Without --all it analyses changed units: sources that differ from the merge base with
main, then units that include a changed header. On main itself the base is the first parent of the last commit. After --minutes no
further unit starts, and one line names the units left. <build>/clang-tidy records the units that passed. A record holds until the
unit, a file that it includes, its command, or the configuration changes.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIP = 77
CLANG_TIDY = "clang-tidy-14"
# The compile commands belong to another compiler, so its -Werror and its unknown warnings do not count here.
CLANG_TIDY_FLAGS = ("--quiet", "--warnings-as-errors=*", "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-error")


def python_tool(name, *arguments):
    """Run a tool of .deps/python, or else the installed one. @return its exit status"""
    tool = shutil.which(str(ROOT / ".deps/python/bin" / name)) or shutil.which(name)
    if not tool:
        print(f"skipped: {name} not found (`make setup` installs it)")
        return SKIP
    return subprocess.run([tool, *arguments], cwd=ROOT, check=False).returncode


def git(*words, root=ROOT):
    """@return the output of git, or "" if it fails"""
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout.strip()


def base_commit(root=ROOT):
    """@return the merge base with main; of a commit of main its first parent; "" if git knows none"""
    head = git("rev-parse", "HEAD", root=root)
    for branch in ("origin/main", "main"):
        base = git("merge-base", "HEAD", branch, root=root)
        if base and base != head:
            return base
    return git("rev-parse", "--quiet", "--verify", "HEAD^", root=root)


def changed_files(root=ROOT):
    """@return paths that differ from base_commit(), or that git does not know yet"""
    base = base_commit(root)
    if not base:
        print("clang-tidy: git knows no earlier commit, so only uncommitted changes count as changed")
    listings = (git("diff", "--name-only", base or "HEAD", root=root), git("ls-files", "--others", "--exclude-standard", root=root))
    return set("\n".join(listings).split("\n")) - {""}


class Sources:
    """The includes of each file, by their text: conditions are not evaluated."""

    def __init__(self, root):
        self.root = root
        self.direct = functools.cache(self._direct)

    def _direct(self, path):
        text = (self.root / path).read_text(encoding="utf-8")
        names = re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.M)
        places = (path.rpartition("/")[0], "src", "include", "bench", "tests")
        return {next((file for place in places if (self.root / (file := f"{place}/{name}")).is_file()), None) for name in names} - {None}

    def closure(self, path):
        """@return the file and all files that it includes, directly or not"""
        found, waiting = set(), [path]
        while waiting:
            file = waiting.pop()
            if file not in found:
                found.add(file)
                waiting += self.direct(file)
        return found

    def key(self, path, command, setting):
        """@return a hash of all inputs of the tool's result for the file"""
        digest = hashlib.sha256(f"{setting}\n{command}\n".encode())
        for file in sorted(self.closure(path)):
            digest.update(f"{file}\n".encode() + (self.root / file).read_bytes())
        return digest.hexdigest()


def chosen(units, changed, sources):
    """@return the units to analyse: those that changed, then those that include a changed file"""
    first = [unit for unit in units if unit in changed]
    return first + [unit for unit in units if unit not in changed and sources.closure(unit) & changed]


def commands_of(build, root=ROOT):
    """@return {path: its compile command}; of several commands the first.

    CMake compiles the sources of a target with UNITY_BUILD through a file that includes them: each has the command of that file.
    clang-tidy analyses such a source alone, with the options of the most similar path that has a command.
    """
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        file = pathlib.Path(entry["file"])
        files = [file]
        if "/Unity/" in entry["file"]:
            files = [pathlib.Path(name) for name in re.findall(r'^#include "(/[^"]+)"', file.read_text(encoding="utf-8"), re.M)]
        for path in files:
            if path.is_relative_to(root) and not path.is_relative_to(root / "build") and path.suffix in (".c", ".cpp"):
                commands.setdefault(str(path.relative_to(root)), entry["command"].replace(str(root), ""))
    return commands


def analyse(build, path):
    command = [CLANG_TIDY, "-p", str(build), *CLANG_TIDY_FLAGS, str(ROOT / path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return path, result.returncode, result.stdout + (result.stderr if result.returncode else "")


def clang_tidy(build, everything, minutes):
    """@return 0, 1 or SKIP. After `minutes` no further unit starts, and the last line names the units left."""
    if not shutil.which(CLANG_TIDY):
        print(f"skipped: {CLANG_TIDY} not found (Debian: {CLANG_TIDY})")
        return SKIP
    records = build / "clang-tidy"
    records.mkdir(exist_ok=True)
    sources, commands = Sources(ROOT), commands_of(build)
    units = sorted(commands) if everything else chosen(sorted(commands), changed_files(), sources)
    setting = (ROOT / ".clang-tidy").read_text(encoding="utf-8") + CLANG_TIDY + " ".join(CLANG_TIDY_FLAGS)
    keys = {unit: sources.key(unit, commands[unit], setting) for unit in units}
    waiting = [unit for unit in units if not (records / keys[unit]).exists()]
    end = time.monotonic() + 60 * minutes
    failed = 0
    left = set(waiting)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        jobs = [pool.submit(lambda unit=unit: analyse(build, unit) if time.monotonic() < end else None) for unit in waiting]
        for unit, status, text in filter(None, (job.result() for job in concurrent.futures.as_completed(jobs))):
            left.remove(unit)
            failed += status != 0
            if status:
                print(text, flush=True)
            else:
                (records / keys[unit]).touch()
    print(f"clang-tidy: {len(waiting) - len(left)} units analysed, {failed} with findings, {len(units) - len(waiting)} known to pass")
    if left:
        print(f"clang-tidy: {len(left)} units left after {minutes:g} minutes (`make tidy` has no limit): {' '.join(unit for unit in waiting if unit in left)}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=("ruff", "mypy", "clang-tidy"))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="build folder of the compile commands")
    parser.add_argument("--all", action="store_true", help="clang-tidy: the whole tree")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="clang-tidy: start no unit after that time")
    arguments = parser.parse_args()
    if arguments.tool == "ruff":
        return python_tool("ruff", "check")
    if arguments.tool == "mypy":
        return python_tool("mypy")
    return clang_tidy(arguments.build.resolve(), arguments.all, arguments.minutes)


if __name__ == "__main__":
    sys.exit(main())
