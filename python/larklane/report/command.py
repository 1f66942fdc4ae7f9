"""larklane report: a text summary, figures and one page, from records of `larklane bench`, `larklane profile` and `make bars`."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from larklane.comparison.projection import Projection, measured_speedup, parse_projection, read_mpip
from larklane.figures.charts import Figure
from larklane.files import output_file
from larklane.numbers import wording
from larklane.prediction.costs import read as read_costs
from larklane.profile.profile_file import SUFFIX, ProfileError
from larklane.records.cases import measured
from larklane.records.node import RecordError
from larklane.records.schema import Collection, load
from larklane.report.digest import Digest, Table, advice_table, call_costs, counts, digest, early, gained, gains, headlines, machines, messages, shortened, troubles
from larklane.report.page import page
from larklane.report.profile_digest import ProfileDigest, digest_profile
from larklane.report.row_digest import criteria, point_table, row_title

FAILED, USAGE = 1, 2
COLUMN_MAX = 100

EPILOG = """examples:
  larklane report pb.json                              one run
  larklane report native.json larklane.json            two runs, compared at equal parameters
  larklane report results/ --out pages/today           every *.json of a folder
  larklane report results/ --only overhead             one figure (--only help lists what the records give)
  larklane report larklane-profile                     a profile: arrivals, and what sending early would save
  larklane report profile-1 --costs bench.json         the same with what messages and partitions cost on that machine
  larklane report profile-1 --writes profile-2         the same with who wrote what, from a run with --trace-writes
  larklane report profile-1 --speedup 15.1             the same with the paper's rule for faster messages
  larklane report measurements/lanes-*.json            rows of `make bars`
  larklane report sweep.json --mpip app.mpiP           what the program that mpiP profiled may gain
  larklane report sweep.json --projection 20.4%:15.1   the same from two numbers

Exit status: 0; 1 the report could not be written; 2 wrong usage, or a file that is no record.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="larklane report", description=__doc__, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="records (JSON), folders of them, or profiles' folders")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("larklane-report"),
                        help="where page (index.html), figures and CSV go; default: %(default)s")
    parser.add_argument("--text", action="store_true", help="print the summary only, write nothing")
    parser.add_argument("--only", metavar="FIGURE", action="append", help="draw this figure alone; may be repeated")
    parser.add_argument("--costs", metavar="FILE", type=Path,
                        help="of profiles: what messages and partitions cost, from `larklane bench latency`; default: as far as the profile shows it")
    parser.add_argument("--writes", metavar="FOLDER", type=Path,
                        help="of profiles: another one of the same program, made with --trace-writes: which thread writes what; default: assumed, and varied")
    parser.add_argument("--projection", metavar="SHARE:SPEEDUP", action="append", type=_projection, default=[],
                        help="what a program gains if this share of its time gets this much faster; may be repeated")
    parser.add_argument("--mpip", metavar="FILE", type=Path, help="take the share from mpiP's text report")
    parser.add_argument("--speedup", metavar="X", type=_speedup,
                        help="with --mpip or a profile: how much faster communication gets; default, with --mpip: the largest gain in sweep3d or halo3d")
    return parser


def _projection(text: str) -> Projection:
    try:
        return parse_projection(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _speedup(text: str) -> float:
    try:
        value = float(text.removesuffix("x"))
    except ValueError:
        value = 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a factor above 0, as in 15.1")
    return value


def _projections(arguments: argparse.Namespace, collection: Collection) -> list[Projection]:
    """@throws RecordError  no report of mpiP, or no speed-up available"""
    found = list(arguments.projection)
    if arguments.mpip is None:
        return found
    profile = read_mpip(arguments.mpip)
    speedup, where = arguments.speedup, "--speedup"
    if speedup is None:
        best = measured_speedup(measured(collection))
        if best is None:
            raise RecordError("--mpip: the records hold no sweep3d or halo3d with partitions; say with --speedup X how much faster "
                              "communication gets")
        speedup, where = best
    print(f"{arguments.mpip}: {wording.duration(profile.app_s * 1e9)} in all tasks, {wording.duration(profile.mpi_s * 1e9)} in MPI; "
          f"{profile.what}: {100 * profile.share:.1f} %; {speedup:.3g} times as fast ({where})")
    label = f"{arguments.mpip.name}: {100 * profile.share:.3g} % at {speedup:.3g}x"
    return [*found, Projection(profile.share, speedup, label)]


def _print_table(table: Table) -> None:
    """Print a table: each column as wide as its longest cell, up to COLUMN_MAX; the last one unlimited."""
    rows = [table.heads, *table.rows] if any(table.heads) else list(table.rows)
    widths = [min(max(len(row[column]) for row in rows), COLUMN_MAX) for column in range(len(table.heads) - 1)]
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths)]
        print("  " + "  ".join([*cells, row[-1]]).rstrip())


def _print_section(title: str, table: Table | None, sentences: Sequence[str] = ()) -> None:
    if (table and table.rows) or sentences:
        print(f"\n{title}")
        for sentence in sentences:
            print(f"  {sentence}")
        if table and table.rows:
            _print_table(table)


def _print_profile(profile: ProfileDigest) -> None:
    print(f"{profile.name}: {profile.subject}")
    for problem in profile.problems:
        print(f"note: {problem}")
    for title, table in profile.tables:
        _print_section(title, table)
    _print_section("Ordinary messages under p2p=on", None, profile.ordinary)
    _print_section("Early sending and aggregation", None, profile.savings)


def print_text(made: Digest, profiles: Sequence[ProfileDigest] = ()) -> None:
    """Print the summary."""
    for number, profile in enumerate(profiles):
        print("\n" if number else "", end="")
        _print_profile(profile)
    for number, row in enumerate(made.collection.rows):
        print("\n" if number or profiles else "", end="")
        print(f"{row_title(row)}: {row.subject()}")
        _print_section("Points", point_table(row.points) if row.points else None)
        _print_section("Criteria", None, criteria(row))
    if (profiles and not made.collection.sources) or made.collection.is_of_rows:
        return
    if profiles or made.collection.rows:
        print()
    print("What you gain")
    for sentence in gained(made):
        print(f"  {sentence}")
    _print_table(gains(made))
    print(f"\n{made.subject()}" + (f"\n{made.stamp}" if made.stamp else ""))
    _print_section("Where", machines(made), shortened(made.collection))
    _print_section("In short (medians)", headlines(made), [made.shared()] if made.cases else [])
    _print_section("What the calls cost", call_costs(made))
    _print_section("Messages between threads", messages(made))
    _print_section("Comparisons", counts([*made.outcomes, *made.within]))
    _print_section("How many partitions to use", advice_table(made), made.gaps)
    _print_section("Failures and refusals", troubles(made.collection))
    _print_section("Does a part arrive while another one is held back?", early(made.collection))
    _print_section("Projection", None, [f"{p.label}: {p.result:.3f} times as fast" for p in made.projections])


def _chosen(figures: Sequence[Figure], only: Sequence[str] | None) -> tuple[Figure, ...]:
    """@throws RecordError  these records do not give a figure of `only`"""
    names = [figure.name for figure in figures]
    for name in only or ():
        if name not in names:
            raise RecordError(f"--only {name}: these records give {', '.join(names) or 'no figure'}")
    return tuple(figure for figure in figures if not only or figure.name in only)


def _draw(figures: Sequence[Figure]) -> tuple[dict[str, dict[str, bytes]], str]:
    """@return drawings by figure name, and the reason if there are none"""
    if not figures:
        return {}, "the records hold nothing that can be drawn"
    try:
        from larklane.figures import plot  # noqa: PLC0415  needs matplotlib
    except ImportError as error:
        return {}, (f"this Python ({sys.executable}) can't import matplotlib ({error}); install it (`make setup`, or pip install "
                    "matplotlib); the numbers are in the CSV files")
    return {figure.name: plot.draw(figure) for figure in figures}, ""


def write(made: Digest, profiles: Sequence[ProfileDigest], folder: Path) -> str:
    """Write page, figures and CSV; each write is complete, or leaves the old file.

    @return the reason if there are no figures, else an empty text
    @throws OSError
    """
    output_file.make_folder(folder)
    drawings, why = _draw(made.figures)
    for figure in made.figures:
        output_file.write(folder / f"{figure.name}.csv", figure.csv())
        for kind, data in drawings.get(figure.name, {}).items():
            output_file.write(folder / f"{figure.name}.{kind}", data)
    output_file.write(folder / "index.html", page(made, drawings, why, profiles))
    return why


def _profiles(paths: Sequence[Path], costs_file: Path | None, writes: Path | None, speedup: float | None) -> tuple[list[Path], list[ProfileDigest]]:
    """@return the paths that are no profiles, and the profiles

    @throws RecordError  a profile is unreadable, or of another program; the costs file has no costs
    """
    folders = [path for path in dict.fromkeys(paths) if path.is_dir() and any(path.glob(f"*{SUFFIX}"))]
    for option in ("--costs" if costs_file else "", "--writes" if writes else ""):
        if option and not folders:
            raise RecordError(f"{option}: it is for profiles, and there is none among the files")
    costs = read_costs(costs_file) if costs_file else None
    try:
        found = [digest_profile(folder, number, costs, writes, speedup) for number, folder in enumerate(folders, 1)]
    except ProfileError as error:
        raise RecordError(str(error)) from error
    return [path for path in paths if path not in folders], found


def main(words: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(words)
    try:
        records, profiles = _profiles(arguments.files, arguments.costs, arguments.writes, arguments.speedup)
        collection = load(records)
        made = digest(collection, _projections(arguments, collection))
        drawn = [figure for profile in profiles for figure in profile.figures]
        made = dataclasses.replace(made, figures=_chosen([*drawn, *made.figures], arguments.only))
    except RecordError as error:
        print(f"larklane report: {error}", file=sys.stderr)
        return USAGE
    print_text(made, profiles)
    if arguments.text:
        return 0
    try:
        why = write(made, profiles, arguments.out)
    except OSError as error:
        print(f"larklane report: {output_file.problem(error, 'name another folder with --out')}", file=sys.stderr)
        return FAILED
    if why:
        print(f"larklane report: no figures: {why}", file=sys.stderr)
    print(f"\nPage: {os.path.join(arguments.out, 'index.html')} (open it in a browser); "
          f"{wording.count(len(made.figures), 'figure')} with CSV beside it")
    return 0
