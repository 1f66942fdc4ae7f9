"""Rows of `make bars` as tables."""

from collections.abc import Sequence

from larklane.records.rows import Point, Row
from larklane.report.digest import Table

REASON_MAX = 40  # characters of the reason why a contender has no figure


def figure(value: float) -> str:
    """`value` with three digits, more than the machine reproduces."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{round(value, 2 - len(str(int(abs(value)))) + 1):,.0f}"


def _cell(point: Point, name: str) -> str:
    found = point.figures.get(name)
    if not found:
        return point.failed.get(name, "-")[:REASON_MAX].replace("\n", " ").replace("|", "/")
    lost = point.series.get(name, ()).count(None)
    ended = f", {found.n} of {found.n + lost} runs" if lost else ""
    return f"{figure(found.median)} ({figure(found.p10)} to {figure(found.p90)}{ended})"


def point_table(points: Sequence[Point], between: str = "; ") -> Table:
    """One line a point: medians (and the middle 80 percent) of all contenders, the verdicts.

    @param between  verdicts of a point"""
    names = list(dict.fromkeys(name for point in points for name in point.contenders))
    return Table(("point", *names, "verdicts"), tuple(
        (", ".join(f"{name} {value}" for name, value in point.parameters.items()), *(_cell(point, name) for name in names),
         between.join(f"{verdict.label}: {verdict.word}" for verdict in point.verdicts)) for point in points))


def row_title(row: Row) -> str:
    return f"{row.name} ({row.unit})" if row.unit else row.name


def criteria(row: Row) -> list[str]:
    """Sentences on the criteria of a script that judges for itself."""
    return [f"{'holds' if criterion.holds else 'DOES NOT HOLD'}: {criterion.what}" for criterion in row.criteria]
