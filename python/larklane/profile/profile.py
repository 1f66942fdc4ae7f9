"""A recorded run: a folder with one file per rank (docs/user/profile.md), merged on one clock. Times are integers, nanoseconds of the clock of rank 0's host."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable

from larklane.profile.phases import Message, Phase, messages_of, phases_of
from larklane.profile.profile_file import SUFFIX, Clock, ProfileError, RankFile, Record, aligned, clocks_of, read_file
from larklane.profile.rounds import Request, match, requests_of

NATIVE = " (the MPI's own partitioned communication)"


@dataclasses.dataclass
class Profile:
    """All ranks on one clock. `records`: by rank; `problems`: sentences for the user."""

    files: list[RankFile]
    clocks: dict[int, Clock]
    records: dict[int, list[Record]]
    requests: list[Request]
    phases: list[Phase]
    messages: list[Message]
    problems: list[str]

    @property
    def clock_error_ns(self) -> int:
        """The largest error between times of two hosts."""
        return max(clock.error_ns for clock in self.clocks.values())

    @property
    def sends(self) -> list[Request]:
        return [request for request in self.requests if request.is_send and request.is_partitioned]


def _check(files: list[RankFile]) -> list[str]:
    """@return sentences on missing data. Raises ProfileError if the files belong to different runs."""
    first = files[0]
    for file in files[1:]:
        if file.host == first.host and file.job != first.job:
            raise ProfileError(f"{file.path} and {first.path} are of different runs")
        if file.size != first.size:
            raise ProfileError(f"{file.path} is of {file.size} ranks, {first.path} of {first.size}: different runs")
    missing = sorted(set(range(first.size)) - {file.rank for file in files})
    problems = [f"rank {file.rank}: {problem}" for file in files for problem in file.problems]
    return problems + ([f"no file of rank {', '.join(map(str, missing))}"] if missing else [])


def _read(paths: Iterable[pathlib.Path]) -> tuple[list[RankFile], list[str]]:
    """@return the readable profiles, and errors of the other files. Raises ProfileError without a readable profile."""
    files, problems = [], []
    for path in paths:
        try:
            files.append(read_file(path))
        except ProfileError as error:
            problems.append(str(error))
    if not files:
        raise ProfileError("; ".join(problems))
    return files, problems


def load(folder: pathlib.Path | str) -> Profile:
    """Load all readable files; others become problems of the result. Raises ProfileError without a readable file, or for different runs."""
    folder = pathlib.Path(folder)
    paths = sorted(folder.glob(f"rank-*{SUFFIX}"))
    if not paths:
        raise ProfileError(f"{folder}: " + (f"no rank-*{SUFFIX} in it" if folder.is_dir() else "no such folder"))
    files, unreadable = _read(paths)
    clocks = clocks_of(files)
    problems = unreadable + _check(files)
    for file in files:
        if file.clock_id not in clocks:
            problems.append(f"rank {file.rank} is left out: the clock of host {file.host} was not compared with rank 0's: the file of the first "
                            "rank on that host is missing or cut off")
    files = [file for file in files if file.clock_id in clocks]
    others = len(list(folder.glob(f"*{SUFFIX}"))) - len(paths)
    if others:
        problems.append(f"{others} files of worlds that the program spawned are left out")
    records = {file.rank: list(aligned(file, clocks[file.clock_id])) for file in files}
    requests = [request for rank, of_rank in records.items() for request in requests_of(rank, of_rank)]
    match(requests)
    phases, messages = [], []
    for rank, of_rank in records.items():
        own = phases_of(rank, of_rank)
        phases += own
        messages += messages_of(rank, of_rank, (request for request in requests if request.rank == rank), own)
    return Profile(files, clocks, records, requests, phases, messages, problems)
