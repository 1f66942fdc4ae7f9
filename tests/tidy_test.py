#!/usr/bin/env python3
"""The house rules that a program can check. Each rule is a function from a path and its text to complaints.

  tidy_test.py rules      the rules on small strings: proves that each can fail
  tidy_test.py tree       every file of the repository
  tidy_test.py format     clang-format-14 finds nothing to change
  tidy_test.py options    docs/user/options.md and performance.md match src/base/options.def and bench/benchmarks.def
  tidy_test.py headers    each public header compiles alone, as C++20 and, if its name ends in .h, as C11
  tidy_test.py ctest DIR  every test of build folder DIR has a label and a time limit

Exit status: 0 clean, 1 complaints (printed as path:line: text), 77 a program is missing.
"""

import ast
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import tidy_graphs
from tidy_graphs import check_layer_table, check_module_cycles, cycles, read_layers

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIP = 77


# The layers that each layer of src/ may include besides itself and include/larklane (larklane/...).
LAYERS = read_layers((ROOT / "src/layers.txt").read_text())
# Folders that see include/larklane and themselves, with the layers that they may include as an exception.
SWITCHED = ("bench/messages/lanes.cpp", "bench/messages/injection.cpp")  # linked with a library of their own, whose lanes have switches
# The registries, which are data: base makes its option from the rows.
POLICIES = "src/part/policy/policies.def"
POLICY_NAMES = re.findall(r"^LARKLANE_POLICY\((\w+)", (ROOT / POLICIES).read_text(encoding="utf-8"), re.M)
POLICY_READERS = ("src/base/config.cpp", "src/part/policy/")
# Files that may name a policy, beside the policies' folder. Names that other tables use, too, can't be told apart.
POLICY_NAMERS = {
    "src/part/policy/": "the registry",
    "tools/tune.cpp": "measures for two policies by means of a third",
    "tools/simulate.cpp": "option --learned and its column",
    "tools/model.cpp": "the columns of `larklane model`",
    "tests/": "the user's text",
}
AMBIGUOUS_POLICIES = {"none", "single"}
WRITERS = ("bench/measure/record.cpp",)  # of a file that a user keeps: there is one way to write it whole
# Headers of pure functions, which benchmarks may include as well: no second clock, no second parser.
PURE = ("base/clock.hpp", "base/parse.hpp", "base/splitmix.hpp")
CLIENTS = {
    # base: the option table and the names of errors, until include/larklane has them in C++; model: pure functions, which no program
    # of a user's calls; sim: runs on a simulated network only; net: `larklane info` opens each provider;
    # mpi: on which host a rank is, as its launcher says: no MPI call; bootstrap: `larklane launch` serves cards
    "tools": {"base", "bootstrap", "model", "mpi", "net", "sim", "vci"},
    "bench": set(),
    "python": set(),
    "examples": set(),
    "demo": set(),
    "include": set(),
}

# Headers of other projects, with the places that may include them. An entry that ends in / is a folder.
FOREIGN_HEADERS = {
    r"mpi\.h": ("src/mpi/", "bench/", "examples/", "demo/", "include/larklane/mpi_partitioned.h", "include/larklane/boot_mpi.hpp")
    + tuple(f"tests/{kind}/" for kind in ("conformance", "mp", "fault", "hosts", "rdma", "consume", "unit/mpi")),
    r"infiniband/.*": ("src/net/verbs/", "tests/rdma/", "tests/unit/net_verbs/"),
    r"rdma/.*": ("src/net/ofi/", "src/net/verbs/", "tests/rdma/", "tests/unit/net_ofi/"),
    r"(CLI|nlohmann|fmt|hwloc)[/.].*": ("tools/", "bench/", "tests/unit/bench_traces_test.cpp", "tests/unit/bench_json_test.cpp"),
    r"gtest/.*": ("tests/",),
    r"seccomp\.h": ("tests/",),
    r"capstone/.*": ("tests/cost/",),
    r"lci\.hpp": ("bench/messages/lci_exchange.hpp", "bench/applications/lci.cpp"),
}

# Words that code may not use: pattern, why, {path or folder: reason of the exception}.
BANNED = (
    (r"(?<!asm )(?<!__asm__ )\bvolatile\b", "volatile does not order threads", {}),
    (
        r"\batomic_(thread|signal)_fence\b",
        "fences are not seen by TSan; use a seq_cst read-modify-write",
        {"src/vci/membarrier.hpp": "the compiler's alone: the fence that belongs to it is a system call of another thread"},
    ),
    (
        r"\b(secure_)?getenv\b",
        "src/base/config.cpp alone reads the environment",
        {
            "src/base/config.cpp": "the place",
            "src/mpi/world/process.cpp": "launcher identity",
            "src/mpi/preload/": "runs before any of our libraries is there",
            "tools/": "`larklane run` passes the environment on",
            "examples/": "plain MPI programs",
            "demo/": "plain MPI programs",
            "bench/": "plain MPI programs",
            "tests/": "seeds and the launcher's hints",
        },
    ),
    (r"\bcatch\s*\(\s*\.\.\.\s*\)", "only src/capi may swallow unknown exceptions", {"src/capi/": "the shim"}),
)
BANNED_IN_TESTS = (
    (r"\bsleep_(for|until)\b", "a test must wait for what it wants, not for time", {}),
    (r"\brandom_device\b", "seeds are explicit", {}),
)

LINES_MAX = 600
FUNCTION_LINES_MAX = 70
BANNED_NAMES = re.compile(r"^(utils?|common|misc|helpers)$")

# Paths of one machine and words of one workplace have no meaning for a reader of the repository.
FOREIGN_WORDS = re.compile(r"(?<![\w.<>-])/(work|root|home)/|\.\./shared\b|(?<![\w/])shared/(?!\w+\.[ch]pp\b)|\bthis workplace\b")
SESSION = re.compile(r"\b(this|our|my|previous|earlier|next) sessions?\b")  # of work; MPI has sessions, too


def is_source(path):
    return path.endswith((".c", ".h", ".cpp", ".hpp"))


def is_allowed(path, places):
    return any(path.startswith(place) if place.endswith("/") else path == place for place in places)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


TOKENS = re.compile(r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.S)


def strip(text, keep_strings=False):
    """Text with comments and the contents of strings blanked; lines stay where they are."""

    def blank(match):
        token = match[0]
        if keep_strings and token[0] in "\"'R":
            return token
        return re.sub(r"[^\n]", " ", token)

    return TOKENS.sub(blank, text)


# --- rules on one file -----------------------------------------------------------------------------------------------


def includes(text):
    """[(line, name, quoted)] of a file's #include lines."""
    found = re.finditer(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', strip(text, keep_strings=True), re.M)
    return [(line_of(text, match.start(2)), match[2], match[1] == '"') for match in found]


def check_layers(path, text):
    """A file includes its own layer, the layers to its left, include/larklane."""
    parts = path.split("/")
    for line, name, quoted in includes(text):
        for pattern, places in FOREIGN_HEADERS.items():
            if re.fullmatch(pattern, name) and not is_allowed(path, places):
                yield line, f"{name} belongs to {' '.join(places)}"
        target = name.split("/")
        if not quoted or target[0] not in LAYERS or len(target) < 2:
            continue
        if (path in WRITERS and name == "base/output_file.hpp") or (parts[0] == "bench" and name in PURE):
            continue
        if path in POLICY_READERS and f"src/{name}" == POLICIES:
            continue
        if parts[0] in CLIENTS and target[0] not in CLIENTS[parts[0]] and path not in SWITCHED:
            yield line, f"{parts[0]} sees include/larklane only, not {name}"
        elif parts[0] == "src" and target[0] != parts[1] and target[0] not in LAYERS.get(parts[1], ()):
            yield line, f"layer {parts[1]} must not include {name}"
        elif parts[:2] == ["src", "vci"] and target[0] == "net" and name != "net/provider.hpp":
            yield line, f"lanes know no provider: {name}"
        elif parts[:2] == ["src", "net"] and len(parts) > 3 and len(target) > 2 and target[1] != parts[2]:
            yield line, f"provider {parts[2]} must not include {name}"


def check_policies(path, text):
    """Only src/part/policy knows policies by name. Other code asks for a policy's needs."""
    if is_allowed(path, POLICY_NAMERS):
        return
    for line, name, _ in includes(text):
        is_own = re.fullmatch(rf"part/policy/({'|'.join(POLICY_NAMES)})(/.*|\.hpp)", name)
        if is_own or (f"src/{name}" == POLICIES and not is_allowed(path, POLICY_READERS)):
            yield line, f"{name} belongs to src/part/policy"
    names = "|".join(sorted(set(POLICY_NAMES) - AMBIGUOUS_POLICIES))
    code = strip(text, keep_strings=True)
    for match in re.finditer(rf'"({names})(:[^"\n]*)?"|\bKind::({names})\b|\bmake_({"|".join(POLICY_NAMES)})\b', code):
        yield line_of(code, match.start()), f"{match[0]} names a policy: ask for what it needs (part/policy/policy.hpp)"


def check_banned(path, text):
    code = strip(text)
    rules = BANNED + (BANNED_IN_TESTS if path.startswith("tests/") else ())
    for pattern, why, exceptions in rules:
        if not is_allowed(path, exceptions):
            for match in re.finditer(pattern, code):
                yield line_of(code, match.start()), f"{match[0].strip()}: {why}"


ATOMIC_CALL = re.compile(r"(?:\.|->)(load|store|exchange|compare_exchange_\w+|fetch_\w+|test_and_set)\s*\(")


def arguments_at(code, start):
    """The text between the parenthesis before `start` and its partner."""
    depth = 1
    for position in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[position], 0)
        if depth == 0:
            return code[start:position]
    return code[start:]


def check_atomics(path, text):
    """Every atomic operation names its order."""
    code = strip(text)
    for match in ATOMIC_CALL.finditer(code):
        if not re.search(r"memory_order|\border\b|_order\b|\b(relaxed|acquire|release|acq_rel|seq_cst)\b", arguments_at(code, match.end())):
            yield line_of(code, match.start()), f"{match[1]} without a memory order"
    if path.startswith("src/"):
        for match in re.finditer(r"\batomic_(?:load|store|exchange|compare|fetch)\w*(?<!_explicit)\s*\(", code):
            yield line_of(code, match.start()), f"{match[0]}...) without a memory order: use the _explicit form"
    for name in set(re.findall(r"\batomic(?:<[^;{}()]*>|_\w+)\s+(\w+)\s*[;{=]", code)):
        if re.search(rf"\b(?!atomic|return)[a-z]\w*[ &*]+{name}\s*[=;{{,)]", code):
            continue  # also the name of something else in this file
        use = rf"(?:\+\+|--)(?:\w+(?:\.|->))*{name}\b(?!\.)|(?<![\w>] )(?<![{{,]\.)(?<![{{,] \.)\b{name}\s*(?:\+\+|--|[-+|&^]=|=(?!=))"
        for match in re.finditer(use, code):
            yield line_of(code, match.start()), f"operator on atomic {name}: call a member that names its order"


def check_size(path, text):
    lines = text.count("\n")
    if lines > LINES_MAX:
        yield lines, f"{lines} lines, {LINES_MAX} allowed: split by flow"


def functions(code):
    """[(first line, lines, name)] of function bodies in stripped C or C++: braces outside any function, after a ')'."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: re.sub(r"[^\n]", " ", match[0]), code, flags=re.M)
    found, stack, head = [], [], 0
    for match in re.finditer(r"[{};]", code):
        position, token = match.start(), match[0]
        if token == "{":
            text = code[head:position].strip()
            in_function = any(stack)
            is_type = re.match(r"(template\s*<.*?>\s*)?(namespace|class|struct|union|enum|extern)\b[^()]*$", text, re.S)
            starts = position if not in_function and ")" in text and not is_type else None
            stack.append((starts, text) if starts is not None else None)
        elif token == "}" and stack:
            entry = stack.pop()
            if entry:
                first, last = line_of(code, entry[0]), line_of(code, position)
                name = re.search(r"([\w:~]+)\s*\(", entry[1])
                found.append((first, last - first + 1, name[1] if name else entry[1]))
        head = position + 1
    return found


def check_functions(path, text):
    if path.endswith(".py"):
        tree = ast.walk(ast.parse(text))
        spans = [(n.lineno, n.end_lineno - n.lineno + 1, n.name) for n in tree if isinstance(n, ast.FunctionDef)]
    else:
        spans = functions(strip(text))
    for line, length, name in spans:
        if length > FUNCTION_LINES_MAX:
            yield line, f"{name} has {length} lines, {FUNCTION_LINES_MAX} allowed"


def check_definitions(path, text):
    """A second function of the same name takes the place of the first one."""
    tree = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Module, ast.ClassDef))] if path.endswith(".py") else []
    for body in (node.body for node in tree):
        seen = set()
        for node in body:
            if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                if node.name in seen:
                    yield node.lineno, f"{node.name} is defined twice"
                seen.add(node.name)


def check_name(path, text):
    if any(BANNED_NAMES.match(part) for part in re.split(r"[/.]", path)):
        yield 1, "the name says nothing"


def check_words(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        match = FOREIGN_WORDS.search(line)
        if match:
            yield number, f"{match[0]} means nothing elsewhere"
        if path.endswith(".md") and SESSION.search(line):
            yield number, "an MPI session? Then say so"


SOURCE_RULES = (check_layers, check_policies, check_banned, check_atomics)
CODE_RULES = (check_size, check_functions, check_definitions)
ALL_RULES = (check_name, check_words)


def check_file(path, text):
    """Complaints about one file, by the rules that hold for its kind."""
    rules = ALL_RULES
    if is_source(path):
        rules += SOURCE_RULES
    if is_source(path) or path.endswith(".py"):
        rules += CODE_RULES
    if path == "tests/tidy_test.py":
        rules = CODE_RULES  # it has to name the words that it bans
    return [f"{path}:{line}: {text_}" for rule in rules for line, text_ in rule(path, text)]


# --- rules on the whole tree -----------------------------------------------------------------------------------------


def check_cycles(texts):
    """@param texts {path: text} of sources. No header includes itself, directly or not."""
    graph = {}
    for path, text in texts.items():
        folder = path.rsplit("/", 1)[0]
        places = (folder, "src", "include", "tests")
        names = [name for _, name, _ in includes(text)]
        graph[path] = [f"{place}/{name}" for name in names for place in places if f"{place}/{name}" in texts]
    return cycles(graph, "include")


def files():
    """Paths of all files that are or could be committed."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode == 0:
        paths = listing.stdout.split("\n")
    else:  # an unpacked archive
        paths = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
        paths = [path for path in paths if not path.startswith(("build/", ".deps/", ".git/"))]
    return sorted(path for path in paths if path and (ROOT / path).is_file())


def texts_of(paths):
    result = {}
    for path in paths:
        try:
            result[path] = (ROOT / path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):  # an image, or a temporary file
            continue
    return result


def run_tree():
    texts = texts_of(files())
    complaints = [complaint for path, text in texts.items() for complaint in check_file(path, text)]
    complaints += check_module_cycles({path: text for path, text in texts.items() if path.endswith(".py")})
    complaints += check_layer_table(texts["src/layers.txt"], texts["docs/ARCHITECTURE.md"], texts)
    return complaints + check_cycles({path: text for path, text in texts.items() if is_source(path)})


def run_format():
    if not shutil.which("clang-format-14"):
        return None
    sources = [path for path in files() if is_source(path)]
    command = ["clang-format-14", "--dry-run", "--ferror-limit=1", *sources]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [line for line in result.stderr.splitlines() if "clang-format" in line]


def run_options():
    complaints = []
    for script in ("options_doc", "benchmarks_doc"):
        command = [sys.executable, str(ROOT / f"scripts/dev/{script}.py"), "--check"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        complaints += (result.stdout + result.stderr).splitlines() if result.returncode else []
    return complaints


def compilers(header, text):
    """Command prefixes that must accept the header alone."""
    needs_mpi = any(name == "mpi.h" for _, name, _ in includes(text))
    wrappers = ("mpicc.mpich", "mpicc.openmpi", str(ROOT / ".deps/mpich/bin/mpicc"), str(ROOT / ".deps/openmpi/bin/mpicc"))
    tools = [tool for tool in wrappers if shutil.which(tool)] if needs_mpi else ["gcc"]
    c11 = ["-std=c11", "-x", "c"]
    cxx20 = ["-std=c++20", "-x", "c++"]
    return [[tool, *language] for tool in tools for language in ([c11, cxx20] if header.endswith(".h") else [cxx20])]


def run_headers():
    if not shutil.which("gcc"):
        return None
    complaints = []
    for header in (path for path in files() if path.startswith("include/") and path.endswith((".h", ".hpp"))):
        name = header.removeprefix("include/")
        text = (ROOT / header).read_text()
        for command in compilers(header, text):
            with tempfile.NamedTemporaryFile("w", suffix=".c") as unit:
                unit.write(f"#include <{name}>\n#include <{name}>\nint main(void) {{ return 0; }}\n")
                unit.flush()
                # The MPI's own C++ bindings don't stand our warnings.
                flags = ["-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-Wall", "-Wextra", "-Werror",
                         "-fsyntax-only", f"-I{ROOT / 'include'}"]
                full = [*command, *flags, unit.name]
                result = subprocess.run(full, capture_output=True, text=True, check=False)
            if result.returncode:
                complaints.append(f"{header}:1: {' '.join(command)}: {result.stderr}")
    return complaints


def check_tests(tests):
    """@param tests  the array "tests" of `ctest --show-only=json-v1`"""
    for test in tests:
        properties = {entry["name"] for entry in test.get("properties", [])}
        for wanted in {"LABELS", "TIMEOUT"} - properties:
            yield f"test {test['name']} has no {wanted}"


def run_ctest(build):
    command = ["ctest", "--show-only=json-v1", "--test-dir", build]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return list(check_tests(json.loads(listing)["tests"]))


# --- the rules on small strings --------------------------------------------------------------------------------------


def complains(rule, path, text):
    return [line for line, _ in rule(path, text)]


def test_layers():
    assert complains(check_layers, "src/base/a.cpp", '\n#include "control/plane/plane.hpp"\n') == [2]
    assert complains(check_layers, "src/part/a.cpp", '#include "msg/protocol/wire.hpp"\n') == [1]
    assert complains(check_layers, "src/msg/a.cpp", '#include "part/engine.hpp"\n') == [1]
    assert complains(check_layers, "src/part/a.cpp", '#include "mpi/face.hpp"\n') == [1]
    assert complains(check_layers, "src/net/shm/a.cpp", '#include "net/verbs/b.hpp"\n') == [1]
    assert complains(check_layers, "tools/a.cpp", '#include "part/engine.hpp"\n') == [1]
    assert complains(check_layers, "src/vci/a.cpp", '#include "control/plane/plane.hpp"\n') == [1]
    assert complains(check_layers, "src/vci/a.cpp", '#include "net/ofi/endpoint.hpp"\n') == [1]
    assert not complains(check_layers, "src/vci/a.cpp", '#include "net/provider.hpp"\n')
    assert complains(check_layers, "src/part/a.cpp", '#include "sim/scenario.hpp"\n') == [1]
    assert complains(check_layers, "src/sim/a.cpp", '#include "mpi/face.hpp"\n') == [1]
    assert not complains(check_layers, "tools/a.cpp", '#include "sim/scenario.hpp"\n')
    assert complains(check_layers, "include/larklane/a.h", '#include "base/config.hpp"\n') == [1]
    assert complains(check_layers, "src/new/a.cpp", '#include "base/status.hpp"\n') == [1]
    assert complains(check_layers, "src/part/a.cpp", "#include <mpi.h>\n") == [1]
    assert complains(check_layers, "src/net/shm/a.cpp", "#include <infiniband/verbs.h>\n") == [1]
    assert complains(check_layers, "src/base/a.cpp", "#include <gtest/gtest.h>\n") == [1]
    fine = '#include "base/status.hpp"\n#include "part/b.hpp"\n#include "larklane/c.h"\n#include <vector>\n'
    assert not complains(check_layers, "src/part/a.cpp", fine)
    assert not complains(check_layers, "src/mpi/a.cpp", "#include <mpi.h>\n")
    assert not complains(check_layers, "src/net/registry.cpp", '#include "net/shm/shm.hpp"\n')
    assert not complains(check_layers, "src/base/a.cpp", '// #include "mpi/face.hpp"\n')


def test_policies():
    assert {"none", "static", "learned"} <= set(POLICY_NAMES)
    assert complains(check_policies, "src/part/engine.cpp", '\nif (name == "learned") x();') == [2]
    assert complains(check_policies, "bench/a.cpp", 'f("static:4");') == [1]
    assert complains(check_policies, "src/sim/a.cpp", "make_none(x);") == [1]
    assert complains(check_policies, "src/part/engine.cpp", "if (p.kind == Policy::Kind::learned) x();") == [1]
    assert complains(check_policies, "src/part/a.cpp", '#include "part/policy/learned/learner.hpp"\n') == [1]
    assert complains(check_policies, "src/msg/a.cpp", '#include "part/policy/policies.def"\n') == [1]
    assert not complains(check_layers, "src/base/config.cpp", '#include "part/policy/policies.def"\n')
    assert complains(check_layers, "src/base/config.cpp", '#include "part/policy/policy.hpp"\n') == [1]
    assert complains(check_layers, "src/base/a.cpp", '#include "part/policy/policies.def"\n') == [1]
    for text in ('#include "part/policy/deadline.hpp"\n', '// policy "learned"\n', '/* "ploggp" */', 'f("none");', 'f("unlearned");'):
        assert not complains(check_policies, "src/part/a.cpp", text), text
    assert not complains(check_policies, "src/part/policy/learned/a.cpp", '#include "part/policy/learned/b.hpp"\nf("learned");')


def test_banned():
    assert complains(check_banned, "src/a.cpp", "x;\nvolatile int y;") == [2]
    assert complains(check_banned, "src/a.cpp", "std::atomic_thread_fence(o);") == [1]
    assert complains(check_banned, "src/a.cpp", 'auto x = std::getenv("A");') == [1]
    assert complains(check_banned, "src/a.cpp", "try {} catch (...) {}") == [1]
    assert complains(check_banned, "tests/a.cpp", "std::this_thread::sleep_for(x);") == [1]
    assert complains(check_banned, "tests/a.cpp", "std::random_device seed;") == [1]
    assert not complains(check_banned, "src/a.cpp", '// volatile\n/* catch (...) */ auto s = "getenv";')
    assert not complains(check_banned, "src/a.cpp", 'asm volatile("");')
    assert not complains(check_banned, "src/base/config.cpp", 'std::getenv("A");')
    assert not complains(check_banned, "src/a.cpp", "std::this_thread::sleep_for(x);")


def test_atomics():
    assert complains(check_atomics, "a.cpp", "x.load();") == [1]
    assert complains(check_atomics, "a.cpp", "\nx->store(f(1));") == [2]
    assert complains(check_atomics, "a.cpp", "x.fetch_or(1 << 3);") == [1]
    assert complains(check_atomics, "a.cpp", "std::atomic<int> n{0};\nn++;") == [2]
    assert complains(check_atomics, "a.cpp", "std::atomic<int> n{0};\n++p->n;") == [2]
    assert complains(check_atomics, "a.cpp", "std::atomic<bool> stop;\nvoid f() { stop = true; }") == [2]
    assert complains(check_atomics, "src/a.c", "atomic_fetch_add(&n, 1);") == [1]
    assert not complains(check_atomics, "src/a.c", "atomic_fetch_add_explicit(&n, 1, memory_order_relaxed);")
    assert not complains(check_atomics, "a.cpp", "std::atomic<int> n{0};\nfor (std::uint32_t n = 1; n < 2; ++n) {}")
    assert not complains(check_atomics, "a.c", "atomic_int n;\nstruct s x = {.n = 1, .m = 2};")
    assert not complains(check_atomics, "a.cpp", "x.store(f(1),\n std::memory_order_release);")
    assert not complains(check_atomics, "a.cpp", "std::atomic<int> n = 0; Config::load(&p); std::exchange(a, b);")


def test_size_and_functions():
    assert complains(check_size, "a.cpp", "\n" * 601) and not complains(check_size, "a.cpp", "\n" * 600)
    body = "\n" * 75
    long_function = "namespace n {\nclass C {\n int f(int x) const {" + body + "}\n};\n}"
    assert complains(check_functions, "a.cpp", long_function) == [3]
    assert not complains(check_functions, "a.cpp", "namespace n {\nstruct S {" + body + "int x; };\n}")
    assert not complains(check_functions, "a.cpp", "void f() {\n} // }\n" + body + "void g() { h('{'); }")
    assert complains(check_functions, "a.py", "def f():\n" + "    x\n" * 75) == [1]
    assert complains(check_definitions, "a.py", "def f(): x\ndef g(): x\ndef f(): y") == [3]
    assert not complains(check_definitions, "a.py", "class A:\n def f(): x\nclass B:\n def f(): x")


def test_names_and_words():
    assert complains(check_name, "src/base/utils.hpp", "") and complains(check_name, "src/common/a.cpp", "")
    assert not complains(check_name, "src/control/helper.cpp", "")
    for text in ("see /work/x", "in ../shared", "`shared/HOUSE`", "/root/a", "on this workplace"):
        assert complains(check_words, "a.py", text) == [1], text
    assert complains(check_words, "a.md", "found in this session") == [1]
    for text in ("an MPI session", "in a session without a world", "build/work/x", "a shared segment", "shared/channel.cpp", "memory that is shared"):
        assert not complains(check_words, "a.md", text), text


def test_kinds():
    assert check_file("src/part/a.cpp", "volatile int x;\n") == ["src/part/a.cpp:1: volatile: volatile does not order threads"]
    assert not check_file("docs/a.md", "volatile")
    assert check_file("docs/a.md", "/work/a")


def test_cycles():
    texts = {"src/a/x.hpp": '#include "b/y.hpp"', "src/b/y.hpp": '#include "a/x.hpp"', "src/b/z.hpp": '#include "y.hpp"'}
    assert len(check_cycles(texts)) == 1
    texts["src/b/y.hpp"] = ""
    assert not check_cycles(texts)


def test_tests_are_labelled():
    label, limit = {"name": "LABELS", "value": ["unit"]}, {"name": "TIMEOUT", "value": 60}
    assert not list(check_tests([{"name": "a", "properties": [label, limit]}]))
    assert len(list(check_tests([{"name": "a", "properties": [label]}, {"name": "b"}]))) == 3


def run_rules():
    tests = {**globals(), **vars(tidy_graphs)}
    for name in (name for name in tests if name.startswith("test_")):
        tests[name]()
        print(f"{name}: ok")
    return []


def main():
    modes = {"rules": run_rules, "tree": run_tree, "format": run_format, "options": run_options, "headers": run_headers}
    modes["ctest"] = lambda: run_ctest(sys.argv[2])
    if len(sys.argv) < 2 or sys.argv[1] not in modes:
        print(__doc__)
        return 2
    complaints = modes[sys.argv[1]]()
    if complaints is None:
        print("skipped: the program for this check is not installed")
        return SKIP
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
