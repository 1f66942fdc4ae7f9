#!/usr/bin/env python3
"""The words of comments and docs: how many make a reader of the field stumble, by layer. The figures may only fall.

  words_test.py rules     the rules on small strings: proves that each can fail
  words_test.py tree      no layer has more than tests/words.txt allows
  words_test.py pages     no Markdown line is too long, and each page of docs begins with a command to copy
  words_test.py lower     writes the figures of today into tests/words.txt, where they are lower
  words_test.py list LAYER   each place of a layer, as path:line: word

Two figures a layer: pronouns that stand for no named thing, per 1,000 words, and the share of sentences with more than 25 words.
Exit status: 0 clean, 1 complaints.
"""

import ast
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = ROOT / "tests/words.txt"
PRONOUNS = re.compile(r"\b(?:who|whom|whose|whoever|whatever|whichever|nobody|somebody|anybody|everybody|what|of which|under way)\b", re.IGNORECASE)
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
SENTENCE_END = re.compile(r"[.!?:;](?:\s|$)")
SENTENCE_WORDS_MAX = 25
LINE_MAX = 120  # of Markdown, outside of tables, code, links and comments
COMMAND_BY_LINE = 22
# Markup and code: neither words nor sentences.
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`[^`\n]*`")
CXX_COMMENT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
CXX = {".c", ".h", ".cpp", ".hpp", ".def"}


def layer_of(path):
    """The layer that `path` counts in, or None."""
    parts = path.split("/")
    if path.startswith(("measurements/", "docs/design/adr/0000")) or path == "CHANGELOG.md":
        return None
    if parts[0] == "src" and len(parts) > 2:
        return f"src/{parts[1]}"
    if path.endswith(".md"):
        return "docs" if parts[0] == "docs" or len(parts) == 1 else None
    return parts[0] if parts[0] in ("include", "tools", "bench", "python", "scripts", "examples", "tests") else None


def cxx_comments(text):
    """(line, comment) of each block: lines that follow each other are one."""
    blocks = []
    for match in CXX_COMMENT.finditer(text):
        comment = match.group()
        if comment[0] != "/":
            continue
        line = text.count("\n", 0, match.start()) + 1
        words = re.sub(r"^/[/*]+[!<]*|\*/$|^\s*\*", " ", comment, flags=re.MULTILINE)
        starts_line = text[:match.start()].rpartition("\n")[2].strip() == ""
        if blocks and starts_line and line == blocks[-1][2] + 1:
            blocks[-1] = (blocks[-1][0], blocks[-1][1] + "\n" + words, line + comment.count("\n"))
        else:
            blocks.append((line, words, line + comment.count("\n")))
    return [(line, words) for line, words, _ in blocks]


def python_comments(path, text):
    blocks = []
    try:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
                blocks.append((node.body[0].lineno, ast.get_docstring(node)))
        lines = iter(text.splitlines(keepends=True))
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
                blocks.append((token.start[0], token.string.lstrip("# ")))
    except (SyntaxError, tokenize.TokenError):
        print(f"{path}: not read: no Python")
    return blocks


def markdown_blocks(text):
    """Paragraphs, list items and table cells, without code."""
    text = FENCED.sub(lambda fence: "\n" * fence.group().count("\n"), text)
    blocks, start, lines = [], 1, []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        opens = re.match(r"\s*(?:[-*+]|\d+\.)\s|\||#", line)
        if (not line.strip() or opens) and lines:
            blocks.append((start, "\n".join(lines)))
            lines = []
        if line.strip():
            start = start if lines else number
            lines.append(line.replace("|", " . "))
    return blocks


def blocks_of(path, text):
    if pathlib.PurePath(path).suffix in CXX:
        return cxx_comments(text)
    if path.endswith(".py"):
        return python_comments(path, text)
    return markdown_blocks(text) if path.endswith(".md") else []


class Count:
    def __init__(self):
        self.words = self.pronouns = self.sentences = self.long = 0

    def add(self, block):
        block = INLINE.sub(" x ", block)
        self.words += len(WORD.findall(block))
        self.pronouns += len(PRONOUNS.findall(block))
        for sentence in SENTENCE_END.split(block):
            count = len(WORD.findall(sentence))
            self.sentences += count > 0
            self.long += count > SENTENCE_WORDS_MAX

    def figures(self):
        """Pronouns per 1,000 words, and per cent of long sentences."""
        return 1000 * self.pronouns / max(self.words, 1), 100 * self.long / max(self.sentences, 1)


def tracked():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.splitlines() if (ROOT / path).is_file()]


def counts():
    found = {}
    for path in tracked():
        layer = layer_of(path)
        if layer is None or pathlib.PurePath(path).suffix not in CXX | {".py", ".md"}:
            continue
        count = found.setdefault(layer, Count())
        for _, block in blocks_of(path, (ROOT / path).read_text(encoding="utf-8")):
            count.add(block)
    return found


def limits():
    rows = (line.split() for line in LIMITS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return {layer: (float(pronouns), float(long)) for layer, pronouns, long in rows}


def complaints(found, allowed):
    for layer, count in sorted(found.items()):
        pronouns, long = count.figures()
        limit = allowed.get(layer)
        if limit is None:
            yield f"tests/words.txt: no row for {layer}: words_test.py lower"
            continue
        if pronouns > limit[0] + 0.05:
            yield f"{layer}: {pronouns:.1f} pronouns without a noun in 1,000 words: at most {limit[0]:.1f} (words_test.py list {layer})"
        if long > limit[1] + 0.05:
            yield f"{layer}: {long:.1f} % of the sentences have more than {SENTENCE_WORDS_MAX} words: at most {limit[1]:.1f} %"


def run_tree():
    return list(complaints(counts(), limits()))


def page_complaints(path, text):
    """Long lines of a page, and a page of docs (decisions apart) that shows no command at its beginning."""
    is_code = False
    for number, line in enumerate(text.split("\n"), 1):
        is_code ^= line.startswith("```")
        if len(line) > LINE_MAX and not is_code and not line.lstrip().startswith(("|", "<")) and " " in line.strip():
            yield f"{path}:{number}: {len(line)} characters: at most {LINE_MAX}"
    is_page = path.startswith("docs/") and not path.startswith("docs/design/adr/")
    if is_page and not any(line.startswith("```") for line in text.split("\n")[:COMMAND_BY_LINE]):
        yield f"{path}:1: no command to copy in the first {COMMAND_BY_LINE} lines"


def run_pages():
    for path in tracked():
        if path.endswith(".md") and not path.startswith("measurements/"):
            yield from page_complaints(path, (ROOT / path).read_text(encoding="utf-8"))


def run_lower():
    allowed = limits() if LIMITS.exists() else {}
    rows = []
    for layer, count in sorted(counts().items()):
        low = [min(pair) for pair in zip(count.figures(), allowed.get(layer, (1000.0, 100.0)), strict=True)]
        rows.append(f"{layer:14} {low[0]:6.1f} {low[1]:6.1f}")
    head = "# Most that a layer may have: pronouns without a noun in 1,000 words, per cent of sentences with more than 25 words.\n"
    LIMITS.write_text(head + "\n".join(rows) + "\n", encoding="utf-8")
    return []


def run_list(layer):
    for path in tracked():
        if layer_of(path) == layer:
            for line, block in blocks_of(path, (ROOT / path).read_text(encoding="utf-8")):
                for found in PRONOUNS.finditer(INLINE.sub(" x ", block)):
                    print(f"{path}:{line + block[:found.start()].count(chr(10))}: {found.group()}")
    return []


def run_rules():
    """Each rule reports its own kind of mistake."""
    def figures(path, text):
        count = Count()
        for _, block in blocks_of(path, text):
            count.add(block)
        return count.pronouns, count.words, count.long

    long = "word " * 26
    cases = (
        ("a.cpp", "// Whoever comes last copies.\nint who;", (1, 4, 0)),
        ("a.cpp", 'int a;  // one two\nauto s = "who // who";', (0, 2, 0)),
        ("a.cpp", "// Sentences go on\n// over lines. Nobody minds.", (1, 7, 0)),
        ("a.cpp", f"/* {long}. */", (0, 26, 1)),
        ("a.py", '"""The peer that somebody waits for."""\nwho = 1  # a comment', (1, 8, 0)),
        ("a.md", f"What is it?\n\n```\nwho\n```\n| who | `who` |\n{long}", (2, 31, 1)),
    )
    for path, text, wanted in cases:
        got = figures(path, text)
        if got != wanted:
            yield f"{path} {text!r}: {got} instead of {wanted}"
    wide = "word " * 25
    command = "```sh\nmake\n```\n"
    for path, text, wanted in (
        ("docs/user/a.md", command + wide, 1),
        ("docs/user/a.md", command + "| " + wide, 0),
        ("docs/user/a.md", f"```\n{wide}\n```\n", 0),
        ("docs/user/a.md", "# A\n" * 22 + command, 1),
        ("docs/design/adr/0001-a.md", "# A\n", 0),
        ("README.md", "# A\n", 0),
    ):
        if len(list(page_complaints(path, text))) != wanted:
            yield f"{path} {text!r}: not {wanted} complaints"
    count = Count()
    count.add("Nobody knows. " + long + ".")
    for allowed, wanted in (({"src/x": (1000.0, 100.0)}, 0), ({"src/x": (1.0, 100.0)}, 1), ({"src/x": (1000.0, 1.0)}, 1), ({}, 1)):
        if len(list(complaints({"src/x": count}, allowed))) != wanted:
            yield f"limits {allowed}: not {wanted} complaints"


def main():
    modes = {"rules": run_rules, "tree": run_tree, "pages": run_pages, "lower": run_lower, "list": run_list}
    if len(sys.argv) != (3 if sys.argv[1:2] == ["list"] else 2) or sys.argv[1] not in modes:
        sys.exit(__doc__)
    found = list(modes[sys.argv[1]](*sys.argv[2:]))
    print("\n".join(found) if found else f"{sys.argv[1]}: no complaints")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
