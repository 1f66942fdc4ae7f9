"""The table of benchmarks: bench/benchmarks.def of the sources, installed beside this file."""

import ast
import importlib.resources
import re
from dataclasses import dataclass, fields

TABLE = importlib.resources.files(__package__) / "benchmarks.def"  # works in a zip archive, too
TEXT = r'"(?:\\.|[^"\\])*"'
ROW = re.compile(rf"^LARKLANE_BENCHMARK\(\w+,((?:{TEXT}|[^\"()])*)\)$", re.M)
FIELD = re.compile(rf"\.(\w+) = ({TEXT}|[\w:.+-]+)")


@dataclass(frozen=True)
class Benchmark:
    """A row; bench/measure/catalogue.hpp documents its fields."""

    name: str
    kind: str
    ways: str
    what: str
    headline: str
    unit: str
    sample: str
    further_ways: str = ""
    sizes: str = "64K:4M"
    quick_sizes: str = ""
    scale: float = 1
    formula: str = "plain"
    is_share: bool = False
    better: str = "lower"
    axis: str = "log"
    report_name: str = ""
    report_unit: str = ""
    has_constant_baseline: bool = False
    meaning: str = ""
    title: str = ""
    source: str = ""
    threads_source: str = ""
    parts: str = ""
    parts_source: str = ""

    @property
    def is_of_lanes(self) -> bool:
        """Whether it runs between threads that share lanes, or have one each."""
        return self.kind in ("messages", "lanes", "application")


def _value(text: str) -> str | float | bool:
    if text in ("true", "false"):
        return text == "true"
    if "::" in text:
        return text.rpartition("::")[2]
    value: str | float = ast.literal_eval(text)
    return value


def parse(table: str) -> tuple[Benchmark, ...]:
    """@return the rows of the text of benchmarks.def. @raises ValueError  a row has another form"""
    known = {field.name for field in fields(Benchmark)}
    found = [{name: _value(value) for name, value in FIELD.findall(row) if name in known} for row in ROW.findall(table)]
    if len(found) != len(re.findall(r"^LARKLANE_BENCHMARK\(", table, re.M)):
        raise ValueError("benchmarks.def: a row has another form than LARKLANE_BENCHMARK(NAME, .field = value, ...)")
    return tuple(Benchmark(**row) for row in found)  # type: ignore[arg-type]


BENCHMARKS = {row.name: row for row in parse(TABLE.read_text(encoding="utf-8"))}


def names(*kinds: str) -> tuple[str, ...]:
    """@return the benchmarks of these kinds, in the order of the table"""
    return tuple(row.name for row in BENCHMARKS.values() if row.kind in kinds)


def of(name: str) -> Benchmark:
    """@return the row of a benchmark; an empty row if another version wrote the record, and the table lacks it"""
    return BENCHMARKS.get(name) or Benchmark(name, "", "", "", name, "", "")
