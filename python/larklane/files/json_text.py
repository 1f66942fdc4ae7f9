"""JSON text for stored files: a short value or a list of numbers takes one line, so a diff shows the series that differs."""

import json
from collections.abc import Iterator

WIDTH = 120


def compact(value: object) -> str:
    """@return text that ends in a line end and reads back as `value`"""
    return "".join(_pieces(value, "")) + "\n"


def _pieces(value: object, indent: str) -> Iterator[str]:
    line = json.dumps(value)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, (dict, list)) or _is_series(value):
        yield line
        return
    ends = "{}" if isinstance(value, dict) else "[]"
    items = [(json.dumps(name) + ": ", each) for name, each in value.items()] if isinstance(value, dict) else [("", each) for each in value]
    within = indent + " "
    yield ends[0]
    for number, (name, each) in enumerate(items):
        yield f"{',' if number else ''}\n{within}{name}"
        yield from _pieces(each, within)
    yield f"\n{indent}{ends[1]}"


def _is_series(value: object) -> bool:
    return isinstance(value, list) and all(each is None or isinstance(each, (int, float)) for each in value)
