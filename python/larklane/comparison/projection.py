"""Projected speed-up of a whole program if its communication gets faster (ICPP'22, section 4.8), and the reader of mpiP's text
report, which gives the communication share."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from larklane.files.input_file import TEXT_BYTES_MAX, read_bytes
from larklane.numbers import wording
from larklane.numbers.stats import median
from larklane.records.cases import PARTITIONED, Case, metrics
from larklane.records.node import RecordError

# Calls that partitioned communication may replace; collective calls stay.
POINT_TO_POINT = re.compile(r"(I?[BSR]?send|I?recv|Sendrecv|Start|Wait|Test|I?m?probe)", re.I)


def project(share: float, speedup: float) -> float:
    """Speed-up of a program if `share` of its time (0 to 1) gets `speedup` times as fast: 1 / (1 - share + share / speedup).
    (Amdahl, AFIPS 1967)"""
    return 1 / (1 - share + share / speedup)


@dataclass(frozen=True)
class Projection:
    """A program's communication share, and its assumed speed-up."""

    share: float  # 0 to 1
    speedup: float
    label: str

    @property
    def result(self) -> float:
        return project(self.share, self.speedup)


@dataclass(frozen=True)
class Profile:
    """mpiP's figures for all tasks together."""

    app_s: float
    mpi_s: float
    share: float  # of the application's time: point-to-point calls where the report lists calls, else all of MPI
    what: str  # which of the two, in words


def parse_projection(text: str) -> Projection:
    """ "0.204:15.1" or "20.4%:15.1".

    @throws ValueError
    """
    match = re.fullmatch(r"([\d.]+)(%?):([\d.]+)x?", text)
    if not match:
        raise ValueError(f"{text}: expected SHARE:SPEEDUP, as in 0.204:15.1 or 20.4%:15.1")
    share, speedup = float(match[1]) / (100 if match[2] else 1), float(match[3])
    if not 0 <= share <= 1 or speedup <= 0:
        raise ValueError(f"{text}: the share is 0 to 1 (or 0 % to 100 %), the speed-up above 0")
    return Projection(share, speedup, f"{100 * share:.3g} % at {speedup:.3g}x")


def read_mpip(path: Path) -> Profile:
    """@throws RecordError  unreadable, or no mpiP report"""
    try:
        text = read_bytes(path, TEXT_BYTES_MAX).decode("utf-8", errors="replace")
    except OSError as error:
        raise RecordError(f"{path}: can't be read: {error.strerror}; expected mpiP's text report") from error
    section = re.search(r"^@--- MPI Time \(seconds\).*?(?=^@---|\Z)", text, re.M | re.S)
    total = re.search(r"^\s*\*\s+(\S+)\s+(\S+)\s+\S+\s*$", section[0], re.M) if section else None
    try:
        app_s, mpi_s = (float(total[1]), float(total[2])) if total else (0.0, 0.0)
    except ValueError:
        app_s = 0.0
    if app_s <= 0:
        raise RecordError(f"{path}: no line of all tasks (*) under `MPI Time (seconds)`; expected mpiP's text report")
    percents = _call_percents(text)
    if not percents:
        return Profile(app_s, mpi_s, mpi_s / app_s, "all MPI calls")
    share = sum(percent for call, percent in percents if POINT_TO_POINT.match(call)) / 100
    return Profile(app_s, mpi_s, min(share, 1.0), "point-to-point calls among the top twenty")


def _call_percents(text: str) -> list[tuple[str, float]]:
    """[(call, percent of the application's time)] by call site."""
    section = re.search(r"^@--- Aggregate Time \(.*?(?=^@---|\Z)", text, re.M | re.S)
    rows = re.findall(r"^(\w+)\s+\d+\s+[\d.e+-]+\s+([\d.]+)\s", section[0], re.M) if section else []
    return [(call, float(percent)) for call, percent in rows]


def measured_speedup(cases: Sequence[Case]) -> tuple[float, str] | None:
    """The largest ratio of partitions to one sending thread in sweep3d or halo3d, as in the paper, and its place."""
    best: tuple[float, str] | None = None
    for case in cases:
        baseline = case.baseline
        if case.benchmark not in ("sweep3d", "halo3d") or case.way != PARTITIONED or baseline is None:
            continue
        metric = metrics([case])[0]
        ratio = median(metric.values(case)) / median(metric.values(baseline))
        speedup = ratio if metric.better == "higher" else 1 / ratio
        if best is None or speedup > best[0]:
            best = (speedup, f"{case.benchmark}, {wording.size(case.point.bytes)}, {wording.VARIANTS.get(case.variant, case.variant)}")
    return best
