#!/usr/bin/env python3
"""python/larklane/writes.py on records written by hand. Run by ctest; needs the standard library only."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from larklane.profile_file import Kind, Record  # noqa: E402
from larklane.writes import PageWrite, Sent, sends_of  # noqa: E402

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


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
