"""Reader of one file of `larklane profile` (docs/user/profile.md), and the alignment of several to one clock."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import enum
import heapq
import itertools
import pathlib
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from larklane.files.input_file import PROFILE_BYTES_MAX, read_bytes

SUFFIX = ".larkprof"
MAGIC = b"LARKPROF"
VERSION = 2
HEADER = struct.Struct("<8s4I2i2I7Q QqQ QqQ 64s64s32s128s256s512s256s")
CHUNK = struct.Struct("<4I")
CORES = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*")
CHUNK_MAGIC = 0x4B4E4843
CHUNK_HEADER_BYTES = 64
RECORD = struct.Struct("<4Q2iIBBH")


class ProfileError(Exception):
    """The reason why a file can't be read, with its name."""


class Kind(enum.IntEnum):
    """The kind of a record."""

    REQUEST, PAIR, START, READY, ARRIVED, WAIT, FREED, SEND, RECEIVE, REGION, MEMBER, BARRIER, THREAD, JOIN, WRITE, BUFFER = range(1, 17)


NOBODY = -1  # thread number of an unknown thread
IS_SEND, IS_PARTITIONED, IS_NATIVE = 1, 2, 4  # flags of Kind.REQUEST


class Record(NamedTuple):
    """One record of a file, with the number of the thread that wrote it."""

    begin_ns: int
    end_ns: int
    value: int
    handle: int
    a: int
    b: int
    request: int
    kind: int
    flags: int
    thread: int


class ClockSample(NamedTuple):
    """At local_ns (0: not measured) rank 0's clock showed local_ns + offset_ns, give or take error_ns."""

    local_ns: int
    offset_ns: int
    error_ns: int


@dataclasses.dataclass
class RankFile:
    """One file, unaligned: times of its own host. `cores`: those that the process may use; empty if unknown. `ordinary`: the carrier of ordinary messages,
    and the reason; empty: the MPI, without option p2p. `problems`: sentences on missing data."""

    path: pathlib.Path
    rank: int
    size: int
    is_native: bool
    begin_ns: int
    end_ns: int
    clock_id: int
    samples: tuple[ClockSample, ClockSample]
    host: str
    job: str
    larklane: str
    mpi: str
    program: str
    cores: frozenset[int]
    records: list[Record]
    problems: list[str]
    ordinary: str = ""


def read_file(path: pathlib.Path) -> RankFile:
    """Raises ProfileError if the file is no profile. Truncated or damaged parts become problems of the result."""
    try:
        data = read_bytes(path, PROFILE_BYTES_MAX)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    if data[:8] != MAGIC:
        raise ProfileError(f"{path}: not a file of `larklane profile`: it begins with {data[:8]!r}, not {MAGIC!r}")
    if len(data) < HEADER.size:
        raise ProfileError(f"{path}: cut off after {len(data)} bytes, in its header")
    fields = HEADER.unpack_from(data)
    version, header_bytes, chunk_bytes, record_bytes = fields[1:5]
    if version != VERSION:
        raise ProfileError(f"{path}: version {version} of the format; this is the reader of version {VERSION}")
    if record_bytes != RECORD.size or chunk_bytes < CHUNK_HEADER_BYTES + record_bytes or header_bytes < HEADER.size:
        raise ProfileError(f"{path}: damaged: records of {record_bytes} bytes in chunks of {chunk_bytes}")
    rank, size, _, is_native, begin_ns, _, end_ns, full_since_ns, dropped, bytes_max, clock_id = fields[5:16]
    texts = [raw.split(b"\0")[0].decode(errors="replace") for raw in fields[22:29]]
    problems: list[str] = []
    records = _apart(list(_records(data, header_bytes, chunk_bytes, problems)))
    if end_ns == 0:
        last = max((record.end_ns for record in records), default=begin_ns)
        problems.append(f"ended without MPI_Finalize; recorded for {(last - begin_ns) / 1e9:.3f} s")
    if dropped:
        records = [record for record in records if record.begin_ns < full_since_ns]
        problems.append(f"full after {(full_since_ns - begin_ns) / 1e9:.3f} s (limit {bytes_max} bytes, or the disk): "
                        f"{dropped} records are missing")
    records.sort(key=lambda record: (record.begin_ns, record.kind))
    return RankFile(path, rank, size, bool(is_native), begin_ns, end_ns, clock_id,
                    (ClockSample(*fields[16:19]), ClockSample(*fields[19:22])), texts[0], texts[1], texts[2], texts[3], texts[4], cores_of(texts[5]),
                    records, problems, texts[6])


def _apart(records: list[Record]) -> list[Record]:
    """Give threads that lived at the same time different numbers. In the file, a thread that ends leaves its number to the next thread that records
    for the first time. That thread may have begun before. The first thread to begin gets the lowest number of a created thread.

    @param records  for each number in the order of their writing
    """
    lives: list[list[Record]] = []  # each ends with the record of a thread's end
    open_lives: dict[int, list[Record]] = {}
    for record in records:
        life = open_lives.setdefault(record.thread, [])
        life.append(record)
        if record.kind == Kind.THREAD:
            lives.append(open_lives.pop(record.thread))
    lives.sort(key=lambda life: life[-1].begin_ns)
    left = [record for life in open_lives.values() for record in life]
    writers = {record.b for record in records if record.kind == Kind.WRITE}
    free = sorted({life[-1].thread for life in lives} - open_lives.keys())
    further = itertools.count(max(writers.union(record.thread for record in records), default=0) + 1)
    busy: list[tuple[int, int]] = []  # (end, number)
    renumbered: dict[int, list[Record]] = collections.defaultdict(list)  # ends of lives, with the new number, by the file's number
    for life in lives:
        end = life[-1]
        while busy and busy[0][0] <= end.begin_ns:
            heapq.heappush(free, heapq.heappop(busy)[1])
        number = heapq.heappop(free) if free else next(further)
        heapq.heappush(busy, (end.end_ns, number))
        renumbered[end.thread].append(end._replace(thread=number))
        left += [record._replace(thread=number) for record in life]
    lives_of = {number: _Lives(ends) for number, ends in renumbered.items()}
    return [record._replace(b=lives_of[record.b].number(record)) if record.kind == Kind.WRITE and record.b in lives_of else record for record in left]


class _Lives:
    """The threads that had one number of the file. @param lives  their ends, with the new numbers"""

    def __init__(self, lives: list[Record]) -> None:
        self._lives = sorted(lives, key=lambda life: life.end_ns)
        self._earliest = list(itertools.accumulate((life.begin_ns for life in reversed(self._lives)), min))[::-1]  # of this life and those after it

    def number(self, write: Record) -> int:
        """@return the writer's new number. `NOBODY` if two threads with this number were alive: the second one records nothing until the first one ends,
        but it may write. A thread that has not ended keeps the file's number."""
        found: set[int] = set()
        at_ns = write.begin_ns
        for place in range(bisect.bisect_left(self._lives, at_ns, key=lambda life: life.end_ns), len(self._lives)):
            if self._earliest[place] > at_ns or len(found) > 1:
                break
            if self._lives[place].begin_ns <= at_ns:
                found.add(self._lives[place].thread)
        return write.b if not found else found.pop() if len(found) == 1 else NOBODY


def cores_of(text: str) -> frozenset[int]:
    """ "0-3,8"; empty if the text has another form, or is cut off. """
    if not CORES.fullmatch(text):
        return frozenset()
    ranges = [part.split("-") for part in text.split(",") if part]
    return frozenset(number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1))


def _records(data: bytes, offset: int, chunk_bytes: int, problems: list[str]) -> Iterator[Record]:
    """Yield the records of each thread in the order of their writing, up to the first missing one."""
    for thread, chunks in _chunks(data, offset, chunk_bytes, problems).items():
        last = max(chunks)
        for sequence in range(last + 1):
            records = chunks.get(sequence, b"")
            for fields in RECORD.iter_unpack(records):
                yield Record._make((*fields[:9], thread))
            if missing := _capacity(chunk_bytes) - len(records) // RECORD.size if sequence < last else 0:
                problems.append(f"cut off or damaged: {missing} records of thread {thread} or more are missing, and its later ones are left out")
                break


def _capacity(chunk_bytes: int) -> int:
    return (chunk_bytes - CHUNK_HEADER_BYTES) // RECORD.size


def _chunks(data: bytes, offset: int, chunk_bytes: int, problems: list[str]) -> dict[int, dict[int, bytes]]:
    """@return the records of chunks before the first damaged one, by thread and by the number of full chunks before them"""
    found: dict[int, dict[int, bytes]] = collections.defaultdict(dict)
    for begin in range(offset, len(data), chunk_bytes):
        chunk = data[begin : begin + chunk_bytes]
        if len(chunk) < CHUNK_HEADER_BYTES:
            problems.append(f"cut off at byte {len(data)}")
            break
        magic, thread, count, sequence = CHUNK.unpack_from(chunk)
        if not any(chunk[:CHUNK_HEADER_BYTES]):
            continue  # when the process ended, this chunk was not begun, or not copied completely
        if magic != CHUNK_MAGIC or count > _capacity(chunk_bytes):
            problems.append(f"damaged at byte {begin}: what follows is left out")
            break
        whole = min(count, (len(chunk) - CHUNK_HEADER_BYTES) // RECORD.size)
        if whole < count:
            problems.append(f"cut off at byte {len(data)}: {count - whole} records are missing")
        records = chunk[CHUNK_HEADER_BYTES : CHUNK_HEADER_BYTES + whole * RECORD.size]
        kind = next((fields[7] for fields in RECORD.iter_unpack(records) if not 1 <= fields[7] <= len(Kind)), None)
        if kind is not None:
            problems.append(f"damaged at byte {begin}: a record of kind {kind}; what follows is left out")
            break
        if len(records) >= len(found[thread].get(sequence, b"")):  # a chunk occurs twice if the process ended after its copy, before its reuse
            found[thread][sequence] = records
    return found


# --- one clock --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Clock:
    """Converts a host's times to those of rank 0's host: a line through the samples of both ends of the run."""

    first: ClockSample
    last: ClockSample
    error_ns: int

    def aligned(self, local_ns: int) -> int:
        span = self.last.local_ns - self.first.local_ns
        drift = (self.last.offset_ns - self.first.offset_ns) * (local_ns - self.first.local_ns) // span if span else 0
        return local_ns + self.first.offset_ns + drift


SAME = Clock(ClockSample(0, 0, 0), ClockSample(0, 0, 0), 0)


def clocks_of(files: list[RankFile]) -> dict[int, Clock]:
    """@return by clock_id the clocks that were compared with rank 0's; without any, the clock of the first file"""
    clocks = {file.clock_id: SAME for file in files if file.rank == 0}
    for file in files:
        first, last = file.samples
        if first.local_ns and file.clock_id not in clocks:
            if not last.local_ns:
                file.problems.append("clocks were compared at the begin only: they may have drifted apart since")
                last = first
            clocks[file.clock_id] = Clock(first, last, max(first.error_ns, last.error_ns))
    return clocks or {files[0].clock_id: SAME}


def aligned(file: RankFile, clock: Clock) -> Iterator[Record]:
    """The file's records on rank 0's clock."""
    for record in file.records:
        yield record._replace(begin_ns=clock.aligned(record.begin_ns) if record.begin_ns else 0,
                              end_ns=clock.aligned(record.end_ns) if record.end_ns else 0)
