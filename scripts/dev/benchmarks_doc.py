#!/usr/bin/env python3
"""Write the table of benchmarks in docs/user/performance.md from bench/benchmarks.def."""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
from larklane.records import benchmarks  # noqa: E402

PAGE = ROOT / "docs/user/performance.md"
PLACE = re.compile(r"(?<=<!-- benchmarks: begin; written by scripts/dev/benchmarks_doc.py -->\n).*?(?=<!-- benchmarks: end -->)", re.S)


def table(rows):
    """The lines between the two marks."""
    lines = ["| benchmark | subject | its figure | sample | ways | papers |", "|---|---|---|---|---|---|"]
    for row in rows:
        ways = ", ".join(f"`{way}`" for way in [*row.ways.split(","), *filter(None, row.further_ways.split(","))])
        papers = "; ".join(dict.fromkeys(filter(None, (row.source, row.threads_source, row.parts_source))))
        lines.append(f"| `{row.name}` | {row.what} | {row.headline}, {row.unit} | `{row.sample}` | {ways} | {papers} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    arguments = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    after, places = PLACE.subn(lambda _: table(benchmarks.BENCHMARKS.values()), before)
    if places != 1:
        print(f"{PAGE.relative_to(ROOT)}:1: the marks of the table of benchmarks are not there")
        return 1
    if not arguments.check:
        PAGE.write_text(after, encoding="utf-8")
    elif before != after:
        print(f"{PAGE.relative_to(ROOT)}:1: differs from bench/benchmarks.def: run scripts/dev/benchmarks_doc.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
