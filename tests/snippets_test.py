#!/usr/bin/env python3
"""The code of docs/user/messages.md compiles: programs as they are, parts of programs inside a function that declares their names.

Exit status: 0 clean, 1 complaints, 77 a compiler is missing.
"""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/user/messages.md"
FLAGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{ROOT / 'include'}"]
KINDS = {
    "cpp": (
        ["g++", "-std=c++20", "-x", "c++"],
        "#include <cstdio>\n#include <string>\n#include <larklane/message.hpp>\n"
        "void part([[maybe_unused]] larklane::Context& context, [[maybe_unused]] larklane::Vci& vci, [[maybe_unused]] int peer,\n"
        "          [[maybe_unused]] void* memory, [[maybe_unused]] std::uint64_t bytes, [[maybe_unused]] std::string problem,\n"
        "          [[maybe_unused]] larklane::RemoteRegion theirs, [[maybe_unused]] larklane::PostOptions options) {\n",
    ),
    "c": (
        ["gcc", "-std=c11", "-x", "c"],
        "#include <larklane/larklane.h>\n#include <stdio.h>\nvoid part(larklane_vci *, int, void *, uint64_t);\n"
        "void part(larklane_vci *vci, int peer, void *memory, uint64_t bytes) {\n",
    ),
}


def blocks(text):
    """[(kind, line, code)] of each fenced block in a language of KINDS."""
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
    return [(match[1], text.count("\n", 0, match.start()) + 2, match[2]) for match in found if match[1] in KINDS]


def unit_of(kind, line, code):
    where = f'#line {line} "{PAGE.name}"\n'
    return where + code if "int main" in code else KINDS[kind][1] + where + code + "}\n"


def complaint(kind, line, code):
    """The compiler's output; empty: no complaint."""
    command = [*KINDS[kind][0], *FLAGS, "-"]
    unit = unit_of(kind, line, code)
    result = subprocess.run(command, input=unit, capture_output=True, text=True, check=False)
    return result.stderr if result.returncode else ""


def main():
    if not all(shutil.which(command[0]) for command, _ in KINDS.values()):
        return 77
    assert complaint("cpp", 1, "post_send(vci);\n"), "a call that is not there must be noticed"
    found = blocks(PAGE.read_text(encoding="utf-8"))
    assert {kind for kind, _, _ in found} == set(KINDS), "the page has code of each kind"
    complaints = [text for text in (complaint(*block) for block in found) if text]
    print("\n".join(complaints), end="")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
