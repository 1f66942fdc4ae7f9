#!/usr/bin/env python3
"""python/larklane/profile/writes.py on records written by hand. Run by ctest; needs the standard library only."""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from larklane.profile.profile_file import Kind, Record  # noqa: E402
from larklane.profile.team import UNKNOWN, Team  # noqa: E402
from larklane.profile.writes import PageWrite, Sent, sends_of  # noqa: E402

PAGE = 4096


def record(kind, begin, value=0, handle=0, a=0, b=0, request=0, flags=0):
    return Record(begin, begin, value, handle, a, b, request, kind, flags, 0)


def write(begin, page, thread):
    return record(Kind.WRITE, begin, value=page * PAGE, a=PAGE, b=thread)


def test_messages():
    buffer = {"value": 2 * PAGE, "handle": 8 * PAGE}
    found = list(sends_of([record(Kind.BUFFER, 10, **buffer), write(20, 8, 3), write(21, 9, 1), write(22, 9, 2), write(23, 10, 5),
                           record(Kind.BUFFER, 30, **buffer), record(Kind.BUFFER, 40, **buffer)]))
    assert found == [Sent(10, 0, 8 * PAGE, 2 * PAGE, ()),
                     Sent(30, 0, 8 * PAGE, 2 * PAGE, (PageWrite(0, PAGE, 3, 20), PageWrite(PAGE, PAGE, 1, 21))),
                     Sent(40, 0, 8 * PAGE, 2 * PAGE, ())]


def test_partitions():
    """Each run of partitions is sent when it is marked; Start sends nothing."""
    records = [record(Kind.REQUEST, 1, value=PAGE, request=1, flags=3), record(Kind.BUFFER, 1, value=4 * PAGE, handle=PAGE, request=1),
               record(Kind.START, 5, request=1), write(10, 2, 7), write(11, 4, 6),
               record(Kind.READY, 20, a=1, b=2, request=1), record(Kind.READY, 30, a=3, b=1, request=1)]
    assert list(sends_of(records)) == [Sent(20, 1, 2 * PAGE, 2 * PAGE, (PageWrite(0, PAGE, 7, 10),)),
                                       Sent(30, 1, 4 * PAGE, PAGE, (PageWrite(0, PAGE, 6, 11),))]


def test_persistent():
    records = [record(Kind.REQUEST, 1, value=PAGE, request=1, flags=5), record(Kind.BUFFER, 1, value=PAGE, handle=PAGE, request=1),
               write(3, 1, 2), record(Kind.START, 5, request=1), record(Kind.START, 6, request=2)]
    assert list(sends_of(records)) == [Sent(5, 1, PAGE, PAGE, (PageWrite(0, PAGE, 2, 3),))]


def span(kind, begin, end, thread, a=0, value=0):
    return Record(begin, end, value, 0, a, 0, 0, kind, 0, thread)


def numbers(team, *places):
    return [team.number(thread, at) for thread, at in places]


def test_numbers_in_regions():
    """Thread 3 begins a region within its region; outside of regions thread 3, which begins them, is 0."""
    team = Team([span(Kind.REGION, 10, 90, 3), span(Kind.MEMBER, 10, 90, 3, a=2), span(Kind.MEMBER, 11, 80, 0, a=1), span(Kind.MEMBER, 20, 30, 3, a=1),
                 span(Kind.MEMBER, 200, 210, 3)])
    assert numbers(team, (3, 10), (3, 25), (3, 31), (3, 90), (0, 80)) == [1, 0, 1, 1, 0]
    assert numbers(team, (3, 5), (3, 100), (0, 81), (7, 20), (3, 205)) == [0, 0, UNKNOWN, UNKNOWN, UNKNOWN]


def test_numbers_of_created_threads():
    """In the order of their creation, not of their first record; number 5 of the file is another one's in the next group."""
    team = Team([span(Kind.THREAD, 10, 50, 5), span(Kind.THREAD, 11, 40, 1), span(Kind.JOIN, 12, 50, 0), span(Kind.THREAD, 60, 80, 1),
                 span(Kind.THREAD, 61, 70, 5)])
    assert numbers(team, (5, 50), (1, 20), (1, 65), (5, 65), (0, 5)) == [1, 2, 1, 2, 0]


def test_numbers_until_joins():
    """The first thread ends before the second is created, and keeps its number until it is joined; a thread that is never joined, until it ends."""
    first, second, third, fourth = (span(Kind.THREAD, begin, end, thread, value=thread)
                                    for thread, begin, end in ((1, 10, 20), (2, 30, 50), (3, 70, 90), (4, 95, 99)))
    joins = [span(Kind.JOIN, 55, 60, 0, value=1), span(Kind.JOIN, 61, 65, 0, value=2)]
    team = Team([first, second, *joins, third, fourth])
    assert numbers(team, (1, 15), (2, 40), (3, 80), (4, 97)) == [1, 2, 1, 1]
    assert numbers(Team([first, second, joins[1], third, fourth]), (2, 40), (3, 80)) == [1, 1]


def test_numbers_with_one_pthread_t():
    """A pthread_t is used again when its thread has ended: the first two are never joined, or another thread joins them and records that late."""
    threads = [span(Kind.THREAD, begin, begin + 5, thread, value=9) for thread, begin in ((1, 10), (2, 20), (3, 30))]
    assert numbers(Team([*threads, span(Kind.JOIN, 36, 40, 0, value=9)]), (1, 12), (2, 22), (3, 32)) == [1, 1, 1]
    assert numbers(Team([threads[0], span(Kind.JOIN, 11, 28, 7, value=9), *threads[1:]]), (1, 12), (2, 22), (3, 32)) == [1, 1, 1]


def test_time_of_many():
    """Regions without number in a created thread: the search for each of them does not read the others."""
    count = 50_000
    members = [span(Kind.MEMBER, 10 * at, 10 * at + 5, 3, a=1 + at % 2) for at in range(1, count + 1)]
    begin = time.process_time()
    team = Team([span(Kind.THREAD, 5, 10 * count + 99, 3), *members])
    assert [team.number(3, 10 * at + 7) for at in range(1, count + 1)] == [1] * count
    assert [team.number(3, 10 * at + 3) for at in range(1, count + 1)] == [at % 2 for at in range(1, count + 1)]
    assert time.process_time() - begin < 10


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
