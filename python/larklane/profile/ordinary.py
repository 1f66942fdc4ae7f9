"""Ordinary point-to-point messages of a recorded program: the account of each thread, and the reasons for and against option p2p."""

from __future__ import annotations

import collections
import dataclasses

from larklane.profile.phases import folded
from larklane.profile.profile import Profile
from larklane.profile.profile_file import Kind, RankFile, Record
from larklane.profile.rounds import Request
from larklane.profile.team import UNKNOWN, Team
from larklane.profile.traffic import POINT_TO_POINT, PROC_NULL

ANY_SOURCE = -3
CARRIED = "carried by Larklane"  # in RankFile.ordinary


@dataclasses.dataclass
class Account:
    """The ordinary messages of one thread. `number`: within its team, or UNKNOWN. `calls_ns`: time in calls that start, send, receive and complete messages.
    Calls for partitioned requests are included. `tags`: by communicator; a receive of any tag adds a negative one."""

    rank: int
    number: int
    sends: int = 0
    sent_bytes: int = 0
    receives: int = 0
    foreign: int = 0  # sends and receives with a peer outside of the world
    calls_ns: int = 0
    tags: dict[int, set[int]] = dataclasses.field(default_factory=lambda: collections.defaultdict(set))

    def add(self, is_send: bool, peer: int, tag: int, context: int, size: int) -> None:
        """Count a message, or a receive."""
        self.sends += is_send
        self.sent_bytes += size if is_send else 0
        self.receives += not is_send
        self.foreign += peer < 0 and peer != ANY_SOURCE
        self.tags[context].add(tag)


def duration_ns(file: RankFile) -> int:
    """From MPI_Init to MPI_Finalize, or to the last record."""
    return max((file.end_ns or max((record.end_ns for record in file.records), default=file.begin_ns)) - file.begin_ns, 1)


def accounts_of(profile: Profile) -> list[Account]:
    """@return the accounts of threads with ordinary messages, by rank and thread"""
    found: list[Account] = []
    for rank, records in sorted(profile.records.items()):
        persistent = {request.number: request for request in profile.requests if request.rank == rank and not request.is_partitioned}
        accounts: dict[tuple[bool, int], Account] = {}
        team = Team(records)
        last_call: dict[int, tuple[int, int]] = {}
        for record in records:
            if record.kind not in POINT_TO_POINT:
                continue
            number = team.number(record.thread, record.begin_ns)
            is_known = number != UNKNOWN
            account = accounts.setdefault((is_known, number if is_known else record.thread), Account(rank, number))
            call = (record.begin_ns, record.end_ns)
            if last_call.get(record.thread) != call:  # a call that completes several requests counts once
                account.calls_ns += record.end_ns - record.begin_ns
            last_call[record.thread] = call
            _count(account, record, persistent.get(record.request) if record.kind == Kind.START else None)
        found += [accounts[key] for key in sorted(accounts, key=lambda key: (not key[0], key[1])) if accounts[key].tags]
    return found


def _count(account: Account, record: Record, request: Request | None) -> None:
    if request and request.peer != PROC_NULL:
        account.add(request.is_send, request.peer, request.tag, folded(request.context), request.bytes)
    elif record.kind in (Kind.SEND, Kind.RECEIVE) and record.a != PROC_NULL:
        account.add(record.kind == Kind.SEND, record.a, record.b, record.request, record.value)
