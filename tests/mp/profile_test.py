#!/usr/bin/env python3
"""`larklane profile` on real programs: its records match the events, and it reports events that it can't record and files that it can't read.

  profile_test.py --build DIR CASE [MPI]     one case, on one MPI of launch.py where the case wants one
  profile_test.py --list                     `CASE` or `CASE MPI` of every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import collections
import contextlib
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import stat
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]
import launch  # noqa: E402
import stub_test  # noqa: E402
from checks import Skip, expect, expect_few_more, instructions_of, system  # noqa: E402
from larklane.prediction.forecast import forecast  # noqa: E402
from larklane.prediction.predictor import Written  # noqa: E402
from larklane.profile import command as profile_command  # noqa: E402
from larklane.profile import profile, rounds  # noqa: E402
from larklane.profile.ordinary import CARRIED, accounts_of  # noqa: E402
from larklane.profile.profile_file import Kind  # noqa: E402
from larklane.profile.writes import AFTER, sends_of, writers_of  # noqa: E402
from stub_test import REFUSED  # noqa: E402

EXAMPLES = {"mpich5": "mpich", "openmpi5": "openmpi"}
MS = 1_000_000


class Bench(stub_test.Bench):
    """A build folder, a scratch folder and perhaps an MPI; runs programs under `larklane profile`."""

    def __init__(self, build, scratch, mpi):
        super().__init__(build, scratch, mpi)
        self.folder = scratch / "profile"
        self.heat2d = build / "examples" / EXAMPLES.get(mpi, "none") / "heat2d"

    def program(self, name, *flags):
        return self.compile(name, f"../profile/{name}.c", flags=("-O2", "-fopenmp", "-pthread", *flags), compiler=self.mpi.wrapper)

    def profile(self, *command, ranks=2, options=(), status=0, **env):
        words = [self.command, "profile", "--out", self.folder, *options, *command]
        outcome = launch.launch(self.mpi, ranks, [str(word) for word in words], 240, env)
        if status is not None:
            expect(outcome.status == status, f"status {outcome.status}, not {status}", outcome.output)
        return outcome.output

    def load(self):
        return profile.load(self.folder)


def lines_ok(output):
    """Of how many ranks the program reports success; a folder's name can have an "ok" in it, too."""
    return output.split("\n").count("ok")


def trace_of(path):
    """{(side, peer, round, partition or event): time} of a file that heat2d wrote."""
    lines = [json.loads(line) for line in path.read_text().splitlines()][1:]
    return {(each["side"], each["peer"], each["round"], each.get("partition", each["event"])): each["t_ns"] for each in lines}


def compare_with_trace(found, rank, trace, labels):
    """Every Pready and every arrival of the program's own trace is in the profile, in its round, at its time."""
    requests = {(request.is_send, request.peer, request.tag): request for request in found.requests if request.rank == rank}
    compared = 0
    for (side, peer, number, partition), noted_ns in trace.items():
        if not isinstance(partition, int):
            continue
        each = requests[side == "send", peer, (number + 1) % 2].rounds[number // 2]
        if side == "send":
            marks = [mark for mark in each.ready if mark.first == partition and mark.count == 1]
            expect(len(marks) == 1, f"rank {rank} {side} {number} {partition}: {marks}")
            expect(0 <= marks[0].begin_ns - noted_ns < 50 * MS and marks[0].begin_ns > each.start.end_ns, f"ready at {noted_ns}: {marks}")
        else:
            seen = [arrival for arrival in each.arrivals if arrival.first <= partition < arrival.first + arrival.count]
            expect(len(seen) == 1 and seen[0].label in labels, f"rank {rank} {side} {number} {partition}: {seen}")
            expect(each.start.begin_ns <= seen[0].not_before_ns <= seen[0].seen_ns <= noted_ns < seen[0].seen_ns + 50 * MS,
                   f"arrived by {noted_ns}: {seen}")
        expect(each.wait and each.wait.begin_ns >= max((mark.begin_ns for mark in each.ready), default=0), f"wait {each.wait}")
        compared += 1
    return compared


def heat2d_on(bench, *options):
    steps, partitions = 20, 8
    trace = bench.scratch / "trace"
    output = bench.profile(bench.heat2d, "--n", 256, "--steps", steps, "--threads", 2, "--partitions", partitions, "--late-ms", 3,
                           "--trace", trace, options=options)
    expect("PASSED" in output, "the program is not well", output)
    found = bench.load()
    expect(not found.problems and len(found.files) == 2 and len(found.requests) == 8, str(found.problems))
    compared = sum(compare_with_trace(found, rank, trace_of(pathlib.Path(f"{trace}.{rank}")), {"observed"}) for rank in range(2))
    expect(compared == 2 * 2 * (steps - 1) * partitions, f"compared {compared}")
    traces = [trace for send in found.sends for trace in rounds.traces_of(send)]
    expect(len(traces) == 2 * (steps - 1), f"{len(traces)} traces of rounds")
    for each in traces:
        expect(all(transfer.begin_ns < transfer.end_ns for transfer in each.transfers), "arrived before it was ready", str(each))
    return found


def heat2d(bench):
    """Each Pready and each arrival of a program with halos, against its own notes; the trace and the delays that follow."""
    found = heat2d_on(bench)
    early = [rounds.early_bytes_share(trace) for send in found.sends if send.rank == 0 for trace in rounds.traces_of(send)]
    expect(sum(early) / len(early) > 0.2, f"rank 0's last thread is late, and early are {early}")
    file, delays = bench.scratch / "trace.json", bench.scratch / "delays.json"
    with contextlib.redirect_stdout(io.StringIO()) as text:
        expect(profile_command.main([str(bench.folder), "--perfetto", str(file), "--delays", str(delays)]) == 0, "it does not work")
    expect(text.getvalue().count("observed 72") == 2 and text.getvalue().count("observed 80") == 2, "the summary", text.getvalue())
    events = json.loads(file.read_text())["traceEvents"]
    expect(sum(event["name"].startswith("Pready") for event in events) == 2 * 19 * 8, "Pready in the trace")
    rows = json.loads(delays.read_text())["delays_ns"]
    expect(len(rows) == 38 and all(min(row) == 0 and len(row) == 2 for row in rows), str(rows))
    expect(sum(max(row) > 2 * MS for row in rows) >= 15, f"3 ms of delay are not in the delays: {rows}")


def native(bench):
    """The MPI's own partitioned communication is recorded as well."""
    output = bench.profile(bench.program("step"), 5, ranks=1, options=["--mpi", "native"])
    expect(lines_ok(output) > 0, "the program is not well", output)
    found = bench.load()
    expect(found.files[0].is_native and len(found.sends) == 1, str(found.requests))
    send = found.sends[0]
    expect(send.is_native and send.other and len(send.rounds) == 5, str(send))
    expect([mark.first for mark in send.rounds[4].ready] == list(range(16)), str(send.rounds[4].ready))
    expect(len(rounds.traces_of(send)) == 5, "rounds are not whole")


def waits(bench):
    """A receiver that never asks: Larklane polls while it waits."""
    source = bench.scratch / "waits.c"
    source.write_text("""
#include <mpi.h>
#include <unistd.h>
int main(void) {
  int rank;
  static char buffer[4096];
  MPI_Request request;
  MPI_Init(0, 0);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) MPI_Psend_init(buffer, 4, 1024, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  else MPI_Precv_init(buffer, 4, 1024, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (int round = 0; round < 6; ++round) {
    MPI_Start(&request);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 4 && rank == 0; ++i) { usleep(4000); MPI_Pready(i, request); }
    if (round == 5) MPI_Barrier(MPI_COMM_WORLD);  /* all is there before rank 1 waits */
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Request_free(&request);
  return MPI_Finalize();
}
""")
    program = bench.scratch / "waits"
    system(bench.mpi.wrapper, source, "-o", program)
    bench.profile(program)
    send = bench.load().sends[0]
    traces = rounds.traces_of(send)
    late = [sorted(transfer.end_ns - transfer.begin_ns for transfer in trace.transfers) for trace in traces[:5]]
    expect(any(set(trace.labels) == {"observed"} and each[1] < 3 * MS for trace, each in zip(traces, late)),
           f"{[trace.labels for trace in traces]}, seen after {late} ns")
    expect(set(traces[5].labels) == {"bounded"}, str(traces[5]))


def check_threads(found):
    """The steps of tests/mp/profile/threads.c are in its profile."""
    sends = [message for message in found.messages if message.rank == 0]
    expect(len(sends) == 40 and all(message.peer == 1 and message.bytes == 8000 for message in sends), str(sends))
    for tag in (1, 2, 3, 4):
        phases = [message.phase for message in sends if message.tag == tag]
        expect(all(len(phase.finished_ns) == 2 for phase in phases), f"tag {tag}: {phases}")
        spread = [phase.last_ns - min(phase.finished_ns.values()) for phase in phases]
        # On a busy machine the other thread is late as well now and then.
        expect(sum(ns > 1 * MS for ns in spread) >= 3, f"tag {tag}: 2 ms of delay are not in {spread}")
    parts = {number: [record.end_ns - record.begin_ns for record in found.records[0] if record.kind == Kind.MEMBER and record.a == number] for number in (1, 2)}
    expect(len(parts[1]) == len(parts[2]) == 30, f"parts of regions by number of the thread: {parts}")
    expect(sum(part_ns > 2 * MS for part_ns in parts[2]) == 30, f"thread 1 sleeps in each region: {parts}")
    gaps = sorted(message.after_phase_ns for message in sends)
    expect(gaps[0] >= 0 and gaps[20] < 20 * MS, f"from the last thread's end to the send: {gaps}")
    check_processor_time(found.records[0])
    rows = profile_command.delays(found)
    expect(len(rows) == 40 and all(len(row) == 2 for row in rows), f"{len(rows)} rows of delays")


def check_processor_time(records):
    """A thread that sleeps for 2 ms has not used them, and did not wait for a core; a thread that computes has. Spans that take no time have no record."""
    told = {kind: [record for record in records if record.kind == kind and record.handle > 0]
            for kind in (Kind.REGION, Kind.MEMBER, Kind.BARRIER, Kind.THREAD, Kind.JOIN)}
    short = [record for record in records if record.kind == Kind.MEMBER and record.end_ns - record.begin_ns < 0.1 * MS]
    expect(short and all(record.handle == record.b == 0 for record in short), f"who does nothing: {short}")
    slept = told[Kind.MEMBER]
    expect(len(slept) >= 9, f"{len(slept)} of 10 that sleep are told of")
    missing = [record.end_ns - record.begin_ns - record.handle - record.b for record in slept]
    expect(statistics.median(missing) > 1.5 * MS, f"who sleeps: {slept}")
    computed = [record.handle > 1.9 * MS for record in told[Kind.THREAD]]
    expect(sum(computed) == 10, f"who computes: {told[Kind.THREAD]}")
    for record in slept + told[Kind.THREAD]:
        expect(record.b >= 0 and record.handle + record.b < record.end_ns - record.begin_ns + 0.1 * MS, f"more than there was: {record}")


def threads(bench):
    """A program without partitions: sizes, peers, when threads finish, how long until the send."""
    output = bench.profile(bench.program("threads"))
    expect(lines_ok(output) == 2, "the program is not well", output)
    found = bench.load()
    check_threads(found)
    expect(all(file.cores and file.cores <= os.sched_getaffinity(0) for file in found.files), f"cores: {[file.cores for file in found.files]}")


CLANG = {"MPICH_CC": "clang-14", "OMPI_CC": "clang-14"}


def has_llvm():
    return shutil.which("clang-14") and any(pathlib.Path("/usr/lib/llvm-14/lib").glob("libomp.so*"))


def llvm(bench):
    """The same program has the same phases with LLVM's OpenMP, and so has GCC's program with LLVM's runtime."""
    if not has_llvm():
        raise Skip("no clang-14 with its OpenMP")
    source, flags = HERE / "profile/threads.c", ("-O2", "-fopenmp", "-pthread")
    system(bench.mpi.wrapper, source, "-o", bench.scratch / "gcc", *flags)
    system(bench.mpi.wrapper, source, "-o", bench.scratch / "clang", *flags, env=CLANG)
    system(bench.mpi.wrapper, "-c", source, "-o", bench.scratch / "threads.o", *flags)
    system(bench.mpi.wrapper, bench.scratch / "threads.o", "-o", bench.scratch / "mixed", *flags, env=CLANG)
    outlines = {}
    for name in ("gcc", "clang", "mixed"):
        output = bench.profile(bench.scratch / name, options=["--overwrite"])
        expect(lines_ok(output) == 2, f"{name}: the program is not well", output)
        found = bench.load()
        kinds = [record.kind for record in found.records[0]]
        outlines[name] = ([(message.tag, len(message.phase.finished_ns)) for message in found.messages],
                          {kind.name: kinds.count(kind) for kind in (Kind.REGION, Kind.MEMBER, Kind.BARRIER)})
        check_threads(found)
    expect(outlines["gcc"] == outlines["clang"] == outlines["mixed"], str(outlines))


def nested(bench):
    """In a region of one thread within a region a thread has its number of the outer one, by GCC's runtime and by LLVM's."""
    programs = [bench.program("nested")]
    if has_llvm():
        programs.append(bench.scratch / "clang")
        system(bench.mpi.wrapper, HERE / "profile/nested.c", "-o", programs[1], "-O2", "-fopenmp", env=CLANG)
    for program in programs:
        output = bench.profile(program, options=["--overwrite"])
        expect(lines_ok(output) == 2, f"{program}: the program is not well", output)
        for records in bench.load().records.values():
            members = [record for record in records if record.kind == Kind.MEMBER]
            numbers = collections.Counter(record.a for record in members)
            # LLVM's does not report the inner ones.
            expect(numbers in (dict.fromkeys((1, 2, 3, 4), count) for count in (8, 16)), f"{program.name}: {numbers}")


def halos(bench):
    """Isend and persistent sends of heat2d, with the barrier before them."""
    for mode in ("isend", "persistent"):
        bench.profile(bench.heat2d, "--n", 128, "--steps", 20, "--threads", 2, "--mode", mode, options=["--overwrite"])
        found = bench.load()
        expect(len(found.messages) == 38, f"{mode}: {len(found.messages)} messages")
        for message in found.messages:
            expect(message.bytes == 1024 and message.peer == 1 - message.rank and message.phase, f"{mode}: {message}")
        made = forecast(found)
        expect(made.prediction is not None and made.left_out == 0, f"{mode}: no prediction: {made.why}")
        expect(made.threads == 2 and made.prediction.steps >= 6 and made.prediction.misfit_ns < made.prediction.step_ns, f"{mode}: {made}")


def ordinary(bench):
    """Plain messages of two threads, natively and carried: each thread's account, and the carrier of the run."""
    words = [bench.heat2d.with_name("exchange"), "--threads", 2, "--rounds", 9, "--window", 4, "--words", 2]
    count = 4 * (9 + 1)  # and a round to warm up
    for option, is_carried in ("off", False), ("on", True):
        for communicators in ("one", "each"):
            output = bench.profile(*words, "--comms", communicators, options=["--overwrite", "--option", f"p2p={option}"])
            expect("PASSED" in output, "the program is not well", output)
            found = bench.load()
            expect(all((CARRIED in file.ordinary) == is_carried == bool(file.ordinary) for file in found.files), f"p2p={option}: {[file.ordinary for file in found.files]}")
            accounts = accounts_of(found)
            seen = [(each.rank, each.number, each.sends, each.sent_bytes, each.receives, each.foreign, len(each.tags)) for each in accounts]
            expect(seen == [(rank, thread, count, 16 * count, count, 0, 1) for rank in (0, 1) for thread in (0, 1)], f"p2p={option}, {communicators}: {seen}")
            expect(len({context for each in accounts for context in each.tags}) == (1 if communicators == "one" else 2), f"{communicators}: {accounts}")
            expect(all(each.calls_ns > 0 for each in accounts) and all(message.is_own for message in found.messages), f"{accounts}")


def questions(bench):
    """The use of cores of a late thread is recorded for its first 256 steps, which are enough for a replay, not for all."""
    bench.profile(bench.heat2d, "--n", 128, "--steps", 700, "--threads", 2, "--late-ms", 0.5, "--mode", "isend")
    told = collections.Counter(record.thread for record in bench.load().records[0] if record.kind == Kind.BARRIER and record.handle > 0)
    expect(256 <= max(told.values()) < 600, f"told of {told} of 700 steps")


def dies(bench):
    """The records of a program until it was killed are there."""
    bench.profile(bench.program("threads"), "--die", status=None)
    found = bench.load()
    expect(any("without MPI_Finalize" in problem for problem in found.problems), str(found.problems))
    expect(len([message for message in found.messages if message.rank == 0]) >= 15, f"{len(found.messages)} messages")


def folders(bench):
    """An earlier profile is refused or replaced; a folder that can't be written is named; a limit is kept."""
    program = bench.program("step")
    bench.profile(program, 5)
    output = bench.profile(program, 5, status=None)
    expect("holds an earlier profile (rank-0000" in output and "ok" not in output.split("\n"), "not refused", output)
    bench.profile(program, 3, ranks=1, options=["--overwrite"])
    found = bench.load()
    expect(len(found.files) == 1 and len(found.sends[0].rounds) == 3, "not replaced")
    mode = stat.S_IMODE(found.files[0].path.stat().st_mode)
    expect(mode == 0o600, f"a profile, which names host, job and program, has mode {mode:o}")
    output = bench.profile(program, 200, ranks=1, options=["--overwrite", "--limit", "128K"])
    expect("records are missing at the end: the file is as large as profile_bytes_max" in output, "no warning", output)
    found = bench.load()
    expect(found.files[0].path.stat().st_size <= 128 << 10 and "full after" in found.problems[0], str(found.problems))
    expect(0 < len(rounds.traces_of(found.sends[0])) < 200, "rounds")
    nowhere = bench.scratch / "file"
    nowhere.write_text("")
    output = system(bench.command, "profile", "--out", nowhere / "x", "/bin/true", status=REFUSED)
    expect(f"--out {nowhere}/x: Not a directory" in output, "what is wrong is missing", output)
    output = system(bench.command, "profile", "--limit", "much", "/bin/true", status=REFUSED)
    expect("larklane profile: --option profile_bytes_max" in output and "much" in output, "what is wrong is missing", output)
    expect("no program given" in system(bench.command, "profile", status=REFUSED), "no program")


def mistakes(bench):
    """Calls that fail change nothing: a negative count, a free of a request that is in use."""
    output = bench.profile(bench.program("mistakes"), ranks=1)
    expect(lines_ok(output) > 0, "the program is not well", output)
    records = bench.load().records[0]
    for kind in (Kind.WAIT, Kind.FREED):
        expect(sorted(record.request for record in records if record.kind == kind) == [1, 2], f"{kind.name}: {records}")


def reuse(bench):
    """A handle that is another thread's before MPI_Request_free returns stands for that thread's request."""
    tool = bench.compile("reuse_tool.so", "../profile/reuse_tool.c", flags=("-shared", "-fPIC", "-pthread"), compiler=bench.mpi.wrapper)
    output = bench.profile(bench.program("free"), ranks=1, LD_PRELOAD=str(tool))
    expect("reused yes" in output, "the handle is not used again", output)
    kinds = {number: {record.kind for record in bench.load().records[0] if record.request == number} for number in (1, 2)}
    made = {Kind.REQUEST, Kind.PAIR}
    expect(kinds[1] == made | {Kind.FREED}, f"the request that is freed: {kinds[1]}")
    expect(kinds[2] == made | {Kind.START, Kind.WAIT}, f"the request that is made: {kinds[2]}")


def routes(bench):
    """The peer and the size of a message are asked for once: not once too seldom."""
    output = bench.profile(bench.program("routes"), ranks=6)
    expect(lines_ok(output) > 0, "the program is not well", output)
    sends = [(record.a, record.value) for record in bench.load().records[0] if record.kind == Kind.SEND]
    large = [(1, 24)] if bench.mpi.name.startswith("mpich") else []  # Open MPI 5.0 has no calls with MPI_Count
    made = [(1, 4 * cells) for cells in (3, 4, 5)]
    expect(sends == [(1, 4), (5, 4)] * 2 + [(5, 8), (4, 8), (1, 8)] + large + made, f"sent to, bytes: {sends}")


def writes(bench):
    """The thread that wrote each page of a message, also if the kernel wrote it for that thread."""
    output = bench.profile(bench.program("writes"), options=["--trace-writes"], status=None)
    if "writes can't be traced" in output:
        raise Skip("userfaultfd is not permitted")
    expect(lines_ok(output) == 2, "the program is not well", output)
    found = bench.load()
    names = {record.b - 100: record.thread for record in found.records[0] if record.kind == Kind.SEND and record.a == -2}
    expect(sorted(names) == [0, 1, 2, 3] and len(set(names.values())) == 4, f"threads {names}")
    sends = list(sends_of(found.records[0]))
    for name, parts in (("shared", 1), ("packed", 1), ("persistent", 1), ("partitioned", 4)):
        address = int(re.search(rf"^{name} 0x(\w+)$", output, re.M)[1], 16)
        of_buffer = [send for send in sends if address <= send.address < address + 65536]
        expect(len(of_buffer) == 3 * parts, f"{name}: {len(of_buffer)} sends")
        later = of_buffer[parts:]
        pages = {send.address + write.offset - address: write.thread for send in later for write in send.writes}
        expect(all(len(send.writes) == 16 // parts for send in later), f"{name}: {[len(send.writes) for send in later]} pages")
        wanted = {page: names[0 if name == "packed" else page // 16384] for page in range(0, 65536, 4096)}
        expect(pages == wanted, f"{name}: {pages}, not {wanted}")
        expect(all(write.time_ns < send.begin_ns for send in later for write in send.writes), f"{name}: written after it was sent")
        first = [write for send in of_buffer[:parts] for write in send.writes]
        expect(len(first) == (16 if name.startswith("p") and name != "packed" else 0), f"{name}: {first} before the first send")
    parts = {kind.tag: [set(of_kind.of_part(part, 4)) for part in range(4)] for kind, of_kind in writers_of(found).items()}
    expect(parts == {0: [{0}, {1}, {2}, {3}], 1: [{AFTER}] * 4, 2: [{0}, {1}, {2}, {3}]}, f"who wrote what, by tag: {parts}")


def writers(bench):
    """The threads that write each part of heat2d's rows are the same in both runs, under any numbers in the files; the prediction takes it."""
    words = [bench.heat2d, "--n", 8192, "--rows", 16, "--steps", 20, "--threads", 4, "--mode", "isend"]
    if "writes can't be traced" in bench.profile(*words, options=["--trace-writes"], status=None):
        raise Skip("userfaultfd is not permitted")
    found = writers_of(bench.load())
    expect(len(found) == 2, f"kinds of messages: {list(found)}")
    for kind, of_kind in found.items():
        parts = [set(of_kind.of_part(part, 4)) for part in range(4)]
        expect(parts == [{0}, {1}, {2}, {3}], f"{kind}: {parts} of {of_kind}")
    bench.profile(*words, options=["--overwrite"])
    said = forecast(bench.load(), writers=found)
    expect(said.prediction and said.prediction.written == Written(1, 1, 0), f"{said}")


def untraced(bench):
    """Where writes can't be traced the program does not run, and the error has the reason."""
    allowed = pathlib.Path("/proc/sys/vm/unprivileged_userfaultfd")
    bench.scratch.chmod(0o777)
    program = bench.program("free")

    def as_nobody(*command):
        """Output, and at its end whether the command failed. One process, without a launcher."""
        words = " ".join(str(word) for word in command)
        return system("sh", "-c", f"setpriv --reuid 65534 --regid 65534 --clear-groups {words} 2>&1 || echo failed")

    if not allowed.exists() or allowed.read_text().strip() != "0" or "failed" in as_nobody(program):
        raise Skip("nobody can't run a program, or everybody may trace writes")
    output = as_nobody(bench.command, "profile", "--out", bench.folder, "--trace-writes", program)
    expect("profile: writes can't be traced: userfaultfd: Operation not permitted; it takes" in output, "not said", output)
    expect("failed" in output and not list(bench.folder.glob("rank-*")), "the program has run", output)


def hosts(bench):
    """Two clocks, as on two hosts: a time namespace of its own for rank 1."""
    unshare = shutil.which("unshare")
    shift = ["unshare", "--time", "--monotonic", "1000", "--fork"]
    if not unshare or system("sh", "-c", f"{' '.join(shift)} true || true").strip():
        raise Skip("no time namespace can be made")
    program = bench.program("threads")
    script = bench.scratch / "shifted.sh"
    script.write_text(f'#!/bin/sh\nif [ "${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}" = 1 ]; then exec {" ".join(shift)} "$@"; fi\nexec "$@"\n')
    script.chmod(0o755)
    bench.profile(script, program)
    found = bench.load()
    expect(len(found.clocks) == 2 and 0 < found.clock_error_ns < 5 * MS, f"clocks {found.clocks}")
    raw = {file.rank: file.records[0].begin_ns for file in found.files}
    expect(raw[1] - raw[0] > 900_000 * MS, f"the clocks do not differ: {raw}")
    sends = [record for record in found.records[0] if record.kind == Kind.SEND]
    receives = [record for record in found.records[1] if record.kind == Kind.RECEIVE]
    for send, receive in zip(sends, receives, strict=True):
        expect(receive.end_ns > send.begin_ns - 2 * found.clock_error_ns, f"received before it was sent: {send} {receive}")
    output = bench.profile(script, bench.program("pending"), options=["--overwrite"])
    expect(output.split("\n").count("ok") == 2 and all(file.samples[1].local_ns for file in bench.load().files if file.rank == 1),
           "a receive of the program takes what compares the clocks", output)


def bad_files(bench):
    """Unreadable files are named, readable ones are used."""
    bench.profile(bench.program("step"), 50)
    good = (bench.folder / "rank-00001.larkprof").read_bytes()
    path = bench.folder / "rank-00001.larkprof"

    def said(status):
        """The output about the folder, which ends with `status`."""
        with contextlib.redirect_stderr(io.StringIO()) as text, contextlib.redirect_stdout(text):
            expect(profile_command.main([str(bench.folder)]) == status, f"not status {status}", text.getvalue())
        return text.getvalue()

    for data, words in ((b"", "not a file of"), (b"garbage" * 1000, "begins with b'garbageg'"), (good[:100], "cut off after 100 bytes"),
                        (good[:8] + b"\7" + good[9:], "version 7")):
        path.write_bytes(data)
        text = said(0)
        expect("rank-00001.larkprof" in text and words in text and "no file of rank 1" in text, f"{words}", text)
        expect("\n    0 " in text, "rank 0 is not shown", text)
    rounds = 50
    for size in (5000, 20000, 40000):
        path.write_bytes(good[:size])
        found = bench.load()
        expect(any("rank 1: cut off" in problem for problem in found.problems), str(found.problems))
        now = len(found.sends[1].rounds) if len(found.sends) > 1 else 0
        expect(now < rounds, f"{now} rounds of {size} bytes")
    path.write_bytes(good[:4096] + b"\xff" * 65536)
    expect("damaged at byte 4096" in str(bench.load().problems), "damage is not seen")
    path.unlink()
    expect("no file of rank 1" in str(bench.load().problems), "a missing file is not seen")
    shutil.rmtree(bench.folder)
    expect("no such folder" in said(2), "a missing folder is not seen")
    bench.folder.mkdir()
    expect("no rank-*.larkprof" in said(2), "an empty folder is not seen")


def overhead(bench):
    """A stencil with its partitioned halo, with Isend, and with threads, executes at most 2 % more instructions under a profile."""
    if not shutil.which("valgrind"):
        raise Skip("no valgrind")
    program = bench.program("step")

    def count(words, preload, number):
        env = {**bench.mpi.environment, "LD_PRELOAD": str(bench.libraries / preload), "OMP_WAIT_POLICY": "passive"}
        if preload != "liblarklane_preload.so":
            env["LARKLANE_PROFILE"] = str(bench.scratch / f"p{number}")
        output, found = instructions_of(program, *words, options=["--instr-atstart=no"], env=env)
        expect(lines_ok(output) > 0, "the program is not well", output)
        if not found:
            raise Skip("built without valgrind's headers")
        return found

    for words in (["3"], ["3", "--plain"], ["3", "--threads"]):
        numbers = itertools.count()
        expect_few_more(lambda words=words: count(words, "liblarklane_preload.so", ""),
                        lambda words=words, numbers=numbers: count(words, "liblarklane_profile_preload.so", f"{words[-1]}{next(numbers)}"), 0.02)


ON_EACH = (heat2d, native, waits, threads, llvm, nested, halos, ordinary, questions, dies, folders, mistakes, reuse, routes, writes, writers, untraced, hosts, overhead)


def cases():
    return [(case, name) for case in ON_EACH for name in EXAMPLES] + [(bad_files, "mpich5")]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, Bench, __doc__))
