#!/usr/bin/env python3
"""Write docs/options.md from src/base/options.def, the only table of options."""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "src/base/options.def"
PAGE = ROOT / "docs/options.md"

HEADER = """\
# Options

<!-- Written by scripts/dev/options_doc.py from src/base/options.def. Change the table, not this page. -->

Each option is set, in rising precedence, by its default, a line `name = value` of the file that `LARKLANE_CONFIG` names, the
environment variable `LARKLANE_` + its name in capitals, or the program. Numbers take units (`16K`, `5us`). A value that is
malformed or out of range stops initialisation and is named; an unknown `LARKLANE_` variable is warned about.
The file is a regular one, or a link to one, of 1 MiB at most, with lines of 4,096 bytes at most; `#` begins a comment. Of more than
ten problems the number is told.
`larklane info` shows every option with its value and where that came from.
"""

TEXT = r'"((?:\\.|[^"\\])*)"'
ROW = re.compile(
    rf"^LARKLANE_OPTION\(\s*(\w+)\s*,\s*(\w+)\s*,\s*{TEXT}\s*,\s*{TEXT}\s*,\s*{TEXT}\s*,\s*{TEXT}\s*\)", re.M
)


def rows(table):
    """[(name, type, default, range, since, doc)] of the text of options.def."""
    found = ROW.findall(table)
    if len(found) != len(re.findall(r"^LARKLANE_OPTION\(", table, re.M)):
        raise ValueError(f"{TABLE}: a row has another form than LARKLANE_OPTION(name, type, five texts)")
    return found


def page(table):
    """The text of docs/options.md."""
    sections = [
        f"## `{name}`\n\n{doc}\n\n"
        f"{kind} · default `{default}` · range `{limits}` · `LARKLANE_{name.upper()}` · since {since}\n"
        for name, kind, default, limits, since, doc in rows(table)
    ]
    return "\n".join([HEADER, *sections])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    arguments = parser.parse_args()
    text = page(TABLE.read_text())
    if not arguments.check:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        print(f"{PAGE.relative_to(ROOT)}:1: differs from src/base/options.def: run scripts/dev/options_doc.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
