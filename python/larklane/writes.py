"""Who wrote what a rank sent: the first write to each page of a send buffer since it was sent before (`larklane profile --trace-writes`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from larklane.profile_file import IS_PARTITIONED, Kind, Record


class PageWrite(NamedTuple):
    """The first write to one page. `offset`: of the page in the buffer."""

    offset: int
    bytes: int
    thread: int
    time_ns: int


class Sent(NamedTuple):
    """A message, a Start of a persistent send, or a run of partitions that were marked. `request`: 0 for a message."""

    begin_ns: int
    request: int
    address: int
    bytes: int
    writes: tuple[PageWrite, ...]


def sends_of(records: Iterable[Record]) -> Iterator[Sent]:
    """In their order. `records`: of one rank, by begin. Pages that a buffer shares with something else are not watched."""
    written: dict[int, Record] = {}
    buffers: dict[int, Record] = {}
    partition_bytes: dict[int, int] = {}
    for record in records:
        number = record.request
        if record.kind == Kind.WRITE:
            written.setdefault(record.value, record)
        elif record.kind == Kind.REQUEST and record.flags & IS_PARTITIONED:
            partition_bytes[number] = record.value
        elif record.kind == Kind.BUFFER and number:
            buffers[number] = record
        elif record.kind == Kind.BUFFER:
            yield _sent(record, record.handle, record.value, written)
        elif record.kind == Kind.START and number in buffers and number not in partition_bytes:
            yield _sent(record, buffers[number].handle, buffers[number].value, written)
        elif record.kind == Kind.READY and number in buffers:
            part = partition_bytes[number]
            yield _sent(record, buffers[number].handle + record.a * part, record.b * part, written)


def _sent(record: Record, address: int, size: int, written: dict[int, Record]) -> Sent:
    """What was written of it is taken out."""
    pages = sorted(page for page in written if address <= page < address + size)
    writes = (written.pop(page) for page in pages)
    return Sent(record.begin_ns, record.request, address, size,
                tuple(PageWrite(write.value - address, write.a, write.b, write.begin_ns) for write in writes))
