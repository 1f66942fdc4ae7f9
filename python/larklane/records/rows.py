"""Rows of `make bars`: the points of each, with the series, figures and verdicts of its contenders."""

from dataclasses import dataclass
from typing import Any

from larklane.records.node import Node


@dataclass(frozen=True)
class Figure:
    """Summary of a contender's runs, in the row's unit."""

    n: int
    median: float
    p10: float
    p90: float


@dataclass(frozen=True)
class Verdict:
    """A contender against another one, or against a limit in the row's unit."""

    candidate: str
    baseline: str | float
    limit: float | None  # of a claim with a share of the baseline, or of the baseline itself
    word: str

    @property
    def label(self) -> str:
        """ "candidate / baseline", or "candidate / baseline at most 0.125"."""
        if not isinstance(self.baseline, str):
            return f"{self.candidate} / {self.baseline:.12g}"
        return f"{self.candidate} / {self.baseline}" + ("" if self.limit is None else f" at most {self.limit:.12g}")


@dataclass(frozen=True)
class Point:
    """One point of a row."""

    parameters: dict[str, Any]
    series: dict[str, tuple[float | None, ...]]  # {contender: its runs in turn order}; None: a run that hung. The second series has a prime
    failed: dict[str, str]  # {contender: why}
    figures: dict[str, Figure]  # {contender: of the runs that ended}
    verdicts: tuple[Verdict, ...]

    @property
    def contenders(self) -> list[str]:
        return [name for name in (*self.figures, *self.failed) if not name.endswith("'")]


@dataclass(frozen=True)
class Criterion:
    """A criterion of a script that judges its own measurements."""

    what: str
    holds: bool


@dataclass(frozen=True)
class Row:
    """One measurement of a row."""

    source: str  # name of its file
    name: str
    unit: str
    commit: str
    measured: str
    machine: dict[str, str]
    why_not: tuple[str, ...]  # reasons why figures hold for that hour of that machine only; empty: publishable
    points: tuple[Point, ...]
    criteria: tuple[Criterion, ...]

    def subject(self) -> str:
        note = f"; {', '.join(self.why_not)}" if self.why_not else ""
        return f"{self.source}; {self.machine.get('cpu', 'unknown')}, {self.machine.get('cores', '?')} cores{note}"


def _figure(node: Node) -> Figure:
    return Figure(node.get("n", int, 0), node.get("median", float), node.get("p10", float), node.get("p90", float))


def read_verdict(node: Node) -> Verdict:
    baseline = node.get("baseline", str) if isinstance(node.fields.get("baseline"), str) else node.get("baseline", float)
    limit = node.get("limit", float) if "limit" in node.fields else None
    return Verdict(node.get("candidate", str), baseline, limit, node.get("verdict", str))


def read_point(node: Node) -> Point:
    series = node.child("series")
    figures = node.child("summary")
    verdicts = node.children("verdicts") if "verdicts" in node.fields else []  # none of a script that judges the row as a whole
    return Point(node.get("parameters", dict), {name: series.runs(name) for name in series.fields}, node.texts("failed"),
                 {name: _figure(figures.child(name)) for name in figures.fields}, tuple(map(read_verdict, verdicts)))


def _statement(name: str, node: Node) -> Point:
    """A figure of the papers' statements, as a point with one contender."""
    return Point({"figure": name}, {}, {}, {node.get("metric", str): _figure(node)}, ())


def read_row(node: Node, source: str) -> Row:
    """@param node  with or without the row's name, points and criteria: scripts that judge for themselves keep points of their own
    @throws RecordError"""
    points = [read_point(point) for point in (node.children("points") if "points" in node.fields else []) if "series" in point.fields]
    if "figures" in node.fields:
        figures = node.child("figures")
        points += [_statement(name, figures.child(name)) for name in figures.fields]
    criteria = [Criterion(entry.get("what", str), entry.get("holds", bool)) for entry in node.children("verdicts")] if "verdicts" in node.fields else []
    commit = node.get("commit", str)
    return Row(source, node.get("row", str, source.partition(f"-{commit}")[0]), node.get("unit", str, ""), commit, node.get("measured", str),
               node.texts("machine"), tuple(map(str, node.get("why_not", list, []))), tuple(points), tuple(criteria))
