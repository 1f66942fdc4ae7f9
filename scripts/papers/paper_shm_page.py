"""The real figures on the page of scripts/papers/paper_figures.py: results over shared memory, and the paper's statements that they confirm.

All text that depends on numbers is computed from them.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any

import bars
import paper_host
from cluster23 import APART, DELTAS_US, SHOWS, SWEEP_DELTA_US, TIMER_US, ploggp
from paper_shm import AGAIN, AT_ONCE, GROUPS, ITSELF, LATE, NONE, ONE_SEND, PATTERNS, ROW, SWEEPS, Seen, Setting, Values, grouped, timer

from larklane.numbers import stats, wording

ENOUGH_US = 35  # figure 12
NEAR = 1.1  # ratios up to this count as equal

Verdict = bool | None


def above(values: Values, noise: Values) -> Verdict:
    """True: every turn is above 1 by more than the A/A noise; False: every turn is below, likewise. None: neither, or no figures."""
    low, high = min([1.0, *noise]), max([1.0, *noise])
    return True if values and min(values) > high else False if values and max(values) < low else None


def below(values: Values, noise: Values) -> Verdict:
    found = above(values, noise)
    return None if found is None else not found


def alike(values: Values) -> Verdict:
    """True: no turn is further from 1 than NEAR; False: every turn is, on the same side."""
    if values and 1 / NEAR <= min(values) and max(values) <= NEAR:
        return True
    return False if values and (min(values) > NEAR or max(values) < 1 / NEAR) else None


def every(verdicts: Sequence[Verdict]) -> Verdict:
    return False if False in verdicts else None if None in verdicts or not verdicts else True


def judged(claims: Sequence[tuple[str, Verdict]]) -> str:
    """The paper's claims, grouped by their verdicts here."""
    words = {True: "As there", False: "**Not here**", None: "Not clear"}
    parts = [f"{words[verdict]}: {'; '.join(found)}." for verdict in words if (found := [claim for claim, its in claims if its is verdict])]
    return " ".join(parts)


def value(values: Values) -> str:
    return f"{stats.median(values):.2f}" if values else "-"


def spread(values: Values) -> str:
    return f"{value(values)} ({min(values):.2f} to {max(values):.2f})" if values else "-"


def duration(us: float) -> str:
    return wording.duration(us * 1e3).replace("µ", "u")


def listed(seen: Seen, setting: Setting, of: Callable[[int], str]) -> str:
    return ", ".join(f"{wording.size(size)} {of(size)}" for size in seen.sizes(setting))


def noise(seen: Seen, *settings: Setting) -> str:
    found = [ratio for setting in settings for size in seen.sizes(setting) for ratio in seen.again(setting, size)]
    return f" A/A noise: {min(found):.2f} to {max(found):.2f}." if found else ""


Row = tuple[str, str, str, str]
"""Figure, what is seen, what of the paper's is seen, why."""
TURNS_OF_CORES = ("Threads beyond the cores take turns, so they are ready one after the other, and a group waits for its last one. A transfer is a copy by "
                  "the kernel: no wire to fill, no request to match.")


def row_6(seen: Seen) -> Row:
    setting = AT_ONCE[32, 32]
    small, *_, large = seen.sizes(setting)

    def found(at: Setting) -> str:
        def best(size: int) -> str:
            name, values = seen.search(at, size)
            return f"`{name}`" + (f" {value(values)}" if name != NONE else "")

        return f"{wording.count(at.threads, 'thread')}: " + listed(seen, at, best)

    one = {size: seen.speedups(setting, size, grouped(1, 32)) for size in seen.sizes(setting)}
    equal = [alike(seen.speedups(setting, large, grouped(count, 32))) for count in GROUPS]
    return ("06", f"Best, over `none`: {found(AT_ONCE[32, 2])}; {found(setting)}.{noise(seen, AT_ONCE[32, 2], setting)}",
            judged([(f"one transfer is better than 32 at {wording.size(small)}", above(one[small], seen.again(setting, small))),
                    ("32 are better than one from 16 KiB on", every([below(values, seen.again(setting, size)) for size, values in one.items() if size >= 16 << 10])),
                    (f"all alike at {wording.size(large)}", every(equal))]), TURNS_OF_CORES)


def row_8(seen: Seen) -> Row:
    settings = [AT_ONCE[4, 4], AT_ONCE[32, 32], AT_ONCE[128, 128]]

    def found(at: Setting) -> str:
        return f"{at.partitions}: " + listed(seen, at, lambda size: f"{value(seen.table(at, size))} and {value(seen.search(at, size)[1])}")

    def gains(at: Setting) -> Verdict:
        return every([above(seen.table(at, size), seen.again(at, size)) for size in seen.sizes(at)])

    four, many, most = settings
    lost = [below(seen.table(four, size), seen.again(four, size)) for size in seen.sizes(four) if (size < 2 << 10 or size > 32 << 10) and ploggp(size, 4) < 4]
    return ("08", f"Table I and search: {'; '.join(map(found, settings))}.{noise(seen, *settings)}",
            judged([("4 partitions lose below 2 KiB and above 32 KiB", every(lost)), ("32 gain", gains(many)), ("128 gain", gains(most))]), TURNS_OF_CORES)


def row_9(seen: Seen) -> Row:
    setting, size = LATE[32], 8 << 20
    groups = ploggp(size, 32)
    table, again = grouped(groups, 32), seen.again(setting, size)
    names = {NONE: "`none`", table: f"Table I ({groups} groups)", timer(TIMER_US): "timer", ITSELF: "the MPI's own", ONE_SEND: "one send"}
    shown = ", ".join(f"{label} {spread(seen.gigabytes(setting, size, name))}" for name, label in names.items())
    return ("09", f"8 MiB in 32 partitions, GB/s: {shown}.{noise(seen, setting)}",
            judged([("the baseline is ahead of Table I", below(seen.speedups(setting, size, table), again)),
                    ("Table I is ahead of one send", above(seen.ratios(setting, size, ONE_SEND, table), again)),
                    ("the timer is ahead of Table I", above(seen.ratios(setting, size, table, timer(TIMER_US)), again))]),
            "What is early is copied while the late thread computes, by a core of its own. What is left is one partition, or its group.")


def apart(seen: Seen, names: Sequence[str]) -> float:
    """The largest relative difference of medians at one size; 0 without figures."""
    found = [[stats.median(values) for name in names if (values := seen.us(LATE[32], size, name))] for size in seen.sizes(LATE[32])]
    return max((max(medians) / min(medians) - 1 for medians in found if medians), default=0)


def row_13(seen: Seen) -> Row:
    timers, again = apart(seen, [timer(delta_us) for delta_us in DELTAS_US]), apart(seen, (NONE, AGAIN))
    verdict = True if timers <= APART else None if timers <= APART + again else False
    return ("13", f"At most {100 * timers:.2f} % apart; the baseline, measured twice, {100 * again:.2f} %.", judged([(f"at most {100 * APART:.2f} % apart", verdict)]),
            "A thread that waits for a core is later than all of these timers, and what is not ready by the deadline goes with the last.")


def row_14(seen: Seen) -> Row:
    size = 1 << 20
    tables = {name: seen.table(setting, size) for name, setting in SWEEPS.items()}
    shown = ", ".join(f"{spread(values)} ({name})" for name, values in tables.items())
    timed = ", ".join(value(seen.speedups(setting, size, timer(SWEEP_DELTA_US))) for setting in SWEEPS.values())
    return ("14", f"Table I at 1 MiB: {shown}; timer of {SWEEP_DELTA_US} us: {timed}.{noise(seen, *SWEEPS.values())}",
            judged([("groups gain with 10 us of noise", above(tables["14a"], seen.again(SWEEPS["14a"], size))), ("with 40 us", above(tables["14b"], seen.again(SWEEPS["14b"], size))), ("next to nothing at 400 us", alike(tables["14c"]))]),
            f"`larklane bench sweep3d`, 2 x 2 ranks, 4 blocks from each of 4 corners. {PATTERNS['sweep3d'].compute_us} us are computed for a block instead of the paper's 1 or 10 ms, and are in "
            f"the times. {PATTERNS['sweep3d'].ranks * SWEEPS['14a'].threads} threads wait for each other and for cores: who waits gives its core to another.")


def arrival_row(number: str, size: int, share: float, host: paper_host.Host) -> list[Row]:
    """A row from a typical round. @param share  share of the partitions that the paper sends early"""
    found = paper_host.panels(host, size)
    if not found:
        return []
    ends_us = [bar.end_us for bar in found[0].bars]
    early, last = sum(end_us <= 0 for end_us in ends_us), duration(max(ends_us))
    claim = f"{round(share * 32)} of 32 are early"
    return [(number, f"In a typical round {early} of 32 have arrived when the last thread is done, the last one {last} later.",
             judged([(claim, abs(early - share * 32) <= 1)]),
             f"No wire: a partition is copied as soon as it is ready, and threads that take turns at {wording.count(host['cores'], 'core')} end apart.")]


def row_12(host: paper_host.Host) -> list[Row]:
    deltas = {count: [run["delta_us"] for run in host["runs"] if run["partitions"] == count and run["delta_us"]] for count in paper_host.COUNTS}
    medians = {count: stats.median(values) for count, values in deltas.items() if values}
    if 32 not in medians:
        return []
    shown = ", ".join(f"{count} partitions {duration(us)}" for count, us in medians.items())
    enough = True if max(deltas[32]) <= ENOUGH_US else False if min(deltas[32]) > ENOUGH_US else None
    return [("12", f"Medians over the sizes: {shown}.",
             judged([(f"{ENOUGH_US} us are enough for 32", enough), ("more with more partitions", list(medians.values()) == sorted(medians.values()))]),
             f"Threads that compute take turns at {wording.count(host['cores'], 'core')}, for as long as the system lets each go on.")]


def arrival_rows(host: paper_host.Host) -> list[Row]:
    return [*arrival_row("10", 8 << 20, 31 / 32, host), *arrival_row("11", 128 << 20, 3 / 8, host), *row_12(host)]


def links(number: str) -> str:
    """Figures 10 to 12 have a panel of this host."""
    name = f"figure-{number}"
    return f"[{number}]({name}.svg), beside the simulated" if number in ("10", "11", "12") else f"[{number}]({name}-host.svg), [simulated]({name}.svg)"


def row_section(record: dict[str, Any]) -> list[str]:
    """The verdicts of bars.py on `learned` against the others, counted."""
    found: dict[str, collections.Counter[str]] = {}
    for point in record["points"]:
        for verdict in point["verdicts"]:
            found.setdefault(bars.label(verdict), collections.Counter())[verdict["verdict"]] += 1
    counts = [f"{pair}: " + ", ".join(f"{verdict} at {count}" for verdict, count in its.most_common()) for pair, its in found.items()]
    return [f"128 partitions by size, of 2 threads or of one each (row `{ROW}` of [summary.md](../summary.md)): [{ROW}]({ROW}.svg). Of {len(record['points'])} points, "
            + "; ".join(counts) + ".", ""]


def section(host: paper_host.Host, record: dict[str, Any] | None) -> list[str]:
    """Lines of the page: the real figures beside the simulated ones."""
    seen = Seen(host)
    rows = sorted(arrival_rows(host) + ([row(seen) for row in (row_6, row_8, row_9, row_13, row_14)] if seen else []))
    lines = ["## Over shared memory", ""] if rows or record else []
    if rows:
        turns = " or ".join(map(str, sorted({seen.turns(benchmark) for benchmark in PATTERNS}))) if seen else ""
        lines += [f"Real programs (`larklane bench`) on {wording.count(host['cores'], 'core')} of {host['cpu']}, {host['mpi']}; payload and completion verified in every round. "
                  "Threads", "beyond the cores take turns. Queue pairs do not exist in shared memory: figure 7 is simulated only.",
                  *([f"Figures 6, 8, 9, 13 and 14: policies by `LARKLANE_POLICY`, by attach, against `none`, which sends each partition by itself; medians of {turns} turns.",
                     "Where they are compared with the paper, every turn must agree, by more than the A/A noise."] if seen else []), "",
                  "| figure | the paper | this host | where they differ | why |", "|---|---|---|---|---|",
                  *(f"| {links(number)} | {SHOWS[number]} | {what} | {verdict} | {why} |" for number, what, verdict, why in rows), ""]
        left = [f"- left out: {each['contender']} of {each['benchmark']}, {each['partitions']} partitions: {each['why'].splitlines()[-1]}" for each in host.get("failed", ())]
        lines += [*left, ""] if left else []
    return lines + (row_section(record) if record else [])
