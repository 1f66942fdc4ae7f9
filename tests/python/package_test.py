#!/usr/bin/env python3
"""The package as a whole: no circles of imports, of modules or of folders, and a wheel that runs. Run by ctest; needs the standard library only."""

import ast
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "python"
sys.path.insert(0, str(ROOT / "packaging"))
import python_wheel  # noqa: E402

Graph = dict[str, set[str]]


def imports(texts: Mapping[str, str]) -> Graph:
    """{module: modules of `texts` that it imports}, wherever in it. @param texts  {dotted name: source}"""
    found: Graph = {}
    for module, text in texts.items():
        names: set[str] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
        found[module] = names & texts.keys() - {module}
    return found


def folders(graph: Graph) -> Graph:
    """The same between the folders of the package; a module beside them stands for itself."""
    found: Graph = {}
    for module, names in graph.items():
        folder = ".".join(module.split(".")[:2])
        found.setdefault(folder, set()).update({".".join(name.split(".")[:2]) for name in names} - {folder})
    return found


def circle(graph: Graph) -> list[str]:
    """A path from a node back to it, or nothing."""
    done: set[str] = set()

    def search(node: str, trail: list[str]) -> list[str]:
        if node in trail:
            return [*trail[trail.index(node):], node]
        if node not in done:
            for name in sorted(graph.get(node, ())):
                if found := search(name, [*trail, node]):
                    return found
            done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := search(node, []))), [])


def package() -> dict[str, str]:
    """{dotted name: source} of the package; a folder's __init__.py has the folder's name."""
    return {".".join(path.relative_to(PYTHON).with_suffix("").parts).removesuffix(".__init__"): path.read_text(encoding="utf-8")
            for path in python_wheel.sources()}


class Imports(unittest.TestCase):
    def test_circles_are_found(self) -> None:
        graph = imports({"p.a.x": "from p.b import y", "p.b.y": "def f():\n    import p.c.z", "p.c.z": "from p.a.x import name"})
        self.assertEqual(graph, {"p.a.x": {"p.b.y"}, "p.b.y": {"p.c.z"}, "p.c.z": {"p.a.x"}})
        self.assertEqual(circle(graph), ["p.a.x", "p.b.y", "p.c.z", "p.a.x"])
        graph = {"p.a.x": {"p.b.x"}, "p.b.y": {"p.a.y"}}
        self.assertEqual((circle(graph), circle(folders(graph))), ([], ["p.a", "p.b", "p.a"]))

    def test_package_has_none(self) -> None:
        graph = imports(package())
        self.assertGreater(sum(map(len, graph.values())), 100)
        self.assertEqual((circle(graph), circle(folders(graph))), ([], []))


class Wheel(unittest.TestCase):
    def test_it_holds_the_package_and_runs(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, python_wheel.build_wheel(folder))
            self.assertEqual(path.name, f"larklane-{python_wheel.version()}-py3-none-any.whl")
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                scripts = archive.read(f"larklane-{python_wheel.version()}.dist-info/entry_points.txt").decode().split("\n")[1:-1]
            self.assertTrue({source.relative_to(PYTHON).as_posix() for source in python_wheel.sources()} < set(names))
            for script in scripts:  # as pip's does, from the wheel alone
                module, function = script.split(" = ")[1].split(":")
                done = subprocess.run([sys.executable, "-c", f"import sys; from {module} import {function}; sys.argv[1:] = ['--help']; {function}()"],
                                      cwd=folder, env={**os.environ, "PYTHONPATH": str(path)}, stdout=subprocess.PIPE, text=True, check=False)
                self.assertEqual((done.returncode, done.stdout[:6]), (0, "usage:"), script)


if __name__ == "__main__":
    unittest.main()
