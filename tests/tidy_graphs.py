"""House rules on how files depend on each other: the table of layers, and circles of modules. For tidy_test.py."""

import ast
import re


def read_layers(text):
    """{layer: layers that it may include} of a table like src/layers.txt. A layer stands after those that it uses."""
    rows = [line.split(":") for line in text.splitlines() if re.match("[a-z]", line)]
    return {layer: set(uses.split()) for layer, uses in rows}


def check_layer_table(table, map_, paths):
    """@param table  text of src/layers.txt
    @param map_  text of docs/ARCHITECTURE.md, which shows the same rows
    @param paths  paths of all files
    """
    known = []
    for layer, uses in read_layers(table).items():
        for unknown in sorted(uses - set(known)):
            yield f"src/layers.txt:1: {layer} uses {unknown}, which does not stand before it"
        known.append(layer)
    folders = {path.split("/")[1] for path in paths if re.match("src/[^/]+/", path)}
    for layer in sorted(folders ^ set(known)):
        yield f"src/layers.txt:1: {layer} is not both a folder and a row"
    rows = [line for line in table.splitlines() if re.match("[a-z]", line)]
    if "\n".join(["```", *rows, "```"]) not in map_:
        yield "docs/ARCHITECTURE.md:1: it does not show the rows of src/layers.txt"


def cycles(graph, what):
    """@param graph {path: paths}. @return a complaint for each way back to where it began"""
    done, complaints = set(), []

    def visit(path, trail):
        if path in trail:
            complaints.append(f"{path}:1: {what} cycle: {' -> '.join([*trail[trail.index(path):], path])}")
        elif path not in done:
            for target in graph[path]:
                visit(target, [*trail, path])
            done.add(path)

    for path in graph:
        visit(path, [])
    return complaints


def imports(path, text):
    """Dotted names that a Python file imports; `from a import b` names a and a.b, since b may be a module."""
    package = path.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def check_module_cycles(texts):
    """@param texts {path: text} of Python files. No module imports itself, directly or not.

    A name is looked for beside the file, in python/ and at the root. A package stands for its __init__.py.
    """
    graph = {}
    for path, text in texts.items():
        found = set()
        for name in imports(path, text):
            places = (path.rpartition("/")[0] + "/", "python/", "")
            stems = [place + name.replace(".", "/") for place in places]
            found |= {file for stem in stems for file in (f"{stem}.py", f"{stem}/__init__.py") if file in texts}
        graph[path] = sorted(found - {path})
    return cycles(graph, "import")


def test_layer_table():
    map_, paths = "```\na:\nb: a\n```", ["src/a/x.cpp", "src/b/y.cpp", "src/layers.txt"]
    assert read_layers("# c: d\na:\nb: a\n") == {"a": set(), "b": {"a"}}
    assert not list(check_layer_table("# c: d\na:\nb: a\n", map_, paths))
    assert len(list(check_layer_table("b: a\na:\n", map_, paths))) == 2  # the order, and so the map
    assert len(list(check_layer_table("a: b\nb: a\n", "```\na: b\nb: a\n```", paths))) == 1
    assert len(list(check_layer_table("a:\nb: a\n", map_, paths + ["src/c/z.cpp"]))) == 1
    assert len(list(check_layer_table("a:\nb: a\n", map_, ["src/a/x.cpp"]))) == 1


def test_module_cycles():
    texts = {"python/p/__init__.py": "", "python/p/a.py": "from p import b", "python/p/b.py": "def f():\n  from . import a"}
    assert len(check_module_cycles(texts)) == 1
    texts["python/p/b.py"] = "import a\nimport json"  # beside it, as scripts do
    assert len(check_module_cycles(texts)) == 1
    texts["python/p/b.py"] = "from p.c import a"
    assert not check_module_cycles(texts)
