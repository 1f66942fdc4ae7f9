#!/usr/bin/env python3
"""The tests on a Soft-RoCE device: commands in a guest, by boots. Prints how each ended, and `N passed, N failed`.

Exit status: 0, 1 if a command failed, 77 if there is no guest or none of the boot's commands can be run.
"""

import argparse
import dataclasses
import pathlib
import re
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import guest  # noqa: E402
import prepare  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Check:
    """A command: {build}, {deps} and {tests} in its text are folders. `expected`: patterns that its output must contain. `needs`: programs and files without
    which it is skipped."""

    name: str
    text: str
    limit_s: int
    expected: tuple = ()
    needs: tuple = ()


# Two processes: the server listens before the client calls.
PINGPONG = """
pingpong="ibv_rc_pingpong -d rxe0 -g 1 -s 65536 -n 200 -c"
$pingpong & until ss -Hltn 'sport = 18515' | grep -q .; do kill -0 $! || exit 1; sleep 0.1; done
$pingpong 127.0.0.1 && wait $!"""
MPIEXEC = "HYDRA_LAUNCHER=fork {deps}/mpich/bin/mpiexec"
EXCHANGE = "{build}/tests/hosts/mpich5/exchange"
IN_MPICH = ("{deps}/mpich/bin/mpiexec", EXCHANGE)

# The suite under Larklane, on MPICH: over verbs all but three cases (LEAVES_OUT in run.py).
CONFORMANCE = (
    "python3 {tests}/conformance/run.py --mpi mpich5 --mode MODE --emulated --deadline 60 --logs /tmp/conformance"
    " --program {build}/tests/conformance/mpich5/conformance --larklane {build}/bin/larklane"
)
OVER_VERBS = CONFORMANCE.replace("MODE", "verbs")
IN_CONFORMANCE = ("{deps}/mpich/bin/mpiexec", "{build}/tests/conformance/mpich5/conformance", "{build}/bin/larklane")
CROWD = f"LARKLANE_PROVIDER=verbs LARKLANE_POLICY=none {MPIEXEC} -n 2 {{build}}/bin/larklane run {{build}}/tests/rdma/crowd"
IN_CROWD = ("{deps}/mpich/bin/mpiexec", "{build}/tests/rdma/crowd", "{build}/bin/larklane")
# Order of transfers, refusals, types, many requests at once.
SOME = (
    "I2_equal_tags_match_in_init_order I9_vector_to_vector S1_startall_of_fresh_requests R3_double_pready C2_test_before_every_pready"
    " C5_free_between_rounds C8_waitall E1_sizes_differ M_sender_asleep_after_pready P5_early_bird_is_prompt"
)
OWN_QUEUES = "I2_equal_tags_match_in_init_order I9_vector_to_vector C5_free_between_rounds M_sender_asleep_after_pready P5_early_bird_is_prompt"

PROVIDER = "{build}/tests/net/provider_test --folder {build}/lib verbs"
# libfabric sizes its queues for so many processes: for 256 of them the device has no room.
UNIVERSE = "FI_UNIVERSE_SIZE=16"
OFI_PROVIDER = (
    "for case in memory broken_offers write_immediate read immediates_each_once full_queue bounds killed_peer; do"
    f" {UNIVERSE} {{build}}/tests/net/provider_test --folder {{build}}/lib --case $case ofi 'verbs;ofi_rxm' || exit 1; done"
)
LIFE = "{build}/tests/prop/network_life_test"

# The provider chosen for a peer on another host, and the skipped ones: here `verbs`, whose GID is not there.
PEER = "{build}/bin/larklane info --peer 10.9.0.2 && LARKLANE_VERBS_GID_INDEX=200 {build}/bin/larklane info --peer 10.9.0.2"
SILENT = "python3 {tests}/rdma/silent.py {build}"
IN_SILENT = ("{deps}/mpich/bin/mpiexec", "{build}/tests/hosts/mpich5/pairs", "{build}/bin/larklane")

# Four ranks on two hosts (namespaces), each with the device; one of them does not use it.
BY_PAIR = "python3 {tests}/hosts/pairs_test.py mpich5 --build {build} --run over_verbs_but_for_one"

# Each partition is seen to arrive before the next is ready; a marked partition comes while its sender is outside of the MPI: by no clock.
PAIRS = (
    "for what in early pull; do rm -rf /tmp/pairs; mkdir /tmp/pairs; LARKLANE_PROVIDER=verbs LARKLANE_UNREACHABLE=refuse"
    f" {MPIEXEC} -n 2 {{build}}/bin/larklane run {{build}}/tests/hosts/mpich5/pairs $what /tmp/pairs || exit 1; done"
)

# Programs in seeded orders, against a model.
PROPERTY = "{build}/tests/prop/network_real_test --folder {build}/lib"
IN_PROPERTY = ("{build}/tests/prop/network_real_test",)
OFI_VERBS = f"{UNIVERSE} {PROPERTY} --seeds 15 ofi:verbs"

# Messages between native processes, as tests/mp/messages_test.py has them over shm and tcp: fewer, as all is slow here.
LAUNCH = "LARKLANE_MESSAGE_PROVIDER=verbs LARKLANE_VCI_COUNT_MAX={lanes} {{build}}/bin/larklane launch -n"
PROGRAMS = "{build}/tests/mp/messages"


def messages(name: str, program: str, ways: str, expected: str, processes: int, lanes: int = 2) -> Check:
    text = f"for way in {ways}; do {LAUNCH.format(lanes=lanes)} {processes} {PROGRAMS}/{program} || exit 1; done"
    return Check(f"messages over verbs: {name}", text, 360, (expected,), ("{build}/bin/larklane", f"{PROGRAMS}/{program.split(maxsplit=1)[0]}"))


# All commands of one boot run in one guest, one after the other. Add tests here that need the device; a boot takes 10 to 20 s.
BOOTS = {
    "device": (
        Check("the device is there and its port is active", "ibv_devinfo -d rxe0", 120, (r"hca_id:\s*rxe0", "PORT_ACTIVE"), ("ibv_devinfo",)),
        Check("RC ping-pong of two processes", PINGPONG, 240, (r"200 iters in",), ("ibv_rc_pingpong",)),
        Check("the verbs provider by itself", PROVIDER, 600, ("bounds: ok", "killed_peer: ok", "passed, 0 failed"), ("{build}/tests/net/provider_test",)),
        Check("properties of channels over verbs", PROPERTY + " --seeds 60 verbs", 240, ("PASSED",), IN_PROPERTY),
        Check("properties over queue pairs of each channel's own", f"LARKLANE_VERBS_CHANNEL_QUEUES=4 {PROPERTY} --seeds 40 verbs", 240, ("PASSED",), IN_PROPERTY),
        Check("properties over ofi's verbs", OFI_VERBS, 240, ("ofi verbs;ofi_rxm@rxe0.*PASSED",), IN_PROPERTY),
        Check("early arrival and a sleeping sender, without a clock", PAIRS, 240, (r"ok.*ok.*ok.*ok",), IN_SILENT),
        Check("conformance over verbs", OVER_VERBS, 1200, ("passed, 0 failed",), IN_CONFORMANCE),
        Check("conformance over queue pairs of each channel's own", "LARKLANE_VERBS_CHANNEL_QUEUES=4 " + OVER_VERBS + " --run " + OWN_QUEUES, 600,
              ("passed, 0 failed",), IN_CONFORMANCE),
        Check("libfabric's verbs by itself", OFI_PROVIDER, 600, (r"read: ok.*bounds: ok.*killed_peer: ok",), ("{build}/tests/net/provider_test",)),
        Check("conformance over libfabric's verbs", CONFORMANCE.replace("MODE", "ofi-verbs") + " --run " + SOME, 600, ("passed, 0 failed",), IN_CONFORMANCE),
        Check("10,000 cycles of a channel, and 64 lanes", LIFE + " --gtest_filter='Verbs/*'", 400, (r"PASSED  \] 2 tests",), (LIFE,)),
        Check("1,000 channels whose receivers do not look", CROWD, 800, (r"crowd: 1000 channels: ok",), IN_CROWD),
        Check("what a pair goes by, and a provider that is skipped", PEER, 240, (r"verbs \(verbs rxe0", r"ofi \(ofi [^)]*\).*skipped: verbs: [^;]*GID"),
              ("{build}/bin/larklane",)),
        Check("each pair by the network that both sides have", BY_PAIR, 600, ("1 passed, 0 failed",), IN_SILENT),
        messages("4 processes of 4 threads", "exchange 4 $way", "20000", r"exchange: \d+ messages", 4),
        messages("threads that wait for what hangs on another's lane", "crossed $way 5", "sends gets puts", r"sends of 5 .*gets of 5 .*puts of 5 rounds are over", 2),
        messages("a peer that is killed", "survivor $way 20", "stopped running", r"have failed.*have failed", 3),
        messages("a peer that leaves", "leaver $way", "orderly sudden", r"all has ended.*all has ended", 2),
        messages("one lane of two threads", "bystander $way", "200", r"200 messages of each thread", 2, lanes=1),
        messages("memory", "footprint used $way 2 2", "verbs", r"rounds more: heap", 4),
        Check("MPICH over shared memory", f"{MPIEXEC} -n 2 {EXCHANGE} 1", 360, ("exchange: 2 ranks on 1 hosts: ok",), IN_MPICH),
        # The last one: it takes the device's interface down.
        Check("the interface down in mid-round, while both sides wait", SILENT, 600, ("silent: ok",), IN_SILENT),
    ),
}


def folders(build: pathlib.Path) -> dict[str, str]:
    return {"build": str(build.resolve()), "deps": str(prepare.DEPS.resolve()), "tests": str(prepare.HERE.parent)}


def missing(check: Check, places: dict[str, str]) -> list[str]:
    return [need for need in (need.format(**places) for need in check.needs) if not shutil.which(need, path=prepare.PATH) and not pathlib.Path(need).exists()]


def verdict(check: Check, result: guest.Result) -> str:
    """@return the failure; empty: none"""
    if result.status == guest.NOT_REACHED:
        return "the guest was off before its end"
    if result.status == guest.TIMED_OUT:
        return f"no end within {check.limit_s} s"
    if result.status:
        return f"status {result.status}"
    absent = [pattern for pattern in check.expected if not re.search(pattern, result.output, re.DOTALL)]
    return f"its output has no {absent[0]!r}" if absent else ""


def keep(name: str, outcome: guest.Boot) -> pathlib.Path:
    """Keeps console and outputs. @return the folder"""
    place = prepare.ROOT / "results" / "rdma" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "console").write_text(outcome.console)
    for number, result in enumerate(outcome.results):
        (place / f"{number}.out").write_text(f"# {result.command.name}\n{result.command.text}\n# {result.status}\n{result.output}")
    return place


def run(name: str, build: pathlib.Path) -> int:
    places = folders(build)
    lacks = {check: missing(check, places) for check in BOOTS[name]}
    for check, what in lacks.items():
        if what:
            print(f"skip {check.name}: no {', '.join(what)}")
    checks = [check for check, what in lacks.items() if not what]
    if not checks:
        return prepare.SKIP
    commands = [guest.Command(check.name, check.text.format(**places), check.limit_s) for check in checks]
    outcome = guest.boot(commands, folder=prepare.ROOT)
    print(f"the guest was ready after {outcome.ready_s} s, off after {outcome.seconds:.1f} s")
    failed = 0
    for check, result in zip(checks, outcome.results):
        wrong = verdict(check, result)
        failed += bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} {check.name} ({result.seconds:.1f} s){': ' + wrong if wrong else ''}")
        if wrong:
            print(result.output)
    if failed:
        print(outcome.console if outcome.ready_s is None else "", f"kept in {keep(name, outcome)}")
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


def limit_s(name: str) -> int:
    """Seconds that a boot may take at most."""
    return guest.BOOT_LIMIT_S + sum(check.limit_s + guest.GRACE_S for check in BOOTS[name]) + 2 * guest.GRACE_S


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="names of the boots, and how many seconds each may take")
    parser.add_argument("--build", type=pathlib.Path, default=prepare.ROOT / "build/release", metavar="DIR")
    parser.add_argument("boot", nargs="?", choices=BOOTS)
    args = parser.parse_args()
    if args.list or not args.boot:
        print("\n".join(f"{name} {limit_s(name)}" for name in BOOTS))
        return 0
    why = guest.problem()
    if why:
        print(f"skipped: {why}")
        return prepare.SKIP
    return run(args.boot, args.build)


if __name__ == "__main__":
    sys.exit(main())
