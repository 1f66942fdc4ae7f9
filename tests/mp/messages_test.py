#!/usr/bin/env python3
"""Messages between native processes.

  messages_test.py --build DIR CASE [PROVIDER]    one case
  messages_test.py --list                         `CASE` or `CASE PROVIDER` of every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import sys

import stub_test
import trust_test
from stub_test import Skip, expect, system

PROVIDERS = {"shm": "shm", "tcp": "ofi:tcp"}


class Bench:
    def __init__(self, build, scratch, provider):
        self.name = provider
        self.provider = PROVIDERS.get(provider)
        self.build = build
        self.command = build / "bin/larklane"
        self.folder = build / "tests/mp/messages"
        self.scratch = scratch

    def launched(self, count, program, *words, **how):
        return self.ran(self.command, "launch", "-n", count, self.folder / program, *words, **how)

    def ran(self, *command, status=0, lanes=2, seconds=240, **env):
        env = {"LARKLANE_MESSAGE_PROVIDER": self.provider or "auto", "LARKLANE_VCI_COUNT_MAX": str(lanes) if lanes else None} | env
        output = system(*command, status=status, env=env, seconds=seconds)
        if "no module" in output:
            raise Skip(output)
        return output


def exchange(bench, count=1_000_000):
    """4 processes of 4 threads: every byte and every completion once."""
    output = bench.launched(4, "exchange", 4, count, seconds=2000)
    expect(re.search(r"exchange: \d+ messages", output), "no end", output)


# System calls that are refused, on one rank or on all (tests/mp/fault/refuse.h), and the reported error; nothing: all messages arrive.
REFUSED = {
    "memfd_create:EPERM": "memfd_create: Operation not permitted",
    "memfd_create:ENOSYS@1": "memfd_create: Function not implemented",
    "F_ADD_SEALS:EPERM@0": "fcntl(F_ADD_SEALS): Operation not permitted",
    "fallocate:ENOSYS": "",
    "accept4:ENOSYS": "",
    "pidfd_open,membarrier,epoll_pwait2,sched_setaffinity,prctl:EPERM": "",
    "process_vm_readv:ENOSYS@1": "LARKLANE_MESSAGE_PROVIDER=ofi",
    "sendmsg:EPERM@1": "sendmsg(SCM_RIGHTS): Operation not permitted",
    "epoll_create1:EACCES@0": "epoll_create1: Permission denied",
    "clone3,clone:EPERM@1": "clone3, clone: Operation not permitted",
    "getrandom:ENOSYS@0": "getrandom: Function not implemented",
    "socket:EPERM@1": "socket(AF_UNIX): Operation not permitted",
}


def refused_calls(bench):
    """System calls that a filter refuses on a rank, or on all: every message arrives, or the launch ends with an error by name."""
    refuse = bench.folder.parent / "fault/refuse"
    for what, text in REFUSED.items():
        command = (bench.command, "launch", "-n", 2, refuse, what, bench.folder / "exchange", 2, 1000)
        output = bench.ran(*command, status=3 if text else 0)
        expect(text in output if text else "exchange: " in output, f"{what}: expected {text or 'messages'}", output)


def exchanges(bench):
    """Begun again and again: the first records of a link come another way than later ones."""
    for _ in range(10):
        exchange(bench, 100_000)


def exchange_long(bench):
    """Ten times as many."""
    exchange(bench, 10_000_000)


def leaves(bench):
    """A peer that has left, or has ended silently: a post to it ends with an error, over a new lane, too."""
    for how in ("orderly", "sudden"):
        output = bench.launched(2, "leaver", how)
        expect("leaver: all has ended" in output, how, output)
        expect("warn" not in output, f"a warning, {how}", output)


def scatters(bench):
    """A process at the fence is connected all the same, to peers that wait for that."""
    output = bench.launched(4, "scatterer")
    expect("scatterer: all have heard" in output, "no end", output)


def idle(bench):
    """A first message, while neither process makes progress, is accepted all the same: helpers connect the two."""
    output = bench.launched(2, "idle", bench.scratch / "accepted")
    expect("idle: it has come" in output, "no end", output)


def crowded(bench):
    """More threads than lanes: 16 on 2."""
    output = bench.launched(2, "exchange", 16, 200_000)
    expect(re.search(r"exchange: \d+ messages", output), "no end", output)


def crossed(bench):
    """Threads that wait for operations of another's lane: a paper's two programs, and one with puts."""
    for what in ("sends", "gets", "puts"):
        output = bench.launched(2, "crossed", what, 100)
        expect(f"crossed: {what} of 100 rounds are over" in output, what, output)


def incast(bench):
    """3 processes of 4 threads send to one thread: none starves, on one lane, or on one that no other thread serves."""
    for lanes in (1, 2):
        window = 8_000_000 if bench.provider == "shm" else 200_000
        print(bench.launched(4, "incast", 4, window, 10, lanes=lanes))


def bystander(bench):
    """Two threads post on one lane, and one of them makes progress for both."""
    output = bench.launched(2, "bystander", 2000, lanes=1)
    expect("bystander: 2000 messages of each thread" in output, "no end", output)


def posters(bench):
    """Two threads post on one lane at the same moment, and then their process sleeps, the helper too: nothing that was `done` is stranded."""
    output = bench.launched(2, "posters", 2000, lanes=1, seconds=800)
    expect("posters: 2000 rounds have come" in output, "no end", output)


def killed(bench):
    """A peer that is killed: posted operations to it end with an error in time, in every state, and messages between the others go on."""
    for how in ("stopped", "running", "silent"):
        print(bench.launched(3, "survivor", how, 10))


def gone_region(bench):
    """Puts and gets of memory that is registered no longer: an error each, and over shm nothing else."""
    for memory in ((), ("allocated",)):
        bench.launched(2, "gone_region", "alone" if bench.name == "shm" else "any", *memory)


def forks(bench):
    """Children end by exit(), which destroys static objects, by _exit() or by a signal, or outlive their parents: messages of these go on."""
    for how in ("exit", "quick", "killed", "lives"):
        output = bench.launched(2, "forker", how, 8)
        expect("forker: all has come" in output, how, output)
        expect(output.count("a child lives on\n") == (16 if how == "lives" else 0), f"what children write, {how}", output)


def thresholds(bench):
    """The user chooses which messages are copied, and which side moves the others. Every byte is right all the same; a choice that a network can't serve is
    refused, with the remedy."""
    for eager, rendezvous in ((64, "auto"), (500, "read"), (8168, "read" if bench.name == "shm" else "write")):
        output = bench.launched(4, "exchange", 4, 50_000, LARKLANE_MESSAGE_EAGER_MAX=str(eager), LARKLANE_MESSAGE_RENDEZVOUS=rendezvous)
        expect(re.search(r"exchange: \d+ messages", output), f"no end, {eager} {rendezvous}", output)
    if bench.name == "shm":
        output = bench.launched(2, "exchange", 1, 10, status=3, LARKLANE_MESSAGE_RENDEZVOUS="write")
        expect("LARKLANE_MESSAGE_RENDEZVOUS=write: over shm" in output and "remedy" in output, "no reason", output)
        for illegal in ("63", "8169"):
            output = bench.launched(2, "exchange", 1, 10, status=3, LARKLANE_MESSAGE_EAGER_MAX=illegal)
            expect("LARKLANE_MESSAGE_EAGER_MAX" in output and "64..8168" in output, "no reason", output)


def pressure(bench, how, seconds=3, **env):
    print(bench.launched(2, "pressure", how, seconds, lanes=4, seconds=seconds + 400, **env))


def pressure_asleep(bench):
    """A receiver without progress: senders hear `retry`, no memory grows, and all comes in the end."""
    pressure(bench, "asleep")


def pressure_unreceived(bench):
    """The same of a receiver that makes progress, but takes nothing."""
    pressure(bench, "unreceived")


def pressure_of_both(bench, seconds, **env):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for _ in pool.map(lambda how: pressure(bench, how, seconds, **env), ("asleep", "unreceived")):
            pass


def pressure_silence(bench):
    """Both at the same time, ten times as long as the time after which a peer counts as silent."""
    pressure_of_both(bench, 20, LARKLANE_CONTROL_SILENCE_NS="2s", LARKLANE_LINK_SILENCE_NS="2s")


def pressure_minutes(bench):
    """The same for two minutes: longer than any such time by default."""
    pressure_of_both(bench, 120)


def footprint(bench):
    """The memory of a process: context, lanes, peers, operations, none of them before it is used, all of them once."""
    env = {"FI_OFI_RXM_MSG_RX_SIZE": "64"}  # libfabric's own: docs/user/messages.md
    print(bench.launched(4, "footprint", "used", bench.name, 16 if bench.name == "shm" else 2, 10, lanes=64, **env))
    for size in (1, 1_000_000):
        job = {"LARKLANE_RANK": "0", "LARKLANE_SIZE": str(size), "LARKLANE_BOARD": str(bench.scratch / f"board{size}"), "LARKLANE_JOB": "footprint"}
        (bench.scratch / f"board{size}").mkdir()
        print(bench.ran(bench.folder / "footprint", "unused", bench.name, lanes=64, **env, **job))


def footprint_times(bench):
    """... and in time, to begin and to end: unused lanes take none."""
    print(bench.ran(bench.folder / "footprint", "times", FI_OFI_RXM_MSG_RX_SIZE="64"))


def measured(bench, count, benchmark, *words, status=0, **how):
    """@return output and record of `larklane bench`"""
    file = bench.scratch / "record.json"
    file.unlink(missing_ok=True)
    output = bench.launched(count, bench.command, "bench", benchmark, "--iterations", 3, "--warmup", 1, "--limit", 20, "--json", file, *words, status=status, **how)
    return output, json.loads(file.read_text()) if file.exists() else None


SHAPES = (  # processes, words, ways
    (2, ["--threads", 2, "--window", 8], ["shared", "own", "shared'"]),
    (2, ["--threads", 3, "--lanes", 2, "--window", 8, "--ways", "shared"], ["shared", "shared'"]),
    (4, ["--threads", 2, "--ways", "everywhere"], ["everywhere", "everywhere'"]),
    *((2, ["--ways", "own", "--window", 8, "--operation", operation, "--completion", completion], ["own", "own'"])
      for operation, completion in (("send", "counter"), ("send", "synchronizer"), ("send", "handler"), ("put", "queue"), ("put", "synchronizer"),
                                    ("put-signal", "queue"), ("put-signal", "counter"), ("put-signal", "synchronizer"), ("put-signal", "handler"),
                                    ("am", "queue"), ("am", "handler"))),
    (2, ["--ways", "own", "--window", 8, "--progress", "dedicated"], ["own", "own'"]),
    (2, ["--threads", 2, "--window", 8, "--more-follow"], ["shared", "own", "shared'"]),
)
SHAPES_OF_TURNS = (
    (2, ["--threads", 2, "--window", 4, "--ways", "shared,own,one-tag"], ["shared", "own", "one-tag", "shared'"]),
    (2, ["--threads", 2, "--window", 4, "--ways", "funneled"], ["funneled", "funneled'"]),
    (4, ["--threads", 2, "--ways", "everywhere"], ["everywhere", "everywhere'"]),
)


def rates(bench):
    """`larklane bench message-rate` and `message-latency`: each shape, operation and completion; received bytes are checked from end to end."""
    for benchmark, metric in (("message-rate", "rate_per_s"), ("message-latency", "half_round_trip_ns")):
        for count, words, ways in SHAPES if bench.provider == "shm" else (*SHAPES[::4], SHAPES[-1]):
            output, record = measured(bench, count, benchmark, "--sizes", "1,8,100K", *words)
            expect((record["context"]["variant"], record["context"]["mpi"], record["context"]["ranks"]) == ("larklane", "none", count), "context", output)
            expect([point["bytes"] for point in record["points"]] == [1, 8, 102400], "sizes", output)
            for point in record["points"]:
                expect([series["way"] for series in point["series"]] == ways, "ways", output)
                for series in point["series"]:
                    samples = series["samples"]
                    expect(series["wrong"] == 0 and set(samples) == {metric, "round_ns", "message_ns"}, series["way"], output)
                    expect(all(len(values) == 3 and min(values) > 0 for values in samples.values()), series["way"], output)
            for name in ("LARKLANE_MEET", "LARKLANE_JOB"):
                expect(name not in record["context"]["environment"], f"{name} is in the record", output)


def turns(bench):
    """`larklane bench message-turns`: threads whose sides work in turns; received bytes are checked from end to end."""
    for count, words, ways in SHAPES_OF_TURNS:
        output, record = measured(bench, count, "message-turns", "--sizes", "8,300", *words)
        for point in record["points"]:
            expect([series["way"] for series in point["series"]] == ways, "ways", output)
            for series in point["series"]:
                expect(series["wrong"] == 0 and set(series["samples"]) == {"message_ns", "post_ns", "send_ns", "wait_ns", "helped_turns"}, series["way"], output)


CALLS = {"system_calls", "first_system_calls", "second_system_calls"}


def system_calls(bench):
    """`--count system-calls`: of both sides and of each, a message; or the reason why the kernel does not count them."""
    for benchmark in ("message-rate", "message-latency"):
        words = ("--sizes", 8, "--ways", "own", "--window", 8, "--count", "system-calls")
        if not pathlib.Path("/sys/kernel/tracing/events/raw_syscalls").exists():
            output, record = measured(bench, 2, benchmark, *words, status=2)
            expect(output.count("larklane bench: --count system-calls: ") == 1 and record is None, benchmark, output)
            continue
        output, record = measured(bench, 2, benchmark, *words)
        samples = record["points"][0]["series"][0]["samples"]
        expect(record["options"]["count"] == "system-calls" and set(samples) >= CALLS, benchmark, output)
        for both, first, second in zip(*(samples[name] for name in ("system_calls", "first_system_calls", "second_system_calls"))):
            expect(min(first, second) > 0 and abs(both - first - second) < 1e-9 * both, samples, output)


APPLICATIONS = {  # words of three sizes, samples
    "stencil": (["--sizes", "8,400,1600"], {"step_ns", "exchange_ns"}),
    "ebms": (["--sizes", "8,1000,100001", "--blocks", 5], {"round_ns", "fetch_ns", "get_ns", "flush_ns"}),
    "bspmm": (["--sizes", "8,800,20000", "--blocks", 5], {"time_ns", "counter_ns", "get_ns", "get_flush_ns", "accumulate_ns", "accumulate_flush_ns", "multiply_ns"}),
}


def applications(bench):
    """Each in threads and in processes, on two and on six: the result equals that of one thread."""
    for benchmark, (words, metrics) in APPLICATIONS.items():
        for count, shape, ways in ((2, ["--threads", 3, "--lanes", 2], ["shared", "own", "shared'"]), (6, ["--threads", 2], ["shared", "own", "shared'"]),
                                   (4, ["--threads", 2, "--ways", "everywhere"], ["everywhere", "everywhere'"])):
            output, record = measured(bench, count, benchmark, *words, *shape)
            expect(record["context"]["ranks"] == count and len(record["points"]) == 3, "context", output)
            for point in record["points"]:
                expect([series["way"] for series in point["series"]] == ways, "ways", output)
                for series in point["series"]:
                    expect(series["wrong"] == 0 and set(series["samples"]) == metrics, series["way"], output)
                    expect(all(len(values) == 3 for values in series["samples"].values()), series["way"], output)
    output, record = measured(bench, 2, "stencil", "--sizes", 9600, "--ways", "own")  # edges that are fetched
    expect([series["wrong"] for series in record["points"][0]["series"]] == [0, 0], "long edges", output)


SWITCHES = ("own", "single-threaded", "shared", "process-lock", "one-pool", "progress-all", "progress-own", "nothing")


def switches(bench):
    """`larklane bench lanes`: with each switch all messages arrive, and threads with lanes of their own don't meet."""
    for layout in ("own", "packed"):
        for count in (1, 2):
            output, record = measured(bench, count, "lanes", "--sizes", "8,100K", "--threads", 2, "--window", 16, "--layout", layout)
            expect(record["options"]["layout"] == layout, "layout", output)
            told = {name: record["options"].get(name) for name in ("completion", "progress", "more_follow")}
            expect(told == ({"completion": "queue", "progress": "workers", "more_follow": False} if count == 2 else dict.fromkeys(told)), "options", output)
            for point in record["points"]:
                expect([series["way"] for series in point["series"]] == [*SWITCHES, "own'"], "ways", output)
                for series in point["series"]:
                    samples = series["samples"]
                    expect(series["wrong"] == 0 and len(samples["rate_per_s"]) == 3 and min(samples["rate_per_s"]) > 0, series["way"], output)
                    # A lane's own credit goes out from its turns: a post in some hundred.
                    if count == 1 and point["bytes"] == 8 and series["way"] in ("own", "own'", "single-threaded", "progress-own"):
                        expect(max(samples["held_share"]) < 0.02, f"{series['way']}: {samples['held_share']}", output)
    # More than there are lanes by default: each has one all the same, without an option.
    threads = min(len(os.sched_getaffinity(0)), 16) + 1
    for count in (1, 2):
        output, record = measured(bench, count, "lanes", "--sizes", 8, "--threads", threads, "--window", 16, lanes=None)
        expect("LARKLANE_VCI_COUNT_MAX" not in record["context"]["environment"], "environment", output)
        expect(all(series["wrong"] == 0 for series in record["points"][0]["series"]), "wrong", output)


def refusals(bench):
    """Reported once, by name, and nothing is measured."""
    for count, words, expected in (
        (3, [], "message-rate needs 2 ranks, here are 3: larklane launch -n 2 larklane bench message-rate"),
        (2, ["--ways", "everywhere", "--threads", 2], "needs 4 ranks, here are 2: larklane launch -n 4"),
        (2, ["--ways", "join"], "--ways join: expected some of shared own everywhere"),
        (2, ["--operation", "am", "--completion", "counter"], "--completion counter: active messages bring buffers"),
        (2, ["--operation", "put", "--more-follow"], "--more-follow: of --operation send or am, not put"),
        (2, ["--completion", "synchronizer", "--more-follow"], "--more-follow: not with --completion synchronizer"),
        (2, ["--completion", "bell"], "--completion: bell not in {queue,counter,synchronizer,handler}"),
        (2, ["--threads", 0], "--threads"),
        (2, ["--threads", 2, "--count", "system-calls"], "--count system-calls: of --threads 1, not 2"),
        (2, ["--count", "packets"], "--count: packets not in {system-calls}"),
        (2, ["--sizes", "nonsense"], "--sizes nonsense"),
        (2, ["--mpi-calls"], "--mpi-calls"),
    ):
        output, record = measured(bench, count, "message-rate", *words, status=2)
        expect(output.count(expected) == 1 and record is None, words, output)
    for count, words, expected in (
        (1, ["bspmm"], "bspmm needs 2 ranks or more, here is 1: larklane launch -n 2 larklane bench bspmm"),
        (5, ["bspmm", "--ways", "everywhere", "--threads", 2], "needs 4 ranks, or a multiple of 2, here are 5: larklane launch -n 4"),
        (2, ["bspmm", "--sizes", 1000], "size 1000: a tile of N x N doubles has 8 N N bytes: 968 or 1152"),
        (2, ["bspmm", "--sizes", "128M"], "size 134217728: 64 of them in a process are more than 1073741824 bytes: fewer --blocks, or smaller --sizes"),
        (2, ["stencil", "--sizes", 12], "size 12: an edge is of whole cells of 8 bytes: 8 or 16"),
        (2, ["stencil", "--sizes", 8, "--blocks", 2], "--blocks"),
        (2, ["ebms", "--sizes", "8M", "--threads", 32], "size 8388608: 256 of them in a process"),
        (2, ["bspmm", "--blocks", 0], "--blocks"),
        (2, ["bspmm", "--window", 4], "--window"),
        *((1, ["lanes", *option], f"{option[0]}: of whole exchanges; one rank measures posts alone, sends that nobody hears of: larklane launch -n 2 larklane bench lanes")
          for option in (["--operation", "put"], ["--completion", "counter"], ["--progress", "dedicated"], ["--more-follow"], ["--count", "system-calls"])),
        (3, ["lanes"], "lanes needs 2 ranks, here are 3: larklane launch -n 2 larklane bench lanes"),
        *((count, ["lanes", "--threads", 3], "--threads 3: 3 lanes are needed, here are 2; remedy: LARKLANE_VCI_COUNT_MAX=3") for count in (1, 2)),
        (1, ["lanes", "--threads", 4, "--lanes", 3, "--ways", "shared"], "--threads 4: 3 lanes are needed, here are 2"),
        (1, ["lanes", "--threads", 65], "--threads 65: 65 lanes are needed, here are 2; remedy: fewer threads, 64 at most"),
    ):
        output, record = measured(bench, count, *words, status=2)
        expect(output.count(expected) == 1 and record is None, words, output)
    for words, expected in ((("overhead", "--with", "lci"), "LCI has no partitioned communication"),
                            (("lanes", "--with", "lci"), "only Larklane has lanes to take apart"),
                            (("stencil", "--with", "mvapich"), "expected some of native, larklane, lci")):
        output = bench.ran(bench.command, "bench", *words, status=2)
        expect(output.count(expected) == 1, words, output)
    if not (bench.command.parent.parent / "libexec/larklane/larklane-lci").exists():
        for launched in ({"PMI_RANK": "0"}, {}):
            output = bench.ran(bench.command, "bench", "stencil", "--with", "lci", status=2, **launched)
            expect("built without LCI v2; remedy" in output, "no remedy", output)
    output = bench.launched(2, "exchange", 1, 1, status=3, LARKLANE_MESSAGE_PROVIDER="ofi:shm")
    expect("set provider=auto, in native programs message_provider=shm" in output or "has no working provider" in output, "ofi:shm", output)
    output, _ = measured(bench, 2, "message-rate", "--sizes", 8, "--csv", "/nonexistent/x.csv", status=1)
    expect("/nonexistent/x.csv: not written: No such file or directory" in output, "no folder", output)


def processes_of(program):
    """Process ids."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and (folder / "exe").resolve() == program:
                found.append(int(folder.name))
    return found


def stranger(bench):
    """Another user that knows all ports of a job: none accepts it, at any time, and each byte and each message is right."""
    tried = set()
    with trust_test.stranger_of(bench.build) as attack_all, concurrent.futures.ThreadPoolExecutor(1) as pool:
        job = pool.submit(bench.launched, 3, "exchange", 2, 60_000, seconds=200)
        while not job.done():
            names = set()
            with contextlib.suppress(OSError):  # one has ended
                names = trust_test.tcp_names(processes_of((bench.folder / "exchange").resolve())) - tried
            if not names:
                concurrent.futures.wait([job], timeout=0.02)
                continue
            tried |= names
            attack_all(names)
        output = job.result()
    expect(tried, "no port has been found")
    expect(re.search(r"exchange: \d+ messages", output), "no end", output)


OWN_PROCESSES = "unshare --pid --fork --mount-proc"
OWN_NETWORK, OWN_LOOPBACK = "unshare --net", "unshare --net sh -c 'ip link set lo up && exec \"$@\"' sh"
OWN_USERS = "unshare --user"
AS_NOBODY = "setpriv --reuid 65534 --regid 65534 --clear-groups"
ONE_NETWORK, ONE_USER = "remedy: start the ranks of a host in one network namespace", "remedy: start all ranks as one user"
BY_OFI = "LARKLANE_MESSAGE_PROVIDER=ofi"


def apart(bench):
    """Ranks in namespaces of their own, or of another user: all messages arrive, or the error has the reason and the remedy; none waits for ever."""

    def ran(rank, way, provider, status, *texts, **env):
        words = way.split()[0]
        if "failed" in system("sh", "-c", f"{way} true 2>/dev/null || echo failed"):
            raise Skip(f"no {words}: {way}")
        script = f'if [ "$LARKLANE_RANK" = {rank} ]; then exec {way} "$@"; fi; exec "$@"'
        command = (bench.command, "launch", "-n", 2, "sh", "-c", script, "sh", bench.folder / "exchange", 2, 1000)
        output = system(*command, status=status, env={"LARKLANE_MESSAGE_PROVIDER": provider, **env}, seconds=100)
        for text in texts:
            expect(text in output, f"rank {rank} by {way}, {provider}: no '{text}'", output)

    for rank in range(2):
        ran(rank, OWN_PROCESSES, "shm", 3, "in another pid namespace", BY_OFI)
        ran(rank, OWN_PROCESSES, "ofi:tcp", 0, "exchange: ")
        ran(rank, OWN_USERS, "shm", 3, "does not let one process attach", BY_OFI)
        ran(rank, OWN_USERS, "ofi:tcp", 0, "exchange: ")
        ran(rank, AS_NOBODY, "shm", 3, "it runs as another user", ONE_USER)
        ran(rank, OWN_NETWORK, "shm", 3, "in a network namespace of its own, whose loopback interface is down", ONE_NETWORK)
    ran(1, OWN_LOOPBACK, "shm", 3, "Connection refused, for 2 s; if this process is in a network namespace of its own", ONE_NETWORK, LARKLANE_BOOT_WAIT_NS="2s")


def cases():
    everywhere = (exchange, exchange_long, leaves, scatters, idle, crowded, crossed, incast, bystander, posters, pressure_asleep, pressure_unreceived,
                  pressure_silence, pressure_minutes, thresholds, gone_region, killed, forks, footprint, footprint_times, rates, applications)
    return [
        *((case, name) for case in everywhere for name in ("shm", "tcp")),
        (exchanges, "tcp"),
        (switches, "shm"),
        (turns, "shm"),
        (system_calls, "shm"),
        (stranger, "tcp"),
        (refusals, None),
        (apart, None),
        (refused_calls, "shm"),
    ]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, Bench, __doc__))
