#!/usr/bin/env python3
"""Tests of scripts/dev/lint.py: which units it chooses, and when a record of it holds. Needs the standard library only."""

import json
import pathlib
import subprocess
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


def test_unity(root):
    unity = root / "build/src/Unity/unity_0_cxx.cxx"
    unity.parent.mkdir(parents=True)
    unity.write_text(f'#include "{root}/src/a/a.cpp"\n#include "{root}/src/c/c.cpp"\n', encoding="utf-8")
    entries = [{"file": str(root / "src/c/c.cpp"), "command": f"cc {root}/src/c/c.cpp"}, {"file": str(unity), "command": f"cc {unity}"}]
    (root / "build/compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")
    assert lint.commands_of(root / "build", root) == {"src/c/c.cpp": "cc /src/c/c.cpp", "src/a/a.cpp": "cc /build/src/Unity/unity_0_cxx.cxx"}


def test_base(root):
    def git(*words):
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *author, *words], cwd=root, check=True, capture_output=True)
        return lint.git("rev-parse", "HEAD", root=root)

    git("init", "--initial-branch=main")
    git("add", "src")
    first = git("commit", "--message=1")
    assert lint.base_commit(root) == "" and lint.changed_files(root) == set()
    second = git("commit", "--message=2", "--allow-empty")
    assert lint.base_commit(root) == first
    git("checkout", "-b", "topic")
    (root / "src/a/b.hpp").write_text("int x;\n", encoding="utf-8")
    git("commit", "--all", "--message=3")
    git("commit", "--message=4", "--allow-empty")
    (root / "new.cpp").write_text("", encoding="utf-8")
    assert lint.base_commit(root) == second and lint.changed_files(root) == {"src/a/b.hpp", "new.cpp"}


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with_tree(test)
            print(f"{name}: ok")
