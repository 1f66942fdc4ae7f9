#!/usr/bin/env python3
"""Run the correctness tests: build each stage, run its ctest, add up.

Stages, in this order (without --stage: all of them):
  release      gcc, everything: unit, property, conformance, protocol models, tidy
  tsan         clang-14 with ThreadSanitizer: the engine: the tests that use threads (tests/unit, tests/race)
  asan-ubsan   gcc with AddressSanitizer and UBSan: the engine and the MPI face's unit tests

The last line is `N passed, N failed`, with `, N skipped` where tests were skipped. Exit status: 0 if nothing failed.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Tests of one process. All others start several processes, which mostly wait for each other, so these run in parallel, too. Exceptions:
# tests with RUN_SERIAL or PROCESSORS, because they measure, or need both cores or much memory.
PARALLEL_LABELS = "^(unit|prop|tidy|analysis|protocol|consume)$"
FAST_LABELS = "^(unit|prop|tidy|quick)$"
SOAK_LABELS = "^(prop|race|mp|fault|conformance|again|soak)$"
AGAIN_LABEL = "^again$"  # the same test on one more MPI of an ABI family: each run takes one share of AGAIN_SHARES
AGAIN_SHARES = 4
LONG_LABEL = "^soak$"  # takes minutes: make soak and make nightly

# Goals, in minutes of two otherwise idle cores on a fresh clone. A new test fits into the budget of its label, or another label's budget shrinks.
BUDGETS = {
    "build release": 11.5, "build tsan": 2.5, "build asan-ubsan": 5.0,
    "mp": 9.0, "again": 0.8, "conformance": 5.5, "rdma": 3.5, "hosts": 0.6, "big": 0.7, "net": 0.2, "example": 0.4, "fault": 0.1,
    "unit": 3.0, "prop": 1.7, "race": 0.8, "protocol": 2.5, "cost": 0.3, "consume": 0.9, "tidy": 0.4, "analysis": 0.5, "quick": 0.1,
}  # fmt: skip
BUDGET_MINUTES = 50.0
BUDGET_MARGIN = 1.25  # for one label: single tests vary


@dataclasses.dataclass(frozen=True)
class Stage:
    name: str  # also the CMake preset
    needs: tuple = ()  # programs without which the stage is skipped


STAGES = (
    Stage("release", needs=("g++",)),
    Stage("tsan", needs=("clang++-14",)),
    Stage("asan-ubsan", needs=("g++",)),
)


@dataclasses.dataclass
class Count:
    """Results of tests."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list = dataclasses.field(default_factory=list)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures

    def __str__(self):
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def one_failure(what):
    """A stage that could not run counts as one failed test."""
    return Count(failed=1, failures=[what])


def count_junit(text, stage):
    """Count the results in a JUnit file of ctest.

    A test that ctest could not start is a failure, not a skip: ctest reports `notrun` for both, but gives a reason only for
    the skip.
    """
    count = Count()
    for case in ElementTree.fromstring(text).iter("testcase"):
        status = case.get("status")
        if status == "run":
            count.passed += 1
        elif status == "disabled" or (status == "notrun" and is_skip(case)):
            count.skipped += 1
        else:
            count.failed += 1
            count.failures.append(f"{stage}: {case.get('name')}")
    return count


def minutes_by_label(junit, tests, all_cores):
    """Add up the minutes of tests by label. A test that runs alone takes all cores; other tests share them.

    @param junit  text of a JUnit file of ctest
    @param tests  the list "tests" of `ctest --show-only=json-v1`
    """
    minutes = {}
    properties = {test["name"]: {entry["name"]: entry["value"] for entry in test.get("properties", [])} for test in tests}
    for case in ElementTree.fromstring(junit).iter("testcase"):
        mine = properties.get(case.get("name"), {})
        labels = mine.get("LABELS", ["no label"])
        label = "again" if "again" in labels else labels[-1]
        used = all_cores if mine.get("RUN_SERIAL") else min(all_cores, mine.get("PROCESSORS", 1))
        minutes[label] = minutes.get(label, 0.0) + float(case.get("time", 0)) / 60 * used / all_cores
    return minutes


def over_budget(minutes):
    """@return a text for each label that exceeds its budget, and for the total"""
    total = round(sum(minutes.values()), 1)
    found = [
        f"{label}: {taken:.1f} minutes, budget {BUDGETS.get(label, 0):.1f}"
        for label, taken in minutes.items()
        if taken > BUDGETS.get(label, 0) * BUDGET_MARGIN
    ]
    return found + ([f"all: {total:.1f} minutes, budget {BUDGET_MINUTES:.0f}"] if total > BUDGET_MINUTES else [])


def is_skip(case):
    skipped = case.find("skipped")
    return skipped is not None and skipped.get("message", "").startswith("SKIP_")


def environment():
    """The caller's environment with the variables that MPI needs on any machine. See docs/user/guide.md."""
    env = dict(os.environ)
    for name in (
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "PRTE_ALLOW_RUN_AS_ROOT",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
    ):
        env.setdefault(name, "1")
    env.setdefault("HYDRA_LAUNCHER", "fork")
    env.setdefault("OMP_WAIT_POLICY", "passive")
    env.setdefault("CCACHE_NOHASHDIR", "1")  # tests/consume builds the library again, in its own folder
    env.setdefault("CCACHE_BASEDIR", str(ROOT))  # another clone finds the same objects
    env.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(cores()))
    if shutil.which("ninja"):
        env.setdefault("CMAKE_GENERATOR", "Ninja")
    return env


def cores():
    return len(os.sched_getaffinity(0))


class Driver:
    """Runs stages and records their minutes."""

    def __init__(self):
        self.started = time.monotonic()
        self.env = environment()
        self.minutes = {}  # by label

    def heading(self, text):
        seconds = int(time.monotonic() - self.started)
        print(f"\n=== [{seconds // 60:3d}:{seconds % 60:02d}] {text}", flush=True)

    def run(self, command, **env):
        """Run a command, its output visible. @return its exit status"""
        return subprocess.run(
            command, cwd=ROOT, env={**self.env, **env}, stdin=subprocess.DEVNULL, check=False
        ).returncode

    def build(self, stage):
        """Configure and build. @return None, or the Count of a skipped or failed stage"""
        missing = [program for program in stage.needs if not shutil.which(program)]
        if missing:
            print(f"skipped: {', '.join(missing)} not found (python3 scripts/dev/setup.py says how to get it)")
            return Count(skipped=1)
        self.heading(f"{stage.name}: configure and build")
        began = time.monotonic()
        if self.run(["cmake", "--preset", stage.name]):
            return one_failure(f"{stage.name}: configure")
        if self.run(["cmake", "--build", "--preset", stage.name]):
            return one_failure(f"{stage.name}: build")
        self.spend({f"build {stage.name}": (time.monotonic() - began) / 60})
        return None

    def spend(self, minutes):
        for label, taken in minutes.items():
            self.minutes[label] = self.minutes.get(label, 0.0) + taken

    def show_budgets(self):
        """Print the minutes of each label beside its budget. Exceeding a budget is no failure: hosts differ by a factor of two."""
        for label, taken in sorted(self.minutes.items(), key=lambda entry: -entry[1]):
            print(f"{label:18s}{taken:6.1f} minutes, budget {BUDGETS.get(label, 0):5.1f}")
        print(f"{'all':18s}{sum(self.minutes.values()):6.1f} minutes, budget {BUDGET_MINUTES:5.1f}")
        for text in over_budget(self.minutes):
            print(f"over budget: {text}")

    def ctest(self, stage, what, *arguments, **env):
        """Run ctest once. @return the count of its tests"""
        self.heading(f"{stage.name}: {what}")
        junit = ROOT / "build" / stage.name / "junit.xml"
        junit.unlink(missing_ok=True)
        command = ["ctest", "--preset", stage.name, "--output-junit", str(junit), *arguments]
        if stage.name == "tsan" and shutil.which("setarch"):
            # TSan of clang-14 needs a fixed layout: newer kernels randomise more bits than it expects.
            if subprocess.run(["setarch", os.uname().machine, "-R", "true"], check=False).returncode == 0:
                command = ["setarch", os.uname().machine, "-R", *command]
        status = self.run(command, **env)
        if not junit.exists():
            return one_failure(f"{stage.name}: ctest ended with status {status}")
        count = count_junit(junit.read_text(), stage.name)
        listing = subprocess.run(
            ["ctest", "--preset", stage.name, "--show-only=json-v1"], cwd=ROOT, env=self.env, capture_output=True, text=True, check=False
        ).stdout
        self.spend(minutes_by_label(junit.read_text(), json.loads(listing)["tests"], cores()))
        if status != 0 and count.failed == 0:
            count.add(one_failure(f"{stage.name}: ctest ended with status {status}"))
        return count

    def tests_of(self, stage, label):
        """@return [(number for ctest -I, name)] of a stage's tests with the label, in order of their names"""
        shown = subprocess.run(
            ["ctest", "--preset", stage.name, "-N", "-L", label],
            cwd=ROOT, env=self.env, capture_output=True, text=True, check=True,
        ).stdout
        found = re.findall(r"^ *Test +#(\d+): (\S+)", shown, re.MULTILINE)
        return sorted(((int(number), name) for number, name in found), key=lambda test: test[1])

    def again(self, stage, jobs):
        """Run one share of the tests on further MPIs: the number of commits selects the share."""
        commits = subprocess.run(
            ["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout
        turn = int(commits or 0) % AGAIN_SHARES
        numbers = [str(number) for number, _ in self.tests_of(stage, AGAIN_LABEL)[turn::AGAIN_SHARES]]
        if not numbers:
            return Count()
        what = f"share {turn + 1} of {AGAIN_SHARES} of the tests on further MPIs"
        return self.ctest(stage, what, "-I", ",".join(["0,0,0", *numbers]), *jobs)

    def test(self, stage, all_of_them=False):
        """Build a stage and run its tests. Without `all_of_them`: one share of the tests on further MPIs, no long tests."""
        problem = self.build(stage)
        if problem:
            return problem
        jobs = ["--no-tests=ignore", "-j", str(cores())]
        count = self.ctest(stage, "tests of one process", "-L", PARALLEL_LABELS, *jobs)
        left_out = PARALLEL_LABELS if all_of_them else f"{PARALLEL_LABELS}|{AGAIN_LABEL}|{LONG_LABEL}"
        count.add(self.ctest(stage, "tests of several processes", "-LE", left_out, *jobs))
        if not all_of_them:
            count.add(self.again(stage, jobs))
        if count.passed + count.failed == 0:
            count.add(one_failure(f"{stage.name}: no tests"))
        return count

    def fast(self):
        problem = self.build(STAGES[0])
        return problem or self.ctest(STAGES[0], "fast tests", "-L", FAST_LABELS, "-j", str(cores()))

    def soak(self, seconds):
        """Repeat the tests with a random part, each time with another seed, until `seconds` have passed or a test fails."""
        problem = self.build(STAGES[0])
        if problem:
            return problem
        count = Count()
        end = time.monotonic() + seconds
        while time.monotonic() < end and count.failed == 0:
            seed = str(random.SystemRandom().randrange(2**31))
            count.add(self.ctest(STAGES[0], f"LARKLANE_SEED={seed}", "-L", SOAK_LABELS, LARKLANE_SEED=seed, LARKLANE_SOAK="1"))
        return count


def parse_duration(text):
    """@return the seconds of a duration like 90s, 30m, 4h"""
    match = re.fullmatch(r"(\d+)([smh])", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text}: expected a number with s, m or h, like 4h")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [stage.name for stage in STAGES]
    parser.add_argument("--stage", action="append", choices=names, help="only this stage (repeatable)")
    parser.add_argument("--fast", action="store_true", help="release only: unit, property, tidy and quick tests")
    parser.add_argument("--nightly", action="store_true", help="all tests: on every MPI, and those that take minutes")
    parser.add_argument("--soak", type=parse_duration, metavar="TIME", help="tests with seeds, over and over, like 4h")
    parser.add_argument("--no-setup", action="store_true", help="don't install anything first")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    driver = Driver()
    if not (arguments.no_setup or arguments.fast or arguments.soak):
        driver.heading("setup")
        driver.run([sys.executable, "scripts/dev/setup.py"])
    total = Count()
    if arguments.fast:
        total.add(driver.fast())
    elif arguments.soak:
        total.add(driver.soak(arguments.soak))
    else:
        for stage in STAGES:
            if not arguments.stage or stage.name in arguments.stage:
                count = driver.test(stage, all_of_them=arguments.nightly)
                print(f"{stage.name}: {count}", flush=True)
                total.add(count)
    driver.heading("done")
    if not (arguments.fast or arguments.soak or arguments.nightly or arguments.stage):
        driver.show_budgets()
    for failure in total.failures:
        print(f"failed: {failure}")
    print(total)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
