#!/usr/bin/env python3
"""The ranks' agreement in MPI_Init on ordinary messages (option p2p): the same decision on all, no wait without end, one sentence.

  agreement_test.py --build DIR CASE MPI    one case, on one MPI of launch.py
  agreement_test.py --list                  `CASE MPI` of every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import itertools
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import launch  # noqa: E402
import stub_test  # noqa: E402
from checks import expect  # noqa: E402

MPIS = ("mpich5", "openmpi5", "mpich5_abi", "mpich4")
RANKS = 5
OWNED, NATIVE = "carried by Larklane, with", "left to the MPI: "
HOOK, NO_HOOK = f"{OWNED} the MPI's progress hook", f"{OWNED}out a progress hook in the MPI"
# Hides the death of a rank from the launcher until another one is over: launchers kill the remaining ranks, some even with an option against it.
KEEP = 'over=$1; shift; "$@"; if [ $? = 137 ]; then until [ -e "$over" ]; do sleep 0.05; done; else touch "$over"; fi'
# The launcher learns of a rank's death after 2 s.
LATE = '"$@"; status=$?; if [ $status = 137 ]; then sleep 2; fi; exit $status'
# Rank $1 gets the variable $2, or runs without Larklane.
ONE = ('odd=$1; what=$2; shift 2; if [ "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" = "$odd" ]; then '
       'if [ "$what" = without ]; then shift 2; else export "$what"; fi; fi; exec "$@"')
# Rank $1 runs the program $2 under Larklane.
OTHER = 'odd=$1; other=$2; shift 2; if [ "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" = "$odd" ]; then set -- "$1" "$2" "$other"; fi; exec "$@"'


class Bench(stub_test.Bench):
    def __init__(self, build, scratch, mpi):
        super().__init__(build, scratch, mpi)
        self.world = self.compile("world", HERE / "agreement/world.c", compiler=self.mpi.wrapper)
        self.fault = self.compile("fault_at.so", HERE / "agreement/fault_at.c", flags=("-shared", "-fPIC", "-ldl"))
        self.driver = self.compile("libcuda.so.1", HERE / "agreement/driver.c", flags=("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"))

    def run(self, *arguments, before=(), ranks=RANKS, status=0, **env):
        """A launch; before: words before `larklane run`."""
        command = [*before, str(self.command), "run", str(self.world), *arguments]
        outcome = launch.launch(self.mpi, ranks, command, 60, {"LARKLANE_P2P": "on", "LARKLANE_LOG_LEVEL": "info", **env})
        expect(outcome.status != launch.TIMED_OUT, "it does not end", outcome.output)
        expect(status is None or outcome.status == status, f"status {outcome.status}, not {status}", outcome.output)
        return outcome

    def struck(self, fault, *arguments, is_kept=False, before=(), **env):
        """A launch with a fault of fault_at.c."""
        if is_kept:
            before = ["sh", "-c", KEEP, "keep", str(self.scratch / "over")]
        (self.scratch / "over").unlink(missing_ok=True)
        return self.run(*arguments, before=[*before, "env", f"LD_PRELOAD={self.fault}", f"FAULT_AT={fault}"], **env)


def decisions(outcome):
    """The decision that each rank reports: its line's text from the verb on, and the level."""
    found = {}
    for rank, output in outcome.by_rank.items():
        for level, text in re.findall(r"^larklane: (\w+): rank \d+: point-to-point messages are (.*)$", output, re.M):
            expect(rank not in found, f"rank {rank} reports twice", outcome.output)
            found[rank] = (level, text)
    return found


def expect_owned(outcome, ranks):
    found = decisions(outcome)
    expect(sorted(found) == sorted(ranks) and all(text.startswith(OWNED) for _, text in found.values()), f"not owned by all: {found}", outcome.output)


def expect_native(outcome, ranks, speaker, reason):
    """All `ranks` report a decision against Larklane. One warns, the others inform."""
    found = decisions(outcome)
    expect(sorted(found) == sorted(ranks), f"ranks {sorted(found)} report", outcome.output)
    for rank, (level, text) in found.items():
        expect(level == ("warn" if rank == speaker else "info"), f"rank {rank}: {level}", outcome.output)
        expect(text.startswith(NATIVE) and re.search(reason, text), f"rank {rank}: {text}", outcome.output)


def others(*without):
    return [rank for rank in range(RANKS) if rank not in without]


def owned(bench):
    """All ranks are alike, or one is slow by 5 s: Larklane's. Without the option nothing is said, and no thread runs."""
    has_hook = bench.mpi.name in ("mpich5", "openmpi5")
    for option, is_on in (("on", has_hook), ("off", False)):
        outcome = bench.run(LARKLANE_P2P_HOOK=option)
        expect_owned(outcome, range(RANKS))
        expect(all(text == (HOOK if is_on else NO_HOOK) for _, text in decisions(outcome).values()), f"hook {option}", outcome.output)
    expect_owned(bench.run(ranks=1), range(1))
    summary = bench.run(LARKLANE_SUMMARY="on", LARKLANE_LOG_LEVEL="warn").output
    expect(summary.count(f": point-to-point messages are {OWNED}") == RANKS, "not in the summary", summary)
    expect_owned(bench.struck("3:5:32:1:before"), range(RANKS))
    quiet = bench.run(LARKLANE_P2P="off")
    expect("point-to-point" not in quiet.output, "it reports a decision", quiet.output)


def native(bench):
    """A rank without Larklane, without the option, with another one, another version or ABI, wherever it stands: the MPI's."""
    def with_one(rank, what):
        return bench.run(before=["sh", "-c", ONE, "sh", str(rank), what])

    for odd in range(RANKS):
        speaker = 1 if odd == 0 else 0
        expect_native(with_one(odd, "without"), others(odd), speaker, f"rank {odd} runs without this Larklane, or has ended; remedy: ")
    for odd in (0, 1, 4):
        expect_native(with_one(odd, "LARKLANE_P2P=off"), others(odd), 1 if odd == 0 else 0, f"rank {odd} has option p2p off; remedy: ")
    for odd in (0, 3):
        expect_native(with_one(odd, "LARKLANE_VCI_COUNT_MAX=3"), range(RANKS), 0, r"rank \d has other values of vci_count_max")
    for odd in (0, 4):
        expect_native(with_one(odd, f"LD_PRELOAD={bench.driver}"), range(RANKS), 0, f"rank {odd} has a GPU's driver loaded")
    for odd in (1, 4):
        expect_native(bench.struck(f"{odd}:version:32:1:before"), range(RANKS), 0, f"rank {odd} runs another version of Larklane; remedy: ")
    if bench.mpi.name == "mpich5":
        other_abi = bench.compile("world_abi", HERE / "agreement/world.c", compiler=launch.MPIS["mpich5_abi"].wrapper)
        for odd in (0, 4):
            mixed = bench.run(before=["sh", "-c", OTHER, "sh", str(odd), str(other_abi)])
            expect_native(mixed, range(RANKS), 0, r"rank \d runs an MPI of another ABI; remedy: ")
    by_hand = launch.launch(bench.mpi, 2, ["env", f"LD_PRELOAD={bench.preload}", str(bench.world)], 60, {"LARKLANE_P2P": "on"})
    expect(by_hand.status == 0 and by_hand.output.count("p2p is on, but liblarklane_preload.so leaves messages to the MPI") == 2,
           "the plain stub by hand: not said", by_hand.output)


def auto(bench):
    """p2p = auto owns the worlds that larklane info lists, on all ranks alike, and says nothing of others but on request."""
    title, levels = {"mpich5": ("MPICH 5", ("", "multiple")), "mpich5_abi": ("MPICH 5", ("", "multiple")),
                     "openmpi5": ("Open MPI 5", ("multiple",)), "mpich4": ("MPICH 4", ())}[bench.mpi.name]
    info = subprocess.run([bench.command, "info"], check=True, capture_output=True, text=True).stdout
    expect(bool(levels) == (f"auto owns  {title}, " in info), f"larklane info does not agree about {title}", info)
    for level in ("", "multiple"):
        outcome = bench.run(*level.split(), LARKLANE_P2P="auto")
        if level in levels:
            expect_owned(outcome, range(RANKS))
        elif levels:  # at another level
            expect_native(outcome, range(RANKS), None, r"rank \d has p2p = auto, which owns no world of this MPI at its thread level: larklane info ")
        else:
            expect(not decisions(outcome), "it takes part in a decision", outcome.output)
        quiet = bench.run(*level.split(), LARKLANE_P2P="auto", LARKLANE_LOG_LEVEL="warn")
        expect("point-to-point" not in quiet.output, "it speaks unasked", quiet.output)


def faults(bench):
    """Late, or killed at any moment: the same decision on all others, or the job ends with a sentence."""
    expect_native(bench.struck("3:3:32:1:before", LARKLANE_CONTROL_CONNECT_NS="1s"), range(RANKS), 0,
                  r"rank \d has not come within 1s \(option control_connect_ns\)")
    for victim in (1, 3):
        expect_native(bench.struck(f"{victim}:kill:32:1:before", "leave", is_kept=True, status=None, LARKLANE_CONTROL_CONNECT_NS="4s"), others(victim), 0,
                      rf"rank {victim} (has ended in MPI_Init|runs without this Larklane, or has ended)|rank \d has not come within 4s")
    expect_owned(bench.struck("3:kill:32:1:after", "leave", is_kept=True, status=None), others(3))
    outcome = bench.struck("0:kill:33:1:before", is_kept=True, status=None)
    expect(outcome.status != 0, "it ends well", outcome.output)
    expect("the other ranks' decision is not known: the job is aborted" in outcome.output, "no sentence", outcome.output)
    expect("initialised" not in outcome.output, "a rank goes on", outcome.output)
    # The launcher ends the job as soon as it learns of the death: the parent has spoken before. Its other child keeps the decision open.
    outcome = bench.struck("3:kill:32:1:after,4:1:32:1:before", before=["sh", "-c", LATE, "late"], status=None)
    expect(outcome.status != 0, "it ends well", outcome.output)
    said = re.findall(r"larklane: error: rank (\d): rank 3 has ended in MPI_Init, after its yes", outcome.output)
    expect(said == ["1"], f"ranks {said} say why", outcome.output)


def tags(bench):
    """Lanes by tag: if all ranks have MPI_THREAD_MULTIPLE, two lanes and the option; else a lane for each communicator, on all ranks."""
    def texts(outcome):
        expect_owned(outcome, range(RANKS))
        return {text.endswith(", each tag on its lane") for _, text in decisions(outcome).values()}

    def with_one(rank, what):
        return bench.run("multiple", before=["sh", "-c", ONE, "sh", str(rank), what], LARKLANE_VCI_COUNT_MAX="2")

    outcome = bench.run("multiple", LARKLANE_VCI_COUNT_MAX="2")
    expect(texts(outcome) == {True}, "not on by default", outcome.output)
    outcome = bench.run("multiple", LARKLANE_VCI_COUNT_MAX="2", LARKLANE_P2P_LANES_BY_TAG="off")
    expect(texts(outcome) == {False}, "off: on", outcome.output)
    for variables in ({"LARKLANE_VCI_COUNT_MAX": "1"}, {"LARKLANE_VCI_COUNT_MAX": "2", "WORLD_LEVEL": "single"}):
        outcome = bench.run("multiple", **variables)
        expect(texts(outcome) == {False}, f"{variables}: on", outcome.output)
    for odd in (0, 1, 4):
        for what in ("LARKLANE_P2P_LANES_BY_TAG=off", "WORLD_LEVEL=single"):
            outcome = with_one(odd, what)
            expect(texts(outcome) == {False}, f"rank {odd}, {what}: on", outcome.output)


def communicators(bench):
    """Hints reach the engine; siblings take lanes in turn; both sides of an intercommunicator find one id; MPI_Comm_disconnect waits for sends."""
    bench.world = bench.compile("communicators", HERE / "agreement/communicators.c", compiler=bench.mpi.wrapper)
    outcome = bench.run(ranks=4, LARKLANE_P2P_HOOK="off")
    hints, sides = {}, {}
    for rank, output in outcome.by_rank.items():
        found = re.findall(r"communicator ([0-9a-f]{32}): messages carried by Larklane, this process is rank \d+, (\d) (remote )?processes(.*)$", output, re.M)
        dups = [(identity, promised) for identity, size, remote, promised in found if size == "4" and not remote][:8]
        hints[rank] = [promised for _, promised in dups]
        turns = [int(identity[16:24], 16) for identity, _ in dups]
        expect(all((later - turn) % 2**32 == 1 for turn, later in itertools.pairwise(turns)), f"siblings don't take lanes in turn: {turns}", outcome.output)
        for identity in {identity for identity, _, remote, _ in found if remote}:
            sides.setdefault(identity, set()).add(rank)
    words = [", no any source", ", no any tag", ", overtaking"]
    wanted = ["" if keys == 5 else "".join(word for key, word in enumerate(words) if keys >> key & 1) for keys in range(8)]
    expect(all(of_rank == wanted for of_rank in hints.values()), f"hints: {hints}", outcome.output)
    expect(sorted(map(sorted, sides.values())) == sorted(5 * [[0, 1, 2, 3]] + 2 * [[1, 3]] + [[0, 1], [0, 2]]), f"intercommunicators: {sides}", outcome.output)


def cases():
    return [(case, mpi) for mpi in MPIS for case in (owned, native, auto, faults, communicators, tags)]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, Bench, __doc__))
