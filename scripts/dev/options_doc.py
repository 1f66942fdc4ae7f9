#!/usr/bin/env python3
"""Write docs/user/options.md from src/base/options.def, the only table of options, and src/part/policy/policies.def."""

import argparse
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "src/base/options.def"
POLICIES = ROOT / "src/part/policy/policies.def"
PAGE = ROOT / "docs/user/options.md"

HEADER = """\
# Options

<!-- Written by scripts/dev/options_doc.py from src/base/options.def. Change the table, not this page. -->

For users: every option of the library, with type, default, range and effect. The values here, and their origin:

```sh
larklane info --options
```

Each option is set, in rising precedence, by its default, a line `name = value` of the file `LARKLANE_CONFIG`, the
environment variable `LARKLANE_` + its name in capitals, or the program. Numbers take units (`16K`, `5us`). A value that
is malformed or out of range stops initialisation and is named; an unknown `LARKLANE_` variable causes a warning. The
file is a regular one, or a link to one, of 1 MiB at most, with lines of 4,096 bytes at most; `#` begins a comment. Of
more than ten problems the number is reported.
"""

TEXT = r'"((?:\\.|[^"\\])*)"'
ROW = re.compile(
    rf"^LARKLANE_OPTION\(\s*(\w+)\s*,\s*(\w+)\s*,\s*{TEXT}\s*,\s*{TEXT}\s*,\s*{TEXT}\s*,\s*{TEXT}\s*\)", re.M
)

POLICIES_HEAD = re.compile(rf"^LARKLANE_POLICIES\((\w+)\s*,\s*{TEXT}\s*\)", re.M)
POLICY_ROW = re.compile(rf"^LARKLANE_POLICY\((\w+)\s*,\s*{TEXT}\s*,\s*{TEXT}\s*\)", re.M)


def policy_texts(registry):
    """@return default, range and doc of option `policy`, from the text of policies.def; src/base/config.cpp makes the same texts"""
    default, head = POLICIES_HEAD.search(registry).groups()
    found = POLICY_ROW.findall(registry)
    if len(found) != len(re.findall(r"^LARKLANE_POLICY\(", registry, re.M)):
        raise ValueError(f"{POLICIES}: a row has another form than LARKLANE_POLICY(name, two texts)")
    forms = [(name + argument, doc) for name, argument, doc in found]
    return {"LARKLANE_POLICY_DEFAULT": default, "LARKLANE_POLICY_FORMS": " | ".join(form for form, _ in forms),
            "LARKLANE_POLICY_DOC": head + "".join(f"; `{form}`: {doc}" for form, doc in forms) + "."}


def rows(table):
    """@return [(name, type, default, range, since, doc)] of the text of options.def"""
    for word, text in policy_texts(POLICIES.read_text()).items():
        table = table.replace(word, f'"{text}"')
    found = ROW.findall(table)
    if len(found) != len(re.findall(r"^LARKLANE_OPTION\(", table, re.M)):
        raise ValueError(f"{TABLE}: a row has another form than LARKLANE_OPTION(name, type, five texts)")
    return found


def wrapped(text):
    """`text` in lines of at most 120 characters."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def page(table):
    """The text of docs/user/options.md."""
    sections = [
        f"## `{name}`\n\n{wrapped(doc)}\n\n"
        + wrapped(f"{kind} · default `{default}` · range `{limits}` · `LARKLANE_{name.upper()}` · since {since}")
        + "\n"
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
