#!/usr/bin/env python3
"""python/larklane/profile/profile.py on files written by hand: numbers worked out by hand. Run by ctest; needs the standard library only."""

import collections
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from larklane.profile import command as profile_command  # noqa: E402
from larklane.profile import perfetto, profile, profile_file, rounds  # noqa: E402
from larklane.profile.profile_file import CHUNK, CHUNK_HEADER_BYTES, CHUNK_MAGIC, HEADER, MAGIC, RECORD, Kind  # noqa: E402

HEADER_BYTES, CHUNK_BYTES = 4096, 65536
NO_CLOCK = (0, 0, 0)


def record(kind, begin, end, value=0, handle=0, a=0, b=0, request=0, flags=0):
    return RECORD.pack(begin, end, value, handle, a, b, request, kind, flags, 0)


def write(folder, rank, chunks, size=2, clock=1, samples=(NO_CLOCK, NO_CLOCK), job="job", host="h", end=10**9, full=(0, 0), ordinary=b""):
    """chunks: [(thread, [record])], each with the next number of the thread unless it is [(thread, [record], number)]"""
    data = HEADER.pack(MAGIC, profile_file.VERSION, HEADER_BYTES, CHUNK_BYTES, RECORD.size, rank, size, 1, 0, 1, 0, end, *full, 0,
                       clock, *samples[0], *samples[1], host.encode(), job.encode(), b"0.1", b"MPI", b"app", b"0-5,8,10", ordinary).ljust(HEADER_BYTES, b"\0")
    before = collections.Counter()
    for thread, records, *number in chunks:
        chunk = CHUNK.pack(CHUNK_MAGIC, thread, len(records), *(number or [before[thread]])).ljust(CHUNK_HEADER_BYTES, b"\0") + b"".join(records)
        data += chunk.ljust(CHUNK_BYTES, b"\0")
        before[thread] += 1
    (folder / f"rank-{rank:05}.larkprof").write_bytes(data)


def request(number, flags, peer, partitions, partition_bytes, at):
    both = {"request": number, "flags": flags}
    return [record(Kind.REQUEST, at, at, partition_bytes, a=peer, b=7, **both), record(Kind.PAIR, at, at, 99, a=partitions, **both)]


# Rank 0 sends 4 partitions of 10 bytes, two from each of two threads; rank 1 receives 2 partitions of 20.
SENDER = [(0, request(1, 3, 1, 4, 10, 50) + [record(Kind.START, 100, 101, request=1), record(Kind.READY, 200, 205, a=0, b=2, request=1),
                                            record(Kind.WAIT, 900, 950, request=1), record(Kind.START, 1100, 1101, request=1)]),
          (1, [record(Kind.READY, 400, 405, a=3, b=1, request=1), record(Kind.READY, 600, 605, a=2, b=1, request=1)])]


def receiver(shift):
    def at(kind, begin, end, **fields):
        return record(kind, begin + shift, end + shift, **fields)

    return [(0, request(1, 2, 0, 2, 20, 60 + shift) + [
        at(Kind.START, 110, 111, request=1), at(Kind.ARRIVED, 180, 300, a=0, b=1, request=1, flags=0),
        at(Kind.ARRIVED, 110, 700, a=1, b=1, request=1, flags=2), at(Kind.WAIT, 690, 701, request=1)])]


def check_pair(found):
    (send,) = found.sends
    assert send.other.partitions == 2 and send.bytes == 40 and len(send.rounds) == 2
    (trace,) = rounds.traces_of(send)
    assert trace.transfers == ((200, 300, 10), (200, 300, 10), (600, 700, 10), (400, 700, 10))
    assert trace.arrivals_ns == (300, 700) and trace.joined_ns == 600
    assert trace.labels == ("observed", "observed", "bounded", "bounded")
    assert rounds.exposed_ns(trace) == 100 and rounds.early_bytes_share(trace) == 0.5
    assert profile_command.delays(found) == [[0, 400]]  # thread 0 ended at 200, thread 1 at 600
    assert "observed 2, bounded 2" in profile_command.summary(found)


def test_pair(folder):
    write(folder, 0, SENDER)
    write(folder, 1, receiver(0))
    check_pair(profile.load(folder))
    names = [event["name"] for event in perfetto.events(profile.load(folder))]
    assert names.count("Pready 0 to 1") == 1 and names.count("arrived 1") == 1 and names.count("partition") == 4


def test_two_hosts(folder):
    """Rank 1's clock is 5000 ahead; at the end the same, to 8 ns."""
    write(folder, 0, SENDER)
    write(folder, 1, receiver(5000), clock=2, host="g", samples=((5050, -5000, 5), (6000, -5000, 8)))
    found = profile.load(folder)
    assert found.clock_error_ns == 8 and len(found.clocks) == 2
    check_pair(found)


def test_drift(_folder):
    clock = profile_file.Clock(profile_file.ClockSample(1000, 100, 1), profile_file.ClockSample(3000, 200, 1), 1)
    assert [clock.aligned(at) for at in (1000, 2000, 3000, 5000)] == [1100, 2150, 3200, 5300]


def test_modelled(folder):
    write(folder, 0, SENDER)
    found = profile.load(folder)
    assert found.problems == ["no file of rank 1"]
    (trace,) = rounds.traces_of(found.sends[0])
    assert set(trace.labels) == {"modelled"} and trace.arrivals_ns == (205, 205, 605, 405)


def test_threads_of_one_time(folder):
    """Two threads are made in each of two steps, and the first ends before the second has recorded anything: both have its number in the file."""
    def life(begin, end, number):
        return [record(Kind.SEND, end - 5, end - 4, value=number), record(Kind.THREAD, begin, end, value=number)]

    main = [record(Kind.JOIN, 300 + 500 * step, 410 + 500 * step) for step in (0, 1)]
    write(folder, 0, [(0, main), (1, life(100, 300, 1) + life(110, 400, 2) + life(610, 700, 4) + life(600, 800, 3))], size=1)
    found = profile_file.read_file(folder / "rank-00000.larkprof").records
    assert {each.value: each.thread for each in found if each.kind != Kind.JOIN} == {1: 1, 2: 2, 3: 1, 4: 2}
    assert {each.thread for each in found if each.kind == Kind.JOIN} == {0}
    assert [each.begin_ns for each in found] == sorted(each.begin_ns for each in found) and len(found) == 10
    writes = [record(Kind.WRITE, at, at, value=20, b=number) for at, number in ((105, 1), (200, 1), (350, 1), (605, 1), (650, 1), (750, 1), (105, 0), (105, 7))]
    write(folder, 0, [(0, main + writes), (1, life(100, 300, 1) + life(110, 400, 2) + life(610, 700, 4) + life(600, 800, 3))], size=1)
    found = profile_file.read_file(folder / "rank-00000.larkprof").records
    assert [(each.begin_ns, each.b) for each in found if each.kind == Kind.WRITE] == [
        (105, 1), (105, 0), (105, 7), (200, profile_file.NOBODY), (350, 8), (605, 1), (650, profile_file.NOBODY), (750, 1)]


def test_incomplete(folder):
    write(folder, 0, SENDER, end=0)
    write(folder, 1, receiver(0), full=(650, 3))
    found = profile.load(folder)
    assert "rank 0: ended without MPI_Finalize; recorded for 0.000 s" in found.problems
    assert any(problem.startswith("rank 1: full after 0.000 s") for problem in found.problems)
    assert len(rounds.traces_of(found.sends[0])) == 1


def test_order_of_chunks(folder):
    """A thread writes to one chunk; full ones are copied behind it."""
    capacity = (CHUNK_BYTES - CHUNK_HEADER_BYTES) // RECORD.size
    path = folder / "rank-00000.larkprof"

    def ready(begin, end):
        return [record(Kind.READY, 10 + number, 11 + number, value=number) for number in range(begin, end)]

    def read():
        file = profile_file.read_file(path)
        return [each.value for each in file.records], file.problems

    def wrote(*chunks):
        write(folder, 0, chunks, size=1)
        return read()

    first, second = (0, ready(0, capacity), 0), (0, ready(capacity, 2 * capacity), 1)
    own = (0, ready(2 * capacity, 2 * capacity + 1), 2)
    assert wrote(own, first, second) == ([*range(2 * capacity + 1)], [])
    for unchanged in (0, second[1], 1), (0, [], 1):  # ended when the copy was whole: before the chunk was emptied, and before it had its new number
        assert wrote(unchanged, first, second) == ([*range(2 * capacity)], [])
    values, problems = wrote(own, first, (1, ready(9999, 10000)))
    assert values == [*range(capacity), 9999]
    assert problems == [f"cut off or damaged: {capacity} records of thread 0 or more are missing, and its later ones are left out"], problems
    values, problems = wrote(own, (0, ready(0, capacity - 3), 0), second)
    assert values == [*range(capacity - 3)]
    assert problems == ["cut off or damaged: 3 records of thread 0 or more are missing, and its later ones are left out"], problems
    write(folder, 0, [first, first], size=1)
    path.write_bytes(path.read_bytes()[:-1000])  # copied, not yet begun anew, and the copy is cut off
    assert read()[0] == [*range(capacity)]
    write(folder, 0, [(0, ready(3, 5), 0), (0, ready(3, 5), 1)], size=1)
    whole = path.read_bytes()
    begin = HEADER_BYTES + CHUNK_BYTES
    path.write_bytes(whole[:begin] + bytes(CHUNK_HEADER_BYTES) + whole[begin + CHUNK_HEADER_BYTES : -1000])  # ended in the midst of the copy
    assert read() == ([3, 4], [])


def error_of(folder):
    try:
        profile.load(folder)
    except profile.ProfileError as error:
        return str(error)
    raise AssertionError("no error")


def test_do_not_belong_together(folder):
    write(folder, 0, SENDER)
    write(folder, 1, receiver(0), job="other")
    assert "different runs" in error_of(folder)
    write(folder, 1, receiver(0), size=3)
    assert "rank-00001.larkprof is of 3 ranks" in error_of(folder)


def test_unreadable(folder):
    """An unreadable file is named, the other ranks are shown."""
    write(folder, 0, SENDER)
    write(folder, 1, receiver(0), clock=2, host="g")
    (problem,) = profile.load(folder).problems
    assert problem.startswith("rank 1 is left out: the clock of host g was not compared"), problem
    (folder / "rank-00001.larkprof").write_bytes(b"garbage")
    found = profile.load(folder)
    assert "rank-00001.larkprof: not a file of" in found.problems[0] and found.problems[1] == "no file of rank 1", found.problems
    assert [send.rank for send in found.sends] == [0] and "note: " in profile_command.summary(found)
    (folder / "rank-00000.larkprof").write_bytes(b"")
    error = error_of(folder)
    assert "rank-00000.larkprof" in error and "rank-00001.larkprof" in error, error


def test_metrics(_folder):
    """On the traces that tests/unit/bench_traces_test.cpp reads too."""
    traces = json.loads((pathlib.Path(__file__).parent / "traces.json").read_text())
    assert len(traces) >= 5
    for each in traces:
        transfers = tuple(rounds.Transfer(*transfer) for transfer in each["transfers"])
        trace = rounds.RoundTrace(transfers, tuple(each["arrivals_ns"]), each["joined_ns"], ("observed",) * len(transfers))
        assert rounds.exposed_ns(trace) == each["exposed_ns"], each["name"]
        assert abs(rounds.early_bytes_share(trace) - each["early_bytes_share"]) < 1e-12, each["name"]


def test_phases(folder):
    """A region, a barrier met twice, joined threads; then a message each."""
    main = [record(Kind.REGION, 10, 30, a=2, request=1), record(Kind.MEMBER, 11, 20, request=1), record(Kind.SEND, 35, 36, 8, a=1, b=1),
            record(Kind.BARRIER, 40, 52), record(Kind.SEND, 53, 54, 8, a=1, b=2), record(Kind.BARRIER, 60, 66),
            record(Kind.JOIN, 80, 90, 111), record(Kind.JOIN, 90, 95, 222), record(Kind.SEND, 99, 100, 8, a=1, b=3)]
    second = [record(Kind.MEMBER, 12, 28, request=1), record(Kind.BARRIER, 50, 51), record(Kind.BARRIER, 65, 67),
              record(Kind.THREAD, 70, 75, 111), record(Kind.THREAD, 71, 94, 222), record(Kind.THREAD, 72, 300, 333)]
    write(folder, 0, [(0, main), (1, second)], size=1)
    found = profile.load(folder)
    assert [list(phase.finished_ns.values()) for phase in found.phases] == [[20, 28], [40, 50], [60, 65], [75, 94]]
    assert [message.after_phase_ns for message in found.messages] == [7, 3, 5]
    assert profile_command.delays(found) == [[0, 8], [0, 10], [0, 19]]


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory(prefix="profile-") as folder:
                test(pathlib.Path(folder))
            print(f"{name}: ok")


if __name__ == "__main__":
    main()
