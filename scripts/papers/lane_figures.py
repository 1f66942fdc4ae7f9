#!/usr/bin/env python3
"""Figures of Zambre et al., ICS'20, on this machine: measurements/ics20.

Lanes, the value of each part of a lane, and the paper's applications: `larklane bench` on Larklane and, natively, on the first installed MPI of
`make setup`. `larklane report` draws the figures, each with its CSV. Takes some minutes. Only wrong payloads and results fail.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "measure"))

import bars  # noqa: E402
import launch  # noqa: E402
import paper_host  # noqa: E402

from larklane.records import schema  # noqa: E402

FOLDER = bars.RECORDS / "ics20"
ONCE = "--iterations 20 --warmup 2"


class Bench(NamedTuple):
    """A run of `larklane bench`. `name`: prefix of its figures' files; `figures`: {figure of the report: figure of the paper}."""

    name: str
    words: str
    figures: dict[str, str]


BENCHES = (
    Bench("send", "message-rate --threads 1,2,4 --sizes 8,512,4K,16K", {"message-rate-threads": "10, sends over threads", "message-rate": "11, over sizes"}),
    Bench("put", "message-rate --threads 1,2,4 --sizes 8,512,4K,16K --operation put", {"message-rate-threads": "13, puts over threads", "message-rate": "14, over sizes"}),
    Bench("lanes", "lanes --threads 1,2,4", {"lanes-threads": "6 to 8 and 12, what each part of a lane is worth, and its lock"}),
    Bench("stencil", "stencil --threads 1,2 --sizes 64,512,4K", {"stencil": "22, halo exchange of a stencil"}),
    Bench("ebms", "ebms --threads 1,2 --sizes 4K,64K,1M", {"ebms": "24, remote fetch", "ebms-get": "25, its first part", "ebms-flush": "25, its second"}),
    Bench("bspmm", "bspmm --threads 1,2 --sizes 2K,8K,32K", {"bspmm": "27, get, compute, update", "bspmm-get-flush": "27, its gets", "bspmm-accumulate-flush": "27, its updates"}),
)
NOT_HERE = """Figures that are not here: 4 (start-up against the number of lanes) is a table in [messages.md](../../docs/user/messages.md#what-it-takes); the two programs of 9
are tests (`messages_crossed`), and so is 19, many senders to one receiver (`messages_incast`); 16 (a busy target) and 17 (more threads than lanes) want
cores that this machine does not have. The others are diagrams, or of networks that are not here."""


def drawn(bench: Bench, mpi: launch.Mpi | None, folder: pathlib.Path) -> None:
    """Draw the figures of a run into FOLDER. @raises RuntimeError  the benchmark failed, a payload was wrong, or a figure is missing"""
    record = bars.bench_set(f"{bench.words} {ONCE}".split(), folder / "out", mpi if bench.name != "lanes" else None, "{processes}")
    done = subprocess.run([bars.ROOT / bars.LARKLANE, "report", record, "--out", folder / "page"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"larklane report: {done.stderr.strip()[-500:]}")
    if failures := schema.load([record]).failures:
        raise RuntimeError(f"{bench.name}: {failures}")
    for figure in bench.figures:
        for kind in ("svg", "csv"):
            file = folder / f"page/{figure}.{kind}"
            if not file.exists():
                raise RuntimeError(f"{bench.name}: no {file.name}; there are {', '.join(sorted(path.name for path in file.parent.glob('*.svg')))}")
            shutil.copy(file, FOLDER / name_of(bench, figure, kind))


def name_of(bench: Bench, figure: str, kind: str) -> str:
    return figure.replace("message-rate", bench.name) + f".{kind}"


def page(mpi: launch.Mpi | None) -> str:
    about = bars.context()
    machine = about["machine"]
    beside = f"beside {mpi.title}'s own" if mpi else "no MPI is here"
    lines = [f"- figure {of} ([csv]({name_of(bench, figure, 'csv')}))\n\n  ![{of}]({name_of(bench, figure, 'svg')})"
             for bench in BENCHES for figure, of in bench.figures.items()]
    return "\n\n".join(("# Figures of ICS'20 on this machine", f"""Written by `scripts/papers/lane_figures.py`: figures of Zambre et al., ICS'20, as `larklane bench` measures and `larklane report` draws them, over shared
memory, {beside}. {machine["cpu"]}, {machine["cores"]} cores, {about["measured"][:10]}, commit {about["commit"]}{" and changes" if about["dirty"] else ""}. One launch of each: what ratios are worth say the records of
`make bars`. Threads beyond the cores take turns; of two processes (all but 6 to 8) those are twice as many as the threads of one. Ways: [performance.md](../../docs/user/performance.md#messages-between-threads).""",
                        *lines, NOT_HERE)) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    mpi = paper_host.installed()
    FOLDER.mkdir(exist_ok=True)
    for number, bench in enumerate(BENCHES, 1):
        print(f"[{number}/{len(BENCHES)}] larklane bench {bench.words}", flush=True)
        with tempfile.TemporaryDirectory(prefix="lane-figures-") as scratch:
            try:
                drawn(bench, mpi, pathlib.Path(scratch))
            except RuntimeError as error:
                print(f"lane_figures: {error}", file=sys.stderr)
                return 1
    (FOLDER / "README.md").write_text(page(mpi), encoding="utf-8")
    print(f"{(FOLDER / 'README.md').relative_to(bars.ROOT)} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
