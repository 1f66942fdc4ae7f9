#!/usr/bin/env python3
"""Tests of scripts/dev/lint.py: which units it chooses, and when a record of it holds. Needs the standard library only."""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts/dev"))
import lint  # noqa: E402

FILES = {
    "src/a/a.cpp": '#include "a/a.hpp"\n',
    "src/a/a.hpp": '#include "b.hpp"\n#include <vector>\n',
    "src/a/b.hpp": "",
    "src/c/c.cpp": '  # include "gone.hpp"\n',
}


def with_tree(test):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in FILES.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        test(root)


def test_choice(root):
    units = ["src/a/a.cpp", "src/c/c.cpp"]
    sources = lint.Sources(root)
    assert sources.closure("src/a/a.cpp") == {"src/a/a.cpp", "src/a/a.hpp", "src/a/b.hpp"}
    assert lint.chosen(units, {"src/a/b.hpp"}, sources) == ["src/a/a.cpp"]
    assert lint.chosen(units, {"src/a/b.hpp", "src/c/c.cpp"}, sources) == ["src/c/c.cpp", "src/a/a.cpp"]
    assert lint.chosen(units, {"docs/a.md"}, sources) == []


def test_records(root):
    def key(command="cc", setting="x"):
        return lint.Sources(root).key("src/a/a.cpp", command, setting)

    before = key()
    assert key() == before and key(command="cc -O2") != before and key(setting="y") != before
    (root / "src/a/b.hpp").write_text("int x;\n", encoding="utf-8")
    assert key() != before


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with_tree(test)
            print(f"{name}: ok")
