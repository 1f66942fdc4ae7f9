#!/usr/bin/env python3
"""Runs the conformance suite natively on every MPI found here and writes docs/user/native-table.md.

The programs come from a build folder (build/release). A run takes some minutes for each MPI: hangs have to be waited for.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "mp"))
sys.path.insert(0, str(HERE))
import launch  # noqa: E402
import run  # noqa: E402

WITHOUT_CALLS = ("openmpi4",)  # no partitioned calls of their own: nothing to run natively
INTRODUCTION = """\
# MPI libraries without Larklane

For users who compare: the conformance suite (`tests/conformance`, plain MPI-4) run natively, with two to four processes
on one host and each case in a launch of its own. A case's name begins with the rule that it checks;
[conformance.md](conformance.md) states the rules. `@sessions`: in a process that has no world, only an MPI session.

```sh
make native-table   # writes this page
```

| cell | meaning |
|---|---|
| ok | the rule holds |
| **wrong data** | bytes are wrong, arrived too early, or were written when the buffer was not MPI's |
| **hang** | not finished after {deadline:g} s |
| **crash** | a process died, in the case or in finalizing after it |
| error | another answer than the rule asks for: a refused call that should work, a completed request that should not be, misuse without an error or with another error class |
| late | correct, but not early: data waits for partitions that it does not need, or for the sender's next MPI call (rule P5 is advice to implementers, and the point of the interface) |
| - | the library lacks a call that the case needs |

The standard assigns no error classes (rule E1): the class that the suite expects there is its own choice, written down
in conformance.md. A library that returns another class than expected, but returns one, does no harm.
"""




def measure(mpi: str, program: pathlib.Path, deadline: float) -> dict[str, run.Result]:
    with tempfile.NamedTemporaryFile(suffix=".json") as record:
        subprocess.run([sys.executable, str(HERE / "run.py"), "--mpi", mpi, "--mode", "native",
                        "--program", str(program), "--deadline", str(deadline), "--json", record.name],
                       check=False)
        results = json.loads(pathlib.Path(record.name).read_text())["results"]
    return {r["name"]: run.Result(**r) for r in results}


def cell(result: run.Result | None) -> str:
    if result is None or result.kind == "skip":
        return "-"
    if result.kind in ("wrong data", "hang", "crash"):
        return f"**{result.kind}**"
    return result.kind


def in_order_of_rules(name: str) -> tuple:
    """As in conformance.md: by chapter, then by number; rows of the matrix last."""
    rule, _, rest = name.partition("_")
    return ("ISRPCTEXFM".index(rule[0]), int(rule[1:] or 0), rest)


def table(columns: dict[str, dict[str, run.Result]], deadline: float) -> str:
    """Rows in the order of the rules, and below it the findings where a rule does not hold."""
    names = {name for results in columns.values() for name in results}
    lines = [INTRODUCTION.format(deadline=deadline),
             f"Run on {datetime.date.today().isoformat()}.", "",
             "| rule | case | " + " | ".join(launch.EVERY[c].title for c in columns) + " |",
             "|---|---|" + "---|" * len(columns)]
    for name in sorted(names, key=in_order_of_rules):
        rule, _, rest = name.partition("_")
        cells = " | ".join(cell(results.get(name)) for results in columns.values())
        lines.append(f"| {rule} | {rest} | {cells} |")
    counts = []
    for column, results in columns.items():
        ran = [r for r in results.values() if r.kind != "skip"]
        held = sum(r.kind == "ok" for r in ran)
        counts.append(f"{launch.EVERY[column].title}: {held} of {len(ran)} cases hold")
    lines += ["", ". ".join(counts) + ".", "",
              "Open MPI 4.1.4 (Debian) has no partitioned calls at all.", "", "## Findings", ""]
    for column, results in columns.items():
        lines += [f"### {launch.EVERY[column].title}", ""]
        for name, result in sorted(results.items(), key=lambda r: in_order_of_rules(r[0])):
            if result.kind not in ("ok", "skip"):
                text = result.text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")
                lines += textwrap.wrap(f"* `{name}`: {result.kind}: {text}", 120, subsequent_indent="  ",
                                       break_long_words=False, break_on_hyphens=False)
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path)
    parser.add_argument("--deadline", default=6.0, type=float, help="seconds until a case hangs")
    parser.add_argument("--output", default=ROOT / "docs/user/native-table.md", type=pathlib.Path)
    args = parser.parse_args()
    columns = {}
    for name, mpi in launch.EVERY.items():
        program = args.build / "tests/conformance" / mpi.program_folder() / "conformance"
        if name in WITHOUT_CALLS or not mpi.installed() or not program.exists():
            print(f"native-table: nothing to run for {mpi.title}")
            continue
        print(f"native-table: {mpi.title}", flush=True)
        columns[name] = measure(name, program, args.deadline)
    if not columns:
        print("native-table: no MPI here; `make setup` installs some", file=sys.stderr)
        return 1
    args.output.write_text(table(columns, args.deadline))
    print(f"native-table: wrote {args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
