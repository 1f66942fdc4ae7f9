#!/usr/bin/env python3
"""Runs the conformance suite on one MPI, natively or under Larklane, and reports which rules hold.

Natively each case is a launch of its own, because one failure ruins the next. Under Larklane all cases of one thread level and
number of ranks share a launch; if one crashes or hangs, the cases after it are started again.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "mp"), str(HERE.parent / "hosts")]
import hosts  # noqa: E402
import launch  # noqa: E402

LEVELS = ("single", "funneled", "serialized", "multiple")
# Under Larklane a pair that is left to the MPI would pass natively and prove nothing about Larklane: it is an error.
OURS = {"LARKLANE_UNREACHABLE": "refuse"}
MODES = {
    "native": {},
    "auto": {**OURS},
    # Partitions that attach alone would otherwise wait for the rest of their group: rule P5 is checked with groups of one.
    "attach": {**OURS, "LARKLANE_SHM_SLOT_BYTES_MAX": "0", "LARKLANE_POLICY": "none"},
    # Aggregated, and early all the same: a waiting thread sees the deadline.
    "timer": {**OURS, "LARKLANE_SHM_SLOT_BYTES_MAX": "0", "LARKLANE_POLICY": "timer:20us"},
    # Aggregated, and early all the same: a receiver that asks takes the partitions.
    "learned": {**OURS, "LARKLANE_SHM_SLOT_BYTES_MAX": "0", "LARKLANE_POLICY": "learned"},
    "slots": {**OURS, "LARKLANE_SHM_ATTACH": "off"},
    # Over a network, though on one host: each pushes or pulls.
    "ofi": {**OURS, "LARKLANE_PROVIDER": "ofi:tcp@lo"},
    "ofi-none": {**OURS, "LARKLANE_PROVIDER": "ofi:tcp@lo", "LARKLANE_POLICY": "none"},
    # Aggregated, and early all the same: a receiver that asks again and again demands.
    "ofi-timer": {**OURS, "LARKLANE_PROVIDER": "ofi:tcp@lo", "LARKLANE_POLICY": "timer:20us"},
    # Ordinary messages on lanes.
    "p2p": {"LARKLANE_P2P": "on"},
    "verbs": {**OURS, "LARKLANE_PROVIDER": "verbs"},
    # libfabric makes its queues for so many processes: the device of the guest has no room for 256, as it would have it.
    "ofi-verbs": {**OURS, "LARKLANE_PROVIDER": "ofi:verbs;ofi_rxm", "FI_UNIVERSE_SIZE": "16"},
    # Between two hosts (tests/hosts), one rank on each.
    "hosts": {**OURS, "LARKLANE_PROVIDER": "ofi:tcp@eth0", "CONFORMANCE_BOARD": "/tmp"},
}
# Cases of two ranks that show nothing between hosts.
BETWEEN_HOSTS = {
    "X1_contexts_of_every_constructor_are_separate": "MPI_COMM_TYPE_SHARED has one rank there",
    "X1_spawned_by_parents_and_child": "worlds that meet are left to the MPI", "X1_spawned_children_of_two_commands": "likewise",
    "X1_spawned_child": "likewise", "X1_connected_processes": "likewise", "X1_connected_worlds": "likewise",
    "X1_spawned_child_of_plain_MPI": "Open MPI 5's launcher may crash when it spawns across hosts",
    "C3_ten_thousand_rounds": "takes long; the mode ofi has it", "C5_reused_10000_times": "likewise",
}
# Over a network, where groups are held together: an answer takes as long as a message.
ASKED_ONCE = dict.fromkeys(("P5_early_bird_asked_once_after_a_pause", "P5_early_bird_bound_to_one_core_each"),
                           "whoever asks once has asked too late; the mode ofi-none has it")
# In the guest of tests/rdma one case would take as long as all others.
LEAVES_OUT = {"ofi": ASKED_ONCE, "ofi-timer": ASKED_ONCE,
              "verbs": {**ASKED_ONCE, "C5_reused_10000_times": "takes long; on the host other modes have it, and cycles over verbs are in network_life_test"},
              "hosts": {**ASKED_ONCE, **BETWEEN_HOSTS}}
# Nothing has to match on both sides: rank 0 groups its partitions in another way than the others.
OTHER_POLICIES = ("sh", "-c", 'if [ "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" = 0 ]; then LARKLANE_POLICY=static:3; '
                  'else LARKLANE_POLICY=single; fi; export LARKLANE_POLICY; exec "$@"', "sh")
NOT_TRIED = ("hang", "crash", "late")  # failures known of a native MPI that would cost time, or the cases behind them
NATIVE_S, OURS_S = 20, 80  # that a case may take: some MPIs hang, Larklane only on a machine that has no time for it
RESTARTS_MAX = 12
# Their own spawning hangs now and then, natively too: the children never leave PMIx_Init (4 of 30 native launches of the cases that spawn).
SPAWN_HANGS = ("openmpi4",)
SPAWNS_MAX = 4  # then it is a failure
LATES_MAX = 3  # likewise: a case that is never early is late each time, one that waited for a core is not
NOT_RUN = "not run"
VERDICT = re.compile(r"^(ok|not ok|skip) ([A-Za-z0-9_]+)(?:: (.*))?$", re.MULTILINE)
GAVE_UP = re.compile(r"^gave up ([A-Za-z0-9_]+)$", re.MULTILINE)
KIND = re.compile(r"^(rank \d+): (error|wrong data|late|hang): (.*)$")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    ranks: int
    level: str
    rule: str
    traits: frozenset


@dataclasses.dataclass(frozen=True)
class Result:
    """`kind`: ok, skip, error, wrong data, late, hang or crash."""

    name: str
    kind: str
    text: str
    seconds: float = 0


def list_cases(program: str) -> list[Case]:
    lines = subprocess.run([program, "--list"], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    fields = [line.split() for line in lines]
    return [Case(f[0], int(f[1]), f[2], f[3], frozenset(f[4:])) for f in fields]


def known_failures(path: str | None, mpi: str) -> dict[str, str]:
    """Kind of each failure that the MPI is known to have natively. A line: MPI, kind, case, reason; # begins a comment."""
    lines = pathlib.Path(path).read_text().splitlines() if path else []
    fields = [line.split(None, 3) for line in lines if line and line[0] != "#"]
    return {f[2]: f[1].replace("_", " ") for f in fields if f[0] == mpi}


def verdicts(output: str) -> dict[str, Result]:
    """The verdicts in the ranks' output. Of several failures of one case, one that is not a hang has the most information."""
    found: dict[str, Result] = {}
    for word, name, text in VERDICT.findall(output):
        kind = {"ok": "ok", "skip": "skip"}.get(word, "error")
        if word == "not ok":
            parts = KIND.match(text)
            if parts:
                kind, text = parts[2], f"{parts[1]}: {parts[3]}"
        old = found.get(name)
        if old is None or old.kind in ("ok", "hang"):
            found[name] = Result(name, kind, text)
    return found


class Runner:
    """Launches groups of cases. `prefix` stands before the program: [] or larklane's run command."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.mpi = launch.EVERY[args.mpi]
        self.hosts: hosts.Hosts | None = None
        self.program = args.program
        self.before: tuple = ()
        self.prefix = [] if args.mode == "native" else [args.larklane, "run"]
        self.environment = dict(MODES[args.mode])
        self.environment.update(e.split("=", 1) for e in args.env)
        self.deadline_s = args.deadline or (NATIVE_S if args.mode == "native" else OURS_S)
        self.deadline = ["--deadline", str(self.deadline_s)]
        self.logs = args.logs
        self.spawn_hangs = args.mpi in SPAWN_HANGS
        self.is_emulated = args.emulated
        self.spawns: collections.Counter = collections.Counter()
        self.lates: collections.Counter = collections.Counter()
        self.known = known_failures(args.known, args.mpi)
        self.is_one_launch = args.mode == "native" and bool(args.known)  # and no more for thread levels and sessions
        self.results: list[Result] = []
        self.notes: list[str] = []

    def launch(self, ranks: int, arguments: list[str], timeout_s: float) -> launch.Outcome:
        command = [*self.before, *self.prefix, self.program, *self.deadline, *arguments]
        if self.hosts:
            return self.hosts.run(self.mpi, 1, command, timeout_s, self.environment, keep_logs_in=self.logs)
        return launch.launch(self.mpi, ranks, command, timeout_s, self.environment, keep_logs_in=self.logs)

    def one(self, case: Case, suffix: str = "") -> None:
        """A launch for one case alone: a crash afterwards counts, too."""
        arguments = ["--sessions"] if suffix == "@sessions" else []
        outcome = self.launch(case.ranks, [*arguments, "--level", case.level, "--run", case.name],
                              3 * self.deadline_s + 30)
        if outcome.status == launch.SKIP:
            return
        found = verdicts(outcome.output)
        result = found.get(case.name)
        if result is None or (result.kind == "ok" and outcome.status != 0):
            late = found.get("FINALIZE")
            result = late or Result(case.name, "hang" if outcome.status == launch.TIMED_OUT else "crash",
                                    last_words(outcome))
        self.add(dataclasses.replace(result, name=case.name + suffix, seconds=outcome.seconds))

    def group(self, cases: list[Case], level: str, suffix: str = "") -> None:
        """All cases in as few launches as possible. They have the same number of ranks."""
        left = [c.name for c in cases]
        restarts = 0
        while left:
            arguments = ["--level", level, *(["--sessions"] if suffix == "@sessions" else [])]
            outcome = self.launch(cases[0].ranks, [*arguments, "--run", *left], 20 * self.deadline_s)
            if outcome.status == launch.SKIP:
                self.notes.append(f"skipped level {level}{suffix}: not offered by this MPI")
                return
            found = verdicts(outcome.output)
            again = []
            for name in [n for n in left if n in found]:
                result = dataclasses.replace(found[name], name=name + suffix)
                left.remove(name)
                if self.is_spawn_by_chance(result) or self.is_late_by_chance(result):
                    again.append(name)
                else:
                    self.add(result)
            if not left:
                if outcome.status not in (0, 1) and not GAVE_UP.search(outcome.output):
                    late = found.get("FINALIZE")
                    self.add(Result(f"FINALIZE{suffix}", late.kind if late else "crash",
                                    late.text if late else last_words(outcome)))
            elif not GAVE_UP.search(outcome.output):
                name = left.pop(0)
                self.add(Result(name + suffix,
                                "hang" if outcome.status == launch.TIMED_OUT else "crash",
                                last_words(outcome)))
            left += again
            restarts += 1
            if restarts > RESTARTS_MAX and left:
                self.notes.append(f"{len(left)} cases not run: more than {RESTARTS_MAX} restarts")
                for name in left:
                    self.add(Result(name + suffix, "crash", NOT_RUN))
                return

    def is_spawn_by_chance(self, result: Result) -> bool:
        """It hung where this MPI itself may, or failed once (UCX opens memory of a process that is just ending): to be tried again, and noted."""
        has_hung = self.spawn_hangs and result.kind == "hang" and "deadline passed while spawning" in result.text
        if not has_hung and "MPI_Comm_spawn fails only under Larklane" not in result.text:
            return False
        return self.is_tried_again(self.spawns, SPAWNS_MAX, f"{result.name}: {result.text}, as it may natively", result)

    def is_late_by_chance(self, result: Result) -> bool:
        """It was late, perhaps because the machine was busy: to be tried again, and noted."""
        if result.kind != "late" or self.is_emulated:
            return False
        return self.is_tried_again(self.lates, LATES_MAX, f"{result.name}: late: {result.text}", result)

    def is_tried_again(self, counts: collections.Counter[str], most: int, why: str, result: Result) -> bool:
        counts[result.name] += 1
        if counts[result.name] >= most:
            return False
        self.notes.append(f"tried again: {why}")
        return True

    def add(self, result: Result) -> None:
        if self.is_emulated and result.kind == "late":
            self.notes.append(f"late, which says nothing on an emulated machine: {result.name}: {result.text}")
            result = dataclasses.replace(result, kind="ok")
        known = self.known.get(result.name)
        if known and known == result.kind:
            result = dataclasses.replace(result, kind="known")
        elif known and result.kind == "ok":
            self.notes.append(f"passed, though {known} is known of it: {result.name}")
        self.results.append(result)
        if result.kind == "known":
            print(f"known {result.name}: {result.text}", flush=True)
        elif result.kind not in ("ok", "skip") and result.text != NOT_RUN:
            print(f"not ok {result.name}: {result.kind}: {result.text}", flush=True)


def last_words(outcome: launch.Outcome) -> str:
    """The end of a dead launch's output, in one line, without names of hosts and processes."""
    lines = []
    for line in outcome.output.splitlines():
        line = re.sub(r"\[[\w.-]+: *\d+[^\]]*\] *", "", line).strip(" *")
        if line and not VERDICT.match(line) and not GAVE_UP.match(line) and not set(line) <= set("=-"):
            lines.append(line)
    telling = [line for line in lines if re.search(r"Segmentation|Assert|Abort|rror|signal", line)]
    return f"status {outcome.status}; " + " / ".join((telling or lines)[:1])[:160]


def run_all(runner: Runner, cases: list[Case], native: bool, extras: bool) -> None:
    if native:
        for case in cases:
            runner.one(case)
            if "sessions" in case.traits:
                runner.one(case, "@sessions")
        return
    for ranks in sorted({c.ranks for c in cases}):
        mine = [c for c in cases if c.ranks == ranks]
        runner.group(mine, "multiple")
        if runner.is_emulated or runner.is_one_launch:  # once is enough where all is slow: thread levels and sessions are the MPI's
            continue
        for level in LEVELS[:3]:
            again = [c for c in mine if "every-level" in c.traits
                     and LEVELS.index(c.level) <= LEVELS.index(level)]
            if again:
                runner.group(again, level, "@" + level)
        if extras and ranks == 2:
            runner.before = OTHER_POLICIES
            runner.group([c for c in mine if c.rule in ("I7", "C3")], "multiple", "@policies")
            runner.before = ()
        if extras:
            again = [c for c in mine if "sessions" in c.traits]
            if again:
                runner.group(again, "multiple", "@sessions")


def try_late_again(runner: Runner, cases: list[Case]) -> None:
    """Between hosts 0.2 s are not much on a busy machine. tests/hosts/pairs.c has early arrival without a clock."""
    by_name = {case.name: case for case in cases}
    for result in [result for result in runner.results if result.kind == "late"]:
        name, _, suffix = result.name.partition("@")
        case = by_name[name]
        if suffix in LEVELS:
            case = dataclasses.replace(case, level=suffix)
        runner.results.remove(result)
        runner.notes.append(f"tried again: {result.name}: {result.text}")
        runner.one(case, f"@{suffix}" if suffix else "")


def companions(runner: Runner, program: str) -> None:
    """Programs in other languages that lie beside the suite: conformance_*. They print the same verdicts."""
    for path in sorted(pathlib.Path(program).parent.glob("conformance_*")):
        if not path.is_file() or not path.stat().st_mode & 0o100:
            continue
        runner.program = str(path)
        runner.deadline = []
        outcome = runner.launch(2, [], 240)
        found = verdicts(outcome.output)
        for result in found.values():
            runner.add(result)
        if not found or outcome.status not in (0, 1):
            runner.add(Result(path.name, "crash", last_words(outcome)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", required=True, choices=launch.EVERY)
    parser.add_argument("--mode", required=True, choices=MODES)
    parser.add_argument("--program", required=True, help="the suite, compiled for this MPI")
    parser.add_argument("--larklane", help="the command; needed but for --mode native")
    parser.add_argument("--run", nargs="+", metavar="NAME", help="only these cases")
    parser.add_argument("--rule", metavar="ID", help="only cases of this rule")
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME",
                        help="leave these cases out, and say so")
    parser.add_argument("--known", metavar="FILE",
                        help="failures that this MPI has natively; natively its cases then share a launch for each number of ranks")
    parser.add_argument("--big", action="store_true", help="only the cases that need gigabytes")
    parser.add_argument("--each", action="store_true", help="a launch for each case")
    parser.add_argument("--deadline", type=float, help="seconds a case may take at most")
    parser.add_argument("--emulated", action="store_true",
                        help="processors are emulated in software: nothing is prompt, so what is only late has passed")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--logs", help="folder for the logs of failed launches")
    parser.add_argument("--json", help="write all results there")
    args = parser.parse_args()
    if args.mode != "native" and not args.larklane:
        parser.error("--mode other than native needs --larklane")
    if not launch.EVERY[args.mpi].installed():
        print(f"run: {launch.EVERY[args.mpi].title} is not installed")
        return launch.SKIP
    if args.logs:
        pathlib.Path(args.logs).mkdir(parents=True, exist_ok=True)
    cases = [c for c in list_cases(args.program) if ("big" in c.traits) == args.big]
    if args.run:
        cases = [c for c in list_cases(args.program) if c.name in args.run]
    if args.rule:
        cases = [c for c in cases if c.rule == args.rule]
    reasons = {} if args.run else LEAVES_OUT.get(args.mode, {})
    for case in [c for c in cases if c.name in args.without or c.name in reasons]:
        print(f"left out: {case.name}{': ' if case.name in reasons else ''}{reasons.get(case.name, '')}")
        cases.remove(case)
    begin = time.monotonic()
    runner = Runner(args)
    for case in [c for c in cases if runner.known.get(c.name) in NOT_TRIED]:
        print(f"left out: {case.name}: {runner.known[case.name]} natively")
        cases.remove(case)
    whole = not (args.run or args.rule or args.big)
    if args.mode == "hosts":
        cases = [c for c in cases if c.ranks == len(hosts.Hosts.NAMES)]
    try:
        with hosts.Hosts() if args.mode == "hosts" else contextlib.nullcontext() as runner.hosts:
            run_all(runner, cases, (args.mode == "native" and not args.known) or args.each, whole)
            if runner.hosts:
                try_late_again(runner, cases)
            if whole:
                companions(runner, args.program)
    except hosts.Unavailable as why:
        print(f"skipped: {why}")
        return launch.SKIP
    for note in runner.notes:
        print(note)
    kinds = collections.Counter(r.kind for r in runner.results)
    failed = sum(n for kind, n in kinds.items() if kind not in ("ok", "skip", "known"))
    detail = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()) if kind != "ok")
    print(f"{args.mpi} {args.mode}: {kinds['ok']} passed, {failed} failed"
          f"{' (' + detail + ')' if detail else ''} in {time.monotonic() - begin:.0f} s")
    if args.json:
        record = {"schema": 1, "mpi": args.mpi, "title": launch.EVERY[args.mpi].title,
                  "mode": args.mode, "results": [dataclasses.asdict(r) for r in runner.results]}
        pathlib.Path(args.json).write_text(json.dumps(record, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
