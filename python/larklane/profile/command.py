"""Reads the records of `larklane profile`: a folder with one file per rank (docs/user/profile.md), merged on one clock.

  python3 -m larklane.profile FOLDER                    a summary
  python3 -m larklane.profile FOLDER --perfetto FILE    a trace for https://ui.perfetto.dev
  python3 -m larklane.profile FOLDER --otf2 FOLDER      an OTF2 archive (Vampir, Scalasca)
  python3 -m larklane.profile FOLDER --delays FILE      delays per thread, for `larklane bench --noise trace:FILE`

Times are integers, nanoseconds of the clock of rank 0's host.
Exit status: 0; 1 if an output can't be written; 2 after other errors, such as an unreadable profile.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import statistics
import sys
from collections.abc import Iterable, Iterator

from larklane.files import json_text, output_file
from larklane.profile import otf2_file, perfetto
from larklane.profile.phases import Message
from larklane.profile.profile import NATIVE, Profile, load
from larklane.profile.profile_file import ProfileError
from larklane.profile.rounds import MODELLED, Request, early_bytes_share, exposed_ns, traces_of


def delays(profile: Profile) -> list[list[int]]:
    """@return [rounds][threads] each thread's delay after the first thread to finish. A thread finishes with its last Pready of a round of
    a partitioned send. If one thread makes all calls, delays are by partition. Without such sends it finishes at
    its end of the parallel phase before a message."""
    rows = []
    for send in profile.sends:
        for each in send.rounds:
            last: dict[int, int] = {}
            for mark in each.ready:
                last[mark.thread] = max(mark.begin_ns, last.get(mark.thread, 0))
            times = [last[thread] for thread in sorted(last)] if len(last) > 1 else [mark.begin_ns for mark in each.ready]
            if times:
                rows.append([time - min(times) for time in times])
    if not rows:
        phases = {id(message.phase): message.phase for message in profile.messages if message.phase}
        for phase in phases.values():
            times = [phase.finished_ns[thread] for thread in sorted(phase.finished_ns)]
            rows.append([time - min(times) for time in times])
    return rows


def write_delays(profile: Profile, path: pathlib.Path) -> int:
    """Write delays in the format of bench/measure/recording.hpp. @return the number of rounds. Raises ProfileError without delays."""
    rows = delays(profile)
    if not rows:
        raise ProfileError("no round with threads in it: nothing to take delays from")
    output_file.write(path, json_text.compact({"delays_ns": rows}))
    return len(rows)


# --- summary ----------------------------------------------------------------------------------------------------------


def _micro(values: Iterable[float]) -> str:
    values = list(values)
    return f"{statistics.median(values) / 1000:.1f}" if values else "-"


def _send_line(send: Request) -> str:
    traces = traces_of(send)
    labels = collections.Counter(label for trace in traces for label in trace.labels)
    seen = ", ".join(f"{name} {labels[name]}" for name in ("observed", "bounded", MODELLED) if labels[name])
    partitions = f"{send.partitions}/{send.other.partitions}" if send.other else f"{send.partitions}/?"
    early = f"{100 * statistics.median(map(early_bytes_share, traces)):.0f} %" if traces else "-"
    return (f"{send.rank:>5} {send.peer:>5} {send.tag:>6} {partitions:>9} {send.bytes:>12} {len(traces):>7} "
            f"{_micro(map(exposed_ns, traces)):>12} {early:>6}  {seen or '-'}{', native' if send.is_native else ''}")


def _message_lines(profile: Profile) -> Iterator[str]:
    groups: dict[tuple[int, int, int], list[Message]] = collections.defaultdict(list)
    for message in profile.messages:
        groups[message.rank, message.peer, message.bytes].append(message)
    for (rank, peer, size), messages in sorted(groups.items()):
        tags = {message.tag for message in messages}
        tag = str(tags.pop()) if len(tags) == 1 else "*"
        gaps = [gap for gap in (message.after_phase_ns for message in messages) if gap is not None]
        spread = [phase.last_ns - min(phase.finished_ns.values()) for phase in (m.phase for m in messages) if phase]
        threads = max((len(message.phase.finished_ns) for message in messages if message.phase), default=1)
        yield (f"{rank:>5} {peer:>5} {tag:>6} {size:>12} {len(messages):>7} {threads:>8} {_micro(spread):>11} {_micro(gaps):>14}")


def summary(profile: Profile) -> str:
    """@return lines to print; times are medians over rounds, in microseconds"""
    first = profile.files[0]
    lines = [f"{first.program}: {len(profile.files)} of {first.size} ranks, {' '.join(first.mpi.split())}, Larklane {first.larklane}"
             f"{NATIVE if first.is_native else ''}"]
    if len(profile.clocks) > 1:
        lines.append(f"{len(profile.clocks)} hosts' clocks, aligned to {profile.clock_error_ns / 1000:.1f} us")
    lines += [f"note: {problem}" for problem in profile.problems]
    if profile.sends:
        lines += ["", f"{'rank':>5} {'peer':>5} {'tag':>6} {'S/R':>9} {'bytes':>12} {'rounds':>7} {'exposed us':>12} {'early':>6}"
                      "  arrivals"]
        lines += [_send_line(send) for send in profile.sends]
    if profile.messages:
        lines += ["", f"{'rank':>5} {'peer':>5} {'tag':>6} {'bytes':>12} {'sends':>7} {'threads':>8} {'spread us':>11} {'join to send':>14}"]
        lines += list(_message_lines(profile))
    if not profile.sends and not profile.messages:
        lines.append("no partitioned request and no message was recorded")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m larklane.profile", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--perfetto", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--otf2", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--delays", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        profile = load(options.folder)
        print(summary(profile))
        if options.perfetto:
            perfetto.write(profile, options.perfetto)
        if options.otf2:
            otf2_file.write(profile, options.otf2)
        if options.delays:
            print(f"{options.delays}: {write_delays(profile, options.delays)} rounds")
    except output_file.NotWritten as error:
        print(f"larklane profile: {output_file.problem(error, 'name another file')}", file=sys.stderr)
        return 1
    except (ProfileError, OSError) as error:
        print(f"larklane profile: {error}", file=sys.stderr)
        return 2
    return 0
